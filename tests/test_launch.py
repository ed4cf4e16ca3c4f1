"""The launcher: copies of operands, parameters, grids, choice of kernel and errors, on a driver that only records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_tcgen05 as tc
from jax_tcgen05 import _core as core
from jax_tcgen05.plan import Digit, Placement, Plan

STREAM = 0x5700


# Representative calls, as plans. An array is only a shape here.


def array(shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jnp.zeros(shape, dtype)


def k_major(array_: jax.Array, container: str, swizzle: int, k: int) -> tc.PlacedOperand:
    rows, columns = array_.shape[-2:]
    placed = tc.shared(array_, tc.mma_shared_layout(container, swizzle, (rows, columns)))
    return placed.rearrange("r (kr k) -> kr r k", k=k).view(1, columns // k, rows, k)


def mn_major(array_: jax.Array, container: str, swizzle: int, k: int) -> tc.PlacedOperand:
    columns, rows = array_.shape[-2:]
    placed = tc.shared(array_, tc.mma_shared_layout(container, swizzle, (columns, rows)))
    return placed.rearrange("(kr k) r -> kr r k", k=k).view(1, columns // k, rows, k)


def accumulator(prefix: tuple[int, ...], m: int, n: int, dtype: str, group: int = 1, ws: bool = False) -> Any:
    rows = m // group
    layout = tc.tmem_mma_operand_layout("D", (rows, n), dtype, M=m, cta_group=group, ws=ws)
    return tc.tmem_empty((*prefix, rows, n), dtype, layout).view(1, 1, rows, n)


def scales(rows: int, k_repeat: int, vec: int, dtype: Any) -> tc.PlacedOperand:
    layout = tc.scale_factor_layout((1, k_repeat, rows, vec), dtype)
    return tc.tmem(array((1, k_repeat, rows, vec), dtype), layout)


def f16_plan(prefix: tuple[int, ...] = (), **options: Any) -> Plan:
    return tc.plan(
        "tcgen05.mma.cta_group::1.kind::f16",
        accumulator(prefix, 128, 64, "float32"),
        k_major(array((*prefix, 128, 64), jnp.float16), "float16", 3, 16),
        k_major(array((*prefix, 64, 64), jnp.float16), "float16", 3, 16),
        instruction_shape=(128, 64, 16),
        a_descriptor=(16, 1024, 3),
        b_descriptor=(16, 1024, 3),
        **options,
    )


def mn_plan() -> Plan:
    return tc.plan(
        "tcgen05.mma.cta_group::1.kind::f16",
        accumulator((), 128, 64, "float32"),
        mn_major(array((64, 128), jnp.float16), "float16", 3, 16),
        k_major(array((64, 64), jnp.float16), "float16", 0, 16),
        instruction_shape=(128, 64, 16),
        a_descriptor=(8192, 1024, 3),
        a_major="mn",
        b_descriptor=(1024, 128, 0),
    )


def half_plan() -> Plan:
    return tc.plan(
        "tcgen05.mma.cta_group::1.kind::f16",
        accumulator((), 64, 32, "float16"),
        k_major(array((64, 16), jnp.float16), "float16", 1, 16),
        k_major(array((32, 16), jnp.float16), "float16", 1, 16),
        instruction_shape=(64, 32, 16),
        a_descriptor=(16, 256, 1),
        b_descriptor=(16, 256, 1),
    )


def containers_plan() -> Plan:
    """FP6 codes against FP4 codes, both in padded 16-byte containers."""
    return tc.plan(
        "tcgen05.mma.cta_group::1.kind::f8f6f4",
        accumulator((), 128, 64, "float32"),
        k_major(array((128, 64), jnp.uint8), "uint8", 2, 32),
        k_major(array((64, 64), jnp.uint8), "uint8", 2, 32),
        instruction_shape=(128, 64, 32),
        a_format="float6_e3m2fn",
        b_format="float4_e2m1fn",
        a_descriptor=(16, 512, 2),
        b_descriptor=(16, 512, 2),
    )


def ws_plan() -> Plan:
    """`.ws` with two banks of FP4 codes of A in TMEM."""
    layout = tc.tmem_mma_operand_layout("A", (2, 64, 32), "uint8", M=64, cta_group=1, ws=True)
    return tc.plan(
        "tcgen05.mma.ws.cta_group::1.kind::f8f6f4.collector::b2::lastuse",
        accumulator((), 64, 64, "float32", ws=True),
        tc.tmem(array((2, 64, 32), jnp.uint8), layout).view(1, 1, 2, 64, 32),
        k_major(array((64, 32), jnp.uint8), "uint8", 1, 32),
        instruction_shape=(64, 64, 32),
        a_format="float4_e2m1fn",
        b_format="float6_e2m3fn",
        b_descriptor=(16, 256, 1),
    )


def pair_plan(batch: int = 1) -> Plan:
    return tc.plan(
        "tcgen05.mma.cta_group::2.kind::i8",
        accumulator((2, batch), 256, 64, "int32", group=2),
        k_major(array((2, batch, 128, 64), jnp.int8), "int8", 2, 32),
        k_major(array((2, 1, 32, 64), jnp.int8), "int8", 2, 32),
        instruction_shape=(256, 64, 32),
        a_descriptor=(16, 512, 2),
        b_descriptor=(16, 512, 2),
    )


def mxf8_plan(n: int = 64) -> Plan:
    return tc.plan(
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X",
        accumulator((), 128, n, "float32"),
        k_major(array((128, 64), jnp.float8_e4m3fn), "float8_e4m3fn", 2, 32),
        k_major(array((n, 64), jnp.float8_e5m2), "float8_e5m2", 2, 32),
        scales(128, 2, 1, jnp.float8_e8m0fnu),
        scales(n, 2, 1, jnp.float8_e8m0fnu),
        instruction_shape=(128, n, 32),
        a_descriptor=(16, 512, 2),
        b_descriptor=(16, 512, 2),
    )


def nvf4_plan() -> Plan:
    return tc.plan(
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X.collector::a::fill",
        accumulator((), 128, 64, "float32"),
        k_major(array((128, 128), jnp.uint8), "float4_e2m1fn", 2, 64),
        k_major(array((64, 128), jnp.uint8), "float4_e2m1fn", 2, 64),
        scales(128, 2, 4, jnp.float8_e4m3fn),
        scales(64, 2, 4, jnp.float8_e4m3fn),
        instruction_shape=(128, 64, 64),
        a_format="float4_e2m1fn",
        b_format="float4_e2m1fn",
        a_descriptor=(16, 512, 2),
        b_descriptor=(16, 512, 2),
    )


PLANS: dict[str, Callable[[], Plan]] = {
    "f16": f16_plan,
    "mn_major": mn_plan,
    "half_d": half_plan,
    "containers": containers_plan,
    "ws": ws_plan,
    "pair": pair_plan,
    "mxf8": mxf8_plan,
    "mxf8_n24": lambda: mxf8_plan(24),
    "nvf4": nvf4_plan,
}


# Copies: every element goes where the Placement says.


def places(placement: Placement) -> list[tuple[int, int, int]]:
    """(index in the source, lane, position) of every element and replica, by the definition in plan.h.

    Positions count elements of the storage: from the operand area's start, or along the lane.
    """
    sizes = [size for size, _ in placement.axes]
    base = placement.base * (8 if placement.storage == "shared" else 32) // placement.bits
    mask, shift = placement.swizzle
    out = []
    for index, coordinate in enumerate(product(*map(range, sizes))):
        first, second = placement.origin
        for value, (_, digits) in zip(coordinate, placement.axes, strict=True):
            for digit in reversed(digits):
                value, now = divmod(value, digit.extent)
                first += now * digit.first
                second += now * digit.second
        for replica in product(*(range(digit.extent) for digit in placement.replicas)):
            lane = first + sum(i * digit.first for i, digit in zip(replica, placement.replicas, strict=True))
            along = second + sum(
                i * digit.second for i, digit in zip(replica, placement.replicas, strict=True)
            )
            if placement.storage == "shared":
                lane ^= lane >> shift & mask if shift >= 0 else (lane & mask) << -shift
                out.append((index, 0, base + lane))
            else:
                out.append((index, lane, base + along))
    return sorted(out)


def copied(copy: dict[str, Any], placement: Placement) -> list[tuple[int, int, int]]:
    """The same from a planned copy."""
    count = copy["source_bytes"] // placement.item_bytes
    unit = 8 if copy["mode"] != "bits" else placement.bits
    position = copy["offset"].astype(np.int64) * unit
    assert np.all(position % placement.bits == 0)
    out = [
        (int(source) * count + i, int(lane), int(at) // placement.bits + i)
        for source, lane, at in zip(copy["source"], copy["lane"], position, strict=True)
        for i in range(count)
    ]
    return sorted(out)


def placements(plan: Plan) -> dict[str, Placement]:
    return {name: operand.placement for name, operand in plan.operands.items()}


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("name", PLANS)
def test_copies_follow_the_placement(name, aligned):
    plan = PLANS[name]()
    for operand, placement in placements(plan).items():
        copy = core.launch_copy(plan.attributes(), operand, aligned)
        assert copied(copy, placement) == places(placement), operand


def test_copies_are_as_wide_as_the_placement_allows():
    modes = {
        (name, operand): (copy["mode"], copy["steps"])
        for name, make in PLANS.items()
        for plan in [make()]
        for operand in plan.operands
        for copy in [core.launch_copy(plan.attributes(), operand, True)]
    }
    # A dense row-major image needs one step; whatever keeps 16 bytes together is copied so.
    assert modes["f16", "a"] == ("bytes16", 1)
    assert modes["f16", "d"] == ("bytes16", 2)
    assert modes["mn_major", "a"][0] == modes["mn_major", "b"][0] == "bytes16"
    assert modes["half_d", "d"][0] == "bytes2"  # every other half word
    assert modes["containers", "a"] == ("pack_fp6", 1)
    assert modes["containers", "b"] == ("pack_fp4", 1)
    assert modes["ws", "a"][0] == "bytes16"
    assert modes["nvf4", "a"] == ("nibbles", 1)
    assert modes["mxf8", "sfa"][0] == "bytes1"


def test_codes_in_tmem_bytes_are_masked_and_shifted():
    copy = core.launch_copy(ws_plan().attributes(), "a", True)
    assert (copy["keep"], copy["shift"]) == (0x0F0F0F0F, 2)  # fp4: bits 2-5 of a byte (ptx_contract 6)


def with_placement(plan: Plan, **changes: Any) -> Plan:
    """The plan with another placement of B."""
    return replace(plan, b=replace(plan.b, placement=replace(plan.b.placement, **changes)))


@pytest.mark.parametrize(
    ("axes", "mode"),
    [
        # 40 of (2, 32) rows: the bound cuts only the outer digit, but 40 is no multiple of 32.
        (((40, (Digit(2, 2048), Digit(32, 64))), (64, (Digit(64, 1),))), "bytes16"),
        # a bounded inner axis, in whole pieces of 16 bytes and not
        (((32, (Digit(32, 128),)), (24, (Digit(2, 64), Digit(16, 1)))), "bytes16"),
        (((32, (Digit(32, 128),)), (20, (Digit(2, 64), Digit(16, 1)))), "bytes2"),
        # an outermost digit that holds nothing
        (((8, (Digit(3, 1024), Digit(8, 64))), (64, (Digit(64, 1),))), "bytes16"),
        # K in steps of 2: neighbours are apart
        (((32, (Digit(32, 128),)), (64, (Digit(64, 2),))), "bytes2"),
        # rows off the 16-byte grid
        (((32, (Digit(32, 68),)), (64, (Digit(64, 1),))), "bytes2"),
        # a source stored K-major while the rows are contiguous in the storage's other order
        (((64, (Digit(64, 1),)), (32, (Digit(32, 64),))), "bytes2"),
        # three digits of one axis, not in order
        (((64, (Digit(4, 512), Digit(2, 2048), Digit(8, 64))), (64, (Digit(64, 1),))), "bytes16"),
        (((1, ()), (64, (Digit(1, 7), Digit(64, 64))), (64, (Digit(64, 1),))), "bytes16"),
    ],
)
@pytest.mark.parametrize("swizzle", [(0, 0), (56, 3)])
def test_copies_of_odd_placements(axes, mode, swizzle):
    plan = with_placement(f16_plan(), axes=axes, swizzle=swizzle)
    copy = core.launch_copy(plan.attributes(), "b", True)
    assert copied(copy, plan.b.placement) == places(plan.b.placement)
    assert copy["mode"] == mode


def test_a_swizzle_inside_16_bytes_is_copied_by_items():
    plan = with_placement(f16_plan(), swizzle=(1, 3))
    copy = core.launch_copy(plan.attributes(), "b", True)
    assert copied(copy, plan.b.placement) == places(plan.b.placement)
    assert copy["mode"] == "bytes2"


@pytest.mark.parametrize(
    ("make", "operand", "bits", "log2"),
    [(containers_plan, "a", 6, 4), (containers_plan, "b", 4, 4), (nvf4_plan, "a", 4, 5)],
)
def test_sub_byte_codes_one_by_one(make, operand, bits, log2):
    copy = core.launch_copy(make().attributes(), operand, False)
    assert (copy["mode"], copy["block_bits"], copy["block_log2"]) == ("bits", bits, log2)


# Launches.

STEP = np.dtype([("size", "u4"), ("extent", "u4"), ("lane", "u4"), ("offset", "u4")])
COPY = np.dtype(
    [
        *[(name, "u4") for name in ("chunks", "work", "mode", "source_bytes", "keep", "shift")],
        *[
            (name, "u4")
            for name in ("block_bits", "block_log2", "origin_lane", "origin_offset", "swizzle_mask")
        ],
        ("swizzle_shift", "i4"),
        ("base", "u4"),
        ("steps", "u4"),
        ("step", STEP, 24),
    ]
)
ARRAY = np.dtype([("address", "u8"), ("group_stride", "i8"), ("batch_stride", "i8", 8)])
#: csrc/launch/params.h, written down a second time.
PARAMS = np.dtype(
    [
        ("batch", "u4"), ("batch_axes", "u4"), ("batch_size", "u4", 8),
        ("idesc", "u4"), ("collector", "u4"), ("m_repeat", "u4"), ("n_repeat", "u4"), ("k_repeat", "u4"),
        ("shared_bytes", "u4"), ("tmem_columns", "u4"), ("staged_columns", "u4"), ("d_first", "u4"),
        ("d_last", "u4"), ("window_columns", "u4"), ("pitch", "u4"),
        ("start", "u4", 5), ("in_tmem", "u4", 5), ("copy", COPY, 5),
        ("operand", ARRAY, 5), ("result", ARRAY), ("accum", ARRAY), ("pred", ARRAY), ("mask", ARRAY),
        ("table", "u4", 3072),
    ],
    align=True,
)  # fmt: skip


def test_parameter_block_is_laid_out_as_written_down():
    offsets = core.launch_params_offsets()
    assert PARAMS.itemsize == offsets["Params"] <= 32764
    for name, offset in offsets.items():
        owner, _, field = name.partition(".")
        if field:
            dtype = {"Params": PARAMS, "Copy": COPY, "Strided": ARRAY}[owner]
            assert dtype.fields[field][1] == offset, name


@pytest.fixture
def driver() -> Any:
    return core.RecordingDriver()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Stand-ins for the package's kernels."""
    for kind in ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"):
        for target in ("sm_100a", "sm_103a", "sm_110a"):
            if (kind, target) != ("i8", "sm_103a"):
                (tmp_path / f"{kind}.{target}.cubin").write_text(f"{kind} {target}")
    return tmp_path


