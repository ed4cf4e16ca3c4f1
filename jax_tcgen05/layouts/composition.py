"""One layout followed by another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .digits import LogicalAxis, digits_of

if TYPE_CHECKING:
    from .tile import TileLayout


def followed_by(inner: TileLayout, outer: TileLayout) -> TileLayout:
    """`outer` at the row-major linear index that `inner` gives on "m"; see `TileLayout.compose`."""
    from .tile import TileLayout

    if inner.names != {"m"} or inner.swizzle is not None or inner.replicas:
        raise ValueError(
            f"compose: {inner} gives no linear index; expected axis 'm' alone, no swizzle, no replicas"
        )
    names = sorted(outer.names)
    size = math.prod(outer.shape)
    index = inner.image()["m"]
    if index.min() < 0 or index.max() >= size:
        raise ValueError(
            f"compose: positions {index.min()}..{index.max()} leave the {size} elements of {outer}"
        )
    first = int(index.flat[0])
    base = _positions(outer, np.array(first), names)
    expected = np.zeros((1,) * index.ndim + (len(names),), np.int64)
    axes = []
    for number, axis in enumerate(inner.axes):
        line = first + axis.positions().get("m", np.zeros(axis.size, np.int64))
        steps = _positions(outer, line, names) - base
        digits = digits_of(steps, names)
        if digits is None:
            raise ValueError(
                f"compose: axis {number} (size {axis.size}) has no strides of its own in {outer}"
            )
        axes.append(LogicalAxis(axis.size, digits))
        along = [1] * index.ndim + [len(names)]
        along[number] = axis.size
        expected = expected + steps.reshape(along)
    if (expected + base != _positions(outer, index, names)).any():
        raise ValueError(f"compose: the axes of {inner} do not step independently in {outer}")
    offset = {name: outer.origin[name] + int(base[number]) for number, name in enumerate(names)}
    return TileLayout(tuple(axes), offset, outer.replicas, outer.swizzle)


def _positions(layout: TileLayout, index: np.ndarray, names: list[str]) -> np.ndarray:
    """Positions of linear indices, without offset and swizzle, on a last axis in `names`' order."""
    out = {name: np.zeros(index.shape, np.int64) for name in names}
    for axis in reversed(layout.axes):
        index, entry = np.divmod(index, axis.size)
        for name, positions in axis.positions(entry).items():
            out[name] += positions
    return np.stack([out[name] for name in names], axis=-1)
