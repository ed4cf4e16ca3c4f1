"""The rules of one call: each accepts its edge, and refuses what lies just past it with a message that says
which argument, what was given and what is allowed.

A row is a call and, for a refusal, words that its message must have. Values come from the document, PTX ISA 9.4
and design section 5 (OQ numbers), not from the package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from base_calls import Call, assert_exact, changed, leaves, legal_call, made, refuse, with_leaves

import jax_tcgen05 as tc
from jax_tcgen05.contract import read_call

S, R, TLane, TCol = tc.S, tc.R, tc.TLane, tc.TCol
Make = Callable[[], Call]


def shaped(M: int, N: int, K: int, /, kind: str = "f16", **form: Any) -> Make:
    """A legal call but for its instruction_shape."""
    return lambda: legal_call(kind, **form) | {"instruction_shape": (M, N, K)}


# M, N and K (OQ1, OQ19; B39, B45, B87)

N_EDGES = [
    # form of the call, N accepted, N refused, words of the rule
    ({}, (8, 24, 256), (0, -8, 4, 12, 264, 512), ("8..256 step 8", "PTX ISA 9.4", "OQ1")),
    ({"M": 64}, (8, 24, 256), (4, 20, 264), ("8..256 step 8", "PTX ISA 9.4")),
    ({"group": 2, "M": 256}, (16, 48, 256), (8, 24, 272), ("16..256 step 16", "PTX ISA 9.4")),
    ({"group": 2, "M": 128}, (16, 48, 256), (8, 24, 272), ("16..256 step 16",)),
    ({"M": 64, "a_swizzle": None}, (8, 24), (4, 12), ("8..256 step 8", "CUTLASS", "TMEM")),
    ({"M": 128, "a_swizzle": None}, (16, 48), (8, 24), ("16..256 step 16", "CUTLASS", "TMEM")),
    ({"group": 2, "M": 256, "a_swizzle": None}, (32, 96), (16, 48), ("32..256 step 32", "CUTLASS")),
    ({"kind": "i8"}, (8, 16, 24, 48, 256), (40, 56, 4), ("8, 16, 24, 32", "kind i8")),
    ({"kind": "i8", "group": 2, "M": 256}, (32, 64), (16, 48), ("32..256 step 32", "kind i8")),
    ({"kind": "i8", "M": 64, "a_swizzle": None}, (8, 16, 24), (40,), ("kind i8",)),
    ({"kind": "i8", "M": 128, "a_swizzle": None}, (16, 32), (8, 24), ("16..256 step 16", "kind i8")),
    ({"ws": True, "M": 64}, (64, 128, 256), (32, 96, 192), ("64, 128, 256", ".ws")),
    ({"ws": True, "M": 32}, (64, 256), (8, 32), ("64, 128, 256",)),
    ({"kind": "mxf8f6f4"}, (8, 24, 256), (4, 12), ("8..256 step 8", "block scale")),
    ({"kind": "mxf8f6f4", "a_swizzle": None}, (8, 24), (4, 12), ("8..256 step 8",)),
    ({"kind": "mxf4", "group": 2, "M": 256}, (16, 48), (8, 24), ("16..256 step 16", "block scale")),
    ({"kind": "f8f6f4", "b_major": "mn"}, (16, 48), (8, 24), ("16..256 step 16", "MN-major")),
    (
        {"kind": "f8f6f4", "b_major": "mn", "group": 2, "M": 256},
        (32, 64),
        (16, 48),
        ("32..256 step 32", "MN-major"),
    ),
]


@pytest.mark.parametrize(("form", "accepted", "refused", "words"), N_EDGES, ids=lambda x: str(x)[:60])
def test_n_steps(form, accepted, refused, words):
    for n in accepted:
        assert tc.plan(**legal_call(**{"N": n} | form)).instruction_shape[1] == n
    base = legal_call(**form)
    m, _, k = base["instruction_shape"]
    for n in refused:
        refuse(shaped(m, n, k, **form), ValueError, "instruction_shape", "N", f"got {n};", *words)


M_EDGES = [
    ({}, (64, 128), (32, 96, 192, 256, 512)),
    ({"group": 2, "M": 256}, (128, 256), (64, 192, 512)),
    ({"ws": True}, (32, 64, 128), (16, 96, 256)),
    ({"kind": "mxf4"}, (128,), (64, 256)),
    ({"kind": "mxf8f6f4", "group": 2, "M": 256}, (128, 256), (64, 512)),
]


@pytest.mark.parametrize(("form", "accepted", "refused"), M_EDGES, ids=lambda x: str(x)[:60])
def test_m_values(form, accepted, refused):
    for m in accepted:
        assert tc.plan(**legal_call(**form | {"M": m})).instruction_shape[0] == m
    _, n, k = legal_call(**form)["instruction_shape"]
    for m in refused:
        allowed = ", ".join(map(str, accepted))
        refuse(shaped(m, n, k, **form), ValueError, "instruction_shape", "M", f"got {m};", allowed)


K_OF_KINDS = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


@pytest.mark.parametrize(("kind", "k"), K_OF_KINDS.items())
def test_smallest_shapes_are_exact_and_the_next_smaller_refused(kind, k):
    m = 128 if kind.startswith("mx") else 64
    assert_exact(legal_call(kind, m, 8))
    for wrong in (k - 1, k + 1, k // 2, 2 * k, 0):
        text = refuse(
            shaped(m, 8, wrong, kind, M=m), ValueError, "instruction_shape", "K", f"got {wrong};", k
        )
        assert kind in text


def test_k_96_belongs_to_other_targets():
    block = {"kind": "mxf4nvf4", "scale": "block16"}
    refuse(shaped(128, 64, 96, **block), ValueError, "instruction_shape", "K=96", "sm_103a", "OQ2")
    refuse(shaped(128, 64, 96), ValueError, "instruction_shape: K", "got 96", "allowed: 16")
    # 4X means 16 * 4 = 64 elements, on every target.
    with pytest.raises(ValueError, match=r"K: got 96.*64.*4 scales \* 16"):
        tc.legal(
            "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X",
            (128, 64, 96),
            *("float4_e2m1fn",) * 2,
            "float32",
            target="sm_103a",
        )


@pytest.mark.parametrize("modifier", [".sp", ".ashift"])
def test_what_is_not_offered(modifier):
    text = (
        "tcgen05.mma.sp.cta_group::1.kind::f16"
        if modifier == ".sp"
        else "tcgen05.mma.cta_group::1.kind::f16.ashift"
    )
    form = {} if modifier == ".sp" else {"a_swizzle": None}
    assert str(tc.Opcode.parse(text)) == text  # parsed
    refuse(changed(made(**form), opcode=text), ValueError, "opcode", modifier, "not offered", "without it")


COLLECTORS = [f"a::{op}" for op in ("fill", "use", "lastuse", "discard")]


@pytest.mark.parametrize("collector", [*COLLECTORS, "b0::fill", "b1::use", "b2::lastuse", "b3::discard"])
def test_collectors_change_no_result(collector):
    call = legal_call(ws=collector.startswith("b"))
    hinted = call | {"opcode": f"{call['opcode']}.collector::{collector}"}
    np.testing.assert_array_equal(tc.mma(**hinted).leaf, tc.mma(**call).leaf)
    other = call | {
        "opcode": f"{call['opcode']}.collector::{'a' if call['opcode'].count('.ws') else 'b0'}::use"
    }
    refuse(lambda: other, ValueError, "opcode", "collector", "fill, use, lastuse, discard")


# Static arguments (B39, B73)


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("instruction_shape", (128, 64), TypeError, ("(128, 64)", "3 ints")),
        ("instruction_shape", (128, 64, 16, 1), TypeError, ("3 ints",)),
        ("instruction_shape", None, TypeError, ("None", "(M, N, K)")),
        ("instruction_shape", "128", TypeError, ("'128'",)),
        ("instruction_shape", (128.0, 64, 16), TypeError, ("M", "128.0", "int")),
        ("instruction_shape", (128, True, 16), TypeError, ("N", "True", "int")),
        ("a_descriptor", (16, 256), TypeError, ("(16, 256)", "3 ints")),
        ("a_descriptor", (16, 256.0, 1), TypeError, ("sdo_bytes", "256.0", "int")),
        ("a_descriptor", None, TypeError, ("None", "(ldo_bytes, sdo_bytes, swizzle)")),
        ("b_descriptor", None, TypeError, ("None", "(ldo_bytes, sdo_bytes, swizzle)")),
        ("b_descriptor", "16", TypeError, ("'16'",)),
        ("opcode", 5, TypeError, ("int", "str")),
        ("opcode", "wgmma.mma_async", ValueError, ("'wgmma.mma_async'", "tcgen05.mma")),
        ("a_major", "m", ValueError, ("'m'", "'k', 'mn'")),
        ("b_major", 0, ValueError, ("0", "'k', 'mn'")),
        ("a_format", "float8_e4m3fnuz", ValueError, ("float8_e4m3fnuz", "float16, bfloat16")),
        ("b_format", b"fp8", TypeError, ("b'fp8'", "name of a format")),
        ("neg_a", 1, TypeError, ("1", "bool")),
        ("sat_d", "no", TypeError, ("'no'", "bool")),
    ],
    ids=lambda x: str(x)[:40],
)
def test_static_arguments(name, value, error, words):
    refuse(changed(made(), **{name: value}), error, name, *words)


@pytest.mark.parametrize("name", ["instruction_shape", "a_descriptor", "b_descriptor"])
@pytest.mark.parametrize("whole", [True, False])
def test_traced_tuples_are_refused(name, whole):
    call = legal_call()

    def function(x):
        return tc.mma(**call | {name: x if whole else (call[name][0], call[name][1], x[2])}).leaf

    with pytest.raises(TypeError, match=rf"{name}.*traced.*must be static"):
        jax.jit(function)(jnp.array(call[name]))


@pytest.mark.parametrize("name", ["neg_a", "neg_b", "sat_d"])
def test_traced_flags_are_refused(name):
    call = legal_call()
    with pytest.raises(TypeError, match=rf"{name}.*traced.*must be static"):
        jax.jit(lambda x: tc.mma(**call | {name: x}).leaf)(True)


# Formats


def with_dtype(call: Call, **dtypes: Any) -> Call:
    """The call with other arrays' dtypes, in layouts of the same container width."""
    arrays = {name: leaves(call)[name].astype(dtype) for name, dtype in dtypes.items()}
    return with_leaves(call, arrays)


