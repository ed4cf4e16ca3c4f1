// Python bindings of launch/ for the tests.
#pragma once

#include <pybind11/pybind11.h>

namespace tcgen05 {

void bind_launch(pybind11::module_& m);

}  // namespace tcgen05
