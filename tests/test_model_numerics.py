"""The arithmetic of the functional model: by hand, by published vectors, and the vector kernels by single dots.

"numerics" is numerics.md of the specification.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from raw_issue import A_BASE, B_BASE, STEP_K, Machine, idesc, padded, put_scales, scale_word
from shared_data import shared_path

from jax_tcgen05 import _core

# Arithmetic, by hand.

NAN32, NAN16 = 0x7FFFFFFF, 0x7FFF


def bits32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def one_product(x: int, y: int, c: int, kind: str = "f16", code: int = 0, d: int = 1, others: int = 0) -> int:
    """D of one element: x * y + c, the other products being `others` * 0."""
    machine = Machine()
    dtype = {"f16": np.uint16, "tf32": np.uint32}[kind]
    a, b = (
        np.full((128, 16 if kind == "f16" else 8), others, dtype),
        np.zeros((8, 16 if kind == "f16" else 8), dtype),
    )
    a[:, 0], b[:, 0] = x, y
    a_word, b_word = machine.rows(A_BASE, a), machine.rows(B_BASE, b)
    machine.tmem[0][:, :8] = c
    machine.issue(f"tcgen05.mma.cta_group::1.kind::{kind}", idesc(128, 8, d, code, code), a_word, b_word, 0)
    return int(machine.tmem[0][5, 3])


ONE16, HALF_MIN = 0x3C00, 0x0001
BY_HAND = [
    # bf16 2^-100 * 2^-40 = 2^-140: subnormals are kept (numerics 1.7).
    ("bf16 subnormal result", (27 << 7, 87 << 7, 0, "f16", 1), 0x200),
    # 1 + 2^-24: exact in the sum, cut in the result; -1 - 2^-24 is cut toward zero too.
    ("cut", (ONE16, 0x0001, bits32(1.0)), bits32(1.0)),
    ("cut negative", (ONE16, 0x8001, bits32(-1.0)), bits32(-1.0)),
    # 1 - 2^-24 = 0x3F7FFFFF exactly.
    ("below one", (ONE16, 0x8001, bits32(1.0)), 0x3F7FFFFF),
    # C = 4, product -2^-24: 26 binades below the top, cut to nothing: 25 fraction bits.
    ("25 bits", (ONE16, 0x8001, bits32(4.0)), bits32(4.0)),
    ("25 bits, kept", (ONE16, 0x8001, bits32(3.9999998)), bits32(3.9999995)),
    ("C comes through", (0, 0, 0x3F800001), 0x3F800001),
    ("C subnormal", (0, 0, 0x00000001), 0x00000001),
    ("C minus zero", (0, 0, 0x80000000), 0),
    ("C largest", (0, 0, 0x7F7FFFFF), 0x7F7FFFFF),
    ("NaN pattern", (0x7E00, ONE16, 0), NAN32),
    ("NaN against zero", (0xFE01, 0, 0), NAN32),
    ("infinity times zero", (0x7C00, 0, 0), NAN32),
    ("infinity", (0x7C00, 0xBC00, bits32(5.0)), 0xFF800000),
    ("infinities", (0x7C00, 0xBC00, 0x7F800000), NAN32),
    ("C NaN", (0, 0, 0xFFC00001), NAN32),
    ("overflow", (127 + 120 << 7, 127 + 9 << 7, 0, "f16", 1), 0x7F800000),
    # float16 D: nearest even, 2049 -> 2048, 2051 -> 2052; the high half of the cell is written 0.
    ("half tie down", (ONE16, ONE16, 0xABCD6800, "f16", 0, 0), 0x6800),
    ("half tie up", (ONE16, 0x4200, 0x6800, "f16", 0, 0), 0x6802),
    ("half overflow", (0x7BFF, ONE16, 0x5000, "f16", 0, 0), 0x7C00),
    ("half NaN", (0x7E00, ONE16, 0x1234, "f16", 0, 0), NAN16),
    # tf32 ignores the low 13 bits: 1 + 2^-11 is 1; a NaN with a payload there only is infinity.
    ("tf32 cut", (0x3F801000, bits32(1.0), 0, "tf32", 2), bits32(1.0)),
    ("tf32 NaN payload", (0x7F800001, bits32(1.0), 0, "tf32", 2), 0x7F800000),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), BY_HAND, ids=[case[0] for case in BY_HAND])
def test_by_hand(name: str, arguments: tuple[Any, ...], expected: int) -> None:
    assert hex(one_product(*arguments)) == hex(expected)


def integer_issue(a: int, b: int, a_code: int, b_code: int, c: int, sat: int) -> int:
    machine = Machine()
    a_word = machine.rows(A_BASE, np.full((128, 32), a, np.uint8))
    b_word = machine.rows(B_BASE, np.full((8, 32), b, np.uint8))
    machine.tmem[0][:, :8] = c & 0xFFFFFFFF
    word = idesc(128, 8, 2, a_code, b_code, sat=sat)
    machine.issue("tcgen05.mma.cta_group::1.kind::i8", word, a_word, b_word, 0)
    return int(machine.tmem[0][1, 1].view(np.int32))


def test_integers() -> None:
    """Signedness, wrap-around, and one clamp on the exact total (numerics 3)."""
    assert integer_issue(0xFF, 1, 1, 1, 0, 0) == -32
    assert integer_issue(0xFF, 1, 0, 1, 0, 0) == 8160
    assert integer_issue(0x80, 0xFF, 1, 0, 0, 0) == -128 * 255 * 32
    assert integer_issue(1, 1, 1, 1, 2**31 - 1, 0) == -(2**31) + 31
    assert integer_issue(1, 1, 1, 1, 2**31 - 1, 1) == 2**31 - 1
    assert integer_issue(0xFF, 1, 1, 1, -(2**31), 0) == 2**31 - 32
    assert integer_issue(0xFF, 1, 1, 1, -(2**31), 1) == -(2**31)


def test_cancelled_group_still_cuts() -> None:
    """mxf4: products that cancel within a group of 16 keep the group's exponent in the alignment (numerics 2.4)."""
    machine = Machine()
    codes_a, codes_b = np.zeros((128, 64), np.uint8), np.zeros((8, 64), np.uint8)
    codes_a[:, :2], codes_b[:, :2] = 2, (2, 10)  # 1 * 1 + 1 * -1 in group 0
    codes_a[:, 32], codes_b[:, 32] = 2, 2  # 1 * 1 in group 2
    a_word = machine.rows(A_BASE, codes_a[:, 0::2] | codes_a[:, 1::2] << 4)
    b_word = machine.rows(B_BASE, codes_b[:, 0::2] | codes_b[:, 1::2] << 4)
    opcode = "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X"
    put_scales(machine.tmem[0], 310, 0, np.full((8, 2), 127, np.uint8))
    results = []
    for high in (127 + 35, 127 + 36):
        put_scales(machine.tmem[0], 300, 0, np.tile(np.array([high, 127], np.uint8), (128, 1)))
        word = scale_word(128, 8, 0, 0, 1, 1)
        machine.issue(opcode, word, a_word, b_word, 0, sfa=300, sfb=310, enable_input_d=False)
        results.append(float(machine.tmem[0][0, :1].view(np.float32)[0]))
    assert results == [1.0, 0.0]


