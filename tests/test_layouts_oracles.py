"""Layouts against vectors taken by calling another implementation (oracles of the shared data).

Where that implementation is known to be wrong or narrower, the rule stands here and the difference is asserted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from shared_data import shared_json

import jax_tcgen05.layouts as tcl
from jax_tcgen05.layouts import Axis, R, S, Swizzle, TCol, TileLayout, TLane


def digest(offsets: np.ndarray) -> str:
    """First 32 hex digits of SHA-256 over the offsets, row-major, as little-endian uint32."""
    return hashlib.sha256(offsets.astype("<u4").tobytes()).hexdigest()[:32]


def written(description: dict[str, Any]) -> TileLayout:
    """The layout that the oracle describes, one axis per iterator, written with S, R, offsets."""
    extents = tuple(extent for extent, _, _ in description["shard"])
    strides = tuple(
        stride if name == "m" else stride @ Axis(name) for _, stride, name in description["shard"]
    )
    layout = S[extents:strides]
    for extent, stride, name in description["replica"]:
        layout = layout + R[extent : stride @ Axis(name)]
    for name, offset in description["offset"].items():
        layout = layout + (offset @ Axis(name))
    return TileLayout(layout)


def linear(description: dict[str, Any], shape: list[int]) -> TileLayout:
    """The same with the logical shape of a tile."""
    layout = written(description.get("tile", description)).view(-1).view(*shape)
    p, s, a, inner = description.get("compose") or (0, 0, 0, True)
    return layout.compose(Swizzle(p, s, a, inner))


def coordinates(samples: list[Any]) -> tuple[np.ndarray, ...]:
    return tuple(np.array([sample[0] for sample in samples]).T)


def test_mma_shared_layout() -> None:
    seen: Counter[str] = Counter()
    for case in shared_json("oracles/mma_shared_layout.json")["cases"]:
        dtype, mode, shape = case["dtype"], case["swizzle"], tuple(case["shape"])
        label = f"{dtype} mode {mode} {shape}"
        if dtype.startswith("float6_"):
            # Rule: 6-bit types are no containers here; the oracle's results for them are not usable.
            with pytest.raises(ValueError, match=r"float6_e2m3fn.*uint8"):
                tcl.mma_shared_layout(dtype, mode, shape)
            seen["6-bit"] += 1
        elif mode == 4:
            # Rule: the oracle refuses mode 4 always; here 32-bit containers have it.
            assert "error" in case
            if dtype == "float32" and shape[-1] % 32 == 0:
                assert tcl.mma_shared_layout(dtype, mode, shape).shape == shape
                seen["mode 4"] += 1
            else:
                with pytest.raises(ValueError, match=r"32-bit|multiple of 32"):
                    tcl.mma_shared_layout(dtype, mode, shape)
        elif "error" in case:
            # The oracle's "Divide by zero": fewer columns than the span.
            with pytest.raises(ValueError, match=f"got {shape[-1]} columns of {dtype}"):
                tcl.mma_shared_layout(dtype, mode, shape)
            seen["error"] += 1
        else:
            layout = tcl.mma_shared_layout(dtype, mode, shape)
            assert layout.shape == shape, label
            image = layout.image()["m"]
            assert image.dtype == np.int64
            where = coordinates(case["samples"])
            assert image[where].tolist() == [offset for _, offset in case["samples"]], label
            if "all" in case:
                assert image.ravel().tolist() == case["all"], label
            if "sha256_u32le_prefix" in case:
                assert digest(image) == case["sha256_u32le_prefix"], label
                seen["hash"] += 1
            assert layout == linear(case["layout"], case["shape"]), label
            seen["accepted"] += 1
    assert seen == {"6-bit": 54, "mode 4": 9, "error": 27, "accepted": 369, "hash": 212}


def test_tmem_operand_and_datapath_layouts() -> None:
    seen: Counter[str] = Counter()
    for case in shared_json("oracles/tmem_layouts.json")["cases"]:
        seen[check_tmem(case)] += 1
    assert seen["group argument"] == 15 and seen["sparse"] == 3
    assert seen["layout F, A"] == 6 and seen["M=32 .ws"] > 0
    assert seen["equal"] == 126 - 6 + 18
    assert seen["refused"] > 600


def make_tmem(case: dict[str, Any]) -> TileLayout:
    if "datapath" in case:
        return tcl.tmem_datapath_layout(case["datapath"], *case["shape"], sub_slab=case["sub_slab"])
    return tcl.tmem_mma_operand_layout(
        case["operand"],
        tuple(case["shape"]),
        case["dtype"],
        M=case["M"],
        cta_group=case["cta_group"],
        ws=case["ws"],
    )


def check_tmem(case: dict[str, Any]) -> str:
    """Compares one case; the rule that it falls under."""
    if "group" in case:
        return "group argument"  # rule: it takes an extra argument here not offered
    if "sparse" in case:
        return "sparse"  # rule: sparse A is not offered, and refused there too
    label = {key: value for key, value in case.items() if key not in ("samples", "layout")}
    if case.get("M") == 32 and case["ws"] and case["cta_group"] == 1:
        # Rule: layout G's operands are missing in the oracle.
        assert "error" in case
        banks = case["operand"] == "A" and case["shape"][:-1] != [4, 32]
        if banks or (case["operand"] == "D" and len(case["shape"]) > 2):
            with pytest.raises(ValueError, match="shape: got"):
                make_tmem(case)
        else:
            assert make_tmem(case).shape == tuple(case["shape"])
        return "M=32 .ws"
    if "error" in case:
        with pytest.raises(ValueError, match=r": got "):
            make_tmem(case)
        return "refused"
    layout = make_tmem(case)
    image = layout.image()
    where = coordinates(case["samples"])
    lanes = image["TLane"][where].tolist() == [lane for _, lane, _ in case["samples"]]
    assert image["TCol"][where].tolist() == [column for _, _, column in case["samples"]], label
    assert digest(image["TCol"]) == case["sha256_col"], label
    expected = linear(case["layout"], case["shape"])
    if case.get("operand") == "A" and (case["M"], case["cta_group"], case["ws"]) == (64, 1, False):
        # Rule OQ3: with layout F, A lies on the lanes of D; the oracle has it on lanes 0..63.
        assert not lanes and digest(image["TLane"]) != case["sha256_lane"] and layout != expected, label
        rows = np.arange(64)
        assert (image["TLane"] == (32 * (rows // 16) + rows % 16)[:, None]).all()
        return "layout F, A"
    assert lanes and digest(image["TLane"]) == case["sha256_lane"], label
    assert layout == expected, label
    used = np.unique(image["TLane"])  # without replicas
    assert used.size == case["lanes_used"] and [used.min(), used.max()] == case["lane_range"], label
    assert [image["TCol"].min(), image["TCol"].max()] == case["col_range"], label
    return "equal"


def test_generic_layouts() -> None:
    cases = shared_json("oracles/generic_layouts.json")["tile"]
    assert len(cases) == 220
    for case in cases:
        layout = written(case["layout"])
        flat = layout.view(-1)
        assert flat.shape == (case["size"],)
        image = flat.image()
        given = case["apply_linear"]  # the first 64 at most
        for name in {name for entry in given for name in entry}:
            assert image[name][: len(given)].tolist() == [entry[name] for entry in given], case["layout"]
        for index in range(0, len(given), 7):
            position = flat(index)  # an axis that only a replica has reads 0 here
            assert {name: position.pop(name) for name in given[index]} == given[index]
            assert not any(position.values())
        span = layout.span()  # there without the axes that only a replica has
        assert {name: span[name] for name in case["span"]} == case["span"], case["layout"]
        if "canonical" in case:  # 13 cases mix axes that only the oracle knows to be in conflict
            assert flat == written(case["canonical"]).view(-1)
            assert canonical_shard(flat) == without_idle_axes(case["canonical"]["shard"]), case["layout"]
            replicas = [[digit.extent, *digit.strides[0][::-1]] for digit in flat.canonical().replicas]
            assert replicas == case["canonical"]["replica"]
            offset = {name: value for name, value in flat.canonical().origin.items() if value}
            assert offset == {name: value for name, value in case["canonical"]["offset"].items() if value}


def canonical_shard(flat: TileLayout) -> list[list[Any]]:
    """Canonical digits in the oracle's spelling."""
    digits = flat.canonical().axes[0].digits
    return [[digit.extent, *(digit.strides[0][::-1] if digit.strides else (0, "m"))] for digit in digits]


