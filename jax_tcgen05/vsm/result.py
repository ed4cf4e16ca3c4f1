"""What a launch did: counts, bytes moved, and who wrote a wrong element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .trace import Trace


class Instruction(NamedTuple):
    """One instruction of a kernel: its line in the PTX text, its opcode with all modifiers, its text."""

    line: int
    opcode: str
    text: str


class Writer(NamedTuple):
    """Who wrote an element last: the instruction (of a copy: the one that started it), CTA and thread of the CTA."""

    instruction: Instruction
    cta: tuple[int, int, int]
    thread: int

    def __str__(self) -> str:
        where = f"CTA {self.cta}, thread {self.thread}"
        return f"line {self.instruction.line}: {self.instruction.text.strip()} in {where}"


@dataclass(frozen=True)
class Difference:
    """The first element, in row-major order, that is not what was expected, and how many there are."""

    index: tuple[int, ...]
    got: Any
    expected: Any
    count: int
    size: int
    #: Who wrote the element; None if nobody did, or if the array was not watched.
    writer: Writer | None
    watched: bool

    def __str__(self) -> str:
        by = f"written by {self.writer}" if self.writer else "never written"
        at = ", ".join(map(str, self.index))
        return (
            f"[{at}] is {self.got}, expected {self.expected}"
            + (f"; {by}" if self.watched else "")
            + f"; {self.count} of {self.size} elements differ"
        )


def array_key(array: np.ndarray) -> tuple[int, int]:
    """The same for arrays that are the same memory."""
    return array.__array_interface__["data"][0], array.nbytes


class Watched:
    """The arrays of a launch whose writers were recorded."""

    def __init__(
        self, memory: Any, addresses: Mapping[tuple[int, int], int], instructions: Sequence[Instruction]
    ) -> None:
        self._memory = memory
        self._addresses = addresses
        self._instructions = instructions

    def holds(self, array: np.ndarray) -> bool:
        return array_key(array) in self._addresses

    def writer(self, array: np.ndarray, index: tuple[int, ...]) -> Writer | None:
        byte = int(np.ravel_multi_index(index, array.shape)) * array.itemsize
        found = self._memory.writer(self._addresses[array_key(array)], byte)
        return None if found is None else Writer(self._instructions[found[0]], *found[1:])


@dataclass(frozen=True)
class Result:
    """What a launch did."""

    #: Thread instructions per opcode, as written with all modifiers.
    opcodes: dict[str, int]
    #: Warp instructions and thread instructions.
    instructions: int
    thread_instructions: int
    #: Multiply-accumulates of the tcgen05.mma instructions.
    macs: int
    #: Asynchronous works (copies, mma, commits) that took effect.
    asynchronous: int
    #: Bytes read from and written to "global", "shared", "tensor", "local" memory and "param", by all instructions:
    #: tcgen05.mma reads its operands and accumulators once per instruction, a multicast copy writes every CTA.
    bytes_read: dict[str, int]
    bytes_written: dict[str, int]
    #: Events, if the launch was asked for them.
    trace: Trace | None = None
    watched: Watched | None = field(default=None, repr=False)

    def writer(self, array: np.ndarray, index: int | tuple[int, ...]) -> Writer | None:
        """Who wrote an element of a watched array last (its first byte); None if nobody did."""
        if self.watched is None or not self.watched.holds(array):
            raise ValueError("the array was not watched: give it to the launch as watch=(array,)")
        return self.watched.writer(array, index if isinstance(index, tuple) else (index,))

    def first_difference(
        self, array: np.ndarray, expected: np.ndarray, *, rtol: float = 0, atol: float = 0
    ) -> Difference | None:
        """The first element of `array` that is not `expected`, with the instruction that wrote it if it was watched.

        Without tolerances the bits must be equal. With them ``|array - expected| <= atol + rtol * |expected|``, or
        both NaN. `expected` is converted to the dtype of `array`; ValueError if the shapes differ.
        """
        if array.shape != np.shape(expected):
            raise ValueError(f"the array has shape {array.shape}, expected is {np.shape(expected)}")
        want = np.ascontiguousarray(expected).astype(array.dtype, copy=False).reshape(array.shape)
        if rtol or atol:
            got64, want64 = array.astype(np.float64), want.astype(np.float64)
            with np.errstate(invalid="ignore"):
                close = np.abs(got64 - want64) <= atol + rtol * np.abs(want64)
            wrong = ~(close | (got64 == want64) | (np.isnan(got64) & np.isnan(want64)))
        else:
            bits = f"V{array.itemsize}" if array.itemsize not in (1, 2, 4, 8) else f"u{array.itemsize}"
            wrong = np.ascontiguousarray(array).view(bits) != want.view(bits)
        count = int(np.count_nonzero(wrong))
        if not count:
            return None
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), array.shape))
        watched = self.watched is not None and self.watched.holds(array)
        writer = self.watched.writer(array, index) if watched and self.watched else None
        return Difference(index, array[index], want[index], count, array.size, writer, watched)
