"""Shared-memory layouts of the MMA's operands."""

from __future__ import annotations

import math
from typing import Any

from ..isa import container_bits, dtype_name
from .digits import Digit, LogicalAxis, as_size
from .swizzle import swizzle_mode
from .tile import TileLayout

#: Widths that shared memory can hold though no MMA reads them.
_WIDE = {"float64": 64, "int64": 64, "uint64": 64}


def mma_shared_layout(dtype: Any, swizzle: int, shape: Any) -> TileLayout:
    """The layout of a (..., rows, cols) tile in shared memory for a matrix descriptor of mode `swizzle`.

    `dtype` is the container ("float16", "uint8" for FP6/FP4 codes in padded containers, "float4_e2m1fn" for
    packed FP4, ...); positions count its elements. With span = the elements of a swizzle row (16, 32, 64, 128
    bytes in modes 0..3), element (r, c) of tile t lies, before the permutation, at
    ``t*rows*cols + (c // span)*rows*span + r*span + c % span``; mode 0 with `cols` no multiple of 16 bytes is
    plain row-major. Mode 4 (32-bit containers only, MN-major) has the span of mode 3 and its own permutation.

    For a K-major operand (rows, cols) is (M or N, K), for an MN-major one (K, M or N).

    ValueError: unknown container or mode; a shape of fewer than two axes; `cols` no multiple of the span.
    Source: the document's descriptor table; design 3.2 for mode 4.
    """
    mode = swizzle_mode(swizzle)
    name = dtype_name(dtype)
    bits = _WIDE.get(name) or container_bits(name)
    if not isinstance(shape, (tuple, list)) or len(shape) < 2:
        raise ValueError(f"shape: got {shape!r}; expected (..., rows, cols)")
    *lead, rows, cols = (as_size(size, f"shape: axis {number}") for number, size in enumerate(shape))
    if swizzle == 4 and bits != 32:
        raise ValueError(
            f"swizzle: mode 4 is for 32-bit containers, but {name} has {bits} bits; use modes 0..3"
        )
    span = mode.row_bytes * 8 // bits
    if cols % span and swizzle != 0:
        raise ValueError(
            f"shape: got {cols} columns of {name}; mode {swizzle} needs a multiple of {span} "
            f"({mode.row_bytes} bytes)"
        )
    if cols % span:
        span = cols  # plain row-major
    axes = []
    for number, size in enumerate(lead):
        axes.append(_axis((size, rows * cols * math.prod(lead[number + 1 :]))))
    axes += [_axis((rows, span)), _axis((cols // span, rows * span), (span, 1))]
    return TileLayout(tuple(axes), {"m": 0}, (), mode.swizzle(bits))


def _axis(*digits: tuple[int, int]) -> LogicalAxis:
    made = tuple(Digit(extent, (("m", stride),)) for extent, stride in digits)
    return LogicalAxis(math.prod(extent for extent, _ in digits), made)
