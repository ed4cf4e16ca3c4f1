// Python bindings of the functional model, for tests and tools: nothing in the package's call path.
#pragma once

#include <pybind11/pybind11.h>

namespace tcgen05 {

void bind_model(pybind11::module_& m);

}  // namespace tcgen05