def test_sign_of_an_underflowed_zero() -> None:
    """Nobody has measured it; +0 is the choice (numerics 7.3). 2^-48 is below half of the smallest float16."""
    assert one_product(HALF_MIN, HALF_MIN | 0x8000, 0, "f16", 0, 0) == 0


# Vector kernels against single dots, over every combination of formats.

F8F6F4 = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
F8_CODES = dict(zip(F8F6F4, (0, 1, 3, 4, 5), strict=True))


@dataclass(frozen=True)
class Combination:
    kind: str
    a: str
    b: str
    d: str
    scale: str = ""
    block: int = 0


COMBINATIONS = [
    *(Combination("f16", a, b, "float32") for a in ("float16", "bfloat16") for b in ("float16", "bfloat16")),
    Combination("f16", "float16", "float16", "float16"),
    Combination("tf32", "tf32", "tf32", "float32"),
    *(Combination("f8f6f4", a, b, d) for a in F8F6F4 for b in F8F6F4 for d in ("float32", "float16")),
    *(Combination("i8", a, b, "int32") for a in ("int8", "uint8") for b in ("int8", "uint8")),
    *(Combination("mxf8f6f4", a, b, "float32", "float8_e8m0fnu", 32) for a in F8F6F4 for b in F8F6F4),
    Combination("mxf4", "float4_e2m1fn", "float4_e2m1fn", "float32", "float8_e8m0fnu", 32),
    Combination("mxf4nvf4", "float4_e2m1fn", "float4_e2m1fn", "float32", "float8_e8m0fnu", 32),
    Combination("mxf4nvf4", "float4_e2m1fn", "float4_e2m1fn", "float32", "float8_e8m0fnu", 16),
    Combination("mxf4nvf4", "float4_e2m1fn", "float4_e2m1fn", "float32", "float8_e4m3fn", 16),
]
WIDTHS = {
    "float16": 16,
    "bfloat16": 16,
    "tf32": 32,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    "float4_e2m1fn": 4,
}
FIELDS = {
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "tf32": (8, 23),
    "float8_e4m3fn": (4, 3),
    "float8_e5m2": (5, 2),
}


