"""Rounding by definition, in rational arithmetic: the expectation of the tests of PTX arithmetic and conversions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary floating-point format; `specials`: "ieee" (infinities), "nan" (one NaN code), "none"."""

    exponent: int
    fraction: int
    specials: str = "ieee"

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def largest(self) -> int:
        return (
            self.infinity - 1 if self.specials == "ieee" else self.sign - (2 if self.specials == "nan" else 1)
        )

    @property
    def nan(self) -> int:
        return self.sign - 1

    def value(self, code: int) -> Fraction | str:
        """The number of a code, or "inf", "-inf", "nan". Both zeros are 0."""
        magnitude = code & (self.sign - 1)
        negative = bool(code & self.sign)
        if self.specials == "ieee" and magnitude >= self.infinity:
            return "nan" if magnitude > self.infinity else "-inf" if negative else "inf"
        if self.specials == "nan" and magnitude == self.nan:
            return "nan"
        field, fraction = magnitude >> self.fraction, magnitude & ((1 << self.fraction) - 1)
        significand = fraction + ((1 << self.fraction) if field else 0)
        power = max(field, 1) - self.bias - self.fraction
        number = Fraction(significand) * Fraction(2) ** power
        return -number if negative else number

    def round(self, number: Fraction, mode: str, finite: bool = False) -> int:
        """The code of a number that is not zero, rounded with PTX's `mode`: rn rz rm rp rna."""
        negative, size = number < 0, abs(number)
        power = max(_binary_exponent(size), 1 - self.bias) - self.fraction
        scaled = size / Fraction(2) ** power
        low = scaled.numerator // scaled.denominator
        rest = scaled - low
        half = Fraction(1, 2)
        up = {
            "rn": rest > half or (rest == half and low % 2 == 1),
            "rz": False,
            "rm": negative and rest > 0,
            "rp": not negative and rest > 0,
            "rna": rest >= half,
        }[mode]
        kept = low + up
        if Fraction(kept) * Fraction(2) ** power > self.value(self.largest):
            toward = {"rz": True, "rm": not negative, "rp": negative}.get(mode, False)
            limited = finite or toward or self.specials == "none"
            return (self.sign if negative else 0) | (self.largest if limited else self.infinity)
        if kept >= 2 << self.fraction:
            kept, power = kept // 2, power + 1
        field = power + self.fraction + self.bias - (0 if kept >> self.fraction else 1)
        code = (
            (field << self.fraction) + (kept & ((1 << self.fraction) - 1)) if kept >> self.fraction else kept
        )
        return (self.sign if negative else 0) | code


def _binary_exponent(size: Fraction) -> int:
    e = size.numerator.bit_length() - size.denominator.bit_length()
    return e if Fraction(2) ** e <= size else e - 1


F64, F32, F16, BF16, TF32 = Format(11, 52), Format(8, 23), Format(5, 10), Format(8, 7), Format(8, 10)
E5M2, E4M3 = Format(5, 2), Format(4, 3, "nan")
E3M2, E2M3, E2M1 = Format(3, 2, "none"), Format(2, 3, "none"), Format(2, 1, "none")


def edge_codes(f: Format) -> list[int]:
    """Codes at the borders of a format with infinities, both signs, and some NaNs."""
    one = f.bias << f.fraction
    positive = [
        0,
        1,
        2,
        3,
        (1 << f.fraction) - 1,
        1 << f.fraction,
        (1 << f.fraction) + 1,
        one - 1,
        one,
        one + 1,
        one + 3,
    ]
    positive += [one + (1 << (f.fraction - 1)), one + (1 << f.fraction), f.largest - 1, f.largest, f.infinity]
    positive += [f.infinity + 1, f.nan, f.infinity | 1 << (f.fraction - 1)]
    return positive + [c | f.sign for c in positive]


def some_codes(f: Format, count: int, seed: int) -> np.ndarray:
    """Random codes of a format: all bits, and numbers near 1."""
    rng = np.random.default_rng(seed)
    near = ((f.bias + rng.integers(-12, 13, count)) << f.fraction) + rng.integers(0, 1 << f.fraction, count)
    near += rng.integers(0, 2, count) * (f.sign if f.bits < 64 else 0)
    any_bits = rng.integers(0, 1 << min(f.bits, 63), count)
    if f.bits == 64:
        any_bits = any_bits.astype(np.uint64) | rng.integers(0, 2, count).astype(np.uint64) << np.uint64(63)
    dtype = np.dtype(f"u{(f.bits + 7) // 8}")
    return np.concatenate([near.astype(dtype), any_bits.astype(dtype)])