FORMATS_ACCEPTED = {
    "bf16": made(a_format="bfloat16", b_format="bfloat16"),
    "f16 with bf16 (OQ6)": made(a_format="float16", b_format="bfloat16"),
    "f16 D": made(d_format="float16"),
    "f8f6f4, f16 D": made("f8f6f4", d_format="float16"),
    "fp6 with fp4": made("f8f6f4", a_format="float6_e2m3fn", b_format="float4_e2m1fn", packed_arrays=False),
    "int8 with uint8": made("i8", a_format="int8", b_format="uint8"),
    "mxf4nvf4 4X with UE8M0 (OQ12)": made("mxf4nvf4", scale_format="float8_e8m0fnu"),
    "mxf4nvf4 4X with UE4M3": made("mxf4nvf4", scale_format="float8_e4m3fn"),
    "mxf4nvf4 2X": made("mxf4nvf4", scale="scale_vec::2X"),
    "mxf4nvf4 block32": made("mxf4nvf4", scale="block32"),
    "mxf4 without a spelling": made("mxf4", scale=""),
    "mxf8f6f4 without a spelling": made("mxf8f6f4", scale=""),
}


@pytest.mark.parametrize("name", FORMATS_ACCEPTED)
def test_formats_accepted(name):
    assert_exact(FORMATS_ACCEPTED[name]())


