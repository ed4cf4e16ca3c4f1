// Errors of the launcher, with the kind of status that a caller should report.
#pragma once

#include <stdexcept>
#include <string>

namespace tcgen05::launch {

enum class Failure {
  unavailable,    // no driver, no kernels: another machine or build would do
  unimplemented,  // this device has no such instruction
  exhausted,      // not enough shared memory
  internal,       // the driver reported an error
};

class LaunchError : public std::runtime_error {
 public:
  LaunchError(Failure failure, const std::string& message) : std::runtime_error(message), failure_(failure) {}
  Failure failure() const { return failure_; }

 private:
  Failure failure_;
};

}  // namespace tcgen05::launch
