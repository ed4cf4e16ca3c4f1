"""The descriptor walk and the descriptors read off layouts, against the tables of the document and the PTX ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jax_tcgen05.layouts import (
    S,
    Swizzle,
    TCol,
    TileLayout,
    TLane,
    bit_image,
    matrix_descriptor,
    mma_shared_layout,
    swizzle_bytes,
    walk_bits,
)

BITS = {"float32": 32, "float16": 16, "uint8": 8, "float4_e2m1fn": 4}


def walk(row: int, k: int, bits: int, ldo: int, sdo: int, mode: int, major: str) -> int:
    """Byte offset times 8, plus the bit, of one element: the table of ptx_contract 5.2, read a second time."""
    pitch = (16, 32, 64, 128, 128)[mode]
    if major == "k":
        byte, bit = divmod(k * bits, 8)
        if mode == 0:
            return 8 * (row % 8 * 16 + row // 8 * sdo + byte // 16 * ldo + byte % 16) + bit
        return 8 * (row % 8 * pitch + row // 8 * sdo + byte) + bit
    byte, bit = divmod(row * bits, 8)
    group = 4 if mode == 4 else 8
    along_k, along_mn = (ldo, sdo) if mode == 0 else (sdo, ldo)
    return 8 * (k % group * pitch + k // group * along_k + byte // pitch * along_mn + byte % pitch) + bit


@pytest.mark.parametrize("mode", range(5))
@pytest.mark.parametrize("major", ("k", "mn"))
@pytest.mark.parametrize("bits", BITS.values())
def test_walk(mode: int, major: str, bits: int) -> None:
    rows, k = 72, 256 // bits
    if (major, mode) == ("k", 4) or (major, bits) == ("mn", 4):
        with pytest.raises(ValueError, match=r"mode 4 is for MN-major|FP4 has no MN-major"):
            walk_bits(rows, k, bits, 16, 16, mode, major)
        return
    out = walk_bits(rows, k, bits, 4112, 2064, mode, major)
    assert out.shape == (rows, k) and out.dtype == np.int64
    for row, column in np.ndindex(rows, k):
        if (row + 3 * column) % 7 == 0:
            assert out[row, column] == walk(row, column, bits, 4112, 2064, mode, major)


def test_walk_refuses() -> None:
    with pytest.raises(ValueError, match="K = 32 elements are 64 bytes, but a row of mode 1 has 32"):
        walk_bits(8, 32, 16, 16, 256, 1)
    with pytest.raises(ValueError, match="major: got 'm'; allowed: 'k', 'mn'"):
        walk_bits(8, 16, 16, 16, 256, 1, "m")


def k_major(dtype: str, mode: int, rows: int, k_steps: int) -> TileLayout:
    """(rows, K) with whole swizzle rows of K."""
    step = 256 // BITS[dtype]
    return mma_shared_layout(dtype, mode, (rows, step * k_steps))


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize(
    ("mode", "expected"),
    [(0, ("16*rows", 128)), (1, (16, 256)), (2, (16, 512)), (3, (16, 1024))],
)
def test_packed_k_major(dtype: str, mode: int, expected: tuple[Any, int]) -> None:
    # ptx_contract 5.2: SBO 256, 512, 1024 for densely packed swizzled rows; design 3.2: (16*rows, 128, 0).
    ldo, sdo = expected
    for rows in (64, 128, 136):
        layout = k_major(dtype, mode, rows, 4)
        step = 256 // BITS[dtype]
        want = (16 * rows if ldo == "16*rows" else ldo, sdo, mode)
        assert matrix_descriptor(layout, (rows, step), dtype) == want
        atoms = layout.rearrange("m (kr k) -> kr m k", k=step).view(1, 4, rows, step)
        assert matrix_descriptor(atoms, (rows, step), dtype) == want
    assert matrix_descriptor(k_major(dtype, mode, 8, 4), (8, 256 // BITS[dtype]), dtype)[1] == 0  # unused SDO


@pytest.mark.parametrize("dtype", ("float16", "uint8"))
@pytest.mark.parametrize("mode", range(4))
def test_packed_mn_major(dtype: str, mode: int) -> None:
    # The last axis of the stored tile is the contiguous one: (K, M).
    step, span = 256 // BITS[dtype], (16 << mode) * 8 // BITS[dtype]
    k, m = 2 * step, 2 * span
    layout = mma_shared_layout(dtype, mode, (k, m)).rearrange("(kr k) m -> kr m k", k=step)
    group, piece = 8 * (16 << mode), k * (16 << mode)
    want = (group, piece, 0) if mode == 0 else (piece, group, mode)
    assert matrix_descriptor(layout, (m, step), dtype, "mn") == want
    one = layout[:, :span]  # one piece: its stride is unused
    assert matrix_descriptor(one, (span, step), dtype, "mn") == (
        (group, 0, 0) if mode == 0 else (16, group, mode)
    )


def test_mn_major_of_the_design() -> None:
    a = mma_shared_layout("float16", 3, (64, 128)).rearrange("(kr k) m -> kr m k", k=16).view(1, 4, 128, 16)
    assert matrix_descriptor(a, (128, 16), "float16", "mn") == (8192, 1024, 3)
    a = mma_shared_layout("float16", 0, (64, 128)).rearrange("(kr k) m -> kr m k", k=16)
    assert matrix_descriptor(a, (128, 16), "float16", "mn") == (128, 1024, 0)
    a = mma_shared_layout("float32", 4, (48, 128)).rearrange("(kr k) m -> kr m k", k=8)
    assert matrix_descriptor(a, (128, 8), "float32", "mn") == (128 * 48, 512, 4)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("mode", range(4))
def test_the_walk_of_a_descriptor_is_the_layout(dtype: str, mode: int) -> None:
    bits, rows, step = BITS[dtype], 40, 256 // BITS[dtype]
    layout = k_major(dtype, mode, rows, 4)[:, step : 2 * step]
    ldo, sdo, found = matrix_descriptor(layout, (rows, step), dtype)
    image = bit_image(layout, bits)
    start = swizzle_bytes(int(image[0, 0]) // 8, found)
    linear = 8 * start + walk_bits(rows, step, bits, ldo, sdo, found)
    assert (swizzle_bytes(linear // 8, found) * 8 + linear % 8 == image).all()


def test_a_slice_keeps_the_buffer_s_strides() -> None:  # B05
    buffer = mma_shared_layout("bfloat16", 0, (128, 128))
    assert matrix_descriptor(buffer[:64], (64, 16), "bfloat16") == (2048, 128, 0)
    assert matrix_descriptor(buffer[64:], (64, 16), "bfloat16") == (2048, 128, 0)
    panels = mma_shared_layout("bfloat16", 3, (128, 128))[:64]
    assert matrix_descriptor(panels, (64, 16), "bfloat16") == (16, 1024, 3)


def test_strides_of_other_packings() -> None:  # B17
    image = S[((8, 8), (2, 8)) : ((128, 8), (64, 1))]  # 16-byte chunks 128 bytes, row groups 256 bytes apart
    assert matrix_descriptor(image, (64, 16), "float16") == (128, 256, 0)
    padded = S[(128, (4, 2, 8)) : (8, (4096, 1024, 1))]
    assert matrix_descriptor(padded, (128, 16), "float16") == (2048, 128, 0)


def test_another_spelling_of_the_same_swizzle() -> None:
    plain = S[(8, 64) : (64, 1)]
    assert matrix_descriptor(plain + Swizzle(3, 3, 3), (8, 16), "float16") == (16, 0, 3)
    # Without a permutation in reach, mode 0 fits, though the swizzle is not spelled as mode 0.
    assert matrix_descriptor(S[(8, 16) : (8, 64)] + Swizzle(10, 1, 3), (8, 1), "float16") == (16, 0, 0)


def refused(layout: TileLayout, atom: Any, dtype: str, major: str = "k") -> str:
    with pytest.raises(ValueError, match=r"layout: no .*-major descriptor fits") as error:
        matrix_descriptor(layout, atom, dtype, major)
    return str(error.value)


def test_refusals_say_why_for_every_mode() -> None:
    message = refused(S[(128, 64) : (64, 1)], (128, 16), "float16")  # plain row-major rows of 128 bytes
    for mode in range(4):
        assert f"mode {mode}: " in message
    assert (
        "element (1, 0) of atom 0 lies 128 bytes from its start, (LDO, SDO) = (16, 1024) walk to 16"
        in message
    )
    shifted = mma_shared_layout("float16", 3, (128, 64)) + 4
    assert "mode 3: an atom does not start on a multiple of 16 bytes" in refused(
        shifted, (128, 16), "float16"
    )
    lower = mma_shared_layout("float16", 3, (136, 64))[1:129]
    assert "mode 3: an atom starts at another row than the first of the 1024-byte pattern" in refused(
        lower, (128, 16), "float16"
    )
    long = S[((2, 8), 8) : ((1 << 17, 8), 1)]
    assert "SDO would be 262144 bytes; expected a multiple of 16 below 2**18" in refused(
        long, (16, 8), "float16"
    )
    just = S[((2, 8), 8) : (((1 << 17) - 8, 8), 1)]
    assert matrix_descriptor(just, (16, 8), "float16") == (16, (1 << 18) - 16, 0)
    tf32 = mma_shared_layout("float32", 3, (64, 128)).rearrange("(kr k) m -> kr m k", k=8)
    message = refused(tf32, (128, 8), "float32", "mn")
    assert "mode 3: 32-bit MN-major operands need mode 4" in message and "mode 4: element" in message
    narrow = mma_shared_layout("float16", 3, (16, 128)).rearrange("k n -> n k")[:96]  # B09
    assert "mode 3: an atom does not consist of whole rows of 128 bytes" in refused(
        narrow, (96, 16), "float16", "mn"
    )
    wide = mma_shared_layout("uint8", 1, (64, 64))
    assert "mode 1: K = 64 from an atom's start does not fit in a row of 32 bytes" in refused(
        wide, (64, 64), "uint8"
    )


def test_bad_arguments() -> None:
    layout = mma_shared_layout("float16", 3, (128, 64))
    with pytest.raises(
        ValueError, match=r"atom_shape: got \(128, 24\); the layout's last two axes of \(128, 64\)"
    ):
        matrix_descriptor(layout, (128, 24), "float16")
    with pytest.raises(ValueError, match=r"atom_shape: got \(128,\); expected \(rows, K\)"):
        matrix_descriptor(layout, (128,), "float16")
    with pytest.raises(ValueError, match="major: got 'm'; allowed: 'k', 'mn'"):
        matrix_descriptor(layout, (128, 16), "float16", "m")
    with pytest.raises(ValueError, match="float4_e2m1fn has no MN-major form"):
        matrix_descriptor(mma_shared_layout("float4_e2m1fn", 0, (64, 64)), (64, 64), "float4_e2m1fn", "mn")
    with pytest.raises(ValueError, match="expected memory axis 'm' alone"):
        matrix_descriptor(S[(128, 16) : (1 @ TLane, 1 @ TCol)], (128, 16), "float16")
    with pytest.raises(TypeError, match="layout: got 'x'; expected a TileLayout"):
        matrix_descriptor("x", (128, 16), "float16")  # type: ignore[arg-type]
