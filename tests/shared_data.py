"""Where the shared spec, oracles and vectors are. Tests use them when present and never need them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def _find() -> Path | None:
    named = os.environ.get("JAX_TCGEN05_SHARED")
    path = Path(named) if named else Path(__file__).resolve().parents[1].parent / "shared"
    return path if (path / "oracles").is_dir() else None


#: The folder with spec/, oracles/, vectors/ and peers/, or None: $JAX_TCGEN05_SHARED or ../shared.
SHARED: Path | None = _find()


def shared_path(name: str) -> Path:
    """A file or folder of the shared data, e.g. "oracles/tmem_layouts.json"; skips the test where it is absent."""
    if SHARED is None:
        pytest.skip("no shared data: set JAX_TCGEN05_SHARED or put it beside the repository as ../shared")
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the shared data has no {name}")
    return path


def shared_json(name: str) -> Any:
    """A parsed JSON file of the shared data; skips the test where it is absent."""
    return json.loads(shared_path(name).read_text())
