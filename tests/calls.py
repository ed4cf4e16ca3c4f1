"""Builders of `mma` calls for tests and benchmarks: logical arrays -> placed operands and options, by the public API.

A `Form` says which instruction is meant and how its operands are stored. `random_arrays` makes canonical arrays
for it, `place` stores them (what no element fills is all ones, which is NaN in most formats) and gives `Arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import ml_dtypes
import numpy as np
import slow_numerics

import jax_tcgen05 as tc

K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
FP4_KINDS = ("mxf4", "mxf4nvf4")
BITS = {
    "float16": 16,
    "bfloat16": 16,
    "tf32": 32,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    "float4_e2m1fn": 4,
    "int8": 8,
    "uint8": 8,
    "float32": 32,
    "int32": 32,
    "float8_e8m0fnu": 8,
}
#: Names of the second implementation's formats.
SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "tf32": "f32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2",
    "float4_e2m1fn": "e2m1",
}
DEFAULT_FORMAT = {
    "f16": "float16",
    "tf32": "tf32",
    "i8": "int8",
    "mxf4": "float4_e2m1fn",
    "mxf4nvf4": "float4_e2m1fn",
}


@dataclass(frozen=True)
class Form:
    """One instruction and the storage of its operands.

    a_swizzle None puts A into TMEM. scale: the suffix as written, "scale_vec::4X" or "block32"; "" leaves it
    out. skip: junk steps in front of the named operand (K steps; N tiles for d), so that its first repeat does
    not start the allocation. broadcast: operands whose batch axes are 1. banked: A of layout B with its bank
    axis. slab: D (and A in TMEM) of layout F in the upper 16 lanes of each quarter.
    """

    kind: str = "f16"
    M: int = 128
    N: int = 64
    a_format: str = ""
    b_format: str = ""
    d_format: str = ""
    group: int = 1
    ws: bool = False
    repeats: tuple[int, int, int] = (1, 1, 1)
    a_swizzle: int | None = 0
    b_swizzle: int = 0
    a_major: str = "k"
    b_major: str = "k"
    banked: bool = False
    slab: int = 0
    scale: str = ""
    scale_format: str = "float8_e8m0fnu"
    batch: tuple[int, ...] = ()
    broadcast: tuple[str, ...] = ()
    shared_sfb: bool = False
    skip: Mapping[str, int] = field(default_factory=dict, hash=False)
    packed_arrays: bool = False  # FP4 arrays as float4_e2m1fn, not as uint8 codes
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # neg_a, sat_d, ...

    @property
    def scaled(self) -> bool:
        return self.kind.startswith("mx")

    @property
    def opcode(self) -> str:
        text = f"tcgen05.mma{'.ws' if self.ws else ''}.cta_group::{self.group}.kind::{self.kind}"
        if self.scaled:
            text += ".block_scale" + (f".{self.scale}" if self.scale else "")
        return text

    @property
    def instruction_shape(self) -> tuple[int, int, int]:
        return self.M, self.N, K[self.kind]

    @property
    def rows(self) -> int:
        return self.M // self.group

    @property
    def banks(self) -> int:
        """Banks of A in TMEM; 1 without a bank axis."""
        if self.a_swizzle is not None or not (self.ws or self.banked):
            return 1
        return 128 // self.rows

    @property
    def scales(self) -> int:
        """Scale factors per row and K step."""
        if self.scale.startswith("scale_vec"):
            return int(self.scale[-2])
        return K[self.kind] // (16 if self.scale == "block16" else 32)

    @property
    def operands(self) -> tuple[str, ...]:
        return ("d", "a", "b", "sfa", "sfb") if self.scaled else ("d", "a", "b")

    def format(self, name: str) -> str:
        if name in ("sfa", "sfb"):
            return self.scale_format
        if name == "d":
            return self.d_format or ("int32" if self.kind == "i8" else "float32")
        given = self.a_format if name == "a" else self.b_format
        return given or DEFAULT_FORMAT.get(self.kind, "float8_e4m3fn")

    def dtype(self, name: str) -> np.dtype:
        """The dtype of the operand's array."""
        fmt = self.format(name)
        if fmt == "tf32":
            return np.dtype(np.float32)
        if BITS[fmt] < 8 and not (fmt == "float4_e2m1fn" and self.packed_arrays):
            return np.dtype(np.uint8)
        return np.dtype(fmt if fmt in ("int8", "uint8", "int32") else getattr(ml_dtypes, fmt, fmt))

    def container(self, name: str) -> str:
        fmt = self.format(name)
        if BITS[fmt] < 8 and self.kind not in FP4_KINDS:
            return "uint8"
        return "float32" if fmt == "tf32" else fmt

    def shape(self, name: str) -> tuple[int, ...]:
        """The canonical shape after the prefix."""
        mr, nr, kr = self.repeats
        k = K[self.kind]
        if name == "a":
            return (mr, kr, *((self.banks,) if self.banks > 1 else ()), self.rows, k)
        return {
            "d": (mr, nr, self.rows, self.N),
            "b": (nr, kr, self.N // self.group, k),
            "sfa": (mr, kr, self.rows, self.scales) if self.scaled else (),
            "sfb": (nr, kr, self.N, self.scales) if self.scaled else (),
        }[name]

    def prefix(self, name: str) -> tuple[int, ...]:
        batch = (1,) * len(self.batch) if name in self.broadcast else self.batch
        if self.group == 1:
            return batch
        return (1 if name == "sfb" and self.shared_sfb else 2, *batch)


@dataclass(frozen=True)
class Arguments:
    """The placed operands and options of one call."""

    form: Form
    operands: Mapping[str, tc.PlacedOperand]
    options: Mapping[str, Any]

    @property
    def positional(self) -> tuple[Any, ...]:
        return (self.form.opcode, *self.operands.values())

    def mma(self, **more: Any) -> tc.PlacedOperand:
        return tc.mma(*self.positional, **{**self.options, **more})

    def plan(self) -> tc.Plan:
        return tc.plan(*self.positional, **self.options)

    def reference(self, **more: Any) -> tc.PlacedOperand:
        """`reference.mma`, compiled as one function: much faster than operation by operation."""

        def call(*operands: tc.PlacedOperand) -> tc.PlacedOperand:
            return tc.reference.mma(self.form.opcode, *operands, **{**self.options, **more})

        return jax.jit(call)(*self.operands.values())

    @property
    def leaves(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(operand.leaf) for name, operand in self.operands.items()}


# Storing


def _ones(shape: tuple[int, ...], dtype: np.dtype, bits: int) -> np.ndarray:
    """Arrays whose every code is all ones."""
    unsigned = np.full(shape, (1 << min(bits, 8 * dtype.itemsize)) - 1, f"u{dtype.itemsize}")
    return unsigned.view(dtype)


def _padded(
    form: Form, name: str, array: np.ndarray, shape: tuple[int, ...], at: tuple[slice, ...]
) -> np.ndarray:
    """`array` inside an array of ones with `shape` after the prefix."""
    rank = array.ndim - len(shape)
    out = _ones((*array.shape[:rank], *shape), array.dtype, BITS[form.format(name)])
    out[(..., *at)] = array
    return out


def _place_shared(form: Form, name: str, array: np.ndarray) -> tuple[tc.PlacedOperand, tuple[int, int, int]]:
    """A or B in shared memory, repeats packed; (operand, descriptor)."""
    mode, major = (form.a_swizzle, form.a_major) if name == "a" else (form.b_swizzle, form.b_major)
    assert mode is not None
    repeat, steps, rows, k = form.shape(name)
    container, skip = form.container(name), form.skip.get(name, 0)
    bits = 4 if container == "float4_e2m1fn" else BITS[container]
    row_bytes = 128 if mode == 4 else 16 << mode
    span = row_bytes * 8 // bits
    if major == "k":
        columns = -(-(skip + steps) * k // span) * span
        flat = np.moveaxis(array, -2, -3).reshape(*array.shape[:-4], repeat * rows, steps * k)
        at = (slice(None), slice(skip * k, (skip + steps) * k))
        leaf = _padded(form, name, flat, (repeat * rows, columns), at)
        layout = tc.mma_shared_layout(container, mode, (repeat * rows, columns))
        placed = tc.shared(leaf, layout).rearrange("(r m) (s k) -> r s m k", m=rows, k=k)[
            :, skip : skip + steps
        ]
        return placed, (16 * repeat * rows, 128, 0) if mode == 0 else (16, 8 * row_bytes, mode)
    depth = (skip + steps) * k
    flat = np.moveaxis(array, (-3, -1), (-4, -3)).reshape(*array.shape[:-4], steps * k, repeat * rows)
    leaf = _padded(form, name, flat, (depth, repeat * rows), (slice(skip * k, None), slice(None)))
    layout = tc.mma_shared_layout(container, mode, leaf.shape[-2:])
    placed = tc.shared(leaf, layout).rearrange("(s k) (r m) -> r s m k", m=rows, k=k)[:, skip:]
    if mode == 0:
        return placed, (128, 16 * depth, 0)
    return placed, (row_bytes * depth, 512 if mode == 4 else 8 * row_bytes, mode)


def _place_tmem(form: Form, name: str, array: np.ndarray) -> tc.PlacedOperand:
    """D or A in TMEM; the second repeat axis may start after junk."""
    skip = form.skip.get(name, 0)
    shape = array.shape[len(form.prefix(name)) :]
    whole = (shape[0], shape[1] + skip, *shape[2:])
    leaf = _padded(
        form, name, array, whole, (slice(None), slice(skip, None), *(slice(None),) * len(shape[2:]))
    )
    container = form.container(name)
    if form.slab:
        assert whole[:2] == (1, 1) and form.kind == "tf32"
        layout = tc.tmem_datapath_layout("F", 64, shape[-1], sub_slab=1)
        return tc.tmem(leaf.reshape(*form.prefix(name), *shape[2:]), layout).view(*shape)
    layout = tc.tmem_mma_operand_layout(
        name.upper(), whole, container, M=form.M, cta_group=form.group, ws=form.ws
    )
    return tc.tmem(leaf, layout)[:, skip:]


def _place_scales(form: Form, name: str, array: np.ndarray) -> tc.PlacedOperand:
    skip = form.skip.get(name, 0)
    repeat, steps, rows, vec = form.shape(name)
    everything = slice(None)
    leaf = _padded(
        form,
        name,
        array,
        (repeat, skip + steps, rows, vec),
        (everything, slice(skip, None), everything, everything),
    )
    layout = tc.scale_factor_layout(leaf.shape[-4:], form.scale_format)
    return tc.tmem(leaf, layout)[:, skip:]


def place(form: Form, arrays: Mapping[str, np.ndarray], **options: Any) -> Arguments:
    """Places canonical arrays (prefix and canonical shape) and collects the options of the call."""
    operands: dict[str, tc.PlacedOperand] = {}
    collected: dict[str, Any] = {"instruction_shape": form.instruction_shape}
    for name in form.operands:
        array = arrays[name]
        if name == "b" or (name == "a" and form.a_swizzle is not None):
            operands[name], collected[f"{name}_descriptor"] = _place_shared(form, name, array)
            collected[f"{name}_major"] = form.a_major if name == "a" else form.b_major
        elif name in ("sfa", "sfb"):
            operands[name] = _place_scales(form, name, array)
        else:
            operands[name] = _place_tmem(form, name, array)
    for name in ("a", "b"):
        if form.dtype(name).name != form.format(name):
            collected[f"{name}_format"] = form.format(name)
    return Arguments(form, operands, {**collected, **form.options, **options})


# Data


def _float_codes(rng: np.random.Generator, fmt: str, shape: tuple[int, ...]) -> np.ndarray:
    """Codes with exponents near the bias, so that all terms of a sum matter; one in a hundred is any code."""
    short = slow_numerics.FORMATS[SHORT[fmt]]
    bits = 1 + short.exponent + short.fraction
    raw = rng.integers(0, 1 << bits, shape, dtype=np.uint64)
    if short.exponent < 4:
        return raw
    near = (short.bias + rng.integers(-4, 5, shape)).astype(np.uint64) << np.uint64(short.fraction)
    sign_and_fraction = raw & np.uint64((1 << (bits - 1)) | ((1 << short.fraction) - 1))
    return np.where(rng.random(shape) < 0.01, raw, sign_and_fraction | near)


def random_codes(
    rng: np.random.Generator, fmt: str, shape: tuple[int, ...], style: str = "mixed"
) -> np.ndarray:
    """Unsigned codes of a format. style: "mixed", "raw" (all bit patterns) or "small" (integers -2..2, scales 1, 2)."""
    bits = BITS[fmt]
    unsigned = f"u{max(1, bits // 8)}"
    if style == "small":
        if fmt == "float8_e8m0fnu":
            return rng.integers(127, 129, shape).astype(np.uint8)
        values = rng.integers(-2, 3, shape)
        if fmt in ("uint8", "int8", "int32"):
            return (values + 2 if fmt == "uint8" else values).astype(fmt).view(unsigned)
        dtype = np.float32 if fmt == "tf32" else getattr(ml_dtypes, fmt, fmt)
        return values.astype(dtype).view(unsigned)
    if style == "raw" or fmt not in SHORT:
        if style == "mixed" and fmt == "float8_e8m0fnu":
            return rng.integers(120, 136, shape).astype(np.uint8)
        return rng.integers(0, 1 << bits, shape, dtype=np.uint64).astype(unsigned)
    return _float_codes(rng, fmt, shape).astype(unsigned)


def random_arrays(form: Form, seed: int = 0, style: str = "mixed") -> dict[str, np.ndarray]:
    """Canonical arrays of every operand, D (junk or an addend) included."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name in form.operands:
        shape = (*form.prefix(name), *form.shape(name))
        arrays[name] = random_codes(rng, form.format(name), shape, style).view(form.dtype(name))
        if style == "small" and name in ("sfa", "sfb") and form.scale_format == "float8_e4m3fn":
            arrays[name] = np.abs(rng.integers(1, 3, shape)).astype(form.dtype(name))
    return arrays


def multiply_adds(form: Form) -> int:
    """Multiply-adds of one call."""
    return math.prod((*form.batch, *form.repeats, form.M, form.N, K[form.kind]))
