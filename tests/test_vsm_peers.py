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


@pytest.fixture(params=["fair", "late"])
def schedule(request: pytest.FixtureRequest) -> str:
    """Asynchronous work takes effect after a while, and as late as possible."""
    return request.param


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
def test_tvm(path: Path, schedule: str) -> None:
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
        result = vsm.Case(path, description).launch(buffers, threads=1, schedule=schedule)
        accum = p["accum"] == "True" or (p["accum"] == "acc != 0" and flag == 1)
        want = tvm_expected(p, buffers, accum)
        if p["pred"] and not flag:
            want = buffers["C"]
        same(buffers["Out"], want)
        steps = p["mr"] * p["nr"] * p["kr"] if not p["pred"] or flag else 0
        assert result.macs == steps * p["M"] * p["N"] * p["K"]


# ---- the other makers: products, copies and a reduction over arrays in global memory ----


def f16_safe(rng: np.random.Generator, buffer: np.ndarray) -> None:
    """Integers whose sums of 256 products fit f16 exactly: at most 256 * 2 * 2 < 2048."""
    integers(rng, buffer, -2, 2)


def powers(rng: np.random.Generator, buffer: np.ndarray) -> None:
    """Scale factors 1/4 to 4 as UE8M0 codes, whatever the buffer calls its bytes."""
    buffer.view(np.uint8)[...] = rng.integers(125, 130, buffer.shape)


def ue4m3(rng: np.random.Generator, buffer: np.ndarray) -> None:
    """Scale factors of E4M3 from 1/2 to 4, fractions of quarters and eighths among them."""
    buffer.view(np.uint8)[...] = rng.integers(0x30, 0x48, buffer.shape)


