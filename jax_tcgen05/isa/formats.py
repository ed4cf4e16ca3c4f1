"""Containers, element formats and scale formats (PTX ISA 9.7.16.2, contract sections 3.1, 4 and 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Format:
    """How one element of A or B is read.

    bits: width of its code. arrays: dtypes that an array of such codes may have, one code an entry.
    mn_major: whether it may be MN-major in shared memory (8, 16 and 32-bit elements, PTX table 51).
    """

    name: str
    bits: int
    arrays: tuple[str, ...]
    integer: bool = False

    @property
    def mn_major(self) -> bool:
        return self.bits >= 8

    def container(self, kind: str) -> str:
        """The container dtype of its layouts: uint8 for FP6/FP4 codes of the 8-bit kinds (section 6)."""
        if self.bits < 8 and kind not in PACKED_FP4_KINDS:
            return "uint8"
        return "float32" if self.name == "tf32" else self.name


PACKED_FP4_KINDS = ("mxf4", "mxf4nvf4")  # two codes a byte in shared memory, eight a word in TMEM

# `float8_e4m3fnuz` is absent: the hardware knows no such format.
FORMATS = {
    f.name: f
    for f in (
        Format("float16", 16, ("float16",)),
        Format("bfloat16", 16, ("bfloat16",)),
        Format("tf32", 32, ("float32",)),
        Format("float8_e4m3fn", 8, ("float8_e4m3fn",)),
        Format("float8_e5m2", 8, ("float8_e5m2",)),
        Format("float6_e2m3fn", 6, ("uint8",)),
        Format("float6_e3m2fn", 6, ("uint8",)),
        Format("float4_e2m1fn", 4, ("float4_e2m1fn", "uint8")),
        Format("int8", 8, ("int8",), integer=True),
        Format("uint8", 8, ("uint8",), integer=True),
    )
}

# Codes of the instruction descriptor that do not depend on the kind (bits 4-5, and bit 23).
D_CODES = {"float16": 0, "float32": 1, "int32": 2}
SCALE_CODES = {"float8_e4m3fn": 0, "float8_e8m0fnu": 1}  # UE4M3 is e4m3 without its sign


def span_text(values: Iterable[Any]) -> str:
    """The values as a message shows them: `8, 16, 24, 32..256 step 16`."""
    items = values if isinstance(values, range) else list(values)
    head = 0 if isinstance(items, range) else _run_start(items)
    if len(items) - head < 5:
        return ", ".join(str(v) for v in items)
    step = items[-1] - items[-2]
    run = f"{items[head]}..{items[-1]}" + (f" step {step}" if step != 1 else "")
    return ", ".join([str(v) for v in items[:head]] + [run])


def _run_start(items: Sequence[Any]) -> int:
    """Where the steady run of ints begins that ends the list; its length if there is none."""
    if len(items) < 2 or not all(isinstance(v, int) for v in items):
        return len(items)
    start = len(items) - 2
    while start and items[start] - items[start - 1] == items[-1] - items[-2]:
        start -= 1
    return start


class NotStatic(TypeError, ValueError):
    """A static argument is traced, or no int: wrong in type, and refused while tracing like any wrong value."""


def refusal(argument: str, given: Any, allowed: Iterable[Any] | str, rule: str = "") -> ValueError:
    """The error of every refusal: which argument, what was given, what is allowed, and by which rule."""
    text = allowed if isinstance(allowed, str) else span_text(allowed)
    return ValueError(
        f"{argument}: got {given!r}; allowed: {text or 'nothing'}" + (f" ({rule})" if rule else "")
    )


def dtype_name(dtype: Any) -> str:
    """The NumPy / ml_dtypes name of a dtype, given by name, as a dtype or as a scalar type."""
    if isinstance(dtype, str):
        return dtype
    try:
        return np.dtype(dtype).name
    except TypeError:
        raise TypeError(f"dtype: got {dtype!r}; expected a dtype or the name of one") from None


def container_bits(dtype: Any) -> int:
    """Bits of an element of a layout built for `dtype` (name or dtype); ValueError if it is no container."""
    name = dtype_name(dtype)
    bits = _CONTAINER_BITS.get(name)
    if bits is None:
        fp6 = name.startswith("float6_")
        raise refusal("dtype", name, _CONTAINER_BITS, "no container: use uint8" if fp6 else "no container")
    return bits


def format_name(argument: str, given: Any, allowed: Iterable[str], rule: str = "") -> str:
    """The name of a format given by name or dtype, which must be among `allowed`."""
    names = tuple(allowed)
    try:
        name = dtype_name(given)
    except TypeError:
        raise refusal(argument, given, names, rule) from None
    if name not in names:
        if name == "float32" and "tf32" in names:
            rule = f"{rule}; float32 arrays are read as 'tf32', which must be asked for"
        raise refusal(argument, name, names, rule)
    return name
