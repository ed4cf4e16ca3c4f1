// jax_tcgen05._core: the handlers as capsules, and what the tests and tools look into.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "ffi/handlers.h"
#include "ffi/launch_module.h"
#include "ffi/model_module.h"
#include "ffi/vsm_module.h"
#include "launch/libcuda.h"

namespace py = pybind11;

namespace tcgen05 {
namespace {

std::string& directory() {
  static std::string directory;
  return directory;
}

py::capsule capsule(XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*)) {
  return py::capsule(reinterpret_cast<void*>(handler));
}

py::dict handlers() {
  py::dict cuda;
  cuda["initialize"] = capsule(kMmaCudaInitialize);
  cuda["execute"] = capsule(kMmaCuda);
  py::dict handlers;
  handlers["cpu"] = capsule(kMmaCpu);
  handlers["CUDA"] = cuda;
  return handlers;
}

void bind_driver(py::module_& m) {
  m.def(
      "cuda_unavailable", [] { return launch::libcuda().unavailable(); },
      "Why there is no CUDA driver here; empty if there is one.");
  m.def("cuda_version", launch::libcuda_version, "The driver's version as CUDA counts it, 0 without one.");
  m.def(
      "cuda_devices",
      [] {
        py::list devices;
        for (const launch::Device& device : launch::libcuda_devices())
          devices.append(py::make_tuple(device.name, device.major, device.minor));
        return devices;
      },
      "(name, major, minor) of every CUDA device.");
}

}  // namespace

const std::string& kernel_directory() { return directory(); }
void set_kernel_directory(const std::string& given) { directory() = given; }

}  // namespace tcgen05

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiled part of jax_tcgen05.";
  m.attr("jaxlib") = JAX_TCGEN05_JAXLIB;  // whose FFI headers this was built with
  m.def("handlers", tcgen05::handlers, "Handlers of the custom call by platform.");
  m.def("set_kernel_directory", tcgen05::set_kernel_directory);
  tcgen05::bind_driver(m);
  tcgen05::bind_model(m);
  tcgen05::bind_launch(m);
  tcgen05::bind_vsm(m);
}