@pytest.fixture
def launcher(driver, directory) -> Any:
    return core.Launcher(driver, str(directory))


def buffers(
    plan: Plan, batch: tuple[int, ...] = (), *, masked: bool = False, **prefixes: tuple[int, ...]
) -> Any:
    """(arguments, result) of a call: made-up addresses, item sizes and shapes. A keyword gives an array's batch."""
    group = (plan.opcode.cta_group,) if plan.opcode.cta_group == 2 else ()
    address = iter(range(0x10000000, 0x7FFFFFFF, 0x1000000))

    def own(placement: Placement) -> tuple[int, ...]:
        return tuple(size for size, _ in placement.axes)

    given = [
        (next(address), place.item_bytes, (*group, *prefixes.get(name, batch), *own(place)))
        for name, place in placements(plan).items()
    ]
    result = (next(address), *given[0][1:])
    given += [(next(address), 1, prefixes.get(name, batch)) for name in ("accum", "pred")]
    if masked:
        words = 2 if plan.opcode.ws else 4 * plan.opcode.cta_group
        given.append((next(address), 4, (*prefixes.get("mask", batch), words)))
    return given, result


def run(launcher: Any, plan: Plan, batch: tuple[int, ...] = (), stream: int = STREAM, **options: Any) -> None:
    given, result = buffers(plan, batch, **options)
    launcher.prepare(plan.attributes(), options.get("masked", False), stream)
    launcher.execute(plan.attributes(), given, result, stream)


