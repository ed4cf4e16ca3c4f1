"""What `tcgen05.mma` can be: containers, formats, kinds, opcodes, shapes, targets. Tables, no arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

# Element widths a layout can be built for: what one element occupies in shared memory or TMEM.
_CONTAINER_BITS = {
    "float32": 32,
    "int32": 32,
    "uint32": 32,
    "float16": 16,
    "bfloat16": 16,
    "int8": 8,
    "uint8": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float8_e8m0fnu": 8,
    "float4_e2m1fn": 4,
}


def dtype_name(dtype: Any) -> str:
    """The NumPy / ml_dtypes name of a dtype, given by name, as a dtype or as a scalar type."""
    if isinstance(dtype, str):
        return dtype
    try:
        return np.dtype(dtype).name
    except TypeError:
        raise TypeError(f"dtype: got {dtype!r}; expected a dtype or the name of one") from None


def container_bits(dtype: Any) -> int:
    """Bits of one element of a layout built for `dtype` (a name or a dtype); ValueError if it is no container."""
    name = dtype_name(dtype)
    bits = _CONTAINER_BITS.get(name)
    if bits is None:
        hint = (
            "FP6 codes lie in uint8 containers: use 'uint8'; " if name.startswith("float6_") else ""
        )
        raise ValueError(
            f"dtype: {name!r} is no container; {hint}allowed: {', '.join(_CONTAINER_BITS)}"
        )
    return bits
