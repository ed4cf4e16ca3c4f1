"""`TileLayout`: where each element of a tile lies, and the algebra of such maps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from . import pattern as einops
from .composition import followed_by
from .digits import (
    UNIT,
    Digit,
    LogicalAxis,
    as_int,
    canonical,
    canonical_replicas,
    check_enumerable,
    merge,
    split,
    take,
)
from .swizzle import Swizzle

#: Positions stay far from the ends of int64.
_LIMIT = 1 << 60
_TMEM = frozenset({"TLane", "TCol"})


class LayoutIndexError(ValueError, IndexError):
    """A coordinate outside a layout's shape."""


@dataclass(frozen=True, eq=False, repr=False)
class TileLayout:
    """A map from the coordinates of a tile to positions on named storage axes.

    Write it as ``TileLayout(S[...] + R[...] + offset + Swizzle(...))`` (`notation.py`); S[...] alone is a
    layout too. The position on an axis is the offset plus, per logical axis, the sum of digit * stride; on
    memory axis "m" (unit: elements of the container) it is then permuted by the swizzle. Replicas are further
    copies, which neither ``layout(...)`` nor `image` enumerates. Equal and hashed by shape, map, replicas and
    swizzle.

    An axis may be a bounded part of a padded tile (see `digits.py`): the bound travels with it.
    """

    axes: tuple[LogicalAxis, ...]
    #: Offsets by axis name, sorted; it names every storage axis of the layout.
    offset: Any = ()
    replicas: tuple[Digit, ...] = ()
    swizzle: Swizzle | None = None

    def __post_init__(self) -> None:
        if isinstance(self.axes, TileLayout):
            given = self.axes
            for name in ("axes", "offset", "replicas", "swizzle"):
                object.__setattr__(self, name, getattr(given, name))
            return
        if not isinstance(self.axes, tuple) or not all(isinstance(axis, LogicalAxis) for axis in self.axes):
            raise TypeError(
                f"TileLayout: got {self.axes!r}; expected S[extents : strides] and what is added to it"
            )
        offset = dict(self.offset)
        for digit in [*(digit for axis in self.axes for digit in axis.digits), *self.replicas]:
            for name, _ in digit.strides:
                offset.setdefault(name, 0)
        object.__setattr__(self, "offset", tuple(sorted(offset.items())))
        if self.swizzle is not None and self.swizzle.s == 0:
            object.__setattr__(self, "swizzle", None)
        if math.prod(self.shape) > _LIMIT or any(
            abs(low) > _LIMIT or abs(high) > _LIMIT for low, high in self.reach.values()
        ):
            raise ValueError(f"TileLayout: shape {self.shape} or its positions exceed 2**60")

    # Reading

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape: the bounds of the coordinates."""
        return tuple(axis.size for axis in self.axes)

    @property
    def names(self) -> frozenset[str]:
        """The storage axes that it counts on."""
        return frozenset(name for name, _ in self.offset)

    @property
    def storage(self) -> str | None:
        """ "shared" if it counts on "m" alone, "tmem" if on TLane and TCol, otherwise None."""
        if self.names <= {"m"}:
            return "shared"
        return "tmem" if self.names <= _TMEM else None

    @property
    def origin(self) -> dict[str, int]:
        """Where coordinate (0, ..., 0) lies, before the swizzle."""
        return dict(self.offset)

    def __call__(self, *coordinate: Any) -> dict[str, int]:
        """Where one element lies, by axis name. LayoutIndexError (a ValueError) outside the shape."""
        if len(coordinate) == 1 and isinstance(coordinate[0], (tuple, list)):
            coordinate = tuple(coordinate[0])
        if len(coordinate) != len(self.axes):
            raise ValueError(f"coordinate: got {len(coordinate)} entries; the layout's shape is {self.shape}")
        out = self.origin
        for number, (entry, axis) in enumerate(zip(coordinate, self.axes, strict=True)):
            index = as_int(entry, f"coordinate: axis {number}")
            if not 0 <= index < axis.size:
                raise LayoutIndexError(f"coordinate: axis {number} got {index}; allowed 0..{axis.size - 1}")
            for name, position in axis.position(index).items():
                out[name] += position
        if self.swizzle is not None:
            out["m"] = self.swizzle(out["m"])
        return out

    def image(self) -> dict[str, np.ndarray]:
        """Where every element lies: int64 arrays of the layout's shape, by axis name."""
        check_enumerable(math.prod(self.shape), "image")
        out = {name: np.full(self.shape, offset, np.int64) for name, offset in self.offset}
        for number, axis in enumerate(self.axes):
            along = [1] * len(self.axes)
            along[number] = axis.size
            for name, positions in axis.positions().items():
                out[name] += positions.reshape(along)
        if self.swizzle is not None:
            out["m"] = self.swizzle(out["m"])
        return out

    def span(self) -> dict[str, int]:
        """One more than the largest position on each axis, replicas included, before the swizzle."""
        return {name: high + 1 for name, (_, high) in self.reach.items()}

    @cached_property
    def reach(self) -> dict[str, tuple[int, int]]:
        """Least and largest position on each axis, replicas included, before the swizzle."""
        reach = {name: (offset, offset) for name, offset in self.offset}
        copies = [LogicalAxis(digit.extent, (digit,)) for digit in self.replicas]
        for axis in [canonical(axis) for axis in (*self.axes, *copies)]:
            if axis.capacity == axis.size:
                for digit in axis.digits:
                    for name, stride in digit.strides:
                        end = (digit.extent - 1) * stride
                        low, high = reach[name]
                        reach[name] = (low + min(end, 0), high + max(end, 0))
            else:
                for name, positions in axis.positions().items():
                    low, high = reach[name]
                    reach[name] = (low + int(positions.min()), high + int(positions.max()))
        return reach

    # Equality

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        axes = tuple(canonical(axis) for axis in self.axes)
        offset = tuple(pair for pair in self.offset if pair[1])  # an axis not named is at 0
        return axes, offset, canonical_replicas(self.replicas), self.swizzle

    def canonical(self) -> TileLayout:
        """The same layout with the fewest digits: units vanish, neighbours that continue each other fuse."""
        axes, _, replicas, swizzle = self._key
        return TileLayout(axes, self.offset, replicas, swizzle)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, TileLayout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    # Building

    def __add__(self, other: Any) -> TileLayout:
        """Add replicas, an offset (``k @ axis``, or a plain int on "m"), or a swizzle."""
        from .notation import Replicas, Term  # the notation builds layouts, so it imports this module

        if isinstance(other, Swizzle):
            return self.compose(other)
        if isinstance(other, Replicas):
            return replace(self, replicas=self.replicas + other.digits)
        if not isinstance(other, Term):
            if isinstance(other, (bool, float, str, TileLayout)) or not hasattr(other, "__index__"):
                return NotImplemented
            other = Term(as_int(other, "offset"), "m")
        offset = dict(self.offset)
        offset[other.axis] = offset.get(other.axis, 0) + other.value
        return replace(self, offset=offset)

    __radd__ = __add__

    def compose(self, outer: Swizzle | TileLayout) -> TileLayout:
        """This layout followed by `outer`.

        A `Swizzle` permutes the positions on "m". A `TileLayout` takes them as its row-major linear index:
        the result has this layout's shape and `outer`'s storage axes. ValueError if a swizzle is there
        already, if the positions leave `outer`, or if the result is no layout.
        """
        if isinstance(outer, TileLayout):
            return followed_by(self, outer)
        if not isinstance(outer, Swizzle):
            raise TypeError(f"compose: got {outer!r}; expected a Swizzle or a TileLayout")
        if outer.s == 0:
            return self
        if self.swizzle is not None:
            raise ValueError(
                f"compose: the layout has {self.swizzle} already; at most one swizzle is possible"
            )
        if "m" not in self.names:
            raise ValueError(
                f"compose: {outer} permutes axis 'm', but the layout counts on {sorted(self.names)}"
            )
        return replace(self, swizzle=outer)

    def keep(self, *names: str) -> TileLayout:
        """The same layout on these storage axes only."""

        def kept(digit: Digit) -> Digit:
            return Digit(digit.extent, tuple(pair for pair in digit.strides if pair[0] in names))

        axes = tuple(LogicalAxis(axis.size, tuple(map(kept, axis.digits))) for axis in self.axes)
        offset = tuple(pair for pair in self.offset if pair[0] in names)
        replicas = tuple(digit for digit in map(kept, self.replicas) if digit.strides)
        return TileLayout(axes, offset, replicas, self.swizzle if "m" in names else None)

    # Views

    def view(self, *shape: Any) -> TileLayout:
        """The same elements in the same row-major order with another shape; one size may be -1.

        ValueError if the counts differ, or if a size cuts the tile where its strides change.
        """
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        sizes = _view_sizes(shape, self.shape)
        out: list[LogicalAxis] = []
        position = 0  # of the next axis to use up
        start = 0  # of the sizes that the axes taken so far must give
        while start < len(sizes):
            stop, wanted = start + 1, sizes[start]
            first, have = position, 1
            while have != wanted:
                if have < wanted:
                    have *= self.axes[position].size
                    position += 1
                else:
                    wanted *= sizes[stop]
                    stop += 1
            out += self._reshape(first, position, sizes[start:stop])
            start = stop
        return replace(self, axes=tuple(out))

    def _reshape(self, first: int, last: int, sizes: tuple[int, ...]) -> list[LogicalAxis]:
        axes = self.axes[first:last]
        merged = merge(axes)
        if merged is None:
            inner = next(i for i in range(first, last) if i > first and self.axes[i].bounded)
            raise ValueError(
                f"view: axes {first}..{last - 1} of shape {self.shape} cannot merge: axis {inner} (size "
                f"{self.axes[inner].size}) is a part of a larger tile, so its rows do not follow each other "
                "evenly"
            )
        parts = split(merged, sizes)
        if parts is None:
            tile = " x ".join(str(digit.extent) for digit in merged.digits)
            raise ValueError(
                f"view: axis {first} (size {merged.size}, stored as tiles of {tile}) cannot split into "
                f"{sizes}: a size would cut a tile unevenly"
            )
        return parts

    def permute(self, *order: Any) -> TileLayout:
        """The axes in another order."""
        numbers = tuple(as_int(entry, "permute: axis") for entry in order)
        if sorted(numbers) != list(range(len(self.axes))):
            raise ValueError(f"permute: got {numbers}; expected each of 0..{len(self.axes) - 1} once")
        return replace(self, axes=tuple(self.axes[number] for number in numbers))

    def rearrange(self, pattern: str, /, **sizes: int) -> TileLayout:
        """Split, permute and merge axes in einops notation: ``rearrange("m (kr k) -> kr m k", k=16)``."""
        plan = einops.parse(pattern, self.shape, sizes)
        parts = self.view(*plan.split).axes
        layout = replace(self, axes=tuple(parts[number] for number in plan.order))
        return layout.view(*plan.merge)

    def __getitem__(self, index: Any) -> TileLayout:
        """A part, by slices, ints (which drop the axis), Ellipsis, None (a new axis).

        Bounds and negative indices are NumPy's. ValueError for an empty part, and for one that has no layout
        because it crosses a boundary of the tile unevenly.
        """
        entries = _expand_index(index, len(self.axes), self.shape)
        offset = dict(self.offset)
        axes: list[LogicalAxis] = []
        number = 0
        for entry in entries:
            if entry is None:
                axes.append(UNIT)
                continue
            axis, where = self.axes[number], f"index: axis {number}"
            number += 1
            if isinstance(entry, slice):
                start, stop, step = _slice_bounds(entry, axis.size, where)
                taken = take(axis, start, len(range(start, stop, step)), step)
                if taken is None:
                    tile = " x ".join(str(digit.extent) for digit in canonical(axis).digits)
                    raise ValueError(
                        f"{where} (size {axis.size}, stored as tiles of {tile}): {start}:{stop}:{step} "
                        "crosses a tile's boundary unevenly, so it has no strides of its own"
                    )
                axes.append(taken[1])
                origin = taken[0]
            else:
                at = as_int(entry, where)
                if not -axis.size <= at < axis.size:
                    raise LayoutIndexError(f"{where}: got {at}; allowed {-axis.size}..{axis.size - 1}")
                origin = axis.position(at % axis.size)
            for name, position in origin.items():
                offset[name] += position
        return replace(self, axes=tuple(axes), offset=offset)

    def slice(self, *index: Any) -> TileLayout:
        """`self[index]`."""
        return self[index]

    # Printing

    def __repr__(self) -> str:
        def group(texts: list[str]) -> str:
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

        def stride(digit: Digit) -> str:
            terms = [f"{n}" if name == "m" else f"{n} @ {name}" for name, n in digit.strides]
            return " + ".join(terms) or "0"

        extents, strides = [], []
        for axis in self.axes:
            digits = canonical(axis).digits or (Digit(1),)
            shown = [str(digit.extent) for digit in digits], [stride(digit) for digit in digits]
            extents.append(shown[0][0] if len(digits) == 1 else group(shown[0]))
            strides.append(shown[1][0] if len(digits) == 1 else group(shown[1]))
        text = f"S[{group(extents)} : {group(strides)}]"
        text += "".join(f" + R[{digit.extent} : {stride(digit)}]" for digit in self.replicas)
        stepped = {name for axis in self.axes for name in axis.names}
        for name, offset in self.offset:
            if offset or name not in stepped:
                text += f" + {offset}" if name == "m" else f" + ({offset} @ {name})"
        text += f" + {self.swizzle}" if self.swizzle else ""
        bounds = [f":{axis.size}" if axis.capacity != axis.size else ":" for axis in self.axes]
        bound = f"[{', '.join(bounds)}]" if any(len(part) > 1 for part in bounds) else ""
        return f"TileLayout({text}){bound}"


