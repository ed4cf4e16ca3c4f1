"""isa against the verdicts of ptxas, the tables of PTX ISA as written out here, and worked error messages."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from shared_data import shared_json

from jax_tcgen05 import isa
from jax_tcgen05.isa import Opcode, check_operands, legal

# ---------------------------------------------------------------------------------------------------------
# What ptxas 13.0 and 13.5 assemble.

DATA = Path(__file__).parent / "data"
FAMILIES = (
    "mma",
    "mma.sp",
    "ws",
    "ws.sp",
    "block",
    "block.sp",
    "mma.neg",
    "ws.neg",
    "block.neg",
    "mma.probe",
)
# Deliberate differences: ptxas accepts, we do not. Each must be met.
DIFFERENCES = {
    "kind ti16 (sm_107 only) is not covered": lambda op, args: ".kind::ti16" in op,
    "collector::b without .ws (sm_107 only) is not covered": lambda op, args: (
        ".collector::b::" in op and "mma.ws" not in op
    ),
    "scale-input-d with kind i8, OQ11": lambda op, args: ".kind::i8" in op and re.search(r"p0, \d+$", args),
}


def small_verdicts():
    data = json.loads((DATA / "ptxas_verdicts.json").read_text())
    for group, opcode, operands, index in data["rows"]:
        accepted = data["accepted_on"][index]
        yield group, opcode, operands, {t: t in accepted for t in data["targets"]}


def all_verdicts():
    data = shared_json("spec/legal_combos.json")
    for case in data["cases"]:
        if case["group"] in FAMILIES:
            for release, verdicts in case["result"].items():
                targets = data["toolchains"][release]["arches"]
                on = dict(zip(targets, (v == -1 for v in verdicts), strict=True))
                yield case["group"], case["opcode"], case["operands"], on


def read_operands(opcode: Opcode, text: str) -> dict:
    """The operand forms of a PTX operand list; ValueError for what is no operand list of tcgen05.mma at all."""
    args = re.findall(r"\[[^]]*\]|\{[^}]*\}|[^,\s]+", text)
    kinds = {"[": "tmem", "r": "r32", "{": "vector", "p": "pred"}
    forms = [("shared" if a.startswith("rd") else kinds.get(a[0], "imm"), a) for a in args]

    def take(*allowed: str) -> tuple[str, str]:
        if not forms or forms[0][0] not in allowed:
            raise ValueError(f"expected {allowed}, found {forms[:1]}")
        return forms.pop(0)

    storage = {"d": take("tmem")[0], "a": take("tmem", "shared")[0], "b": take("tmem", "shared")[0]}
    if opcode.sp:
        storage["metadata"] = take("tmem")[0]
    take("r32")
    # Scales stand where a lane mask would: whatever is there is handed on, so that isa is what judges it.
    if opcode.block_scale or (forms[:1] and forms[0][0] == "tmem"):
        for name in ("sfa", "sfb"):
            if forms[:1] and forms[0][0] in ("tmem", "shared"):
                storage[name] = forms.pop(0)[0]
    words = 0
    if forms[:1] and forms[0][0] == "vector":
        words = take("vector")[1].count(",") + 1
    take("pred", "imm")
    given: dict = {"storage": storage, "lane_mask_words": words}
    if forms and opcode.ws:
        take("shared", "imm")
        given["zero_column_mask"] = True
    elif forms:
        given["scale_input_d"] = int(take("imm")[1])
    if forms:
        raise ValueError(f"left over: {forms}")
    return given


def accepts(opcode_text: str, operands: str, target: str) -> bool:
    try:
        opcode = Opcode.parse(opcode_text)
        check_operands(opcode, **read_operands(opcode, operands), target=target)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("source", [small_verdicts, all_verdicts])
def test_ptxas_verdicts(source):
    differences: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    accepted = 0
    for group, opcode, operands, verdicts in source():
        groups[group] += 1
        for target, theirs in verdicts.items():
            ours = accepts(opcode, operands, target)
            accepted += ours
            if ours != theirs:
                rules = [r for r, applies in DIFFERENCES.items() if applies(opcode, operands)]
                assert theirs and rules, (group, opcode, operands, target, ours)
                differences.update(rules)
    assert set(differences) == set(DIFFERENCES)
    assert set(groups) == set(FAMILIES)
    assert accepted > 1000


def test_spellings_round_trip():
    seen = {opcode for _, opcode, _, on in small_verdicts() if on["sm_100a"]}
    for text in seen:
        opcode = Opcode.parse(text)
        assert Opcode.parse(str(opcode)) == opcode
        # ptxas takes the modifiers in any order; `.ws` alone stands directly after mma.
        parts = text.split(".")
        fixed = 3 if opcode.ws else 2
        assert Opcode.parse(".".join(parts[:fixed] + parts[: fixed - 1 : -1])) == opcode
    canonical = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X.collector::a::fill"
    assert canonical in seen and str(Opcode.parse(canonical)) == canonical
    assert str(Opcode.parse("tcgen05.mma.ws.kind::f16.collector::b3::use.sp.cta_group::1")) == (
        "tcgen05.mma.ws.sp.cta_group::1.kind::f16.collector::b3::use"
    )


def test_fields():
    opcode = Opcode.parse("tcgen05.mma.sp.cta_group::2.kind::f16.ashift.collector::a::lastuse")
    assert opcode == Opcode(2, "f16", sp=True, ashift=True, collector="a::lastuse")
    opcode = Opcode.parse("tcgen05.mma.cta_group::1.kind::mxf4.block_scale")
    assert (opcode.scale_vec, opcode.scale_spelling, opcode.block_scale) == (None, "block32", True)


@pytest.mark.parametrize(
    "kind, spelling, block, k, scales, ids",
    [
        ("mxf8f6f4", "", 32, 32, 1, (0, 1, 2, 3)),
        ("mxf8f6f4", ".scale_vec::1X", 32, 32, 1, (0, 1, 2, 3)),
        ("mxf8f6f4", ".block32", 32, 32, 1, (0, 1, 2, 3)),
        ("mxf4", "", 32, 64, 2, (0, 2)),
        ("mxf4", ".scale_vec::2X", 32, 64, 2, (0, 2)),
        ("mxf4", ".block32", 32, 96, 3, (0, 1, 2, 3)),
        ("mxf4nvf4", ".scale_vec::2X", 32, 64, 2, (0, 2)),
        ("mxf4nvf4", ".scale_vec::4X", 16, 64, 4, (0,)),
        ("mxf4nvf4", ".block16", 16, 64, 4, (0,)),
        ("mxf4nvf4", ".block32", 32, 64, 2, (0, 2)),
        ("mxf4nvf4", ".block16", 16, 96, 6, (0, 2)),
    ],
)
def test_scales(kind, spelling, block, k, scales, ids):
    opcode = Opcode.parse(f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale{spelling}")
    assert (opcode.scale_block, opcode.scales_per_step(k), opcode.scale_ids(k)) == (block, scales, ids)
    sparse = Opcode.parse(f"tcgen05.mma.sp.cta_group::1.kind::{kind}.block_scale{spelling}")
    if k != 96:
        assert sparse.scales_per_step(2 * k) == scales


def test_no_scales():
    opcode = Opcode.parse("tcgen05.mma.cta_group::1.kind::f16")
    assert (opcode.scale_block, opcode.scales_per_step(16), opcode.scale_ids(16)) == (None, 0, ())


BAD_OPCODES = [
    ("tcgen05.mma.cta_group::3.kind::f16", ["cta_group::3", ".cta_group::1, .cta_group::2"]),
    ("tcgen05.mma.cta_group::1", ["no .kind", ".kind::f16", ".kind::mxf4nvf4"]),
    ("tcgen05.mma.kind::f16", ["no .cta_group", ".cta_group::2"]),
    ("tcgen05.mma.cta_group::1.kind::f17", [".kind::f17", ".kind::tf32"]),
    ("tcgen05.mma.cta_group::1.kind::ti16", ["ti16", "sm_107"]),
    ("tcgen05.mma.cta_group::1.kind::f16.kind::f16", ["second one: .kind::f16"]),
    ("tcgen05.mma.cta_group::1.cta_group::2.kind::f16", ["second one: .cta_group::2"]),
    ("tcgen05.mma.sp.ws.cta_group::1.kind::f16", ["directly after mma"]),
    ("tcgen05.mma.ws.ws.cta_group::1.kind::f16", ["second one: .ws"]),
    ("tcgen05.mma.ws.cta_group::2.kind::f16", [".cta_group::2", ".cta_group::1"]),
    ("tcgen05.mma.ws.cta_group::1.kind::mxf4.block_scale", ["mxf4", "f16, tf32, f8f6f4, i8"]),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.ashift", [".ashift", ".ws"]),
    ("tcgen05.mma.cta_group::1.kind::mxf4", ["without .block_scale", "compulsory"]),
    ("tcgen05.mma.cta_group::1.kind::f16.block_scale", ["f16", "mxf8f6f4, mxf4, mxf4nvf4"]),
    ("tcgen05.mma.cta_group::1.kind::f16.block32", [".block32", "nothing"]),
    (
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale",
        ["must be written", ".block16", ".scale_vec::4X"],
    ),
    ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::4X", ["::4X", ".scale_vec::2X, .block32"]),
    ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::6X", ["::6X", ".block16"]),
    ("tcgen05.mma.cta_group::1.kind::f16.collector::b0::fill", ["b0::fill", ".collector::a::OP"]),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.collector::a::fill", ["a::fill", ".collector::bI::OP", "0..3"]),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.collector::b4::fill", ["b4::fill", "0..3"]),
    ("tcgen05.mma.cta_group::1.kind::f16.collector::a::keep", ["a::keep", "fill, use, lastuse, discard"]),
    ("tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::use", ["a::use", "lastuse, discard"]),
    ("tcgen05.mma.cta_group::1.kind::f16.foo", ["unknown modifier .foo", ".ashift"]),
    ("tcgen05.mma.cta_group::1.kind::f16.", ["unknown modifier .", ".ashift"]),
    ("tcgen05.ld.sync.aligned", ["tcgen05.ld", "tcgen05.mma"]),
    ("", ["tcgen05.mma"]),
]


@pytest.mark.parametrize("text, parts", BAD_OPCODES)
def test_bad_opcode(text, parts):
    with pytest.raises(ValueError) as error:
        Opcode.parse(text)
    assert str(error.value).startswith("opcode: got ")
    for part in parts:
        assert part in str(error.value)


def test_bad_opcode_types():
    with pytest.raises(TypeError, match="opcode: got 3"):
        Opcode.parse(3)
    for group in (True, 1.0, "1", 0):
        with pytest.raises(ValueError, match="cta_group"):
            Opcode(group, "f16")
    with pytest.raises(ValueError, match="kind"):
        Opcode(1, "f32")


# ---------------------------------------------------------------------------------------------------------
# Shapes, against the tables of the contract (sections 3.2 and 3.3; OQ1, OQ2, OQ19) written out once more.

FLOATS = ("f16", "tf32", "f8f6f4")
BLOCKS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
DENSE_K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SOME_FORMATS = {
    "f16": ("bfloat16", "float16", "float32"),
    "tf32": ("tf32", "tf32", "float32"),
    "f8f6f4": ("float4_e2m1fn", "float6_e3m2fn", "float16"),
    "i8": ("int8", "uint8", "int32"),
    "mxf8f6f4": ("float8_e5m2", "float4_e2m1fn", "float32"),
    "mxf4": ("float4_e2m1fn", "float4_e2m1fn", "float32"),
    "mxf4nvf4": ("float4_e2m1fn", "float4_e2m1fn", "float32"),
}
I8_GROUP_1 = {8, 16, 24, 32} | set(range(48, 257, 16))


def steps(n: int) -> set[int]:
    return set(range(n, 257, n))


def expected_n(kind, g, ws, sp, a_in_tmem, m, k) -> set[int]:
    """Allowed N by the contract's tables; empty when M is not allowed."""
    if ws:
        return ({64, 128} if sp else {64, 128, 256}) if m in (32, 64, 128) else set()
    if kind in BLOCKS:
        if g == 1:
            return steps(8) if m == 128 else set()
        return steps(16) if m == 256 or (m == 128 and not sp and k != 96) else set()
    if m not in ((64, 128), (128, 256))[g - 1]:
        return set()
    smem = {("f", 1): steps(8), ("f", 2): steps(16), ("i", 1): I8_GROUP_1, ("i", 2): steps(32)}
    found = smem["i" if kind == "i8" else "f", g]
    if a_in_tmem:
        found = found & (steps(32) if g == 2 else steps(8) if m == 64 else steps(16))
    return found


