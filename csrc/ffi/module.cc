// jax_tcgen05._core: the handlers as capsules, and what the tests look into.
#include <pybind11/pybind11.h>

#include "ffi/handlers.h"

namespace py = pybind11;

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiled part of jax_tcgen05.";
  m.attr("jaxlib") = JAX_TCGEN05_JAXLIB;  // whose FFI headers this was built with
  m.def(
      "handlers",
      [] {
        py::dict handlers;
        handlers["cpu"] = py::capsule(reinterpret_cast<void*>(tcgen05::kMmaCpu));
        return handlers;
      },
      "Handlers of the custom call by platform.");
}
