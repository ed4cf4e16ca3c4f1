"""The same call in plain `jax.numpy`, with ordinary float32 (or float64) arithmetic.

Independent of the model: nothing here knows descriptors or the tensor core's rounding. Differentiation of `mma`
uses the same sums of products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from . import isa
from .contract import Call, make_plan, read_call
from .operands import PlacedOperand


def mma(*args: Any, compute_dtype: Any = np.float32, **options: Any) -> PlacedOperand:
    """`jax_tcgen05.mma` with the same arguments, checks and result, computed by `jax.numpy`.

    Products are summed in `compute_dtype`, float32 or (with ``jax_enable_x64``) float64, in no particular order;
    integers are exact. The result differs from `mma` by rounding only, never for exactly representable sums.
    """
    call, arrays = read_call(*args, **options)
    make_plan(call)
    d: PlacedOperand = args[1] if len(args) > 1 else options["d"]
    return d.with_leaf(evaluate(call, arrays, compute_dtype))


def evaluate(call: Call, arrays: Sequence[Any], compute_dtype: Any = np.float32) -> jax.Array:
    """The leaf of D after the call; `arrays` in the primitive's order."""
    dtype = np.dtype(np.int32) if call.opcode.kind == "i8" else np.dtype(compute_dtype)
    a, b = (_factor(call, arrays, name, _decoded(call, arrays, name, dtype)) for name in ("a", "b"))
    current = _gather(call, "d", arrays[0])
    if call.sat_d:
        result = _saturating_sum(call, arrays, current, a, b)
    else:
        result = _added(call, arrays, current.astype(dtype), _product(call, a, b))
    return _written(call, arrays, arrays[0], current, result.astype(current.dtype))


def tangent(call: Call, arrays: Sequence[Any], dd: Any, da: Any, db: Any) -> jax.Array:
    """The tangent of D's leaf for tangents of the leaves of D, A and B (None is zero); linear in them."""
    f32 = np.dtype(np.float32)
    a, b = (_factor(call, arrays, name, _decoded(call, arrays, name, f32)) for name in ("a", "b"))
    dd = jnp.zeros(arrays[0].shape, arrays[0].dtype) if dd is None else dd
    current = _gather(call, "d", dd)
    shape = (*current.shape[:-4], *call.spec("d").view.shape)
    product = jnp.zeros(shape, f32)
    if da is not None:
        product += _product(call, _factor(call, arrays, "a", _gather(call, "a", da).astype(f32)), b)
    if db is not None:
        product += _product(call, a, _factor(call, arrays, "b", _gather(call, "b", db).astype(f32)))
    result = _added(call, arrays, current.astype(f32), product)
    return _written(call, arrays, dd, current, result.astype(current.dtype))


def _gather(call: Call, name: str, leaf: Any) -> jax.Array:
    """The canonical array behind a leaf: (execution group or 1, batch..., repeats, atom)."""
    array = call.spec(name).place(leaf).array
    return array if call.group_axes else array[None]


def _scatter(operand: PlacedOperand, values: jax.Array) -> jax.Array:
    """The operand's leaf with the viewed part replaced by `values`, of the viewed shape."""
    shape, own = operand.leaf.shape, operand.placement.shape
    prefix, count = operand.prefix, math.prod(own)
    index = operand.leaf_index().ravel()
    values = values.reshape(*prefix, index.size)
    if index.size < count:
        flat = operand.leaf.reshape(*prefix, count).at[..., index].set(values)
    elif np.array_equal(index, np.arange(count)):
        flat = values
    else:
        flat = values[..., np.argsort(index)]
    return flat.reshape(shape)


def _decoded(call: Call, arrays: Sequence[Any], name: str, dtype: np.dtype) -> jax.Array:
    """The numbers that operand A or B holds."""
    array = _gather(call, name, arrays[call.operands.index(name)])
    fmt = call.a_format if name == "a" else call.b_format
    if fmt == "tf32":
        array = _cut_to_tf32(array)
    elif array.dtype == jnp.uint8 and not isa.FORMATS[fmt].integer:
        codes = np.arange(1 << isa.FORMATS[fmt].bits, dtype=np.uint8)
        table = codes.view(getattr(ml_dtypes, fmt)).astype(np.float32)
        array = jnp.asarray(table)[array & np.uint8(len(codes) - 1)]
    return array.astype(dtype)


@jax.custom_jvp
def _cut_to_tf32(array: jax.Array) -> jax.Array:
    """The upper 19 bits of each float32 word. Differentiates like the other formats' rounding: as the identity."""
    word = lax.bitcast_convert_type(array, jnp.uint32) & np.uint32(0xFFFFE000)
    return lax.bitcast_convert_type(word, jnp.float32)


_cut_to_tf32.defjvps(lambda tangent, out, array: tangent)