def opcode_for(kind, g=1, ws=False, sp=False) -> Opcode:
    block = kind in BLOCKS
    return Opcode(g, kind, ws, sp, block, {"mxf4nvf4": "block16"}.get(kind))


def is_legal(*args, **kwargs) -> bool:
    try:
        return legal(*args, **kwargs) is None
    except ValueError:
        return False


@pytest.mark.parametrize("kind", DENSE_K)
def test_shapes(kind):
    found = 0
    for ws, sp, g, a_in_tmem in itertools.product((False, True), (False, True), (1, 2), (False, True)):
        if ws and (g == 2 or kind in BLOCKS):
            continue
        opcode = opcode_for(kind, g, ws, sp)
        for k in (0, 8, 16, 32, 48, 64, 96, 128, 192):
            good_k = k == DENSE_K[kind] * (2 if sp else 1) or (k == 96 and not sp and kind in BLOCKS[1:])
            for m in (0, 16, 32, 64, 96, 128, 192, 256, 512):
                allowed = expected_n(kind, g, ws, sp, a_in_tmem, m, k) if good_k else set()
                for n in (*range(-8, 280, 4), 255, 512) if good_k else (64,):
                    # Only sm_103a and sm_107a have K=96 (OQ2); i8 exists on sm_100a and sm_110a.
                    target = "sm_103a" if k == 96 else "sm_100a"
                    ok = is_legal(opcode, (m, n, k), *SOME_FORMATS[kind], a_in_tmem=a_in_tmem, target=target)
                    assert ok == (n in allowed), (opcode, m, n, k, a_in_tmem)
                    found += ok
    assert found > 100