def block_scales(buffer: np.ndarray, dtype: Any, rows: int, vec: int) -> np.ndarray:
    """Scales in blocks of 128 rows and 4 steps of K (32 lines of 16 bytes), spread over the K that they cover."""
    blocks = buffer.view(np.uint8).reshape(rows // 128, -1, 32, 4, 4)
    codes = blocks.transpose(0, 3, 2, 1, 4).reshape(rows, -1)  # row = 32 * quarter + line
    return np.repeat(wide(codes.view(dtype)), vec, axis=1)


def row_scales(buffer: np.ndarray, dtype: Any, vec: int) -> np.ndarray:
    return np.repeat(wide(buffer.view(np.uint8).view(dtype)), vec, axis=1)


def gluon_product(case: vsm.Case, b: Buffers) -> Buffers:
    p = case.description["problem"]
    left = wide(b["A"]).T if p["A_T"] else wide(b["A"])
    right = wide(b["B"]).T if p["B_T"] else wide(b["B"])
    if case.path.name.startswith("mma_f16_nt_sw0."):
        # The maker's own inconsistency: rows 4-7 of every eight are read with their 16-byte halves exchanged.
        k = np.arange(p["K"])
        left = np.stack([row[k ^ 8] if r % 8 >= 4 else row for r, row in enumerate(left)])
        right = np.stack([row[k ^ 8] if r % 8 >= 4 else row for r, row in enumerate(right.T)]).T
    return {"D": left @ right + wide(b["C"])}


def gluon_pair_scaled(case: vsm.Case, b: Buffers) -> Buffers:
    e8m0 = ml_dtypes.float8_e8m0fnu
    left = wide(b["A"]) * block_scales(b["SA"], e8m0, 256, 32)
    return {"C": left @ (wide(b["B"]) * block_scales(b["SB"], e8m0, 128, 32)).T}


def triton_scaled(case: vsm.Case, b: Buffers) -> Buffers:
    constants = case.description["constexprs"]
    dtype = ml_dtypes.float8_e8m0fnu if constants["V"] == "32" else ml_dtypes.float8_e4m3fn
    vec = int(constants["V"])
    a, c = (nibbles(b[x]) if constants[f"P{x}"] == "2" else wide(b[x]) for x in "AB")
    return {"C": (a * row_scales(b["SA"], dtype, vec)) @ (c * row_scales(b["SB"], dtype, vec)).T}


def mosaic_product(case: vsm.Case, b: Buffers) -> Buffers:
    left = wide(b["in0"]).T if case.path.name.startswith("mma_f16_at.") else wide(b["in0"])
    return {"out0": left @ wide(b["in1"])}


def mosaic_scaled(case: vsm.Case, b: Buffers) -> Buffers:
    fp4 = "nvfp4" in case.path.name
    scale, vec = (ml_dtypes.float8_e4m3fn, 16) if fp4 else (ml_dtypes.float8_e8m0fnu, 32)
    a, c = (nibbles(b[x]) if fp4 else wide(b[x]) for x in ("in0", "in1"))
    a, c = a * block_scales(b["in2"], scale, 128, vec), c * block_scales(b["in3"], scale, 128, vec)
    return {"out0": a @ c.T}


def cutlass_product(case: vsm.Case, b: Buffers) -> Buffers:
    p = case.description["problem"]
    a, c = (b[x].view(np.float16).reshape(-1, p["K"]) for x in "AB")
    return {"D": (wide(a) @ wide(c).T).astype(np.float32).view(np.uint8)}


def cutlass_data(rng: np.random.Generator, b: Buffers) -> None:
    for name, dtype in (("A", np.float16), ("B", np.float16), ("C", np.float32)):
        integers(rng, b[name].view(dtype))


def reduction(case: vsm.Case, b: Buffers) -> Buffers:
    return {"O": wide(b["O"]) + wide(b["I"]).reshape(4, 64, 32).sum(0)}


def copied(source: str, target: str) -> Any:
    return lambda case, b: {target: b[source]}


#: maker/beginning of the name -> (how buffers are filled, others are small integers; expected outputs). The first that
#: fits. Sums are exact in every order of addition: integers (or multiples of 2**-8) far below 2**24 in f32.
EXPECTATIONS: dict[str, tuple[dict[str, Any], Any]] = {
    "gluon/cp_": ({"I": random_bits}, copied("I", "O")),
    "gluon/rt_": ({"I_PTR": random_bits}, copied("I_PTR", "O_PTR")),
    "gluon/tma_reduce": ({}, reduction),
    "gluon/mma2_f16": (
        {"A": f16_safe, "B": f16_safe},
        lambda case, b: {"C": wide(b["A"]) @ wide(b["B"])},
    ),
    "gluon/mma2_mxfp8": (
        {"A": f16_safe, "B": f16_safe, "SA": powers, "SB": powers},
        gluon_pair_scaled,
    ),
    "gluon/mma_": ({}, gluon_product),
    "triton/tma_": (
        {"A": f16_safe, "B": f16_safe},
        lambda case, b: {"C": wide(b["A"]) @ wide(b["B"]).T},
    ),
    "triton/dot_": (
        {},
        lambda case, b: {
            "C": wide(b["A"]) @ (wide(b["B"]).T if case.description["problem"]["tb"] else wide(b["B"]))
        },
    ),
    "triton/scaled_mxfp8": ({"SA": powers, "SB": powers}, triton_scaled),
    "triton/scaled_nvfp4": ({"A": random_bits, "B": random_bits, "SA": ue4m3, "SB": ue4m3}, triton_scaled),
    "mosaic/scaled_mxfp8": ({"in2": powers, "in3": powers}, mosaic_scaled),
    "mosaic/scaled_nvfp4": (
        {"in0": random_bits, "in1": random_bits, "in2": ue4m3, "in3": ue4m3},
        mosaic_scaled,
    ),
    "mosaic/blackwell": ({"in0": f16_safe, "in1": f16_safe}, mosaic_product),
    "mosaic/": ({}, mosaic_product),
}


def check_case(path: Path, schedule: str) -> None:
    case = vsm.Case.load(path)
    buffers, rng = case.zeros(), np.random.default_rng(11)
    if path.parent.name == "cutlass":
        cutlass_data(rng, buffers)
        expected = cutlass_product
    else:
        name = f"{path.parent.name}/{path.name}"
        filling, expected = next(v for k, v in EXPECTATIONS.items() if name.startswith(k))
        for buffer, values in buffers.items():
            filling.get(buffer, integers)(rng, values)
    want = expected(case, {name: values.copy() for name, values in buffers.items()})
    for name, values in want.items():  # the kernel must do something for it
        assert values.astype(buffers[name].dtype).tobytes() != buffers[name].tobytes()
    case.launch(buffers, threads=1, schedule=schedule)
    for name, values in want.items():
        same(buffers[name], values)


@pytest.mark.parametrize("path", cases("gluon"))
def test_gluon(path: Path, schedule: str) -> None:
    check_case(path, schedule)


@pytest.mark.parametrize("path", cases("triton"))
def test_triton(path: Path, schedule: str) -> None:
    check_case(path, schedule)


@pytest.mark.parametrize("path", cases("mosaic"))
def test_mosaic(path: Path, schedule: str) -> None:
    check_case(path, schedule)


@pytest.mark.parametrize("path", cases("cutlass"))
def test_cutlass(path: Path, schedule: str) -> None:
    check_case(path, schedule)