E8M0, E4M3 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn
FORMATS_REFUSED = {
    "f16 D of bf16": (
        lambda: with_dtype(legal_call(d_format="float16"), b=jnp.bfloat16),
        ("d: d_format", "float16", "float32", "bfloat16"),
    ),
    "f32 without tf32": (
        lambda: {k: v for k, v in legal_call("tf32").items() if k != "a_format"},
        ("a_format", "float32", "allowed: tf32", "asked for"),
    ),
    "tf32 D": (lambda: with_dtype(legal_call("tf32"), d=jnp.int32), ("d_format", "int32", "float32")),
    "f16 kind, int D": (
        lambda: with_dtype(legal_call(), d=jnp.int32),
        ("d: d_format", "int32", "float32, float16"),
    ),
    "i8 kind, float D": (
        lambda: with_dtype(legal_call("i8"), d=jnp.float32),
        ("d_format", "float32", "int32"),
    ),
    "mx kind, f16 D": (
        lambda: with_leaves(legal_call("mxf4"), {}) | {"d": legal_call(d_format="float16")["d"]},
        ("d_format", "float16", "float32"),
    ),
    "f8 kind, f16 A": (
        lambda: (
            legal_call()
            | {"opcode": "tcgen05.mma.cta_group::1.kind::f8f6f4", "instruction_shape": (128, 64, 32)}
        ),
        ("a_format", "float16", "float8_e4m3fn, float8_e5m2"),
    ),
    "codes without a format": (
        lambda: {k: v for k, v in legal_call("f8f6f4", a_format="float6_e2m3fn").items() if k != "a_format"},
        ("a_format", "uint8", "float6_e2m3fn, float6_e3m2fn, float4_e2m1fn"),
    ),
    "e5m2 over e4m3": (
        changed(made("f8f6f4"), a_format="float8_e5m2"),
        ("a_format", "float8_e5m2", "allowed: float8_e4m3fn", "array of float8_e4m3fn"),
    ),
    "uint8 over int8": (
        changed(made("i8"), b_format="uint8"),
        ("b_format", "'uint8'", "allowed: int8", "array of int8"),
    ),
    "e4m3fnuz": (
        changed(made("f8f6f4"), a_format="float8_e4m3fnuz"),
        ("a_format", "float8_e4m3fnuz", "float8_e4m3fn, "),
    ),
    "e8m0 elements": (
        changed(made("f8f6f4"), b_format="float8_e8m0fnu"),
        ("b_format", "float8_e8m0fnu", "float8_e5m2"),
    ),
    "mxf4 of e4m3": (
        changed(made("mxf4"), a_format="float8_e4m3fn"),
        ("a_format", "float8_e4m3fn", "float4_e2m1fn"),
    ),
    "UE4M3 by 32": (
        made("mxf4nvf4", scale="scale_vec::2X", scale_format="float8_e4m3fn"),
        ("sfa, sfb: scale_format", "float8_e4m3fn", "float8_e8m0fnu", "32 elements"),
    ),
    "UE4M3 in mxf8f6f4": (
        made("mxf8f6f4", scale_format="float8_e4m3fn"),
        ("scale_format", "float8_e4m3fn", "float8_e8m0fnu"),
    ),
    "two scale formats": (
        lambda: (
            legal_call("mxf4nvf4", scale_format="float8_e4m3fn")
            | {"sfb": legal_call("mxf4nvf4", scale_format="float8_e8m0fnu")["sfb"]}
        ),
        ("sfb", "float8_e8m0fnu", "sfa has float8_e4m3fn", "same"),
    ),
}


