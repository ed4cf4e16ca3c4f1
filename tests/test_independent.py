"""`mma` against the tests' own slow implementation, bit for bit, over every form of the instruction.

`slow_mma` gets the encoded descriptors and placements of the Plan and shares no code with the package, so a fault must
be made twice to pass. Data are near-equal exponents with a few arbitrary bit patterns, junk (mostly NaN) around
the operands and an arbitrary D. On small integers the same calls must equal `reference.mma`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import calls
import jax
import numpy as np
import pytest
import slow_mma
from calls import Form

import jax_tcgen05 as tc

F8 = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")


def named(forms: Iterator[Form] | list[Form]) -> list[Any]:
    """pytest parameters with a name that tells a form from its neighbours."""
    out = []
    for form in forms:
        given = {
            k: v
            for k, v in vars(form).items()
            if v != Form.__dataclass_fields__[k].default and k != "options"
        }
        parts = [form.kind, f"{form.M}x{form.N}"]
        parts += [f"{k}={v}" for k, v in given.items() if v not in ({}, None) and k not in ("kind", "M", "N")]
        if form.a_swizzle is None:
            parts.append("a=tmem")
        parts += [f"{k}={v}" for k, v in form.options.items()]
        out.append(pytest.param(form, id="-".join(parts).replace(" ", "")))
    return out


def expected(args: calls.Arguments, **controls: Any) -> np.ndarray:
    """The slow implementation's D for the same call."""
    options = {**args.options, **controls}
    columns = options.get("zero_column_mask")
    if isinstance(columns, int):
        columns = np.array([columns & 0xFFFFFFFF, columns >> 32], np.uint32)
    lanes = options.get("disable_output_lane")
    return slow_mma.run(
        args.plan().attributes(),
        args.leaves,
        accum=np.asarray(options.get("accum", False)),
        pred=np.asarray(options.get("pred", True)),
        lane_mask=None if lanes is None else np.asarray(lanes, np.uint32),
        column_mask=columns,
    )


