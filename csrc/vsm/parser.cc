#include "vsm/parser.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "vsm/error.h"
#include "vsm/lexer.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 30;
constexpr int kMaxNesting = 200;

// Names visible in one { } block. `%r<10>` is kept as a range and becomes registers when used.
struct Scope {
  int parent = -1;
  std::unordered_map<std::string_view, int> registers;
  std::unordered_map<std::string_view, Variable*> variables;
  std::unordered_map<std::string_view, int> labels;
  std::unordered_map<std::string_view, int> tables;
  struct Range {
    std::string_view prefix;
    uint64_t count;
    Type type;
  };
  std::vector<Range> ranges;
};

bool is_special(std::string_view name) {
  if (name.empty() || name[0] != '%') return name == "WARP_SZ";
  return true;
}

class Parser {
 public:
  explicit Parser(Module& module) : module_(module), tokens_(tokenize(module.text)) {
    scopes_.emplace_back();
  }

  void run() {
    while (peek().kind != TokenKind::end) module_directive();
    patch_relocations();
    for (auto& [variable, line] : used_externals_)
      if (externals_.count(variable))
        fail_at(line, "variable '" + variable->name + "' is declared .extern and defined nowhere");
  }

 private:
  // ---- tokens ----
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(pos_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[pos_ < tokens_.size() - 1 ? pos_++ : pos_]; }
  bool accept(std::string_view s) {
    if (!peek().is(s)) return false;
    take();
    return true;
  }
  [[noreturn]] void fail(const std::string& what) const { fail_at(peek().line, what); }
  [[noreturn]] static void fail_at(int line, const std::string& what) {
    throw LoadError("line " + std::to_string(line) + ": " + what);
  }
  const Token& expect(std::string_view s) {
    if (!peek().is(s)) fail("expected '" + std::string(s) + "', found '" + std::string(peek().text) + "'");
    return take();
  }
  std::string_view expect_word(const char* what) {
    if (peek().kind != TokenKind::word)
      fail(std::string("expected ") + what + ", found '" + std::string(peek().text) + "'");
    return take().text;
  }
  uint64_t expect_integer(const char* what) {
    Operand v = expression(0);
    if (v.kind != Kind::integer) fail(std::string("expected a constant for ") + what);
    return v.value;
  }
  uint64_t count() {  // between < and >, where an expression would take the > for an operator
    if (peek().kind != TokenKind::integer) fail("expected a count, found '" + std::string(peek().text) + "'");
    return take().value;
  }
  void skip_past(std::string_view close) {
    int depth = 0;
    while (peek().kind != TokenKind::end) {
      const Token& t = take();
      if (t.is("{")) ++depth;
      if (t.is("}")) --depth;
      if (depth <= 0 && t.is(close)) return;
    }
    fail("expected '" + std::string(close) + "' before the end of the text");
  }

  // ---- module level ----
  void module_directive() {
    const Token& t = peek();
    if (accept(";")) return;
    if (t.kind != TokenKind::directive) fail("expected a directive, found '" + std::string(t.text) + "'");
    if (t.is(".version")) {
      take();
      module_.version = std::string(take().text);
    } else if (t.is(".target")) {
      take();
      module_.target = std::string(expect_word("a target"));
      while (accept(",")) expect_word("a target");
    } else if (t.is(".address_size")) {
      take();
      if (expect_integer(".address_size") != 64) fail("only .address_size 64 is supported");
    } else if (t.is(".file")) {
      skip_file();
    } else if (t.is(".section")) {
      skip_past("}");
    } else if (t.is(".pragma") || t.is(".alias")) {
      skip_past(";");
    } else {
      linkage_directive();
    }
  }

  void skip_file() {  // .file 1 "name" {, timestamp, size}
    take();
    take();
    take();
    while (accept(",")) take();
  }

