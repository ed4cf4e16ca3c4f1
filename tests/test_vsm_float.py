"""Floating-point arithmetic of PTX on the virtual SM against rational arithmetic, rounded by definition
(exact_numbers.py), and the approximations against NumPy within their documented errors."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import product as product_of

import exact_numbers as en
import numpy as np
import pytest
from vsm_lanes import lanes, refusal

FORMATS = {"f32": en.F32, "f64": en.F64, "f16": en.F16, "bf16": en.BF16}
NAN = None


def sources(f: en.Format, count: int, random: int = 300) -> list[np.ndarray]:
    """Codes for `count` sources: all pairs of edge values (the third source turns through them), and random ones."""
    edges = np.array(en.edge_codes(f), f"u{f.bits // 8}")
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    c = edges[(np.arange(a.size) * 7 + 3) % edges.size]
    return [np.concatenate([x, en.some_codes(f, random, seed)]) for seed, x in enumerate((a, b, c)[:count])]


def sum_code(
    f: en.Format, x: Fraction | str, y: Fraction | str, negative: tuple[bool, bool], mode: str
) -> int | None:
    """x + y; `negative`: the signs, which zeros need."""
    if "nan" in (x, y) or {x, y} == {"inf", "-inf"}:
        return NAN
    for v in (x, y):
        if isinstance(v, str):
            return f.infinity | (f.sign if v == "-inf" else 0)
    total = x + y  # type: ignore[operator]
    if total:
        return f.round(total, mode)
    return f.sign if (any(negative) if mode == "rm" else all(negative)) else 0


def product(x: Fraction | str, y: Fraction | str, negative: bool) -> Fraction | str:
    if "nan" in (x, y) or (isinstance(x, str) and y == 0) or (isinstance(y, str) and x == 0):
        return "nan"
    if isinstance(x, str) or isinstance(y, str):
        return "-inf" if negative else "inf"
    return x * y


def quotient_code(
    f: en.Format, x: Fraction | str, y: Fraction | str, negative: bool, mode: str
) -> int | None:
    sign = f.sign if negative else 0
    if "nan" in (x, y) or (isinstance(x, str) and isinstance(y, str)) or (x == 0 and y == 0):
        return NAN
    if isinstance(x, str) or y == 0:
        return f.infinity | sign
    if isinstance(y, str) or x == 0:
        return sign
    return f.round(x / y, mode)


def expected(op: str, f: en.Format, mode: str, codes: list[int]) -> int | None:
    """The code of `op` on the codes, or None for NaN."""
    v = [f.value(c) for c in codes]
    s = [bool(c & f.sign) for c in codes]
    if op == "add":
        return sum_code(f, v[0], v[1], (s[0], s[1]), mode)
    if op == "sub":
        return expected("add", f, mode, [codes[0], codes[1] ^ f.sign])
    if op == "div":
        return quotient_code(f, v[0], v[1], s[0] != s[1], mode)
    if op == "rcp":
        return expected("div", f, mode, [f.bias << f.fraction, codes[0]])
    p = product(v[0], v[1], s[0] != s[1])
    if op == "fma":
        return sum_code(f, p, v[2], (s[0] != s[1], s[2]), mode)
    if isinstance(p, str):
        return {"nan": NAN, "inf": f.infinity, "-inf": f.infinity | f.sign}[p]
    return f.round(p, mode) if p else (f.sign if s[0] != s[1] else 0)


def check(f: en.Format, got: np.ndarray, want: list[int | None], inputs: list[np.ndarray]) -> None:
    """Equal codes; a NaN is the canonical one below double precision, and any NaN there."""
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got.tolist(), want, strict=True)):
        good = g == w if w is not None else f.value(g) == "nan" if f.bits == 64 else g == f.nan
        assert good, f"{[hex(int(x[i])) for x in inputs]}: {g:#x}, expected {'NaN' if w is None else hex(w)}"


MODES = ("rn", "rz", "rm", "rp")
CASES = [
    *product_of(("add", "sub", "mul", "fma", "div", "rcp"), ("f32", "f64"), MODES),
    *product_of(("add", "sub", "mul", "fma"), ("f16", "bf16"), ("rn",)),
]


def near_cancellation(f: en.Format, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Third sources of fma that all but cancel the product: there a second rounding would show."""
    out = []
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        code = expected("mul", f, "rn", [x, y])
        if code is None:
            code = f.nan
        elif 1 < code & (f.sign - 1) < f.infinity - 1:
            code += i % 3 - 1
        out.append(code ^ f.sign)
    return np.array(out, a.dtype)