def _view_sizes(shape: tuple[Any, ...], old: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` as ints with -1 worked out; ValueError if the number of elements changes."""
    sizes = [as_int(size, f"view: axis {number}") for number, size in enumerate(shape)]
    if sizes.count(-1) > 1:
        raise ValueError(f"view: got {tuple(sizes)}; at most one size may be -1")
    for number, size in enumerate(sizes):
        if size != -1 and size <= 0:
            raise ValueError(f"view: axis {number} got size {size}; sizes are positive, one may be -1")
    count = math.prod(old)
    if -1 in sizes:
        known = -math.prod(sizes)
        if count % known:
            raise ValueError(f"view: {tuple(sizes)} cannot hold the {count} elements of shape {old}")
        sizes[sizes.index(-1)] = count // known
    if math.prod(sizes) != count:
        raise ValueError(
            f"view: {tuple(sizes)} holds {math.prod(sizes)} elements, but shape {old} holds {count}; "
            "they must agree"
        )
    return tuple(sizes)


def _expand_index(index: Any, rank: int, shape: tuple[int, ...]) -> list[Any]:
    """The index with Ellipsis written out: one entry per axis, and None for new axes."""
    entries = list(index) if isinstance(index, tuple) else [index]
    for entry in entries:
        if entry is None or entry is Ellipsis or isinstance(entry, slice):
            continue
        as_int(entry, "index")
    dots = [number for number, entry in enumerate(entries) if entry is Ellipsis]
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if len(dots) > 1 or used > rank:
        raise LayoutIndexError(
            f"index: got {index!r} for shape {shape}; expected up to {rank} entries and one ..."
        )
    at = dots[0] if dots else len(entries)
    return [*entries[:at], *[slice(None)] * (rank - used), *entries[at + 1 :]]


def _slice_bounds(entry: slice, size: int, where: str) -> tuple[int, int, int]:
    for part in (entry.start, entry.stop, entry.step):
        if part is not None:
            as_int(part, where)
    if entry.step is not None and as_int(entry.step, where) == 0:
        raise ValueError(f"{where}: got a slice with step 0; expected another step")
    start, stop, step = entry.indices(size)
    if not len(range(start, stop, step)):
        raise ValueError(f"{where} (size {size}): {entry!r} is empty; a part has at least one element")
    return start, stop, step
