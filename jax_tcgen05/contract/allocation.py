"""Where operands lie: their allocations in shared memory and TMEM, and the budgets of a CTA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..layouts import Digit as LayoutDigit
from ..layouts import Swizzle, TileLayout
from ..layouts.digits import canonical
from ..plan import SHARED_BUDGET, TMEM_COLUMNS, TMEM_LANES, Digit, Operand, Placement
from . import tmem
from .call import OperandSpec


class Element(NamedTuple):
    """How one element is stored: `bits` of its container, and its packing (`plan.PACKINGS`)."""

    bits: int
    packing: str = "plain"


def shared_bytes(operands: Mapping[str, Operand]) -> int:
    """Bytes of shared memory up to the end of the last operand in it."""
    places = [o.placement for o in operands.values()]
    return max((p.base + p.size for p in places if p.storage == "shared"), default=0)


def tmem_columns(operands: Mapping[str, Operand]) -> int:
    """Columns of TMEM up to the end of the last operand in it."""
    places = [o.placement for o in operands.values()]
    return max((p.base + p.size for p in places if p.storage == "tmem"), default=0)


def check_budgets(operands: Mapping[str, Operand]) -> None:
    """ValueError with what each operand needs, unless all fit into one CTA."""
    kib = f" ({SHARED_BUDGET // 1024} KiB)"
    for storage, unit, needed, budget, note in (
        ("shared", "bytes of shared memory", shared_bytes(operands), SHARED_BUDGET, kib),
        ("tmem", "columns of TMEM", tmem_columns(operands), TMEM_COLUMNS, ""),
    ):
        if needed > budget:
            sizes = {name: o.placement.size for name, o in operands.items() if o.placement.storage == storage}
            parts = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ValueError(
                f"{', '.join(sizes)}: the operands need {needed} {unit} ({parts}); a CTA has {budget}{note}"
            )


def shared_operand(
    name: str, spec: OperandSpec, element: Element, base: int, starts: tuple[int, ...]
) -> Operand:
    """An operand in shared memory from byte `base` on; ValueError if its layout does not fit or overlaps itself."""
    offsets = spec.placement.image()["m"]
    _check_injective(name, offsets - offsets.min() if offsets.size else offsets)
    if offsets.size and offsets.min() < 0:
        raise ValueError(
            f"{name}: the layout starts at element {int(offsets.min())}; offsets from the allocation are not negative"
        )
    end = int(offsets.max()) + 1 if offsets.size else 0
    size = -(-end * element.bits // 128) * 16  # whole 16-byte units
    if size > SHARED_BUDGET:
        raise ValueError(
            f"{name}: the layout needs {size} bytes of shared memory; a CTA has {SHARED_BUDGET} (226 KiB)"
        )
    return Operand(placement(spec, element, base, size), starts)


def tmem_operand(
    name: str, spec: OperandSpec, element: Element, base: int, starts: tuple[int, ...], at_least: int = 0
) -> Operand:
    """An operand in TMEM from column `base` on, of `at_least` columns; ValueError as for `shared_operand`."""
    image = spec.placement.image()
    shape = spec.placement.shape
    lanes = np.broadcast_to(image.get("TLane", 0), shape)
    along = np.broadcast_to(image.get("TCol", 0), shape)
    copies = np.zeros(1, np.int64)
    for replica in spec.placement.replicas:
        steps = replica.stride("TLane") * np.arange(replica.extent)
        copies = (copies[:, None] + steps).ravel()
        if replica.stride("TCol"):
            raise ValueError(f"{name}: got a replica along TCol; copies are lanes apart")
    lanes = lanes[..., None] + copies
    tmem.check_lanes(name, lanes)
    if along.min() < 0:
        raise ValueError(
            f"{name}: the layout starts at column {int(along.min())}; columns from the allocation are not negative"
        )
    columns = max(at_least, (int(along.max()) + 1) * element.bits + 31 >> 5)
    if columns > TMEM_COLUMNS:
        raise ValueError(f"{name}: the layout needs {columns} columns of TMEM; a CTA has {TMEM_COLUMNS}")
    _check_injective(name, (along[..., None] * TMEM_LANES + lanes))
    return Operand(placement(spec, element, base, columns), starts)


def _check_injective(name: str, positions: np.ndarray) -> None:
    """Two entries in one place would lose data."""
    seen = np.zeros(int(positions.max()) + 1 if positions.size else 0, bool)
    seen[positions.ravel()] = True
    if np.count_nonzero(seen) != positions.size:
        raise ValueError(
            f"{name}: the layout puts {positions.size} entries into {np.count_nonzero(seen)} places; each needs its own"
        )


def placement(spec: OperandSpec, element: Element, base: int, size: int) -> Placement:
    """The layout of an array as executors get it."""
    layout: TileLayout = spec.placement
    first, second = ("m", "") if spec.storage == "shared" else ("TLane", "TCol")

    def digits(given: tuple[LayoutDigit, ...]) -> tuple[Digit, ...]:
        return tuple(Digit(d.extent, d.stride(first), d.stride(second)) for d in given)

    return Placement(
        storage=spec.storage,
        packing=element.packing,
        item_bytes=np.dtype(spec.dtype).itemsize,  # sub-byte codes: one per byte
        bits=element.bits,
        base=base,
        size=size,
        origin=(layout.origin.get(first, 0), layout.origin.get(second, 0)),
        swizzle=_swizzle(layout.swizzle),
        axes=tuple((axis.size, digits(canonical(axis).digits)) for axis in layout.axes),
        replicas=digits(layout.replicas),
    )


def _swizzle(term: Swizzle | None) -> tuple[int, int]:
    """(mask, shift): x ^ ((x >> shift) & mask), or with a negative shift x ^ ((x & mask) << -shift)."""
    if term is None:
        return 0, 0
    mask = ((1 << term.s) - 1) << term.p
    return (mask, term.a) if term.inner else (mask, -term.a)