def params_of(launch: dict[str, Any]) -> np.void:
    return np.frombuffer(launch["params"], PARAMS)[0]


def test_one_dense_call_byte_for_byte(driver, launcher):
    run(launcher, f16_plan(), (5,), b=(1,), accum=(1,))
    (launch,) = driver.launches
    params = launch.pop("params")
    # D's image, 128 lanes of 64 columns and 16 bytes of padding, is larger than the operands' 24 KiB.
    assert launch == {
        "entry": "tcgen05_mma_f16_g1_dense_v0_ss_plain",
        "ctas": 5,
        "cluster": 1,
        "threads": 128,
        "shared_bytes": 128 * (64 * 4 + 16),
        "stream": STREAM,
    }
    want = np.zeros((), PARAMS)
    want["batch"], want["batch_axes"], want["batch_size"][0] = 5, 1, 5
    want["idesc"], want["collector"] = 0x08100010, 3
    want["m_repeat"], want["n_repeat"], want["k_repeat"] = 1, 1, 4
    want["shared_bytes"], want["tmem_columns"], want["staged_columns"] = 24576, 64, 64
    want["d_first"], want["d_last"], want["window_columns"], want["pitch"] = 0, 64, 64, 272
    want["start"] = [16, 0, 8, 17, 17]  # D, A, B, SFA, SFB: A's and B's starts take two words
    want["in_tmem"] = [1, 0, 0, 1, 1]
    for index, (chunks, swizzle, base, steps) in enumerate(
        [
            (2048, (0, 0), 0, [(16, 0, 0, 16), (128, 0, 1, 0)]),
            (1024, (0x70, 3), 0, [(1024, 0, 0, 16)]),
            (512, (0x70, 3), 16384, [(512, 0, 0, 16)]),
        ]
    ):
        copy = want["copy"][index]
        copy["chunks"] = copy["work"] = chunks
        copy["mode"], copy["source_bytes"], copy["keep"] = 3, 16, 0xFFFFFFFF
        copy["swizzle_mask"], copy["swizzle_shift"] = swizzle
        copy["base"], copy["steps"] = base, len(steps)
        copy["step"][: len(steps)] = steps
    for index, (address, stride) in enumerate(
        [(0x10000000, 128 * 64 * 4), (0x11000000, 128 * 64 * 2), (0x12000000, 0)]
    ):
        want["operand"][index]["address"] = address
        want["operand"][index]["batch_stride"][0] = stride
    want["result"]["address"], want["result"]["batch_stride"][0] = 0x13000000, 128 * 64 * 4
    want["accum"]["address"] = 0x14000000
    want["pred"]["address"], want["pred"]["batch_stride"][0] = 0x15000000, 1
    words = [w for k in range(4) for w in (0x00010000 + 2 * k, 0x40004040)]
    words += [w for k in range(4) for w in (0x00010400 + 2 * k, 0x40004040)]
    want["table"][: len(words)] = words
    got = params_of({"params": params})
    for field in PARAMS.names or ():
        assert np.array_equal(got[field], want[field]), (field, got[field], want[field])
    assert params == want.tobytes()


