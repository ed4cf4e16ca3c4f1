#include "vsm/decode.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "vsm/error.h"
#include "vsm/machine.h"
#include "vsm/special.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

constexpr size_t kMaxInstructions = size_t{1} << 20;  // of a kernel
constexpr uint64_t kMaxLocal = 512 * 1024;            // bytes per thread (PTX ISA, CUDA's limit)

uint32_t slot_bytes(Type t) {
  if (t == Type::pred) return 4;
  int b = bits_of(t);
  return b <= 32 ? 128 : b == 64 ? 256 : 512;
}

std::vector<std::string_view> split_modifiers(std::string_view opcode) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (begin <= opcode.size()) {
    size_t dot = std::min(opcode.find('.', begin), opcode.size());
    parts.push_back(opcode.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parts;
}

struct Row {
  const Entry* entry = nullptr;
  bool pure = false;
};

// The row with the longest root that `opcode` starts with, at a boundary of modifiers.
Row find_entry(std::string_view opcode) {
  static const auto* const rows = [] {
    auto* map = new std::unordered_map<std::string_view, Row>;
    for (const Family& f : instruction_table())
      for (size_t i = 0; i < f.size; ++i) map->emplace(f.entries[i].root, Row{&f.entries[i], f.pure});
    return map;
  }();
  for (std::string_view root = opcode;; root = root.substr(0, root.rfind('.'))) {
    if (auto row = rows->find(root); row != rows->end()) return row->second;
    if (root.rfind('.') == std::string_view::npos) return {};
  }
}

Flow read_special(Warp& w, const Instr& in, Mask m) {
  const Special& s = special(static_cast<int>(in.imm));
  for (int lane = 0; lane < 32; ++lane) {
    if (!(m >> lane & 1)) continue;
    uint64_t v = s.value(w, lane);
    if (s.wide) {
      w.out<uint64_t>(in.dst)[lane] = v;
    } else {
      w.out<uint32_t>(in.dst)[lane] = static_cast<uint32_t>(v);
    }
  }
  return Flow::next;
}

}  // namespace

void refused(Decoder& d) {
  d.fail("'" + std::string(d.root()) + "' is not executed here: " + std::string(d.entry_->forms));
}

// ---- Linker ----

Linker::Linker(const Module& module, const Function& entry) : module_(module) {
  program_.entry = &entry;
  program_.constants.reserve(4096);
}

Ref Linker::slot(Type type) {
  uint32_t bytes = slot_bytes(type);
  uint32_t align = std::min<uint32_t>(bytes, 64);
  program_.register_bytes = (program_.register_bytes + align - 1) / align * align;
  Ref r = program_.register_bytes;
  program_.register_bytes += bytes;
  if (program_.register_bytes > (1u << 28))
    throw LoadError("kernel '" + program_.entry->name + "' uses too many registers");
  return r;
}

Ref Linker::constant(uint64_t low, uint64_t high, Type type) {
  uint32_t bytes = slot_bytes(type);
  if (bytes == 128) low &= 0xffffffffu;
  auto key = std::make_tuple(low, high, static_cast<int>(bytes));
  auto found = constant_slots_.find(key);
  if (found != constant_slots_.end()) return found->second;
  auto& pool = program_.constants;
  pool.resize((pool.size() + 63) / 64 * 64);
  Ref r = static_cast<Ref>(pool.size()) | kConstantRef;
  size_t at = pool.size();
  pool.resize(at + bytes);
  for (uint32_t i = 0; i < 32; ++i) {
    if (bytes == 4 && i == 0) {
      uint32_t mask = low ? ~0u : 0u;
      std::memcpy(&pool[at], &mask, 4);
    } else if (bytes == 128) {
      uint32_t v = static_cast<uint32_t>(low);
      std::memcpy(&pool[at + i * 4], &v, 4);
    } else if (bytes >= 256) {
      std::memcpy(&pool[at + i * 8], &low, 8);
      if (bytes == 512) std::memcpy(&pool[at + 256 + i * 8], &high, 8);
    }
  }
  constant_slots_[key] = r;
  return r;
}

