"""Scale factors through real calls: their values, one slice for each K step, and bytes that are not selected.

Values are worked out by hand: with ones everywhere an element of D is the sum of K products of two scales.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from base_calls import Call, leaves, legal_call, with_leaves

import jax_tcgen05 as tc


def test_powers_of_two_as_scales():
    """Bytes 126, 127, 128, 133, 134, 135: 32 ones times 0.5, 1, 2, 64, 128, 256. 254 overflows; 255 is NaN."""
    call = legal_call("mxf8f6f4", N=8)
    ones = {n: jnp.ones_like(leaves(call)[n]) for n in ("a", "b", "sfa", "sfb")}
    sfa = np.full(call["sfa"].leaf.shape, 127, np.uint8)
    sfa[0, 0, :9, 0] = [126, 127, 128, 133, 134, 135, 254, 255, 0]
    scaled = ones | {"sfa": sfa.view(ml_dtypes.float8_e8m0fnu)}
    got = np.asarray(tc.mma(**with_leaves(call, scaled) | {"accum": False}).array)[0, 0]
    want = np.array([16, 32, 64, 32 * 64, 32 * 128, 32 * 256, np.inf, np.nan, 32 * 2.0**-127, 32], np.float32)
    np.testing.assert_array_equal(got[:10], np.repeat(want[:, None], 8, axis=1))
    assert (got[9:] == 32).all()  # the other rows are what they were


@pytest.mark.parametrize("byte", [0x00, 0x38, 0x7E, 0x7F, 0x80, 0xB8, 0xFF])
def test_the_sign_of_ue4m3_is_ignored(byte):
    call = legal_call("mxf4nvf4", N=8, scale_format="float8_e4m3fn")
    ones = {n: jnp.ones_like(leaves(call)[n]) for n in ("a", "b", "sfa", "sfb")}
    scale = np.full(call["sfb"].leaf.shape, byte, np.uint8).view(ml_dtypes.float8_e4m3fn)
    got = np.asarray(tc.mma(**with_leaves(call, ones | {"sfb": scale}) | {"accum": False}).array)
    np.testing.assert_array_equal(
        got, np.full(got.shape, 64 * np.float32(np.uint8(byte & 0x7F).view(ml_dtypes.float8_e4m3fn)))
    )


def test_every_k_step_has_its_own_scale():
    """B23: 32 * (1 + 2 + 4 + 8); 128 would be the first slice for every step."""
    call = legal_call("mxf8f6f4", repeats=(1, 1, 4))
    ones = {n: jnp.ones_like(leaves(call)[n]) for n in ("a", "b", "sfb")}
    steps = jnp.array([1, 2, 4, 8], jnp.float32)[None, :, None, None]
    sfa = jnp.broadcast_to(steps, call["sfa"].leaf.shape).astype(jnp.float8_e8m0fnu)
    got = tc.mma(**with_leaves(call, ones | {"sfa": sfa}) | {"accum": False})
    np.testing.assert_array_equal(got.array, np.full((1, 1, 128, 64), 480.0))


# Bytes that the instruction does not select (B33)

K_OF = {"mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


def slices(kind: str, vec: int, step: int, filler: int, changed: dict[str, Any] | None = None) -> Call:
    """A call that takes K step `step` out of scales for two words of steps, all others being `filler`.

    `changed` gives other codes for the selected slice of sfa or sfb.
    """
    call = legal_call(kind, N=40, scale=f"scale_vec::{vec}X")
    ones = {n: jnp.ones_like(leaves(call)[n]) for n in ("a", "b")}
    call = with_leaves(call, ones) | {"accum": False}
    for name, rows in (("sfa", 128), ("sfb", 40)):
        steps = 2 * 4 // vec
        codes = np.full((1, steps, rows, vec), filler, np.uint8)
        codes[:, step] = 127
        if changed and name in changed:
            codes[0, step] = changed[name]
        layout = tc.scale_factor_layout(codes.shape, "float8_e8m0fnu")
        call[name] = tc.tmem(codes.view(ml_dtypes.float8_e8m0fnu), layout)[:, step : step + 1]
    return call


CHOICES = (
    [("mxf8f6f4", 1, step) for step in range(8)]
    + [("mxf4", 2, step) for step in range(4)]
    + [("mxf4nvf4", 4, 0), ("mxf4nvf4", 4, 1)]
)


@pytest.mark.parametrize(("kind", "vec", "step"), CHOICES)
def test_unselected_scales_change_nothing(kind, vec, step):
    """0xFF is NaN: other ids, other words and rows past N hold it; then 0, which would shrink the sum."""
    for filler in (0xFF, 0):
        call = slices(kind, vec, step, filler)
        plan = tc.plan(**call)
        assert [start >> 30 for start in (*plan.sfa.starts, *plan.sfb.starts)] == [step * vec % 4] * 2
        got = np.asarray(tc.mma(**call).array)
        np.testing.assert_array_equal(got, np.full((1, 1, 128, 40), K_OF[kind]))


@pytest.mark.parametrize(("kind", "vec", "step"), [("mxf8f6f4", 1, 2), ("mxf4", 2, 1), ("mxf4nvf4", 4, 1)])
def test_a_selected_nan_takes_its_row_or_column(kind, vec, step):
    for name, rows, hit in (("sfa", 128, 37), ("sfb", 40, 33)):
        for position in range(vec):
            codes = np.full((rows, vec), 127, np.uint8)
            codes[hit, position] = 0xFF
            got = np.asarray(tc.mma(**slices(kind, vec, step, 127, {name: codes})).array)[0, 0]
            want = np.full((128, 40), K_OF[kind], np.float32)
            want[(hit, slice(None)) if name == "sfa" else (slice(None), hit)] = np.nan
            np.testing.assert_array_equal(got, want)


def test_ids_of_sfa_and_sfb_are_independent():
    """SFA from byte 3 of its words, SFB from byte 1 of others."""
    call = slices("mxf8f6f4", 1, 3, 0xFF)
    call["sfb"] = slices("mxf8f6f4", 1, 5, 0xFF, {"sfb": np.arange(40, dtype=np.uint8)[:, None] % 3 + 127})[
        "sfb"
    ]
    plan = tc.plan(**call)
    assert (plan.sfa.starts[0] >> 30, plan.sfb.starts[0] >> 30) == (3, 1)
    want = 32.0 * 2.0 ** (np.arange(40) % 3)
    np.testing.assert_array_equal(np.asarray(tc.mma(**call).array)[0, 0], np.broadcast_to(want, (128, 40)))


def test_where_a_row_lies():
    """B21: row 37, scale 2 lies in lane 5 (and 37, 69, 101), byte column 4 * (37 // 32) + 2."""
    layout = tc.scale_factor_layout((1, 1, 128, 4), "float8_e8m0fnu")
    assert layout(0, 0, 37, 2) == {"TLane": 5, "TCol": 6}
    (copies,) = layout.replicas
    assert (copies.extent, copies.stride("TLane")) == (4, 32)


def test_blocks_of_16_scale_their_own_16():
    """Four scales of a K=64 step weigh k 0-15, 16-31, 32-47 and 48-63: 16 * (1 + 2 + 4 + 8)."""
    call = legal_call("mxf4nvf4", N=8, scale_format="float8_e4m3fn")
    ones = {n: jnp.ones_like(leaves(call)[n]) for n in ("a", "b", "sfb")}
    sfa = jnp.broadcast_to(jnp.array([1.0, 2, 4, 8]), call["sfa"].leaf.shape).astype(jnp.float8_e4m3fn)
    got = tc.mma(**with_leaves(call, ones | {"sfa": sfa}) | {"accum": False})
    np.testing.assert_array_equal(got.array, np.full((1, 1, 128, 8), 240.0))
    a = jnp.zeros_like(ones["a"]).at[:, 16:32].set(1)
    got = tc.mma(**with_leaves(call, ones | {"a": a, "sfa": sfa}) | {"accum": False})
    np.testing.assert_array_equal(got.array, np.full((1, 1, 128, 8), 32.0))
