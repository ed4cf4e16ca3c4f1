// Vectors by the compiler's own extension (GCC and Clang): of 256 bits where AVX2 may be there, else of 128.
#pragma once

#include <cstdint>
#include <cstring>

namespace tcgen05::model {

#if defined(__x86_64__)
#define TCGEN05_LANES 8
#else
#define TCGEN05_LANES 4
#endif
inline constexpr int kVector = TCGEN05_LANES;
typedef float Floats __attribute__((vector_size(4 * TCGEN05_LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * TCGEN05_LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * TCGEN05_LANES)));
typedef double Doubles __attribute__((vector_size(8 * TCGEN05_LANES)));
typedef int64_t Longs __attribute__((vector_size(8 * TCGEN05_LANES)));
// As many bytes and halves as a vector has lanes.
typedef int8_t LaneBytes __attribute__((vector_size(TCGEN05_LANES)));
typedef uint16_t LaneHalves __attribute__((vector_size(2 * TCGEN05_LANES)));
// Full vectors of bytes.
typedef int8_t Bytes __attribute__((vector_size(4 * TCGEN05_LANES)));
typedef uint8_t UnsignedBytes __attribute__((vector_size(4 * TCGEN05_LANES)));

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
