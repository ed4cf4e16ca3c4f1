// A parsed PTX module: variables, functions, statements with resolved names. Nothing here knows what any
// opcode means.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vsm/type.h"

namespace tcgen05::vsm {

// State spaces (PTX ISA 5.1). `param` is a kernel's parameter; parameters of device functions are `local`.
enum class Space : uint8_t { generic, global, shared, shared_cluster, local, param, constant };

struct Function;
struct Variable;

// `symbol + addend`, stored into a variable's initial bytes once addresses are known.
struct Relocation {
  uint64_t at = 0;
  int bytes = 8;
  const Variable* variable = nullptr;
  const Function* function = nullptr;
  int64_t addend = 0;
  bool generic = false;  // generic(symbol)
};

struct Variable {
  std::string name;
  Space space = Space::global;
  Type type = Type::b8;  // element type
  uint64_t bytes = 0;
  uint64_t align = 1;
  bool external = false;  // .extern .shared x[]: the dynamic shared memory
  std::vector<uint8_t> init;
  std::vector<Relocation> relocations;
  uint64_t offset = 0;  // filled when linked: byte offset in its space
};

struct Register {
  std::string name;
  Type type = Type::b32;
};

struct Operand {
  enum class Kind : uint8_t {
    none,
    reg,       // reg, negated
    special,   // name: %tid.x, ...
    integer,   // value
    real32,    // value: bits
    real64,    // value: bits
    symbol,    // variable + value
    function,  // function
    label,     // target: statement index in the same function
    table,     // target: index into Function::tables (brx.idx, call targets)
    vector,    // list: {a, b, ...}
    address,   // list[0]: base (none, reg or symbol), value: offset, list[1..]: further parts in the brackets
    pair,      // list: a|b
    group,     // list: (a, b): the parentheses of `call`
    sink,      // _
    name       // unresolved identifier (only while parsing)
  };
  Kind kind = Kind::none;
  bool negated = false;
  int reg = -1;
  int scope = 0;
  int target = -1;
  uint64_t value = 0;
  const Variable* variable = nullptr;
  const Function* function = nullptr;
  std::string_view name;
  std::vector<Operand> list;
};

struct Statement {
  int line = 0;
  std::string_view opcode;  // with its modifiers
  std::string_view text;    // the whole statement, for messages
  int predicate = -1;       // register
  bool predicate_negated = false;
  std::vector<Operand> operands;
};

struct Function {
  std::string name;
  bool entry = false;
  bool defined = false;
  int line = 0;
  std::vector<Variable*> params;   // entry: Space::param; device function: Space::local
  std::vector<Variable*> results;  // device function: what `ret` hands back
  std::vector<Register> registers;
  std::vector<Variable*> locals;  // .local and .param variables of the body (Space::local)
  std::vector<Statement> statements;
  std::vector<std::vector<Operand>> tables;  // .branchtargets, .calltargets
  uint32_t required_threads[3] = {0, 0, 0};  // .reqntid
  uint32_t max_threads[3] = {0, 0, 0};       // .maxntid
  uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster
};

struct Module {
  std::string text;
  std::string target;
  std::string version;
  std::deque<Variable> variables;  // all of them; stable addresses
  std::deque<Function> functions;
  std::unordered_map<std::string_view, Function*> by_name;
};

}  // namespace tcgen05::vsm
