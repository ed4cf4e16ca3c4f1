"""Single dot products against published bits, all through the public `mma` call.

`data/vectors.npz` is always tested, the whole sets where the shared data is present (shared_data.py). Case i of a
tile has its A in row i, its B in column i and its C in D[i, i]; only the diagonal of the result is looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import calls
import numpy as np
import pytest
import slow_numerics
from shared_data import shared_path

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
NAMES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "tf32",
    "f32": "float32",
    "s32": "int32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "e2m1": "float4_e2m1fn",
    "s8": "int8",
    "u8": "uint8",
    "ue8m0": "float8_e8m0fnu",
    "ue4m3": "float8_e4m3fn",
}
HARDWARE = ("f16_f16_f32", "f16_f16_f16", "bf16_bf16_f32", "tf32_tf32_f32")


class Cases(NamedTuple):
    """Dot products of one combination of formats; raw codes, SFA and SFB None without scales."""

    kind: str
    combo: str
    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    D: np.ndarray
    SFA: np.ndarray | None
    SFB: np.ndarray | None
    open_zero: np.ndarray

    @property
    def formats(self) -> list[str]:
        return self.combo.split("_")


def shared_cases(kind: str) -> list[Cases]:
    """All combinations of a kind, or of the hardware's outputs ("b200")."""
    out = []
    if kind == "b200":
        data = np.load(shared_path("vectors/b200_hardware.npz"))
        for combo in HARDWARE:
            a, _, d = combo.split("_")
            fields = [data[f"{a}_{d}_{field}"] for field in "ABCD"]
            never = np.zeros(len(fields[0]), bool)
            out.append(Cases("tf32" if a == "tf32" else "f16", combo, *fields, None, None, never))
        return out
    data = np.load(shared_path(f"vectors/{kind}.npz"))
    for combo in sorted({name.split(".")[0] for name in data.files}):
        fields = [data[f"{combo}.{field}"] for field in "ABCD"]
        scales = [data.get(f"{combo}.{field}") for field in ("SFA", "SFB")]
        out.append(Cases(kind, combo, *fields, *scales, data[f"{combo}.open_zero"] == 1))
    return out


