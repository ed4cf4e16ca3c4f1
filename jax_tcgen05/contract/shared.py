"""An operand in shared memory against its descriptor: every element must lie where the instruction looks.

The walk (PTX ISA, shared memory descriptor; ptx_contract 5.2) is linear and then permuted by the swizzle. A
descriptor's start address is the unswizzled address of an atom's first element (ptx_contract 5.1).
"""

from __future__ import annotations

import numpy as np

from ..descriptors import SharedDescriptor
from ..layouts import SWIZZLE_MODES, TileLayout, bit_image, matrix_descriptor, swizzle_bytes, walk_bits

#: Bytes of stored operand per row and K step, for every kind (ptx_contract 3.2).
K_STEP_BYTES = 32


def shared_starts(
    name: str,
    view: TileLayout,
    rows: int,
    bits: int,
    descriptor: tuple[int, int, int],
    major: str,
    base: int,
) -> tuple[int, ...]:
    """The encoded descriptor of every repeat of operand `name`, or ValueError.

    `view` has the shape (repeat, k_repeat, rows, K) with its memory axis in elements of `bits`; `base` is the
    allocation's byte address, a multiple of 1024.
    """
    label = f"{name}_descriptor"
    ldo, sdo, mode = descriptor
    # Encoding checks the fields themselves: 16-byte multiples below 2^18, a known swizzle.
    try:
        SharedDescriptor(start=0, ldo=ldo, sdo=sdo, swizzle=mode)
    except ValueError as error:
        raise ValueError(f"{label}: got {descriptor}; {error}") from None
    if mode == 4 and (major == "k" or bits != 32):
        raise ValueError(
            f"{label}: got swizzle 4 with {bits}-bit elements and {name}_major={major!r}; swizzle 4 is only for 32-bit "
            "MN-major operands (OQ7)"
        )
    if bits == 32 and major == "mn" and mode != 4:
        raise ValueError(f"{label}: got swizzle {mode}; a 32-bit MN-major operand needs swizzle 4")
    address = bit_image(view, bits) + 8 * base  # in bits: 4-bit elements are no whole bytes
    columns = address.shape[-1]
    origin = address[..., 0, 0]
    if (origin % 8).any():
        raise ValueError(f"{name}: a repeat starts inside a byte; every origin must be 16-byte aligned")
    start = swizzle_bytes(origin // 8, mode)
    try:
        _check_origins(name, label, start, rows, columns, bits, mode, major)
    except ValueError as error:
        raise ValueError(f"{error}{_other_swizzle(name, label, view, bits, mode)}") from None
    walk = walk_bits(rows, columns, bits, ldo, sdo, mode, major)  # (rows, K), in bits
    linear = 8 * start[..., None, None] + walk
    expected = 8 * swizzle_bytes(linear // 8, mode) + linear % 8
    if not np.array_equal(expected, address):
        _refuse(name, label, view, address, expected, descriptor, bits, major, base)
    # The 14-bit start field reaches 2^18 bytes, more than the budget that the caller checks.
    return tuple(
        int(SharedDescriptor(start=int(s), ldo=ldo, sdo=sdo, swizzle=mode))
        for s in (start % (1 << 18)).ravel()
    )


def _other_swizzle(name: str, label: str, view: TileLayout, bits: int, mode: int) -> str:
    """What a message adds if the layout has the permutation of another mode than the descriptor."""
    own = [number for number, facts in SWIZZLE_MODES.items() if facts.swizzle(bits) == view.swizzle]
    if not own or mode in own:
        return ""
    return f"; the layout of {name} has swizzle {own[0]}, {label} says swizzle {mode}"


def _check_origins(
    name: str, label: str, start: np.ndarray, rows: int, columns: int, bits: int, mode: int, major: str
) -> None:
    swizzle = SWIZZLE_MODES[mode]
    if (start % 16).any():
        bad = int(start[start % 16 != 0][0])
        raise ValueError(f"{name}: a repeat starts at byte {bad}; every origin must be 16-byte aligned")
    if mode == 0:
        return
    phase = start % swizzle.period // swizzle.row_bytes
    if phase.any():
        bad = int(start[phase != 0][0])
        raise ValueError(
            f"{name}: a repeat starts at byte {bad}, row {int(phase[phase != 0][0])} of the {swizzle.period}-byte "
            f"pattern of swizzle {mode}; an origin must lie in its first row, since the base offset is 0 (OQ8)"
        )
    if major == "k":
        inside = start % swizzle.row_bytes
        if (inside + K_STEP_BYTES > swizzle.row_bytes).any():
            raise ValueError(
                f"{name}: a K step of {K_STEP_BYTES} bytes starting {int(inside.max())} bytes into a row of "
                f"{swizzle.row_bytes} (swizzle {mode}) does not fit in the row"
            )
        return
    if (start % swizzle.row_bytes).any():
        raise ValueError(
            f"{name}: an MN-major atom of swizzle {mode} must start on a row of {swizzle.row_bytes} bytes"
        )
    if rows * bits // 8 % swizzle.row_bytes:
        unit = swizzle.row_bytes * 8 // bits
        raise ValueError(
            f"{label}: got swizzle {mode} with {rows} rows of {name}, MN-major; the instruction takes whole pieces of "
            f"{swizzle.row_bytes} bytes: the extent must be a multiple of {unit} elements"
        )


def _refuse(
    name: str,
    label: str,
    view: TileLayout,
    address: np.ndarray,
    expected: np.ndarray,
    descriptor: tuple[int, int, int],
    bits: int,
    major: str,
    base: int,
) -> None:
    repeat, step, row, column = (int(i[0]) for i in np.nonzero(expected != address))
    wanted = int(expected[repeat, step, row, column]) / 8 - base
    lies = int(address[repeat, step, row, column]) / 8 - base
    dtype = {4: "float4_e2m1fn", 8: "uint8", 16: "float16", 32: "float32"}[bits]
    try:
        fits = matrix_descriptor(view, view.shape[-2:], dtype, major)
        hint = f"this layout reads {fits} with {name}_major={major!r}"
    except ValueError as error:
        hint = f"no descriptor fits this layout: {error}"
    raise ValueError(
        f"{label}: got {descriptor} (ldo, sdo, swizzle), which disagrees with the layout of {name}: element "
        f"(row {row}, k {column}) of repeat ({repeat}, {step}) lies at byte {lies:g} of the allocation, the descriptor "
        f"walks to byte {wanted:g}; {hint}"
    )