Ref Linker::preset(int special, const Variable* variable, uint64_t addend, bool wide) {
  auto key = std::make_tuple(special, variable, addend, wide);
  auto found = preset_slots_.find(key);
  if (found != preset_slots_.end()) return found->second;
  Preset p;
  p.slot = slot(wide ? Type::b64 : Type::b32);
  p.wide = wide;
  p.special = special;
  p.variable = variable;
  p.value = variable ? offset_of(*variable) + addend : 0;
  program_.presets.push_back(p);
  preset_slots_[key] = p.slot;
  return p.slot;
}

// Places a variable when it is first named. Variables of .global and .const have addresses of their own.
uint64_t Linker::offset_of(const Variable& v) {
  if (v.space == Space::global || v.space == Space::constant) return v.offset;
  auto found = program_.offsets.find(&v);
  if (found != program_.offsets.end()) return found->second;
  uint64_t offset = 0;
  if (v.space == Space::shared && v.external) {
    offset = 0;  // from the start of the dynamic shared memory, whose place the launch decides
  } else {
    uint32_t& size = v.space == Space::shared ? program_.static_shared : program_.local_bytes;
    uint64_t at = (size + v.align - 1) / v.align * v.align;
    uint64_t most = v.space == Space::shared ? kMaxShared : kMaxLocal;
    if (at > most || v.bytes > most - at)
      throw LoadError("variable '" + v.name + "' of " + std::to_string(v.bytes) +
                      " bytes does not fit into the " + std::to_string(most) + " bytes of its space");
    offset = at;
    size = static_cast<uint32_t>(at + v.bytes);
  }
  program_.offsets[&v] = offset;
  return offset;
}

void Linker::add_function(const Function& f) {
  if (known_.insert(&f).second) functions_.push_back(&f);
}

Program Linker::run() {
  uint64_t offset = 0;
  for (const Variable* v : program_.entry->params) {
    offset = (offset + v->align - 1) / v->align * v->align;
    program_.offsets[v] = offset;
    offset += v->bytes;
    if (offset > 32764) throw LoadError("parameters of '" + program_.entry->name + "' exceed 32764 bytes");
  }
  program_.param_bytes = static_cast<uint32_t>(offset);
  add_function(*program_.entry);
  for (size_t i = 0; i < functions_.size(); ++i) decode_function(*functions_[i]);
  refuse_recursion();
  for (const Fixup& f : fixups_)
    program_.code[f.instruction].target =
        starts_[f.function][f.statement < 0 ? 0 : static_cast<size_t>(f.statement)];
  for (auto& [table, targets] : tables_)
    for (auto& [function, statement] : targets)
      table->push_back(starts_[function][statement < 0 ? 0 : static_cast<size_t>(statement)]);
  program_.local_bytes = (program_.local_bytes + 15) / 16 * 16;
  return std::move(program_);
}

// Registers and local memory are one set per function, so a function cannot be active twice. Functions whose
// callees are all done are taken away; what remains lies on a cycle or leads to one.
void Linker::refuse_recursion() const {
  std::map<const Function*, size_t> open;
  std::map<const Function*, std::vector<const Function*>> callers;
  for (const auto& [caller, callees] : calls_) {
    open[caller] = callees.size();
    for (const Function* callee : callees) callers[callee].push_back(caller);
  }
  std::vector<const Function*> done;
  for (const Function* f : functions_)
    if (!open[f]) done.push_back(f);
  for (size_t i = 0; i < done.size(); ++i)
    for (const Function* caller : callers[done[i]])
      if (!--open[caller]) done.push_back(caller);
  if (done.size() == functions_.size()) return;
  const Function* f = *std::find_if(functions_.rbegin(), functions_.rend(), [&](auto* x) { return open[x]; });
  throw LoadError("line " + std::to_string(f->line) + ": recursion is not executed here; '" + f->name +
                  "' calls itself, directly or through others");
}