def test_pair_uses_clusters_and_group_strides(driver, launcher):
    run(launcher, pair_plan(3), (3,), b=(1,), masked=True, mask=(1,))
    (launch,) = driver.launches
    assert (launch["entry"], launch["ctas"], launch["cluster"]) == (
        "tcgen05_mma_i8_g2_dense_v0_ss_mask",
        6,
        2,
    )
    params = params_of(launch)
    assert params["operand"]["group_stride"].tolist() == [3 * 128 * 64 * 4, 3 * 128 * 64, 32 * 64, 0, 0]
    assert params["operand"]["batch_stride"][:3, 0].tolist() == [128 * 64 * 4, 128 * 64, 0]
    assert params["mask"]["address"] != 0
    assert params["mask"]["batch_stride"].tolist() == [0] * 8


def test_block_scaled_call_carries_scale_ids(driver, launcher):
    plan = mxf8_plan()
    run(launcher, plan)
    (launch,) = driver.launches
    assert launch["entry"] == "tcgen05_mma_mxf8f6f4_g1_dense_v1_ss_plain"
    params = params_of(launch)
    table = params["table"].tolist()
    # Scales of K step 1 are byte 1 of the same words: id 1 in bits 30-31 of the address.
    sfa, sfb = (table[params["start"][i] : params["start"][i] + 2] for i in (3, 4))
    assert sfa == [64, 64 | 1 << 30]
    assert sfb == [68, 68 | 1 << 30]
    assert params["staged_columns"] == 96  # 64 of D, 4 + 2 of scales, in steps of 32
    assert params["tmem_columns"] == 128
    assert params["copy"]["work"][3:].tolist() == [4 * 2 * 128, 4 * 2 * 64]  # four copies
    assert params["pred"]["address"] != 0