def without_idle_axes(shard: list[Any]) -> list[Any]:
    """The oracle's iterators, where a stride of 0 keeps its axis (so zeros of two axes do not fuse) and a lone
    unit stays."""
    out: list[Any] = []
    for extent, stride, name in shard:
        if stride == 0 and out and out[-1][1] == 0:
            out[-1][0] *= extent
        elif extent > 1:
            out.append([extent, stride, name if stride else "m"])
    return out


def test_composed_swizzles() -> None:
    cases = shared_json("oracles/generic_layouts.json")["compose"]
    assert len(cases) == 120
    for case in cases:
        p, s, a, inner = case["params"]
        if "error" in case:
            with pytest.raises(ValueError, match=f"got p={p}, s={s}, a={a}"):
                Swizzle(p, s, a, inner)
            continue
        layout = S[(case["n"],) : (1,)].compose(Swizzle(p, s, a, inner))
        image = layout.image()["m"]
        assert image[: len(case["head"])].tolist() == case["head"], case["params"]
        assert digest(image) == case["sha256_u32le_prefix"], case["params"]
        assert [layout(index)["m"] for index in range(64)] == case["head"]


def test_axes_are_those_of_the_operands() -> None:
    assert (2 @ TLane).axis == "TLane" and (np.int64(3) @ TCol).value == 3
