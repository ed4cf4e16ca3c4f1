#include "model/dispatch.h"

#include <cstdlib>
#include <cstring>

namespace tcgen05::model {
namespace {

int level() {
#if defined(TCGEN05_AVX512)
  const char* most = std::getenv("JAX_TCGEN05_SIMD");
  if (most != nullptr && std::strcmp(most, "baseline") == 0) return 0;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq");
  if (most != nullptr && std::strcmp(most, "avx2") == 0) return avx2 ? 1 : 0;
  return avx512 ? 2 : avx2 ? 1 : 0;
#else
  return 0;
#endif
}

int chosen_level() {
  static const int chosen = level();
  return chosen;
}

}  // namespace

bool has_avx512() { return chosen_level() == 2; }
bool has_avx2() { return chosen_level() >= 1; }

}  // namespace tcgen05::model
