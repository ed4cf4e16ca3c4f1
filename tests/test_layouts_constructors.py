"""The constructors against the closed forms of the document and the PTX ISA, written out a second time here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jax_tcgen05 import isa
from jax_tcgen05.layouts import (
    DATAPATHS,
    SWIZZLE_MODES,
    R,
    S,
    TCol,
    TileLayout,
    TLane,
    mma_shared_layout,
    scale_factor_layout,
    swizzle_bytes,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
)

BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "uint8": 8, "float8_e5m2": 8, "float4_e2m1fn": 4}


# Swizzles


def permuted(byte: int, mode: int) -> int:
    """PTX ISA, swizzling modes: bits 4.. take the exclusive or of bits 7..; mode 4 has 32-byte atoms."""
    if mode == 4:
        return byte ^ ((byte >> 2) & 96)
    return byte ^ ((byte >> 3) & (((1 << mode) - 1) << 4))


@pytest.mark.parametrize("mode", range(5))
def test_swizzle_bytes(mode: int) -> None:
    offsets = np.arange(4096)
    out = swizzle_bytes(offsets, mode)
    assert out.tolist() == [permuted(byte, mode) for byte in range(4096)]
    assert (swizzle_bytes(out, mode) == offsets).all()  # its own inverse
    period = SWIZZLE_MODES[mode].period
    assert (out == offsets // period * period + out[offsets % period]).all()
    assert sorted(out[:period]) == list(range(period))


def test_swizzle_bytes_of_the_two_128_byte_modes() -> None:  # B07
    assert [swizzle_bytes(byte, 4) for byte in (128, 256, 384, 512, 640)] == [160, 320, 480, 512, 672]
    assert [swizzle_bytes(byte, 3) for byte in (128, 1024)] == [144, 1024]


def test_swizzle_modes_are_the_document_s() -> None:
    facts = [(m.row_bytes, m.group_rows, m.period) for m in SWIZZLE_MODES.values()]
    assert facts == [(16, 8, 128), (32, 8, 256), (64, 8, 512), (128, 8, 1024), (128, 4, 512)]


@pytest.mark.parametrize("mode", (-1, 5))
def test_unknown_mode(mode: int) -> None:
    with pytest.raises(ValueError, match=rf"swizzle: got {mode}; allowed modes: 0, 1, 2, 3, 4"):
        swizzle_bytes(0, mode)
    with pytest.raises(ValueError, match=rf"swizzle: got {mode}; allowed modes: 0, 1, 2, 3, 4"):
        mma_shared_layout("float16", mode, (8, 64))


def test_swizzle_of_no_offset() -> None:
    with pytest.raises(TypeError, match=r"offset: got 1\.5"):
        swizzle_bytes(1.5, 3)
    with pytest.raises(TypeError, match="array of float64"):
        swizzle_bytes(np.zeros(3), 3)


# Shared memory


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("mode", range(5))
@pytest.mark.parametrize("lead", ((), (2,), (3, 2)))
def test_mma_shared_layout(dtype: str, mode: int, lead: tuple[int, ...]) -> None:
    bits = BITS[dtype]
    if mode == 4 and bits != 32:
        with pytest.raises(ValueError, match=f"mode 4 is for 32-bit containers, but {dtype} has {bits} bits"):
            mma_shared_layout(dtype, mode, (*lead, 16, 256))
        return
    span = (16, 32, 64, 128, 128)[mode] * 8 // bits
    rows, cols = 12, 3 * span
    layout = mma_shared_layout(dtype, mode, (*lead, rows, cols))
    tile, r, c = np.ix_(range(int(np.prod(lead))), range(rows), range(cols))
    linear = tile * rows * cols + c // span * rows * span + r * span + c % span
    bit = linear * bits
    expected = np.vectorize(permuted)(bit // 8, mode) * 8 + bit % 8
    assert (layout.image()["m"] * bits == expected.reshape(*lead, rows, cols)).all()


def test_unswizzled_with_odd_columns_is_row_major() -> None:
    assert mma_shared_layout("float16", 0, (3, 5, 9)) == S[(3, 5, 9) : (45, 9, 1)]


@pytest.mark.parametrize(
    ("dtype", "mode", "shape", "message"),
    [
        ("float16", 3, (128, 96), "got 96 columns of float16; mode 3 needs a multiple of 64 .128 bytes."),
        ("float16", 1, (128, 8), "got 8 columns of float16; mode 1 needs a multiple of 16"),
        ("float4_e2m1fn", 3, (128, 64), "got 64 columns of float4_e2m1fn; mode 3 needs a multiple of 256"),
        ("float32", 4, (128, 16), "got 16 columns of float32; mode 4 needs a multiple of 32"),
        ("float6_e3m2fn", 0, (8, 8), "float6_e3m2fn.*uint8"),
        ("float17", 0, (8, 8), "float17"),
        ("float16", 0, (8,), "shape: got .8,.; expected"),
        ("float16", 0, 8, "shape: got 8; expected"),
        ("float16", 0, (8, 0), "shape: axis 1: got 0; expected a positive integer"),
        ("float16", 0, (-8, 8), "shape: axis 0: got -8"),
    ],
)
def test_mma_shared_layout_refuses(dtype: str, mode: int, shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mma_shared_layout(dtype, mode, shape)


def test_mma_shared_layout_takes_static_integers() -> None:
    assert mma_shared_layout(np.float16, np.int64(3), [np.int32(8), 64]).shape == (8, 64)
    with pytest.raises(TypeError, match=r"shape: axis 1: got 64\.0"):
        mma_shared_layout("float16", 3, (8, 64.0))


# Accumulators and A in TMEM


def d_place(letter: str, i: int, j: int, n: int) -> tuple[int, int]:
    """(lane, column) of D's element (i, j) of n columns: PTX ISA, data path layouts (ptx_contract 7.1)."""
    if letter in "AD":
        return i, j
    if letter in "BE":
        return i + 64 * (j >= n // 2), j % (n // 2)
    if letter in "CF":
        return 32 * (i // 16) + i % 16, j
    return i + 32 * (j // (n // 4)), j % (n // 4)


ROWS = {"A": 128, "B": 64, "C": 64, "D": 128, "E": 64, "F": 64, "G": 32}
# letter: M, cta_group, ws
CALLS = {
    "A": (256, 2, False),
    "B": (128, 2, False),
    "D": (128, 1, True),
    "E": (64, 1, True),
    "F": (64, 1, False),
    "G": (32, 1, True),
}


def place(layout: TileLayout) -> np.ndarray:
    image = layout.image()
    return np.stack([image["TLane"], image["TCol"]], axis=-1)


def expected_d(letter: str, n: int) -> np.ndarray:
    return np.array([[d_place(letter, i, j, n) for j in range(n)] for i in range(ROWS[letter])])


def operand(letter: str, name: str, shape: tuple[int, ...], dtype: str) -> TileLayout:
    m, group, ws = CALLS[letter]
    return tmem_mma_operand_layout(name, shape, dtype, M=m, cta_group=group, ws=ws)


@pytest.mark.parametrize("letter", ROWS)
def test_datapaths(letter: str) -> None:
    layout = tmem_datapath_layout(letter, ROWS[letter], 40)
    assert (place(layout) == expected_d(letter, 40)).all()
    if letter in "CF":
        assert tmem_datapath_layout(letter, 64, 40, sub_slab=1) == layout + (16 @ TLane)
    else:
        with pytest.raises(ValueError, match=f"sub_slab: got 1; allowed: 0, since datapath {letter}"):
            tmem_datapath_layout(letter, ROWS[letter], 40, sub_slab=1)


def test_layout_f_uses_sixteen_lanes_of_each_quarter() -> None:  # B11
    layout = operand("F", "D", (64, 64), "float32")
    assert [layout(row, 0)["TLane"] for row in (0, 15, 16, 17, 63)] == [0, 15, 32, 33, 111]
    assert operand("D", "D", (128, 64), "float32")(77, 5) == {"TLane": 77, "TCol": 5}


@pytest.mark.parametrize("letter", CALLS)
def test_datapaths_agree_with_isa(letter: str) -> None:
    path = isa.datapath(*CALLS[letter])
    assert path.letter == letter
    assert (path.rows, path.fold) == (DATAPATHS[letter].rows, DATAPATHS[letter].fold)


@pytest.mark.parametrize("letter", CALLS)
@pytest.mark.parametrize(("dtype", "step"), [("float32", 1), ("int32", 1), ("float16", 2)])
def test_d_with_repeats(letter: str, dtype: str, step: int) -> None:
    n, rows, fold = 64, ROWS[letter], {"B": 2, "E": 2, "G": 4}.get(letter, 1)
    one = expected_d(letter, n) * (1, step)
    assert (place(operand(letter, "D", (rows, n), dtype)) == one).all()
    many = place(operand(letter, "D", (2, 3, rows, n), dtype))
    columns = n // fold  # OQ5: tiles step by their data columns
    for m in range(2):
        for k in range(3):
            assert (many[m, k] == one + np.array((0, (3 * m + k) * columns * step))).all()


@pytest.mark.parametrize("letter", "BEG")
def test_d_with_column_parts(letter: str) -> None:
    rows, fold, n = ROWS[letter], {"B": 2, "E": 2, "G": 4}[letter], 64
    whole = operand(letter, "D", (rows, n), "float32")
    part = n // fold
    assert operand(letter, "D", (rows, fold, part), "float32") == whole.view(rows, fold, part)
    assert operand(letter, "D", (fold, rows, part), "float32") == whole.rearrange("m (f n) -> f m n", f=fold)
    split = operand(letter, "D", (rows, 2, fold, 8), "float32")
    for i, s, bank, j in np.ndindex(rows, 2, fold, 8):
        if i % 13 == 0:  # ptx_contract 7.1, tvm_semantics 3.5: bank b on lanes rows*b.., column s*n + j
            assert split(i, s, bank, j) == {"TLane": i + rows * bank, "TCol": 8 * s + j}
    repeated = operand(letter, "D", (2, 2, rows, 2, fold, 8), "float32")
    assert repeated[1, 0] == split + (32 @ TCol)


def test_a_lies_on_the_lanes_of_d() -> None:
    lanes = place(tmem_datapath_layout("F", 64, 1))[:, 0, 0]
    for letter in "ADF":
        rows = ROWS[letter]
        layout = operand(letter, "A", (rows, 32), "float16")
        wanted = lanes if letter == "F" else np.arange(rows)  # OQ3
        assert (place(layout)[..., 0] == wanted[:, None]).all()
        assert (place(layout)[..., 1] == np.arange(32)).all() and not layout.replicas
    pair = operand("B", "A", (64, 32), "uint8")
    assert pair == S[(64, 32) : (1 @ TLane, 1 @ TCol)] + R[2 : 64 @ TLane]
    assert operand("B", "A", (2, 64, 32), "uint8") == S[(2, 64, 32) : (64 @ TLane, 1 @ TLane, 1 @ TCol)]
    assert operand("E", "A", (2, 64, 32), "uint8") == S[(2, 64, 32) : (64 @ TLane, 1 @ TLane, 1 @ TCol)]
    assert operand("G", "A", (4, 32, 32), "uint8") == S[(4, 32, 32) : (32 @ TLane, 1 @ TLane, 1 @ TCol)]


@pytest.mark.parametrize("letter", CALLS)
def test_a_with_repeats(letter: str) -> None:
    atom = {"E": (2, 64, 64), "G": (4, 32, 64)}.get(letter, (ROWS[letter], 64))
    one = operand(letter, "A", atom, "float4_e2m1fn")
    many = operand(letter, "A", (2, 3, *atom), "float4_e2m1fn")
    assert many.replicas == one.replicas
    assert many[1, 2] == one + (5 * 64 @ TCol)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"M": 96}, "M: got 96"),
        ({"M": 64, "cta_group": 2}, "M: got 64.*128, 256.*cta_group::2"),
        ({"M": 256, "cta_group": 2, "ws": True}, "M: got 256"),
        ({"operand": "B"}, "operand: got 'B'; allowed: 'D', 'A'"),
        ({"dtype": "bfloat16"}, "dtype: got 'bfloat16' for operand D; allowed: float32, int32, float16"),
        ({"shape": (64, 64)}, r"shape: got \(64, 64\) for operand D with M=128.*allowed: \(128, N\)"),
        ({"shape": (128,)}, r"shape: got \(128,\)"),
        ({"shape": (2, 128, 64)}, r"shape: got \(2, 128, 64\)"),
        ({"shape": 128}, "shape: got 128"),
        ({"shape": (128, 0)}, "shape: axis 1: got 0"),
        ({"M": 64, "ws": True, "shape": (64, 7)}, "got 7 columns; the datapath folds them into 2 parts"),
        ({"M": 32, "ws": True, "shape": (32, 66)}, "got 66 columns; the datapath folds them into 4 parts"),
        (
            {"operand": "A", "M": 64, "ws": True, "shape": (64, 32)},
            r"shape: got \(64, 32\) for operand A.*allowed: \(2, 64, K\), one bank per column part",
        ),
        ({"operand": "A", "M": 32, "ws": True, "shape": (32, 32)}, r"allowed: \(4, 32, K\)"),
        ({"operand": "A", "shape": (2, 128, 32)}, r"allowed: \(128, K\), or two repeat axes"),
        ({"operand": "A", "dtype": "float6_e3m2fn"}, "float6_e3m2fn.*uint8"),
    ],
)
def test_tmem_operands_refuse(kwargs: dict[str, Any], message: str) -> None:
    call = {"operand": "D", "shape": (128, 64), "dtype": "float32", "M": 128, "cta_group": 1, "ws": False}
    with pytest.raises(ValueError, match=message):
        tmem_mma_operand_layout(**(call | kwargs))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("H", 128, 8), "letter: got 'H'; allowed: A, B, C, D, E, F, G"),
        ((1, 128, 8), "letter: got 1"),
        (("A", 64, 8), "rows: got 64; datapath A has 128 rows"),
        (("F", 64, 8, 2), "sub_slab: got 2; allowed: 0 or 1"),
        (("G", 32, 6), "got 6 columns; the datapath folds them into 4 parts"),
        (("A", 128, 0), "cols: got 0"),
    ],
)
def test_datapaths_refuse(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tmem_datapath_layout(*args)


# Scale factors


@pytest.mark.parametrize("vec", (1, 2, 4))
@pytest.mark.parametrize("rows", (8, 64, 96, 100, 128, 192, 256))
@pytest.mark.parametrize("k_repeat", (1, 2, 3, 4, 6))
def test_scale_factors(vec: int, rows: int, k_repeat: int) -> None:
    layout = scale_factor_layout((2, k_repeat, rows, vec), "float8_e8m0fnu")
    assert layout.shape == (2, k_repeat, rows, vec)
    per_word = 4 // vec
    words = (k_repeat + per_word - 1) // per_word
    block = 4 * ((rows + 127) // 128)  # 32-bit columns of 4 scales for all rows
    image = layout.image()
    for repeat, k, r, v in np.ndindex(*layout.shape):
        if (r + k + v) % 5 == 0:
            column = (repeat * words + k // per_word) * block + r // 32
            byte = 4 * column + k % per_word * vec + v
            assert (image["TLane"][repeat, k, r, v], image["TCol"][repeat, k, r, v]) == (r % 32, byte)
    assert [(digit.extent, digit.strides) for digit in layout.replicas] == [(4, (("TLane", 32),))]


def test_scale_rows_split_by_thirty_two() -> None:  # B21
    layout = scale_factor_layout((1, 1, 128, 4), "uint8")
    assert layout(0, 0, 37, 2) == {"TLane": 5, "TCol": 6}
    # The 512-byte block that cp copies has byte 16*lane + TCol.
    place33 = layout(0, 0, 33, 1)
    assert 16 * place33["TLane"] + place33["TCol"] == 21


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 1, 128, 3), "uint8", "got 3 scales per row and step; allowed: 1, 2, 4"),
        ((1, 1, 128), "uint8", r"expected \(repeat, k_repeat, rows, vec\)"),
        ((1, 0, 128, 1), "uint8", "axis 1: got 0"),
        ((1, 1, 128, 1), "float16", "dtype: got 'float16'; allowed: float8_e8m0fnu, float8_e4m3fn, uint8"),
    ],
)
def test_scale_factors_refuse(shape: Any, dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scale_factor_layout(shape, dtype)
