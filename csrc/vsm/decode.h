// From parsed statements to a Program. The Decoder is what an instruction family sees of one statement.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "vsm/program.h"
#include "vsm/syntax.h"

namespace tcgen05::vsm {

class Decoder;

// One row of the table of instructions. `root` is the part of the opcode before its modifiers; of several
// rows that fit, the longest root wins. `forms` tells readers what is accepted, or why it is refused.
struct Entry {
  std::string_view root;
  void (*decode)(Decoder&);
  std::string_view forms;
};

struct Family {
  std::string_view name;
  const Entry* entries;
  size_t size;
  bool pure = false;  // its instructions only compute their destinations from their sources, lane by lane
};

// All families, in the order of the documentation (table.cc).
const std::vector<Family>& instruction_table();

// Decoding function of rows whose instruction is known and refused; `forms` holds the reason.
void refused(Decoder& d);

// Collects a Program while the statements of a kernel and of the functions that it calls are decoded.
class Linker {
 public:
  explicit Linker(const Module& module, const Function& entry);
  Program run();

 private:
  friend class Decoder;
  void add_function(const Function& f);
  void refuse_recursion() const;
  void decode_function(const Function& f);
  void decode_statement(const Function& f, const Statement& s);
  Ref slot(Type type);
  Ref constant(uint64_t low, uint64_t high, Type type);
  Ref preset(int special, const Variable* variable, uint64_t addend, bool wide);
  uint64_t offset_of(const Variable& v);

  struct Fixup {
    size_t instruction;
    const Function* function;
    int statement;  // of the function; -1: its beginning
  };

  const Module& module_;
  Program program_;
  std::vector<const Function*> functions_;
  std::set<const Function*> known_;  // those in functions_
  std::map<const Function*, std::set<const Function*>> calls_;
  std::map<const Function*, std::vector<uint32_t>> starts_;  // per statement: its first instruction
  std::map<std::pair<const Function*, int>, Ref> registers_;
  std::map<std::tuple<uint64_t, uint64_t, int>, Ref> constant_slots_;
  std::map<std::tuple<int, const Variable*, uint64_t, bool>, Ref> preset_slots_;
  std::map<std::string, uint32_t, std::less<>> opcode_index_;
  std::vector<Fixup> fixups_;
  std::vector<std::pair<std::shared_ptr<std::vector<uint32_t>>, std::vector<std::pair<const Function*, int>>>>
      tables_;
};

// One statement. The family takes modifiers and operands from it and fills `in`; whatever is left over when
// it returns is an error.
class Decoder {
 public:
  Decoder(Linker& linker, const Function& function, const Statement& statement);

  Instr in;

  // ---- modifiers: the dotted parts behind the root ----
  bool take(std::string_view modifier);                             // removes it, wherever it stands
  int take_any(std::initializer_list<std::string_view> modifiers);  // index, or -1 if there is none
  int need_any(std::initializer_list<std::string_view> modifiers);  // the same, but one is compulsory
  void need(std::string_view modifier) { need_any({modifier}); }
  bool take_type(Type* type);  // the first modifier that names a type
  Type type();                 // the same, compulsory
  Type type_of(std::initializer_list<Type> allowed);
  std::string_view take_prefix(std::string_view prefix);  // the modifier that starts so; "" if none
  std::string_view take_next();  // the next modifier, whatever it is; "" if none is left
  std::string_view root() const { return root_; }

  // ---- operands ----
  size_t operands() const { return statement_.operands.size(); }
  const Operand& operand(size_t i) const;
  void need_operands(size_t least, size_t most);
  void need_operands(size_t n) { need_operands(n, n); }

  // Slots. A register's size must be that of `type` (`exact`); `wide(x)` tells its slot's size otherwise.
  Ref dst(const Operand& x, Type type);
  Ref src(const Operand& x, Type type);
  Ref src_any(const Operand& x, Type type);  // a register of any size, read as it is; constants as `type`
  Ref dst_any(const Operand& x);
  Ref dst_or_sink(const Operand& x, Type type);  // `_` gives a slot that nobody reads
  Ref pred_dst(const Operand& x);
  Ref pred_src(const Operand& x, bool* negated);  // register or constant
  bool wide(const Operand& x) const;              // a 64-bit register
  Type register_type(const Operand& x) const;     // Type::none if it is no register
  bool is_constant(const Operand& x) const { return x.kind == Operand::Kind::integer; }
  uint64_t constant(const Operand& x, std::string_view what) const;
  // Base of [base + offset]: a 32 or 64-bit slot; the offset goes to `*offset`, the size to `*is_wide`.
  Ref address(const Operand& x, uint64_t* offset, bool* is_wide);
  const Variable* address_variable(const Operand& x) const;
  std::vector<Ref> refs(const Operand& vector, Type type, bool writes);
  void set_list(const std::vector<Ref>& refs);
  Ref temporary(Type type);
  Ref constant_slot(uint64_t value, Type type);

  // ---- control ----
  void set_target(const Operand& label);
  void set_call(const Function& f);
  std::shared_ptr<const std::vector<uint32_t>> jump_table(const Operand& table);
  uint64_t offset_of(const Variable& v);
  template <class T>
  const T* own(std::shared_ptr<T> data) {
    in.aux = data.get();
    keep(data);
    return data.get();
  }
  void set_cta_group(int group);
  // An instruction in front of this one (same predicate-free origin); for values read at run time.
  void emit_before(Instr instr);
  void emit_after(Instr instr);

  [[noreturn]] void fail(const std::string& what) const;
  const Statement& statement() const { return statement_; }

  // Used by the Linker.
  void finish();

 private:
  void keep(std::shared_ptr<const void> data);
  void add_code(const Instr& instr);
  void add_code(const Instr& instr, const std::vector<Ref>& reads, const std::vector<Ref>& writes);
  Ref register_ref(int reg);
  Ref reads(Ref r) {
    reads_.push_back(r);
    return r;
  }
  Ref writes(Ref r) {
    writes_.push_back(r);
    return r;
  }
  Ref read(const Operand& x, Type type, bool exact);
  std::string spell(const Operand& x) const;

  Linker& linker_;
  const Function& function_;
  const Statement& statement_;
  const Entry* entry_ = nullptr;
  std::string_view root_;
  std::vector<std::string_view> modifiers_;
  std::vector<Instr> before_, after_;
  std::vector<Ref> reads_, writes_;
  bool pure_ = false;
  friend class Linker;
  friend void refused(Decoder& d);
};

}  // namespace tcgen05::vsm