  void linkage_directive() {
    bool external = false;
    while (true) {
      if (accept(".extern")) {
        external = true;
      } else if (peek().is(".visible") || peek().is(".weak") || peek().is(".common")) {
        take();
      } else {
        break;
      }
    }
    if (peek().is(".entry") || peek().is(".func")) {
      function(take().is(".entry"));
    } else if (auto space = variable_space(peek().text); space && *space != Space::param) {
      take();
      variables(*space, external, scopes_[0], nullptr);
    } else {
      fail("unknown directive '" + std::string(peek().text) + "'");
    }
  }

  static std::optional<Space> variable_space(std::string_view s) {
    if (s == ".global") return Space::global;
    if (s == ".const") return Space::constant;
    if (s == ".shared" || s == ".shared::cta") return Space::shared;
    if (s == ".local") return Space::local;
    if (s == ".param") return Space::param;
    return std::nullopt;
  }

  // ---- variables ----
  struct Declared {
    Type type = Type::b8;
    uint64_t align = 0;
    int vector = 1;
  };

  // `.align 16 .v4 .b8 .ptr .global .align 4`, in any order, up to the name.
  Declared declaration_head() {
    Declared d;
    bool typed = false;
    bool pointer = false;
    while (peek().kind == TokenKind::directive) {
      std::string_view s = take().text;
      if (s == ".align") {
        uint64_t align = expect_integer(".align");
        if (align == 0 || (align & (align - 1)))
          fail(".align must be a power of two, found " + std::to_string(align));
        if (!pointer) d.align = align;
      } else if (s == ".v2" || s == ".v4" || s == ".v8") {
        d.vector = s[2] - '0';
      } else if (s == ".ptr") {
        pointer = true;
      } else if (s == ".attribute") {
        expect("(");
        while (!accept(")")) {
          if (peek().kind == TokenKind::end) fail("expected ')'");
          take();
        }
      } else if (s == ".global" || s == ".shared" || s == ".const" || s == ".local" || s == ".space") {
        if (!pointer) fail("unexpected '" + std::string(s) + "' in a declaration");
      } else if (auto type = parse_type(s.substr(1))) {
        d.type = *type;
        typed = true;
      } else {
        fail("unknown type '" + std::string(s) + "'");
      }
    }
    if (!typed) fail("a declaration needs a type");
    if (d.type == Type::pred) d.type = Type::b8;
    if (d.align == 0) d.align = static_cast<uint64_t>(bytes_of(d.type)) * static_cast<uint64_t>(d.vector);
    return d;
  }

  Variable* new_variable(std::string_view name, Space space, const Declared& d) {
    Variable& v = module_.variables.emplace_back();
    v.name = std::string(name);
    v.space = space;
    v.type = d.type;
    v.align = d.align;
    v.bytes = static_cast<uint64_t>(bytes_of(d.type)) * static_cast<uint64_t>(d.vector);
    return &v;
  }

  // `[4][8]` after a name; an empty first extent leaves `open` true.
  void extents(Variable& v, bool& open) {
    open = false;
    while (accept("[")) {
      if (accept("]")) {
        open = true;
        continue;
      }
      uint64_t n = expect_integer("an array extent");
      expect("]");
      if (n && v.bytes > kMaxVariableBytes / n) fail("variable '" + v.name + "' is larger than 1 GiB");
      v.bytes *= n;
    }
  }

  // A new variable, or the one that an .extern declaration has announced.
  Variable* declare(std::string_view name, Space space, const Declared& d, bool external, Scope& scope) {
    auto found = scope.variables.find(name);
    bool linked = space == Space::global || space == Space::constant;
    if (found == scope.variables.end() || (!linked && (external || found->second->external))) {
      Variable* v = new_variable(name, space, d);
      if (external && linked) externals_.insert(v);
      return v;
    }
    Variable* v = found->second;
    if (v->space != space || !externals_.count(v))
      fail("'" + std::string(name) + "' is declared twice in one scope");
    if (!external) externals_.erase(v);
    v->type = d.type;
    v->align = d.align;
    v->bytes = static_cast<uint64_t>(bytes_of(d.type)) * static_cast<uint64_t>(d.vector);
    return v;
  }