def _factor(call: Call, arrays: Sequence[Any], name: str, values: jax.Array) -> jax.Array:
    """A or B as it enters the product: negated, scaled, columns zeroed; B with its rows of both CTAs, N in all."""
    if name == "b" and call.group_axes:
        values = jnp.concatenate([values[:1], values[1:]], axis=-2)
    if call.neg_a if name == "a" else call.neg_b:
        values = -values
    if call.opcode.block_scale:
        scale = _gather(call, f"sf{name}", arrays[call.operands.index(f"sf{name}")])
        scale = jnp.abs(scale.astype(values.dtype))  # the sign bit of UE4M3 is ignored
        if name == "a" and _banks(call) > 1:
            scale = scale[..., None, :, :]  # every bank holds the same rows
        vec, k = scale.shape[-1], values.shape[-1]
        values = values.reshape(*values.shape[:-1], vec, k // vec) * scale[..., None]
        values = values.reshape(*values.shape[:-2], k)
    if name == "b" and call.opcode.ws and call.masked:
        zeroed = _zeroed_columns(call, arrays[-1])[None, ..., None, None, :, None]
        values = jnp.where(zeroed, jnp.zeros_like(values), values)
    return values


def _banks(call: Call) -> int:
    """Lane banks that a banked A in TMEM has; each feeds its own range of N (ptx_contract 7.2)."""
    shape = call.spec("a").view.shape
    return shape[2] if len(shape) == 5 else 1


def _steps(call: Call, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A and B with the axes (..., m_repeat or 1, 1 or n_repeat, k_repeat, bank, rows, K)."""
    banks = _banks(call)
    if banks == 1:
        a = a[..., None, :, :]
    b = b.reshape(*b.shape[:-2], banks, b.shape[-2] // banks, b.shape[-1])
    return a[..., :, None, :, :, :, :], b[..., None, :, :, :, :, :]


def _merge_banks(product: jax.Array) -> jax.Array:
    """(..., bank, rows, N/banks) -> (..., rows, N)."""
    product = jnp.swapaxes(product, -3, -2)
    return product.reshape(*product.shape[:-2], product.shape[-2] * product.shape[-1])


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, jnp.swapaxes(b, -1, -2), precision="highest", preferred_element_type=a.dtype)


def _product(call: Call, a: jax.Array, b: jax.Array) -> jax.Array:
    """Sum over all K steps of A times B transposed, with D's canonical shape."""

    def joined(
        x: jax.Array,
    ) -> jax.Array:  # (..., k_repeat, bank, rows, K) -> (..., bank, rows, k_repeat * K)
        x = jnp.moveaxis(x, -4, -2)
        return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])

    left, right = _steps(call, a, b)
    return _merge_banks(_dot(joined(left), joined(right)))


def _saturating_sum(
    call: Call, arrays: Sequence[Any], current: jax.Array, a: jax.Array, b: jax.Array
) -> jax.Array:
    """i8 with sat_d: every issue clamps its exact total to the int32 range."""
    steps = _merge_banks(_dot(*_steps(call, a, b)))
    total = jnp.broadcast_to(
        jnp.where(_switch(call, arrays, "accum"), current, 0),
        jnp.broadcast_shapes(current.shape, steps.shape[:-3] + steps.shape[-2:]),
    )

    def add(total: jax.Array, step: jax.Array) -> tuple[jax.Array, None]:
        wrapped = total + step
        limit = jnp.where(total < 0, np.int32(-(2**31)), np.int32(2**31 - 1))
        return jnp.where(((total ^ wrapped) & (step ^ wrapped)) < 0, limit, wrapped), None

    return lax.scan(
        add,
        total,
        jnp.moveaxis(jnp.broadcast_to(steps, (*total.shape[:-2], steps.shape[-3], *total.shape[-2:])), -3, 0),
    )[0]


def _switch(call: Call, arrays: Sequence[Any], name: str) -> jax.Array:
    """accum or pred, broadcast against D's canonical array."""
    value = arrays[len(call.operands) + ("accum", "pred").index(name)]
    return value[None, ..., None, None, None, None]


def _added(call: Call, arrays: Sequence[Any], current: jax.Array, product: jax.Array) -> jax.Array:
    return jnp.where(_switch(call, arrays, "accum"), current + product, product)


def _written(
    call: Call, arrays: Sequence[Any], leaf: Any, current: jax.Array, result: jax.Array
) -> jax.Array:
    """D's leaf with the result where the instruction writes: not with pred false, not in masked lanes."""
    written = _switch(call, arrays, "pred")
    if call.masked and not call.opcode.ws:
        written = written & ~_masked_lanes(call, arrays[-1])
    new = jnp.where(written, result, current)
    return _scatter(call.spec("d").place(leaf), new if call.group_axes else new[0])


def _masked_lanes(call: Call, mask: jax.Array) -> jax.Array:
    """disable_output_lane per element of D: bit l % 32 of word l // 32 is lane l; words 4-7 are the odd CTA (OQ9)."""
    spec = call.spec("d")
    lanes = np.broadcast_to(spec.view.image()["TLane"], spec.view.shape)
    words = jnp.moveaxis(mask.reshape(*mask.shape[:-1], call.opcode.cta_group, 4), -2, 0)
    return (words[..., lanes // 32] >> (lanes % 32).astype(np.uint32) & 1).astype(bool)


def _zeroed_columns(call: Call, mask: jax.Array) -> jax.Array:
    """zero_column_mask -> bool (batch..., N): which columns of B read as zero (ptx_contract 9)."""
    m, n, _ = call.instruction_shape
    banks = max(1, 128 // m)
    low, high = mask[..., 0, None], mask[..., 1, None]
    column = np.arange(n, dtype=np.uint32)
    bank, inside = column // (n // banks), column % (n // banks)
    start = low >> (8 * bank) & 0xFF
    first = high >> bank & 1
    skip, use = (high >> 8 & 0xFF) + 1, (high >> 16 & 0xFF) + 1
    phase = (inside + start) % (skip + use)
    zeroed = jnp.where(first == 1, phase < skip, phase >= use)
    return zeroed & (high >> 7 & 1 == 1)
