"""quantize against exact fractions over tables written by hand, ml_dtypes' codes, and worked values."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_tcgen05 as tc
from jax_tcgen05.layouts import scale_factor_layout
from jax_tcgen05.quantize import (
    dequantize,
    pack_scale_blocks,
    quantize_mx,
    quantize_nv,
    scale_matrix,
    scale_operand,
    unpack_scale_blocks,
)

E4M3, E5M2, E2M1 = "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"
E2M3, E3M2 = "float6_e2m3fn", "float6_e3m2fn"
E8M0 = "float8_e8m0fnu"
EMAX = {E4M3: 8, E5M2: 15, E2M3: 2, E3M2: 4, E2M1: 2}  # OCP MX v1.0, table of element formats
BITS = {E4M3: 8, E5M2: 8, E2M3: 6, E3M2: 6, E2M1: 4}
FORMATS = list(EMAX)


# ---------------------------------------------------------------------------------------------------------
# The independent implementation: Python fractions and the nearest of a table of all numbers.


@lru_cache
def magnitudes(name: str) -> list[Fraction]:
    """The finite numbers of the non-negative codes 0, 1, 2, ..., which are in increasing order."""
    values = np.arange(1 << (BITS[name] - 1), dtype=np.uint8).view(name).astype(np.float64)
    finite = [Fraction(v) for v in values if math.isfinite(v)]
    assert finite == sorted(finite)
    return finite


def nearest(value: Fraction, name: str) -> int:
    """The code nearest to value >= 0, ties to the even code, saturating."""
    table = magnitudes(name)
    above = bisect_left(table, value)
    if above == len(table):
        return above - 1
    if above == 0 or table[above] == value:
        return above
    low, high = value - table[above - 1], table[above] - value
    return above if high < low or (high == low and above % 2 == 0) else above - 1


def floor_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def codes_of(block: list[float], scale: Fraction, name: str) -> list[int]:
    sign = 1 << (BITS[name] - 1)
    return [
        (sign if math.copysign(1, v) < 0 else 0) | (nearest(abs(Fraction(v)) / scale, name) if scale else 0)
        for v in block
    ]


def slow_mx(block: list[float], name: str) -> tuple[list[int], int]:
    if not all(map(math.isfinite, block)):
        return [0] * len(block), 255
    largest = max(abs(Fraction(v)) for v in block)
    exponent = min(max(floor_log2(largest) - EMAX[name], -127), 127) if largest else -127
    return codes_of(block, Fraction(2) ** exponent, name), exponent + 127


def slow_nv(block: list[float], factor: float = 1.0) -> tuple[list[int], int]:
    if not all(map(math.isfinite, block)):
        return [0] * len(block), 127
    scale = nearest(max(abs(Fraction(v)) for v in block) / 6 / Fraction(factor), E4M3)
    return codes_of(block, magnitudes(E4M3)[scale] * Fraction(factor), E2M1), scale


def raw(array) -> np.ndarray:
    return np.asarray(array).view(np.uint8)


def check(x, got, slow, block: int) -> None:
    """The codes and scales of x (any shape) against `slow` of every block."""
    codes, scales = (raw(g) for g in got)
    values = np.asarray(x).astype(np.float64).reshape(-1, block)
    expected = [slow(row.tolist()) for row in values]
    np.testing.assert_array_equal(scales.reshape(-1), [scale for _, scale in expected])
    np.testing.assert_array_equal(codes.reshape(-1, block), [row for row, _ in expected])


def neighbours(values) -> np.ndarray:
    """float32 values with the next float32 below and above each."""
    v = np.asarray(values, np.float32)
    return np.concatenate([np.nextafter(v, np.float32(-np.inf)), v, np.nextafter(v, np.float32(np.inf))])


# ---------------------------------------------------------------------------------------------------------
# Worked values.

WORKED = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, -0.0]
WORKED_E2M1 = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0, -0.0]


def test_the_table_of_e2m1_is_the_published_one():
    assert magnitudes(E2M1) == [0, Fraction(1, 2), 1, Fraction(3, 2), 2, 3, 4, 6]


def test_mx_e2m1_rounds_ties_to_even_and_keeps_minus_zero():
    x = np.array(WORKED + [0.0] * 23, np.float32)  # max 7: e = 2 - 2
    codes, scales = quantize_mx(x, E2M1)
    assert codes.dtype == E2M1 and scales.dtype == E8M0
    assert raw(scales).tolist() == [127]
    got = np.asarray(codes).astype(np.float32)[:9]
    np.testing.assert_array_equal(got, WORKED_E2M1)
    assert np.signbit(got).tolist() == [False] * 8 + [True]


def test_nv_saturates_at_six_where_the_scale_saturates_at_448():
    x = np.array([*WORKED, 100.0] + [0.0] * 6, np.float32) * np.float32(1.75)
    codes, scales = quantize_nv(x, global_scale=2**-8)
    assert scales.dtype == E4M3 and codes.dtype == E2M1
    assert raw(scales).tolist() == [0x7E]  # 448, and 448 * 2**-8 = 1.75
    got = np.asarray(codes).astype(np.float32)[:10]
    np.testing.assert_array_equal(got, [*WORKED_E2M1, 6.0])
    assert np.signbit(got[8])


def test_nv_scale_is_a_sixth_of_the_largest_rounded_to_e4m3():
    x = np.zeros((4, 16), np.float32)
    x[:, 3] = [6.0, -3.0, 7.0, 6 * 2.0**-9]
    codes, scales = quantize_nv(x)
    # 7/6 = 1.1667 lies between 1.125 and 1.25; 7/1.125 = 6.2 saturates.
    np.testing.assert_array_equal(np.asarray(scales).astype(np.float32)[:, 0], [1.0, 0.5, 1.125, 2.0**-9])
    np.testing.assert_array_equal(np.asarray(codes).astype(np.float32)[:, 3], [6, -6, 6, 6])


@pytest.mark.parametrize(
    ("name", "value", "code", "scale"),
    [
        (E4M3, 1.0, 0x78, 119),  # 256 * 2**-8
        (E4M3, 1.99, 0x7E, 119),  # 509 saturates at 448
        (E5M2, 1.0, 0x78, 112),  # 2**15 * 2**-15
        (E5M2, -1.99, 0xFB, 112),  # 65208 saturates at 57344, not infinity
        (E2M3, 1.0, 0b010000 | 0b001000, 125),  # 4 * 2**-2: exponent field 3
        (E2M3, 1.99, 0x1F, 125),  # 7.96 saturates at 7.5
        (E3M2, -1.0, 0b100000 | 0b11100, 123),  # 16 * 2**-4: exponent field 7
        (E2M1, 1.0, 0b0110, 125),
        (E2M1, 3e38, 0b0111, 252),  # 1.76 * 2**127
        (E2M1, 2.0**-126, 0b0100, 0),  # e is clamped to -127: 2 * 2**-127
    ],
)
def test_mx_worked(name, value, code, scale):
    codes, scales = quantize_mx(np.full((1, 32), value, np.float32), name)
    assert raw(scales).tolist() == [[scale]]
    assert set(raw(codes).reshape(-1).tolist()) == {code}


def test_fp6_codes_are_uint8():
    for name in (E2M3, E3M2):
        codes, _ = quantize_mx(np.ones((2, 64), np.float32), name)
        assert codes.dtype == np.uint8 and codes.shape == (2, 64)


# ---------------------------------------------------------------------------------------------------------
# Every boundary.


@pytest.mark.parametrize("exponent", [0, 9, -131, 111], ids="2**{}".format)
@pytest.mark.parametrize("name", FORMATS)
def test_mx_every_rounding_boundary(name, exponent):
    table = magnitudes(name)
    edges = [*table, *((a + b) / 2 for a, b in pairwise(table))]
    scale = Fraction(2) ** exponent
    values = neighbours([float(e * scale) for e in edges])
    # The second of a pair holds the scale where it is, at the largest binade of the format.
    x = np.stack([values, np.full_like(values, float(Fraction(2) ** EMAX[name] * scale))], axis=-1)
    x = np.concatenate([x, -x])
    check(x, quantize_mx(x, name, block=2), lambda row: slow_mx(row, name), 2)


def test_nv_every_scale_with_every_element_boundary():
    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    scales = np.array([float(m) for m in magnitudes(E4M3)[1:]], np.float32)
    x = np.stack([np.concatenate([neighbours([t * s for t in ties]), [6 * s]]) for s in scales])
    x = np.concatenate([x, -x]).astype(np.float32)
    codes, got = quantize_nv(x, block=22)
    np.testing.assert_array_equal(raw(got)[:, 0], [*range(1, 127)] * 2)
    check(x, (codes, got), slow_nv, 22)


def test_nv_every_scale_boundary():
    table = magnitudes(E4M3)
    edges = [6 * e for e in (*table, *((a + b) / 2 for a, b in pairwise(table)))]
    values = neighbours([float(e) for e in edges])
    x = np.stack([values, -values / 3], axis=-1)
    check(x, quantize_nv(x, block=2), slow_nv, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_inputs_are_read_exactly(dtype):
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    x = np.stack([every, np.roll(every, 12345)], axis=-1)
    wide = x.astype(np.float32)
    for name in (E4M3, E2M1):
        for got, want in zip(quantize_mx(x, name, 2), quantize_mx(wide, name, 2), strict=True):
            np.testing.assert_array_equal(raw(got), raw(want))
    for got, want in zip(quantize_nv(x, 2), quantize_nv(wide, 2), strict=True):
        np.testing.assert_array_equal(raw(got), raw(want))


# ---------------------------------------------------------------------------------------------------------
# Any numbers.

ANY_FLOAT = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 0x7FFFFF, 0x7F7FFFFF, 0x80000000])
FINITE = ANY_FLOAT.filter(lambda bits: bits & 0x7F800000 != 0x7F800000)
#: Numbers near each other, so that elements do not all round to zero, and numbers from anywhere.
BLOCKS = st.one_of(
    st.lists(ANY_FLOAT, min_size=16, max_size=16),
    st.lists(FINITE, min_size=16, max_size=16),
    st.tuples(st.integers(0, 254), st.lists(st.integers(0, 2**25 - 1), min_size=16, max_size=16)).map(
        lambda t: [(max(t[0] - (b >> 23 & 1), 0) << 23) | (b & 0x7FFFFF) | (b >> 24 << 31) for b in t[1]]
    ),
)
_jitted_mx = jax.jit(quantize_mx, static_argnums=(1, 2))
_jitted_nv = jax.jit(quantize_nv, static_argnums=1)


def floats(bits: list[int]) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(BLOCKS, st.sampled_from(FORMATS))
def test_mx_any_block(bits, name):
    x = floats(bits)
    check(x, _jitted_mx(x, name, 16), lambda row: slow_mx(row, name), 16)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(BLOCKS)
def test_nv_any_block(bits):
    check(floats(bits), _jitted_nv(floats(bits), 16), slow_nv, 16)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 2**24 - 1), min_size=16, max_size=16), st.integers(1, 0x7F7FFFFF))
def test_nv_any_global_scale(mantissas, factor_bits):
    factor = floats([factor_bits])[0]
    # x in the reach of the scales: factor * (2**-12 .. 2**12), as far as float32 goes.
    spread = 2.0 ** ((mantissas[0] % 24) - 12)
    with np.errstate(over="ignore", under="ignore"):
        x = (np.array(mantissas) / 2**22 * spread * float(factor)).astype(np.float32)
    x = np.nan_to_num(x, posinf=3.4e38)
    got = _jitted_nv(x, 16, global_scale=jnp.asarray(factor))
    check(x, got, lambda row: slow_nv(row, float(factor)), 16)


def test_nv_ties_with_a_global_scale_are_exact():
    # t * scale * global_scale is a float32 here, so these are ties, and their neighbours are not.
    factor = np.float32(float.fromhex("0x1.234p-3"))
    for code in (0x01, 0x07, 0x0B, 0x35, 0x3F, 0x7D):
        scale = np.float32(magnitudes(E4M3)[code]) * factor
        x = np.concatenate(
            [neighbours([t * scale for t in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5)]), [6 * scale]]
        )
        codes, scales = quantize_nv(x.astype(np.float32), 22, global_scale=factor)
        assert raw(scales).tolist() == [code]
        check(x.astype(np.float32), (codes, scales), lambda row: slow_nv(row, float(factor)), 22)


# ---------------------------------------------------------------------------------------------------------
# Zeros, NaN, infinities.


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_mx_a_nan_or_infinity_makes_its_block_nan_and_no_other(name, value):
    x = np.ones((3, 64), np.float32)
    x[1, 40] = value
    codes, scales = quantize_mx(x, name)
    nan = np.zeros((3, 2), bool)
    nan[1, 1] = True
    np.testing.assert_array_equal(raw(scales) == 0xFF, nan)
    assert not raw(codes)[1, 32:].any()
    back = np.asarray(dequantize(codes, scales, name))
    np.testing.assert_array_equal(np.isnan(back), np.repeat(nan, 32, axis=1))
    np.testing.assert_array_equal(back[~np.isnan(back)], 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nv_a_nan_or_infinity_makes_its_block_nan_and_no_other(value):
    x = np.full((2, 32), 6.0, np.float32)
    x[0, 17] = value
    codes, scales = quantize_nv(x)
    assert raw(scales).tolist() == [[0x38, 0x7F], [0x38, 0x38]]
    assert not raw(codes)[0, 16:].any()
    back = np.asarray(dequantize(codes, scales))
    assert np.isnan(back[0, 16:]).all() and (back[1] == 6).all() and (back[0, :16] == 6).all()


def test_blocks_of_zeros():
    x = np.zeros((2, 32), np.float32)
    x[1] = -0.0
    for name in FORMATS:
        codes, scales = quantize_mx(x, name)
        assert raw(scales).tolist() == [[0], [0]]
        assert (raw(codes) == [[0], [1 << (BITS[name] - 1)]]).all()
    codes, scales = quantize_nv(x)
    assert not raw(scales).any()
    assert (raw(codes) == [[0], [8]]).all()
    back = np.asarray(dequantize(codes, scales))
    assert (back == 0).all() and np.signbit(back).tolist() == [[False] * 32, [True] * 32]


def test_nv_a_scale_that_rounds_to_zero_gives_zeros():
    least = np.float32(6 * 2.0**-10)  # the tie between scale 0 and 2**-9 goes to 0
    x = np.stack([np.full(16, least), np.full(16, np.nextafter(least, np.float32(1)))])
    codes, scales = quantize_nv(x)
    assert raw(scales).tolist() == [[0], [1]]
    # 6*2**-10 / 2**-9 = 3
    np.testing.assert_array_equal(np.asarray(codes).astype(np.float32)[:, 0], [0, 3])


@pytest.mark.parametrize("factor", [np.nan, np.inf, -1.0, -np.inf])
def test_a_bad_global_scale_in_an_array_gives_nan_everywhere(factor):
    x = np.arange(32, dtype=np.float32).reshape(2, 16) - 16
    _, scales = jax.jit(lambda x, g: quantize_nv(x, global_scale=g))(x, jnp.float32(factor))
    assert (raw(scales) == 0x7F).all()


def test_a_global_scale_of_zero_is_fine_for_zeros_only():
    x = np.zeros((2, 16), np.float32)
    x[1, 1] = 1e-30
    _, scales = quantize_nv(x, global_scale=jnp.float32(0))
    assert raw(scales).tolist() == [[0], [0x7F]]


# ---------------------------------------------------------------------------------------------------------
# Back.


@pytest.mark.parametrize("scale_dtype", [E8M0, E4M3])
@pytest.mark.parametrize("name", FORMATS)
def test_dequantize_every_code_with_every_scale(name, scale_dtype):
    count = 1 << BITS[name]
    codes = np.tile(np.arange(count, dtype=np.uint8), (256, 1))
    scales = np.arange(256, dtype=np.uint8).reshape(256, 1)
    element = codes.view(name).astype(np.float64)
    # The instruction ignores bit 7 of an e4m3 scale.
    factor = (scales & 0x7F if scale_dtype == E4M3 else scales).view(scale_dtype).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (element * factor).astype(np.float32)
    given_codes = codes if BITS[name] == 6 else codes.view(name)
    got = np.asarray(dequantize(given_codes, scales.view(scale_dtype), name, count))
    assert got.dtype == np.float32
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])


def test_dequantize_scale_128_is_a_number_and_255_is_not():
    codes = np.ones((8, 32), np.float32).astype(E4M3)
    scales = np.array([[126], [127], [128], [133], [134], [135], [254], [255]], np.uint8).view(E8M0)
    got = np.asarray(dequantize(codes, scales))[:, 0]
    np.testing.assert_array_equal(got, [0.5, 1, 2, 64, 128, 256, 2.0**127, np.nan])


def test_dequantize_does_not_flush_subnormals():
    codes = np.full((1, 32), 2.0**-9).astype(E4M3)
    scales = np.zeros((1, 1), np.uint8).view(E8M0)
    got = np.asarray(jax.jit(dequantize)(codes, scales)).view(np.uint32)
    assert (got == 1 << (149 - 136)).all()


def test_dequantize_uint8_codes():
    scales = np.full((1, 1), 127, np.uint8).view(E8M0)
    codes = np.full((1, 32), 0xC0 | 0b100001, np.uint8)
    assert (np.asarray(dequantize(codes, scales, E2M3)) == -0.125).all()
    assert (np.asarray(dequantize(codes, scales, E3M2)) == -0.0625).all()
    assert (np.asarray(dequantize(codes, scales, E2M1)) == 0.5).all()


def test_dequantize_block_defaults_follow_the_scales_dtype_not_the_shapes():
    codes = np.ones((2, 64), np.float32).astype(E2M1)
    eight, sixteen = (np.full((2, n), 127, np.uint8) for n in (2, 4))
    assert dequantize(codes, eight.view(E8M0)).shape == (2, 64)
    assert dequantize(codes, sixteen.view(E8M0), block=16).shape == (2, 64)
    with pytest.raises(ValueError, match=r"scales: got shape \(2, 4\).*block=32"):
        dequantize(codes, sixteen.view(E8M0))
    with pytest.raises(ValueError, match=r"scales: got shape \(2, 2\).*block=16"):
        dequantize(codes, (eight & 0x38).view(E4M3))


def test_dequantize_multiplies_by_the_global_scale():
    x = (np.arange(64, dtype=np.float32).reshape(2, 32) - 31) * np.float32(1e-6)
    factor = jnp.max(jnp.abs(x)) / (6 * 448)
    codes, scales = quantize_nv(x, global_scale=factor)
    assert raw(scales).max() == 0x7E
    back = np.asarray(dequantize(codes, scales, global_scale=factor))
    assert np.abs(back - x).max() < np.abs(x).max() / 6
    plain = np.asarray(dequantize(codes, scales))
    np.testing.assert_array_equal(back, plain * np.asarray(factor))
    np.testing.assert_array_equal(
        jax.grad(lambda g: dequantize(codes, scales, global_scale=g).sum())(factor), plain.sum()
    )


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_of_the_format_come_back(name):
    table = np.array([float(m) for m in magnitudes(name)])
    x = np.concatenate([table, -table]).astype(np.float32) * np.float32(2.0**-5)
    codes, scales = quantize_mx(x[None], name, block=len(x))
    np.testing.assert_array_equal(np.asarray(dequantize(codes, scales, name, len(x)))[0], x)


# ---------------------------------------------------------------------------------------------------------
# Transformations.


def test_jit_and_vmap_give_the_same_bits():
    x = np.random.default_rng(0).standard_normal((3, 2, 64)).astype(np.float32)
    for one in (lambda v: quantize_mx(v, E2M1), lambda v: quantize_nv(v), lambda v: quantize_mx(v, E3M2)):
        want = [raw(a) for a in one(x)]
        for other in (jax.jit(one), jax.vmap(one), jax.jit(jax.vmap(jax.vmap(one)))):
            for got, expected in zip(other(x), want, strict=True):
                np.testing.assert_array_equal(raw(got), expected)


def test_vmap_over_global_scales():
    x = np.random.default_rng(1).standard_normal((3, 2, 32)).astype(np.float32)
    factors = np.array([0.5, 1e-3, 7.0], np.float32)
    codes, scales = jax.vmap(lambda v, g: quantize_nv(v, global_scale=g))(x, factors)
    for i in range(3):
        check(x[i], (codes[i], scales[i]), lambda row, i=i: slow_nv(row, float(factors[i])), 16)


def test_the_derivative_is_zero():
    def loss(x):
        codes, scales = quantize_mx(x, E4M3)
        return dequantize(codes, scales).sum()

    np.testing.assert_array_equal(jax.grad(loss)(jnp.ones((2, 32))), np.zeros((2, 32)))


def test_64_bit_jax_gives_the_same_bits():
    x = np.random.default_rng(2).standard_normal((2, 32)).astype(np.float32)
    with jax.enable_x64(True):
        check(x, quantize_mx(x, E5M2), lambda row: slow_mx(row, E5M2), 32)
        check(x, quantize_nv(x, global_scale=1e-3), lambda row: slow_nv(row, float(np.float32(1e-3))), 16)
        assert dequantize(*quantize_nv(x)).dtype == np.float32


def test_empty():
    codes, scales = quantize_mx(np.zeros((0, 64), np.float32), E2M1)
    assert codes.shape == (0, 64) and scales.shape == (0, 2)
    codes, scales = quantize_nv(np.zeros((3, 0), np.float32))
    assert codes.shape == (3, 0) and scales.shape == (3, 0)
    assert dequantize(codes, scales).shape == (3, 0)


def test_large_fp4_arrays_keep_their_codes():
    # More than 64 Ki elements, transposed and reshaped afterwards, twice.
    count = 9000
    x = np.tile(
        np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32), (count, 1)
    )
    for _ in range(2):
        codes, _ = quantize_nv(x)
        assert raw(codes.T.reshape(16, count)).tolist()[9] == [9] * count
        np.testing.assert_array_equal(raw(codes), np.tile(np.arange(16, dtype=np.uint8), (count, 1)))


# ---------------------------------------------------------------------------------------------------------
# Scales into place.


def numbered(*shape: int) -> np.ndarray:
    """Distinct codes as far as a byte goes, in no order that a wrong permutation would keep."""
    return (np.arange(math.prod(shape)) * 37 % 251).astype(np.uint8).reshape(shape)


def test_pack_row_33_column_1_is_byte_21():
    scales = np.zeros((128, 4), np.uint8)
    scales[33, 1] = 1
    assert np.flatnonzero(raw(pack_scale_blocks(scales))).tolist() == [21]


@pytest.mark.parametrize("dtype", [E8M0, E4M3, "uint8"])
@pytest.mark.parametrize(
    "shape", [(128, 4), (1, 1), (48, 6), (129, 5), (300, 16), (0, 4), (2, 24, 3), (2, 3, 130, 9)]
)
def test_pack_blocks_by_the_formula_and_back(shape, dtype):
    scales = numbered(*shape)
    *prefix, rows, columns = shape
    blocks = pack_scale_blocks(scales.view(dtype))
    assert blocks.dtype == dtype
    expected = np.zeros((*prefix, -(-rows // 128), -(-columns // 4), 512), np.uint8)
    for r in range(rows):
        for c in range(columns):
            expected[..., r // 128, c // 4, 16 * (r % 32) + 4 * (r % 128 // 32) + c % 4] = scales[..., r, c]
    np.testing.assert_array_equal(raw(blocks), expected)
    back = unpack_scale_blocks(blocks, rows=rows, columns=columns)
    assert back.dtype == dtype
    np.testing.assert_array_equal(raw(back), scales)


def test_pack_pads_every_batch_element_on_its_own():
    scales = numbered(3, 48, 5)
    whole = raw(pack_scale_blocks(scales))
    mapped = raw(jax.vmap(pack_scale_blocks)(scales))
    for i in range(3):
        np.testing.assert_array_equal(whole[i], raw(pack_scale_blocks(scales[i])))
        np.testing.assert_array_equal(mapped[i], whole[i])


def test_unpack_does_not_look_at_padding():
    scales = numbered(40, 3)
    blocks = raw(pack_scale_blocks(scales))
    used = raw(pack_scale_blocks(np.ones_like(scales))) == 1
    dirty = np.where(used, blocks, 0xFF).astype(np.uint8)
    np.testing.assert_array_equal(raw(unpack_scale_blocks(dirty, rows=40, columns=3)), scales)


@pytest.mark.parametrize(
    ("repeat", "k_repeat", "rows", "vec"), [(1, 1, 128, 4), (2, 3, 64, 2), (3, 5, 24, 1)]
)
def test_scale_operand_by_index_and_back(repeat, k_repeat, rows, vec):
    scales = numbered(2, repeat * rows, k_repeat * vec)
    operand = scale_operand(scales.view(E8M0), rows=rows, vec=vec)
    assert operand.dtype == E8M0 and operand.shape == (2, repeat, k_repeat, rows, vec)
    i, k, r, v = np.indices((repeat, k_repeat, rows, vec))
    np.testing.assert_array_equal(raw(operand), scales[:, i * rows + r, k * vec + v])
    np.testing.assert_array_equal(raw(scale_matrix(operand)), scales)


@pytest.mark.parametrize(
    ("rows", "vec", "k_repeat"), [(128, 1, 4), (128, 4, 3), (64, 2, 5), (256, 1, 9), (48, 2, 2)]
)
def test_blocks_copied_to_tmem_are_the_operand_in_its_layout(rows, vec, k_repeat):
    """cp brings 16 bytes of a block to each lane; blocks of one word follow each other, then those of the next."""
    scales = numbered(rows, k_repeat * vec)
    blocks = raw(pack_scale_blocks(scales))
    tmem = np.swapaxes(blocks, 0, 1).reshape(-1, 32, 16)  # in the order of columns
    image = scale_factor_layout((1, k_repeat, rows, vec), E8M0).image()
    lane, byte = image["TLane"], image["TCol"]
    np.testing.assert_array_equal(
        tmem[byte // 16, lane, byte % 16], raw(scale_operand(scales, rows=rows, vec=vec))
    )


# ---------------------------------------------------------------------------------------------------------
# Through the instruction: few enough bits that the product of the dequantized arrays is exact.


def outer(rows: int, k: int, block: int) -> np.ndarray:
    """Small numbers whose binade differs by row and by block, so that every scale is in its own place."""
    rng = np.random.default_rng(rows)
    exponents = np.arange(rows)[:, None] % 5 + np.arange(k)[None] // block % 3
    return (rng.integers(-6, 7, (rows, k)) * 2.0**exponents).astype(np.float32)


def placed_scales(scales, rows: int, vec: int):
    operand = scale_operand(scales, rows=rows, vec=vec)
    return tc.tmem(operand, tc.scale_factor_layout(operand.shape, operand.dtype))


def empty_d():
    layout = tc.tmem_mma_operand_layout("D", (2, 1, 128, 48), "float32", M=128, cta_group=1)
    return tc.tmem_empty((2, 1, 128, 48), "float32", layout)


def test_mx_through_mma():
    (a, sfa), (b, sfb) = quantize_mx(outer(256, 128, 32), E4M3), quantize_mx(outer(48, 128, 32), E3M2)
    d = tc.mma(
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X",
        empty_d(),
        tc.shared(a, tc.mma_shared_layout(E4M3, 3, a.shape)).rearrange(
            "(r m) (kr k) -> r kr m k", k=32, m=128
        ),
        tc.shared(b, tc.mma_shared_layout("uint8", 3, b.shape)).rearrange(
            "(r n) (kr k) -> r kr n k", k=32, n=48
        ),
        placed_scales(sfa, 128, 1),
        placed_scales(sfb, 48, 1),
        instruction_shape=(128, 48, 32),
        a_descriptor=(16, 1024, 3),
        b_descriptor=(16, 1024, 3),
        b_format=E3M2,
    )
    expected = np.asarray(dequantize(a, sfa)) @ np.asarray(dequantize(b, sfb, E3M2)).T
    np.testing.assert_array_equal(np.asarray(d.array).reshape(256, 48), expected)


def test_nv_through_mma():
    (a, sfa), (b, sfb) = quantize_nv(outer(256, 128, 16)), quantize_nv(outer(48, 128, 16))
    d = tc.mma(
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X",
        empty_d(),
        tc.shared(a, tc.mma_shared_layout(E2M1, 2, a.shape)).rearrange(
            "(r m) (kr k) -> r kr m k", k=64, m=128
        ),
        tc.shared(b, tc.mma_shared_layout(E2M1, 2, b.shape)).rearrange(
            "(r n) (kr k) -> r kr n k", k=64, n=48
        ),
        placed_scales(sfa, 128, 4),
        placed_scales(sfb, 48, 4),
        instruction_shape=(128, 48, 64),
        a_descriptor=(16, 512, 2),
        b_descriptor=(16, 512, 2),
    )
    expected = np.asarray(dequantize(a, sfa)) @ np.asarray(dequantize(b, sfb)).T
    np.testing.assert_array_equal(np.asarray(d.array).reshape(256, 48), expected)


# ---------------------------------------------------------------------------------------------------------
# Refusals.

ONES = np.ones((2, 64), np.float32)
SCALES = np.zeros((128, 4), np.uint8)
REFUSALS = {
    "format": (lambda: quantize_mx(ONES, "int8"), "format: got 'int8'.*float4_e2m1fn"),
    "e4m3fnuz": (lambda: quantize_mx(ONES, ml_dtypes.float8_e4m3fnuz), "format: got 'float8_e4m3fnuz'"),
    "float64": (lambda: quantize_mx(ONES.astype(np.float64), E4M3), "x: dtype: got 'float64'.*bfloat16"),
    "float64 nv": (lambda: quantize_nv(ONES.astype(np.float64)), "x: dtype: got 'float64'"),
    "integers": (lambda: quantize_nv(np.ones((2, 64), np.int32)), "x: dtype: got 'int32'"),
    "scalar": (lambda: quantize_nv(np.float32(1)), "x: got a scalar"),
    "K": (lambda: quantize_mx(ONES[:, :48], E4M3), r"x: got shape \(2, 48\).*multiple of block=32"),
    "K nv": (lambda: quantize_nv(ONES[:, :24]), r"x: got shape \(2, 24\).*multiple of block=16"),
    "block 0": (lambda: quantize_mx(ONES, E4M3, 0), "block: got 0.*at least 1"),
    "block float": (lambda: quantize_mx(ONES, E4M3, 32.0), "block: got 32.0.*int.*static"),
    "block bool": (lambda: quantize_nv(ONES, True), "block: got True"),
    "block traced": (lambda: jax.jit(lambda b: quantize_nv(ONES, b))(16), "block: got .*static"),
    "global_scale 0": (lambda: quantize_nv(ONES, global_scale=0), "global_scale: got 0; allowed: a positive"),
    "global_scale nan": (lambda: quantize_nv(ONES, global_scale=math.nan), "global_scale: got nan"),
    "global_scale huge": (lambda: quantize_nv(ONES, global_scale=10**400), "global_scale: got 1000"),
    "global_scale tiny": (lambda: quantize_nv(ONES, global_scale=1e-60), "global_scale: got 1e-60"),
    "global_scale bool": (lambda: quantize_nv(ONES, global_scale=True), "global_scale: got 'True'"),
    "global_scale array": (
        lambda: quantize_nv(ONES, global_scale=ONES[0, :2]),
        r"global_scale: got 'float32\[2\]'.*vmap",
    ),
    "scales uint8": (
        lambda: dequantize(ONES.astype(E4M3), np.zeros((2, 2), np.uint8)),
        "scales: dtype: got 'uint8'",
    ),
    "codes float32": (lambda: dequantize(ONES, SCALES.view(E8M0)), "codes: dtype: got 'float32'"),
    "no format": (
        lambda: dequantize(np.zeros((2, 64), np.uint8), np.zeros((2, 2), np.uint8).view(E8M0)),
        "format: got None; allowed: float6_e2m3fn, float6_e3m2fn, float4_e2m1fn.*codes are uint8",
    ),
    "other format": (
        lambda: dequantize(ONES.astype(E4M3), np.zeros((2, 2), np.uint8).view(E8M0), E5M2),
        "codes: dtype: got 'float8_e4m3fn'; allowed: float8_e5m2 .format is float8_e5m2",
    ),
    "packed fp4": (
        lambda: dequantize(np.zeros((2, 32), np.uint8), np.zeros((2, 2), np.uint8).view(E8M0), E2M1),
        r"scales: got shape \(2, 2\) for codes of shape \(2, 32\) and block=32.*one code an entry",
    ),
    "padded scales": (  # K = 192 has 6 scales; 8 would mean blocks of 24
        lambda: dequantize(np.zeros((1, 192), E4M3), np.zeros((1, 8), np.uint8).view(E8M0)),
        r"scales: got shape \(1, 8\).*block=32.*not padded",
    ),
    "leading axes": (
        lambda: dequantize(np.zeros((2, 32), E4M3), np.zeros((1, 1), np.uint8).view(E8M0)),
        r"scales: got shape \(1, 1\) for codes of shape \(2, 32\)",
    ),
    "rows": (
        lambda: scale_operand(SCALES, rows=48, vec=4),
        r"scales: got shape \(128, 4\) and rows=48.*R a multiple",
    ),
    "vec": (
        lambda: scale_operand(SCALES[:, :3], rows=128, vec=2),
        r"got shape \(128, 3\) and vec=2.*C a multiple",
    ),
    "flat": (
        lambda: scale_operand(SCALES.reshape(-1), rows=128, vec=4),
        r"scales: got shape \(512,\); expected \(\.\.\., R, C\)",
    ),
    "flat pack": (lambda: pack_scale_blocks(SCALES.reshape(-1)), r"scales: got shape \(512,\)"),
    "float scales": (lambda: pack_scale_blocks(ONES), "scales: dtype: got 'float32'.*uint8"),
    "flat blocks": (
        lambda: unpack_scale_blocks(np.zeros(1024, np.uint8), rows=128, columns=8),
        r"blocks: got shape \(1024,\)",
    ),
    "logical as blocks": (
        lambda: unpack_scale_blocks(np.zeros((1, 128, 4), np.uint8), rows=128, columns=4),
        r"blocks: got shape \(1, 128, 4\) with rows=128, columns=4; expected \(\.\.\., 1, 1, 512\)",
    ),
    "other rows": (
        lambda: unpack_scale_blocks(np.zeros((1, 1, 512), np.uint8), rows=129, columns=4),
        r"expected \(\.\.\., 2, 1, 512\)",
    ),
    "operand rank": (
        lambda: scale_matrix(SCALES),
        r"operand: got shape \(128, 4\); expected \(\.\.\., repeat",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused(case):
    call, message = REFUSALS[case]
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        call()


def test_lists_are_refused():
    with pytest.raises(TypeError, match="x: got list; expected an array of float32, float16, bfloat16"):
        quantize_nv([1.0] * 16)
