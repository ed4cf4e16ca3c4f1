"""The address walk of a shared-memory matrix descriptor, and the descriptor of a layout.

Offsets are in *bits* throughout, so that one function serves containers of 4, 8, 16 and 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..isa import container_bits, dtype_name
from .digits import as_size
from .swizzle import SWIZZLE_MODES, swizzle_bytes, swizzle_mode
from .tile import TileLayout

#: Strides are 14-bit fields of 16 bytes.
STRIDE_LIMIT = 1 << 18
_CHUNK_BITS = 128


def walk_bits(rows: int, k: int, bits: int, ldo: int, sdo: int, swizzle: int, major: str = "k") -> np.ndarray:
    """Where element (row, k) of an operand lies, in bits from its start, before the permutation.

    `rows` counts M or N, `bits` is the container's width, `ldo` and `sdo` are bytes. Returns int64 (rows, k).
    With the mode's rows of R bytes in groups of G rows (`SWIZZLE_MODES`):

    - K-major: a row is one of M or N, groups SDO apart; along K, 16-byte chunks LDO apart in mode 0,
      contiguous else.
    - MN-major: a row is one of K, groups SDO apart, and pieces of R bytes of M or N are LDO apart; in mode 0
      the two change places.

    ValueError where there is no such walk: mode 4 with K-major (OQ7), K longer than a swizzled row, FP4 with
    MN-major. Source: the document's table; PTX ISA canonical layouts (ptx_contract 5.2).
    """
    mode = swizzle_mode(swizzle)
    row_bits = mode.row_bytes * 8
    row, column = np.arange(rows, dtype=np.int64), np.arange(k, dtype=np.int64)
    if major == "k":
        if swizzle == 4:
            raise ValueError("swizzle: mode 4 is for MN-major 32-bit operands; K-major takes modes 0..3")
        if swizzle and k * bits > row_bits:
            raise ValueError(
                f"swizzle: K = {k} elements are {k * bits // 8} bytes, but a row of mode {swizzle} has "
                f"{mode.row_bytes}"
            )
        down = row % mode.group_rows * row_bits + row // mode.group_rows * (sdo * 8)
        along = column * bits
        if swizzle == 0:
            along = along // _CHUNK_BITS * (ldo * 8) + along % _CHUNK_BITS
    elif major == "mn":
        if bits == 4:
            raise ValueError("major: packed FP4 has no MN-major form; use 'k'")
        group, piece = (ldo, sdo) if swizzle == 0 else (sdo, ldo)
        down = row * bits // row_bits * (piece * 8) + row * bits % row_bits
        along = column % mode.group_rows * row_bits + column // mode.group_rows * (group * 8)
    else:
        raise ValueError(f"major: got {major!r}; allowed: 'k', 'mn'")
    return down[:, None] + along[None, :]


def bit_image(layout: TileLayout, bits: int) -> np.ndarray:
    """Where every element of a memory layout lies, in bits from the allocation, permutation included."""
    if layout.storage != "shared":
        raise ValueError(
            f"layout: got {layout}, which counts on {sorted(layout.names)}; expected memory axis 'm' alone"
        )
    return layout.keep("m").image().get("m", np.zeros(layout.shape, np.int64)) * bits


def unswizzled_bits(image: np.ndarray, swizzle: int) -> np.ndarray:
    """Bit offsets `image` with the byte permutation of `swizzle` undone (each mode is its own inverse)."""
    return swizzle_bytes(image >> 3, swizzle) * 8 + (image & 7)


def modes_for(major: str, bits: int) -> tuple[int, ...]:
    """The swizzle modes a descriptor may have: 4 for 32-bit MN-major operands and only there (OQ7)."""
    return (4,) if major == "mn" and bits == 32 else (0, 1, 2, 3)


def matrix_descriptor(
    layout: TileLayout, atom_shape: Any, dtype: Any, major: str = "k"
) -> tuple[int, int, int]:
    """(ldo_bytes, sdo_bytes, swizzle) of a shared-memory layout whose last two axes are (rows, K).

    `atom_shape` is (rows, K) of one instruction; the layout's last two axes are multiples of it, and one
    descriptor must serve every atom. `dtype` is the container. An unused LDO reads 16, an unused SDO 0.

    ValueError saying per mode why none fits. Source: ptx_contract 5.2; design 3.3.
    """
    bits = container_bits(dtype)
    rows, k = _atom(layout, atom_shape)
    if major not in ("k", "mn"):
        raise ValueError(f"major: got {major!r}; allowed: 'k', 'mn'")
    if major == "mn" and bits == 4:
        raise ValueError(f"major: {dtype_name(dtype)} has no MN-major form; use 'k'")
    image = bit_image(layout, bits)
    *_, all_rows, all_k = image.shape
    atoms = image.reshape(-1, all_rows // rows, rows, all_k // k, k).swapaxes(2, 3).reshape(-1, rows, k)
    own = [mode for mode, facts in SWIZZLE_MODES.items() if facts.swizzle(bits) == layout.swizzle]
    allowed = modes_for(major, bits)
    reasons = {mode: "32-bit MN-major operands need mode 4" for mode in range(4) if mode not in allowed}
    for mode in sorted(allowed, key=lambda mode: (mode not in own, mode)):
        found = _fit(unswizzled_bits(atoms, mode), bits, mode, major)
        if not isinstance(found, str):
            return (*found, mode)
        reasons[mode] = found
    listed = "; ".join(f"mode {mode}: {reason}" for mode, reason in sorted(reasons.items()))
    raise ValueError(f"layout: no {major}-major descriptor fits {layout} in atoms of ({rows}, {k}): {listed}")


def _atom(layout: TileLayout, atom_shape: Any) -> tuple[int, int]:
    if not isinstance(layout, TileLayout):
        raise TypeError(f"layout: got {layout!r}; expected a TileLayout")
    if not isinstance(atom_shape, (tuple, list)) or len(atom_shape) != 2:
        raise ValueError(f"atom_shape: got {atom_shape!r}; expected (rows, K)")
    rows, k = (as_size(size, "atom_shape") for size in atom_shape)
    if len(layout.shape) < 2 or layout.shape[-2] % rows or layout.shape[-1] % k:
        raise ValueError(
            f"atom_shape: got ({rows}, {k}); the layout's last two axes of {layout.shape} are no multiples"
        )
    return rows, k


def _fit(atoms: np.ndarray, bits: int, mode: int, major: str) -> tuple[int, int] | str:
    """(ldo, sdo) that walks all `atoms`, (n, rows, k) bit offsets before the permutation, or why none."""
    facts = SWIZZLE_MODES[mode]
    _, rows, k = atoms.shape
    origins = atoms[:, :1, :1]
    steps = atoms - origins
    if (origins % _CHUNK_BITS).any():
        return "an atom does not start on a multiple of 16 bytes"
    if mode and (origins % (facts.period * 8) >= facts.row_bytes * 8).any():
        return f"an atom starts at another row than the first of the {facts.period}-byte pattern"
    if mode and major == "k" and (origins % (facts.row_bytes * 8) + k * bits > facts.row_bytes * 8).any():
        return f"K = {k} from an atom's start does not fit in a row of {facts.row_bytes} bytes"
    if (
        mode
        and major == "mn"
        and (rows * bits % (facts.row_bytes * 8) or (origins % (facts.row_bytes * 8)).any())
    ):
        return f"an atom does not consist of whole rows of {facts.row_bytes} bytes"
    groups = steps[0, facts.group_rows, 0] if major == "k" and rows > facts.group_rows else None
    if major == "mn" and k > facts.group_rows:
        groups = steps[0, 0, facts.group_rows]
    per_piece = (_CHUNK_BITS if major == "k" else facts.row_bytes * 8) // bits
    pieces = None
    if major == "mn" and rows > per_piece:
        pieces = steps[0, per_piece, 0]
    elif major == "k" and mode == 0 and k > per_piece:
        pieces = steps[0, 0, per_piece]
    # In MN-major order without a swizzle LDO steps over groups and SDO over pieces.
    swapped = major == "mn" and mode == 0
    fields = {"LDO": groups if swapped else pieces, "SDO": pieces if swapped else groups}
    read = {"LDO": 16, "SDO": 0}
    for name, stride in fields.items():
        if stride is None:
            continue
        if stride % _CHUNK_BITS or not 0 <= stride // 8 < STRIDE_LIMIT:
            return f"{name} would be {stride / 8:g} bytes; expected a multiple of 16 below 2**18"
        read[name] = int(stride) // 8
    try:
        walk = walk_bits(rows, k, bits, read["LDO"], read["SDO"], mode, major)
    except ValueError as error:
        return str(error).removeprefix("swizzle: ")
    wrong = np.argwhere(steps != walk)
    if len(wrong):
        atom, row, column = (int(number) for number in wrong[0])
        return (
            f"element ({row}, {column}) of atom {atom} lies {steps[atom, row, column] / 8:g} bytes from its "
            f"start, (LDO, SDO) = ({read['LDO']}, {read['SDO']}) walk to {walk[row, column] / 8:g}"
        )
    return read["LDO"], read["SDO"]
