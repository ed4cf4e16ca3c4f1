"""Calls of the custom call's target with forged attributes and buffers; run as a script, in a process of its own.

`python forged_calls.py cases` or `python forged_calls.py mutate BASE` prints a JSON object: name of the forgery ->
[outcome, text], where the outcome is "ok" or the status code of the XLA error. A crash ends the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from base_calls import Call, leaves, legal_call

import jax_tcgen05 as tc

TARGET = "jax_tcgen05_mma"
BASES: dict[str, Call] = {
    "dense": legal_call(N=16, repeats=(1, 2, 2)),
    "pair": legal_call(M=256, N=32, group=2, a_swizzle=None),
    "scaled": legal_call("mxf4", N=8, repeats=(1, 1, 2)),
}
Attributes = dict[str, Any]


def genuine(call: Call) -> tuple[Attributes, list[Any]]:
    """The attributes and arguments that `mma` itself would pass."""
    plan = tc.plan(**call)
    arrays = list(leaves(call).values())
    arrays = [jnp.zeros(x.shape, jnp.uint8) if x.dtype == jnp.float4_e2m1fn else x for x in arrays]
    batch = call["d"].prefix[plan.opcode.cta_group - 1 :]
    flag = jnp.ones((1,) * len(batch), bool)
    return plan.attributes() | {"executor": "model"}, [*arrays, flag, flag]


def invoke(attributes: Attributes, arrays: list[Any], result: Any = None) -> np.ndarray:
    """The custom call itself."""
    alias = {0: 0} if result is None and arrays else None
    result = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype) if result is None else result
    foreign = jax.ffi.ffi_call(TARGET, result, input_output_aliases=alias)
    return jax.tree.map(np.asarray, jax.jit(lambda *x: foreign(*x, **attributes))(*arrays))


def outcome(*args: Any) -> tuple[str, str]:
    try:
        invoke(*args)
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        return text.split(":")[0], text
    return "ok", ""


def put(values: Any, index: int, value: int) -> np.ndarray:
    out = np.array(values)
    out[index] = value
    return out


def as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def cases() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """(name, arguments of `invoke`); the expected words stand in the test."""
    good, arrays = genuine(BASES["dense"])
    d, a, b, accum, pred = arrays
    scaled, with_scales = genuine(BASES["scaled"])
    yield "genuine", (good, arrays)
    for name in good:
        yield f"{name} missing", ({k: v for k, v in good.items() if k != name}, arrays)
        yield f"{name} as a float", (good | {name: 0.5}, arrays)
        other = "no" if not isinstance(good[name], str) else np.int64(3)
        yield f"{name} of another type", (good | {name: other}, arrays)
        if isinstance(good[name], np.ndarray):
            yield f"{name} of int32", (good | {name: good[name].astype(np.int32)}, arrays)
            yield f"{name} too long", (good | {name: np.append(good[name], 1)}, arrays)
            if good[name].size:
                yield f"{name} too short", (good | {name: good[name][:-1]}, arrays)
                yield f"{name} empty", (good | {name: np.array([], np.int64)}, arrays)
    for text in (
        "",
        "tcgen05.mma",
        "wgmma.mma_async",
        str(good["opcode"]) + ".sp",
        "tcgen05.mma.cta_group::1.kind::f16.ashift",
        "tcgen05.mma.cta_group::3.kind::f16",
        "x" * 100_000,
        "tcgen05.mma.cta_group::1.kind::mxf4.block_scale",
        "tcgen05.mma.cta_group::2.kind::f16",
    ):
        yield f"opcode {text[:60]}", (good | {"opcode": text}, arrays)
    yield "executor gpu", (good | {"executor": "gpu"}, arrays)
    for number in (0, -1, 1 << 40, 1 << 62):
        yield f"repeats {number}", (good | {"repeats": put(good["repeats"], 2, number)}, arrays)
    yield "repeats whose product overflows", (good | {"repeats": np.array([1 << 24] * 3)}, arrays)
    first, second = (int(start) for start in good["a_starts"])
    for name, number in {
        "at the end": first | 0x3FFF,
        "with a far stride": first | 0x3FFF << 32,
        "with swizzle code 7": first | 7 << 61,
        "with a base offset": first | 2 << 61 | 1 << 49,
    }.items():
        yield f"a_starts {name}", (good | {"a_starts": put([first, second], 0, as_signed(number))}, arrays)
    yield "d_starts in lane 1", (good | {"d_starts": put(good["d_starts"], 0, 1 << 16)}, arrays)
    yield "d_starts past TMEM", (good | {"d_starts": put(good["d_starts"], 1, 511)}, arrays)
    yield "idesc 0", (good | {"idesc": np.int64(0)}, arrays)
    yield "idesc of all ones", (good | {"idesc": np.int64(0xFFFFFFFF)}, arrays)
    yield "idesc N=256", (good | {"idesc": np.int64(int(good["idesc"]) & ~(0x3F << 17) | 32 << 17)}, arrays)
    # Buffers
    yield "no arguments", (good, [], jax.ShapeDtypeStruct(d.shape, d.dtype))
    yield "without pred", (good, arrays[:-1])
    yield "an argument more", (good, [*arrays, jnp.zeros(4, jnp.uint32), pred])
    yield "mask of 3 words", (good, [*arrays, jnp.zeros(3, jnp.uint32)])
    yield "mask of bytes", (good, [*arrays, jnp.zeros(4, jnp.uint8)])
    yield "a with an axis more", (good, [d, a[None], b, accum, pred])
    yield "a with an axis less", (good, [d, a[0], b, accum, pred])
    yield "a shorter", (good, [d, a[:64], b, accum, pred])
    yield "b empty", (good, [d, a, b[:0], accum, pred])
    yield "b of float32", (good, [d, a, b.astype(jnp.float32), accum, pred])
    yield "d of float16", (good, [d.astype(jnp.float16), a, b, accum, pred])
    yield "d with a batch", (good, [d[None], a, b, accum, pred])
    yield "d scalar", (good, [jnp.zeros(()), a, b, accum, pred])
    yield "accum of int32", (good, [d, a, b, jnp.ones((), jnp.int32), pred])
    yield "pred of a batch", (good, [d, a, b, accum, jnp.ones(2, bool)])
    yield "result of another shape", (good, arrays, jax.ShapeDtypeStruct((1, 2, 64, 16), d.dtype))
    yield "result of another dtype", (good, arrays, jax.ShapeDtypeStruct(d.shape, jnp.float16))
    yield "two results", (good, arrays, [jax.ShapeDtypeStruct(d.shape, d.dtype)] * 2)
    packed = jnp.zeros(with_scales[1].shape, jnp.float4_e2m1fn)
    yield "packed codes", (scaled, [with_scales[0], packed, *with_scales[2:]])
    yield "scales left out", (scaled, [*with_scales[:3], *with_scales[5:]])
    yield "scale ids of a dense call", (good | {"sfa_starts": scaled["sfa_starts"]}, arrays)
    yield "scale places of a dense call", (good | {"sfb_place": scaled["sfb_place"]}, arrays)
    yield "places of another call", (good | {"b_place": scaled["b_place"]}, arrays)
    yield (
        "sfa_starts with id 1",
        (
            scaled | {"sfa_starts": put(scaled["sfa_starts"], 0, 1 << 30 | int(scaled["sfa_starts"][0]))},
            with_scales,
        ),
    )
    yield "genuine again", (good, arrays)


VALUES = (-1, 1 << 20, (1 << 63) - 1)


def mutations(base: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every number of every attribute replaced by each of a few values."""
    good, arrays = genuine(BASES[base])
    for name, value in good.items():
        if isinstance(value, str):
            continue
        numbers = np.atleast_1d(value)
        for index in range(numbers.size):
            for number in {*VALUES, int(numbers[index]) + 1} - {int(numbers[index]), 1 << 63}:
                changed = put(numbers, index, number) if np.ndim(value) else np.int64(number)
                yield f"{name}[{index}] = {number}", (good | {name: changed}, arrays)
    yield "genuine again", (good, arrays)


def main(what: str, *rest: str) -> None:
    forgeries = cases() if what == "cases" else mutations(*rest)
    print(json.dumps({name: outcome(*arguments) for name, arguments in forgeries}))


if __name__ == "__main__":
    main(*sys.argv[1:])