@pytest.mark.parametrize("kind", ["f8f6f4", "i8", "mxf8f6f4"])
@pytest.mark.parametrize("g, step", [(1, 16), (2, 32)])
def test_mn_major_b_of_8_bits(kind, g, step):
    a, d = {"f8f6f4": ("float8_e4m3fn", "float32"), "i8": ("int8", "int32")}.get(
        kind, ("float8_e4m3fn", "float32")
    )
    opcode = opcode_for(kind, g)
    allowed = {n for n in range(8, 257, 8) if is_legal(opcode, (128, n, 32), a, a, d, b_major="mn")}
    assert allowed == steps(step)
    # An MN-major A changes nothing.
    assert is_legal(opcode, (128, 8 * g * (4 if kind == "i8" else 1), 32), a, a, d, a_major="mn")
    assert is_legal(opcode_for("f16", g), (128, 8 * g, 16), *["float16"] * 2, "float32", b_major="mn")


def test_quoted_rules():
    """pitfall B45: where sources disagree, the message quotes the table it follows."""
    f16 = ("float16", "float16", "float32")
    assert is_legal("tcgen05.mma.cta_group::1.kind::f16", (64, 24, 16), *f16)
    assert is_legal("tcgen05.mma.cta_group::1.kind::f16", (128, 24, 16), *f16)
    assert is_legal("tcgen05.mma.cta_group::2.kind::f16", (128, 48, 16), *f16)
    with pytest.raises(ValueError, match=r"N: got 24; allowed: 16\.\.256 step 16 \(PTX ISA 9\.4.*OQ1"):
        legal("tcgen05.mma.cta_group::2.kind::f16", (128, 24, 16), *f16)
    with pytest.raises(ValueError, match=r"N: got 48; allowed: 32\.\.256 step 32 \(CUTLASS, A in TMEM.*OQ1"):
        legal("tcgen05.mma.cta_group::2.kind::f16", (128, 48, 16), *f16, a_in_tmem=True)


