"""Shared-memory permutations: the composed layout term `Swizzle`, and the descriptor's swizzle modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .digits import as_int

if TYPE_CHECKING:
    from .tile import TileLayout


@dataclass(frozen=True)
class Swizzle:
    """A permutation of offsets on memory axis "m", in the layout's elements.

    With ``mask = (2**s - 1) << p``, x goes to ``x ^ ((x >> a) & mask)`` if `inner`, otherwise to
    ``x ^ ((x & mask) << a)``. ValueError unless p >= 0 and a >= s >= 0.

    ``Swizzle(p, s, a) @ layout``, ``layout + Swizzle(p, s, a)`` and ``layout.compose(Swizzle(p, s, a))`` are
    the same layout: its positions, with offsets added later, are permuted.
    """

    p: int
    s: int
    a: int
    inner: bool = True

    def __post_init__(self) -> None:
        for name in ("p", "s", "a"):
            object.__setattr__(self, name, as_int(getattr(self, name), f"Swizzle: {name}"))
        object.__setattr__(self, "inner", bool(self.inner))
        if self.p < 0 or self.s < 0 or self.a < self.s:
            raise ValueError(
                f"Swizzle: got p={self.p}, s={self.s}, a={self.a}; expected p >= 0 and a >= s >= 0"
            )
        if self.p + self.s + self.a > 60:
            raise ValueError(f"Swizzle: got p={self.p}, s={self.s}, a={self.a}; expected p + s + a <= 60")

    @property
    def mask(self) -> int:
        return ((1 << self.s) - 1) << self.p

    def __call__(self, offset: Any) -> Any:
        """The permuted offset: an int, or an int64 array of offsets."""
        if self.inner:
            return offset ^ ((offset >> self.a) & self.mask)
        return offset ^ ((offset & self.mask) << self.a)

    def __matmul__(self, layout: TileLayout) -> TileLayout:
        return layout.compose(self)

    def __str__(self) -> str:
        return f"Swizzle({self.p}, {self.s}, {self.a}{'' if self.inner else ', inner=False'})"


@dataclass(frozen=True)
class SwizzleMode:
    """One swizzle mode of a shared-memory descriptor (PTX ISA, shared memory descriptor; document, table).

    A group is `group_rows` rows of `row_bytes` and is what SDO (or LDO) steps over; the permutation of byte
    addresses is ``b ^ ((b >> shift) & mask)`` and repeats every `period` bytes.
    """

    row_bytes: int
    group_rows: int
    bits: int
    shift: int
    mask: int
    name: str

    @property
    def period(self) -> int:
        return self.row_bytes * self.group_rows

    def swizzle(self, element_bits: int) -> Swizzle | None:
        """The permutation as a layout term, in elements of `element_bits`; None in mode 0."""
        if self.bits == 0:
            return None
        low = (self.mask & -self.mask).bit_length() - 1  # lowest permuted bit of a byte address
        p = low + 3 - (element_bits.bit_length() - 1)
        return Swizzle(p, self.bits, self.shift)


#: The modes as the document numbers them; the code in the descriptor is `descriptors.py`'s.
SWIZZLE_MODES: dict[int, SwizzleMode] = {
    0: SwizzleMode(16, 8, 0, 3, 0x00, "none"),
    1: SwizzleMode(32, 8, 1, 3, 0x10, "32B"),
    2: SwizzleMode(64, 8, 2, 3, 0x30, "64B"),
    3: SwizzleMode(128, 8, 3, 3, 0x70, "128B"),
    # 32-byte atoms: groups of four rows, for 32-bit MN-major operands only.
    4: SwizzleMode(128, 4, 2, 2, 0x60, "128B with 32B atoms"),
}


def swizzle_mode(mode: Any) -> SwizzleMode:
    """The facts of a mode; ValueError if there is no such mode."""
    number = as_int(mode, "swizzle")
    if number not in SWIZZLE_MODES:
        raise ValueError(f"swizzle: got {number}; allowed modes: {', '.join(map(str, SWIZZLE_MODES))}")
    return SWIZZLE_MODES[number]


def swizzle_bytes(offset: Any, mode: int) -> Any:
    """Where byte `offset` lies under a descriptor's `mode`.

    `offset`: an int, or an integer array, from a start that is aligned to the mode's period.
    Each mode is its own inverse: the bits that are read are not among those that change.
    """
    facts = swizzle_mode(mode)
    if isinstance(offset, np.ndarray):
        if not np.issubdtype(offset.dtype, np.integer):
            raise TypeError(f"offset: got an array of {offset.dtype}; expected integers")
    else:
        offset = as_int(offset, "offset")
    return offset ^ ((offset >> facts.shift) & facts.mask)
