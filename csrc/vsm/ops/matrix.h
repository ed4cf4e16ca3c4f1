// What the files of the matrix family share: element types, fragments, and the product of one instruction.
#pragma once

#include <cstdint>
#include <string_view>

#include "vsm/decode.h"
#include "vsm/machine.h"

namespace tcgen05::vsm {

struct MatrixElement {
  std::string_view name;
  enum Class : uint8_t { fused, fp8, integer, bits, f64 } kind;
  int width;           // bits
  int format;          // model::Format of floating-point operands
  bool is_signed;      // integers
  Type register_type;  // of a fragment's registers
};

// The row of a modifier; null if it names no element type.
const MatrixElement* find_matrix_element(std::string_view name);

// How a warp's registers hold a matrix of rows x columns: every register holds 8 rows of 4 * `per` columns,
// lane l the `per` elements from column (l % 4) * per of row l / 4; registers go down the rows first. This is
// the layout of all mma.sync operands (PTX ISA 9.7.14.5); B counts as its transpose, columns x K.
// Accumulators of 32 and 64 bits spread the two elements of a place over two registers.
struct Fragment {
  int rows = 0, columns = 0;
  int per = 1;     // elements of one lane in one place
  int width = 32;  // bits of an element
  int spread = 1;  // registers of one place

  int places() const { return rows / 8 * (columns / (4 * per)); }
  int registers() const { return places() * spread; }
  // Index of element e of lane l in place p: origin(p) + step(l) + e.
  int origin(int p) const { return p % (rows / 8) * 8 * columns + p / (rows / 8) * 4 * per; }
  int step(int lane) const { return lane / 4 * columns + lane % 4 * per; }
};

Fragment operand_fragment(int rows, int columns, const MatrixElement& e);
Fragment accumulator_fragment(int rows, int columns, int width);

// Between registers and matrix[row * columns + column]. Of more registers than the matrix has places (wmma)
// the further ones repeat it.
void read_fragment(const Warp& w, const Fragment& f, const Ref* refs, uint64_t* matrix);
void write_fragment(Warp& w, const Fragment& f, const Ref* refs, size_t count, const uint64_t* matrix);

// D = A B + C of one warp instruction.
struct Product {
  int m = 0, n = 0, k = 0;
  const MatrixElement *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr;
  bool saturate = false;   // .satfinite
  bool exclusive = false;  // b1: xor instead of and
};

// Row-major codes: a is m x k, b is n x k, c and d are m x n.
void multiply(const Product& p, const uint64_t* a, const uint64_t* b, const uint64_t* c, uint64_t* d);

inline constexpr int kMaxMatrix = 32 * 256;  // elements of the largest operand

// Reports a warp of which not all 32 lanes take part in `.aligned` matrix instructions.
void need_whole_warp(const Warp& w, Mask m);

// Registers of an operand in braces; appended to `list`.
void append_registers(Decoder& d, const Operand& x, Type t, bool writes, size_t count, const char* what,
                      std::vector<Ref>& list);

void decode_wmma_load(Decoder& d);
void decode_wmma_store(Decoder& d);
void decode_wmma_mma(Decoder& d);
void decode_ldmatrix(Decoder& d);
void decode_stmatrix(Decoder& d);
void decode_movmatrix(Decoder& d);

}  // namespace tcgen05::vsm
