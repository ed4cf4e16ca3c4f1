"""Placed operands: an array, the layout it has in shared memory or TMEM, and a static view of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .isa import container_bits
from .layouts import Axis, TileLayout
from .layouts.digits import Digit, LogicalAxis, as_int, canonical

#: The storage axis of a view that is no storage: the row-major position in the leaf.
_LEAF = Axis("leaf")


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False)
class PlacedOperand:
    """An array with its layout in a storage, and a view; made by `shared`, `tmem` and `tmem_empty`.

    A pytree: its one leaf is the array as given, layout and view are static. The layout covers the array's
    last axes; those before are the prefix (execution group, batch). Views act on the layout's axes only, cost
    nothing and never move the leaf: the Plan says where each element lies in leaf and storage. JAX may put
    other things than arrays into `leaf` (`tree_map`, `eval_shape`), or arrays with more axes in front
    (`vmap`).
    """

    leaf: Any
    #: The layout as given; its shape is that of the leaf's last axes.
    placement: TileLayout
    #: The viewed layout, with the row-major position in the leaf's last axes as one more storage axis.
    positions: TileLayout
    #: "shared" or "tmem".
    storage: str

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        key = jax.tree_util.GetAttrKey("leaf")
        return ((key, self.leaf),), (self.placement, self.positions, self.storage)

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.leaf,), (self.placement, self.positions, self.storage)

    @classmethod
    def tree_unflatten(cls, static: Any, leaves: Any) -> PlacedOperand:
        return cls(*leaves, *static)

    # Reading

    @property
    def prefix(self) -> tuple[int, ...]:
        """The leaf's axes in front of the layout's: execution group, then batch."""
        return tuple(self.leaf.shape[: self.leaf.ndim - len(self.placement.shape)])

    @property
    def shape(self) -> tuple[int, ...]:
        """The viewed shape, prefix included."""
        return self.prefix + self.positions.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """The array's dtype (the container that the layout counts in may be another)."""
        return self.leaf.dtype

    @property
    def layout(self) -> TileLayout:
        """The viewed layout."""
        return self.positions.keep(*self.placement.names)

    def leaf_index(self) -> np.ndarray:
        """Row-major positions in the leaf's last axes: int64 of the viewed layout's shape."""
        return self.positions.keep(_LEAF.name).image()[_LEAF.name]

    @property
    def array(self) -> jax.Array:
        """The viewed array, materialised: shape `self.shape`."""
        prefix, shape = self.prefix, self.positions.shape
        flat = self.placement.shape
        index = self.positions.keep(_LEAF.name)
        if index == _row_major(flat):
            return jnp.asarray(self.leaf)
        rows = jnp.reshape(self.leaf, (*prefix, math.prod(flat)))
        order = _transposition(index, math.prod(flat))
        if order is None:
            return jnp.take(rows, index.image()[_LEAF.name], axis=-1)
        extents, axes = order
        spread = jnp.reshape(rows, (*prefix, *extents))
        rank = len(prefix)
        moved = jnp.transpose(spread, (*range(rank), *(rank + axis for axis in axes)))
        return jnp.reshape(moved, (*prefix, *shape))

    def with_leaf(self, leaf: Any) -> PlacedOperand:
        """The same placement and view of another array."""
        return replace(self, leaf=leaf)

    # Views

    def view(self, *shape: Any) -> PlacedOperand:
        """The layout's axes (not the prefix) in another shape and the same row-major order; one may be -1."""
        return replace(self, positions=self.positions.view(*shape))

    def rearrange(self, pattern: str, /, **sizes: int) -> PlacedOperand:
        """The layout's axes (not the prefix) split, permuted and merged in einops notation."""
        return replace(self, positions=self.positions.rearrange(pattern, **sizes))

    def __getitem__(self, index: Any) -> PlacedOperand:
        """A part: the index counts the layout's axes, never the prefix; see `TileLayout.__getitem__`."""
        return replace(self, positions=self.positions[index])

    def __iter__(self) -> Any:
        raise TypeError("a placed operand is not iterable; index its layout's axes, or use .array")

    def __repr__(self) -> str:
        shape = getattr(self.leaf, "shape", None)
        kind = repr(self.leaf) if shape is None else f"{self.leaf.dtype}{list(shape)}"
        return f"PlacedOperand({self.storage}, {kind}, view={self.positions.shape}, layout={self.placement})"


def shared(array: Any, layout: TileLayout) -> PlacedOperand:
    """`array` placed in shared memory by `layout`, on axis "m" in elements of the container.

    `array`: a JAX or NumPy array, (*prefix, *layout.shape), of a dtype that an MMA reads. TypeError or
    ValueError otherwise.
    """
    return _placed("shared", array, layout)


def tmem(array: Any, layout: TileLayout) -> PlacedOperand:
    """`array` placed in tensor memory by `layout`, on TLane (0..127) and TCol (elements of the container).

    `array`: a JAX or NumPy array, (*prefix, *layout.shape), of a dtype that an MMA reads. TypeError or
    ValueError otherwise.
    """
    return _placed("tmem", array, layout)