void Linker::decode_function(const Function& f) {
  static const Statement kEnd = {0, "ret", "ret;", -1, false, {}};  // falling off the end returns
  for (const Statement& s : f.statements) decode_statement(f, s);
  decode_statement(f, kEnd);
}

void Linker::decode_statement(const Function& f, const Statement& s) {
  if (program_.code.size() > kMaxInstructions)
    throw LoadError("kernel '" + program_.entry->name + "' and the functions that it calls have more than " +
                    std::to_string(kMaxInstructions) + " instructions");
  starts_[&f].push_back(static_cast<uint32_t>(program_.code.size()));
  auto [row, added] =
      opcode_index_.try_emplace(std::string(s.opcode), static_cast<uint32_t>(program_.opcodes.size()));
  if (added) program_.opcodes.push_back(row->first);
  program_.origins.push_back({&s, &f, row->second});
  Decoder d(*this, f, s);
  d.entry_->decode(d);
  d.finish();
}

// ---- Decoder ----

Decoder::Decoder(Linker& linker, const Function& function, const Statement& statement)
    : linker_(linker), function_(function), statement_(statement) {
  const Row row = find_entry(statement.opcode);
  entry_ = row.entry;
  pure_ = row.pure;
  if (!entry_) {
    root_ = statement.opcode.substr(0, statement.opcode.find('.'));
    fail("unknown instruction");
  }
  root_ = entry_->root;
  if (statement.opcode.size() > root_.size())
    modifiers_ = split_modifiers(statement.opcode.substr(root_.size() + 1));
  if (statement.predicate >= 0) {
    in.predicate = register_ref(statement.predicate);
    in.negated = statement.predicate_negated;
  }
}

void Decoder::fail(const std::string& what) const {
  throw LoadError("line " + std::to_string(statement_.line) + ": " + what + "\n  opcode: " +
                  std::string(statement_.opcode) + "\n  in: " + std::string(statement_.text.substr(0, 200)));
}

void Decoder::finish() {
  if (!modifiers_.empty())
    fail("modifier '." + std::string(modifiers_[0]) + "' is not understood on '" + std::string(root_) + "'");
  if (!in.fn) fail("no handler for this form");
  in.origin = static_cast<uint32_t>(linker_.program_.origins.size()) - 1;
  auto& code = linker_.program_.code;
  for (Instr& b : before_) {
    b.origin = in.origin;
    add_code(b);
  }
  for (auto f = linker_.fixups_.rbegin(); f != linker_.fixups_.rend() && f->instruction == SIZE_MAX; ++f)
    f->instruction = code.size();
  add_code(in, reads_, writes_);
  for (Instr& a : after_) {
    a.origin = in.origin;
    add_code(a);
  }
}

// An instruction that a family made itself: its operands are its slots.
void Decoder::add_code(const Instr& instr) {
  std::vector<Ref> reads;
  for (Ref r : instr.src)
    if (r != kNoRef) reads.push_back(r);
  add_code(instr, reads, instr.dst == kNoRef ? std::vector<Ref>{} : std::vector<Ref>{instr.dst});
}

void Decoder::add_code(const Instr& instr, const std::vector<Ref>& reads, const std::vector<Ref>& writes) {
  Program& p = linker_.program_;
  Uses uses;
  uses.begin = static_cast<uint32_t>(p.use_refs.size());
  for (Ref r : reads)
    if (!(r & kConstantRef)) p.use_refs.push_back(r);
  uses.reads = static_cast<uint16_t>(p.use_refs.size() - uses.begin);
  uses.writes = static_cast<uint16_t>(writes.size());
  uses.pure = pure_;
  p.use_refs.insert(p.use_refs.end(), writes.begin(), writes.end());
  p.uses.push_back(uses);
  p.code.push_back(instr);
}

bool Decoder::take(std::string_view modifier) {
  auto found = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (found == modifiers_.end()) return false;
  modifiers_.erase(found);
  return true;
}

