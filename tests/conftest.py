"""Where tests run: JAX on the CPU unless told otherwise, and a jax_tcgen05 that was built."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from pathlib import Path

import pytest

# Tests that want a GPU say so themselves, in a process of their own or through this variable.
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _built() -> bool:
    spec = importlib.util.find_spec("jax_tcgen05")
    folders = spec.submodule_search_locations if spec is not None else None
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    return any((Path(folder) / f"_core{suffix}").exists() for folder in folders or () for suffix in suffixes)


def pytest_configure(config: pytest.Config) -> None:
    if _built():
        return
    spec = importlib.util.find_spec("jax_tcgen05")
    where = f"jax_tcgen05 comes from {spec.origin}, which has no compiled _core" if spec else "no jax_tcgen05"
    raise pytest.UsageError(
        f"{where}: install the package (pip install .) and run pytest, not python -m pytest, which puts the "
        "source folder first on the path"
    )