@pytest.mark.parametrize("op, name, mode", CASES)
def test_results_are_rounded_once(op: str, name: str, mode: str) -> None:
    f = FORMATS[name]
    count = {"fma": 3, "rcp": 1}.get(op, 2)
    inputs = sources(f, count)
    if op == "fma":
        more = (*inputs[:2], near_cancellation(f, *inputs[:2]))
        inputs = [np.concatenate([x, y]) for x, y in zip(inputs, more, strict=True)]
    text = ", ".join(f"{{{i}}}" for i in range(count))
    got = lanes(f"{op}.{mode}.{name} {{d}}, {text};", *inputs, out=inputs[0].dtype)
    want = [expected(op, f, mode, [int(x) for x in codes]) for codes in zip(*inputs, strict=True)]
    check(f, got, want, inputs)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_square_roots_are_rounded_once(name: str, mode: str) -> None:
    f = FORMATS[name]
    (codes,) = sources(f, 1, 500)
    codes = np.unique(codes)
    got = lanes(f"sqrt.{mode}.{name} {{d}}, {{0}};", codes, out=codes.dtype)
    for code, g in zip(codes.tolist(), got.tolist(), strict=True):
        v = f.value(code)
        if v == "nan" or (code & f.sign and v != 0):
            assert f.value(g) == "nan"
        elif v in (0, "inf"):
            assert g == code
        else:
            root = f.value(g)
            below, above = f.value(g - 1), f.value(g + 1)
            middle = (below + root) / 2, (root + above) / 2
            low, high = {"rz": (root, above), "rm": (root, above), "rp": (below, root), "rn": middle}[mode]
            assert low**2 <= v <= high**2, hex(code)


def test_defaults_and_spellings() -> None:
    x, y, z = (en.some_codes(en.F32, 200, seed) for seed in range(3))
    for short, long in (("add.f32", "add.rn.f32"), ("mul.f32", "mul.rn.f32"), ("sub.f32", "sub.rn.f32")):
        np.testing.assert_array_equal(
            lanes(f"{short} {{d}}, {{0}}, {{1}};", x, y, out=np.uint32),
            lanes(f"{long} {{d}}, {{0}}, {{1}};", x, y, out=np.uint32),
        )
    np.testing.assert_array_equal(
        lanes("mad.rm.f32 {d}, {0}, {1}, {2};", x, y, z, out=np.uint32),
        lanes("fma.rm.f32 {d}, {0}, {1}, {2};", x, y, z, out=np.uint32),
    )
    assert lanes("add.f32 {d}, {0}, 0f3F800000;", np.float32([2]), out=np.float32) == [3]
    assert lanes("fma.rn.f32 {d}, {0}, 2.0, 0.5;", np.float32([2]), out=np.float32) == [4.5]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_pairs_of_f32_are_two_f32(op: str, mode: str) -> None:
    count = 3 if op == "fma" else 2
    low, high = (sources(en.F32, count), [x[::-1] for x in sources(en.F32, count)])
    pairs = [
        lo.astype(np.uint64) | hi.astype(np.uint64) << np.uint64(32) for lo, hi in zip(low, high, strict=True)
    ]
    text = ", ".join(f"{{{i}}}" for i in range(count))
    for ftz in ("", ".ftz"):
        got = lanes(f"{op}.{mode}{ftz}.f32x2 {{d}}, {text};", *pairs, out=np.uint64)
        for part, half in ((low, got & np.uint64(0xFFFFFFFF)), (high, got >> np.uint64(32))):
            one = lanes(f"{op}.{mode}{ftz}.f32 {{d}}, {text};", *part, out=np.uint32)
            np.testing.assert_array_equal(half.astype(np.uint32), one)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma", "min", "max", "neg", "abs", "ex2", "tanh"])