@pytest.mark.parametrize(
    ("make", "masked", "entry", "collector"),
    [
        (half_plan, True, "tcgen05_mma_f16_g1_dense_v0_ss_mask", 3),
        (ws_plan, False, "tcgen05_mma_f8f6f4_g1_ws_v0_ts_plain", 4 * 2 + 2),
        (ws_plan, True, "tcgen05_mma_f8f6f4_g1_ws_v0_ts_mask", 4 * 2 + 2),
        (nvf4_plan, False, "tcgen05_mma_mxf4nvf4_g1_dense_v4_ss_plain", 0),
    ],
)
def test_choice_of_kernel(driver, launcher, make, masked, entry, collector):
    run(launcher, make(), masked=masked)
    (launch,) = driver.launches
    assert launch["entry"] == entry
    assert params_of(launch)["collector"] == collector
    assert driver.calls.count(f"get_function {entry}") == 1


def test_batch_axes_merge_where_all_arrays_step_evenly(driver, launcher):
    run(launcher, f16_plan(), (2, 3, 4), a=(1, 3, 4), b=(2, 3, 4), accum=(2, 1, 1), pred=(2, 3, 4))
    params = params_of(driver.launches[0])
    assert params["batch"] == 24
    assert params["batch_axes"] == 2
    assert params["batch_size"][:2].tolist() == [12, 2]
    assert params["operand"]["batch_stride"][0, :2].tolist() == [32768, 12 * 32768]
    assert params["operand"]["batch_stride"][1, :2].tolist() == [16384, 0]
    assert params["accum"]["batch_stride"][:2].tolist() == [0, 1]
    assert params["pred"]["batch_stride"][:2].tolist() == [1, 12]