  void variables(Space space, bool external, Scope& scope, Function* function) {
    Declared d = declaration_head();
    do {
      std::string_view name = expect_word("a variable's name");
      Variable* v = declare(name, space, d, external, scope);
      bool numbered = accept("<");  // .param .b32 x<4>
      uint64_t copies = numbered ? count() : 1;
      if (numbered) expect(">");
      if (copies > 1024) fail("too many variables");
      bool open = false;
      extents(*v, open);
      if (open) {
        if (space == Space::shared && external) {
          v->external = true;
          v->bytes = 0;
        } else if (!peek().is("=")) {
          fail("an array without an extent is allowed only for .extern .shared variables");
        }
      }
      if (peek().is("=") && space != Space::global && space != Space::constant)
        fail("only variables of .global and .const have initial values");
      if (peek().is("=") && external) fail("an .extern variable has no initial value");
      if (accept("=")) initializer(*v, open);
      if (function && (space == Space::local || space == Space::param)) {
        v->space = Space::local;
        function->locals.push_back(v);
      }
      if (numbered) {
        for (uint64_t i = 0; i < copies; ++i) {
          Variable* copy =
              new_variable(names_.emplace_back(std::string(name) + std::to_string(i)), v->space, d);
          copy->bytes = v->bytes;
          if (function) function->locals.push_back(copy);
          scope.variables[copy->name] = copy;
        }
      } else {
        scope.variables[name] = v;
      }
    } while (accept(","));
    expect(";");
  }

  void initializer(Variable& v, bool open) {
    std::vector<Operand> values;
    braces(values, 0);
    uint64_t each = static_cast<uint64_t>(bytes_of(v.type));
    if (open) v.bytes = each * values.size();
    if (each * values.size() > v.bytes) fail("too many initial values for '" + v.name + "'");
    v.init.assign(each * values.size(), 0);  // the rest of the variable is zero
    for (size_t i = 0; i < values.size(); ++i) {
      const Operand& x = values[i];
      uint64_t value = x.value;
      if (x.kind == Kind::symbol || x.kind == Kind::name) {
        pending_.push_back(
            {&v,
             {i * each, static_cast<int>(each), nullptr, nullptr, static_cast<int64_t>(x.value), x.negated},
             std::string(x.name),
             peek().line});
        continue;
      }
      if (x.kind == Kind::real64 && v.type == Type::f32) {
        double d;
        std::memcpy(&d, &value, 8);
        float f = static_cast<float>(d);
        value = 0;
        std::memcpy(&value, &f, 4);
      }
      std::memcpy(v.init.data() + i * each, &value, std::min<uint64_t>(each, 8));
    }
  }

  void braces(std::vector<Operand>& out, int depth) {
    if (depth > kMaxNesting) fail("initialiser is nested too deeply");
    if (!accept("{")) {
      out.push_back(initial_value(depth));
      return;
    }
    if (accept("}")) return;
    do braces(out, depth + 1);
    while (accept(","));
    expect("}");
  }

  Operand initial_value(int depth) {
    if (depth > kMaxNesting) fail("initialiser is nested too deeply");
    if (peek().is("generic") && peek(1).is("(")) {
      take();
      take();
      Operand x = initial_value(depth + 1);
      expect(")");
      x.negated = true;
      if (accept("+")) x.value += expect_integer("an offset");
      return x;
    }
    if (peek().kind == TokenKind::word) {
      Operand x;
      x.kind = Kind::name;
      x.name = take().text;
      if (accept("+")) x.value = expect_integer("an offset");
      return x;
    }
    return expression(0);
  }

  void patch_relocations() {
    for (auto& p : pending_) {
      auto v = scopes_[0].variables.find(p.symbol);
      if (v != scopes_[0].variables.end()) {
        p.relocation.variable = v->second;
        if (externals_.count(v->second)) used_externals_.emplace(v->second, p.line);
      } else if (auto f = module_.by_name.find(p.symbol); f != module_.by_name.end()) {
        p.relocation.function = f->second;
      } else {
        fail_at(p.line, "initial value names the unknown symbol '" + p.symbol + "'");
      }
      p.variable->relocations.push_back(p.relocation);
    }
  }