def test_pairs_of_halves_are_two_halves(op: str, name: str) -> None:
    f = FORMATS[name]
    count = {"fma": 3, "neg": 1, "abs": 1, "ex2": 1, "tanh": 1}.get(op, 2)
    full = {
        "fma": "fma.rn",
        "ex2": "ex2.approx" + (".ftz" if name == "bf16" else ""),
        "tanh": "tanh.approx",
    }.get(op, op)
    low, high = (sources(f, count), [x[::-1] for x in sources(f, count)])
    pairs = [
        lo.astype(np.uint32) | hi.astype(np.uint32) << np.uint32(16) for lo, hi in zip(low, high, strict=True)
    ]
    text = ", ".join(f"{{{i}}}" for i in range(count))
    got = lanes(f"{full}.{name}x2 {{d}}, {text};", *pairs, out=np.uint32)
    for part, half in ((low, got & 0xFFFF), (high, got >> 16)):
        one = lanes(f"{full}.{name} {{d}}, {text};", *part, out=np.uint16)
        np.testing.assert_array_equal(half.astype(np.uint16), one)


# ---- modifiers ----


def flushed(f: en.Format, codes: np.ndarray) -> np.ndarray:
    small = (codes & codes.dtype.type(f.infinity)) == 0
    return np.where(small, codes & codes.dtype.type(f.sign), codes)


@pytest.mark.parametrize("name", ["f32", "f16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_ftz_flushes_sources_and_results(name: str, op: str) -> None:
    f = FORMATS[name]
    inputs = sources(f, 3 if op == "fma" else 2)
    text = ", ".join(f"{{{i}}}" for i in range(len(inputs)))
    got = lanes(f"{op}.rn.ftz.{name} {{d}}, {text};", *inputs, out=inputs[0].dtype)
    plain = lanes(f"{op}.rn.{name} {{d}}, {text};", *[flushed(f, x) for x in inputs], out=inputs[0].dtype)
    np.testing.assert_array_equal(got, flushed(f, plain))
    assert (got != lanes(f"{op}.rn.{name} {{d}}, {text};", *inputs, out=inputs[0].dtype)).any()


@pytest.mark.parametrize("name, mode", [("f32", "rn"), ("f32", "rz"), ("f16", "rn")])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_sat_limits_to_0_and_1(name: str, mode: str, op: str) -> None:
    f = FORMATS[name]
    inputs = sources(f, 3 if op == "fma" else 2)
    text = ", ".join(f"{{{i}}}" for i in range(len(inputs)))
    got = lanes(f"{op}.{mode}.sat.{name} {{d}}, {text};", *inputs, out=inputs[0].dtype)
    plain = lanes(f"{op}.{mode}.{name} {{d}}, {text};", *inputs, out=inputs[0].dtype)
    values = plain.view(f"f{f.bits // 8}")
    one = f.bias << f.fraction
    want = np.where(values > 0, np.where(values < 1, plain, plain.dtype.type(one)), 0)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_fma_relu(name: str) -> None:
    f = FORMATS[name]
    inputs = sources(f, 3)
    got = lanes(f"fma.rn.relu.{name} {{d}}, {{0}}, {{1}}, {{2}};", *inputs, out=np.uint16)
    plain = lanes(f"fma.rn.{name} {{d}}, {{0}}, {{1}}, {{2}};", *inputs, out=np.uint16)
    np.testing.assert_array_equal(got, np.where(plain & 0x8000, 0, plain))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize(
    "op, mode", [("add", "rn"), ("add", "rz"), ("sub", "rm"), ("fma", "rn"), ("fma", "rp")]
)
def test_f32_with_sources_of_16_bits(name: str, op: str, mode: str) -> None:
    f = FORMATS[name]
    halves, singles = sources(f, 2), sources(en.F32, 3)[2]
    count = min(len(halves[0]), len(singles))
    a, b, c = halves[0][:count], halves[1][:count], singles[:count]
    wide = [lanes(f"cvt.f32.{name} {{d}}, {{0}};", x, out=np.uint32) for x in (a, b)]
    if op == "fma":
        got = lanes(f"fma.{mode}.f32.{name} {{d}}, {{0}}, {{1}}, {{2}};", a, b, c, out=np.uint32)
        want = lanes(f"fma.{mode}.f32 {{d}}, {{0}}, {{1}}, {{2}};", *wide, c, out=np.uint32)
    else:
        got = lanes(f"{op}.{mode}.f32.{name} {{d}}, {{0}}, {{1}};", a, c, out=np.uint32)
        want = lanes(f"{op}.{mode}.f32 {{d}}, {{0}}, {{1}};", wide[0], c, out=np.uint32)
    np.testing.assert_array_equal(got, want)


# ---- order and signs ----


def picked(f: en.Format, a: int, b: int, largest: bool, nan: bool) -> int:
    """PTX ISA 9.7.3.11: -0 is below +0, a NaN loses, two NaNs or .NaN give the canonical one."""
    values = [f.value(a), f.value(b)]
    if "nan" in values:
        return f.nan if nan or values == ["nan", "nan"] else b if values[0] == "nan" else a
    rank = {"inf": Fraction(10) ** 999, "-inf": -(Fraction(10) ** 999)}
    keys = [
        (rank.get(v, v) if isinstance(v, str) else v, not c & f.sign)
        for v, c in zip(values, (a, b), strict=True)
    ]
    return (max if largest else min)((keys[0], a), (keys[1], b))[1]


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"])
@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "f64"])
def test_min_and_max(op: str, modifiers: str, name: str) -> None:
    if name == "f64" and modifiers:
        assert "modifiers are not allowed on .f64" in refusal(
            f"{op}{modifiers}.f64 {{d}}, {{0}}, {{1}};", (8, 8), 8
        )
        return
    f = FORMATS[name]
    a, b = sources(f, 2, 100)
    got = lanes(f"{op}{modifiers}.{name} {{d}}, {{0}}, {{1}};", a, b, out=a.dtype)
    for x, y, g in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        keep = f.sign - 1 if "abs" in modifiers else 2 * f.sign - 1
        want = picked(f, x & keep, y & keep, op == "max", "NaN" in modifiers)
        if "abs" in modifiers and f.value(want) != "nan":
            want |= (x ^ y) & f.sign
        assert g == want, (hex(x), hex(y))


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".abs", ".ftz.NaN.abs"])
def test_min_and_max_of_three(op: str, modifiers: str) -> None:
    f = en.F32
    inputs = sources(f, 3, 100)
    got = lanes(f"{op}{modifiers}.f32 {{d}}, {{0}}, {{1}}, {{2}};", *inputs, out=np.uint32)
    if "ftz" in modifiers:
        inputs = [flushed(f, x) for x in inputs]
    keep = f.sign - 1 if "abs" in modifiers else 2 * f.sign - 1
    for *codes, g in zip(*(x.tolist() for x in inputs), got.tolist(), strict=True):
        x, y, z = (c & keep for c in codes)
        nan = "NaN" in modifiers
        assert g == picked(f, picked(f, x, y, op == "max", nan), z, op == "max", nan)


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_neg_abs_copysign_act_on_the_sign(name: str) -> None:
    f = FORMATS[name]
    a, b = sources(f, 2, 50)
    sign = a.dtype.type(f.sign)
    np.testing.assert_array_equal(lanes(f"neg.{name} {{d}}, {{0}};", a, out=a.dtype), a ^ sign)
    np.testing.assert_array_equal(lanes(f"abs.{name} {{d}}, {{0}};", a, out=a.dtype), a & ~sign)
    if f.bits >= 32:
        got = lanes(f"copysign.{name} {{d}}, {{0}}, {{1}};", a, b, out=a.dtype)
        np.testing.assert_array_equal(got, (a & sign) | (b & ~sign))
    if name in ("f32", "f16"):
        np.testing.assert_array_equal(
            lanes(f"neg.ftz.{name} {{d}}, {{0}};", a, out=a.dtype), flushed(f, a) ^ sign
        )
        np.testing.assert_array_equal(
            lanes(f"abs.ftz.{name} {{d}}, {{0}};", a, out=a.dtype), flushed(f, a) & ~sign
        )


