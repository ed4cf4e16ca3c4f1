"""One element of D, slowly: decoding, exact fused sums, conversion. A part of `slow_mma`, independent of the package.

Integers throughout: every sum below fits 63 bits, as the comments say, so int64 is exact. All functions
broadcast; K is the last axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Format(NamedTuple):
    """exponent bits, fraction bits, bias, and which codes are special: "ieee", "nan" (all ones only) or "none"."""

    exponent: int
    fraction: int
    bias: int
    special: str


FORMATS = {
    "f16": Format(5, 10, 15, "ieee"),
    "bf16": Format(8, 7, 127, "ieee"),
    "f32": Format(8, 23, 127, "ieee"),
    "tf32": Format(8, 10, 127, "ieee"),  # after dropping the low 13 bits of the word
    "e4m3": Format(4, 3, 7, "nan"),
    "e5m2": Format(5, 2, 15, "ieee"),
    "e3m2": Format(3, 2, 3, "none"),
    "e2m3": Format(2, 3, 1, "none"),
    "e2m1": Format(2, 1, 1, "none"),
}


class Number(NamedTuple):
    """(-1)**negative * significand * 2**(exponent - fraction); the significand is an integer."""

    negative: Array
    significand: Array
    exponent: Array
    fraction: int
    nan: Array
    inf: Array

    def at(self, index: tuple) -> Number:
        return Number(*(x if isinstance(x, int) else x[index] for x in self))


def decode(codes: Array, name: str) -> Number:
    """The numbers behind codes. Subnormals are kept: they have the smallest normal exponent."""
    form = FORMATS[name]
    code = codes.astype(np.int64)
    if name == "tf32":
        code = code >> 13
    fraction = code & ((1 << form.fraction) - 1)
    biased = code >> form.fraction & ((1 << form.exponent) - 1)
    negative = code >> (form.fraction + form.exponent) & 1
    top = biased == (1 << form.exponent) - 1
    never = np.zeros(code.shape, bool)
    nan = {
        "ieee": top & (fraction != 0),
        "nan": top & (fraction == (1 << form.fraction) - 1),
        "none": never,
    }[form.special]
    inf = top & (fraction == 0) if form.special == "ieee" else never
    significand = np.where(biased == 0, fraction, fraction + (1 << form.fraction))
    exponent = np.maximum(biased, 1) - form.bias
    return Number(negative == 1, significand, exponent, form.fraction, nan, inf)


def decode_scale(codes: Array, name: str) -> Number:
    """Scale factors: powers of two (ue8m0), or e4m3 without its sign (ue4m3)."""
    code = codes.astype(np.int64)
    if name == "ue4m3":
        return decode(code & 0x7F, "e4m3")
    never = np.zeros(code.shape, bool)
    return Number(never, np.ones_like(code), code - 127, 0, code == 0xFF, never)


def _align(significand: Array, unit: Array, low: Array, widest: int) -> Array:
    """significand * 2**unit in multiples of 2**low, cut toward zero; it grows by `widest` bits at most."""
    shift = unit - low
    grown = significand << np.clip(shift, 0, widest)
    return np.where(shift >= 0, grown, significand >> np.clip(-shift, 0, 63))


def _signed(negative: Array, magnitude: Array) -> Array:
    return np.where(negative, -magnitude, magnitude)


def _encode(total: Array, unit: Array, name: str) -> Array:
    """total * 2**unit as a code of f32 (toward zero) or f16 (nearest even); overflow is infinity, zero is +0."""
    form = FORMATS[name]
    magnitude = np.abs(total)
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)  # below 2**53: exact
    smallest = 1 - form.bias - form.fraction
    low = np.maximum(unit + length - (form.fraction + 1), smallest)
    down, up = np.clip(low - unit, 0, 62), np.clip(unit - low, 0, 30)
    kept = (magnitude << up) >> down
    if name == "f16":
        rest = magnitude - (kept << down)
        half = np.where(down > 0, np.int64(1) << np.maximum(down - 1, 0), 0)
        kept = kept + ((down > 0) & ((rest > half) | ((rest == half) & (kept % 2 == 1))))
    code = ((low - smallest) << form.fraction) + kept
    infinity = ((1 << form.exponent) - 1) << form.fraction
    code = np.where(kept == 0, 0, np.minimum(code, infinity))
    sign = np.int64(1) << (form.exponent + form.fraction)
    return np.where((total < 0) & (kept != 0), code + sign, code)


def _specials(code: Array, nan: Array, plus: Array, minus: Array, name: str) -> Array:
    form = FORMATS[name]
    bits = form.exponent + form.fraction
    infinity = ((1 << form.exponent) - 1) << form.fraction
    code = np.where(plus, infinity, code)
    code = np.where(minus, infinity + (1 << bits), code)
    return np.where(nan | (plus & minus), (1 << bits) - 1, code)


def _zero(name: str, shape: tuple[int, ...]) -> Number:
    return decode(np.zeros(shape, np.int64), name)


def _special_terms(a: Number, b: Number, c: Number) -> tuple[Array, Array, Array]:
    """(NaN, +infinity, -infinity) among the products and C."""
    a_zero, b_zero = (a.significand == 0), (b.significand == 0)
    product_inf = (a.inf & ~b.nan) | (b.inf & ~a.nan)
    negative = a.negative ^ b.negative
    nan = (a.nan | b.nan | (a.inf & b_zero) | (b.inf & a_zero)).any(-1) | c.nan
    plus = (product_inf & ~negative).any(-1) | (c.inf & ~c.negative)
    minus = (product_inf & negative).any(-1) | (c.inf & c.negative)
    return nan, plus, minus


def fused(
    a: Number, b: Number, c: Array | None, result: str, scale: tuple[Number, Number] | None = None
) -> Array:
    """numerics.md 1: one fused sum of all products and C. `scale`: ue8m0 of A and B, one of each per element."""
    floor = {"f32": -133, "f16": -21}[result]
    significand = a.significand * b.significand
    exponent = a.exponent + b.exponent
    addend = _zero(result, significand.shape[:-1]) if c is None else decode(c, result)
    nan, plus, minus = _special_terms(a, b, addend)
    if scale is not None:
        exponent = exponent + (scale[0].exponent + scale[1].exponent)[..., None]
        nan = nan | scale[0].nan | scale[1].nan
    top = np.where(significand != 0, exponent, floor).max(-1)
    top = np.maximum(top, np.where(addend.significand != 0, addend.exponent, floor))
    top = np.maximum(top, floor)
    low = top - 25
    # A product has at most 22 bits and stays below 4 * 2**top, so it is below 2**27 here; 33 terms below 2**33.
    terms = _align(significand, exponent - a.fraction - b.fraction, low[..., None], 25)
    total = _signed(a.negative ^ b.negative, terms).sum(-1)
    total = total + _signed(
        addend.negative, _align(addend.significand, addend.exponent - addend.fraction, low, 25)
    )
    return _specials(_encode(total, low, result), nan, plus, minus, result)


def grouped(a: Number, b: Number, c: Array | None, sfa: Number, sfb: Number) -> Array:
    """numerics.md 2: FP4, four exact groups of 16, each with its scale. sfa, sfb: (..., scales of the step)."""
    # Exponents of e2m1 are 0 to 2, so a product is a whole number of quarters.
    product = _signed(a.negative ^ b.negative, (a.significand * b.significand) << (a.exponent + b.exponent))
    by_group = product.reshape(*product.shape[:-1], 4, 16)
    alive = (by_group != 0).any(-1)
    sums = by_group.sum(-1)
    block = np.arange(4) * sfa.exponent.shape[-1] // 4  # the scale of each group
    sfa, sfb = sfa.at((..., block)), sfb.at((..., block))
    significand = sfa.significand * sfb.significand
    exponent = sfa.exponent + sfb.exponent
    alive = alive & (significand != 0)
    addend = _zero("f32", sums.shape[:-1]) if c is None else decode(c, "f32")
    floor = -139
    top = np.where(alive, exponent, floor).max(-1)
    top = np.maximum(top, np.where(addend.significand != 0, addend.exponent, floor))
    low = top - 35
    # |sum| <= 2304 quarters and scales have 8 bits: 2**20 * 2**(35 - 8) is below 2**48.
    unit = exponent - 2 - sfa.fraction - sfb.fraction
    magnitude = np.where(alive, np.abs(sums) * significand, 0)
    terms = _signed(sums < 0, _align(magnitude, unit, low[..., None], 35))
    total = terms.sum(-1)
    total = total + _signed(
        addend.negative, _align(addend.significand, addend.exponent - addend.fraction, low, 35)
    )
    nan = sfa.nan.any(-1) | sfb.nan.any(-1) | addend.nan
    plus, minus = addend.inf & ~addend.negative, addend.inf & addend.negative
    return _specials(_encode(total, low, "f32"), nan, plus, minus, "f32")


def integer(a: Array, b: Array, c: Array | None, saturate: bool) -> Array:
    """numerics.md 3: a, b as int64 values, c as int32 bits; returns int32 bits."""
    total = (a * b).sum(-1)
    if c is not None:
        bits = c.astype(np.int64) & 0xFFFFFFFF
        total = total + bits - ((bits >> 31) << 32)
    if saturate:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return total & 0xFFFFFFFF
