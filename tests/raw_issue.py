"""One raw issue on the functional model, for tests: encoded words, the memories, and operands put into them.

The encodings are written out here from the PTX contract (numbers in brackets are its sections), so that nothing
of the package decides where an element lies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jax_tcgen05 import _core

SHARED_BYTES = 64 * 1024
A_BASE, B_BASE = 0, 32 * 1024
UNTOUCHED = 0xFFFFFFFF
SWIZZLE_CODES = (0, 6, 4, 2, 1)  # of the modes 0..4


def descriptor(start: int, ldo: int, sdo: int, swizzle: int = 0) -> int:
    """[5]"""
    return start >> 4 | ldo >> 4 << 16 | sdo >> 4 << 32 | 1 << 46 | SWIZZLE_CODES[swizzle] << 61


def idesc(M: int, N: int, d: int = 1, a: int = 0, b: int = 0, **bits: int) -> int:
    """[4.1]; bits: neg_a, neg_b, a_mn, b_mn, sat."""
    low = {"sat": 3, "neg_a": 13, "neg_b": 14, "a_mn": 15, "b_mn": 16}
    return (
        d << 4 | a << 7 | b << 10 | N // 8 << 17 | M // 16 << 24 | sum(v << low[k] for k, v in bits.items())
    )


@dataclass
class Machine:
    """The memories of a CTA (pair) at first all ones, and one issue on them."""

    ctas: int = 1
    shared: list[np.ndarray] = field(default_factory=list)
    tmem: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = [np.full(SHARED_BYTES, 0xFF, np.uint8) for _ in range(self.ctas)]
        self.tmem = [np.full((128, 512), UNTOUCHED, np.uint32) for _ in range(self.ctas)]

    def rows(self, base: int, rows: np.ndarray, cta: int = 0) -> int:
        """Rows of 32 bytes, K-major without swizzle; returns the descriptor."""
        sdo = 256
        for r, row in enumerate(np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), 32)):
            at = base + r % 8 * 16 + r // 8 * sdo
            self.shared[cta][at : at + 16] = row[:16]
            self.shared[cta][at + 128 : at + 144] = row[16:]
        return descriptor(base, 128, sdo)

    def issue(self, opcode: str, word: int, a: int, b: int, d: int = 0, **options: Any) -> None:
        _core.mma_execute(self.shared, self.tmem, opcode, word, a, b, d, **options)

    def footprint(
        self, opcode: str, word: int, a: int, b: int, d: int = 0, **options: Any
    ) -> dict[str, list]:
        return _core.mma_footprint(self.shared, self.tmem, opcode, word, a, b, d, **options)


F16 = "tcgen05.mma.cta_group::1.kind::f16"
F16_WS = "tcgen05.mma.ws.cta_group::1.kind::f16"
F16_PAIR = "tcgen05.mma.cta_group::2.kind::f16"


def small(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small integers as float16: every sum is exact."""
    return rng.integers(-4, 5, shape).astype(np.float16)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)


MXF8 = "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X"
#: K of one issue, 32 for the other kinds.
STEP_K = {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}


def scale_word(M: int, N: int, sfa_id: int, sfb_id: int, a: int = 0, b: int = 0, ue8m0: int = 1) -> int:
    """[4.2, 4.3]"""
    return sfb_id << 4 | a << 7 | b << 10 | N // 8 << 17 | ue8m0 << 23 | M // 128 << 27 | sfa_id << 29


def put_scales(
    tmem: np.ndarray, column: int, id_: int, scales: np.ndarray, quarters: range = range(4)
) -> None:
    """scales (rows, vec): row r in lane r % 32 of every quarter, column + r // 32, bytes id, id + 1, ..."""
    for r, row in enumerate(scales):
        for quarter in quarters:
            cell = tmem[32 * quarter + r % 32, column + r // 32 : column + r // 32 + 1].view(np.uint8)
            cell[id_ : id_ + len(row)] = row


def zero_mask(sc: tuple[int, ...], fs: tuple[int, ...], skip: int, use: int) -> int:
    word = 1 << 39 | skip << 40 | use << 48
    return word | sum(s << 8 * i for i, s in enumerate(sc)) | sum(f << 32 + i for i, f in enumerate(fs))


def padded(codes: np.ndarray, width: int) -> np.ndarray:
    """16 codes packed little-end first, padded to 16 bytes with ones."""
    out = np.full((len(codes), 2, 16), 0xFF, np.uint8)
    bits = codes[..., None] >> np.arange(width) & 1
    out[..., : 2 * width] = np.packbits(bits.reshape(len(codes), 2, -1), axis=-1, bitorder="little")
    return out.reshape(len(codes), 32)
