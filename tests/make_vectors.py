"""Writes tests/data/vectors.npz, the part of the shared single-dot vectors that the tests always have.

Run with the shared data beside the repository (see shared_data.py): ``python tests/make_vectors.py``. Per kind
it stacks the combinations: <kind>.A and .B (cases, K), .C, .D, .SFA, .SFB, .open_zero (cases), .combo (an index into
<kind>.combos); "b200" holds outputs of the hardware. Origin and licences: data/vectors.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shared_data import SHARED

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
FIELDS = ("A", "B", "C", "D", "SFA", "SFB", "open_zero")
MANY, FEW = 192, 58  # cases of a combination, by the number of combinations of its kind


def choose(tags: np.ndarray, count: int) -> np.ndarray:
    """Case indices, spread evenly over the ways in which cases were made."""
    order = np.argsort(tags, kind="stable")
    rank = np.empty(len(tags), int)
    for tag in np.unique(tags):
        rank[tags == tag] = np.arange((tags == tag).sum())
    return np.sort(order[np.argsort(rank[order], kind="stable")][:count])


def main() -> None:
    assert SHARED is not None
    out: dict[str, np.ndarray] = {}
    for kind in (*KINDS, "b200"):
        hardware = kind == "b200"
        data = np.load(SHARED / "vectors" / ("b200_hardware.npz" if hardware else f"{kind}.npz"))
        separator = "_" if hardware else "."
        combos = sorted(
            {name.rsplit(separator, 1)[0] for name in data.files if name.endswith(f"{separator}A")}
        )
        stacked: dict[str, list[np.ndarray]] = {}
        for index, combo in enumerate(combos):
            cases = len(data[f"{combo}{separator}A"])
            tags = np.zeros(cases, np.uint8) if hardware else data[f"{combo}.tag"]
            chosen = choose(tags, MANY if len(combos) <= 4 and kind != "i8" else FEW)
            for name in FIELDS:
                if f"{combo}{separator}{name}" in data.files:
                    stacked.setdefault(name, []).append(data[f"{combo}{separator}{name}"][chosen])
            stacked.setdefault("combo", []).append(np.full(len(chosen), index, np.uint8))
        for name, parts in stacked.items():
            out[f"{kind}.{name}"] = _joined(parts)
        out[f"{kind}.combos"] = np.array(combos)
    np.savez_compressed(Path(__file__).parent / "data" / "vectors.npz", **out)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """One array; narrower words are widened, fewer scales are repeated to the widest number."""
    widest = max(part.shape[-1] if part.ndim > 1 else 0 for part in parts)
    dtype = max((part.dtype for part in parts), key=lambda d: d.itemsize)
    return np.concatenate(
        [part if part.ndim == 1 else np.repeat(part, widest // part.shape[-1], -1) for part in parts]
    ).astype(dtype)


if __name__ == "__main__":
    main()
