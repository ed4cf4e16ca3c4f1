"""cvt and cvt.pack of PTX on the virtual SM: against rational arithmetic rounded by definition (exact_numbers.py),
ml_dtypes over all codes, and the rules of PTX ISA 9.7.9.21."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import exact_numbers as en
import ml_dtypes
import numpy as np
import pytest
from vsm_lanes import lanes, refusal

FORMATS = {"f16": en.F16, "bf16": en.BF16, "f32": en.F32, "f64": en.F64}
#: name: (format, bits in the packed register, ml_dtypes' type)
NARROW = {
    "e4m3": (en.E4M3, 8, ml_dtypes.float8_e4m3fn),
    "e5m2": (en.E5M2, 8, ml_dtypes.float8_e5m2),
    "e2m3": (en.E2M3, 8, ml_dtypes.float6_e2m3fn),
    "e3m2": (en.E3M2, 8, ml_dtypes.float6_e3m2fn),
    "e2m1": (en.E2M1, 4, ml_dtypes.float4_e2m1fn),
}
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def codes_near(source: en.Format, target: en.Format) -> np.ndarray:
    """Codes of the source format at and beside the target's numbers and the midpoints between them, and edge values."""
    magnitudes = sorted({target.largest * k // 60 for k in range(61)})
    out = set(en.edge_codes(source)) | set(en.some_codes(source, 100, 3).tolist())
    for code in magnitudes:
        low = target.value(code)
        high = target.value(min(code + 1, target.largest))
        for number in (low, (low + high) / 2, high * 2):
            if number == 0:
                continue
            at = source.round(number, "rz")
            for near in (max(at - 1, 0), at, at + 1):
                out |= {near, near | source.sign}
    return np.array(sorted(out), f"u{(source.bits + 7) // 8}")


def converted(
    source: en.Format, code: int, target: en.Format, mode: str, finite: bool = False, relu: bool = False
) -> int:
    value, sign = source.value(code), target.sign if code & source.sign else 0
    if value == "nan":
        return target.largest if target.specials == "none" else target.nan
    if relu and sign:
        return 0
    if isinstance(value, str):
        return sign | (target.largest if finite or target.specials == "none" else target.infinity)
    return target.round(value, mode, finite) if value else sign


# ---- packed and narrow types ----


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("source", ["f32", "f16x2", "bf16x2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_to_narrow_pairs(name: str, source: str, relu: str) -> None:
    target, width, _ = NARROW[name]
    f = FORMATS[source.removesuffix("x2")]
    high = codes_near(f, target) if source == "f32" else np.arange(0, 65536, 5, dtype=np.uint16)
    low = high[::-1].copy()
    out = np.uint8 if width == 4 else np.uint16
    opcode = f"cvt.rn.satfinite{relu}.{name}x2.{source}"
    if source == "f32":
        got = lanes(f"{opcode} {{d}}, {{0}}, {{1}};", high, low, out=out)
    else:
        got = lanes(f"{opcode} {{d}}, {{0}};", high.astype(np.uint32) << 16 | low, out=out)
    want = [converted(f, int(x), target, "rn", True, bool(relu)) for x in high]
    table = dict(zip(high.tolist(), want, strict=True))
    np.testing.assert_array_equal(got >> width, want)
    np.testing.assert_array_equal(got & ((1 << width) - 1), [table[x] for x in low.tolist()])


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_from_narrow_pairs(name: str, relu: str) -> None:
    target, width, dtype = NARROW[name]
    codes = np.arange(2 * target.sign, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float32)
    if relu:
        values = np.where(np.signbit(values) & ~np.isnan(values), np.float32(0), values)
    want = values.astype(np.float16).view(np.uint16)
    want[np.isnan(values)] = 0x7FFF
    high, low = (x.ravel() for x in np.meshgrid(codes, codes))
    packed = (high << 4 | low) if width == 4 else (high.astype(np.uint16) << 8 | low)
    got = lanes(f"cvt.rn{relu}.f16x2.{name}x2 {{d}}, {{0}};", packed, out=np.uint32)
    np.testing.assert_array_equal(got >> 16, want[high])
    np.testing.assert_array_equal(got & 0xFFFF, want[low])


@pytest.mark.parametrize("name", NARROW)
def test_from_narrow_pairs_to_bf16_with_scales(name: str) -> None:
    target, width, dtype = NARROW[name]
    codes = np.arange(2 * target.sign, dtype=np.uint8)
    scales = np.array([0, 1, 100, 120, 127, 128, 200, 254, 255], np.uint16)
    x, s = (v.ravel() for v in np.meshgrid(codes, scales))
    packed = (x << 4 | 2) if width == 4 else (x.astype(np.uint16) << 8 | 2)
    text = f"cvt.rn.satfinite.scaled::n2::ue8m0.bf16x2.{name}x2 {{d}}, {{0}}, {{1}};"
    got = lanes(text, packed, (s << 8 | 128).astype(np.uint16), out=np.uint32)
    exact = x.view(dtype).astype(float) * np.where(s == 255, np.nan, np.exp2(s.astype(float) - 127))
    want = []
    for v in exact.tolist():
        sign = 0x8000 if math.copysign(1, v) < 0 else 0
        if math.isnan(v):
            want.append(en.BF16.nan)
        else:
            size = (
                en.BF16.largest if math.isinf(v) else en.BF16.round(Fraction(abs(v)), "rn", True) if v else 0
            )
            want.append(sign | size)
    np.testing.assert_array_equal(got >> 16, want)
    two = (
        np.float32(codes[2:3].view(dtype).astype(np.float32)[0] * 2)
        .astype(ml_dtypes.bfloat16)
        .view(np.uint16)
    )
    assert (got & 0xFFFF == two).all()


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("modifiers", ["", ".relu", ".satfinite", ".relu.satfinite"])
def test_f32_to_pairs_of_halves(name: str, mode: str, modifiers: str) -> None:
    target = FORMATS[name]
    a = codes_near(en.F32, target)
    b = a[::-1].copy()
    got = lanes(f"cvt.{mode}{modifiers}.{name}x2.f32 {{d}}, {{0}}, {{1}};", a, b, out=np.uint32)
    flags = "satfinite" in modifiers, "relu" in modifiers
    want = [converted(en.F32, int(x), target, mode, *flags) for x in a]
    np.testing.assert_array_equal(got >> 16, want)
    np.testing.assert_array_equal(got & 0xFFFF, want[::-1])
    single = lanes(f"cvt.{mode}{modifiers}.{name}.f32 {{d}}, {{0}};", a, out=np.uint16)
    np.testing.assert_array_equal(single, want)


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
@pytest.mark.parametrize("modifiers", ["", ".satfinite", ".relu"])
def test_f32_to_tf32(mode: str, modifiers: str) -> None:
    if mode == "rna" and modifiers == ".relu":
        modifiers = ".satfinite"
    a = codes_near(en.F32, en.TF32)
    got = lanes(f"cvt.{mode}{modifiers}.tf32.f32 {{d}}, {{0}};", a, out=np.uint32)
    flags = "satfinite" in modifiers, "relu" in modifiers
    want = [converted(en.F32, int(x), en.TF32, mode, *flags) << 13 for x in a]
    want = [0x7FFFFFFF if w == en.TF32.nan << 13 else w for w in want]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("source", ["f32", "bf16x2"])
@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("finite", ["", ".satfinite"])
def test_to_ue8m0(source: str, mode: str, finite: str) -> None:
    f = FORMATS[source.removesuffix("x2")]
    codes = np.arange(0, 65536, 3, dtype=np.uint16) if f is en.BF16 else codes_near(en.F32, en.BF16)
    if f is en.BF16:
        got = lanes(
            f"cvt.{mode}{finite}.ue8m0x2.bf16x2 {{d}}, {{0}};", codes.astype(np.uint32) << 16, out=np.uint16
        )
    else:
        got = lanes(f"cvt.{mode}{finite}.ue8m0x2.f32 {{d}}, {{0}}, 0.0;", codes, out=np.uint16)
    assert not (got & 0xFF).any()
    for code, g in zip(codes.tolist(), (got >> 8).tolist(), strict=True):
        value = f.value(code)
        if value == "nan":
            want = 255
        elif isinstance(value, str):
            want = 254 if finite else 255
        else:  # the power of two at or below |value|, or at or above it
            size, want = abs(value), 0
            if size > Fraction(2) ** -127:
                exponent = en._binary_exponent(size)
                want = exponent + 127 + (mode == "rp" and size != Fraction(2) ** exponent)
            want = min(want, 254) if finite else want
        assert g == want, hex(code)


def test_from_ue8m0() -> None:
    codes = np.arange(256, dtype=np.uint16)
    got = lanes("cvt.rn.bf16x2.ue8m0x2 {d}, {0};", codes << 8 | codes[::-1], out=np.uint32)
    want = codes.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(ml_dtypes.bfloat16).view(np.uint16)
    want[255] = 0x7FFF
    np.testing.assert_array_equal(got >> 16, want)
    np.testing.assert_array_equal(got & 0xFFFF, want[::-1])


def test_s2f6() -> None:
    x = np.float32([0, 1, -1, 1.99, 2, -2, -2.5, np.inf, -np.inf, np.nan, 1 / 128, 3 / 128, -1 / 128, 0.3])
    want = np.array([0, 64, -64, 127, 127, -128, -128, 127, -128, 127, 0, 2, 0, 19], np.int8).view(np.uint8)
    got = lanes("cvt.rn.satfinite.s2f6x2.f32 {d}, {0}, {0};", x, out=np.uint16)
    np.testing.assert_array_equal(got, want.astype(np.uint16) * 257)
    relu = lanes("cvt.rn.satfinite.relu.s2f6x2.f32 {d}, {0}, {0};", x, out=np.uint16)
    np.testing.assert_array_equal(relu, np.where(want > 127, 0, want).astype(np.uint16) * 257)
    body = "cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.f32 {d}, {0}, {0}, {1};"
    scaled = lanes(body, np.float32([1]), np.uint16([0x8080]), out=np.uint16)
    assert scaled[0] == 0x2020  # divided by two
    codes = np.arange(256, dtype=np.uint16)
    back = lanes("cvt.rn.bf16x2.s2f6x2 {d}, {0};", codes, out=np.uint32) & 0xFFFF
    values = (codes.astype(np.uint8).view(np.int8) / np.float32(64)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(back, values.view(np.uint16))


# ---- stochastic rounding ----


@pytest.mark.parametrize("name, bits", [("f16", 13), ("bf16", 16)])
def test_stochastic_pairs_add_random_bits_to_what_is_cut(name: str, bits: int) -> None:
    """PTX ISA: a carry out of the cut bits plus the random ones rounds away from zero."""
    f, rng = FORMATS[name], np.random.default_rng(0)
    a = np.exp2(rng.uniform(-8, 8, 4000)).astype(np.float32) * rng.choice(np.float32([1, -1]), 4000)
    random = rng.integers(0, 2**32, 4000, dtype=np.uint32)
    got = lanes(f"cvt.rs.{name}x2.f32 {{d}}, {{0}}, {{0}}, {{1}};", a, random, out=np.uint32)
    codes = a.view(np.uint32)
    cut = codes & np.uint32((1 << bits) - 1)
    for half, part in ((got >> 16, random >> 16), (got & 0xFFFF, random)):
        carry = (cut + (part & np.uint32((1 << bits) - 1))) >> bits
        toward_zero = [converted(en.F32, int(x), f, "rz") for x in codes]
        np.testing.assert_array_equal(half, np.array(toward_zero) + carry)


@pytest.mark.parametrize("name", NARROW)
def test_stochastic_quadruples_between_truncation_and_the_next_number(name: str) -> None:
    target, width, _ = NARROW[name]
    a = codes_near(en.F32, target)
    out = np.uint16 if width == 4 else np.uint32
    for random, up in ((0, False), (0xFFFFFFFF, True)):
        body = f"cvt.rs.satfinite.{name}x4.f32 {{d}}, {{{{{{0}}, {{0}}, {{0}}, {{0}}}}}}, {random};"
        got = lanes(body, a, out=out)
        one = got & out((1 << width) - 1)
        assert all(((got >> (width * k)) & out((1 << width) - 1) == one).all() for k in range(4))
        for code, g in zip(a.tolist(), one.tolist(), strict=True):
            cut = converted(en.F32, code, target, "rz", True)
            value = en.F32.value(code)
            if isinstance(value, str) or not up or abs(value) >= target.value(target.largest):
                assert g == cut
                continue
            low = abs(target.value(cut))
            step = target.value((cut & (target.sign - 1)) + 1) - low
            # all random bits set: any of the 16 highest bits cut gives a carry
            assert g == cut + ((abs(value) - low) / step >= Fraction(1, 1 << 16)), hex(code)


def test_which_random_bits_and_element_belong_together() -> None:
    body = "cvt.rs.satfinite.e4m3x4.f32 {d}, {{{0}, {1}, {2}, {3}}}, {4};"
    x = [np.float32([v]) for v in (1.0625, 2.125, 4.25, 8.5)]  # each halfway between two numbers
    zero = lanes(body, *x, np.uint32([0]), out=np.uint32)[0]
    assert zero == 0x38404850  # a in the highest byte
    assert (
        lanes(body, *x, np.uint32([0x80000000]), out=np.uint32)[0] == zero + 0x01010000
    )  # upper half: a and b
    assert lanes(body, *x, np.uint32([0x00008000]), out=np.uint32)[0] == zero + 0x00000101


# ---- scalars ----


@pytest.mark.parametrize("to, source", [p for p in product(FORMATS, FORMATS) if p[0] != p[1]])
def test_between_formats(to: str, source: str) -> None:
    target, f = FORMATS[to], FORMATS[source]
    exact = (to, source) in {("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "bf16"), ("f64", "f32")}
    codes = (
        np.arange(65536, dtype=np.uint16)[:: 5 if exact else 23]
        if f.bits == 16
        else codes_near(f, f if exact else target)
    )
    for mode in ("",) if exact else (".rn", ".rz", ".rm", ".rp"):
        got = lanes(f"cvt{mode}.{to}.{source} {{d}}, {{0}};", codes, out=f"u{target.bits // 8}")
        for code, g in zip(codes.tolist(), got.tolist(), strict=True):
            want = converted(f, code, target, mode[1:] or "rn")
            assert g == want or (to == "f64" and want == target.nan and target.value(g) == "nan"), hex(code)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_rounding_to_integral_values(name: str, mode: str) -> None:
    f = FORMATS[name]
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64}[name]
    x = np.concatenate([np.arange(-6, 6.01, 0.25), [1e-3, -1e-3, 1000.5, -0.0, np.inf, -np.inf]]).astype(
        dtype
    )
    got = lanes(f"cvt.{mode}.{name}.{name} {{d}}, {{0}};", x, out=f"u{f.bits // 8}")
    function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    np.testing.assert_array_equal(got, function(x.astype(np.float64)).astype(dtype).view(got.dtype))


def integral(value: Fraction, mode: str) -> int:
    low = math.floor(value)
    if mode == "rni":
        rest = value - low
        return low + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1))
    return {"rzi": math.trunc(value), "rmi": low, "rpi": math.ceil(value)}[mode]


def limits(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", FORMATS)
def test_float_to_integer_saturates(to: str, source: str) -> None:
    f, bits = FORMATS[source], int(to[1:])
    low, high = limits(to)
    beside = [
        v for b in (low, high) for v in (b - 1, b, b + 1, b + Fraction(1, 2), b - Fraction(1, 2), 2 * b) if v
    ]
    codes = {
        f.round(Fraction(v), m)
        for v in [*beside, *[Fraction(k, 4) for k in range(-9, 10) if k]]
        for m in ("rz", "rp")
    }
    array = np.array(
        sorted(codes | set(en.edge_codes(f)) | set(en.some_codes(f, 60, 1).tolist())), f"u{f.bits // 8}"
    )
    for mode in ("rni", "rzi", "rmi", "rpi"):
        got = lanes(f"cvt.{mode}.{to}.{source} {{d}}, {{0}};", array, out=f"u{bits // 8}")
        for code, g in zip(array.tolist(), got.tolist(), strict=True):
            value = f.value(code)
            if value == "nan":  # PTX ISA: 0, or the highest bit alone where 64 bits are involved
                want = 1 << (bits - 1) if source == "f64" or bits == 64 else 0
            elif isinstance(value, str):
                want = high if value == "inf" else low
            else:
                want = min(max(integral(value, mode), low), high)
            assert g == want % (1 << bits), (hex(code), mode)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", FORMATS)
def test_integer_to_float(source: str, to: str) -> None:
    f, bits = FORMATS[to], int(source[1:])
    low, high = limits(source)
    rng = np.random.default_rng(bits)
    some = [low, low + 1, low // 2, high, high - 1, high // 2, 0, 1, 3, *[high >> k for k in range(1, bits)]]
    some += [(1 << k) + d for k in range(bits - 1) for d in (-1, 0, 1)]
    some += [int.from_bytes(rng.bytes(bits // 8), "little", signed=source[0] == "s") for _ in range(60)]
    numbers = sorted({v for v in some if low <= v <= high})
    array = np.array([v % (1 << bits) for v in numbers], f"u{bits // 8}")
    for mode in ("rn", "rz", "rm", "rp"):
        got = lanes(f"cvt.{mode}.{to}.{source} {{d}}, {{0}};", array, out=f"u{f.bits // 8}")
        want = [f.round(Fraction(v), mode) if v else 0 for v in numbers]
        np.testing.assert_array_equal(got, np.array(want, got.dtype))


@pytest.mark.parametrize("to, source", list(product(INTEGERS, INTEGERS)))
def test_between_integers(to: str, source: str) -> None:
    bits, width = int(source[1:]), int(to[1:])
    low, high = limits(source)
    least, most = limits(to)
    numbers = sorted(
        {v for b in (*limits(to), low, high, 0) for v in (b - 1, b, b + 1, b // 2) if low <= v <= high}
    )
    array = np.array([v % (1 << bits) for v in numbers], f"u{bits // 8}")
    for saturate in ("", ".sat"):
        want = [min(max(v, least), most) if saturate else v for v in numbers]
        want = [(v - least) % (1 << width) + least for v in want]  # cut to the type
        for register in (8, 16, 32, 64):
            if register >= width:  # a wider register is filled by the result's sign
                got = lanes(f"cvt{saturate}.{to}.{source} {{d}}, {{0}};", array, out=f"u{register // 8}")
                np.testing.assert_array_equal(got, np.array([v % (1 << register) for v in want], got.dtype))


def test_sources_may_be_wider_than_their_type() -> None:
    x = np.uint64([0x123456789ABCDEF0, 0xFFFFFFFFFFFFFF80])
    np.testing.assert_array_equal(lanes("cvt.s32.s8 {d}, {0};", x, out=np.int32), [-16, -128])
    np.testing.assert_array_equal(lanes("cvt.sat.u8.s16 {d}, {0};", x, out=np.uint8), [0, 0])
    np.testing.assert_array_equal(lanes("cvt.rn.f32.u16 {d}, {0};", x, out=np.float32), [0xDEF0, 0xFF80])
    floats = np.float32([2.5, -7]).view(np.uint32).astype(np.uint64)
    np.testing.assert_array_equal(lanes("cvt.rzi.s64.f32 {d}, {0};", floats, out=np.int64), [2, -7])
    np.testing.assert_array_equal(lanes("cvt.rzi.s16.f32 {d}, {0};", floats, out=np.int64), [2, -7])


def test_a_predicated_conversion_leaves_wide_registers_alone() -> None:
    body = ".reg .pred %q; mov.b64 {d}, -1; setp.gt.s32 %q, {0}, 1; @%q cvt.rzi.s16.f32 {d}, 3.0;"
    np.testing.assert_array_equal(lanes(body, np.int32([1, 2]), out=np.int64), [-1, 3])


def test_sat_and_ftz() -> None:
    x = np.float32([-1, -0.0, 0.25, 1, 2, np.inf, -np.inf, np.nan, 1e-40, -1e-40])
    got = lanes("cvt.sat.f32.f32 {d}, {0};", x, out=np.uint32).view(np.float32)
    np.testing.assert_array_equal(got, np.float32([0, 0, 0.25, 1, 1, 1, 0, 0, 1e-40, 0]))
    got = lanes("cvt.rn.sat.f16.f32 {d}, {0};", x, out=np.uint16).view(np.float16)
    np.testing.assert_array_equal(got, np.float16([0, 0, 0.25, 1, 1, 1, 0, 0, 0, 0]))
    assert not np.signbit(got).any()
    small = np.float32([1e-40, -1e-40])
    np.testing.assert_array_equal(
        lanes("cvt.ftz.f64.f32 {d}, {0};", small, out=np.uint64), np.uint64([0, 1 << 63])
    )
    np.testing.assert_array_equal(lanes("cvt.rpi.ftz.s32.f32 {d}, {0};", small, out=np.int32), [0, 0])
    np.testing.assert_array_equal(lanes("cvt.rpi.s32.f32 {d}, {0};", small, out=np.int32), [1, 0])
    doubles = small.astype(np.float64)
    np.testing.assert_array_equal(lanes("cvt.rn.ftz.f32.f64 {d}, {0};", doubles, out=np.uint32), [0, 1 << 31])
    assert lanes("cvt.rn.sat.f32.s32 {d}, {0};", np.int32([-3, 0, 5]), out=np.float32).tolist() == [0, 0, 1]


def test_constants_and_special_registers() -> None:
    x = np.zeros(3, np.uint32)
    assert lanes("cvt.s64.s32 {d}, -5;", x, out=np.int64).tolist() == [-5] * 3
    assert lanes("cvt.u64.u32 {d}, %tid.x;", x, out=np.uint64).tolist() == [0, 1, 2]
    assert lanes("cvt.rn.f32.u32 {d}, %tid.x;", x, out=np.float32).tolist() == [0, 1, 2]
    assert lanes("cvt.rn.bf16.f32 {d}, 1.5;", x, out=np.uint16).tolist() == [0x3FC0] * 3


@pytest.mark.parametrize(
    "to, bits", [("u16", 16), ("s16", 16), ("u8", 8), ("s8", 8), ("u4", 4), ("s4", 4), ("u2", 2), ("s2", 2)]
)
def test_pack(to: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    least, most = limits(to)
    a, b = (
        np.concatenate([rng.integers(-9, 9, 50) + edge for edge in (least, most, 0)]).astype(np.int32)
        for _ in range(2)
    )
    c = rng.integers(0, 2**32, a.size, dtype=np.uint32)
    low, high = (np.clip(x, least, most).astype(np.int64) & ((1 << bits) - 1) for x in (b, a))
    want = low | high << bits
    if bits == 16:
        got = lanes(f"cvt.pack.sat.{to}.s32 {{d}}, {{0}}, {{1}};", a, b, out=np.uint32)
    else:
        got = lanes(f"cvt.pack.sat.{to}.s32.b32 {{d}}, {{0}}, {{1}}, {{2}};", a, b, c, out=np.uint32)
        want |= (c.astype(np.int64) << 2 * bits) & 0xFFFFFFFF
    np.testing.assert_array_equal(got, want)


# ---- refusals: what ptxas refuses, too ----

REFUSED = [
    ("cvt.s32.f32 {d}, {0};", (4,), 4, "needs a rounding modifier: .rni"),
    ("cvt.rn.s32.f32 {d}, {0};", (4,), 4, "needs integer rounding"),
    ("cvt.f32.s32 {d}, {0};", (4,), 4, "needs a rounding modifier: .rn"),
    ("cvt.rzi.f32.s32 {d}, {0};", (4,), 4, "integer rounding is not allowed"),
    ("cvt.f16.f32 {d}, {0};", (4,), 2, "needs a rounding modifier"),
    ("cvt.rn.f32.f16 {d}, {0};", (2,), 4, "rounding is not allowed where the conversion is exact"),
    ("cvt.rn.u8.u32 {d}, {0};", (4,), 1, "rounding is not allowed between integers"),
    ("cvt.rna.f16.f32 {d}, {0};", (4,), 2, ".rna is for .tf32 only"),
    ("cvt.rzi.f32.f64 {d}, {0};", (8,), 4, "integer rounding needs equal types"),
    ("cvt.rn.e4m3x2.f32 {d}, {0}, {0};", (4,), 2, "need .satfinite"),
    ("cvt.rz.satfinite.e4m3x2.f32 {d}, {0}, {0};", (4,), 2, "needs a rounding modifier: .rn"),
    ("cvt.rn.satfinite.e4m3x2.f32 {d}, {0};", (4,), 2, "has 2 operands, needs 3"),
    ("cvt.rn.satfinite.e4m3x2.f32 {d}, {0}, {0};", (4,), 1, "the destination must be a register of 16 bits"),
    ("cvt.rn.satfinite.e4m3x2.e5m2x2 {d}, {0};", (2,), 2, "cannot convert .e5m2x2 to .e4m3x2"),
    ("cvt.rn.satfinite.f16x2.e4m3x2 {d}, {0};", (2,), 4, ".satfinite is not allowed"),
    ("cvt.rn.satfinite.ue8m0x2.f32 {d}, {0}, {0};", (4,), 2, "needs a rounding modifier: .rz, .rp"),
    ("cvt.rm.f16x2.f32 {d}, {0}, {0};", (4,), 4, "needs a rounding modifier: .rn, .rz, .rs"),
    ("cvt.rn.satfinite.e4m3x4.f32 {d}, {{{0}, {0}, {0}, {0}}}, {0};", (4,), 4, "four results need .rs"),
    ("cvt.rs.satfinite.e4m3x2.f32 {d}, {0}, {0}, {0};", (4,), 2, ".rs is not allowed here"),
    ("cvt.u32.u64 {d}, {0};", (4,), 4, "the source register is .b32, too small for .u64"),
    ("cvt.u64.u32 {d}, {0};", (4,), 4, "the destination register is .b32, too small for .u64"),
    ("cvt.f32.x32 {d}, {0};", (4,), 4, "unknown type '.x32'"),
    ("cvt.pack.sat.u8.s32 {d}, {0}, {0};", (4,), 4, "need .b32"),
    ("cvt.pack.sat.u16.s32.b32 {d}, {0}, {0}, {0};", (4,), 4, "leave no room"),
]


@pytest.mark.parametrize(
    "body, inputs, output, message", REFUSED, ids=[x[0].split()[0] + str(i) for i, x in enumerate(REFUSED)]
)
def test_refusals_name_the_reason(body: str, inputs: tuple[int, ...], output: int, message: str) -> None:
    text = refusal(body, inputs, output)
    assert message in text
    assert "line " in text