def tmem_empty(shape: Any, dtype: Any, layout: TileLayout) -> PlacedOperand:
    """Zeros of (*prefix, *layout.shape) placed in tensor memory by `layout`."""
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"tmem_empty: shape: got {shape!r}; expected a tuple of sizes")
    sizes = tuple(as_int(size, f"tmem_empty: shape: axis {number}") for number, size in enumerate(shape))
    if any(size < 0 for size in sizes):
        raise ValueError(f"tmem_empty: shape: got {sizes}; sizes are not negative")
    _check_placement("tmem_empty", "tmem", sizes, dtype, layout)
    return _place("tmem", jnp.zeros(sizes, jnp.dtype(dtype)), layout)


def _placed(storage: str, array: Any, layout: Any) -> PlacedOperand:
    if isinstance(array, PlacedOperand):
        raise TypeError(f"{storage}: array: got a placed operand; expected an array (use .array)")
    if not isinstance(array, (jax.Array, np.ndarray)):
        raise TypeError(f"{storage}: array: got {type(array).__name__}; expected a JAX or NumPy array")
    _check_placement(storage, storage, array.shape, array.dtype, layout)
    if isinstance(array, np.ndarray) and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))  # JAX has none of the other byte order
    return _place(storage, jnp.asarray(array), layout)


def _place(storage: str, array: jax.Array, layout: TileLayout) -> PlacedOperand:
    names = ("m",) if storage == "shared" else ("TLane", "TCol")
    layout = replace(layout, offset={**dict.fromkeys(names, 0), **layout.origin})
    joint = zip(layout.axes, _joint_digits(layout), strict=True)
    axes = tuple(LogicalAxis(axis.size, digits) for axis, digits in joint)
    return PlacedOperand(array, layout, replace(layout, axes=axes), storage)


def _check_placement(what: str, storage: str, shape: tuple[int, ...], dtype: Any, layout: Any) -> None:
    if not isinstance(layout, TileLayout):
        raise TypeError(f"{what}: layout: got {type(layout).__name__}; expected a TileLayout")
    _check_dtype(f"{what}: dtype", dtype)
    _check_layout(what, storage, layout)
    if tuple(shape[max(len(shape) - len(layout.shape), 0) :]) != layout.shape:
        raise ValueError(
            f"{what}: array: got shape {tuple(shape)} for a layout of shape {layout.shape}; the layout's "
            "shape must equal the array's last axes (those in front are the prefix: execution group, batch)"
        )


def _check_dtype(what: str, dtype: Any) -> None:
    """Refuse what no MMA reads: 64-bit types would otherwise lose bits on the way into JAX."""
    try:
        container_bits(dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what}: {str(error).removeprefix('dtype: ')}") from None


def _check_layout(what: str, storage: str, layout: TileLayout) -> None:
    if layout.storage != storage and layout.names:
        other = "tmem" if storage == "shared" else "shared"
        hint = f"; use {other}(...)" if layout.storage == other else ""
        axes = "memory axis 'm' alone" if storage == "shared" else "TLane and TCol"
        raise ValueError(f"{what}: layout: it counts on {sorted(layout.names)}, expected {axes}{hint}")
    if any(low < 0 for low, _ in layout.reach.values()):
        raise ValueError(f"{what}: layout: {layout} reaches negative positions; expected 0 or more")
    if storage == "tmem":
        # The budget of columns is the call's, which knows all operands and their containers.
        lanes = layout.span().get("TLane", 1)
        if lanes > 128:
            raise ValueError(f"{what}: layout: it reaches lane {lanes - 1}; TMEM has lanes 0..127")


def _row_major(shape: tuple[int, ...]) -> TileLayout:
    axes = []
    for number, size in enumerate(shape):
        stride = math.prod(shape[number + 1 :])
        axes.append(LogicalAxis(size, (Digit(size, ((_LEAF.name, stride),)),)))
    return TileLayout(tuple(axes), {_LEAF.name: 0})


def _joint_digits(layout: TileLayout) -> list[tuple[Digit, ...]]:
    """The layout's digits with the row-major position in the leaf as one more stride of each."""
    out = []
    for number, axis in enumerate(layout.axes):
        stride = math.prod(layout.shape[number + 1 :])
        digits: list[Digit] = []
        for digit in reversed(axis.digits):
            digits.insert(0, Digit(digit.extent, tuple(sorted([*digit.strides, (_LEAF.name, stride)]))))
            stride *= digit.extent
        out.append(tuple(digits))
    return out


def _transposition(index: TileLayout, count: int) -> tuple[list[int], list[int]] | None:
    """(extents, axes) that give `index` from the flat leaf by reshape, transpose, reshape; None if a part."""
    axes = [canonical(axis) for axis in index.axes]
    digits = [digit for axis in axes for digit in axis.digits]
    if dict(index.offset).get(_LEAF.name) or any(axis.capacity != axis.size for axis in axes):
        return None
    if math.prod(digit.extent for digit in digits) != count:
        return None
    by_stride = sorted(range(len(digits)), key=lambda i: -digits[i].stride(_LEAF.name))
    stride = count
    for number in by_stride:
        stride //= digits[number].extent
        if digits[number].stride(_LEAF.name) != stride:
            return None
    if stride != 1:
        return None
    return [digits[number].extent for number in by_stride], [by_stride.index(i) for i in range(len(digits))]
