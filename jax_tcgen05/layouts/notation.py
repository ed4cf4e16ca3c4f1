"""Layouts as they are written: ``S[(64, 32) : (1 @ TLane, 1 @ TCol)] + R[2 : 64 @ TLane] + (8 @ TCol)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .digits import Digit, LogicalAxis, as_int, as_size, make_strides
from .tile import TileLayout


@dataclass(frozen=True)
class Term:
    """`value` steps on the named storage axis `axis`; written ``value @ axis``."""

    value: int
    axis: str

    def __repr__(self) -> str:
        return f"{self.value} @ {self.axis}"


@dataclass(frozen=True)
class Axis:
    """A named storage axis. ``n @ Axis("TLane")`` is a stride or an offset of n on it."""

    name: str

    #: NumPy integers leave ``n @ axis`` to `__rmatmul__`.
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ValueError(f"Axis: got {self.name!r}; expected a name such as 'TLane'")

    def __rmatmul__(self, value: Any) -> Term:
        return Term(as_int(value, f"... @ {self.name}"), self.name)

    def __repr__(self) -> str:
        return self.name


#: TMEM lanes, 0..127.
TLane = Axis("TLane")
#: TMEM columns, in elements of the layout's container (a 32-bit container: in columns).
TCol = Axis("TCol")


def _digit(extent: Any, stride: Any, where: str) -> Digit:
    size = as_size(extent, f"{where}: extent")
    if not isinstance(stride, Term):
        stride = Term(as_int(stride, f"{where}: stride"), "m")
    return Digit(size, make_strides({stride.axis: stride.value}))


def _digits(extents: Any, strides: Any, where: str) -> tuple[Digit, ...]:
    if not isinstance(extents, (tuple, list)):
        return (_digit(extents, strides, where),)
    if not isinstance(strides, (tuple, list)) or len(strides) != len(extents):
        raise ValueError(f"{where}: strides {strides!r} do not match extents {extents!r}")
    if not extents:
        raise ValueError(f"{where}: no extents given")
    pairs = zip(extents, strides, strict=True)
    return tuple(digit for extent, stride in pairs for digit in _digits(extent, stride, where))


def _names(strides: Any) -> set[str]:
    if isinstance(strides, (tuple, list)):
        return {name for stride in strides for name in _names(stride)}
    return {strides.axis if isinstance(strides, Term) else "m"}


def _parse(item: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(item, slice) or item.step is not None or item.start is None or item.stop is None:
        raise TypeError(f"{what}[...]: got {item!r}; expected {what}[extents : strides]")
    return item.start, item.stop


class _ShardNotation:
    """``S[extents : strides]``: a layout, one axis per extent.

    An extent may be a tuple with a tuple of strides, outermost first: one axis of several digits, as in CuTe.
    A plain stride counts elements on memory axis "m"; ``n @ TLane`` and ``n @ TCol`` count on those.
    """

    def __getitem__(self, item: Any) -> TileLayout:
        extents, strides = _parse(item, "S")
        if not isinstance(extents, (tuple, list)):
            extents, strides = (extents,), (strides,)
        if not isinstance(strides, (tuple, list)) or len(strides) != len(extents):
            raise ValueError(f"S[...]: {len(extents)} extents {extents!r}, but strides {strides!r}")
        axes = []
        for number, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
            digits = _digits(extent, stride, f"S[...]: axis {number}")
            size = 1
            for digit in digits:
                size *= digit.extent
            axes.append(LogicalAxis(size, digits))
        return TileLayout(tuple(axes), dict.fromkeys(_names(strides), 0))


@dataclass(frozen=True)
class Replicas:
    """Copies: the same element also lies at each digit's multiples. Written ``R[e : n @ axis]``."""

    digits: tuple[Digit, ...]


class _ReplicaNotation:
    """``R[extents : strides]``: replicas, to be added to a layout."""

    def __getitem__(self, item: Any) -> Replicas:
        return Replicas(_digits(*_parse(item, "R"), "R[...]"))


S = _ShardNotation()
R = _ReplicaNotation()
