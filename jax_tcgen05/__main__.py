"""``python -m jax_tcgen05``.

``info``: versions, kernels, driver, devices, and which executors work here. ``vsm``: PTX kernels on the virtual SM.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys

import jax
import jaxlib

from . import __version__, native
from ._core import cuda_devices, cuda_unavailable, cuda_version
from .vsm import cli as vsm_cli

#: Compute capabilities with tcgen05 instructions, and the targets whose cubins they take.
CAPABILITIES = {(10, 0): "sm_100a", (10, 3): "sm_103a", (11, 0): "sm_110a"}


def kernels_report() -> tuple[str, str | None]:
    """(what was built, or None's reason)."""
    reason = native.KERNELS / "unavailable.txt"
    if reason.exists():
        return "none", reason.read_text().strip()
    manifest = native.KERNELS / "manifest.json"
    if not manifest.exists():
        return "none", f"{manifest.name} is missing; reinstall the package"
    data = json.loads(manifest.read_text())
    entries = {kernel["entry"] for kernel in data["kernels"]}
    targets = sorted({kernel["target"] for kernel in data["kernels"]})
    return f"{len(entries)} kernels for {', '.join(targets)} and as PTX, by nvcc {data['nvcc']}", None


def executors_report() -> list[tuple[str, str, str]]:
    """(executor, platform, "works" or why not)."""
    _, reason = kernels_report()
    rows = [("functional model", "cpu", "works"), ("virtual SM", "cpu", reason or "works")]
    cuda = cuda_unavailable() or reason
    if not cuda:
        usable = [name for name, major, minor in cuda_devices() if (major, minor) in CAPABILITIES]
        wanted = ", ".join(f"{major}.{minor}" for major, minor in CAPABILITIES)
        cuda = "works" if usable else f"no device of compute capability {wanted}"
    return [*rows, ("device kernels", "cuda", cuda)]


def info() -> None:
    """Prints the report."""
    version = cuda_version()
    print(f"jax_tcgen05 {__version__}, built with the FFI headers of jaxlib {native.BUILT_WITH}")
    print(f"jax {jax.__version__}, jaxlib {jaxlib.__version__}, Python {platform.python_version()}")
    built, reason = kernels_report()
    print(f"device kernels: {built}" + (f" ({reason})" if reason else ""))
    print(f"CUDA driver: {f'{version // 1000}.{version % 1000 // 10}' if version else cuda_unavailable()}")
    for name, major, minor in cuda_devices():
        print(f"CUDA device: {name}, compute capability {major}.{minor}")
    print("executors:")
    for executor, where, state in executors_report():
        print(f"  {executor} ({where}): {state}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jax_tcgen05", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="what is installed, and which executors work")
    vsm_cli.add_commands(commands)
    options = parser.parse_args(arguments)
    if options.command == "vsm":
        return vsm_cli.main(options)
    info()
    return 0


if __name__ == "__main__":
    sys.exit(main())
