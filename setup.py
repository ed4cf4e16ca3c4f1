"""Builds the extension module with a C++17 compiler, and the device kernels when nvcc is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jaxlib
from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))
import build_kernels  # noqa: E402  (beside this file)

ParallelCompile("NPY_NUM_BUILD_JOBS", default=os.cpu_count() or 1).install()


class BuildExtension(build_ext):
    """Compiles the module, then the kernels into the package's `kernels_data`."""

    def run(self) -> None:
        super().run()
        package = ROOT / "jax_tcgen05" if self.editable_mode else Path(self.build_lib) / "jax_tcgen05"
        report = build_kernels.build(package / "kernels_data")
        print(f"device kernels: {report}")


def extension() -> Pybind11Extension:
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.cc"))
    include = Path(jaxlib.__file__).parent / "include"
    return Pybind11Extension(
        "jax_tcgen05._core",
        sources,
        include_dirs=["csrc"],
        cxx_std=17,
        define_macros=[("JAX_TCGEN05_JAXLIB", f'"{jaxlib.__version__}"')],
        # FFI headers are not ours: -isystem keeps their warnings out.
        extra_compile_args=[
            *("-O3", "-Wall", "-Wextra", "-fvisibility=hidden", "-isystem", str(include)),
            *os.environ.get("JAX_TCGEN05_CXXFLAGS", "").split(),
        ],
        extra_link_args=["-ldl", "-pthread"],
    )


setup(ext_modules=[extension()], cmdclass={"build_ext": BuildExtension})
