"""Other projects' kernels for this chip on the virtual SM: each must give the result that its makers promise.

The expectations are written here, from the descriptions in the launch files and the layouts of ptx_contract 7 and 8,
in NumPy. Data are small integers (and powers of two as scales), so every sum is exact whatever its order.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from shared_data import SHARED

from jax_tcgen05 import vsm

Buffers = dict[str, np.ndarray]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def cases(folder: str) -> list[Any]:
    if SHARED is None or not (SHARED / "peers").is_dir():
        return [pytest.param(None, marks=pytest.mark.skip("no shared data with peers/"))]
    paths = sorted((SHARED / "peers" / folder).glob("*.launch.json"))
    return [pytest.param(p, id=p.name.removesuffix(".launch.json")) for p in paths]


def integers(rng: np.random.Generator, buffer: np.ndarray, low: int = -4, high: int = 4) -> None:
    """Fills a buffer of any dtype with small integers."""
    buffer[...] = rng.integers(low, high + 1, buffer.shape).astype(np.float32).astype(buffer.dtype)


def random_bits(rng: np.random.Generator, buffer: np.ndarray) -> None:
    buffer.view(np.uint8)[...] = rng.integers(0, 256, buffer.view(np.uint8).shape)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def nibbles(array: np.ndarray) -> np.ndarray:
    """FP4 values of packed bytes, low nibble first along the last axis."""
    codes = np.stack([array & 15, array >> 4], -1).reshape(*array.shape[:-1], -1)
    return E2M1[codes]


def same(got: np.ndarray, want: np.ndarray) -> None:
    got, want = got.reshape(want.shape), want.astype(got.dtype)
    wrong = np.argwhere(got.view(f"u{got.itemsize}") != want.view(f"u{got.itemsize}"))
    assert not len(wrong), (
        f"{len(wrong)} of {got.size} differ, first at {wrong[0]}: {got[tuple(wrong[0])]} != {want[tuple(wrong[0])]}"
    )


def run(path: Path, buffers: Buffers, case: vsm.Case | None = None) -> vsm.Result:
    return (case or vsm.Case.load(path)).launch(buffers, threads=1)


# ---- tvm: raw images of tensor memory in and out ----


class Tile:
    """Where one instruction's D lies (ptx_contract 7.1) and which lanes feed it when A is in tensor memory (7.2)."""

    def __init__(self, p: dict[str, Any]) -> None:
        self.rows = p["M"] // p["g"]
        folded = (p["ws"] and p["M"] == 64) or (p["g"] == 2 and p["M"] == 128)
        self.banks = 2 if folded else 1
        self.scattered = p["g"] == 1 and p["M"] == 64 and not p["ws"]
        self.columns = p["N"] // self.banks

    def lanes(self, bank: int) -> np.ndarray:
        i = np.arange(self.rows)
        return 32 * (i // 16) + i % 16 if self.scattered else i + 64 * bank


def tvm_operand(p: dict[str, Any], name: str, buffers: Buffers) -> np.ndarray:
    data = buffers[name]
    if p["kind"].startswith("mxf4"):
        return nibbles(data)
    return wide(data) * (-1 if p[f"neg_{name.lower()}"] else 1)


def tvm_scales(p: dict[str, Any], words: np.ndarray, rows: int) -> np.ndarray:
    """Scale of (row, k): words lie at (row % 32, row // 32), byte by byte along K (ptx_contract 8.1)."""
    codes = words[0].view(np.uint8).reshape(32, -1, 4).transpose(1, 0, 2).reshape(-1, 4)[:rows]
    dtype = getattr(ml_dtypes, p["sf_dt"])
    used = p["vec"] * p["kr"]
    return np.repeat(wide(codes[:, :used].view(dtype)), p["K"] // p["vec"], axis=1)


def tvm_expected(p: dict[str, Any], buffers: Buffers, accum: bool) -> np.ndarray:
    tile, out = Tile(p), buffers["C"].copy()
    b = tvm_operand(p, "B", buffers)
    in_tmem = p["a_src"] == "tmem"
    a = None if in_tmem else tvm_operand(p, "A", buffers)
    if p["vec"]:
        assert a is not None
        a = a * tvm_scales(p, buffers["SFA"], len(a))
        b = b * tvm_scales(p, buffers["SFB"], len(b))
    image = wide(buffers["A"].view(np.float16)) if in_tmem else None
    cell = {"float32": np.float32, "int32": np.int32, "float16": np.float16}[p["d_dt"]]
    for m in range(p["mr"]):
        for n in range(p["nr"]):
            for cta in range(p["g"]):
                for bank in range(tile.banks):
                    lanes = tile.lanes(bank)
                    first = m * p["M"] + cta * tile.rows
                    left = image[cta, lanes] if image is not None else a[first : first + tile.rows]
                    columns = n * p["N"] + bank * tile.columns + np.arange(tile.columns)
                    product = left @ b[columns].T
                    at = (m * p["nr"] + n) * tile.columns
                    cells = out[cta, lanes[:, None], at + np.arange(tile.columns)]
                    if accum:
                        product = product + wide(cells.view(cell).reshape(product.shape))
                    # an f16 D fills the word's upper half with zeros
                    raw = np.ascontiguousarray(product.astype(cell))
                    raw = raw.view(np.uint16 if cell is np.float16 else np.uint32).astype(np.uint32)
                    keep = np.zeros(tile.rows, bool)
                    if p["masks"]:
                        keep = np.array([p["masks"][lane // 32] >> (lane % 32) & 1 for lane in lanes], bool)
                    out[cta, lanes[:, None], at + np.arange(tile.columns)] = np.where(
                        keep[:, None], cells, raw
                    )
    return out


def tvm_data(p: dict[str, Any], buffers: Buffers) -> None:
    rng = np.random.default_rng(7)
    for name in "AB":
        if p["kind"].startswith("mxf4"):
            random_bits(rng, buffers[name])
        elif buffers[name].dtype == np.uint32:
            integers(rng, buffers[name].view(np.float16))
        else:
            integers(rng, buffers[name])
    if p["d_dt"] == "int32":
        integers(rng, buffers["C"].view(np.int32), -100, 100)
    else:
        integers(rng, buffers["C"].view(np.float32), -100, 100)
    for name in ("SFA", "SFB"):
        if name in buffers:
            codes = buffers[name].view(np.uint8)
            low, high = (124, 131) if p["sf_dt"] == "float8_e8m0fnu" else (0x30, 0x48)
            codes[...] = rng.integers(low, high, codes.shape)
    random_bits(rng, buffers["Out"])


@pytest.mark.parametrize("path", cases("tvm"))
def test_tvm(path: Path) -> None:
    case = vsm.Case.load(path)
    p = case.description["problem"]
    buffers = case.zeros()
    tvm_data(p, buffers)
    runtime = [q for q in case.description["params"] if q["kind"] == "i32"]
    for flag in (0, 1) if runtime else (1,):
        description = copy.deepcopy(case.description)
        for q in description["params"]:
            if q["kind"] == "i32":
                q["value"] = flag
        result = run(path, buffers, vsm.Case(path, description))
        accum = p["accum"] == "True" or (p["accum"] == "acc != 0" and flag == 1)
        want = tvm_expected(p, buffers, accum)
        if p["pred"] and not flag:
            want = buffers["C"]
        same(buffers["Out"], want)
        steps = p["mr"] * p["nr"] * p["kr"] if not p["pred"] or flag else 0
        assert result.macs == steps * p["M"] * p["N"] * p["K"]