# ---- approximations ----

Function = Callable[[np.ndarray], np.ndarray]
#: opcode: (function, lowest and highest source, largest error, whether it is relative), PTX ISA 9.7.3
APPROXIMATIONS: dict[str, tuple[Function, float, float, float, bool]] = {
    "ex2.approx.f32": (np.exp2, -120, 120, 2**-22.5, True),
    "ex2.approx.ftz.f32": (np.exp2, -120, 120, 2**-22.5, True),
    "lg2.approx.f32": (np.log2, 1e-6, 1e6, 2**-22.6, True),
    "sin.approx.f32": (np.sin, -np.pi, np.pi, 2**-20.5, False),
    "cos.approx.f32": (np.cos, -np.pi, np.pi, 2**-20.5, False),
    "tanh.approx.f32": (np.tanh, -9, 9, 2**-11, True),
    "rsqrt.approx.f32": (lambda x: 1 / np.sqrt(x), 1e-30, 1e30, 2**-22.9, True),
    "sqrt.approx.f32": (np.sqrt, 0, 1e30, 2**-23, True),
    "rcp.approx.f32": (lambda x: 1 / x, 1e-30, 1e30, 2**-23, True),
    "rsqrt.approx.f64": (lambda x: 1 / np.sqrt(x), 1e-30, 1e30, 2**-22, True),
    "rcp.approx.ftz.f64": (lambda x: 1 / x, 1e-30, 1e30, 2**-19, True),
    "rsqrt.approx.ftz.f64": (lambda x: 1 / np.sqrt(x), 1e-30, 1e30, 2**-19, True),
    "ex2.approx.f16": (np.exp2, -10, 10, 2**-9.9, True),
    "tanh.approx.f16": (np.tanh, -5, 5, 2**-10.987, False),
}


