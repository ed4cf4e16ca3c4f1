// Python bindings of launch/ for the tests and `python -m jax_tcgen05 info`.
#pragma once

#include <pybind11/pybind11.h>

namespace tcgen05 {

void bind_launch(pybind11::module_& m);

}  // namespace tcgen05
