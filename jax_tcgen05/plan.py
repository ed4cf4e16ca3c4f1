"""The Plan: one checked call, and all that an executor gets.

A Plan is a frozen, hashable value computed once while tracing (`contract.py`). Executors decode the
*encoded* descriptors in it, as the hardware does. `attributes` spells it as attributes of the custom call;
``csrc/plan`` decodes and checks them again, since an exported artifact may be hostile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .descriptors import BlockScaledInstructionDescriptor, InstructionDescriptor, SharedDescriptor
from .isa import Opcode

#: Bytes of shared memory per CTA for operands: 227 KiB less 1 KiB for barriers and the TMEM address.
SHARED_BUDGET = 226 * 1024
#: Columns of TMEM per CTA (PTX ISA, Tensor Memory).
TMEM_COLUMNS = 512
#: Lanes of TMEM per CTA.
TMEM_LANES = 128
#: Every shared allocation starts on a multiple of the longest swizzle period, in bytes.
SHARED_ALIGN = 1024

STORAGES = ("shared", "tmem")
PACKINGS = ("plain", "fp6", "fp4")


@dataclass(frozen=True)
class Digit:
    """Counts 0..extent-1; each step moves by `first` (elements, or lanes) and `second` (elements along a lane)."""

    extent: int
    first: int
    second: int = 0


@dataclass(frozen=True)
class Placement:
    """Where the elements of one array (one CTA's share, row-major) lie in their storage.

    `axes` holds (size, digits) per axis of the array. In shared memory an element lies `first` elements of
    `bits` from the allocation, permuted by the swizzle (mask, shift): x ^ ((x >> shift) & mask). In TMEM
    `first` is the lane and `second` the position along the lane, in elements. `packing` "fp6"/"fp4" are the
    padded containers of kinds f8f6f4 and mxf8f6f4 (ptx_contract section 6).
    """

    storage: str
    packing: str
    item_bytes: int
    bits: int
    base: int
    size: int
    origin: tuple[int, int]
    swizzle: tuple[int, int]
    axes: tuple[tuple[int, tuple[Digit, ...]], ...]
    replicas: tuple[Digit, ...] = ()

    def encode(self) -> np.ndarray:
        """The int64 list that ``csrc/plan/plan.cc`` decodes."""
        out = [STORAGES.index(self.storage), PACKINGS.index(self.packing)]
        out += [self.item_bytes, self.bits, self.base, self.size, *self.origin, *self.swizzle]
        out.append(len(self.axes))
        for size, digits in self.axes:
            out += [size, len(digits)]
            for digit in digits:
                out += [digit.extent, digit.first, digit.second]
        out.append(len(self.replicas))
        for digit in self.replicas:
            out += [digit.extent, digit.first, digit.second]
        return np.array(out, dtype=np.int64)


@dataclass(frozen=True)
class Operand:
    """One operand of a Plan: its placement and where each repeat starts (row-major over its two repeat axes).

    A start is an encoded shared-memory descriptor, or a TMEM address (lane << 16 | column; for a scale operand
    with the scale-factor id in bits 30-31).
    """

    placement: Placement
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """One `mma` call after all checks; see the module's docstring.

    `idesc` is the 32-bit instruction descriptor (scale-factor ids 0: each issue inserts its own), `repeats`
    are (M, N, K) repeats; issues run M, N, K innermost. `shared_bytes` and `tmem_columns` are per CTA.
    """

    opcode: Opcode
    instruction_shape: tuple[int, int, int]
    idesc: int
    repeats: tuple[int, int, int]
    d: Operand
    a: Operand
    b: Operand
    sfa: Operand | None
    sfb: Operand | None
    shared_bytes: int
    tmem_columns: int

    @property
    def operands(self) -> dict[str, Operand]:
        """The operands that are there, by name, in the custom call's order."""
        named = {"d": self.d, "a": self.a, "b": self.b, "sfa": self.sfa, "sfb": self.sfb}
        return {name: operand for name, operand in named.items() if operand is not None}

    @property
    def a_in_tmem(self) -> bool:
        return self.a.placement.storage == "tmem"

    @property
    def instruction_descriptor(self) -> InstructionDescriptor | BlockScaledInstructionDescriptor:
        """`idesc`, decoded."""
        if self.opcode.block_scale:
            return BlockScaledInstructionDescriptor.decode(self.idesc, self.opcode.kind)
        return InstructionDescriptor.decode(self.idesc, self.opcode.kind)

    def attributes(self) -> dict[str, object]:
        """The attributes of the custom call, but for the batch's rank and the executor."""
        out: dict[str, object] = {
            "opcode": str(self.opcode),
            "idesc": np.int64(self.idesc),
            "repeats": np.array(self.repeats, dtype=np.int64),
            "shared_bytes": np.int64(self.shared_bytes),
            "tmem_columns": np.int64(self.tmem_columns),
        }
        for name in ("d", "a", "b", "sfa", "sfb"):
            operand = getattr(self, name)
            starts = [] if operand is None else operand.starts
            # A descriptor is 64 bits wide: carry its bits in a signed attribute.
            out[f"{name}_starts"] = np.array(starts, dtype=np.uint64).astype(np.int64)
            out[f"{name}_place"] = np.array([], np.int64) if operand is None else operand.placement.encode()
        return out

    def __str__(self) -> str:
        m, n, k = self.repeats
        lines = [
            f"{self.opcode}",
            f"  issues: {m * n * k} = {m} M x {n} N x {k} K of instruction shape {self.instruction_shape}",
            f"  idesc:  0x{self.idesc:08x}  {self.instruction_descriptor}",
        ]
        for name, operand in self.operands.items():
            lines.append(f"  {name.upper() + ':':7} {_describe(name, operand)}")
        lines.append(f"  shared memory: {self.shared_bytes} bytes per CTA; TMEM: {self.tmem_columns} columns")
        return "\n".join(lines)


def _describe(name: str, operand: Operand) -> str:
    place, starts = operand.placement, operand.starts
    if place.storage == "shared":
        shown = ", ".join(f"0x{start:016x}" for start in starts[:4])
        more = f", ... ({len(starts)} in all)" if len(starts) > 4 else ""
        first = SharedDescriptor.decode(starts[0])
        return f"shared, {place.size} bytes at {place.base}; descriptors {shown}{more}; first: {first}"
    shown = ", ".join(tmem_address(start) for start in starts[:4])
    more = f", ... ({len(starts)} in all)" if len(starts) > 4 else ""
    last = place.base + place.size - 1
    return f"TMEM columns {place.base}..{last}; starts {shown}{more}"


def tmem_address(address: int) -> str:
    """A TMEM address in words: lane, column, and the scale-factor id where it is not 0."""
    text = f"lane {address >> 16 & 0x7F} column {address & 0xFFFF}"
    return text + (f" id {address >> 30}" if address >> 30 else "")