int Decoder::take_any(std::initializer_list<std::string_view> modifiers) {
  int i = 0;
  for (std::string_view m : modifiers) {
    if (take(m)) return i;
    ++i;
  }
  return -1;
}

int Decoder::need_any(std::initializer_list<std::string_view> modifiers) {
  int i = take_any(modifiers);
  if (i < 0) {
    std::string list;
    for (std::string_view m : modifiers) list += (list.empty() ? "." : ", .") + std::string(m);
    fail("needs one of the modifiers " + list);
  }
  return i;
}

bool Decoder::take_type(Type* type) {
  for (auto m = modifiers_.begin(); m != modifiers_.end(); ++m) {
    if (auto t = parse_type(*m)) {
      *type = *t;
      modifiers_.erase(m);
      return true;
    }
  }
  return false;
}

Type Decoder::type() {
  Type t;
  if (!take_type(&t)) fail("needs a type");
  return t;
}

Type Decoder::type_of(std::initializer_list<Type> allowed) {
  Type t = type();
  if (std::find(allowed.begin(), allowed.end(), t) == allowed.end()) {
    std::string list;
    for (Type a : allowed) list += (list.empty() ? "." : ", .") + std::string(name_of(a));
    fail("type ." + std::string(name_of(t)) + " is not allowed; allowed: " + list);
  }
  return t;
}

std::string_view Decoder::take_prefix(std::string_view prefix) {
  for (auto m = modifiers_.begin(); m != modifiers_.end(); ++m) {
    if (m->substr(0, prefix.size()) == prefix) {
      std::string_view found = *m;
      modifiers_.erase(m);
      return found;
    }
  }
  return {};
}

std::string_view Decoder::take_next() {
  if (modifiers_.empty()) return {};
  std::string_view m = modifiers_.front();
  modifiers_.erase(modifiers_.begin());
  return m;
}

const Operand& Decoder::operand(size_t i) const {
  if (i >= statement_.operands.size())
    fail("has " + std::to_string(statement_.operands.size()) + " operands, needs more");
  return statement_.operands[i];
}

void Decoder::need_operands(size_t least, size_t most) {
  size_t n = statement_.operands.size();
  if (n >= least && n <= most) return;
  fail("has " + std::to_string(n) + " operands, needs " + std::to_string(least) +
       (least == most ? "" : " to " + std::to_string(most)));
}

std::string Decoder::spell(const Operand& x) const {
  switch (x.kind) {
    case Kind::reg:
      return "'" + function_.registers[static_cast<size_t>(x.reg)].name + "'";
    case Kind::vector:
      return "a vector";
    case Kind::address:
      return "an address";
    case Kind::integer:
      return "constant " + std::to_string(static_cast<int64_t>(x.value));
    case Kind::pair:
      return "a pair a|b";
    case Kind::sink:
      return "'_'";
    default:
      return x.name.empty() ? "an operand of another kind" : "'" + std::string(x.name) + "'";
  }
}

Ref Decoder::register_ref(int reg) {
  auto [found, added] = linker_.registers_.try_emplace({&function_, reg}, kNoRef);
  if (added) {
    const Register& r = function_.registers[static_cast<size_t>(reg)];
    found->second = linker_.slot(r.type);
    linker_.program_.registers.emplace_back(found->second, &r);
  }
  return found->second;
}

Type Decoder::register_type(const Operand& x) const {
  return x.kind == Kind::reg ? function_.registers[static_cast<size_t>(x.reg)].type : Type::none;
}

bool Decoder::wide(const Operand& x) const {
  if (x.kind == Kind::special) {
    int row = find_special(x.name);
    return row >= 0 && special(row).wide;
  }
  return bits_of(register_type(x)) == 64;
}

Ref Decoder::dst(const Operand& x, Type type) {
  if (x.kind != Kind::reg) fail("destination must be a register, found " + spell(x));
  Type have = register_type(x);
  if (bits_of(have) != bits_of(type))
    fail("destination " + spell(x) + " is ." + std::string(name_of(have)) + ", the instruction writes ." +
         std::string(name_of(type)));
  return writes(register_ref(x.reg));
}

