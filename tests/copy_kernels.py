"""Small PTX kernels for the tests of copies, and a second model of what a tensor copy moves.

The model works byte by byte from the rules and tables of PTX ISA 5.5 (its swizzle tables are written out here),
so that it shares nothing with the executor.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jax_tcgen05 import vsm

HEADER = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""
REGISTERS = """
.reg .pred %p<8>;
.reg .b16 %h<16>;
.reg .b32 %r<64>;
.reg .b64 %rd<64>;
.reg .b128 %q<2>;
mov.u32 %r0, %tid.x;
mov.u32 %r1, smem;
setp.eq.u32 %p0, %r0, 0;
"""
POINTER, MAP, WORD = ".param .u64 {}", ".param .align 64 .b8 {}[128]", ".param .u32 {}"
UNTOUCHED = 0xEE
_labels = itertools.count()


def label() -> str:
    return f"$L{next(_labels)}"


@functools.cache
def _module(text: str) -> vsm.Module:
    return vsm.Module(text)


def module(parameters: Sequence[str], body: str) -> vsm.Module:
    """A module with the kernel `k`: `%r0` the thread, `%r1` the dynamic shared memory, `%p0` true in thread 0."""
    return _module(f"{HEADER}.visible .entry k({', '.join(parameters)})\n{{{REGISTERS}{body}\nret;\n}}\n")


def loop(size: int, body: str) -> str:
    """`body` for every fourth byte below `size`, at shared address `%r10`, offset `%r11` (64-bit: `%rd10`)."""
    begin, end = label(), label()
    return f"""
mov.u32 %r12, %ntid.x; shl.b32 %r12, %r12, 2; shl.b32 %r11, %r0, 2;
{begin}:
setp.ge.u32 %p1, %r11, {size};
@%p1 bra {end};
add.u32 %r10, %r1, %r11;
cvt.u64.u32 %rd10, %r11;
{body}
add.u32 %r11, %r11, %r12;
bra {begin};
{end}:
bar.sync 0;
fence.proxy.async.shared::cta;
"""


def fill(size: int, byte: int = UNTOUCHED) -> str:
    return loop(size, f"st.shared.u32 [%r10], {byte * 0x01010101};")


def read_in(parameter: str, size: int) -> str:
    return f"ld.param.u64 %rd11, [{parameter}];" + loop(
        size, "add.u64 %rd12, %rd11, %rd10; ld.global.u32 %r13, [%rd12]; st.shared.u32 [%r10], %r13;"
    )


def write_out(parameter: str, size: int) -> str:
    """Copies the first `size` bytes of shared memory to a buffer that has a part for every CTA."""
    return f"""
ld.param.u64 %rd11, [{parameter}];
mov.u32 %r14, %ctaid.x; mul.lo.u32 %r14, %r14, {size}; cvt.u64.u32 %rd13, %r14; add.u64 %rd11, %rd11, %rd13;
""" + loop(size, "ld.shared.u32 %r13, [%r10]; add.u64 %rd12, %rd11, %rd10; st.global.u32 [%rd12], %r13;")


def init_barrier(at: int, count: int = 1) -> str:
    return f"""
