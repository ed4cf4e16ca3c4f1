"""One axis of a layout as digits of its coordinate, and what can be done to it.

A coordinate ``i`` of an axis is written in mixed radix: digits, outermost first, each with an extent and with
strides on named storage axes. The element lies at the sum of digit * stride. The extents multiply to the
axis' size or more; where they give more, the axis is a bounded part of a padded tile.

The functions that can fail return None, so that the caller can say what failed in the user's terms.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Strides = tuple[tuple[str, int], ...]

#: More elements than any tile has (shared memory holds under 2**19): a larger image is a mistake, not a wait.
_MOST_ELEMENTS = 1 << 26


def check_enumerable(count: int, what: str) -> None:
    """ValueError if `count` positions are too many to list."""
    if count > _MOST_ELEMENTS:
        raise ValueError(f"{what}: {count} elements are too many to list; allowed: up to {_MOST_ELEMENTS}")


def as_int(value: Any, what: str) -> int:
    """`value` as an int; TypeError naming `what` for floats, bools, traced values."""
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except Exception:  # a traced value raises its own error, which does not name the argument
            pass
    raise TypeError(f"{what}: got {value!r} ({type(value).__name__}); expected a static integer")


def as_size(value: Any, what: str) -> int:
    """`value` as a positive int."""
    size = as_int(value, what)
    if size <= 0:
        raise ValueError(f"{what}: got {size}; expected a positive integer")
    return size


def make_strides(strides: Mapping[str, int]) -> Strides:
    return tuple(sorted((name, stride) for name, stride in strides.items() if stride))


def _scaled(strides: Strides, factor: int) -> Strides:
    return tuple((name, stride * factor) for name, stride in strides)


@dataclass(frozen=True)
class Digit:
    """Counts 0..extent-1; one step moves by `strides`, sorted pairs (axis name, stride) without zeros."""

    extent: int
    strides: Strides = ()

    def stride(self, axis: str = "m") -> int:
        """The step on a named axis."""
        return dict(self.strides).get(axis, 0)


@dataclass(frozen=True)
class LogicalAxis:
    """`size` coordinates, written in `digits` (outermost first)."""

    size: int
    digits: tuple[Digit, ...]

    @property
    def capacity(self) -> int:
        return math.prod(digit.extent for digit in self.digits)

    @property
    def bounded(self) -> bool:
        """Whether this is a part of a padded tile that no digits describe exactly."""
        return canonical(self).capacity != self.size

    @property
    def names(self) -> set[str]:
        return {name for digit in self.digits for name, _ in digit.strides}

    def position(self, index: int) -> dict[str, int]:
        """Where coordinate `index` lies, relative to coordinate 0."""
        out: dict[str, int] = {}
        for digit in reversed(self.digits):
            index, count = divmod(index, digit.extent)
            for name, stride in digit.strides:
                out[name] = out.get(name, 0) + count * stride
        return out

    def positions(self, index: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The same for an array of coordinates, by default all: int64 arrays by axis name."""
        if index is None:
            check_enumerable(self.size, "axis")
            index = np.arange(self.size, dtype=np.int64)
        rest = index
        out = {name: np.zeros(rest.shape, np.int64) for name in self.names}
        for digit in reversed(self.digits):
            rest, count = np.divmod(rest, digit.extent)
            for name, stride in digit.strides:
                out[name] += count * stride
        return out


UNIT = LogicalAxis(1, ())


