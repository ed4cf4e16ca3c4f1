"""Descriptors, layouts, budgets, masks and switches of one call: each rule's edge and what lies just past it.

Byte positions are worked by hand from the document's descriptor table (ptx_contract 5) and the datapaths
(ptx_contract 7.1).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from base_calls import (
    Call,
    assert_exact,
    bits,
    changed,
    legal_call,
    made,
    refuse,
    shared_k_major,
    with_leaves,
)

import jax_tcgen05 as tc

S, TLane, TCol = tc.S, tc.TLane, tc.TCol

# Descriptor fields (B85, B89): multiples of 16 below 2^18. LDO is unused by a swizzled K-major operand.

FIELD = made(a_swizzle=1)


@pytest.mark.parametrize("ldo", [0, 16, 1008, (1 << 18) - 16, np.int32(32)])
def test_an_unused_field_takes_any_encodable_value(ldo):
    call = FIELD() | {"a_descriptor": (ldo, 256, 1)}
    np.testing.assert_array_equal(tc.mma(**call).leaf, tc.mma(**FIELD()).leaf)
    descriptor = tc.SharedDescriptor.decode(tc.plan(**call).a.starts[0])
    assert (descriptor.ldo, descriptor.sdo, descriptor.swizzle) == (ldo, 256, 1)


@pytest.mark.parametrize("value", [8, 24, 1000, -16, 1 << 18, 16 * 16384, (1 << 18) + 16])
@pytest.mark.parametrize("field", [0, 1])
def test_fields_that_cannot_be_encoded(value, field):
    given = [16, 256, 1]
    given[field] = value
    text = refuse(changed(FIELD, a_descriptor=tuple(given)), ValueError, "a_descriptor", f"got {value}")
    assert ("ldo", "sdo")[field] in text and "16" in text and str((1 << 18) - 16) in text


@pytest.mark.parametrize("swizzle", [-1, 5, 7])
def test_unknown_swizzles(swizzle):
    refuse(
        changed(FIELD, b_descriptor=(16, 256, swizzle)), ValueError, "b_descriptor", f"got {swizzle}", "0..4"
    )


MODE_4 = made("tf32", a_major="mn", a_swizzle=4, repeats=(1, 1, 4))
MODES_REFUSED = {
    "mode 4 of f16": (
        changed(FIELD, a_descriptor=(16, 256, 4)),
        ("a_descriptor", "swizzle 4", "32-bit", "OQ7"),
    ),
    "mode 4, K-major": (
        changed(made("tf32"), b_descriptor=(16, 256, 4)),
        ("b_descriptor", "swizzle 4", "b_major='k'", "MN-major", "OQ7"),
    ),
    "tf32 MN-major in mode 3": (
        changed(MODE_4, a_descriptor=(4096, 1024, 3)),
        ("a_descriptor", "swizzle 3", "needs swizzle 4"),
    ),
}


@pytest.mark.parametrize("name", MODES_REFUSED)
def test_modes_refused(name):
    make, words = MODES_REFUSED[name]
    refuse(make, ValueError, *words)


# The layout against the descriptor (B03, B05, B09, B17)


def f16(rows: int, k: int) -> jax.Array:
    """Small integers, exact in any order of summation."""
    return jnp.asarray(np.random.default_rng(rows + k).integers(-2, 3, (rows, k)), jnp.float16)


MISMATCHES = {
    # B03: each names the swizzle declared and the one that the layout reads.
    "laid out plain, declared swizzled": (
        lambda: legal_call() | {"a_descriptor": (16, 1024, 3)},
        ("a_descriptor", "(16, 1024, 3)", "(2048, 128, 0)", "a_major='k'"),
    ),
    "laid out swizzled, declared plain": (
        lambda: legal_call(a_swizzle=3, repeats=(1, 1, 4)) | {"a_descriptor": (16, 1024, 0)},
        ("a_descriptor", "(16, 1024, 0)", "(16, 1024, 3)", "row 1, k 0", "byte 144", "byte 16;"),
    ),
    "another swizzle": (
        lambda: legal_call(b_swizzle=2, repeats=(1, 1, 2)) | {"b_descriptor": (16, 512, 3)},
        ("b_descriptor", "(16, 512, 3)", "(16, 512, 2)"),
    ),
    # The second K chunk of 64 rows lies 64 * 16 bytes on.
    "LDO": (
        changed(made(), b_descriptor=(1040, 128, 0)),
        ("b_descriptor", "(1040, 128, 0)", "(1024, 128, 0)", "row 0, k 8", "byte 1024", "byte 1040"),
    ),
    "SDO": (
        changed(made(), a_descriptor=(2048, 256, 0)),
        ("a_descriptor", "row 8, k 0", "byte 128", "byte 256"),
    ),
    "major": (
        changed(made(N=16), b_major="mn"),
        ("b_descriptor", "(256, 128, 0)", "mn-major", "row 0, k 1", "byte 2 "),
    ),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_descriptor_mismatches(name):
    make, words = MISMATCHES[name]
    refuse(make, ValueError, *words)


def test_exchanged_strides_are_refused_with_both_numbers():
    """B17: chunks 128 bytes apart, groups of 8 rows 256 bytes apart; A one-hot, B a ramp."""
    layout = S[(16, 8, 2, 8) : (128, 8, 64, 1)].view(128, 16)
    hot = jnp.asarray(np.eye(16)[np.arange(128) % 16], jnp.float16)
    ramp = jnp.asarray(np.arange(64 * 16).reshape(64, 16), jnp.float16)
    call = legal_call() | {
        "a": tc.shared(hot, layout).view(1, 1, 128, 16),
        "b": tc.shared(ramp, tc.mma_shared_layout("float16", 0, (64, 16))).view(1, 1, 64, 16),
        "a_descriptor": (128, 256, 0),
        "accum": False,
    }
    got = np.asarray(tc.mma(**call).array)[0, 0]
    np.testing.assert_array_equal(got, np.asarray(ramp, np.float32).T[np.arange(128) % 16])
    text = refuse(lambda: call | {"a_descriptor": (256, 128, 0)}, ValueError, "a_descriptor", "(256, 128, 0)")
    assert "(128, 256, 0)" in text
    # A print of where the elements lie, for the reader of such a message.
    assert layout(9, 8) == {"m": 1 * 128 + 1 * 8 + 64}


@pytest.mark.parametrize("first", [0, 64])
def test_part_of_a_buffer_in_two_panels(first):
    """B05: the K panels of a (128, 128) buffer are 128 rows apart, whichever rows the operand takes."""
    buffer = np.zeros((128, 128), ml_dtypes.bfloat16)
    buffer[first : first + 64, 64:] = 1
    layout = tc.mma_shared_layout("bfloat16", 3, (128, 128))
    b = tc.shared(buffer, layout)[first : first + 64].rearrange("n (s k) -> s n k", k=16).view(1, 8, 64, 16)
    a = shared_k_major(np.ones((128, 128), ml_dtypes.bfloat16), 128, 16, 3)
    call = legal_call() | {
        "a": a,
        "b": b,
        "a_descriptor": (16, 1024, 3),
        "b_descriptor": (16, 1024, 3),
        "accum": False,
    }
    np.testing.assert_array_equal(tc.mma(**call).array, np.full((1, 1, 128, 64), 64.0, np.float32))
    starts = [tc.SharedDescriptor.decode(s).start for s in tc.plan(**call).b.starts]
    base = 128 * 128 * 2 + first * 128  # B's allocation follows A's; 128 bytes a row
    assert starts == [base + 128 * 128 * (k // 4) + 32 * (k % 4) for k in range(8)]


@pytest.mark.parametrize("n", [48, 96])
def test_pieces_of_a_swizzled_row(n):
    """B09: an MN-major operand in mode 3 takes whole pieces of 64 f16 elements; K-major has no such limit."""

    def wide(N: int, columns: int) -> Call:
        buffer = tc.shared(f16(16, columns), tc.mma_shared_layout("float16", 3, (16, columns)))
        b = buffer.rearrange("k n -> n k")[:N].view(1, 1, N, 16)
        return legal_call(N=N) | {"b": b, "b_major": "mn", "b_descriptor": (2048, 1024, 3)}

    refuse(
        lambda: wide(n, 192), ValueError, "b_descriptor", "swizzle 3", f"{n} rows", "multiple of 64 elements"
    )
    assert_exact(wide(64, 192))
    assert_exact(wide(128, 192))
    assert_exact(legal_call(N=n, b_swizzle=3, repeats=(1, 1, 4)))


# Origins: alignment (B89), row phase, K steps within a row


def sliced(rows: slice, columns: slice, swizzle: int, shape: tuple[int, int] = (160, 64)) -> Call:
    """A call whose A is a part of a larger buffer of f16."""
    a = tc.shared(f16(*shape), tc.mma_shared_layout("float16", swizzle, shape))[rows, columns].view(
        1, 1, 128, 16
    )
    descriptor = (16 * shape[0], 128, 0) if swizzle == 0 else (16, 8 * (16 << swizzle), swizzle)
    return legal_call() | {"a": a, "a_descriptor": descriptor}


ORIGINS_ACCEPTED = {
    "plain, 16 bytes on": (slice(128), slice(8, 24), 0),
    "plain, any row": (slice(5, 133), slice(16), 0),
    "mode 3, inside a row": (slice(128), slice(8, 24), 3),
    "mode 3, last step of a row": (slice(128), slice(48, 64), 3),
    "mode 3, a group of 8 rows on": (slice(8, 136), slice(16), 3),
    "mode 2, second panel": (slice(16, 144), slice(32, 48), 2),
    "mode 1": (slice(32, 160), slice(16, 32), 1),
}


@pytest.mark.parametrize("name", ORIGINS_ACCEPTED)
def test_origins_accepted(name):
    assert_exact(sliced(*ORIGINS_ACCEPTED[name]))


ORIGINS_REFUSED = {
    "2 bytes on": ((slice(128), slice(1, 17), 3), ("a:", "byte 2", "16-byte aligned")),
    "8 bytes on": ((slice(128), slice(4, 20), 3), ("a:", "byte 8", "16-byte aligned")),
    "row 1 of the pattern": (
        (slice(1, 129), slice(16), 3),
        ("a:", "row 1", "1024-byte", "swizzle 3", "first row", "OQ8"),
    ),
    "row 4 of the pattern": ((slice(4, 132), slice(16), 1), ("a:", "row 4", "256-byte", "swizzle 1")),
    "over the end of a row": (
        (slice(128), slice(56, 72), 3, (160, 128)),
        ("a:", "32 bytes", "112 bytes", "row of 128"),
    ),
    "mode 1, half a row on": ((slice(128), slice(8, 24), 1), ("a:", "16 bytes", "row of 32")),
}


@pytest.mark.parametrize("name", ORIGINS_REFUSED)
def test_origins_refused(name):
    arguments, words = ORIGINS_REFUSED[name]
    refuse(lambda: sliced(*arguments), ValueError, *words)


@pytest.mark.parametrize(("layout", "says"), [(3, 0), (3, 1), (3, 2), (2, 3), (1, 3), (2, 0), (0, 3)])
def test_a_swizzle_on_one_side_only_names_both(layout, says):
    """B03: the image has one swizzle, the descriptor another."""
    call = legal_call(a_swizzle=layout, repeats=(1, 1, 4 if layout == 3 else 2))
    text = refuse(lambda: call | {"a_descriptor": (16, 1024, says)}, ValueError, "a_descriptor")
    for swizzle in (layout, says):  # in words, or as the last entry of a descriptor
        assert f"swizzle {swizzle}" in text or f", {swizzle})" in text


def test_an_8_bit_slice_starts_on_16_elements():
    def part(first: int) -> Call:
        x = np.ones((128, 128), ml_dtypes.float8_e4m3fn)
        a = tc.shared(x, tc.mma_shared_layout("uint8", 3, (128, 128)))[:, first : first + 32]
        return legal_call("f8f6f4") | {"a": a.view(1, 1, 128, 32), "a_descriptor": (16, 1024, 3)}

    assert_exact(part(16))
    refuse(lambda: part(3), ValueError, "a:", "byte 3", "16-byte aligned")


# Budgets: 226 KiB of shared memory, 512 columns of TMEM (B43)


def filled(b_rows: int) -> Call:
    """A takes 128 KiB, B 1 KiB for each row of its buffer."""
    a = shared_k_major(jnp.ones((128, 512), jnp.float16), 128, 16, 0)
    buffer = tc.shared(
        jnp.ones((b_rows, 512), jnp.float16), tc.mma_shared_layout("float16", 0, (b_rows, 512))
    )
    b = buffer[:64].rearrange("n (s k) -> s n k", k=16).view(1, 32, 64, 16)
    return legal_call() | {
        "a": a,
        "b": b,
        "a_descriptor": (2048, 128, 0),
        "b_descriptor": (16 * b_rows, 128, 0),
    }


def test_shared_memory_budget():
    assert tc.plan(**filled(98)).shared_bytes == 226 * 1024
    assert_exact(filled(98))
    refuse(
        lambda: filled(99),
        ValueError,
        "a, b:",
        227 * 1024,
        f"a {128 * 1024}",
        f"b {99 * 1024}",
        226 * 1024,
        "226 KiB",
    )


def test_one_operand_over_the_budget():
    a = tc.shared(jnp.ones((128, 1024), jnp.float16), tc.mma_shared_layout("float16", 0, (128, 1024)))
    call = legal_call() | {"a": a[:, :16].view(1, 1, 128, 16)}
    refuse(lambda: call, ValueError, "a:", 256 * 1024, "226 KiB")


COLUMNS = {
    # form: columns needed. D 256 per tile, A in TMEM 8 per K step, scales 4 and 8 per 4 steps.
    (("N", 256), ("repeats", (2, 1, 1))): 512,
    (("N", 256), ("repeats", (2, 2, 1))): 1024,
    (("N", 256), ("a_swizzle", None), ("repeats", (1, 1, 23)), ("kind", "mxf8f6f4")): 256 + 23 * 8 + 6 * 12,
    (("N", 256), ("a_swizzle", None), ("repeats", (1, 1, 24)), ("kind", "mxf8f6f4")): 256 + 24 * 8 + 6 * 12,
    # OQ5: the largest tile origin + N, though a tile of layout E fills only N/2 columns.
    (("M", 64), ("N", 256), ("ws", True), ("repeats", (1, 3, 1))): 2 * 128 + 256,
    (("M", 64), ("N", 256), ("ws", True), ("repeats", (1, 4, 1))): 3 * 128 + 256,
    (("M", 32), ("N", 256), ("ws", True), ("repeats", (1, 5, 1))): 4 * 64 + 256,
    (("M", 256), ("N", 256), ("group", 2), ("repeats", (3, 1, 1))): 3 * 256,
    (("d_format", "float16"), ("N", 256), ("repeats", (2, 1, 1))): 512,
}


@pytest.mark.parametrize("form", COLUMNS, ids=str)
def test_tmem_budget(form):
    needed = COLUMNS[form]
    if needed <= 512:
        assert tc.plan(**legal_call(**dict(form))).tmem_columns == needed
        return
    with pytest.raises(ValueError, match="column") as caught:
        tc.plan(**legal_call(**dict(form)))
    assert "512" in str(caught.value) and str(needed) in str(caught.value)
    assert_exact(legal_call())  # the process goes on


# D, and A in TMEM, on the datapaths (B11)


def d_of(letter: str, rows: int, cols: int, sub_slab: int = 0) -> tc.PlacedOperand:
    layout = tc.tmem_datapath_layout(letter, rows, cols, sub_slab=sub_slab)
    return tc.tmem(jnp.full((rows, cols), 7.0), layout).view(1, 1, rows, cols)


@pytest.mark.parametrize("slab", [0, 1])
def test_both_halves_of_layout_f(slab):
    call = legal_call(M=64) | {"d": d_of("F", 64, 64, slab)}
    assert_exact(call)
    assert tc.plan(**call).d.starts == (16 * slab << 16,)
    lanes = call["d"].layout.image()["TLane"][0, 0, [0, 15, 16, 17, 63], 0]
    assert lanes.tolist() == [lane + 16 * slab for lane in (0, 15, 32, 33, 111)]


def straight(
    shape: tuple[int, ...], dtype: Any = np.float32, lane: Any = 0, prefix: Any = ()
) -> tc.PlacedOperand:
    """Row r in lane r, entries side by side."""
    layout = S[(1, 1, *shape) : (1 @ TCol, 1 @ TCol, 1 @ TLane, 1 @ TCol)] + lane @ TLane
    return tc.tmem(jnp.zeros((*prefix, 1, 1, *shape), dtype), layout)


DATAPATHS_REFUSED = {
    "lanes of another M": (
        lambda: legal_call(M=64) | {"d": straight((64, 64))},
        ("d:", "element (0, 0, 16, 0)", "lane 16", "lane 32", "layout F"),
    ),
    "rows exchanged": (
        lambda: legal_call() | {"d": d_of("D", 128, 64).rearrange("r s (a b) n -> r s (b a) n", a=2)},
        ("d:", "element (0, 0, 1, 0)", "lane 64", "lane 1", "layout D"),
    ),
    "f16 D without gaps": (
        lambda: legal_call(d_format="float16") | {"d": straight((128, 64), np.float16)},
        ("d:", "element (0, 0, 0, 1)", "bit of the lane 16", "bit of the lane 32"),
    ),
    "D from lane 8": (
        lambda: (
            legal_call(M=64)
            | {
                "d": tc.tmem(jnp.zeros((64, 64)), tc.tmem_datapath_layout("F", 64, 64) + 8 @ TLane).view(
                    1, 1, 64, 64
                )
            }
        ),
        ("d:", "lane 8", "allowed: 0, 16", "layout F"),
    ),
    "A in the lower, D in the upper lanes": (
        lambda: legal_call("tf32", M=64, a_swizzle=None) | {"d": d_of("F", 64, 64, 1)},
        ("a:", "lane 0", "lane 16", "lanes of D", "OQ3"),
    ),
    "A in lanes 0-63 for layout F": (
        lambda: legal_call(M=64, a_swizzle=None) | {"a": straight((64, 16), np.float16)},
        ("a:", "element (0, 0, 16, 0)", "lane 16", "lane 32", "layout F"),
    ),
    "A without its copy in layout B": (
        lambda: (
            legal_call(M=128, group=2, a_swizzle=None) | {"a": straight((64, 16), np.float16, prefix=(2,))}
        ),
        ("a:", "replicas: none", "replica of 2 at 64 lanes"),
    ),
}


@pytest.mark.parametrize("name", DATAPATHS_REFUSED)
def test_datapaths_refused(name):
    make, words = DATAPATHS_REFUSED[name]
    refuse(make, ValueError, *words)


def test_two_entries_in_one_place_are_refused():
    a = tc.shared(jnp.zeros((128, 16), jnp.float16), S[(128, 16) : (0, 1)]).view(1, 1, 128, 16)
    with pytest.raises(ValueError, match=r"a"):
        tc.plan(**legal_call() | {"a": a})


# Masks (B15)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("spelling", [list, tuple, np.uint32, jnp.uint32])
def test_masked_lanes_stay(group, spelling):
    call = legal_call(M=128 * group, group=group)
    ones = {name: jnp.ones_like(x.leaf) for name, x in call.items() if name in ("a", "b")}
    call = with_leaves(call, ones | {"d": jnp.full_like(call["d"].leaf, 7)})
    words = [0xFFFFFFFF] + [0] * (4 * group - 1)
    mask = spelling(words) if spelling in (list, tuple) else spelling(np.array(words, np.uint32))
    got = np.asarray(tc.mma(**call | {"accum": False, "disable_output_lane": mask}).array)
    want = np.full(got.shape, 16.0)
    want[(0, 0, 0) if group == 2 else (0, 0)][:32] = 7  # lanes 0-31 of the even CTA
    np.testing.assert_array_equal(got, want)


MASK = "disable_output_lane"


@pytest.mark.parametrize("column", [449, 1 << 40, 1 << 59])
def test_a_d_past_the_last_column(column):
    layout = tc.tmem_mma_operand_layout("D", (128, 64), "float32", M=128, cta_group=1)

    def at(first: int) -> Call:
        return legal_call() | {
            "d": tc.tmem_empty((128, 64), "float32", layout + first @ TCol).view(1, 1, 128, 64)
        }

    assert tc.plan(**at(448)).tmem_columns == 512
    refuse(lambda: at(column), ValueError, "d:", column + 64, "512")


ZERO = "zero_column_mask"
MASKS_REFUSED = {
    "3 words": (made(), MASK, [0] * 3, ValueError, ("3 words", "4 32-bit words")),
    "8 words in one CTA": (made(), MASK, [0] * 8, ValueError, ("8 words", "4 32-bit words")),
    "4 words in a pair": (made(M=256, group=2), MASK, [0] * 4, ValueError, ("4 words", "8 32-bit words")),
    "an array of 4 in a pair": (
        made(M=256, group=2), MASK, np.zeros(4, np.uint32), ValueError, ("shape (4,)", "8 32-bit words")
    ),
    "with .ws": (made(ws=True), MASK, [0] * 4, ValueError, (".ws has no lane mask",)),
    "with block scale": (made("mxf4"), MASK, [0] * 4, ValueError, (".block_scale has no lane mask",)),
    "33 bits": (made(), MASK, [1 << 32, 0, 0, 0], ValueError, ("0x100000000", "32 bits")),
    "negative": (made(), MASK, [-1, 0, 0, 0], ValueError, ("-0x1", "32 bits")),
    "floats": (made(), MASK, [0.0, 0, 0, 0], TypeError, ("0.0", "int")),
    "int32 array": (made(), MASK, np.zeros(4, np.int32), TypeError, ("int32", "uint32")),
    "one int": (made(), MASK, 0, TypeError, ("0", "4 32-bit words")),
    "another batch": (
        made(batch=(3,)), MASK, np.zeros((2, 4), np.uint32), ValueError, ("(2,)", "batch's shape (3,)")
    ),
    "zero columns, dense": (made(), ZERO, 0, ValueError, ("only the .ws form", "disable_output_lane")),
    "zero columns, block scale": (made("mxf4"), ZERO, 0, ValueError, ("only the .ws form",)),
    "65 bits": (made(ws=True), ZERO, 1 << 64, ValueError, ("0x10000000000000000", "64 bits")),
    "negative columns": (made(ws=True), ZERO, -1, ValueError, ("-0x1", "64 bits")),
    "a float": (made(ws=True), ZERO, 0.5, TypeError, ("0.5", "2 words")),
    "a shift": (made(ws=True), ZERO, 3 << 56, ValueError, ("column shift 3", "only 0")),
    "start count past its span": (made(ws=True), ZERO, 1 << 39 | 5, ValueError, ("start", "5")),
    "3 words of columns": (made(ws=True), ZERO, [0, 0, 0], ValueError, ("3 words", "2 words")),
    "64-bit array": (made(ws=True), ZERO, np.zeros(2, np.uint64), TypeError, ("uint64", "uint32")),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS_REFUSED)
def test_masks_refused(name):
    make, argument, value, error, words = MASKS_REFUSED[name]
    refuse(changed(make, **{argument: value}), error, argument, *words)


@pytest.mark.parametrize("mask", [3 << 56, 1 << 39 | 5], ids=["column shift", "start count past its span"])
def test_traced_zero_column_masks_are_refused_at_run_time(mask):
    """Static, they are a ValueError; traced, INVALID_ARGUMENT. The next call works."""
    call = legal_call(ws=True)
    words = jnp.asarray([mask & 0xFFFFFFFF, mask >> 32], jnp.uint32)
    function = jax.jit(lambda words: tc.mma(**call | {ZERO: words}).leaf)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT.*zero.column"):
        function(words).block_until_ready()
    np.testing.assert_array_equal(function(jnp.zeros(2, jnp.uint32)), tc.mma(**call).leaf)


def test_without_bit_39_a_zero_column_mask_does_nothing():
    call = legal_call(ws=True)
    value = (1 << 56) - 1 & ~(1 << 39)
    words = jnp.asarray([value & 0xFFFFFFFF, value >> 32], jnp.uint32)
    for spelling in (value, words):
        np.testing.assert_array_equal(tc.mma(**call | {ZERO: spelling}).leaf, tc.mma(**call).leaf)


@pytest.mark.parametrize("skip", [0, 2])
def test_zero_column_mask_spellings(skip):
    """skip+1 columns read as zero, then 4 are used: D gets only the addend there (accum) in columns 0..skip."""
    mask = tc.ZeroColumnMask(nonzero=True, first_spans=(1, 0, 0, 0), skip_span=skip, use_span=3)
    call = legal_call(ws=True)
    value = int(mask)
    spelled = [mask, value, np.uint64(value), [value & 0xFFFFFFFF, value >> 32]]
    spelled.append(jnp.asarray(spelled[-1], jnp.uint32))
    plain = np.asarray(tc.mma(**call).array)[0, 0]
    zeroed = np.arange(64) % (skip + 5) <= skip
    want = np.where(zeroed, np.asarray(call["d"].array)[0, 0], plain)
    for spelling in spelled:
        np.testing.assert_array_equal(tc.mma(**call | {ZERO: spelling}).array[0, 0], want)


# accum, pred, D (B47)


def ones_and_nan(**form: Any) -> Call:
    call = legal_call(repeats=(1, 1, 4), **form)
    arrays = {name: jnp.ones_like(call[name].leaf) for name in ("a", "b")}
    return with_leaves(call, arrays | {"d": jnp.full_like(call["d"].leaf, jnp.nan)})


def test_accum_false_concerns_the_first_k_issue_only():
    call = ones_and_nan()
    np.testing.assert_array_equal(tc.mma(**call | {"accum": False}).array, np.full((1, 1, 128, 64), 64.0))
    omitted = {k: v for k, v in call.items() if k != "accum"}
    np.testing.assert_array_equal(
        tc.mma(**omitted).array, np.full((1, 1, 128, 64), 64.0)
    )  # the default is False
    assert np.isnan(tc.mma(**call).array).all()


@pytest.mark.parametrize("accum", [True, False])
def test_traced_accum(accum):
    call = legal_call(repeats=(1, 2, 2))
    got = jax.jit(lambda flag: tc.mma(**call | {"accum": flag}).leaf)(accum)
    np.testing.assert_array_equal(got, tc.mma(**call | {"accum": accum}).leaf)


@pytest.mark.parametrize("group", [1, 2])
def test_accum_and_pred_per_batch_element(group):
    call = legal_call(M=128 * group, group=group, N=16, batch=(2, 2))
    accum, pred = np.array([[True, False], [True, False]]), np.array([[True, True], [False, False]])
    got = np.asarray(tc.mma(**call | {"accum": accum, "pred": jnp.asarray(pred)}).leaf)
    for i in np.ndindex(2, 2):
        where = (slice(None), *i) if group == 2 else i
        one = tc.mma(**call | {"accum": bool(accum[i])}).leaf[where] if pred[i] else call["d"].leaf[where]
        np.testing.assert_array_equal(got[where], one)


@pytest.mark.parametrize("name", ["accum", "pred"])
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (1, TypeError, ("got 1", "bool")),
        ("yes", TypeError, ("'yes'", "bool")),
        (np.int32(1), TypeError, ("int32", "bool")),
        (np.ones(4), TypeError, ("float64", "bool")),
        ([True, False], TypeError, ("[True, False]", "bool")),
        (np.ones(2, bool), ValueError, ("(2,)", "batch's shape (3,)")),
        (np.ones((1,), bool), ValueError, ("(1,)", "batch's shape (3,)")),
    ],
    ids=lambda x: str(x)[:20],
)
def test_switches_refused(name, value, error, words):
    refuse(changed(made(batch=(3,), N=16), **{name: value}), error, f"{name}:", *words)


def test_pred_false_writes_nothing():
    call = ones_and_nan()
    for pred in (False, np.False_, jnp.asarray(False)):
        got = tc.mma(**call | {"pred": pred, "accum": False})
        np.testing.assert_array_equal(bits(got.leaf), bits(call["d"].leaf))