# ---------------------------------------------------------------------------------------------------------
# instruction_shape, formats, majors, modifiers, targets.


class Traced:
    def __index__(self):
        raise TypeError("tracer")

    __int__ = __index__


DENSE = "tcgen05.mma.cta_group::1.kind::f16"
F16 = ("float16", "float16", "float32")


@pytest.mark.parametrize("n", [0, -8, 4, 264, 512])
def test_bad_n(n):
    with pytest.raises(ValueError, match=rf"instruction_shape: N: got {n}; allowed: 8\.\.256 step 8"):
        legal(DENSE, (128, n, 16), *F16)


@pytest.mark.parametrize("m", [32, 96, 192, 512])
def test_bad_m(m):
    with pytest.raises(ValueError, match=rf"instruction_shape: M: got {m}; allowed: 64, 128"):
        legal(DENSE, (m, 64, 16), *F16)


def test_bad_k():
    with pytest.raises(ValueError, match=r"instruction_shape: K: got 15; allowed: 16"):
        legal(DENSE, (128, 64, 15), *F16)


@pytest.mark.parametrize("value", [True, np.True_, 64.0, np.float32(64), "64", None, Traced(), 64.5])
@pytest.mark.parametrize("axis", range(3))
def test_shape_must_be_static_ints(axis, value):
    shape = [128, 64, 16]
    shape[axis] = value
    with pytest.raises(ValueError, match=rf"instruction_shape: {'MNK'[axis]}: got .*must be static"):
        legal(DENSE, tuple(shape), *F16)


