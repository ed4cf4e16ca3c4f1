"""`tc.executor("vsm")`: the device kernels' own PTX gives the model's bits, kernel by kernel."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import Arguments, Form, place, random_arrays

import jax_tcgen05 as tc
from jax_tcgen05 import native

if not (native.KERNELS / "manifest.json").exists():
    pytest.skip("the package was built without device kernels (no nvcc)", allow_module_level=True)

DENSE_KINDS = ("f16", "tf32", "f8f6f4", "i8")
BLOCK = (("mxf8f6f4", ""), ("mxf4", "scale_vec::2X"), ("mxf4nvf4", "block32"), ("mxf4nvf4", "scale_vec::4X"))
LANES = [0x0000FFFF, 0xF0F0F0F0, 0, 0x80000001, 0xFFFFFFFF, 0x12345678, 0xFF, 0xAAAAAAAA]
COLUMNS = int(tc.ZeroColumnMask((1, 0, 2, 0), (1, 0, 1, 1), skip_span=2, use_span=4))


def _dense(kind: str) -> Iterator[tuple[Form, dict[str, Any]]]:
    fp = {"a_format": "float6_e2m3fn", "b_format": "float8_e5m2"} if kind == "f8f6f4" else {}
    for group, in_tmem, masked in itertools.product((1, 2), (False, True), (False, True)):
        form = Form(
            kind,
            M=128 * group if not masked else 64 * group,
            N=64,
            group=group,
            repeats=(1, 2, 2),
            a_swizzle=None if in_tmem else 3,
            b_swizzle=2,
            batch=(2,),
            broadcast=("b",),
            **fp,
        )
        yield form, {"disable_output_lane": LANES[: 4 * group]} if masked else {}
    for in_tmem, masked in itertools.product((False, True), (False, True)):
        form = Form(
            kind,
            M=32 if in_tmem else 64,
            N=128,
            ws=True,
            repeats=(1, 1, 2),
            a_swizzle=None if in_tmem else 1,
            b_swizzle=3,
            **fp,
        )
        yield form, {"zero_column_mask": COLUMNS} if masked else {}


def _block(kind: str, scale: str) -> Iterator[tuple[Form, dict[str, Any]]]:
    scale_format = "float8_e4m3fn" if scale == "scale_vec::4X" else "float8_e8m0fnu"
    fp = {"a_format": "float4_e2m1fn", "b_format": "float6_e3m2fn"} if kind == "mxf8f6f4" else {}
    for group, in_tmem in itertools.product((1, 2), (False, True)):
        yield (
            Form(
                kind,
                M=128 * group,
                N=48,
                group=group,
                repeats=(1, 1, 4),
                a_swizzle=None if in_tmem else 3,
                b_swizzle=1,
                scale=scale,
                scale_format=scale_format,
                **fp,
            ),
            {},
        )


VARIANTS = [case for kind in DENSE_KINDS for case in _dense(kind)]
VARIANTS += [case for kind, scale in BLOCK for case in _block(kind, scale)]
MORE = [
    (Form("f16", a_major="mn", b_major="mn", a_swizzle=0, b_swizzle=0), {}),
    (Form("f16", a_major="mn", b_major="mn", a_swizzle=3, b_swizzle=2, repeats=(2, 1, 2)), {}),
    (Form("tf32", a_major="mn", b_major="mn", a_swizzle=4, b_swizzle=4), {}),
    (Form("f16", a_format="bfloat16", b_format="float16", a_swizzle=1, b_swizzle=0, N=256), {"neg_a": True}),
    (
        Form("f16", M=64, N=8, d_format="float16", a_swizzle=2, b_swizzle=3, repeats=(2, 3, 2)),
        {"neg_b": True},
    ),
    (
        Form(
            "f8f6f4", d_format="float16", a_format="float4_e2m1fn", b_format="float4_e2m1fn", a_swizzle=None
        ),
        {},
    ),
    (Form("i8", N=24, a_format="uint8", b_format="int8"), {"sat_d": True}),
    (Form("tf32", M=64, slab=1, a_swizzle=3), {}),
    (Form("f16", M=128, group=2, N=32, a_swizzle=None, banked=True, b_swizzle=1), {}),
    (Form("f16", ws=True, M=128, N=256, a_swizzle=3, b_swizzle=3), {}),
    (Form("f16", N=256, repeats=(2, 1, 1), a_swizzle=3, b_swizzle=3), {}),  # all 512 columns
    (
        Form(
            "mxf4nvf4",
            scale="block16",
            packed_arrays=True,
            N=200,
            a_swizzle=3,
            b_swizzle=3,
            repeats=(1, 1, 2),
        ),
        {},
    ),
    (
        Form(
            "mxf8f6f4", M=128, group=2, N=32, shared_sfb=True, a_swizzle=3, batch=(3, 2), broadcast=("sfa",)
        ),
        {},
    ),
]


def _name(case: tuple[Form, dict[str, Any]]) -> str:
    form, options = case
    a = "ts" if form.a_swizzle is None else "ss"
    ws = "ws" if form.ws else f"g{form.group}"
    return "-".join([form.kind, ws, str(form.scales) if form.scaled else "0", a, *options])


cases = pytest.mark.parametrize("case", VARIANTS + MORE, ids=map(_name, VARIANTS + MORE))


def entry(form: Form, options: dict[str, Any]) -> str:
    """The kernel that runs a form."""
    masked = "disable_output_lane" in options or "zero_column_mask" in options
    return "_".join(
        [
            "tcgen05_mma",
            form.kind,
            f"g{form.group}",
            "ws" if form.ws else "dense",
            f"v{form.scales if form.scaled else 0}",
            "ts" if form.a_swizzle is None else "ss",
            "mask" if masked else "plain",
        ]
    )


def test_the_cases_reach_every_kernel() -> None:
    manifest = json.loads((native.KERNELS / "manifest.json").read_text())
    built = {kernel["entry"] for kernel in manifest["kernels"]}
    assert {entry(*case) for case in VARIANTS} == built


def bits(arguments: Arguments, executor: str, check: str = "normal", **options: Any) -> np.ndarray:
    with tc.executor(executor, check=check):
        return np.asarray(arguments.mma(**options).leaf).view(np.uint8)


@cases
@pytest.mark.parametrize("style", ["mixed", "raw"])
def test_the_models_bits(case: tuple[Form, dict[str, Any]], style: str) -> None:
    """Data with NaN and infinity, D preset; `accum` and `pred` differ along a batch."""
    form, options = case
    arguments = place(form, random_arrays(form, seed=7, style=style), **options)
    switches: dict[str, Any] = {"accum": True}
    if form.batch:
        switches = {
            name: jnp.arange(np.prod(form.batch)).reshape(form.batch) % 2 == i
            for i, name in enumerate(("accum", "pred"))
        }
    model = bits(arguments, "model", **switches)
    np.testing.assert_array_equal(bits(arguments, "vsm", **switches), model)
    assert (model != np.asarray(arguments.operands["d"].leaf).view(np.uint8)).any()


@cases
def test_strict_mode_has_nothing_to_say(case: tuple[Form, dict[str, Any]]) -> None:
    form, options = case
    arguments = place(form, random_arrays(form, seed=8), **options)
    np.testing.assert_array_equal(bits(arguments, "vsm", "strict"), bits(arguments, "model"))


def test_pred_false_leaves_d_alone() -> None:
    form, _ = VARIANTS[0]
    arguments = place(form, random_arrays(form), pred=False)
    np.testing.assert_array_equal(
        bits(arguments, "vsm"), np.asarray(arguments.operands["d"].leaf).view(np.uint8)
    )


def test_it_works_inside_jit_vmap_and_with_an_empty_batch() -> None:
    form = Form("f16", a_swizzle=3, b_swizzle=3)
    arguments = place(form, random_arrays(form))

    def call(d: tc.PlacedOperand, a: tc.PlacedOperand, b: tc.PlacedOperand) -> jax.Array:
        return tc.mma(form.opcode, d, a, b, **arguments.options).leaf

    stacked = [jax.tree.map(lambda x: jnp.stack([x] * 3), operand) for operand in arguments.operands.values()]
    with tc.executor("vsm"):
        batch = jax.jit(jax.vmap(call))(*stacked)
        empty = jax.vmap(call)(*(jax.tree.map(lambda x: x[:0], operand) for operand in stacked))
    assert empty.shape == (0, *batch.shape[1:])
    for one in batch:
        np.testing.assert_array_equal(np.asarray(one).view(np.uint8), bits(arguments, "model"))


def test_a_traced_mask_that_is_not_offered_is_an_error_or_a_result_never_a_crash() -> None:
    """A kernel cannot refuse a traced column shift; the virtual SM can (docs/kernels.md)."""
    form = Form("f16", M=64, N=64, ws=True)
    arguments = place(form, random_arrays(form))
    shifted = np.array([0, 1 << 24 | 1 << 7], np.uint32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="column shift"):
        bits(arguments, "vsm", zero_column_mask=jnp.asarray(shifted))
    bits(arguments, "vsm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpu",), r"executor: got 'gpu'; allowed: 'model', 'vsm'"),
        (("vsm", "loose"), r"check: got 'loose'; allowed: 'normal', 'strict'"),
        (("model", "strict"), r"check: got 'strict'; allowed: 'normal'"),
    ],
)
def test_unknown_executors_are_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tc.executor(arguments[0], **({"check": arguments[1]} if len(arguments) > 1 else {}))