def test_batch_axes_of_one_vanish(driver, launcher):
    run(launcher, f16_plan(), (1, 7, 1))
    params = params_of(driver.launches[0])
    assert (params["batch_axes"], params["batch_size"][0]) == (1, 7)


def test_too_many_batch_axes_are_refused(launcher):
    plan = f16_plan()
    batch = (2,) * 9
    given, result = buffers(plan, batch, a=(1, 2) * 4 + (1,))
    with pytest.raises(ValueError, match="the batch has 9 axes that cannot be merged"):
        launcher.execute(plan.attributes(), given, result, STREAM)


def test_offsets_beyond_32_bits(driver, launcher):
    """B85: 300 000 elements of 16 KiB and 32 KiB."""
    run(launcher, f16_plan(), (300_000, 2), b=(300_000, 1))
    params = params_of(driver.launches[0])
    assert params["batch"] == 600_000
    last = 299_999 * params["operand"][1]["batch_stride"][1] + params["operand"][1]["batch_stride"][0]
    assert last == (600_000 - 1) * 16384 > 2**32


def test_a_batch_of_2_to_the_31_is_refused(launcher):
    plan = f16_plan()
    given, result = buffers(plan, (2**31,))
    with pytest.raises(ValueError, match="2147483648 elements; a launch takes up to 2147483647"):
        launcher.execute(plan.attributes(), given, result, STREAM)


def test_the_grid_is_what_fits_at_once(driver, launcher):
    """Per multiprocessor: 8 by TMEM (64 of 512 columns), 6 by shared memory (34 KiB and 2 KiB of 228)."""
    driver.set_device("fake", 10, 0, multiprocessors=10)
    for batch, ctas in ((1, 1), (59, 59), (60, 60), (61, 60), (10**6, 60)):
        run(launcher, f16_plan(), (batch,), stream=batch)
        assert driver.launches[-1]["ctas"] == ctas
    run(launcher, pair_plan(), (10**6,), b=(1,))
    assert driver.launches[-1]["ctas"] == 60
    assert driver.launches[-1]["cluster"] == 2


def test_an_empty_batch_launches_nothing(driver, launcher):
    run(launcher, f16_plan(), (3, 0))
    assert driver.launches == []