def format_code(kind: str, name: str) -> int:
    codes = {"f16": {"float16": 0, "bfloat16": 1}, "tf32": {"tf32": 2}, "i8": {"uint8": 0, "int8": 1}}
    if kind in ("mxf4", "mxf4nvf4"):
        return 1
    return codes.get(kind, F8_CODES)[name]


def hard_codes(rng: np.random.Generator, name: str, rows: int, K: int, style: int) -> np.ndarray:
    """Raw bits, narrow and wide ranges of exponents, zeros."""
    width = WIDTHS.get(name, 8)
    codes = rng.integers(0, 1 << width, (rows, K), dtype=np.uint64)
    if style and name in FIELDS:
        exponent_bits, fraction_bits = FIELDS[name]
        middle, spread = (1 << exponent_bits) // 2, (3, 6, 12)[style % 3]
        exponent = np.clip(middle + rng.integers(-spread, spread + 1, (rows, K)), 0, (1 << exponent_bits) - 2)
        mask = ((1 << exponent_bits) - 1) << fraction_bits
        codes = codes & np.uint64(~mask & 0xFFFFFFFF) | exponent.astype(np.uint64) << np.uint64(fraction_bits)
    if style == 3:
        codes[rng.random((rows, K)) < 0.5] = 0
    return codes.astype(np.uint32)


def stored_rows(kind: str, name: str, codes: np.ndarray) -> np.ndarray:
    width = WIDTHS.get(name, 8)
    if width == 32:
        return codes.astype("<u4")
    if width == 16:
        return codes.astype("<u2")
    small_codes = codes.astype(np.uint8)
    if kind in ("mxf4", "mxf4nvf4"):
        return small_codes[:, 0::2] | small_codes[:, 1::2] << 4
    return padded(codes, width) if width < 8 else small_codes