Ref Decoder::dst_any(const Operand& x) {
  if (x.kind != Kind::reg || register_type(x) == Type::pred)
    fail("destination must be a register of 8 bits or more, found " + spell(x));
  return writes(register_ref(x.reg));
}

Ref Decoder::dst_or_sink(const Operand& x, Type type) {
  return x.kind == Kind::sink ? writes(linker_.slot(type)) : dst(x, type);
}

Ref Decoder::pred_dst(const Operand& x) {
  return x.kind == Kind::sink ? writes(linker_.slot(Type::pred)) : dst(x, Type::pred);
}

Ref Decoder::pred_src(const Operand& x, bool* negated) {
  *negated = x.negated;
  if (x.kind == Kind::integer) return linker_.constant(x.value != 0, 0, Type::pred);
  if (register_type(x) != Type::pred) fail(spell(x) + " must be a predicate");
  return reads(register_ref(x.reg));
}

Ref Decoder::src(const Operand& x, Type type) { return reads(read(x, type, true)); }
Ref Decoder::src_any(const Operand& x, Type type) { return reads(read(x, type, false)); }

Ref Decoder::read(const Operand& x, Type type, bool exact) {
  switch (x.kind) {
    case Kind::reg: {
      Type have = register_type(x);
      if (x.negated) fail("only predicates can be negated with '!'");
      if ((exact && bits_of(have) != bits_of(type)) || (have == Type::pred) != (type == Type::pred))
        fail(spell(x) + " is ." + std::string(name_of(have)) + ", the instruction reads ." +
             std::string(name_of(type)));
      return register_ref(x.reg);
    }
    case Kind::integer:
      if (is_real(type))
        fail("an integer constant where ." + std::string(name_of(type)) +
             " is read; write 0f... or a decimal point");
      return linker_.constant(
          x.value, static_cast<int64_t>(x.value) < 0 && type == Type::b128 ? ~uint64_t{0} : 0, type);
    case Kind::real32:
    case Kind::real64: {
      double d = 0;
      float f = 0;
      if (x.kind == Kind::real64) {
        std::memcpy(&d, &x.value, 8);
        f = static_cast<float>(d);
      } else {
        uint32_t b = static_cast<uint32_t>(x.value);
        std::memcpy(&f, &b, 4);
        d = f;
      }
      uint64_t bits = 0;
      if (is_integer(type)) {
        fail("a floating-point constant where ." + std::string(name_of(type)) + " is read");
      } else if (bits_of(type) == 64) {
        std::memcpy(&bits, &d, 8);
      } else if (bits_of(type) == 32) {
        std::memcpy(&bits, &f, 4);
      } else {
        fail("a floating-point constant where ." + std::string(name_of(type)) + " is read");
      }
      return linker_.constant(bits, 0, type);
    }
    case Kind::symbol:
      if (bits_of(type) != 32 && bits_of(type) != 64)
        fail("the address " + spell(x) + " needs a 32 or 64-bit type");
      return linker_.preset(-1, x.variable, x.value, bits_of(type) == 64);
    case Kind::special: {
      int row = find_special(x.name);
      if (row < 0) fail("unknown register '" + std::string(x.name) + "'");
      const Special& s = special(row);
      if (exact && (s.wide ? bits_of(type) != 64 : bits_of(type) != 32 && bits_of(type) != 16))
        fail("'" + std::string(x.name) + "' has " + (s.wide ? "64" : "32") + " bits");
      if (!s.dynamic) return linker_.preset(row, nullptr, 0, s.wide);
      Instr read;
      read.fn = read_special;
      read.imm = static_cast<uint64_t>(row);
      read.dst = linker_.slot(s.wide ? Type::b64 : Type::b32);
      emit_before(read);
      return read.dst;
    }
    default:
      fail("expected a register or a constant, found " + spell(x));
  }
}