def test_misaligned_arrays_are_copied_by_items(driver, launcher):
    plan = f16_plan()
    given, result = buffers(plan)
    given[1] = (given[1][0] + 2, *given[1][1:])
    launcher.execute(plan.attributes(), given, result, STREAM)
    assert params_of(driver.launches[0])["copy"]["mode"].tolist()[:3] == [3, 1, 3]


def test_a_large_image_is_staged_in_windows(driver, launcher):
    plan = tc.plan(
        "tcgen05.mma.cta_group::1.kind::f16",
        tc.tmem_empty(
            (128, 512),
            "float32",
            tc.tmem_mma_operand_layout("D", (1, 2, 128, 256), "float32", M=128, cta_group=1)
            .rearrange("a b m n -> m (a b n)"),
        ).rearrange("m (b n) -> b m n", b=2).view(1, 2, 128, 256),
        k_major(array((128, 16), jnp.float16), "float16", 0, 16),
        tc.shared(array((512, 16), jnp.float16), tc.mma_shared_layout("float16", 0, (512, 16))).view(2, 1, 256, 16),
        instruction_shape=(128, 256, 16),
        a_descriptor=(2048, 128, 0),
        b_descriptor=(8192, 128, 0),
    )  # fmt: skip
    run(launcher, plan)
    params, launch = params_of(driver.launches[0]), driver.launches[0]
    assert (params["tmem_columns"], params["staged_columns"], params["d_last"]) == (512, 512, 512)
    assert (params["window_columns"], params["pitch"]) == (128, 528)
    assert launch["shared_bytes"] == 128 * 528


# Modules, contexts, threads.


def test_execute_only_launches_after_prepare(driver, launcher):
    plan = f16_plan()
    given, result = buffers(plan)
    launcher.prepare(plan.attributes(), False, STREAM)
    entry = "tcgen05_mma_f16_g1_dense_v0_ss_plain"
    size = len("f16 sm_100a")
    prepared = [
        "enter",
        "device",
        f"load_module {size} bytes",
        f"get_function {entry}",
        "allow_shared 231424",
        "leave",
    ]
    assert driver.calls == prepared
    for _ in range(2):
        launcher.execute(plan.attributes(), given, result, STREAM)
    assert driver.calls == prepared + ["enter", f"launch {entry}", "leave"] * 2


def test_a_module_is_loaded_once_for_each_context(driver, launcher):
    for stream in (1, 2, 1, 2):
        run(launcher, f16_plan(), stream=stream)
        run(launcher, half_plan(), stream=stream, masked=True)
    loads = [call for call in driver.calls if call.startswith("load_module")]
    functions = [call for call in driver.calls if call.startswith("get_function")]
    assert len(loads) == 2
    assert len(functions) == 4
    assert len(driver.launches) == 8


def test_threads_share_one_module(driver, launcher):
    plans = [(f16_plan(), False), (half_plan(), True)]
    errors = []

    def work(index: int) -> None:
        try:
            plan, masked = plans[index % 2]
            for _ in range(20):
                run(launcher, plan, masked=masked)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(call.startswith("load_module") for call in driver.calls) == 1
    assert len(driver.launches) == 160
    assert driver.calls.count("enter") == driver.calls.count("leave") == 320


# Refusals and failures.

CALL = r"tcgen05\.mma\.cta_group::1\.kind::f16 \[D \(128, 64\) per CTA, 1x1x4 issues\]: "