def kept_cases(kind: str) -> list[Cases]:
    """The same from data/vectors.npz."""
    data = np.load(Path(__file__).parent / "data" / "vectors.npz")
    out = []
    for index, combo in enumerate(data[f"{kind}.combos"]):
        chosen = data[f"{kind}.combo"] == index
        name = HARDWARE_NAMES[str(combo)] if kind == "b200" else str(combo)
        real_kind = kind if kind != "b200" else "tf32" if name.startswith("tf32") else "f16"
        fields = [data[f"{kind}.{field}"][chosen] for field in "ABCD"]
        # Stacked with wider combinations, entries were repeated: K of f16, the scales of blocks of 16.
        fields[:2] = [x[:, :: x.shape[1] // calls.K[real_kind]] for x in fields[:2]]
        scales: list[np.ndarray | None] = [None, None]
        if f"{kind}.SFA" in data.files:
            step = 2 if kind == "mxf4nvf4" and name.endswith("b32") else 1
            scales = [data[f"{kind}.{field}"][chosen][:, ::step] for field in ("SFA", "SFB")]
        open_zero = data[f"{kind}.open_zero"][chosen] == 1 if kind != "b200" else np.zeros(chosen.sum(), bool)
        out.append(Cases(real_kind, name, *fields, *scales, open_zero))
    return out


HARDWARE_NAMES = {f"{c.split('_')[0]}_{c.split('_')[2]}": c for c in HARDWARE}


def form_of(cases: Cases, **changes: object) -> calls.Form:
    """A form with a square tile for these formats."""
    a, b, d, *scale = cases.formats
    size = 128 if cases.SFA is not None else 64
    how: dict = {
        "kind": cases.kind,
        "M": size,
        "N": size,
        "a_format": NAMES[a],
        "b_format": NAMES[b],
        "d_format": NAMES[d],
    }
    if scale:
        spelled = "block16" if scale[1] == "b16" else "block32"
        how |= {"scale": spelled, "scale_format": NAMES[scale[0]]}
    return calls.Form(**{**how, **changes})


def mismatches(cases: Cases, **changes: object) -> int:
    """Cases whose bits `mma` does not return; a zero whose sign is open may have either."""
    form = form_of(cases, **changes)
    size = min(form.M, form.N)
    tiles = -(-len(cases.D) // size)
    form = form_of(cases, batch=(tiles,), **changes)
    i = np.arange(size)
    arrays = {}
    for name in form.operands:
        codes = {"a": cases.A, "b": cases.B, "d": cases.C, "sfa": cases.SFA, "sfb": cases.SFB}[name]
        padded = np.resize(codes, (tiles * size, *codes.shape[1:])).reshape(tiles, size, *codes.shape[1:])
        # One CTA group of rows after the other: (2, batch, ...) as the prefix wants, SFB and columns of D whole.
        whole = np.zeros((tiles, form.N if name in ("b", "sfb") else form.M, *codes.shape[1:]), codes.dtype)
        if name == "d":
            whole = np.zeros((tiles, form.M, form.N), codes.dtype)
            whole[:, i, i] = padded
        else:
            whole[:, :size] = padded
        arrays[name] = _canonical(form, name, whole).view(form.dtype(name))
    result = np.asarray(calls.place(form, arrays, accum=True).mma().array)
    result = np.moveaxis(result, 0, 1).reshape(tiles, form.M, form.N) if form.group == 2 else result[:, 0, 0]
    got = result[:, i, i].reshape(-1)[: len(cases.D)].view(f"u{result.dtype.itemsize}")
    wanted = cases.D.astype(got.dtype)
    sign = got.dtype.type(1 << (8 * got.dtype.itemsize - 1))
    either = cases.open_zero & ((got & ~sign) == 0) & ((wanted & ~sign) == 0)
    return int(((got != wanted) & ~either).sum())


def _canonical(form: calls.Form, name: str, whole: np.ndarray) -> np.ndarray:
    """(tiles, rows of the group, ...) -> prefix and canonical shape, A copied to every bank."""
    unsigned = f"u{form.dtype(name).itemsize}"
    whole = whole.astype(unsigned)
    if form.group == 2 and name == "sfb":
        whole = np.stack([whole, whole])
    elif form.group == 2:
        whole = np.moveaxis(whole.reshape(len(whole), 2, whole.shape[1] // 2, *whole.shape[2:]), 1, 0)
    shape = (*form.prefix(name), *form.shape(name))
    if name == "a" and form.banks > 1:
        whole = np.repeat(whole[..., None, :, :], form.banks, axis=-3)
    return np.ascontiguousarray(whole.reshape(shape))


def _assert_all(cases: list[Cases], **changes: object) -> None:
    wrong = {c.combo: n for c in cases if (n := mismatches(c, **changes))}
    assert wrong == {}, f"mismatches of {sum(len(c.D) for c in cases)} cases"


@pytest.mark.parametrize("kind", [*KINDS, "b200"])
def test_kept_vectors(kind: str) -> None:
    cases = kept_cases(kind)
    assert len(cases) >= 1 and all(len(c.D) >= 50 for c in cases)
    _assert_all(cases)


@pytest.mark.parametrize("kind", [*KINDS, "b200"])
def test_all_vectors(kind: str) -> None:
    _assert_all(shared_cases(kind))


WS = {"ws": True, "M": 32, "N": 64, "a_swizzle": None}
PAIR = {"group": 2, "M": 128, "N": 128}
IN_TMEM = {"a_swizzle": None}


@pytest.mark.parametrize(
    ("kind", "combos", "changes"),
    [
        ("f16", ("f16_f16_f32", "f16_f16_f16", "bf16_bf16_f32"), WS),
        ("f16", ("f16_f16_f32", "f16_f16_f16", "bf16_bf16_f32"), PAIR),
        ("tf32", ("tf32_tf32_f32",), WS),
        ("tf32", ("tf32_tf32_f32",), IN_TMEM),
        ("f8f6f4", ("e5m2_e3m2_f32", "e2m1_e4m3_f16", "e2m3_e2m1_f32"), WS),
        ("f8f6f4", ("e3m2_e5m2_f32", "e4m3_e2m3_f16"), PAIR),
        ("i8", ("s8_u8_s32", "u8_u8_s32"), WS),
        (
            "mxf8f6f4",
            ("e3m2_e4m3_f32_ue8m0_b32", "e5m2_e2m1_f32_ue8m0_b32"),
            {"group": 2, "M": 256, "N": 256},
        ),
        ("mxf4", ("e2m1_e2m1_f32_ue8m0_b32",), IN_TMEM),
        (
            "mxf4nvf4",
            ("e2m1_e2m1_f32_ue4m3_b16", "e2m1_e2m1_f32_ue8m0_b32"),
            {"group": 2, "M": 256, "N": 256},
        ),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, (tuple, dict)) else value,
)
def test_other_forms_have_the_same_arithmetic(kind: str, combos: tuple[str, ...], changes: dict) -> None:
    """By inference only (no hardware result is public): `.ws`, pairs and A in TMEM compute as the dense form."""
    chosen = [c for c in kept_cases(kind) if c.combo in combos]
    assert len(chosen) == len(combos)
    _assert_all(chosen, **changes)


@pytest.mark.parametrize("kind", [*KINDS, "b200"])
def test_second_implementation(kind: str) -> None:
    """The tests' own slow arithmetic gives the same bits, so comparisons with it mean something."""
    for cases in kept_cases(kind):
        got = _slow_dots(cases)
        zero = cases.open_zero & (got & 0x7FFFFFFF == 0)
        assert ((got == cases.D) | zero).all(), cases.combo


def _slow_dots(cases: Cases) -> np.ndarray:
    a_format, b_format, result = cases.formats[:3]
    if cases.kind == "i8":
        codes = [(cases.A, a_format), (cases.B, b_format)]
        values = [(x.view(np.int8) if form == "s8" else x).astype(np.int64) for x, form in codes]
        return slow_numerics.integer(*values, cases.C, False)
    a, b = slow_numerics.decode(cases.A, a_format), slow_numerics.decode(cases.B, b_format)
    if cases.SFA is None:
        return slow_numerics.fused(a, b, cases.C, result)
    sfa, sfb = (slow_numerics.decode_scale(x, cases.formats[3]) for x in (cases.SFA, cases.SFB))
    if cases.kind == "mxf8f6f4":
        return slow_numerics.fused(a, b, cases.C, result, (sfa.at((..., 0)), sfb.at((..., 0))))
    return slow_numerics.grouped(a, b, cases.C, sfa, sfb)


def test_a_wrong_bit_is_seen() -> None:
    """The comparison itself: one changed bit of D is one mismatch, a sign of an open zero is none."""
    cases = kept_cases("f16")[0]
    changed = cases.D.copy()
    changed[7] ^= 1
    assert mismatches(cases._replace(D=changed)) == 1
    zeros = cases._replace(**{field: np.zeros_like(getattr(cases, field)) for field in "ABC"})
    zeros = zeros._replace(D=np.full_like(cases.D, 1 << 31))
    assert mismatches(zeros._replace(open_zero=np.ones(len(cases.D), bool))) == 0
    assert mismatches(zeros._replace(open_zero=np.zeros(len(cases.D), bool))) == len(cases.D)