@pytest.mark.parametrize("opcode", APPROXIMATIONS)
def test_approximations_are_within_their_error(opcode: str) -> None:
    function, low, high, error, relative = APPROXIMATIONS[opcode]
    dtype = np.dtype(opcode.rsplit(".", 1)[1].replace("f", "float"))
    x = np.random.default_rng(5).uniform(low, high, 3000).astype(dtype)
    got = lanes(f"{opcode} {{d}}, {{0}};", x, out=dtype).astype(float)
    exact = function(x.astype(float))
    assert (np.abs(got - exact) <= error * (np.abs(exact) if relative else 1)).all()
    if opcode.endswith("ftz.f64"):
        assert not (lanes(f"{opcode} {{d}}, {{0}};", x, out=np.uint64) & np.uint64(0xFFFFFFFF)).any()


inf, nan = np.inf, np.nan
#: opcode: [(source, result)], the tables of PTX ISA 9.7.3
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "rcp.approx.f32": [(-inf, -0.0), (-0.0, -inf), (0.0, inf), (inf, 0.0), (nan, nan)],
    "rcp.approx.ftz.f32": [(-1e-40, -inf), (1e-40, inf), (2**127.5, 0.0)],
    "sqrt.approx.f32": [(-inf, nan), (-1, nan), (-0.0, -0.0), (0.0, 0.0), (inf, inf), (nan, nan)],
    "rsqrt.approx.f32": [(-inf, nan), (-1, nan), (-0.0, -inf), (0.0, inf), (inf, 0.0), (nan, nan)],
    "sin.approx.f32": [(-inf, nan), (-0.0, -0.0), (0.0, 0.0), (inf, nan), (nan, nan)],
    "cos.approx.f32": [(-inf, nan), (-0.0, 1.0), (0.0, 1.0), (inf, nan), (nan, nan)],
    "lg2.approx.f32": [
        (-inf, nan),
        (-1, nan),
        (-0.0, -inf),
        (0.0, -inf),
        (inf, inf),
        (nan, nan),
        (2**-140, -140),
    ],
    "lg2.approx.ftz.f32": [(-1e-40, -inf), (1e-40, -inf)],
    "ex2.approx.f32": [(-inf, 0.0), (-1e-40, 1.0), (-0.0, 1.0), (inf, inf), (nan, nan), (-140, 2**-140)],
    "ex2.approx.ftz.f32": [(-140, 0.0)],
    "tanh.approx.f32": [(-inf, -1.0), (-0.0, -0.0), (0.0, 0.0), (inf, 1.0), (nan, nan)],
    "rcp.approx.ftz.f64": [
        (-inf, -0.0),
        (-1e-310, -inf),
        (-0.0, -inf),
        (0.0, inf),
        (1e-310, inf),
        (inf, 0.0),
    ],
}


@pytest.mark.parametrize("opcode", SPECIAL)
def test_special_values_of_approximations(opcode: str) -> None:
    dtype = np.float64 if opcode.endswith("f64") else np.float32
    x, want = (np.array(column, dtype) for column in zip(*SPECIAL[opcode], strict=True))
    got = lanes(f"{opcode} {{d}}, {{0}};", x, out=dtype)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))