add.u32 %r2, %r1, {at};
@%p0 mbarrier.init.shared.b64 [%r2], {count};
fence.mbarrier_init.release.cluster;
bar.sync 0;
"""


def wait(register: str = "%r2", parity: int = 0) -> str:
    again = label()
    return f"""
{again}:
mbarrier.try_wait.parity.shared.b64 %p2, [{register}], {parity};
@!%p2 bra {again};
"""


CLUSTER_BARRIER = "barrier.cluster.arrive; barrier.cluster.wait;\n"


# ---- the second model ----

#: Element bits in global memory, and bytes in shared memory per 16 elements.
ELEMENTS = {
    "UINT8": (8, 16),
    "UINT16": (16, 32),
    "FLOAT16": (16, 32),
    "BFLOAT16": (16, 32),
    "UINT32": (32, 64),
    "INT32": (32, 64),
    "FLOAT32": (32, 64),
    "TFLOAT32": (32, 64),
    "UINT64": (64, 128),
    "FLOAT64": (64, 128),
    "16U4_ALIGN8B": (4, 8),
    "16U4_ALIGN16B": (4, 16),
    "16U6_ALIGN16B": (6, 16),
}
#: 16-byte chunks of each 128-byte line (PTX ISA 5.5.7), by CUtensorMapSwizzle.
_PAIRS = [
    [0, 1, 2, 3, 4, 5, 6, 7],
    [2, 3, 0, 1, 6, 7, 4, 5],
    [4, 5, 6, 7, 0, 1, 2, 3],
    [6, 7, 4, 5, 2, 3, 0, 1],
]
SWIZZLES = {
    0: [[0, 1, 2, 3, 4, 5, 6, 7]],
    1: [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]],
    2: [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 0, 3, 2, 5, 4, 7, 6],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [3, 2, 1, 0, 7, 6, 5, 4],
    ],
    3: [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 0, 3, 2, 5, 4, 7, 6],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [3, 2, 1, 0, 7, 6, 5, 4],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [5, 4, 7, 6, 1, 0, 3, 2],
        [6, 7, 4, 5, 2, 3, 0, 1],
        [7, 6, 5, 4, 3, 2, 1, 0],
    ],
    4: _PAIRS,
    5: _PAIRS,
    6: [[0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1, 2, 3]],
}
SPANS = {0: 0, 1: 32, 2: 64, 3: 128, 4: 128, 5: 128, 6: 128}


def swizzled(address: np.ndarray, swizzle: int) -> np.ndarray:
    table = np.array(SWIZZLES[swizzle])
    line, chunk, byte = address // 128, address // 16 % 8, address % 16
    if swizzle == 5:
        byte = np.where(line % 2, byte ^ 8, byte)
    return line * 128 + table[line % len(table), chunk] * 16 + byte


@dataclass(frozen=True)
class Image:
    """Where the bytes of a box lie: in the tensor's buffer (-1: outside the tensor) and in shared memory."""

    source: np.ndarray
    target: np.ndarray
    #: Bytes that an mbarrier is credited with, and that the box takes in shared memory.
    credit: int
    size: int

    def load(self, data: np.ndarray, size: int, fill: Sequence[int] = (0,)) -> np.ndarray:
        out = np.full(size, UNTOUCHED, np.uint8)
        pattern = np.resize(np.array(fill, np.uint8), self.source.shape)
        out[self.target] = np.where(self.source >= 0, data.reshape(-1).view(np.uint8)[self.source], pattern)
        return out


def row_image(t: vsm.TensorMap, rows: Sequence[Sequence[int] | None], column: int, length: int) -> Image:
    """Rows along dimension 0, each given by its coordinates in dimensions 1 and up (None: outside)."""
    bits, padded = ELEMENTS[t.dtype]
    row_bytes, start, limit = length * bits // 8, column * bits // 8, t.gdim[0] * bits // 8
    slot = 2 * bits  # bytes of 16 elements
    pitch = (
        max(row_bytes // slot * padded, SPANS[t.swizzle]) if bits < 8 else max(row_bytes, SPANS[t.swizzle])
    )
    k = np.arange(row_bytes)
    inside = (start + k >= 0) & (start + k < limit)
    shared = k // slot * padded + k % slot if bits < 8 else k
    source, target = [], []
    for i, row in enumerate(rows):
        ok = row is not None and all(0 <= c < n for c, n in zip(row, t.gdim[1:], strict=True))
        base = t.offset + sum(c * s for c, s in zip(row or (), t.gstride_bytes, strict=False))
        source.append(np.where(inside & ok, base + start + k, -1))
        target.append(swizzled(i * pitch + shared, t.swizzle))
    return Image(np.array(source), np.array(target), row_bytes * len(rows), pitch * len(rows))


def tile_image(t: vsm.TensorMap, at: Sequence[int]) -> Image:
    steps = t.estride or (1,) * len(t.gdim)
    if t.interleave:
        slice_bytes = 16 * t.interleave
        strides = (slice_bytes, *t.gstride_bytes)
        counts = [range(0, b, s) for b, s in zip(t.box, steps, strict=True)]
        source, target = [], []
        for i, step in enumerate(itertools.product(*reversed(counts))):
            position = [a + s for a, s in zip(at, reversed(step), strict=True)]
            ok = all(0 <= c < n for c, n in zip(position, t.gdim, strict=True))
            base = sum(c * s for c, s in zip(position, strides, strict=True))
            source.append(base + np.arange(slice_bytes) if ok else np.full(slice_bytes, -1))
            target.append(swizzled(i * slice_bytes + np.arange(slice_bytes), t.swizzle))
        size = slice_bytes * len(source)
        return Image(np.array(source), np.array(target), size, size)
    counts = [range(0, b, s) for b, s in zip(t.box[1:], steps[1:], strict=True)]
    rows = [
        [a + s for a, s in zip(at[1:], reversed(step), strict=True)]
        for step in itertools.product(*reversed(counts))
    ]
    return row_image(t, rows, at[0], t.box[0])


def coordinates(values: Sequence[int]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"