  // ---- constant expressions (PTX ISA 4.5) ----
  static int precedence(std::string_view op) {
    static constexpr std::pair<std::string_view, int> kTable[] = {
        {"||", 1}, {"&&", 2}, {"|", 3},  {"^", 4},  {"&", 5}, {"==", 6}, {"!=", 6}, {"<", 7},  {"<=", 7},
        {">", 7},  {">=", 7}, {"<<", 8}, {">>", 8}, {"+", 9}, {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10}};
    for (auto& [name, level] : kTable)
      if (name == op) return level;
    return 0;
  }

  uint64_t apply(std::string_view op, uint64_t a, uint64_t b) const {
    if (op == "||") return a || b;
    if (op == "&&") return a && b;
    if (op == "|") return a | b;
    if (op == "^") return a ^ b;
    if (op == "&") return a & b;
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
    if (op == "<") return x < y;
    if (op == "<=") return x <= y;
    if (op == ">") return x > y;
    if (op == ">=") return x >= y;
    if (op == "<<") return b > 63 ? 0 : a << b;
    if (op == ">>") return static_cast<uint64_t>(x >> std::min<uint64_t>(b, 63));
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (b == 0 || (y == -1 && a == uint64_t{1} << 63))
      fail("constant expression divides by zero or overflows");
    return static_cast<uint64_t>(op == "/" ? x / y : x % y);
  }

  Operand constant(uint64_t value) const {
    Operand x;
    x.kind = Kind::integer;
    x.value = value;
    return x;
  }

  Operand primary(int depth) {
    if (depth > kMaxNesting) fail("expression is nested too deeply");
    const Token& t = take();
    Operand x;
    x.value = t.value;
    switch (t.kind) {
      case TokenKind::integer:
        x.kind = Kind::integer;
        return x;
      case TokenKind::real32:
        x.kind = Kind::real32;
        return x;
      case TokenKind::real64:
        x.kind = Kind::real64;
        return x;
      default:
        break;
    }
    if (t.is("(")) {
      if (peek().is(".s64") || peek().is(".u64")) {  // cast
        take();
        expect(")");
        return primary(depth + 1);
      }
      x = expression(depth + 1);
      expect(")");
      return x;
    }
    if (t.is("-") || t.is("+") || t.is("~") || t.is("!")) {
      x = primary(depth + 1);
      if (t.is("+")) return x;
      if (x.kind == Kind::real64 && t.is("-")) {
        x.value ^= uint64_t{1} << 63;
      } else if (x.kind == Kind::real32 && t.is("-")) {
        x.value ^= uint64_t{1} << 31;
      } else if (x.kind == Kind::integer) {
        x.value = t.is("-") ? uint64_t{0} - x.value : t.is("~") ? ~x.value : !x.value;
      } else {
        fail("operator '" + std::string(t.text) + "' needs a constant");
      }
      return x;
    }
    fail_at(t.line, "expected a constant, found '" + std::string(t.text) + "'");
  }

  Operand expression(int depth) { return binary(primary(depth), 1, depth); }

  Operand binary(Operand left, int level, int depth) {
    if (depth > kMaxNesting) fail("expression is nested too deeply");
    while (peek().kind == TokenKind::punct && precedence(peek().text) >= level) {
      std::string_view op = take().text;
      Operand right = primary(depth + 1);
      while (precedence(peek().text) > precedence(op) && peek().kind == TokenKind::punct)
        right = binary(std::move(right), precedence(op) + 1, depth + 1);
      if (left.kind != Kind::integer || right.kind != Kind::integer)
        fail("constant expressions are of integers only");
      left = constant(apply(op, left.value, right.value));
    }
    return left;
  }