uint64_t Decoder::constant(const Operand& x, std::string_view what) const {
  if (x.kind != Kind::integer) fail(std::string(what) + " must be a constant, found " + spell(x));
  return x.value;
}

Ref Decoder::address(const Operand& x, uint64_t* offset, bool* is_wide) {
  if (x.kind != Kind::address) fail("expected an address in brackets, found " + spell(x));
  if (x.list.size() != 1) fail("an address has one part here, found " + std::to_string(x.list.size()));
  const Operand& base = x.list[0];
  *offset = x.value;
  if (base.kind == Kind::none) {
    *is_wide = true;
    return linker_.constant(0, 0, Type::b64);
  }
  if (base.kind == Kind::symbol) {
    *is_wide = true;
    return linker_.preset(-1, base.variable, 0, true);
  }
  if (base.kind != Kind::reg) fail("an address needs a register or a variable, found " + spell(base));
  Type have = register_type(base);
  if (bits_of(have) != 32 && bits_of(have) != 64)
    fail("address register " + spell(base) + " is ." + std::string(name_of(have)));
  *is_wide = bits_of(have) == 64;
  return reads(register_ref(base.reg));
}

const Variable* Decoder::address_variable(const Operand& x) const {
  return x.kind == Kind::address && x.list[0].kind == Kind::symbol ? x.list[0].variable : nullptr;
}

std::vector<Ref> Decoder::refs(const Operand& vector, Type type, bool writes) {
  std::vector<Ref> out;
  if (vector.kind != Kind::vector) {
    out.push_back(writes ? dst_or_sink(vector, type) : src(vector, type));
  } else {
    for (const Operand& x : vector.list) out.push_back(writes ? dst_or_sink(x, type) : src(x, type));
  }
  return out;
}

void Decoder::set_list(const std::vector<Ref>& refs) {
  in.list = static_cast<uint32_t>(linker_.program_.refs.size());
  in.list_size = static_cast<uint32_t>(refs.size());
  linker_.program_.refs.insert(linker_.program_.refs.end(), refs.begin(), refs.end());
}

Ref Decoder::temporary(Type type) { return writes(linker_.slot(type)); }
Ref Decoder::constant_slot(uint64_t value, Type type) { return linker_.constant(value, 0, type); }

void Decoder::set_target(const Operand& label) {
  if (label.kind != Kind::label) fail("expected a label, found " + spell(label));
  linker_.fixups_.push_back({SIZE_MAX, &function_, label.target});
}

void Decoder::set_call(const Function& f) {
  linker_.add_function(f);
  linker_.calls_[&function_].insert(&f);
  linker_.fixups_.push_back({SIZE_MAX, &f, -1});
}

std::shared_ptr<const std::vector<uint32_t>> Decoder::jump_table(const Operand& table) {
  if (table.kind != Kind::table) fail("expected a list of targets, found " + spell(table));
  auto out = std::make_shared<std::vector<uint32_t>>();
  std::vector<std::pair<const Function*, int>> targets;
  for (const Operand& x : function_.tables[static_cast<size_t>(table.target)]) {
    if (x.kind != Kind::label) fail("a list of branch targets names something else than a label");
    targets.emplace_back(&function_, x.target);
  }
  linker_.tables_.emplace_back(out, std::move(targets));
  return out;
}

uint64_t Decoder::offset_of(const Variable& v) { return linker_.offset_of(v); }

void Decoder::keep(std::shared_ptr<const void> data) { linker_.program_.owned.push_back(std::move(data)); }

void Decoder::emit_before(Instr instr) { before_.push_back(instr); }
void Decoder::emit_after(Instr instr) { after_.push_back(instr); }

void Decoder::set_cta_group(int group) {
  int& have = linker_.program_.cta_group;
  if (have && have != group)
    fail("all tcgen05 instructions of a kernel must use one .cta_group (PTX ISA 9.7.16)");
  have = group;
}

}  // namespace tcgen05::vsm
