"""The functional model, one raw issue at a time: encoded descriptors and memories in, memories out.

Operands are put into memory by the closed forms of the PTX contract (numbers in brackets are its sections).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from raw_issue import (
    A_BASE,
    B_BASE,
    F16,
    F16_PAIR,
    F16_WS,
    MXF8,
    UNTOUCHED,
    Machine,
    descriptor,
    idesc,
    padded,
    product,
    put_scales,
    scale_word,
    small,
    zero_mask,
)

from jax_tcgen05 import _core

# Datapaths of D [7.1] and of A in TMEM [7.2]: (letter, opcode, M, N) with the lane of row i and bank of columns.

DATAPATHS = [
    ("D", F16, 128, 48, 1, lambda i, bank: i),
    ("F", F16, 64, 24, 1, lambda i, bank: 32 * (i // 16) + i % 16),
    ("D", F16_WS, 128, 64, 1, lambda i, bank: i),
    ("E", F16_WS, 64, 128, 2, lambda i, bank: i + 64 * bank),
    ("G", F16_WS, 32, 64, 4, lambda i, bank: i + 32 * bank),
    ("G", F16_WS, 32, 256, 4, lambda i, bank: i + 32 * bank),
]


@pytest.mark.parametrize(("letter", "opcode", "M", "N", "banks", "lane"), DATAPATHS)
@pytest.mark.parametrize("a_in_tmem", [False, True])
def test_datapath(letter: str, opcode: str, M: int, N: int, banks: int, lane: Any, a_in_tmem: bool) -> None:
    """D's rows and A's rows and banks lie where the table says, and no other cell changes."""
    rng = np.random.default_rng(M + N)
    if a_in_tmem and M == 128:
        N = 64  # OQ1
    a, b = small(rng, banks if a_in_tmem else 1, M, 16), small(rng, N, 16)
    base = 16 if letter == "F" else 0
    d_address = base << 16 | 3
    machine = Machine()
    b_word = machine.rows(B_BASE, b)
    a_word = base << 16 | 400
    if a_in_tmem:
        for bank, i in itertools.product(range(banks), range(M)):
            machine.tmem[0][base + lane(i, bank), 400:408] = a[bank, i].view(np.uint32)
    else:
        a_word = machine.rows(A_BASE, a[0])
    before = machine.tmem[0].copy()
    machine.issue(opcode, idesc(M, N), a_word, b_word, d_address, a_in_tmem=a_in_tmem, enable_input_d=False)
    expected = before
    columns = N // banks
    for bank, i in itertools.product(range(banks), range(M)):
        part = b[bank * columns : (bank + 1) * columns]
        row = product(a[bank if a_in_tmem else 0, i][None], part)[0]
        expected[base + lane(i, bank), 3 : 3 + columns] = row.view(np.uint32)
    np.testing.assert_array_equal(machine.tmem[0], expected)


@pytest.mark.parametrize(("letter", "M", "N"), [("A", 256, 32), ("B", 128, 32)])
def test_pair(letter: str, M: int, N: int) -> None:
    """The even CTA supplies and holds rows 0..M/2-1 and supplies columns 0..N/2-1 of B, the odd one the rest [5.5]."""
    rng = np.random.default_rng(M)
    rows = M // 2
    a, b = small(rng, 2, rows, 16), small(rng, N, 16)
    machine = Machine(2)
    for cta in range(2):
        a_word = machine.rows(A_BASE, a[cta], cta)
        b_word = machine.rows(B_BASE, b[cta * N // 2 : (cta + 1) * N // 2], cta)
    machine.issue(F16_PAIR, idesc(M, N), a_word, b_word, 7, enable_input_d=False)
    for cta in range(2):
        expected = np.full((128, 512), UNTOUCHED, np.uint32)
        full = product(a[cta], b).view(np.uint32)
        if letter == "A":
            expected[:128, 7 : 7 + N] = full
        else:
            expected[:64, 7 : 7 + N // 2] = full[:, : N // 2]
            expected[64:, 7 : 7 + N // 2] = full[:, N // 2 :]
        np.testing.assert_array_equal(machine.tmem[cta], expected)


# The walk of shared memory: canonical forms [5.3], then the swizzle on absolute addresses [5.1].


def swizzle(address: int, mode: int) -> int:
    if mode == 4:
        return address ^ address >> 2 & 0x60
    return address ^ address >> 3 & (2**mode - 1) << 4


def canonical(r: int, byte: int, ldo: int, sdo: int, mode: int) -> int:
    """K-major ((8,m),(T,2k)): row r, byte 0..31 of the row."""
    if mode == 0:
        return r % 8 * 16 + r // 8 * sdo + byte // 16 * ldo + byte % 16
    return r % 8 * (16 << mode) + r // 8 * sdo + byte


def canonical_mn(r_byte: int, k: int, ldo: int, sdo: int, mode: int) -> int:
    """MN-major: byte r_byte along M or N of row k. Without a swizzle LDO and SDO change places."""
    if mode == 0:
        return r_byte % 16 + r_byte // 16 * sdo + k % 8 * 16 + k // 8 * ldo
    width, group = (128, 4) if mode == 4 else (16 << mode, 8)
    return r_byte % width + r_byte // width * ldo + k % group * width + k // group * sdo


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("step", [0, 1])
def test_k_major_walk(mode: int, step: int) -> None:
    """Every mode, strides larger than dense, and a start one K step inside a swizzled row."""
    if step and mode < 2:
        step = 0
    rng = np.random.default_rng(mode)
    a, b = small(rng, 128, 16), small(rng, 40, 16)
    machine = Machine()
    words = []
    for base, operand, ldo, sdo in ((2048, a, 16 * 300, 1024 + 256), (B_BASE, b, 16 * 50, 2048)):
        if mode:
            sdo = 1280 if operand is a else 2048
        start = base + 32 * step
        for r, byte in itertools.product(range(len(operand)), range(32)):
            at = swizzle(start + canonical(r, byte, ldo, sdo, mode), mode)
            machine.shared[0][at] = operand.view(np.uint8)[r, byte]
        words.append(descriptor(start, ldo, sdo, mode))
    machine.issue(F16, idesc(128, 40), words[0], words[1], 0, enable_input_d=False)
    np.testing.assert_array_equal(machine.tmem[0][:, :40].view(np.float32), product(a, b))


MN_CASES = [
    # kind, format code, dtype, K, mode, (a ldo, a sdo), (b ldo, b sdo)
    ("f16", 0, np.float16, 16, 0, (2048, 128), (1024, 128)),
    ("f16", 0, np.float16, 16, 1, (512, 4096), (512, 2048)),
    ("f16", 0, np.float16, 16, 2, (1024, 4096), (1024, 2048)),
    ("f16", 0, np.float16, 16, 3, (2048, 4096), (4096, 1024)),
    ("tf32", 2, np.float32, 8, 4, (1024, 512), (1024, 4096)),
    ("i8", 1, np.int8, 32, 0, (1024, 128), (512, 128)),
    ("i8", 1, np.int8, 32, 3, (4096, 1024), (4096, 1024)),
]


@pytest.mark.parametrize(("kind", "code", "dtype", "K", "mode", "a_strides", "b_strides"), MN_CASES)
def test_mn_major_walk(
    kind: str,
    code: int,
    dtype: Any,
    K: int,
    mode: int,
    a_strides: tuple[int, int],
    b_strides: tuple[int, int],
) -> None:
    rng = np.random.default_rng(mode)
    a, b = (rng.integers(-4, 5, (rows, K)).astype(dtype) for rows in (128, 64))
    machine = Machine()
    words = []
    for base, operand, (ldo, sdo) in ((A_BASE, a, a_strides), (B_BASE, b, b_strides)):
        stored = np.ascontiguousarray(operand.T).view(np.uint8).reshape(K, -1)
        for k, byte in itertools.product(range(K), range(stored.shape[1])):
            machine.shared[0][swizzle(base + canonical_mn(byte, k, ldo, sdo, mode), mode)] = stored[k, byte]
        words.append(descriptor(base, ldo, sdo, mode))
    word = idesc(128, 64, 2 if kind == "i8" else 1, code, code, a_mn=1, b_mn=1)
    machine.issue(f"tcgen05.mma.cta_group::1.kind::{kind}", word, words[0], words[1], 0, enable_input_d=False)
    result = machine.tmem[0][:, :64].view(np.int32 if kind == "i8" else np.float32)
    np.testing.assert_array_equal(result, a.astype(np.int64) @ b.astype(np.int64).T)


# Containers [6].


FP6_FP4 = [("e2m3", 3, 6, "float6_e2m3fn"), ("e3m2", 4, 6, "float6_e3m2fn"), ("e2m1", 5, 4, "float4_e2m1fn")]


@pytest.mark.parametrize(("short", "code", "width", "name"), FP6_FP4)
@pytest.mark.parametrize("a_in_tmem", [False, True])
def test_padded_containers(short: str, code: int, width: int, name: str, a_in_tmem: bool) -> None:
    """Every code at every place of the container times one; the other bits of the container are ones."""
    import ml_dtypes

    values = np.arange(1 << width, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float64)
    codes = (np.arange(128)[:, None] + np.arange(32)) % (1 << width)
    one = int(np.flatnonzero(values == 1)[0])
    b = np.zeros((32, 32), np.int64)
    np.fill_diagonal(b, one)
    machine = Machine()
    b_word = machine.rows(B_BASE, padded(b, width))
    a_word = 64
    if a_in_tmem:
        shift = 2 if width == 4 else 0
        byte = (codes << shift | 0xFF & ~(((1 << width) - 1) << shift)).astype(np.uint8)
        machine.tmem[0][:, 64:72] = byte.view(np.uint32)
    else:
        a_word = machine.rows(A_BASE, padded(codes, width))
    machine.issue(
        "tcgen05.mma.cta_group::1.kind::f8f6f4",
        idesc(128, 32, 1, code, code),
        a_word,
        b_word,
        0,
        a_in_tmem=a_in_tmem,
        enable_input_d=False,
    )
    np.testing.assert_array_equal(machine.tmem[0][:, :32].view(np.float32), values[codes])


# Block scale [8.1], [4.5].


@pytest.mark.parametrize(("sfa_id", "sfb_id"), [(0, 0), (1, 3), (3, 2)])
def test_scale_bytes(sfa_id: int, sfb_id: int) -> None:
    """Only the selected byte of each cell counts (the others are NaN); N = 200 is no multiple of 32."""
    M, N = 128, 200
    rng = np.random.default_rng(sfa_id)
    machine = Machine()
    ones = np.full((256, 32), 0x38, np.uint8)  # e4m3 1.0
    a_word, b_word = machine.rows(A_BASE, ones[:M]), machine.rows(B_BASE, ones[:N])
    sfa, sfb = rng.integers(120, 134, (M, 1)), rng.integers(120, 134, (N, 1))
    put_scales(machine.tmem[0], 300, sfa_id, sfa.astype(np.uint8))
    put_scales(machine.tmem[0], 310, sfb_id, sfb.astype(np.uint8))
    # OQ13: bits 30-31 of a scale address are masked.
    word = scale_word(M, N, sfa_id, sfb_id)
    machine.issue(MXF8, word, a_word, b_word, 0, sfa=300 | 3 << 30, sfb=310 | 1 << 30, enable_input_d=False)
    expected = 32 * 2.0 ** (sfa - 127) * 2.0 ** (sfb - 127).T
    np.testing.assert_array_equal(machine.tmem[0][:, :N].view(np.float32), expected)


def test_each_quarter_reads_its_own_scales() -> None:
    """A copy that is missing in one quarter of the lanes spoils the rows of that quarter, and no other."""
    machine = Machine()
    ones = np.full((128, 32), 0x38, np.uint8)
    a_word, b_word = machine.rows(A_BASE, ones), machine.rows(B_BASE, ones[:32])
    put_scales(machine.tmem[0], 300, 0, np.full((128, 1), 127, np.uint8))
    put_scales(machine.tmem[0], 310, 0, np.full((32, 1), 127, np.uint8), range(3))
    machine.issue(MXF8, scale_word(128, 32, 0, 0), a_word, b_word, 0, sfa=300, sfb=310, enable_input_d=False)
    result = machine.tmem[0][:, :32].view(np.float32)
    assert (result[:96] == 32).all()
    assert np.isnan(result[96:]).all()


def test_nibbles_and_four_scales() -> None:
    """mxf4nvf4: low nibble first, scale v belongs to elements 16v..16v+15, UE4M3."""
    machine = Machine()
    codes = np.zeros((128, 64), np.uint8)
    codes[np.arange(128), np.arange(128) % 64] = 2  # 1.0
    a_word = machine.rows(A_BASE, codes[:, 0::2] | codes[:, 1::2] << 4)
    k_values = np.array([0, 1, 2, 3, 4, 5, 6, 7] * 8, np.uint8)
    b_word = machine.rows(B_BASE, np.tile(k_values[0::2] | k_values[1::2] << 4, (8, 1)))
    put_scales(machine.tmem[0], 300, 0, np.tile(np.array([0x38, 0x40, 0x48, 0x50], np.uint8), (128, 1)))
    put_scales(machine.tmem[0], 310, 0, np.full((8, 4), 0x38, np.uint8))
    opcode = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X"
    word = scale_word(128, 8, 0, 0, 1, 1, 0)
    machine.issue(opcode, word, a_word, b_word, 0, sfa=300, sfb=310, enable_input_d=False)
    k = np.arange(128) % 64
    expected = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[k % 8] * 2.0 ** (k // 16)
    np.testing.assert_array_equal(machine.tmem[0][:, :8].view(np.float32), np.tile(expected[:, None], 8))


# Masks [9, 10].


def test_lane_mask() -> None:
    rng = np.random.default_rng(0)
    machine = Machine()
    a_word, b_word = machine.rows(A_BASE, small(rng, 128, 16)), machine.rows(B_BASE, small(rng, 8, 16))
    mask = [1, 0x80000000, 0, 0xFFFF]
    machine.issue(F16, idesc(128, 8), a_word, b_word, 0, enable_input_d=False, disable_output_lane=mask)
    kept = (machine.tmem[0][:, :8] == UNTOUCHED).all(1)
    assert np.flatnonzero(kept).tolist() == [0, 63, *range(96, 112)]


def test_lane_mask_of_a_pair() -> None:
    """Words 0-3 belong to the even CTA (OQ9); layout B: a lane is one half of a row's columns."""
    rng = np.random.default_rng(0)
    machine = Machine(2)
    for cta in range(2):
        a_word = machine.rows(A_BASE, small(rng, 64, 16), cta)
        b_word = machine.rows(B_BASE, small(rng, 16, 16), cta)
    mask = [2, 0, 0, 0, 0, 0, 0x10, 0]
    machine.issue(F16_PAIR, idesc(128, 32), a_word, b_word, 0, enable_input_d=False, disable_output_lane=mask)
    for cta, lane in ((0, 1), (1, 68)):
        assert np.flatnonzero((machine.tmem[cta][:, :16] == UNTOUCHED).all(1)).tolist() == [lane]