@pytest.mark.parametrize("shape", [(128, 64), (128, 64, 16, 1), 128, None, Traced()])
def test_shape_must_be_a_triple(shape):
    with pytest.raises(ValueError, match=r"instruction_shape: got .*allowed: 3 ints \(M, N, K\)"):
        legal(DENSE, shape, *F16)


def test_numpy_ints_are_ints():
    assert legal(DENSE, (np.int32(128), np.uint8(64), np.int64(16)), *F16) is None
    assert legal(DENSE, np.array([128, 64, 16]), *F16) is None


def test_formats():
    """Every pair of formats and D of section 3.1, and no other."""
    eight = ["float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
    pairs = {k: set() for k in DENSE_K}
    pairs["f16"] = {(a, b, "float32") for a in ("float16", "bfloat16") for b in ("float16", "bfloat16")}
    pairs["f16"].add(("float16", "float16", "float16"))
    pairs["tf32"] = {("tf32", "tf32", "float32")}
    pairs["f8f6f4"] = set(itertools.product(eight, eight, ("float32", "float16")))
    pairs["i8"] = set(itertools.product(("int8", "uint8"), ("int8", "uint8"), ("int32",)))
    pairs["mxf8f6f4"] = set(itertools.product(eight, eight, ("float32",)))
    pairs["mxf4"] = pairs["mxf4nvf4"] = {("float4_e2m1fn", "float4_e2m1fn", "float32")}
    names = [*isa.FORMATS, "float32", "float8_e4m3fnuz", "int32", "int4"]
    for kind, allowed in pairs.items():
        opcode = opcode_for(kind)
        for a, b, d in itertools.product(names, names, ("float32", "float16", "int32", "bfloat16")):
            ok = is_legal(opcode, (128, 64, DENSE_K[kind]), a, b, d)
            assert ok == ((a, b, d) in allowed), (kind, a, b, d)


def test_formats_by_dtype():
    assert legal(DENSE, (128, 64, 16), np.float16, np.dtype("float16"), np.float32) is None
    block = "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale"
    formats = (ml_dtypes.float8_e4m3fn, ml_dtypes.float6_e2m3fn, np.float32)
    assert legal(block, (128, 64, 32), *formats, scale_format=ml_dtypes.float8_e8m0fnu) is None
    with pytest.raises(ValueError, match=r"a_format: got 3; allowed: float16, bfloat16"):
        legal(DENSE, (128, 64, 16), 3, "float16", "float32")


@pytest.mark.parametrize(
    "spelling, allowed",
    [
        ("mxf8f6f4.block_scale", {"float8_e8m0fnu"}),
        ("mxf4.block_scale", {"float8_e8m0fnu"}),
        ("mxf4nvf4.block_scale.scale_vec::2X", {"float8_e8m0fnu"}),
        ("mxf4nvf4.block_scale.block32", {"float8_e8m0fnu"}),
        ("mxf4nvf4.block_scale.scale_vec::4X", {"float8_e8m0fnu", "float8_e4m3fn"}),  # OQ12
        ("mxf4nvf4.block_scale.block16", {"float8_e8m0fnu", "float8_e4m3fn"}),
        ("f16", set()),
    ],
)
def test_scale_formats(spelling, allowed):
    opcode = Opcode.parse(f"tcgen05.mma.cta_group::1.kind::{spelling}")
    args = opcode, (128, 64, DENSE_K[opcode.kind]), *SOME_FORMATS[opcode.kind]
    names = ("float8_e8m0fnu", "float8_e4m3fn", "float8_e5m2", "float32", "uint8")
    assert {s for s in names if is_legal(*args, scale_format=s)} == allowed


# (opcode, formats, keyword arguments, parts of the message): what was given and what is allowed.
REFUSALS = [
    ("f16", ("bfloat16", "float16", "float16"), {}, ["d_format: got 'float16'", "float32", "bfloat16"]),
    ("tf32", ("float32", "tf32", "float32"), {}, ["a_format: got 'float32'", "allowed: tf32", "asked for"]),
    ("f8f6f4", ("float8_e4m3fnuz", "float8_e5m2", "float32"), {}, ["float8_e4m3fnuz", "float8_e4m3fn"]),
    ("i8", ("int8", "int8", "float32"), {}, ["d_format: got 'float32'", "allowed: int32"]),
    ("f16", F16, {"a_major": "m"}, ["a_major: got 'm'", "'k', 'mn'"]),
    ("f16", F16, {"a_major": "mn", "a_in_tmem": True}, ["a_major: got 'mn'", "'k'", "TMEM", "descriptor"]),
    ("f8f6f4", ("float6_e2m3fn", "float8_e5m2", "float32"), {"a_major": "mn"}, ["a_major", "float6_e2m3fn"]),
    ("f8f6f4", ("float8_e5m2", "float4_e2m1fn", "float32"), {"b_major": "mn"}, ["b_major", "float4_e2m1fn"]),
    ("mxf4", SOME_FORMATS["mxf4"], {"b_major": "mn"}, ["b_major: got 'mn'", "'k'"]),
    ("i8", SOME_FORMATS["i8"], {"neg_a": True}, ["neg_a: got True", "False", "i8"]),
    ("i8", SOME_FORMATS["i8"], {"neg_b": True}, ["neg_b: got True", "False", "i8"]),
    ("f16", F16, {"sat_d": True}, ["sat_d: got True", "False", "only kind i8", "f16"]),
    ("f16", F16, {"neg_a": 1}, ["neg_a: got 1", "True, False"]),
    ("f16", F16, {"target": "sm_90a"}, ["target: got 'sm_90a'", "sm_100a", "sm_110f"]),
    ("f16", F16, {"scale_format": "float8_e8m0fnu"}, ["scale_format: got 'float8_e8m0fnu'", "no scales"]),
    ("mxf4", SOME_FORMATS["mxf4"], {"scale_format": "float8_e4m3fn"}, ["scale_format", "float8_e8m0fnu"]),
]


@pytest.mark.parametrize("kind, formats, keywords, parts", REFUSALS)
def test_refusals(kind, formats, keywords, parts):
    with pytest.raises(ValueError) as error:
        legal(opcode_for(kind), (128, 64, DENSE_K[kind]), *formats, **keywords)
    for part in parts:
        assert part in str(error.value)


def test_what_negates_and_saturates():
    for kind in DENSE_K:
        args = opcode_for(kind), (128, 64, DENSE_K[kind]), *SOME_FORMATS[kind]
        assert is_legal(*args, neg_a=True, neg_b=np.True_) == (kind != "i8")
        assert is_legal(*args, sat_d=True) == (kind == "i8")


def test_targets():
    """pitfall B41: i8 on sm_100a and sm_110a only; scale_vec::NX on chips, not families."""
    families = ("sm_100f", "sm_103f", "sm_107f", "sm_110f")
    chips = ("sm_100a", "sm_103a", "sm_107a", "sm_110a")
    i8, f16 = opcode_for("i8"), opcode_for("f16")
    assert isa.targets_of(i8) == ("sm_100a", "sm_110a")
    assert set(isa.targets_of(f16)) == {*families, *chips}
    nx = Opcode.parse("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X")
    assert isa.targets_of(nx) == chips
    for target in (*families, "sm_103a", "sm_107a", "sm_100", "sm_120a"):
        with pytest.raises(ValueError, match=f"target: got '{target}'; allowed: .*sm_100a"):
            legal(i8, (128, 64, 32), "int8", "int8", "int32", target=target)


def test_k96():
    """pitfall B25: six or three scales, blockNN spellings, sm_103a and sm_107a."""
    fp4 = ("float4_e2m1fn", "float4_e2m1fn", "float32")
    base = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale"
    for target in ("sm_103a", "sm_107a"):
        assert legal(f"{base}.block16", (128, 64, 96), *fp4, target=target) is None
    with pytest.raises(ValueError, match=r"target: got 'sm_100a'; allowed: sm_103a, sm_107a \(K=96"):
        legal(f"{base}.block16", (128, 64, 96), *fp4)
    with pytest.raises(ValueError, match=r"K: got 96; allowed: 64 .*K = 4 scales \* 16"):
        legal(f"{base}.scale_vec::4X", (128, 64, 96), *fp4, target="sm_103a")
    with pytest.raises(ValueError, match=r"K=96.*sm_103a"):
        isa.check_offered(Opcode.parse(f"{base}.block16"), 96)
    assert isa.check_offered(Opcode.parse(f"{base}.block16"), 64) is None


def test_not_offered():
    for modifier in ("sp", "ashift"):
        with pytest.raises(ValueError, match=rf"got '\.{modifier}'.*not offered by mma"):
            isa.check_offered(Opcode.parse(f"tcgen05.mma.cta_group::1.kind::f16.{modifier}"), 16)


def test_ashift_needs_tmem_and_m():
    opcode = Opcode(1, "f16", ashift=True)
    assert is_legal(opcode, (128, 64, 16), *F16, a_in_tmem=True)
    assert not is_legal(opcode, (128, 64, 16), *F16)
    assert not is_legal(opcode, (64, 64, 16), *F16, a_in_tmem=True)


@pytest.mark.parametrize(
    "keywords, parts",
    [
        ({"storage": {"d": "tmem", "a": "shared", "b": "tmem"}}, ["b: got 'tmem'", "allowed: shared"]),
        ({"storage": {"d": "shared", "a": "shared", "b": "shared"}}, ["d: got 'shared'", "allowed: tmem"]),
        ({"storage": {"d": "tmem", "b": "shared"}}, ["a: got 'nothing'", "shared, tmem"]),
        ({"lane_mask_words": 8}, ["disable_output_lane: got '8 words'", "4 words", "cta_group::1"]),
        ({"zero_column_mask": True}, ["zero_column_mask", "only .ws"]),
        ({"scale_input_d": 16}, ["scale_input_d: got 16", "0..15"]),
    ],
)
def test_operand_refusals(keywords, parts):
    good = {"storage": {"d": "tmem", "a": "shared", "b": "shared"}}
    opcode = Opcode.parse(DENSE)
    check_operands(opcode, **good)
    with pytest.raises(ValueError) as error:
        check_operands(opcode, **(good | keywords))
    for part in parts:
        assert part in str(error.value)


# ---------------------------------------------------------------------------------------------------------
# Tables.


def test_instruction_table():
    table = isa.instruction_table()
    assert len(set(table)) == len(table)
    for row in table:
        formats = row.a_format, row.b_format, row.d_format
        keywords = {
            "scale_format": row.scale_format,
            "a_in_tmem": row.a_in_tmem,
            "a_major": row.a_major,
            "b_major": row.b_major,
        }
        for shape in (row.instruction_shapes[0], row.instruction_shapes[-1]):
            for target in row.targets:
                assert legal(row.opcode, shape, *formats, **keywords, target=target) is None
        assert not is_legal(row.opcode, (row.M, 260, row.K), *formats, **keywords, target=row.targets[0])


def test_instruction_table_is_complete():
    """Counts by hand: rows without `.sp` and K=96 are formats x majors x M, per form."""
    rows = Counter(
        (r.opcode.kind, r.opcode.cta_group, r.opcode.ws, r.opcode.scale_vec, r.a_in_tmem)
        for r in isa.instruction_table()
        if not r.opcode.sp and r.K != 96
    )
    # f16: 5 format triples, 4 majors (2 with A in TMEM), 2 M (3 with .ws).
    assert rows["f16", 1, False, None, False] == 5 * 4 * 2
    assert rows["f16", 2, False, None, True] == 5 * 2 * 2
    assert rows["f16", 1, True, None, False] == 5 * 4 * 3
    assert rows["i8", 1, True, None, True] == 4 * 2 * 3
    # f8f6f4: 2 of 5 formats may be MN-major, so 7 (format, major) choices a side; D float32 or float16.
    assert rows["f8f6f4", 1, False, None, False] == 7 * 7 * 2 * 2
    assert rows["f8f6f4", 1, False, None, True] == 5 * 7 * 2 * 2
    assert rows["mxf8f6f4", 2, False, "1X", False] == 7 * 7 * 2
    assert rows["mxf4", 1, False, None, False] == 1
    assert rows["mxf4nvf4", 2, False, "4X", True] == 2 * 2
    forms = {key[:4] for key in rows}
    assert len(forms) == 4 * 3 + 2 * (3 + 3 + 4)
    first = next(r for r in isa.instruction_table() if r.opcode.kind == "f16")
    assert set(first.N) == steps(8)
    assert first.instruction_shapes[0] == (first.M, 8, 16)


@pytest.mark.parametrize(
    "m, g, ws, sp, letter, rows, fold",
    [
        (256, 2, False, False, "A", 128, 1),
        (128, 2, False, False, "B", 64, 2),
        (128, 2, False, True, "C", 64, 1),
        (128, 1, False, False, "D", 128, 1),
        (128, 1, True, False, "D", 128, 1),
        (64, 1, True, False, "E", 64, 2),
        (64, 1, False, False, "F", 64, 1),
        (32, 1, True, False, "G", 32, 4),
    ],
)
def test_datapath(m, g, ws, sp, letter, rows, fold):
    path = isa.datapath(m, g, ws, sp)
    assert (path.letter, path.rows, path.fold) == (letter, rows, fold)
    assert path.base_lanes == ((0, 16) if letter in "CF" else (0,))
    assert path.bank_axis == {"E": "required", "G": "required", "B": "optional"}.get(letter, "no")
    assert isa.datapath_letter(m, g, ws, sp) == letter


@pytest.mark.parametrize("m, g, ws, allowed", [(32, 1, False, "64, 128"), (64, 2, False, "128, 256")])
def test_no_datapath(m, g, ws, allowed):
    with pytest.raises(ValueError, match=f"M: got {m}; allowed: {allowed}"):
        isa.datapath(m, g, ws)


def test_containers():
    expected = {32: ("float32", "int32", "uint32"), 16: ("float16", "bfloat16"), 4: ("float4_e2m1fn",)}
    expected[8] = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
    for bits, names in expected.items():
        for name in names:
            assert isa.container_bits(name) == bits
            assert isa.container_bits(np.dtype(name)) == bits
    assert isa.container_bits(ml_dtypes.bfloat16) == 16
    for name in ("float6_e2m3fn", "float6_e3m2fn"):
        with pytest.raises(ValueError, match=f"dtype: got '{name}'.*no container: use uint8"):
            isa.container_bits(name)
    with pytest.raises(ValueError, match="dtype: got 'float64'; allowed: float32, int32"):
        isa.container_bits(np.float64)
    with pytest.raises(TypeError, match="dtype: got"):
        isa.container_bits(object())


@pytest.mark.parametrize(
    "format_, kind, container",
    [
        ("float6_e2m3fn", "f8f6f4", "uint8"),
        ("float4_e2m1fn", "mxf8f6f4", "uint8"),
        ("float4_e2m1fn", "mxf4", "float4_e2m1fn"),
        ("float4_e2m1fn", "mxf4nvf4", "float4_e2m1fn"),
        ("tf32", "tf32", "float32"),
        ("float8_e5m2", "f8f6f4", "float8_e5m2"),
    ],
)
def test_container_of_a_format(format_, kind, container):
    assert isa.FORMATS[format_].container(kind) == container


def test_widths_match_ml_dtypes():
    for name, format_ in isa.FORMATS.items():
        if name == "tf32":
            continue
        info = ml_dtypes.iinfo(name) if format_.integer else ml_dtypes.finfo(name)
        assert info.bits == format_.bits


def test_32_bytes_a_step():
    for name, kind in isa.KINDS.items():
        for format_ in kind.formats:
            container = isa.FORMATS[format_].container(name)
            assert kind.k * isa.container_bits(container) == 8 * isa.ROW_BYTES, (name, format_)
