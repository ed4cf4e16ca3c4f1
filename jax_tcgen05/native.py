"""The compiled module: loaded, its headers' version compared with the running jaxlib, its handlers registered."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jaxlib

#: The custom call's target, the same name on every platform.
TARGET = "jax_tcgen05_mma"

try:
    from . import _core
except ImportError as error:
    raise ImportError(
        f"jax_tcgen05: the compiled module is not there ({error}); install the package: pip install ."
    ) from None


def version_tuple(version: str) -> tuple[int, ...]:
    """The numbers of a version's release part: "0.9.0.dev1" -> (0, 9, 0)."""
    release = re.match(r"[\d.]*\d", version)
    return tuple(int(part) for part in release.group().split(".")) if release else ()


def check_jaxlib(built_with: str, running: str) -> None:
    """FFI headers are compatible forwards only: ImportError if the running jaxlib is the older one."""
    if version_tuple(running) < version_tuple(built_with):
        raise ImportError(
            f"jax_tcgen05 was built with the FFI headers of jaxlib {built_with}, but jaxlib {running} is installed; "
            f"upgrade jaxlib, or reinstall jax_tcgen05 with it"
        )


#: The jaxlib whose headers the module was built with.
BUILT_WITH: str = _core.jaxlib
check_jaxlib(BUILT_WITH, jaxlib.__version__)
#: The device kernels: cubins, PTX text and their manifest, or the reason why there are none.
KERNELS = Path(__file__).parent / "kernels_data"
_core.set_kernel_directory(str(KERNELS))
for platform, handler in _core.handlers().items():
    jax.ffi.register_ffi_target(TARGET, handler, platform=platform)
