// What one issue is: opcode and descriptors decoded and judged. The C++ home of the legality rules
// (isa.py is the Python one; a test compares them). Ranges of addresses are judged in instruction.cc.
#pragma once

#include <cstdint>

#include "model/descriptors.h"
#include "model/dot.h"
#include "model/instruction.h"

namespace tcgen05::model {

// How a row's 32 bytes of one K step hold its elements (ptx_contract 6).
enum class Container : uint8_t {
  plain8,      // one code per byte
  plain16,     // little-endian halves
  plain32,     // words (tf32)
  nibbles,     // two FP4 codes per byte, low nibble first (mxf4 kinds)
  fp6_padded,  // shared memory: 16 codes in 12 bytes, padded to 16
  fp4_padded,  // shared memory: 16 codes in 8 bytes, padded to 16
  fp6_byte,    // TMEM: bits 0-5 of a byte
  fp4_byte,    // TMEM: bits 2-5 of a byte
};

inline constexpr int kStepBytes = 32;   // stored bytes of one row of an operand and K step
inline constexpr int kStepColumns = 8;  // the same in TMEM columns

struct Operand {
  Format format = Format::f16;
  Container container = Container::plain16;
  bool mn_major = false;
  SharedDescriptor shared;
};

// Datapath layout of D (ptx_contract 7.1): row i of bank b lies in lane(i) + b * lane_step, and bank b
// holds the b-th of `banks` equal ranges of columns.
struct Datapath {
  char letter = 'D';
  int rows = 128;  // per CTA
  int banks = 1;
  int lane_step = 0;
  int lane(int row) const { return letter == 'F' ? 32 * (row / 16) + row % 16 : row; }
};

struct Form {
  Arithmetic arithmetic;
  int m = 0, n = 0;
  Datapath datapath;
  Operand a, b;  // a.shared unset when A is in TMEM
  int sfa_id = 0, sfb_id = 0;
  ZeroColumnMask zero_columns;
  int cta_group = 1;
  int columns() const { return n / datapath.banks; }  // columns of D's tile
  int b_rows() const { return n / cta_group; }        // rows of B that one CTA supplies
};

// Throws std::invalid_argument naming the field, what was given and what is allowed.
Form resolve(const Mma& mma);

}  // namespace tcgen05::model