  // ---- functions ----
  void function(bool entry) {
    Function head;
    head.entry = entry;
    head.line = peek().line;
    int outer = scope_;
    scope_ = new_scope(0);
    if (!entry && peek().is("(")) params(head.results, Space::local);
    std::string_view name = expect_word("a function's name");
    head.name = std::string(name);
    if (peek().is("(")) params(head.params, entry ? Space::param : Space::local);
    performance_directives(head);
    Function*& slot = module_.by_name[name];
    if (!slot) slot = &module_.functions.emplace_back();
    if (slot->entry != entry && !slot->name.empty())
      fail("'" + head.name + "' is declared as .entry and as .func");
    bool defines = peek().is("{");
    if (defines || !slot->defined) {
      if (slot->defined) fail("function '" + head.name + "' is defined twice");
      *slot = std::move(head);
    }
    if (defines) {
      slot->defined = true;
      function_ = slot;
      take();
      block(0);
      resolve();
      function_ = nullptr;
    } else {
      expect(";");
    }
    scopes_.resize(1);
    scope_ = outer;
  }

  void params(std::vector<Variable*>& out, Space space) {
    expect("(");
    if (accept(")")) return;
    do {
      if (peek().is(".reg")) fail("functions with .reg parameters are not supported");
      expect(".param");
      Declared d = declaration_head();
      std::string_view name = expect_word("a parameter's name");
      Variable* v = new_variable(name, space, d);
      bool open = false;
      extents(*v, open);
      out.push_back(v);
      scopes_[scope_].variables[name] = v;
    } while (accept(","));
    expect(")");
  }

  void performance_directives(Function& f) {
    while (peek().kind == TokenKind::directive) {
      std::string_view s = take().text;
      uint32_t values[3] = {1, 1, 1};
      int n = 0;
      if (peek().kind == TokenKind::string) {
        take();
      } else if (peek().kind == TokenKind::integer) {
        do {
          uint64_t v = expect_integer("a directive");
          if (n < 3) values[n++] = static_cast<uint32_t>(v);
        } while (accept(","));
      }
      uint32_t* to = s == ".reqntid"             ? f.required_threads
                     : s == ".maxntid"           ? f.max_threads
                     : s == ".reqnctapercluster" ? f.required_cluster
                                                 : nullptr;
      if (to) std::copy(values, values + 3, to);
      if (s == ".pragma") accept(";");
    }
  }

  int new_scope(int parent) {
    scopes_.emplace_back();
    scopes_.back().parent = parent;
    return static_cast<int>(scopes_.size()) - 1;
  }

  void block(int depth) {
    if (depth > kMaxNesting) fail("blocks are nested too deeply");
    while (!accept("}")) {
      const Token& t = peek();
      if (t.kind == TokenKind::end) fail("function '" + function_->name + "' is not closed");
      if (accept(";")) continue;
      if (accept("{")) {
        int outer = scope_;
        scope_ = new_scope(scope_);
        block(depth + 1);
        scope_ = outer;
      } else if (t.kind == TokenKind::directive) {
        body_directive();
      } else if (t.kind == TokenKind::word && peek(1).is(":")) {
        label();
      } else {
        instruction();
      }
    }
  }

  void label() {
    std::string_view name = take().text;
    take();
    if (peek().is(".branchtargets") || peek().is(".calltargets")) {
      take();
      std::vector<Operand> names;
      do names.push_back(operand(0));
      while (accept(","));
      expect(";");
      scopes_[scope_].tables[name] = static_cast<int>(function_->tables.size());
      function_->tables.push_back(std::move(names));
      return;
    }
    if (peek().is(".callprototype")) {
      skip_past(";");
      scopes_[scope_].tables[name] = static_cast<int>(function_->tables.size());
      function_->tables.emplace_back();
      return;
    }
    if (!scopes_[scope_].labels.emplace(name, static_cast<int>(function_->statements.size())).second)
      fail("label '" + std::string(name) + "' is defined twice in one scope");
  }

  void body_directive() {
    const Token& t = peek();
    if (t.is(".reg")) {
      take();
      registers();
    } else if (t.is(".pragma")) {
      skip_past(";");
    } else if (t.is(".file")) {
      skip_file();
    } else if (t.is(".section")) {
      skip_past("}");
    } else if (t.is(".extern")) {
      take();
      auto space = variable_space(take().text);
      if (!space) fail("unknown directive after .extern");
      variables(*space, true, scopes_[scope_], function_);
    } else if (auto space = variable_space(t.text)) {
      take();
      variables(*space, false, scopes_[scope_], function_);
    } else {
      fail("unknown directive '" + std::string(t.text) + "'");
    }
  }

