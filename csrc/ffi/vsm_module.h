// Python bindings of the virtual SM: the submodule `_core.vsm`, which jax_tcgen05/vsm.py wraps.
#pragma once

#include <pybind11/pybind11.h>

namespace tcgen05 {

void bind_vsm(pybind11::module_& m);

}  // namespace tcgen05