def test_div_approx_and_full() -> None:
    rng = np.random.default_rng(0)
    x, y = (np.exp2(rng.uniform(-60, 60, 500)).astype(np.float32) for _ in range(2))
    for form in ("approx", "approx.ftz", "full", "full.ftz"):
        got = lanes(f"div.{form}.f32 {{d}}, {{0}}, {{1}};", x, y, out=np.float32).astype(float)
        exact = x.astype(float) / y
        assert (np.abs(got - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()
    big = np.float32([2**126.5, -(2**127)])
    got = lanes("div.approx.f32 {d}, {0}, {1};", np.float32([3, 3]), big, out=np.float32)
    np.testing.assert_array_equal(np.signbit(got), [False, True])
    assert not got.any()
    assert np.isnan(lanes("div.approx.f32 {d}, {0}, {1};", np.float32([inf, inf]), big, out=np.float32)).all()
    assert (
        lanes("div.full.f32 {d}, {0}, {1};", np.float32([2**127, 2**127]), big, out=np.float32) != 0
    ).all()


# ---- the host's modes ----


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="sets x86's control word through glibc"
)
def test_subnormals_survive_a_host_thread_that_flushes_them() -> None:
    """XLA's threads flush; the control word is the last of glibc's 32-byte fenv_t."""
    libm = ctypes.CDLL("libm.so.6")
    saved, flushing = ((ctypes.c_uint32 * 8)() for _ in range(2))
    libm.fegetenv(saved)
    libm.fegetenv(flushing)
    flushing[7] |= 0x8040
    x = np.array([1, 0x00400000, 0x80000003], np.uint32)
    libm.fesetenv(flushing)
    try:
        got = lanes("add.rn.f32 {d}, {0}, {0};", x, out=np.uint32)
        kept = (ctypes.c_uint32 * 8)()
        libm.fegetenv(kept)
    finally:
        libm.fesetenv(saved)
    np.testing.assert_array_equal(got, [2, 0x00800000, 0x80000006])
    assert kept[7] & 0x8040 == 0x8040


# ---- refusals ----

REFUSED = [
    ("fma.f32 {d}, {0}, {0}, {0};", 4, "needs a rounding modifier"),
    ("mad.f32 {d}, {0}, {0}, {0};", 4, "needs a rounding modifier"),
    ("mad.rn.f16 {d}, {0}, {0}, {0};", 2, "not defined on .f16"),
    ("add.rz.f16 {d}, {0}, {0};", 2, "round with .rn only"),
    ("add.sat.f64 {d}, {0}, {0};", 8, ".sat is for .f32 and .f16 only"),
    ("add.ftz.bf16 {d}, {0}, {0};", 2, ".ftz is for"),
    ("add.relu.f16 {d}, {0}, {0};", 2, ".relu is for fma"),
    ("fma.rn.relu.f32 {d}, {0}, {0}, {0};", 4, ".relu is for fma on 16-bit types"),
    ("div.f32 {d}, {0}, {0};", 4, ".approx, .full"),
    ("div.approx.f64 {d}, {0}, {0};", 8, "double precision needs"),
    ("rcp.full.f32 {d}, {0};", 4, "needs one of"),
    ("sqrt.rn.f16 {d}, {0};", 2, "type .f16 is not allowed"),
    ("min.abs.f32 {d}, {0}, {0};", 4, ".abs without .xorsign needs three sources"),
    ("min.xorsign.abs.f32 {d}, {0}, {0}, {0};", 4, ".xorsign needs .abs and two sources"),
    ("max.f16 {d}, {0}, {0}, {0};", 2, "three sources are for .f32 only"),
    ("neg.ftz.bf16 {d}, {0};", 2, ".ftz is for .f32 and .f16 only"),
    ("neg.f32x2 {d}, {0};", 8, "type .f32x2 is not allowed"),
    ("ex2.approx.bf16 {d}, {0};", 2, "ex2 on .bf16 needs .ftz"),
    ("ex2.f32 {d}, {0};", 4, ".approx"),
    ("tanh.approx.ftz.f32 {d}, {0};", 4, "tanh has no .ftz"),
    ("lg2.approx.f64 {d}, {0};", 8, "type .f64 is not allowed"),
    ("mul.f32.f16 {d}, {0}, {0};", 4, "mul has no form with sources of another type"),
    ("fma.rn.oob.f16 {d}, {0}, {0}, {0};", 2, "modifier '.oob' is not understood"),
    ("add.f32 {d}, {0}, 1;", 4, "an integer constant where .f32 is read"),
]


@pytest.mark.parametrize("body, size, message", REFUSED, ids=[x[0].split()[0] for x in REFUSED])
def test_refusals_name_the_reason(body: str, size: int, message: str) -> None:
    text = refusal(body, (size,), size)
    assert message in text
    assert "line " in text
