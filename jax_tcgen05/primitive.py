"""The JAX primitive: abstract evaluation, lowering to the FFI custom call, batching, differentiation.

`mma_p` takes the leaf arrays in the order d, a, b[, sfa, sfb], accum, pred[, mask] and the static `call`
(`contract.Call`). Each leaf is (execution group if cta_group::2, batch axes..., axes of its placement).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import reference
from .contract import Call, make_plan
from .native import TARGET

EXECUTORS = ("model", "vsm")


CHECKS = ("normal", "strict")


def _checked(argument: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{argument}: got {value!r}; allowed: {', '.join(map(repr, allowed))}")
    return str(value)


# A jit-cache-sensitive context: a function traced under one executor is traced anew under the other.
_executor = jax.make_user_context(None)


def executor(name: str, *, check: str = "normal") -> Any:
    """Context manager: which executor runs `mma` on the CPU, "model" or "vsm" (ValueError otherwise).

    `check` is "normal" or, with "vsm", "strict": the virtual SM then also reports what hardware would not, such as
    a missing fence. The default executor is the environment variable ``JAX_TCGEN05_EXECUTOR``, else "model". It is part
    of the primitive's parameters, and so of the jit cache key. Other platforms have one executor and ignore it.
    """
    _checked("executor", name, EXECUTORS)
    _checked("check", check, CHECKS if name == "vsm" else CHECKS[:1])
    return _executor(name if check == "normal" else f"{name}-{check}")


def current_executor() -> str:
    """The executor that a call traced now will use on the CPU, as the custom call's attribute spells it."""
    chosen: str | None = _executor.value
    return chosen or _checked(
        "JAX_TCGEN05_EXECUTOR", os.environ.get("JAX_TCGEN05_EXECUTOR", "model"), EXECUTORS
    )


mma_p = Primitive("tcgen05_mma")


def mma_bind(arrays: Sequence[Any], call: Call) -> jax.Array:
    """Binds the primitive; returns the leaf of D."""
    return mma_p.bind(*_varying_alike(arrays), call=call, executor=current_executor())


def _varying_alike(arrays: Sequence[Any]) -> list[Any]:
    """Inside `shard_map` operands that are the same on all devices join those that differ; AD sums them up again."""
    varying = [_varying_axes(array) for array in arrays]
    union = frozenset().union(*varying)
    return [
        lax.pcast(array, tuple(sorted(union - own, key=str)), to="varying") if own != union else array
        for array, own in zip(arrays, varying, strict=True)
    ]


def _varying_axes(array: Any) -> frozenset[Any]:
    """The mesh axes of `shard_map` along which the array differs; JAX 0.9 and 0.10 spell it differently."""
    aval: Any = jax.typeof(array)
    return frozenset(aval.mat.varying if hasattr(aval, "mat") else aval.vma)


@partial(jax.jit, static_argnames=("call", "executor"))
def _run_eagerly(*arrays: jax.Array, call: Call, executor: str) -> jax.Array:
    return mma_p.bind(*arrays, call=call, executor=executor)


mma_p.def_impl(_run_eagerly)


@mma_p.def_abstract_eval
def _abstract_eval(d: Any, *others: Any, call: Call, executor: str) -> Any:
    make_plan(call)
    call.check_arrays((d, *others))
    return d.update(weak_type=False)


def _codes(array: jax.Array) -> jax.Array:
    """FP4 leaves as one uint8 code per element: how a backend packs sub-byte arrays is its own affair."""
    if array.dtype == jnp.float4_e2m1fn:
        return lax.bitcast_convert_type(array, jnp.uint4).astype(jnp.uint8)
    return array


def _custom_call(*arrays: jax.Array, call: Call, executor: str) -> jax.Array:
    d = arrays[0]
    foreign = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(d.shape, d.dtype), input_output_aliases={0: 0})
    return foreign(*map(_codes, arrays), **make_plan(call).attributes(), executor=executor)


mlir.register_lowering(mma_p, mlir.lower_fun(_custom_call, multiple_results=False))


def _batch(args: Sequence[Any], dims: Sequence[Any], *, call: Call, executor: str) -> tuple[Any, int]:
    """The mapped axis becomes the first batch axis; unmapped operands get an axis of size 1 and broadcast."""
    (size,) = {x.shape[dim] for x, dim in zip(args, dims, strict=True) if dim is not None}
    group_axes = call.opcode.cta_group - 1
    batched = []
    for index, (x, dim) in enumerate(zip(args, dims, strict=True)):
        first_batch_axis = group_axes if index < len(call.operands) else 0
        if dim is None:
            batched.append(jnp.expand_dims(x, first_batch_axis))
        else:
            batched.append(jnp.moveaxis(x, dim, first_batch_axis))
    d = batched[0]
    batched[0] = jnp.broadcast_to(d, (*d.shape[:group_axes], size, *d.shape[group_axes + 1 :]))
    return mma_p.bind(*batched, call=call, executor=executor), group_axes


batching.primitive_batchers[mma_p] = _batch


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call, executor: str) -> tuple[Any, Any]:
    """D is linear in D, A and B: the tangent is the reference's sum of products, in float32."""
    out = mma_p.bind(*primals, call=call, executor=executor)
    given = {
        name: None if isinstance(tangent, ad.Zero) else tangent
        for name, tangent in zip(call.operands, tangents, strict=False)
    }
    for name in ("sfa", "sfb"):
        if given.get(name) is not None:
            raise TypeError(f"mma: {name} is not differentiable; wrap it in jax.lax.stop_gradient")
    return out, reference.tangent(call, primals, given["d"], given["a"], given["b"])


ad.primitive_jvps[mma_p] = _jvp


def _transpose(cotangent: Any, *primals: Any, call: Call, executor: str) -> list[Any]:
    """`jax.linear_transpose`: of D with A, or with B, whose sum of products is linear in them."""
    linear = [ad.is_undefined_primal(x) for x in primals]
    names = [name for name, asked in zip(call.operands, linear, strict=False) if asked]
    if any(linear[3:]) or {"a", "b"} <= set(names):
        raise TypeError(f"mma: not linear in {', '.join(names)} at once; it is in d with a, or in d with b")
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(x.aval) if asked else None for x, asked in zip(primals, linear, strict=True)]
    avals = {name: primals[call.operands.index(name)].aval for name in names}
    arrays = [jnp.zeros(x.aval.shape, x.aval.dtype) if ad.is_undefined_primal(x) else x for x in primals]

    def forward(tangents: dict[str, Any]) -> jax.Array:
        return reference.tangent(call, arrays, *map(tangents.get, ("d", "a", "b")))

    (found,) = jax.linear_transpose(forward, avals)(cotangent)
    return [found.get(name) for name in call.operands] + [None] * (len(primals) - len(call.operands))


ad.primitive_transposes[mma_p] = _transpose