@pytest.mark.parametrize("name", FORMATS_REFUSED)
def test_formats_refused(name):
    make, words = FORMATS_REFUSED[name]
    refuse(make, ValueError, *words)


# Majors and modifiers

MAJORS_ACCEPTED = {
    "f16, both": made(a_major="mn", b_major="mn", a_swizzle=3, b_swizzle=3),
    "bf16, unswizzled": made(a_format="bfloat16", b_format="bfloat16", a_major="mn", b_major="mn"),
    "f8f6f4": made("f8f6f4", a_major="mn", b_major="mn", a_swizzle=2, b_swizzle=1),
    "i8": made("i8", a_major="mn", b_major="mn"),
    "mxf8f6f4": made("mxf8f6f4", a_major="mn", b_major="mn", a_swizzle=3, b_swizzle=2),
    "tf32 in mode 4": made("tf32", a_major="mn", b_major="mn", a_swizzle=4, b_swizzle=4),
}


@pytest.mark.parametrize("name", MAJORS_ACCEPTED)
def test_majors_accepted(name):
    assert_exact(MAJORS_ACCEPTED[name]())


def codes(kind: str, fmt: str) -> Make:
    return made(kind, a_format=fmt, b_format=fmt, packed_arrays=False)


MAJORS_REFUSED = {
    "fp6 A": (
        changed(codes("f8f6f4", "float6_e2m3fn"), a_major="mn"),
        ("a_major", "'mn'", "'k'", "float6_e2m3fn"),
    ),
    "fp4 B in mxf8f6f4": (
        changed(codes("mxf8f6f4", "float4_e2m1fn"), b_major="mn"),
        ("b_major", "'mn'", "'k'", "float4_e2m1fn"),
    ),
    "mxf4": (changed(made("mxf4"), b_major="mn"), ("b_major", "'mn'", "'k'", "float4_e2m1fn")),
    "A in TMEM": (
        changed(made(a_swizzle=None), a_major="mn"),
        ("a_major", "'mn'", "'k'", "neither a major nor a descriptor"),
    ),
    "A in TMEM with a descriptor": (
        changed(made(a_swizzle=None), a_descriptor=(16, 256, 1)),
        ("a_descriptor", "(16, 256, 1)", "TMEM", "leave it out"),
    ),
    "neg_a of i8": (changed(made("i8"), neg_a=True), ("neg_a", "True", "allowed: False", "i8")),
    "neg_b of i8": (changed(made("i8"), neg_b=True), ("neg_b", "True", "allowed: False", "i8")),
    "sat_d of f16": (changed(made(), sat_d=True), ("sat_d", "True", "allowed: False", "only kind i8", "f16")),
    "sat_d of mxf4": (changed(made("mxf4"), sat_d=True), ("sat_d", "True", "allowed: False", "mxf4")),
}


@pytest.mark.parametrize("name", MAJORS_REFUSED)
def test_majors_and_modifiers_refused(name):
    make, words = MAJORS_REFUSED[name]
    refuse(make, ValueError, *words)


@pytest.mark.parametrize("kind", [kind for kind in K_OF_KINDS if kind != "i8"])
def test_negation_accepted(kind):
    call = legal_call(kind)
    assert_exact(call | {"neg_a": True})
    assert_exact(call | {"neg_b": np.True_})
    both = tc.mma(**call | {"neg_a": True, "neg_b": True})
    np.testing.assert_array_equal(both.leaf, tc.mma(**call).leaf)


def test_the_call_is_read_as_mma_spells_it():
    def spelled(function):
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    assert spelled(read_call) == spelled(tc.mma)
