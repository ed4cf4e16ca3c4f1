"""Tensor-memory layouts: accumulator datapaths, MMA operands, scale factors."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..isa import container_bits, datapath, dtype_name
from .digits import Digit, LogicalAxis, as_int, as_size, make_strides
from .tile import TileLayout


class Lanes(NamedTuple):
    """The lanes of an accumulator layout of the PTX ISA: rows per CTA, column parts stacked on the lanes.

    Row i of column part b lies in lane ``rows*b + i``; with `scattered`, in ``32*(i // 16) + i % 16``.
    """

    rows: int
    fold: int = 1
    scattered: bool = False


#: PTX ISA, data path layouts (ptx_contract 7.1).
DATAPATHS: dict[str, Lanes] = {
    "A": Lanes(128),
    "B": Lanes(64, fold=2),
    "C": Lanes(64, scattered=True),
    "D": Lanes(128),
    "E": Lanes(64, fold=2),
    "F": Lanes(64, scattered=True),
    "G": Lanes(32, fold=4),
}


def _axis(*digits: tuple[int, int, int]) -> LogicalAxis:
    """An axis of digits (extent, lanes, columns)."""
    made = tuple(
        Digit(extent, make_strides({"TLane": lane, "TCol": column})) for extent, lane, column in digits
    )
    return LogicalAxis(math.prod(digit.extent for digit in made), made)


def _row_axis(path: Lanes) -> LogicalAxis:
    return _axis((4, 32, 0), (16, 1, 0)) if path.scattered else _axis((path.rows, 1, 0))


def _layout(axes: list[LogicalAxis], lane: int = 0, replicas: tuple[Digit, ...] = ()) -> TileLayout:
    return TileLayout(tuple(axes), {"TLane": lane, "TCol": 0}, replicas)


def _fold(count: int, fold: int, what: str) -> int:
    if count % fold:
        raise ValueError(
            f"shape: got {count} {what}; the datapath folds them into {fold} parts: a multiple of {fold}"
        )
    return count // fold


def tmem_datapath_layout(letter: str, rows: int, cols: int, sub_slab: int = 0) -> TileLayout:
    """The layout of a (rows, cols) accumulator of 32-bit cells on datapath `letter` "A".."G".

    `rows` is per CTA: 128 (A, D), 64 (B, C, E, F) or 32 (G). `sub_slab` 1 puts C or F on the upper 16 lanes
    of every 32-lane quarter. ValueError otherwise. Source: PTX ISA, data path layouts.
    """
    path = DATAPATHS.get(letter) if isinstance(letter, str) else None
    if path is None:
        raise ValueError(f"letter: got {letter!r}; allowed: {', '.join(DATAPATHS)}")
    rows, cols = as_size(rows, "rows"), as_size(cols, "cols")
    if rows != path.rows:
        raise ValueError(f"rows: got {rows}; datapath {letter} has {path.rows} rows per CTA")
    slab = as_int(sub_slab, "sub_slab")
    if slab not in (0, 1) or (slab and not path.scattered):
        allowed = "0 or 1" if path.scattered else f"0, since datapath {letter} fills whole 32-lane quarters"
        raise ValueError(f"sub_slab: got {slab}; allowed: {allowed}")
    part = _fold(cols, path.fold, "columns")
    return _layout([_row_axis(path), _axis((path.fold, path.rows, 0), (part, 0, 1))], lane=16 * slab)


def tmem_mma_operand_layout(
    operand: str, shape: Any, dtype: Any, *, M: int, cta_group: int, ws: bool = False
) -> TileLayout:
    """The TMEM layout of operand "D" or "A" of an MMA with these parameters; it does not choose the opcode.

    `M` is the total over the CTA group, so there are m = M / cta_group rows per CTA. In front of `shape`
    there may be two repeat axes (M and N repeats for D, M and K repeats for A): tiles follow each other
    row-major, by their data columns. TCol counts elements of `dtype`.

    D: (m, N) of float32 or int32, or of float16 with one accumulator per 32-bit cell (TCol stride 2). Where
    the datapath stacks f = 2 (M=128 in a pair, M=64 .ws) or f = 4 (M=32 .ws) column parts on the lanes, also
    (m, f, N/f), (f, m, N/f) and (m, s, f, n), column part second to last.

    A: (m, K) packed, on the lanes of D (for M=64 that is layout F, OQ3); .ws with M=64 takes (2, 64, K) and
    with M=32 (4, 32, K), one bank per column part; M=128 in a pair takes (64, K), copied to lanes 64.., or
    (2, 64, K).

    ValueError: no such MMA, another shape, another dtype. Source: PTX ISA data path layouts; the document.
    """
    which = datapath(as_int(M, "M"), as_int(cta_group, "cta_group"), bool(ws))
    path, must_bank = DATAPATHS[which.letter], which.bank_axis == "required"
    if operand not in ("D", "A"):
        raise ValueError(f"operand: got {operand!r}; allowed: 'D', 'A'")
    if not isinstance(shape, (tuple, list)):
        raise ValueError(f"shape: got {shape!r}; expected a tuple of sizes")
    sizes = tuple(as_size(size, f"shape: axis {number}") for number, size in enumerate(shape))
    form = _d_form if operand == "D" else _a_form
    step = _d_column_step(dtype) if operand == "D" else container_bits(dtype) and 1
    for repeats in (0, 2):
        made = form(path, sizes[repeats:], step, must_bank) if len(sizes) > repeats else None
        if made is not None:
            axes, columns, replicas = made
            if repeats:
                across = _axis((sizes[0], 0, sizes[1] * columns))
                axes = [across, _axis((sizes[1], 0, columns)), *axes]
            return _layout(axes, replicas=replicas)
    raise ValueError(
        f"shape: got {sizes} for operand {operand} with M={M}, cta_group={cta_group}, ws={bool(ws)}; "
        f"allowed: {_allowed(operand, path, must_bank)}, or two repeat axes and one of these"
    )


def _d_column_step(dtype: Any) -> int:
    steps = {"float32": 1, "int32": 1, "float16": 2}
    name = dtype_name(dtype)
    if name not in steps:
        raise ValueError(f"dtype: got {name!r} for operand D; allowed: {', '.join(steps)}")
    return steps[name]


#: Axes, columns of a tile, replicas.
_Form = tuple[list[LogicalAxis], int, tuple[Digit, ...]]


def _d_form(path: Lanes, sizes: tuple[int, ...], step: int, must_bank: bool) -> _Form | None:
    """D's axes for one tile, or None if `sizes` is not one of its shapes."""
    rows, fold = _row_axis(path), path.fold
    parts = _axis((fold, path.rows, 0))
    m = path.rows
    if len(sizes) == 2 and sizes[0] == m:
        columns = _fold(sizes[1], fold, "columns")
        return [rows, _axis((fold, m, 0), (columns, 0, step))], columns * step, ()
    if fold == 1:
        return None
    if len(sizes) == 3 and sizes[:2] == (m, fold):
        return [rows, parts, _axis((sizes[2], 0, step))], sizes[2] * step, ()
    if len(sizes) == 3 and sizes[:2] == (fold, m):
        return [parts, rows, _axis((sizes[2], 0, step))], sizes[2] * step, ()
    if len(sizes) == 4 and sizes[0] == m and sizes[2] == fold:
        split, columns = sizes[1], sizes[3]
        axes = [rows, _axis((split, 0, columns * step)), parts, _axis((columns, 0, step))]
        return axes, split * columns * step, ()
    return None


def _a_form(path: Lanes, sizes: tuple[int, ...], step: int, must_bank: bool) -> _Form | None:
    """A's axes for one tile, or None if `sizes` is not one of its shapes."""
    rows, fold, columns = _row_axis(path), path.fold, sizes[-1]
    along = _axis((columns, 0, step))
    if fold > 1 and sizes[:-1] == (fold, path.rows):
        return [_axis((fold, path.rows, 0)), rows, along], columns, ()
    if sizes[:-1] == (path.rows,) and not must_bank:
        copies = (Digit(fold, (("TLane", path.rows),)),) if fold > 1 else ()
        return [rows, along], columns, copies
    return None


def _allowed(operand: str, path: Lanes, must_bank: bool) -> str:
    m, f = path.rows, path.fold
    if operand == "D":
        return f"({m}, N)" + (f", ({m}, {f}, N/{f}), ({f}, {m}, N/{f}), ({m}, s, {f}, n)" if f > 1 else "")
    banks = [f"({f}, {m}, K), one bank per column part"] if f > 1 else []
    return " or ".join([*([] if must_bank else [f"({m}, K)"]), *banks])


def scale_factor_layout(shape: Any, dtype: Any) -> TileLayout:
    """The TMEM layout of scale factors (repeat, k_repeat, rows, vec), one byte each; TCol counts bytes.

    Row r of a step lies in lane r % 32, in byte column ``4*(r // 32) + id + v``; all four 32-lane quarters
    hold a copy. Steps along K fill the four bytes of a word (id = 0, vec, ...), then go to the next words,
    4*ceil(rows/128) columns on, which is the block that ``tcgen05.cp.32x128b.warpx4`` copies; repeats follow
    all words. `vec` is 1, 2 or 4; `dtype` is float8_e8m0fnu, float8_e4m3fn or uint8.

    ValueError for anything else. Source: the document; PTX ISA scale-factor layouts (ptx_contract 8.1).
    """
    name = dtype_name(dtype)
    allowed = ("float8_e8m0fnu", "float8_e4m3fn", "uint8")
    if name not in allowed:
        raise ValueError(f"dtype: got {name!r}; allowed: {', '.join(allowed)}")
    if not isinstance(shape, (tuple, list)) or len(shape) != 4:
        raise ValueError(f"shape: got {shape!r}; expected (repeat, k_repeat, rows, vec)")
    repeat, k_repeat, rows, vec = (
        as_size(size, f"shape: axis {number}") for number, size in enumerate(shape)
    )
    if vec not in (1, 2, 4):
        raise ValueError(f"shape: got {vec} scales per row and step; allowed: 1, 2, 4")
    per_word = 4 // vec
    words = -(-k_repeat // per_word)
    block = 16 * -(-rows // 128)  # bytes from one group of words to the next
    steps = LogicalAxis(k_repeat, _axis((words, 0, block), (per_word, 0, vec)).digits)
    across = LogicalAxis(rows, _axis((-(-rows // 32), 0, 4), (32, 1, 0)).digits)
    axes = [_axis((repeat, 0, words * block)), steps, across, _axis((vec, 0, 1))]
    return _layout(axes, replicas=(Digit(4, (("TLane", 32),)),))