def bits(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def check(form: Form, seed: int = 1, style: str = "mixed", arrays: Any = None, **controls: Any) -> np.ndarray:
    """Asserts equal bits; returns D's leaf."""
    args = calls.place(form, arrays or calls.random_arrays(form, seed, style))
    got = np.asarray(args.mma(**controls).leaf)
    want = expected(args, **controls)
    wrong = np.argwhere(bits(got) != bits(want))
    assert not len(wrong), (
        f"{len(wrong)} of {got.size} differ, first at {wrong[0]} of {got.shape}\n{args.plan()}"
    )
    if style == "mixed" and got.dtype != np.int32:  # the comparison would be empty with NaN everywhere
        assert (
            np.isfinite(np.asarray(args.operands["d"].with_leaf(got).array).astype(np.float32)).mean() > 0.2
        )
    assert (bits(got) != bits(args.operands["d"].leaf)).any()
    return got


# Forms


def dense() -> Iterator[Form]:
    """Layouts D, F, A, B; N from 8 to 256; repeats; every format."""
    for n in (8, 24, 72, 256):
        yield Form(M=64, N=n)
        yield Form(M=128, N=n, b_format="bfloat16", a_format="bfloat16")
    for n in (16, 48, 256):
        yield Form(M=128, N=n, group=2, a_format="float16", b_format="bfloat16")
        yield Form(M=256, N=n, group=2)
    yield Form(d_format="float16", repeats=(1, 2, 2), skip={"d": 1})
    yield Form(d_format="float16", M=256, N=32, group=2, repeats=(1, 1, 2))
    yield Form(M=64, N=40, repeats=(2, 3, 2), skip={"a": 2, "b": 1, "d": 1})
    yield Form(M=128, N=32, group=2, repeats=(2, 2, 3), skip={"d": 2})
    yield Form("tf32", 64, 24, repeats=(1, 2, 3))
    yield Form("tf32", 256, 32, group=2)
    yield Form("i8", 128, 48, a_format="uint8", repeats=(1, 1, 3))
    yield Form("i8", 64, 24, b_format="uint8")
    yield Form("i8", 128, 64, group=2)
    for index, a in enumerate(F8):
        yield Form("f8f6f4", 64, 16, a_format=a, b_format=F8[(index + 2) % 5], repeats=(1, 2, 2))
        yield Form("f8f6f4", 128, 32, group=2, a_format=a, b_format=F8[(index + 4) % 5], d_format="float16")


def walks() -> Iterator[Form]:
    """Majors and swizzles of A and B, by element width."""
    for mode in range(4):
        steps = 1 << max(mode - 1, 0)
        for kind, fmt in (
            ("f16", ""),
            ("tf32", ""),
            ("f8f6f4", "float8_e5m2"),
            ("f8f6f4", F8[3]),
            ("f8f6f4", F8[4]),
        ):
            other = (mode + 2) % 4
            whole = max(steps, 1 << max(other - 1, 0))
            yield Form(kind, 64, 24, fmt, fmt, a_swizzle=mode, b_swizzle=other, repeats=(1, 2, whole))
        yield Form("mxf4", 128, 40, a_swizzle=mode, b_swizzle=3 - mode, repeats=(1, 2, 4))
        for m, n, group in ((64, 64, 1), (256, 256, 2)):
            mn = {"a_swizzle": mode, "b_swizzle": mode, "repeats": (1, 1, 2), "group": group}
            yield Form("f16", m, n, a_major="mn", b_major="mn", skip={"a": 1, "b": 2}, **mn)
            yield Form("f16", m, n, a_major="mn", **mn)
            if group * mode < 6:
                yield Form("i8", 128, 128 * group, b_major="mn", **mn)
                yield Form(
                    "mxf8f6f4",
                    128 * group,
                    128,
                    a_major="mn",
                    a_format="float8_e5m2",
                    **{**mn, "b_swizzle": 2},
                )
    # One K step into a 128-byte row, and past its panel.
    yield Form("f16", 128, 64, a_swizzle=3, b_swizzle=3, repeats=(1, 1, 3), skip={"a": 1, "b": 1})
    yield Form("f16", 128, 16, a_swizzle=3, b_swizzle=2, repeats=(2, 3, 8))
    for m, n in ((64, 32), (128, 96)):
        yield Form("tf32", m, n, a_swizzle=4, b_swizzle=4, a_major="mn", b_major="mn", repeats=(2, 2, 2))
    yield Form("tf32", 256, 64, group=2, a_swizzle=4, a_major="mn", b_swizzle=1, skip={"a": 3})
    yield Form("tf32", 64, 64, a_swizzle=1, b_swizzle=4, b_major="mn", skip={"b": 1})


def a_in_tmem() -> Iterator[Form]:
    """Layouts D, F, A, B (copied and banked), E, G; every packing."""
    tmem = {"a_swizzle": None, "repeats": (1, 2, 2), "skip": {"a": 1, "d": 1}}
    for m, group, banked in (
        (64, 1, False),
        (128, 1, False),
        (256, 2, False),
        (128, 2, False),
        (128, 2, True),
    ):
        for kind, fmt in (("f16", ""), ("tf32", ""), ("f8f6f4", "float8_e4m3fn"), ("i8", "")):
            yield Form(kind, m, 32, fmt, fmt, group=group, banked=banked, **tmem)
    for fmt in ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"):
        yield Form("f8f6f4", 64, 16, fmt, **tmem)
        yield Form("mxf8f6f4", 128, 24, fmt, **tmem)
    yield Form("mxf4", 128, 24, **tmem)
    yield Form("mxf4nvf4", 256, 48, scale="block16", group=2, packed_arrays=True, **tmem)
    for kind, fmt in (("mxf8f6f4", F8[2]), ("mxf4", "")):
        yield Form(kind, 128, 48, fmt, group=2, banked=True, **tmem)
    for m in (32, 64, 128):
        for kind, fmt in (("f16", "bfloat16"), ("tf32", ""), ("f8f6f4", "float6_e3m2fn"), ("i8", "uint8")):
            yield Form(kind, m, 64, fmt, ws=True, **tmem)
    yield Form("tf32", 64, 16, a_swizzle=None, slab=1)


def weight_stationary() -> Iterator[Form]:
    """`.ws`: layouts D, E, G with A in shared memory."""
    for m in (32, 64, 128):
        yield Form("f16", m, 64, ws=True, repeats=(1, 2, 2), skip={"d": 1})
        yield Form("f16", m, 128, ws=True, d_format="float16")
        yield Form("f8f6f4", m, 256, ws=True, a_format="float4_e2m1fn", b_format="float8_e5m2")
        yield Form("tf32", m, 64, ws=True, repeats=(2, 1, 1))
        yield Form("i8", m, 64, ws=True)


def block_scaled() -> Iterator[Form]:
    """Scale vectors, formats, ids (different for A and B), N no multiple of 32, pairs."""
    ue4m3 = "float8_e4m3fn"
    for index, n in enumerate((8, 40, 72, 200, 256)):
        a, b = F8[index], F8[(3 * index + 1) % 5]
        yield Form(
            "mxf8f6f4", 128, n, a, b, repeats=(1, 1, 3), skip={"sfa": index % 4, "sfb": (index + 2) % 3}
        )
    for skip_a, skip_b in ((0, 1), (1, 0), (1, 2), (3, 2)):
        skip = {"sfa": skip_a, "sfb": skip_b}
        yield Form("mxf8f6f4", 128, 24, "float8_e5m2", scale="scale_vec::1X", skip=skip)
        yield Form("mxf4", 128, 24, scale="block32", skip=skip, repeats=(1, 2, 2))
        yield Form("mxf4nvf4", 128, 136, scale="scale_vec::2X", skip=skip)
        yield Form("mxf4nvf4", 128, 8, scale="scale_vec::4X", scale_format=ue4m3, skip=skip)
    yield Form("mxf4nvf4", 128, 56, scale="block16", repeats=(2, 2, 2), skip={"sfb": 3})
    yield Form("mxf4", 128, 104, scale="scale_vec::2X", packed_arrays=True)
    for m in (128, 256):
        yield Form("mxf8f6f4", m, 48, group=2, repeats=(2, 2, 2), skip={"sfa": 1})
        yield Form("mxf8f6f4", m, 80, "float6_e2m3fn", F8[1], group=2, shared_sfb=True, repeats=(1, 1, 5))
        yield Form("mxf4nvf4", m, 208, group=2, scale="block16", scale_format=ue4m3, skip={"sfb": 1})
        yield Form("mxf4", m, 16, group=2, skip={"sfa": 1, "sfb": 2}, repeats=(1, 2, 3))


def modified() -> Iterator[Form]:
    """Negation and saturation."""
    for kind, m in (("f16", 64), ("tf32", 64), ("f8f6f4", 64), ("mxf8f6f4", 128), ("mxf4", 128)):
        yield Form(kind, m, 16, options={"neg_a": True})
        yield Form(kind, m, 16, options={"neg_b": True, "accum": True})
        yield Form(kind, m, 16, options={"neg_a": True, "neg_b": True})
    yield Form("i8", 64, 16, options={"sat_d": True, "accum": True}, repeats=(1, 1, 2))


GROUPS = (dense, walks, a_in_tmem, weight_stationary, block_scaled, modified)
ALL = [form for group in GROUPS for form in group()]


@pytest.mark.parametrize("form", named(ALL))
def test_same_bits(form: Form) -> None:
    """accum off overwrites a junk D, on adds to it."""
    if "accum" in form.options:
        check(form)
    else:
        check(form, accum=len(named([form])[0].id) % 2 == 0)


@pytest.mark.parametrize("form", named([*ALL[::2], *(form for form in ALL if form.banked)]))
def test_same_value_as_the_reference(form: Form) -> None:
    """Small integers are exact in every format and sum, so `reference.mma` has the same values."""
    args = calls.place(form, calls.random_arrays(form, 2, "small"))
    accum = form.options.get("accum", True)
    got, want = (
        np.asarray(x.leaf).astype(np.float64) for x in (args.mma(accum=accum), args.reference(accum=accum))
    )
    np.testing.assert_array_equal(got, want)


def spaced_layout(
    container: str, rows: int, k: int, major: str, descriptor: tuple[int, int, int]
) -> tc.TileLayout:
    """The layout (rows, K) of one operand that a descriptor walks, written out (ptx_contract 5.2)."""
    ldo, sdo, mode = descriptor
    per_byte = 8 / (4 if container == "float4_e2m1fn" else calls.BITS[container])
    row_bytes, group = (128, 4) if mode == 4 else (16 << mode, 8)
    span = int(row_bytes * per_byte)
    line, along = (rows, k) if major == "k" else (k, rows)
    piece_step, group_step = (sdo, ldo) if major == "mn" and mode == 0 else (ldo, sdo)
    lines = (line // group, group), (int(group_step * per_byte), span)
    pieces = (-(-along // span), min(along, span)), (int(piece_step * per_byte), 1)
    first, second = (lines, pieces) if major == "k" else (pieces, lines)
    layout = tc.S[(first[0], second[0]) : (first[1], second[1])]
    swizzled_bits = {0: 0, 1: 1, 2: 2, 3: 3, 4: 2}[mode]
    low = int((32 if mode == 4 else 16) * per_byte).bit_length() - 1
    return layout.compose(tc.Swizzle(low, swizzled_bits, 2 if mode == 4 else 3)) if mode else layout


SPACED = [  # kind, A's and B's format, major, descriptor: strides that packed layouts do not have
    ("f16", "float16", "k", (128, 256, 0)),  # the two 16-byte columns of a row side by side
    ("f8f6f4", "float8_e5m2", "k", (2320, 144, 0)),
    ("f8f6f4", "float6_e2m3fn", "k", (16, 768, 2)),
    ("f16", "bfloat16", "k", (16, 2048, 3)),
    ("tf32", "tf32", "k", (48, 512, 1)),
    ("mxf4", "float4_e2m1fn", "k", (16, 1024, 2)),
    ("f16", "float16", "mn", (4096, 144, 0)),
    ("f16", "float16", "mn", (512, 4352, 1)),  # pieces closer than groups
    ("i8", "int8", "mn", (4096, 512, 2)),
    ("f16", "float16", "mn", (4096, 2048, 3)),
    ("tf32", "tf32", "mn", (2048, 1024, 4)),
    ("tf32", "tf32", "mn", (512, 2048, 4)),
]


@pytest.mark.parametrize(("kind", "fmt", "major", "descriptor"), SPACED)
def test_strides_of_any_size(kind: str, fmt: str, major: str, descriptor: tuple[int, int, int]) -> None:
    form = Form(kind, 128, 64, fmt, fmt)
    arrays = calls.random_arrays(form)
    packed = calls.place(form, arrays)
    operands, options = dict(packed.operands), dict(packed.options)
    for name in ("a", "b"):
        rows, k = form.shape(name)[-2:]
        layout = spaced_layout(form.container(name), rows, k, major, descriptor)
        operands[name] = tc.shared(arrays[name][0, 0], layout).view(1, 1, rows, k)
        options |= {f"{name}_descriptor": descriptor, f"{name}_major": major}
    args = calls.Arguments(form, operands, options)
    got = bits(args.mma().leaf)
    np.testing.assert_array_equal(got, bits(expected(args)))
    np.testing.assert_array_equal(got, bits(packed.mma().leaf))


def random_form(seed: int) -> Form:
    """A form drawn from the table of legal instructions, its storage drawn too."""
    rng = np.random.default_rng([7, seed])
    rows = [r for r in tc.instruction_table() if not r.opcode.sp and r.K != 96 and "sm_100a" in r.targets]
    kinds = sorted({(r.opcode.kind, r.opcode.ws, r.opcode.cta_group) for r in rows})
    kind = kinds[seed % len(kinds)]
    rows = [r for r in rows if (r.opcode.kind, r.opcode.ws, r.opcode.cta_group) == kind]
    row = rows[rng.integers(len(rows))]
    op, tf32 = row.opcode, row.a_format == "tf32"
    b_unit = 32 * op.cta_group if tf32 and row.b_major == "mn" else 1
    n = int(rng.choice([n for n in row.N if n % b_unit == 0]))

    def swizzle(major: str, atom_rows: int, fmt: str) -> int:
        if major == "k":
            return int(rng.integers(4))
        if tf32:
            return 4
        unit = {mode: (16 << mode) * 8 // calls.BITS[fmt] for mode in range(4)}
        return int(rng.choice([mode for mode in range(4) if atom_rows % unit[mode] == 0]))

    tiles = 2 if n <= 96 and rng.random() < 0.5 else 1
    k_repeat = int(rng.integers(1, 5))
    # A slice that begins inside a panel may not run past its end, so skips go with packed or single steps.
    a_swizzle = None if row.a_in_tmem else swizzle(row.a_major, row.M // op.cta_group, row.a_format)
    b_swizzle = swizzle(row.b_major, n // op.cta_group, row.b_format)
    loose = {
        "a": a_swizzle in (None, 0, 1) or row.a_major == "mn" or k_repeat == 1,
        "b": b_swizzle in (0, 1) or row.b_major == "mn" or k_repeat == 1,
        "d": n <= 96,  # within the columns of TMEM
        "sfa": k_repeat == 1,
        "sfb": k_repeat == 1,
    }
    skip = {name: int(rng.integers(3)) if fits else 0 for name, fits in loose.items()}
    spelled = op.scale_vec or ""
    return Form(
        op.kind, row.M, n, row.a_format, row.b_format, row.d_format, op.cta_group, op.ws, (1, tiles, k_repeat),
        a_swizzle, b_swizzle, row.a_major, row.b_major,
        banked=row.a_in_tmem and (row.M, op.cta_group) == (128, 2) and rng.random() < 0.5,
        scale=f"scale_vec::{spelled}" if spelled.endswith("X") else spelled,
        scale_format=row.scale_format or "float8_e8m0fnu", skip=skip,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_random_forms(seed: int) -> None:
    form = random_form(seed)
    check(form, seed, accum=seed % 2 == 0)


RAW = [
    Form("f16", 128, 64),
    Form("f16", 64, 64, "bfloat16", "bfloat16", repeats=(1, 1, 2)),
    Form("f16", 64, 64, d_format="float16"),
    Form("tf32", 128, 64, repeats=(1, 1, 2)),
    Form("i8", 128, 64, repeats=(1, 1, 2), options={"sat_d": True}),
    *(Form("f8f6f4", 64, 16, a, b) for a in F8 for b in F8),
    *(Form("f8f6f4", 64, 8, a, F8[(i + 1) % 5], d_format="float16") for i, a in enumerate(F8)),
    *(Form("mxf8f6f4", 128, 8, a, b) for a in F8 for b in F8),
    Form("mxf4", 128, 64, repeats=(1, 1, 2)),
    Form("mxf4nvf4", 128, 64, scale="block16"),
    Form("mxf4nvf4", 128, 64, scale="block32"),
    Form("mxf4nvf4", 128, 64, scale="block16", scale_format="float8_e4m3fn"),
]


@pytest.mark.parametrize("form", named(RAW))
def test_arbitrary_bits(form: Form) -> None:
    """NaN, infinities, subnormals and extreme exponents in every operand, scale and addend."""
    check(form, style="raw", accum=True)


def test_saturation_near_the_limits() -> None:
    form = Form("i8", 64, 16, options={"sat_d": True}, repeats=(1, 1, 3))
    arrays = calls.random_arrays(form)
    limits = np.random.default_rng(5).integers(-300000, 300000, arrays["d"].shape)
    arrays["d"] = np.where(limits < 0, 2**31 + limits, limits - 2**31).astype(np.int32)
    got = check(form, arrays=arrays, accum=True)
    assert (got == 2**31 - 1).any() and (got == -(2**31)).any()
    unsaturated = check(Form("i8", 64, 16, repeats=(1, 1, 3)), arrays=arrays, accum=True)
    assert (got != unsaturated).any()


# Batches, controls, masks

BATCHED = [
    Form("f16", 64, 16, batch=(3,), repeats=(1, 2, 2)),
    Form("f16", 128, 16, batch=(2, 3), broadcast=("a",)),
    Form("tf32", 128, 32, group=2, batch=(3,), broadcast=("b",), repeats=(1, 1, 2)),
    Form("f8f6f4", 32, 64, ws=True, batch=(2, 2), broadcast=("a", "b"), a_swizzle=None),
    Form("mxf8f6f4", 128, 24, batch=(3,), broadcast=("sfa",)),
    Form("mxf4", 128, 48, group=2, batch=(2,), broadcast=("sfb", "a"), shared_sfb=True),
]


@pytest.mark.parametrize("form", named(BATCHED))
def test_batches(form: Form) -> None:
    """accum and pred of the batch's shape; where pred is false D keeps its bits."""
    rng = np.random.default_rng(3)
    accum, pred = rng.random(form.batch) < 0.5, rng.random(form.batch) < 0.7
    pred[(0,) * pred.ndim], pred[(-1,) * pred.ndim] = True, False
    got = check(form, accum=accum, pred=pred)
    last = (slice(None), *(-1,) * pred.ndim) if form.group == 2 else (-1,) * pred.ndim
    before = calls.random_arrays(form, 1)["d"]
    np.testing.assert_array_equal(bits(got[last]), bits(before[last]))


def test_traced_controls() -> None:
    """The same under jit with accum, pred and the mask traced."""
    form = Form("f16", 64, 16, batch=(3,))
    args = calls.place(form, calls.random_arrays(form))
    controls = {"accum": np.array([True, False, True]), "pred": np.array([True, True, False])}
    controls["disable_output_lane"] = np.random.default_rng(0).integers(0, 1 << 32, (3, 4), dtype=np.uint32)

    @jax.jit
    def run(operands: Any, controls: Any) -> tc.PlacedOperand:
        return tc.mma(form.opcode, *operands, **args.options, **controls)

    got = run(list(args.operands.values()), controls)
    np.testing.assert_array_equal(bits(got.leaf), bits(expected(args, **controls)))


LANES = [
    Form("f16", 64, 16),
    Form("f16", 128, 16, repeats=(1, 2, 2)),
    Form("tf32", 64, 16, slab=1, a_swizzle=None),
    Form("f16", 128, 32, group=2, a_swizzle=None, banked=True),
    Form("i8", 256, 32, group=2),
]


@pytest.mark.parametrize("form", named(LANES))
@pytest.mark.parametrize("seed", [0, 1])
def test_lane_masks(form: Form, seed: int) -> None:
    words = np.random.default_rng(seed).integers(0, 1 << 32, 4 * form.group, dtype=np.uint32)
    masked = check(form, accum=seed == 0, disable_output_lane=[int(w) for w in words])
    assert (bits(masked) != bits(check(form, accum=seed == 0))).any()


@pytest.mark.parametrize("form", named([*BATCHED, *LANES]))
def test_reference_with_controls(form: Form) -> None:
    """Batches, accum, pred and lane masks in `reference.mma`."""
    rng = np.random.default_rng(4)
    controls = {"accum": rng.random(form.batch) < 0.5, "pred": rng.random(form.batch) < 0.6}
    if not (form.ws or form.scaled):
        shape = (*form.batch, 4 * form.group)
        controls["disable_output_lane"] = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    args = calls.place(form, calls.random_arrays(form, 2, "small"))
    got, want = (np.asarray(x.leaf) for x in (args.mma(**controls), args.reference(**controls)))
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def column_mask(first: list[int], counts: list[int], skip: int, use: int) -> int:
    """A zero-column mask by its bit fields (ptx_contract 9); skip and use are numbers of columns."""
    word = sum(count << 8 * i for i, count in enumerate(counts)) | sum(
        bit << 32 + i for i, bit in enumerate(first)
    )
    return word | 1 << 39 | (skip - 1) << 40 | (use - 1) << 48


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4", "i8"])
def test_zero_column_masks(kind: str, m: int) -> None:
    banks = 128 // m
    mask = column_mask([1, 0, 1, 0][:banks], [0, 2, 1, 4][:banks], 3, 5)
    form = Form(kind, m, 64, ws=True, a_swizzle=None if kind == "f16" else 0)
    zeroed = check(form, accum=True, zero_column_mask=mask)
    assert (bits(zeroed) != bits(check(form, accum=True))).any()
    check(form, zero_column_mask=mask & ~(1 << 39))  # not enabled: the rest is ignored
    args = calls.place(form, calls.random_arrays(form, 2, "small"))
    got, want = (
        np.asarray(x.array) for x in (args.mma(zero_column_mask=mask), args.reference(zero_column_mask=mask))
    )
    np.testing.assert_array_equal(got, want)


def test_zero_column_masks_by_batch() -> None:
    form = Form("f16", 32, 64, ws=True, batch=(3,))
    masks = [
        column_mask([1, 1, 0, 0], [0, 1, 2, 3], 4, 7),
        0,
        column_mask([0, 0, 0, 1], [5, 0, 1, 9], 200, 256),
    ]
    check(form, zero_column_mask=np.array([[x & 0xFFFFFFFF, x >> 32] for x in masks], np.uint32))


@pytest.mark.parametrize(
    ("first", "count", "zeroed"),
    [
        (1, 0, {0, 1, 2, 7, 8, 9, 14, 15}),  # zeroed 0-2, used 3-6, zeroed 7-9, ...
        (1, 1, {0, 1, 6, 7, 8, 13, 14, 15}),  # zeroed 0-1, used 2-5
        (0, 2, {2, 3, 4, 9, 10, 11}),  # used 0-1, zeroed 2-4
        (0, 1, {3, 4, 5, 10, 11, 12}),  # used 0-2, zeroed 3-5
    ],
)
def test_zero_columns_by_hand(first: int, count: int, zeroed: set[int]) -> None:
    """The PTX ISA's fourth example (M=32, skip 2, use 3; spans of 3 and 4): in each bank of 16 of 64 columns."""
    form = Form("f16", 32, 64, ws=True)
    ones = {"a": np.ones(form.shape("a"), np.float16), "b": np.ones(form.shape("b"), np.float16)}
    args = calls.place(form, ones | {"d": np.full(form.shape("d"), 7, np.float32)})
    mask = column_mask([first] * 4, [count] * 4, 3, 4)
    wanted = np.array([0 if j % 16 in zeroed else 16 for j in range(64)], np.float32)
    got = np.asarray(args.mma(zero_column_mask=mask).array)[0, 0]
    np.testing.assert_array_equal(got, np.broadcast_to(wanted, (32, 64)))
    added = np.asarray(args.mma(zero_column_mask=mask, accum=True).array)[0, 0]
    np.testing.assert_array_equal(added, np.broadcast_to(wanted + 7, (32, 64)))


def test_the_slow_implementation_is_independent() -> None:
    """It imports NumPy and the standard library only."""
    for module in (slow_mma, slow_mma.numerics):
        names = {getattr(x, "__module__", None) or getattr(x, "__name__", "") for x in vars(module).values()}
        assert not [name for name in map(str, names) if name.startswith(("jax", "calls"))]