def compare_with_dots(c: Combination, rng: np.random.Generator, style: int) -> int:
    """Runs one 128 x 112 issue (112: a partial block of columns) and counts elements that differ from `dots`."""
    M, N, K = 128, 112, STEP_K.get(c.kind, 32)
    machine = Machine()
    a, b = hard_codes(rng, c.a, M, K, style), hard_codes(rng, c.b, N, K, style)
    a_word = machine.rows(A_BASE, stored_rows(c.kind, c.a, a))
    b_word = machine.rows(B_BASE, stored_rows(c.kind, c.b, b))
    c_bits = rng.integers(0, 1 << 32, (M, N), dtype=np.uint64).astype(np.uint32)
    if style:
        low, high = (0x7000, 0x9000) if c.d == "float16" else (0x70000000, 0x90000000)
        c_bits = rng.integers(low // 2, high // 2, (M, N)).astype(np.uint32)
        c_bits[rng.random((M, N)) < 0.2] = 0
    machine.tmem[0][:, :N] = c_bits
    sat = int(c.kind == "i8" and style % 2)
    options: dict[str, Any] = {}
    sfa = sfb = np.zeros((max(M, N), 1), np.uint8)
    opcode = f"tcgen05.mma.cta_group::1.kind::{c.kind}"
    d_code = {"float16": 0, "float32": 1, "int32": 2}[c.d]
    word = idesc(M, N, d_code, format_code(c.kind, c.a), format_code(c.kind, c.b), sat=sat)
    if c.block:
        vec = K // c.block
        opcode += f".block_scale.scale_vec::{vec}X"
        word = scale_word(
            M, N, 0, 0, format_code(c.kind, c.a), format_code(c.kind, c.b), int(c.scale.endswith("fnu"))
        )
        middle, spread = (127, 20) if c.scale.endswith("fnu") else (56, 40)
        sfa, sfb = (
            rng.integers(0, 256, (rows, vec))
            if style == 0
            else middle + rng.integers(-spread, spread, (rows, vec))
            for rows in (M, N)
        )
        sfa, sfb = sfa.astype(np.uint8), sfb.astype(np.uint8)
        put_scales(machine.tmem[0], 300, 0, sfa)
        put_scales(machine.tmem[0], 310, 0, sfb)
        options = {"sfa": 300, "sfb": 310}
    machine.issue(opcode, word, a_word, b_word, 0, **options)
    i, j = (x.ravel() for x in np.mgrid[:M, :N])
    dots_c = c_bits & 0xFFFF if c.d == "float16" else c_bits
    expected = _core.dots(
        c.a,
        c.b,
        c.d,
        c.scale,
        c.block,
        c.kind.startswith("mxf4"),
        bool(sat),
        a[i],
        b[j],
        dots_c.ravel(),
        sfa[i],
        sfb[j],
    )
    return int((machine.tmem[0][:, :N].ravel() != expected).sum())


def kernels_mismatches(seed: int) -> dict[str, int]:
    rng = np.random.default_rng(seed)
    return {f"{c} {style}": compare_with_dots(c, rng, style) for c in COMBINATIONS for style in range(4)}


def test_kernels_equal_dots() -> None:
    assert not {c: bad for c, bad in kernels_mismatches(0).items() if bad}


@pytest.mark.parametrize("level", ["avx2", "baseline"])
def test_kernels_equal_dots_on_less(level: str) -> None:
    """The same with the kernels for processors that have less."""
    code = (
        "import test_model_numerics as t; bad = t.kernels_mismatches(1); print(sum(bad.values()), len(bad))"
    )
    environment = os.environ | {
        "JAX_TCGEN05_SIMD": level,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["0", str(4 * len(COMBINATIONS))], done.stderr


VECTOR_KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
SHORT = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "tf32",
    "s8": "int8",
    "u8": "uint8",
    "f32": "float32",
    "s32": "int32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "e2m1": "float4_e2m1fn",
    "ue8m0": "float8_e8m0fnu",
    "ue4m3": "float8_e4m3fn",
}


@pytest.mark.parametrize("kind", VECTOR_KINDS)
def test_dots_equal_published_vectors(kind: str) -> None:
    """`dots`, which the kernels are compared with, against every case of vectors/."""
    data = np.load(shared_path(f"vectors/{kind}.npz"))
    for name in sorted({entry.split(".")[0] for entry in data.files}):
        a, b, d, *scale = name.split("_")
        get = {f: data[f"{name}.{f}"] for f in ("A", "B", "C", "D", "open_zero")}
        sfa, sfb = (data[f"{name}.{f}"] if scale else np.zeros(1, np.uint8) for f in ("SFA", "SFB"))
        block = int(scale[1][1:]) if scale else 0
        got = _core.dots(
            SHORT[a],
            SHORT[b],
            SHORT[d],
            SHORT[scale[0]] if scale else "",
            block,
            kind in ("mxf4", "mxf4nvf4"),
            False,
            get["A"],
            get["B"],
            get["C"],
            sfa,
            sfb,
        )
        sign = {"f16": 0x8000, "f32": 0x80000000, "s32": 0}[d]
        zero = (get["open_zero"] == 1) & ((got & ~np.uint32(sign)) == 0)
        assert ((got == get["D"]) | zero).all(), name
