// Compiles a kernel for the vector units at hand. TCGEN05_VARIANTS(name, Args, body) defines
// `void name(const Args&)`, which calls the always-inline template `body` compiled for AVX-512, AVX2 or the
// baseline, whichever the processor has; elsewhere than on x86-64 the baseline alone.
#pragma once

#define TCGEN05_INLINE inline __attribute__((always_inline))

// JAX_TCGEN05_SIMD=avx2 or baseline takes less than the processor has (tests compare them).
namespace tcgen05::model {
bool has_avx512();
bool has_avx2();
}  // namespace tcgen05::model

#if defined(__x86_64__) && defined(__GNUC__)
#define TCGEN05_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")))
#define TCGEN05_AVX2 __attribute__((target("avx2,fma,bmi2")))
#define TCGEN05_VARIANTS(name, Args, body)                                                       \
  TCGEN05_AVX512 void name##_avx512(const Args& args) { body(args); }                            \
  TCGEN05_AVX2 void name##_avx2(const Args& args) { body(args); }                                \
  void name##_baseline(const Args& args) { body(args); }                                         \
  void name(const Args& args) {                                                                  \
    static void (*const chosen)(const Args&) = ::tcgen05::model::has_avx512() ? name##_avx512    \
                                               : ::tcgen05::model::has_avx2() ? name##_avx2      \
                                                                              : name##_baseline; \
    chosen(args);                                                                                \
  }
#else
#define TCGEN05_VARIANTS(name, Args, body) \
  void name(const Args& args) { body(args); }
#endif
