// Vectors of 8 lanes by the compiler's own extension (GCC and Clang): narrower units take them in pieces.
#pragma once

#include <cstdint>
#include <cstring>

namespace tcgen05::model {

inline constexpr int kVector = 8;
typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Ints __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef int8_t Bytes __attribute__((vector_size(32)));
typedef uint8_t UnsignedBytes __attribute__((vector_size(32)));
typedef int8_t EightBytes __attribute__((vector_size(8)));
typedef uint16_t EightHalves __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));

}  // namespace tcgen05::model

// Macros, because a vector as argument or result of a function has a calling convention that depends on
// the target, which compilers warn about even where everything is inlined.
#define LOAD(Type, name, address) \
  Type name;                      \
  std::memcpy(&name, address, sizeof(Type))
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define MIN(x, y) ((x) < (y) ? (x) : (y))
// Sums of Ints that may wrap around, as those of lanes that dot() will compute do.
#define WRAPPING_ADD(x, y) ((Ints)((Words)(x) + (Words)(y)))
#define WRAPPING_SUB(x, y) ((Ints)((Words)(x) - (Words)(y)))