ZERO_COLUMNS = [  # the worked cases of [9]: skip 2, use 3
    (1, 0, [0, 1, 2, 7, 8, 9, 14, 15]),
    (1, 1, [0, 1, 6, 7, 8, 13, 14, 15]),
    (0, 2, [2, 3, 4, 9, 10, 11]),
    (0, 1, [3, 4, 5, 10, 11, 12]),
]


@pytest.mark.parametrize(("first", "start", "zeroed"), ZERO_COLUMNS)
def test_zero_columns(first: int, start: int, zeroed: list[int]) -> None:
    word = zero_mask((start,) * 4, (first,) * 4, 2, 3)
    assert np.flatnonzero(_core.zeroed_columns(word, 0, 16)).tolist() == zeroed


def test_zero_columns_per_bank() -> None:
    """M = 32: four sub-masks, each beginning again at its own bank of columns; D keeps its value there."""
    rng = np.random.default_rng(0)
    machine = Machine()
    a, b = small(rng, 32, 16), small(rng, 64, 16)
    a_word, b_word = machine.rows(A_BASE, a), machine.rows(B_BASE, b)
    start = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
    machine.tmem[0][:, :16] = start.view(np.uint32)
    mask = zero_mask((0, 1, 2, 1), (1, 1, 0, 0), 2, 3)
    machine.issue(F16_WS, idesc(32, 64), a_word, b_word, 0, zero_column_mask=mask)
    for bank, (_, _, zeroed) in enumerate(ZERO_COLUMNS):
        part = b[16 * bank : 16 * bank + 16].copy()
        part[zeroed] = 0
        rows = slice(32 * bank, 32 * bank + 32)
        np.testing.assert_array_equal(
            machine.tmem[0][rows, :16].view(np.float32), start[rows] + product(a, part)
        )