def canonical(axis: LogicalAxis) -> LogicalAxis:
    """The shortest digits of the same map.

    Digits of extent 1 vanish, neighbours fuse when the outer stride continues the inner one on every named
    axis, and what the bound makes unreachable is cut off. Two axes of equal size are the same map exactly if
    their canonical forms are equal: the innermost extent is the first coordinate at which the map stops being
    linear.
    """
    out: list[Digit] = []  # innermost first
    inner = 1
    for digit in reversed(axis.digits):
        extent = min(digit.extent, -(-axis.size // inner))
        if extent == 1:
            continue
        inner *= extent
        if out and digit.strides == _scaled(out[-1].strides, out[-1].extent):
            out[-1] = Digit(out[-1].extent * extent, out[-1].strides)
        else:
            out.append(Digit(extent, digit.strides))
    if out:
        below = math.prod(digit.extent for digit in out[:-1])
        out[-1] = Digit(min(out[-1].extent, -(-axis.size // below)), out[-1].strides)
    return LogicalAxis(axis.size, tuple(reversed(out)))


def merge(axes: Sequence[LogicalAxis]) -> LogicalAxis | None:
    """One axis over several, row-major. None if an axis other than the outermost is bounded."""
    axes = [canonical(axis) for axis in axes if axis.size > 1]
    if any(axis.capacity != axis.size for axis in axes[1:]):
        return None
    size = math.prod(axis.size for axis in axes)
    return canonical(LogicalAxis(size, tuple(digit for axis in axes for digit in axis.digits)))


def split(axis: LogicalAxis, sizes: Sequence[int]) -> list[LogicalAxis] | None:
    """`axis` as axes of `sizes` (their product is its size), row-major.

    None if an inner size cuts a digit unevenly. A bound stays on the outermost new axis: an inner size that
    used up the outermost digit would make the axis' size a multiple of everything below, so not bounded.
    """
    wanted = [size for size in sizes if size > 1]
    rest = list(canonical(axis).digits)
    parts: list[LogicalAxis] = []
    for size in reversed(wanted[1:]):
        need = size
        digits: list[Digit] = []
        while need > 1:
            if not rest:
                return None
            digit = rest.pop()
            if need % digit.extent == 0:
                digits.insert(0, digit)
                need //= digit.extent
            elif digit.extent % need == 0:
                digits.insert(0, Digit(need, digit.strides))
                rest.append(Digit(digit.extent // need, _scaled(digit.strides, need)))
                need = 1
            else:
                return None
        parts.insert(0, LogicalAxis(size, tuple(digits)))
    if wanted:
        parts.insert(0, LogicalAxis(wanted[0], tuple(rest)))
    following = iter(parts)
    return [next(following) if size > 1 else UNIT for size in sizes]


def take(axis: LogicalAxis, start: int, count: int, step: int) -> tuple[dict[str, int], LogicalAxis] | None:
    """Coordinates start, start + step, ...: the offset of the first one, and the rest as digits from there.

    None if the coordinates from `start` on have no digits of their own (the part crosses a boundary of the
    tile unevenly).
    """
    axis = canonical(axis)
    origin = axis.position(start)
    if len(axis.digits) <= 1:
        strides = axis.digits[0].strides if axis.digits else ()
        return origin, LogicalAxis(count, (Digit(count, _scaled(strides, step)),) if count > 1 else ())
    check_enumerable(count, "slice")
    names = sorted(axis.names)
    at = axis.positions(start + step * np.arange(count, dtype=np.int64))
    digits = digits_of(np.stack([at[name] - at[name][0] for name in names], axis=-1), names)
    return None if digits is None else (origin, LogicalAxis(count, digits))


def digits_of(values: np.ndarray, names: Sequence[str]) -> tuple[Digit, ...] | None:
    """The canonical digits of a sequence of positions (n, len(names)) that starts at 0, or None."""
    out: list[Digit] = []
    while len(values) > 1:
        index = np.arange(len(values))
        step = values[1]
        broken = (values != index[:, None] * step).any(axis=1)
        # The innermost extent is the first coordinate that leaves the line through the first two.
        extent = int(broken.argmax()) if broken.any() else len(values)
        if (values != values[index - index % extent] + values[index % extent]).any():
            return None
        out.append(Digit(extent, make_strides(dict(zip(names, map(int, step), strict=True)))))
        values = values[::extent]
    return tuple(reversed(out))


def canonical_replicas(replicas: Iterable[Digit]) -> tuple[Digit, ...]:
    """Copies have no order: sorted, units dropped, neighbours that continue each other fused."""
    out: list[Digit] = []
    kept = (digit for digit in replicas if digit.extent > 1)
    for digit in sorted(kept, key=lambda d: ([(name, abs(n), n) for name, n in d.strides], d.extent)):
        if out and digit.strides == _scaled(out[-1].strides, out[-1].extent):
            out[-1] = Digit(out[-1].extent * digit.extent, out[-1].strides)
        else:
            out.append(digit)
    return tuple(out)
