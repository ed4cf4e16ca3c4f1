"""The suite against wrong results (B97): what a faulty executor would return is told from the right bits.

Comparisons everywhere in the suite are of equal bits, so a fault is seen exactly when it changes a bit for the
suite's data. Each mutant is the result that one known kind of fault gives, worked out here in NumPy, for calls
with the data that the suite uses; the comparison must refuse every one, and accept the right result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from base_calls import Call, assert_same, legal_call

import jax_tcgen05 as tc

FORMS: dict[str, dict[str, Any]] = {
    "f16": {"N": 128, "repeats": (1, 1, 4), "a_swizzle": 3, "b_swizzle": 3},
    "plain": {"N": 128, "repeats": (1, 2, 2)},
    "tf32": {"kind": "tf32", "N": 128, "repeats": (1, 1, 2)},
    "f8f6f4, f16 D": {"kind": "f8f6f4", "N": 128, "d_format": "float16", "repeats": (1, 1, 2)},
    "i8": {"kind": "i8", "N": 128, "repeats": (1, 1, 2)},
    "mxf8f6f4": {"kind": "mxf8f6f4", "N": 128, "repeats": (1, 1, 4)},
    "mxf4nvf4": {"kind": "mxf4nvf4", "N": 128, "repeats": (1, 1, 2), "scale_format": "float8_e4m3fn"},
    "A in TMEM": {"N": 128, "a_swizzle": None, "repeats": (1, 1, 2)},
}


class Numbers:
    """A call's operands as float64, and its product by NumPy."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.d, self.a, self.b = (np.asarray(call[n].array).astype(np.float64) for n in ("d", "a", "b"))
        self.scales = {n: np.asarray(call[n].array).astype(np.float64) for n in ("sfa", "sfb") if n in call}

    def product(self, a: Any = None, b: Any = None, scales: Any = None) -> np.ndarray:
        a, b = self.a if a is None else a, self.b if b is None else b
        scales = self.scales if scales is None else scales
        for name, scale in scales.items():
            factor = np.repeat(scale, a.shape[-1] // scale.shape[-1], axis=-1)
            a, b = (a * factor, b) if name == "sfa" else (a, b * factor)
        return np.einsum("mkir,nkjr->mnij", a, b)

    def right(self) -> np.ndarray:
        return self.d + self.product()


def last_k_repeat_dropped(x: Numbers) -> np.ndarray:
    scales = {n: s[:, :-1] for n, s in x.scales.items()}
    return x.d + x.product(x.a[:, :-1], x.b[:, :-1], scales)


def first_k_repeat_for_all(x: Numbers) -> np.ndarray:
    return x.d + x.product(np.broadcast_to(x.a[:, :1], x.a.shape))


def rows_and_columns_exchanged(x: Numbers) -> np.ndarray:
    return x.d + x.product().swapaxes(-1, -2)


def chunks_of_k_exchanged(x: Numbers) -> np.ndarray:
    """A read with its two 16-byte chunks of K in each other's place, as a wrong LDO would."""
    half = x.a.shape[-1] // 2
    return x.d + x.product(np.concatenate([x.a[..., half:], x.a[..., :half]], -1))


def row_groups_exchanged(x: Numbers) -> np.ndarray:
    """A read with neighbouring groups of 8 rows in each other's place, as a wrong SDO would."""
    rows = np.arange(128) ^ 8
    return x.d + x.product(x.a[:, :, rows])


def chunks_and_row_groups_exchanged(x: Numbers) -> np.ndarray:
    """LDO and SDO in each other's place: A's chunk c of row group g is read from chunk g of group c."""
    a = x.a[0, 0].reshape(16, 8, 2, -1)
    swapped = a.copy()
    swapped[:2] = a[:2].swapaxes(0, 2)
    full = x.a.copy()
    full[0, 0] = swapped.reshape(x.a.shape[2:])
    return x.d + x.product(full)


MUTANTS: dict[str, Callable[[Numbers], np.ndarray]] = {
    "zeros": lambda x: np.zeros_like(x.d),
    "C": lambda x: x.d,
    "accum ignored": lambda x: x.product(),
    "C added twice": lambda x: 2 * x.d + x.product(),
    "rows and columns exchanged": rows_and_columns_exchanged,
    "D transposed": lambda x: x.right().swapaxes(-1, -2),
    "last K repeat dropped": last_k_repeat_dropped,
    "first K repeat for all": first_k_repeat_for_all,
    "A's sign": lambda x: x.d - x.product(),
    "A and B exchanged": lambda x: x.d + np.einsum("mkjr,nkir->mnij", x.a, x.b) if x.b.shape[0] == 1 else x.d,
    "chunks of K exchanged": chunks_of_k_exchanged,
    "row groups exchanged": row_groups_exchanged,
    "LDO and SDO exchanged": chunks_and_row_groups_exchanged,
    "one element": lambda x: x.right() + (np.arange(x.d.size) == 5).reshape(x.d.shape),
    "odd columns missing": lambda x: np.where(np.arange(x.d.shape[-1]) % 2, x.d, x.right()),
}
SCALE_MUTANTS: dict[str, Callable[[Numbers], np.ndarray]] = {
    "no scales": lambda x: x.d + x.product(scales={}),
    "SFA ignored": lambda x: x.d + x.product(scales={"sfb": x.scales["sfb"]}),
    "SFB ignored": lambda x: x.d + x.product(scales={"sfa": x.scales["sfa"]}),
    "scale slice 0": lambda x: (
        x.d + x.product(scales={n: np.broadcast_to(s[:, :1], s.shape) for n, s in x.scales.items()})
    ),
    "SFA for SFB": lambda x: x.d + x.product(scales={"sfa": x.scales["sfa"], "sfb": x.scales["sfa"]}),
    "scale rows (32, 4)": lambda x: (
        x.d
        + x.product(
            scales={
                n: s.reshape(*s.shape[:2], 4, 32, -1).swapaxes(2, 3).reshape(s.shape)
                for n, s in x.scales.items()
            }
        )
    ),
}


def refused(call: Call, wrong: np.ndarray) -> bool:
    """Whether the suite's comparison tells `mma`'s result from `wrong`, a viewed D."""
    wanted = np.asarray(wrong).astype(call["d"].dtype)  # D's leaf is in canonical order: view and leaf agree
    try:
        assert_same(tc.mma(**call), call["d"].with_leaf(wanted))
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("form", FORMS)
def test_the_suites_data_tells_every_mutant(form):
    call = legal_call(**FORMS[form])
    x = Numbers(call)
    assert not refused(call, x.right())
    mutants = MUTANTS | (SCALE_MUTANTS if x.scales else {})
    assert [name for name, mutant in mutants.items() if not refused(call, mutant(x))] == []


def test_an_ignored_mask_is_told():
    call = legal_call(N=16)
    mask = {"disable_output_lane": [0xF0, 0, 1, 0]}
    x = Numbers(call)
    lanes = np.isin(np.arange(128), [4, 5, 6, 7, 64])[:, None]
    assert not refused(call | mask, np.where(lanes, x.d, x.right()))
    assert refused(call | mask, x.right())
    assert refused(call | mask, np.where(lanes, x.right(), x.d))  # the other polarity
    assert refused(call | mask, np.where(np.roll(lanes, 1), x.d, x.right()))


def test_ignored_zero_columns_are_told():
    call = legal_call(N=64, ws=True)
    mask = tc.ZeroColumnMask(nonzero=True, first_spans=(1, 0, 0, 0), skip_span=1, use_span=2)
    x = Numbers(call)
    zeroed = np.arange(64) % 5 < 2
    assert not refused(call | {"zero_column_mask": mask}, np.where(zeroed, x.d, x.right()))
    assert refused(call | {"zero_column_mask": mask}, x.right())
    assert refused(call | {"zero_column_mask": mask}, np.where(zeroed, x.right(), x.d))
    assert refused(call | {"zero_column_mask": mask}, np.where(zeroed, 0, x.right()))


def test_ignored_switches_are_told():
    call = legal_call(N=16, repeats=(1, 1, 2))
    x = Numbers(call)
    assert refused(call | {"accum": False}, x.right())
    assert refused(call | {"pred": False}, x.right()) and not refused(call | {"pred": False}, x.d)
    assert refused(call | {"neg_a": True}, x.right())


def test_exchanged_ctas_and_halves_of_b_are_told():
    call = legal_call(M=256, N=32, group=2)
    right = np.asarray(tc.mma(**call).array)
    assert not refused(call, right)
    assert refused(call, right[::-1])
    assert refused(call, np.concatenate([right[..., 16:], right[..., :16]], -1))


def test_exchanged_strides_give_other_starts_and_numbers():
    """The Plan with LDO and SDO exchanged gives other bits: the check of layouts is not what saves the suite."""
    import jax

    call = legal_call(N=16)
    attributes = tc.plan(**call).attributes() | {"executor": "model"}

    def swapped(starts: np.ndarray) -> np.ndarray:
        words = starts.astype(np.uint64)
        ldo, sdo = words >> np.uint64(16) & np.uint64(0x3FFF), words >> np.uint64(32) & np.uint64(0x3FFF)
        rest = words & ~np.uint64(0x3FFF << 16 | 0x3FFF << 32)
        return (rest | sdo << np.uint64(16) | ldo << np.uint64(32)).astype(np.int64)

    def bits_of(attributes: dict[str, Any]) -> np.ndarray:
        d, a, b = (call[n].leaf for n in ("d", "a", "b"))
        foreign = jax.ffi.ffi_call("jax_tcgen05_mma", jax.ShapeDtypeStruct(d.shape, d.dtype))
        return np.asarray(jax.jit(lambda *x: foreign(*x, **attributes))(d, a, b, np.True_, np.True_))

    np.testing.assert_array_equal(bits_of(attributes), tc.mma(**call).leaf)
    # B's 16 rows are two groups: 256-byte groups and 128-byte chunks stay within its 512 bytes.
    wrong = bits_of(attributes | {"b_starts": swapped(attributes["b_starts"])})
    assert np.any(wrong != np.asarray(tc.mma(**call).leaf))