  void registers() {
    if (peek().is(".v2") || peek().is(".v4")) fail("vector registers are not supported");
    if (peek().kind != TokenKind::directive) fail(".reg needs a type");
    auto type = parse_type(take().text.substr(1));
    if (!type) fail("unknown register type");
    Scope& scope = scopes_[scope_];
    do {
      std::string_view name = expect_word("a register's name");
      if (accept("<")) {
        scope.ranges.push_back({name, count(), *type});
        expect(">");
      } else {
        scope.registers[name] = add_register(name, *type);
      }
    } while (accept(","));
    expect(";");
  }

  int add_register(std::string_view name, Type type) {
    function_->registers.push_back({std::string(name), type});
    return static_cast<int>(function_->registers.size()) - 1;
  }

  // Register `name` in the innermost scope that knows it; -1 if none does.
  int find_register(std::string_view name) {
    for (int s = scope_; s > 0; s = scopes_[s].parent) {
      Scope& scope = scopes_[s];
      if (auto r = scope.registers.find(name); r != scope.registers.end()) return r->second;
      for (const Scope::Range& range : scope.ranges) {
        if (name.size() <= range.prefix.size() || name.substr(0, range.prefix.size()) != range.prefix)
          continue;
        std::string_view digits = name.substr(range.prefix.size());
        if (digits.size() > 9 || (digits.size() > 1 && digits[0] == '0') ||
            !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
          continue;
        if (std::stoull(std::string(digits)) >= range.count) continue;
        return scope.registers[name] = add_register(name, range.type);
      }
    }
    return -1;
  }

  // ---- instructions ----
  void instruction() {
    Statement s;
    const Token& first = peek();
    s.line = first.line;
    if (accept("@")) {
      s.predicate_negated = accept("!");
      std::string_view name = expect_word("a predicate register");
      s.predicate = find_register(name);
      if (s.predicate < 0) fail("unknown predicate register '" + std::string(name) + "'");
      if (function_->registers[s.predicate].type != Type::pred)
        fail("'" + std::string(name) + "' is not a predicate");
    }
    s.line = peek().line;
    s.opcode = expect_word("an instruction");
    while (!peek().is(";")) {
      if (peek().kind == TokenKind::end || peek().is("}"))
        fail("expected ';' after '" + std::string(s.opcode) + "'");
      s.operands.push_back(operand(0));
      if (!accept(",") && !peek().is(";")) {
        // `call (ret), f, (args)` and labels apart, operands are separated by commas.
        fail("expected ',' or ';', found '" + std::string(peek().text) + "'");
      }
    }
    const Token& last = expect(";");
    s.text = std::string_view(first.text.data(), static_cast<size_t>(last.text.data() - first.text.data()));
    function_->statements.push_back(std::move(s));
  }

  Operand operand(int depth) {
    Operand x = single_operand(depth);
    if (accept("|")) {
      Operand pair;
      pair.kind = Kind::pair;
      pair.list.push_back(std::move(x));
      pair.list.push_back(single_operand(depth + 1));
      return pair;
    }
    return x;
  }

  Operand single_operand(int depth) {
    if (depth > kMaxNesting) fail("operand is nested too deeply");
    const Token& t = peek();
    if (t.is("{") || t.is("(")) {
      Operand x;
      x.kind = t.is("{") ? Kind::vector : Kind::group;
      const char* close = t.is("{") ? "}" : ")";
      if (t.is("(") && peek(1).kind != TokenKind::word && !peek(1).is(")")) {
        if (!(peek(1).kind == TokenKind::integer && (peek(2).is(",") || peek(2).is(")"))))
          return expression(depth);
      }
      take();
      if (accept(close)) return x;
      do x.list.push_back(operand(depth + 1));
      while (accept(","));
      expect(close);
      return x;
    }
    if (t.is("[")) return address(depth);
    if (t.is("!")) {
      take();
      Operand x = single_operand(depth + 1);
      if (x.kind == Kind::integer) {
        x.value = !x.value;
      } else {
        x.negated = true;
      }
      return x;
    }
    if (t.kind == TokenKind::word) {
      Operand x = named(take().text);
      if (x.kind == Kind::symbol && (peek().is("+") || peek().is("-"))) {
        bool minus = take().is("-");
        uint64_t v = primary(depth).value;
        x.value += minus ? uint64_t{0} - v : v;
      }
      return x;
    }
    return expression(depth);
  }

  // [base + offset], [symbol], [imm], and the tensor forms [map, {coordinates}].
  Operand address(int depth) {
    expect("[");
    Operand x;
    x.kind = Kind::address;
    Operand base;
    if (peek().kind == TokenKind::word) {
      base = named(take().text);
      if (base.kind == Kind::symbol) x.value = base.value;
    } else {
      x.value = expect_integer("an address");
    }
    while (peek().is("+") || peek().is("-")) {
      bool minus = take().is("-");
      Operand v = primary(depth);
      if (v.kind != Kind::integer) fail("an address offset must be an integer constant");
      x.value += minus ? uint64_t{0} - v.value : v.value;
    }
    x.list.push_back(std::move(base));
    while (accept(",")) x.list.push_back(operand(depth + 1));
    expect("]");
    return x;
  }

  Operand named(std::string_view name) {
    Operand x;
    x.name = name;
    x.scope = scope_;
    if (name == "_") {
      x.kind = Kind::sink;
      return x;
    }
    if (int r = find_register(name); r >= 0) {
      x.kind = Kind::reg;
      x.reg = r;
      return x;
    }
    for (int s = scope_; s >= 0; s = scopes_[s].parent) {
      if (auto v = scopes_[s].variables.find(name); v != scopes_[s].variables.end()) {
        x.kind = Kind::symbol;
        x.variable = v->second;
        if (externals_.count(x.variable)) used_externals_.emplace(x.variable, peek().line);
        return x;
      }
    }
    x.kind = is_special(name) ? Kind::special : Kind::name;
    return x;
  }

  // Labels may be used before they are defined: names are looked up once the function is complete.
  void resolve() {
    for (Statement& s : function_->statements)
      for (Operand& x : s.operands) resolve(x, s.line);
    for (auto& table : function_->tables)
      for (Operand& x : table) resolve(x, function_->line);
  }

  void resolve(Operand& x, int line) {
    for (Operand& y : x.list) resolve(y, line);
    if (x.kind != Kind::name) return;
    for (int s = x.scope; s > 0; s = scopes_[s].parent) {
      if (auto l = scopes_[s].labels.find(x.name); l != scopes_[s].labels.end()) {
        x.kind = Kind::label;
        x.target = l->second;
        return;
      }
      if (auto t = scopes_[s].tables.find(x.name); t != scopes_[s].tables.end()) {
        x.kind = Kind::table;
        x.target = t->second;
        return;
      }
    }
    if (auto f = module_.by_name.find(x.name); f != module_.by_name.end()) {
      x.kind = Kind::function;
      x.function = f->second;
      return;
    }
    fail_at(line, "unknown name '" + std::string(x.name) + "'");
  }

  struct Pending {
    Variable* variable;
    Relocation relocation;
    std::string symbol;
    int line;
  };

  Module& module_;
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  std::deque<Scope> scopes_;
  int scope_ = 0;
  Function* function_ = nullptr;
  std::vector<Pending> pending_;
  std::deque<std::string> names_;
  std::set<const Variable*> externals_;            // declared .extern, not yet defined
  std::map<const Variable*, int> used_externals_;  // and a line that names it
};

}  // namespace

std::unique_ptr<Module> parse(std::string text) {
  auto module = std::make_unique<Module>();
  module->text = std::move(text);
  Parser(*module).run();
  return module;
}

}  // namespace tcgen05::vsm
