// The processor's floating-point modes while PTX runs: round to nearest, subnormals kept. XLA's threads flush
// them.
#pragma once

#include <cfenv>

namespace tcgen05::vsm {

class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace tcgen05::vsm