def failure(action: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(core.LaunchError) as caught:
        action()
    return caught.value.failure, str(caught.value)


@pytest.mark.parametrize(
    ("capability", "target"), [((10, 0), "sm_100a"), ((10, 3), "sm_103a"), ((11, 0), "sm_110a")]
)
def test_target_by_capability(driver, launcher, capability, target):
    driver.set_device("fake", *capability)
    run(launcher, f16_plan())
    assert f"load_module {len('f16 ' + target)} bytes" in driver.calls
    assert len(driver.launches) == 1


@pytest.mark.parametrize("capability", [(9, 0), (12, 0), (12, 1), (10, 1), (8, 0)])
def test_devices_without_tcgen05_are_refused(driver, launcher, capability):
    driver.set_device("NVIDIA H200", *capability)
    kind, message = failure(lambda: run(launcher, f16_plan()))
    assert kind == "unimplemented"
    shown = f"{capability[0]}.{capability[1]}"
    assert message.startswith(
        'tcgen05.mma.cta_group::1.kind::f16 [D (128, 64) per CTA, 1x1x4 issues]: device "NVIDIA H200" has '
        f"compute capability {shown}, which has no tcgen05 instructions; allowed: 10.0, 10.3, 11.0"
    )
    assert "the functional model runs the same call on the CPU" in message
    assert driver.launches == []


def test_i8_on_10_3_is_refused(driver, launcher):
    """B41."""
    driver.set_device("NVIDIA GB300", 10, 3)
    kind, message = failure(lambda: run(launcher, pair_plan(), (1,)))
    assert kind == "unimplemented"
    assert "compute capability 10.3, which lacks .kind::i8; allowed: 10.0, 11.0" in message
    assert message.startswith("tcgen05.mma.cta_group::2.kind::i8 [D (128, 64) per CTA, 1x1x2 issues]: ")
    run(launcher, f16_plan())
    assert len(driver.launches) == 1


def test_too_little_shared_memory_is_refused(driver, launcher):
    driver.set_device("small", 10, 0, shared_per_block=32768)
    kind, message = failure(lambda: run(launcher, f16_plan()))
    assert kind == "exhausted"
    assert 'needs 35840 bytes of shared memory per CTA; device "small" has 32768' in message


def test_no_driver(driver, launcher):
    driver.reason = "no CUDA driver (libcuda.so.1 cannot be opened): install NVIDIA's driver"
    kind, message = failure(lambda: run(launcher, f16_plan()))
    assert kind == "unavailable"
    assert driver.reason in message
    assert "the functional model runs the same call on the CPU" in message
    assert driver.calls == []


def test_package_without_kernels(driver, tmp_path):
    (tmp_path / "unavailable.txt").write_text("no nvcc was found when the package was built: install it\n")
    kind, message = failure(lambda: run(core.Launcher(driver, str(tmp_path)), f16_plan()))
    assert kind == "unavailable"
    assert "no device kernels: no nvcc was found when the package was built: install it" in message


def test_damaged_package(driver, tmp_path):
    kind, message = failure(lambda: run(core.Launcher(driver, str(tmp_path)), f16_plan()))
    assert kind == "unavailable"
    assert "no device kernels: the package's f16.sm_100a.cubin is missing; reinstall it" in message


@pytest.mark.parametrize(
    ("step", "doing"),
    [
        ("enter", "finding the stream's context"),
        ("device", "asking for the device's properties"),
        ("load_module", r"loading f16\.sm_100a\.cubin"),
        ("get_function", "finding kernel tcgen05_mma_f16_g1_dense_v0_ss_plain"),
        ("allow_shared", "raising the shared-memory limit of tcgen05_mma_f16_g1_dense_v0_ss_plain"),
        ("launch", "launching tcgen05_mma_f16_g1_dense_v0_ss_plain"),
    ],
)
def test_a_failing_step_is_reported_and_can_be_tried_again(driver, launcher, step, doing):
    driver.failures = {step: 209}
    for _ in range(2):
        with pytest.raises(core.LaunchError, match=f"^{CALL}{doing} failed with CUDA_ERROR_209$") as caught:
            run(launcher, f16_plan())
        assert caught.value.failure == "internal"
    assert driver.launches == []
    driver.failures = {}
    run(launcher, f16_plan())
    assert len(driver.launches) == 1
    failed_to_enter = 2 if step == "enter" else 0
    assert driver.calls.count("enter") - failed_to_enter == driver.calls.count("leave")


def test_a_sticky_error_says_where_it_may_come_from(driver, launcher):
    """B93."""
    driver.failures = {"launch": 715}
    _, message = failure(lambda: run(launcher, f16_plan()))
    assert "CUDA_ERROR_ILLEGAL_INSTRUCTION, an error that a kernel launched earlier" in message
    assert message.endswith("start a fresh process")


def test_wrong_buffers_are_refused_before_the_driver_is_asked(driver, launcher):
    plan = f16_plan()
    given, result = buffers(plan)
    given[1] = (given[1][0], 2, (64, 128))
    with pytest.raises(ValueError, match=r"a: got a buffer of shape \(64, 128\)"):
        launcher.execute(plan.attributes(), given, result, STREAM)
    assert driver.calls == []


def test_entry_names():
    assert core.launch_entry("tcgen05.mma.cta_group::2.kind::tf32", True, True) == (
        "tcgen05_mma_tf32_g2_dense_v0_ts_mask"
    )
    assert core.launch_entry("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32", False, False) == (
        "tcgen05_mma_mxf4_g1_dense_v2_ss_plain"
    )
