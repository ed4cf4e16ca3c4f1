// Exceptions of the plain C++ rooms as statuses of XLA: none may cross the boundary.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "launch/error.h"
#include "xla/ffi/api/ffi.h"

namespace tcgen05 {

inline xla::ffi::ErrorCode code_of(launch::Failure failure) {
  switch (failure) {
    case launch::Failure::unavailable:
      return xla::ffi::ErrorCode::kFailedPrecondition;
    case launch::Failure::unimplemented:
      return xla::ffi::ErrorCode::kUnimplemented;
    case launch::Failure::exhausted:
      return xla::ffi::ErrorCode::kResourceExhausted;
    case launch::Failure::internal:
      break;
  }
  return xla::ffi::ErrorCode::kInternal;
}

template <typename Body>
xla::ffi::Error guarded(Body&& body) {
  using xla::ffi::Error;
  const std::string who = "jax_tcgen05.mma: ";
  try {
    body();
    return Error::Success();
  } catch (const std::invalid_argument& error) {
    return Error::InvalidArgument(who + error.what());
  } catch (const launch::LaunchError& error) {
    return Error(code_of(error.failure()), who + error.what());
  } catch (const std::bad_alloc&) {
    return Error(xla::ffi::ErrorCode::kResourceExhausted, who + "out of host memory");
  } catch (const std::exception& error) {
    return Error::Internal(who + error.what());
  }
}

}  // namespace tcgen05
