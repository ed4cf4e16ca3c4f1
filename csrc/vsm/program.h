// A kernel decoded once: instructions with a handler and operand slots, ready for the executor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vsm/syntax.h"

namespace tcgen05::vsm {

struct Warp;
struct Instr;

using Mask = uint32_t;  // one bit per lane

// Byte offset of an operand's slot in the warp's register file, or, with bit 31, in the constants.
// A slot holds 32 lanes of uint32_t (types up to 32 bits), of uint64_t (64 bits), 32 low words then 32 high
// words (b128), or one Mask (predicates).
using Ref = uint32_t;
inline constexpr Ref kNoRef = 0xffffffffu;
inline constexpr Ref kConstantRef = 0x80000000u;

// What a handler asks of the executor.
enum class Flow : uint8_t {
  next,       // go on
  jump,       // the handler has set the program counter of its group
  wait,       // the handler has set Group::wait: run this instruction again when it is ready
  wait_next,  // the same, but go on behind this instruction when it is ready
  exit        // the lanes of the mask have exited
};

using Handler = Flow (*)(Warp&, const Instr&, Mask);

struct Instr {
  Handler fn = nullptr;
  Ref predicate = kNoRef;
  bool negated = false;
  bool aligned = false;  // all live lanes of the warp must execute it together
  uint8_t u[6] = {};     // the family's own small numbers
  Ref dst = kNoRef, dst2 = kNoRef;
  Ref src[5] = {kNoRef, kNoRef, kNoRef, kNoRef, kNoRef};
  uint32_t list = 0, list_size = 0;  // a vector operand: Program::refs[list .. list + list_size)
  uint32_t target = 0;               // of a branch: index into Program::code
  uint64_t imm = 0;                  // the offset of an address, or the family's own number
  const void* aux = nullptr;         // the family's own data, owned by the Program
  uint32_t origin = 0;               // index into Program::origins
};

// A slot that is filled when a warp starts: a special register, or the address of a variable.
struct Preset {
  Ref slot = 0;
  bool wide = false;
  int special = -1;                    // row of the table of special registers
  const Variable* variable = nullptr;  // `value` is its offset plus the addend
  uint64_t value = 0;
};

struct Origin {
  const Statement* statement = nullptr;
  const Function* function = nullptr;
  uint32_t opcode = 0;  // index into Program::opcodes
};

// What an instruction reads and writes, for strict mode: Program::use_refs[begin .. ), first the reads.
struct Uses {
  uint32_t begin = 0;
  uint16_t reads = 0, writes = 0;
  bool pure = false;  // does nothing but compute its destinations from its sources
};

struct Program {
  const Function* entry = nullptr;
  std::vector<Instr> code;
  std::vector<Ref> refs;
  std::vector<Uses> uses;  // per instruction
  std::vector<std::pair<Ref, const Register*>> registers;
  std::vector<Ref> use_refs;
  std::vector<uint8_t> constants;
  std::vector<Preset> presets;
  std::vector<Origin> origins;
  std::vector<std::string> opcodes;
  std::vector<std::shared_ptr<const void>> owned;
  uint32_t register_bytes = 0;
  uint32_t local_bytes = 0;    // per thread: .local variables and .param variables of calls
  uint32_t param_bytes = 0;    // of the kernel
  uint32_t static_shared = 0;  // bytes of static shared variables
  int cta_group = 0;           // of its tcgen05 instructions; 0: none
  std::unordered_map<const Variable*, uint64_t> offsets;  // of shared, local and param variables
};

}  // namespace tcgen05::vsm
