"""Tensor copies of the virtual SM against a second model written from PTX ISA 5.5 (copy_kernels.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from copy_kernels import (
    CLUSTER_BARRIER,
    ELEMENTS,
    MAP,
    POINTER,
    UNTOUCHED,
    Image,
    coordinates,
    fill,
    init_barrier,
    module,
    read_in,
    row_image,
    swizzled,
    tile_image,
    wait,
    write_out,
)

from jax_tcgen05 import vsm

BOX = 16384  # bytes of shared memory in front of the mbarrier
RNG = np.random.default_rng(20260801)


def random_bytes(size: int) -> np.ndarray:
    return RNG.integers(0, 256, size, dtype=np.uint8)


LOAD = "cp.async.bulk.tensor.{rank}d.shared::cta.global{mode}.mbarrier::complete_tx::bytes"


def load_body(rank: int, at: Sequence[int], credit: int, mode: str = "", more: str = "") -> str:
    return (
        fill(BOX)
        + init_barrier(BOX)
        + f"""
mov.b64 %rd1, map;
cvta.param.u64 %rd1, %rd1;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {credit};
@%p0 {LOAD.format(rank=rank, mode=mode)} [%r1], [%rd1, {coordinates(at)}], [%r2]{more};
"""
        + wait()
        + write_out("out", BOX)
    )


def launch(m: vsm.Module, *args: Any, **options: Any) -> vsm.Result:
    settings = {
        "grid": 1,
        "block": 32,
        "shared_bytes": BOX + 256,
        "check": "strict",
        "threads": 1,
        "step_limit": 1 << 22,
    }
    return m.launch("k", args=args, **(settings | options))


def load(
    t: vsm.TensorMap, at: Sequence[int], credit: int, mode: str = "", more: str = "", **options: Any
) -> np.ndarray:
    out = np.zeros(BOX, np.uint8)
    m = module([MAP.format("map"), POINTER.format("out")], load_body(len(t.gdim), at, credit, mode, more))
    launch(m, t, out, **options)
    return out


def check_load(
    t: vsm.TensorMap, at: Sequence[int], image: Image, mode: str = "", more: str = "", **options: Any
) -> None:
    pattern = (0xF7, 0x7F) if t.oob else (0,)
    np.testing.assert_array_equal(
        load(t, at, image.credit, mode, more, **options), image.load(t.array, BOX, pattern)
    )


def tensor(dtype: str, gdim: Sequence[int], box: Sequence[int], **fields: Any) -> vsm.TensorMap:
    """A tensor of random bytes whose rows and planes are padded, so that a wrong stride shows."""
    bits = ELEMENTS[dtype][0]
    grain = 32 if "ALIGN16B" in dtype or fields.get("interleave") == 2 else 16
    size = 16 * fields["interleave"] * gdim[0] if fields.get("interleave") else gdim[0] * bits // 8
    strides = []
    for n in gdim[1:]:
        strides.append((size + grain - 1) // grain * grain + grain * (len(strides) + 1))
        size = strides[-1] * n
    array = random_bytes(size + fields.get("offset", 0) + 64)
    return vsm.TensorMap(array, dtype, tuple(gdim), tuple(strides), tuple(box), **fields)


TILES: list[tuple[vsm.TensorMap, Sequence[int]]] = [
    (tensor("UINT8", [64], [32]), [8]),
    (tensor("UINT8", [64], [64], offset=32), [-16]),
    (tensor("UINT8", [50], [48]), [20]),
    (tensor("UINT16", [40, 9], [24, 5]), [5, -2]),
    (tensor("FLOAT16", [70, 20], [64, 9], swizzle=3), [3, 4]),
    (tensor("FLOAT16", [70, 20], [32, 12], swizzle=2), [40, 11]),
    (tensor("FLOAT16", [70, 20], [16, 12], swizzle=1), [-4, -3]),
    (tensor("FLOAT32", [70, 20], [32, 12], swizzle=4), [2, 3]),
    (tensor("FLOAT32", [70, 20], [32, 12], swizzle=5), [2, 3]),
    (tensor("FLOAT32", [70, 20], [32, 12], swizzle=6), [2, 3]),
    (tensor("FLOAT16", [70, 20], [16, 12], swizzle=3), [3, 4]),  # rows shorter than the swizzle's span
    (tensor("UINT64", [11, 7, 5], [4, 3, 2]), [9, 5, 4]),
    (tensor("FLOAT64", [11, 7, 5], [4, 3, 2], oob=1), [-2, 5, 4]),
    (tensor("FLOAT16", [24, 7, 5], [16, 3, 2], oob=1, swizzle=1), [-2, -1, 4]),
    (tensor("BFLOAT16", [24, 7, 5], [16, 3, 2], oob=1), [16, 6, 4]),
    (tensor("FLOAT32", [24, 7, 5], [8, 3, 2], oob=1), [20, 6, -1]),
    (tensor("UINT32", [8, 4, 3, 5], [4, 3, 2, 2]), [2, 1, 1, 4]),
    (tensor("UINT8", [32, 4, 3, 5, 3], [16, 3, 2, 2, 2], swizzle=1), [8, 1, 2, 4, -1]),
    (tensor("UINT8", [32, 9, 9], [16, 7, 6], estride=(1, 3, 2)), [8, 1, 5]),
    (tensor("UINT16", [16, 20], [8, 8], estride=(4, 8)), [0, 3]),  # a step in dimension 0 is ignored
    (tensor("16U4_ALIGN8B", [62, 9], [32, 5]), [34, 6]),
    (tensor("16U4_ALIGN8B", [128, 9], [64, 5], swizzle=1), [-2, 6]),
    (tensor("16U4_ALIGN16B", [256, 9], [128, 8], swizzle=3), [128, 3]),
    (tensor("16U4_ALIGN16B", [256, 9], [128, 8]), [0, -3]),
    (tensor("16U6_ALIGN16B", [256, 9], [128, 8], swizzle=3), [128, 3]),
    (tensor("16U6_ALIGN16B", [256, 9], [128, 8], swizzle=5), [0, 4]),
    (tensor("UINT8", [7, 5, 4], [4, 3, 2], interleave=1), [5, 1, 2]),
    (tensor("UINT16", [7, 5, 4], [4, 3, 2], interleave=2, swizzle=1, estride=(2, 1, 1)), [-1, 3, 3]),
]


@pytest.mark.parametrize("t, at", TILES)
def test_tiles(t: vsm.TensorMap, at: Sequence[int]) -> None:
    check_load(t, at, tile_image(t, at))


@pytest.mark.parametrize("schedule", vsm.SCHEDULES)
def test_schedules(schedule: str) -> None:
    t, at = TILES[4]
    check_load(t, at, tile_image(t, at), schedule=schedule)


def test_swizzle_acts_on_addresses() -> None:
    """A box that does not start at the beginning of the pattern (PTX ISA 5.5.7: base offset)."""
    t = tensor("FLOAT16", [70, 20], [64, 9], swizzle=3)
    plain = load(t, [0, 0], 9 * 128)
    body = (
        load_body(2, [0, 0], 9 * 128)
        .replace("[%r1], [%rd1", "[%r20], [%rd1")
        .replace("mov.b64 %rd1", "add.u32 %r20, %r1, 384; mov.b64 %rd1")
    )
    out = np.zeros(BOX, np.uint8)
    launch(module([MAP.format("map"), POINTER.format("out")], body), t, out)
    lines, moved = plain[: 9 * 128].reshape(9, 8, 16), out[384 : 384 + 9 * 128].reshape(9, 8, 16)
    chunk = np.arange(8)
    for row in range(9):
        np.testing.assert_array_equal(lines[row, chunk ^ row % 8], moved[row, chunk ^ (row + 3) % 8])


def test_conversions_on_the_way() -> None:
    """TFLOAT32 rounds to the nearest tf32, ties away from zero; _FTZ flushes subnormal numbers."""
    bits = np.array(
        [0x3F801000, 0x3F800FFF, 0xBF803000, 0x7F800000, 0x7F800001, 0x00000001, 0x807FFFFF, 0x40490FDB],
        np.uint32,
    )
    rounded = np.array(
        [0x3F802000, 0x3F800000, 0xBF804000, 0x7F800000, 0x7FFFE000, 0, 0x80800000, 0x40490000], np.uint32
    )
    flushed = np.where((bits & 0x7FFFFFFF) < 0x800000, bits & 0x80000000, bits)
    for dtype, want in (("FLOAT32", bits), ("TFLOAT32", rounded), ("FLOAT32_FTZ", flushed)):
        out = load(vsm.TensorMap(bits.copy(), dtype, (8,), (), (8,)), [0], 32)
        np.testing.assert_array_equal(out[:32].view(np.uint32), want)


# ---- stores and reductions ----


def store_body(
    rank: int, at: Sequence[int], mode: str = "", op: str = "cp.async.bulk.tensor", reduction: str = ""
) -> str:
    return (
        read_in("data", BOX)
        + f"""
mov.b64 %rd1, map;
cvta.param.u64 %rd1, %rd1;
@%p0 {op}.{rank}d.global.shared::cta{reduction}{mode}.bulk_group [%rd1, {coordinates(at)}], [%r1];
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
"""
    )


def store(t: vsm.TensorMap, at: Sequence[int], data: np.ndarray, **how: str) -> None:
    launch(module([MAP.format("map"), POINTER.format("data")], store_body(len(t.gdim), at, **how)), t, data)


@pytest.mark.parametrize(
    "t, at", [(t, at) for t, at in TILES if t.swizzle != 5 and t.dtype != "16U4_ALIGN16B"]
)
def test_stores(t: vsm.TensorMap, at: Sequence[int]) -> None:
    image, data = tile_image(t, at), random_bytes(BOX)
    t = dataclasses.replace(t, array=random_bytes(t.array.size))
    want = t.array.copy()
    want[image.source[image.source >= 0]] = data[image.target[image.source >= 0]]
    store(t, at, data)
    np.testing.assert_array_equal(t.array, want)


def reduced(op: str, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    match op:
        case "inc":
            return np.where(old >= new, 0, old + 1).astype(old.dtype)
        case "dec":
            return np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype)
    functions = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    if old.dtype in (np.float16, ml_dtypes.bfloat16):
        return functions[op](old.astype(np.float32), new.astype(np.float32)).astype(old.dtype)
    return functions[op](old, new)


REDUCTIONS = [(op, "UINT32", np.uint32) for op in ("add", "min", "max", "inc", "dec", "and", "or", "xor")]
REDUCTIONS += [(op, "INT32", np.int32) for op in ("add", "min", "max")]
REDUCTIONS += [(op, "UINT64", np.uint64) for op in ("add", "min", "max", "xor")]
REDUCTIONS += [
    ("add", "FLOAT32", np.float32),
    ("add", "FLOAT16", np.float16),
    ("max", "BFLOAT16", ml_dtypes.bfloat16),
]


@pytest.mark.parametrize("op, dtype, kind", REDUCTIONS)
def test_tensor_reductions(op: str, dtype: str, kind: Any) -> None:
    shape, item = (9, 32), np.dtype(kind).itemsize
    values = [RNG.integers(0, 7 if op in ("inc", "dec") else 1000, shape).astype(kind) for _ in range(2)]
    old, new = values
    if np.dtype(kind).kind in "if":
        old, new = old - kind(500), new - kind(500)
    t = vsm.TensorMap(old.copy(), dtype, (32, 9), (32 * item,), (16, 8), swizzle=1 if item == 2 else 0)
    data = random_bytes(BOX)
    image = tile_image(t, [24, 3])
    inside = image.source >= 0
    box = data[: 8 * 16 * item].view(kind)
    box[...] = RNG.integers(0, 100, box.shape).astype(kind)
    want = old.copy().reshape(-1).view(np.uint8)
    moved = np.zeros_like(want)
    moved[image.source[inside]] = data[image.target[inside]]
    touched = np.zeros(want.shape, bool)
    touched[image.source[inside]] = True
    touched_elements = touched.reshape(-1, item)[:, 0].reshape(shape)
    expected = np.where(touched_elements, reduced(op, old, moved.view(kind).reshape(shape)), old)
    store(t, [24, 3], data, op="cp.reduce.async.bulk.tensor", reduction="." + op)
    np.testing.assert_array_equal(t.array.view(np.uint8), expected.view(np.uint8))


def test_tensor_reduction_needs_a_type_that_has_it() -> None:
    t = tensor("UINT8", [32, 9], [16, 8])
    with pytest.raises(vsm.ExecutionError, match=r"this reduction is not defined for elements of type UINT8"):
        store(t, [0, 0], random_bytes(BOX), op="cp.reduce.async.bulk.tensor", reduction=".add")


# ---- gather4, scatter4 ----


@pytest.mark.parametrize("swizzle", [0, 3])
def test_gather4_and_scatter4(swizzle: int) -> None:
    t = tensor("FLOAT16", [70, 20], [64, 1], swizzle=swizzle)
    rows = [7, -1, 19, 20]
    image = row_image(t, [[r] for r in rows], 10, 64)
    check_load(t, [10, *rows], image, ".tile::gather4")
    data, want = random_bytes(BOX), t.array.copy()
    want[image.source[image.source >= 0]] = data[image.target[image.source >= 0]]
    store(t, [10, *rows], data, mode=".tile::scatter4")
    np.testing.assert_array_equal(t.array, want)


# ---- im2col ----


def image_tensor(
    shape: Sequence[int],
    channels: int,
    pixels: int,
    lower: Sequence[int],
    upper: Sequence[int],
    **fields: Any,
) -> vsm.TensorMap:
    """Channels-last images [N, (D,) (H,) W, C] of float16."""
    wide = fields.pop("wide", False)
    array = RNG.integers(1, 1 << 15, shape).astype(np.uint16)
    strides = np.array(array.strides[::-1])[1:]
    corners = (tuple(lower), tuple(upper), channels, pixels)
    return vsm.TensorMap(
        array,
        "FLOAT16",
        shape[::-1],
        tuple(int(s) for s in strides),
        (),
        im2col=(*corners, True) if wide else corners,
        **fields,
    )


def test_im2col_gathers_the_patches_of_a_convolution() -> None:
    """3x3 filter, padding 1: every tap of the filter is one load whose offsets are the tap's position."""
    n, h, w, c = 2, 5, 6, 16
    t = image_tensor((n, h, w, c), c, 64, [-1, -1], [-1, -1], swizzle=1)
    x = np.pad(t.array, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for r in range(3):
        for s in range(3):
            patches = x[:, r : r + h, s : s + w].reshape(-1, c)
            want = np.zeros((64, c), np.uint16)
            rest = patches[7:]  # start at output pixel 7: (h, w) = (1, 1) of the first image
            want[: len(rest)] = rest[:64]
            out = load(t, [0, 0, 0, 0], 64 * 32, ".im2col", f", {{{s}, {r}}}")
            lines = np.arange(64 * 32)
            got = out[swizzled(lines, 1)].view(np.uint16).reshape(64, c)
            np.testing.assert_array_equal(got, want)


def test_im2col_in_one_and_three_dimensions_with_strides() -> None:
    t = image_tensor((3, 9, 16), 8, 12, [0], [-2], estride=(1, 2, 1))
    pixels = [(i, w) for i in range(3) for w in range(0, 7, 2)][2:]
    pixels = [*pixels, *[(3, 0)] * 2][:12]
    rows = [[w + 2, i] for i, w in pixels]
    check_load(t, [8, 4, 0], row_image(dataclasses.replace(t, im2col=None), rows, 8, 8), ".im2col", ", {2}")
    t = image_tensor((2, 3, 4, 5, 8), 8, 40, [0, -1, 0], [-1, -1, -2], oob=1)
    walk = [(w, h, d, i) for i in range(2) for d in range(1) for h in range(-1, 3) for w in range(4)]
    start = walk.index((1, 0, 0, 0))
    walk = (
        walk + [(w, h, d, i) for i in range(2, 5) for d in range(1) for h in range(-1, 3) for w in range(4)]
    )[start : start + 40]
    rows = [[w + 1, h + 2, d + 1, i] for w, h, d, i in walk]
    check_load(
        t,
        [0, 1, 0, 0, 0],
        row_image(dataclasses.replace(t, im2col=None), rows, 0, 8),
        ".im2col",
        ", {1, 2, 1}",
    )


@pytest.mark.parametrize("mode, pixels", [("im2col::w", 24), ("im2col::w::128", 128)])
def test_im2col_w(mode: str, pixels: int) -> None:
    """Along W only; halo pixels follow the main ones, those of the four quarters in turns with ::128."""
    halo, offset = 2, 1
    t = image_tensor((20, 4, 9, 32), 32, 24, [-1], [-1], swizzle=2, wide=True)
    w, image = 3 + offset, 2
    walk = []
    for _ in range(pixels + 64):
        walk.append([w, 1, image])
        w += 1
        if w >= 9 - 1 + offset:
            w, image = -1 + offset, image + 1
    parts = 4 if "128" in mode else 1
    rows = walk[:pixels]
    for h in range(halo):
        rows += [walk[(p + 1) * pixels // parts + h] for p in range(parts)]
    plain = dataclasses.replace(t, im2col=None)
    check_load(t, [0, 3, 1, 2], row_image(plain, rows, 0, 32), "." + mode, f", {{{halo}, {offset}}}")


def test_im2col_stores_without_offsets() -> None:
    t = image_tensor((2, 4, 5, 16), 16, 12, [0, 0], [-1, -1])
    walk = [(w, h, i) for i in range(2) for h in range(3) for w in range(4)]
    rows = [list(p) for p in walk[5 : 5 + 12]]
    image = row_image(dataclasses.replace(t, im2col=None), rows, 0, 16)
    data, want = random_bytes(BOX), t.array.copy()
    want.reshape(-1).view(np.uint8)[image.source] = data[image.target]
    store(t, [0, 1, 1, 0], data, mode=".im2col_no_offs")
    np.testing.assert_array_equal(t.array, want)


# ---- several CTAs ----


MULTICAST = (
    "cp.async.bulk.tensor.1d{group}.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
)


def multicast_body(mask: int, barrier_rank: int, group: str, credits: Sequence[int], issuer: int = 0) -> str:
    """CTA `issuer` loads to the CTAs of `mask`; CTA r expects `credits[r]` bytes."""
    expected = "".join(
        f"setp.eq.u32 %p3, %r20, {r}; @%p3 mov.u32 %r21, {n};\n" for r, n in enumerate(credits)
    )
    return (
        fill(1024)
        + init_barrier(BOX)
        + f"""
mov.u32 %r20, %cluster_ctarank;
mov.u32 %r21, 0;
{expected}
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], %r21;
{CLUSTER_BARRIER}
mov.b64 %rd1, map;
cvta.param.u64 %rd1, %rd1;
mapa.shared::cluster.u32 %r22, %r2, {barrier_rank};
setp.eq.u32 %p3, %r20, {issuer};
and.pred %p3, %p3, %p0;
mov.b16 %h1, {mask};
@%p3 {MULTICAST.format(group=group)} [%r1], [%rd1, {{16}}], [%r22], %h1;
"""
        + wait()
        + CLUSTER_BARRIER
        + write_out("out", 1024)
    )


@pytest.mark.parametrize(
    "mask, barrier_rank, group, credits",
    [
        (0b1111, 0, "", [64, 64, 64, 64]),
        (0b1010, 0, "", [0, 64, 0, 64]),
        (0b1111, 0, ".cta_group::1", [64, 64, 64, 64]),
        (0b1111, 0, ".cta_group::2", [128, 0, 128, 0]),  # the even CTA of each pair
        (0b1111, 1, ".cta_group::2", [0, 128, 0, 128]),
        (0b0110, 2, ".cta_group::2", [64, 0, 64, 0]),
    ],
)
def test_multicast(mask: int, barrier_rank: int, group: str, credits: Sequence[int]) -> None:
    t = tensor("UINT8", [256], [64])
    out = np.zeros((4, 1024), np.uint8)
    body = multicast_body(mask, barrier_rank, group, credits)
    launch(module([MAP.format("map"), POINTER.format("out")], body), t, out, grid=4, cluster=4)
    for rank in range(4):
        want = np.full(1024, UNTOUCHED, np.uint8)
        if mask >> rank & 1:
            want[:64] = t.array[16:80]
        np.testing.assert_array_equal(out[rank], want, err_msg=f"CTA {rank}")


def test_a_pair_may_credit_the_other_member() -> None:
    t = tensor("UINT8", [256], [64])
    body = (
        multicast_body(2, 0, ".cta_group::2", [64, 0], issuer=1)
        .replace(".multicast::cluster [", " [")
        .replace(", %h1;", ";")
    )
    out = np.zeros((2, 1024), np.uint8)
    launch(module([MAP.format("map"), POINTER.format("out")], body), t, out, grid=2, cluster=2)
    np.testing.assert_array_equal(out[1, :64], t.array[16:80])
    assert (out[0] == UNTOUCHED).all()
    single = body.replace(".cta_group::2", "")
    with pytest.raises(vsm.ExecutionError, match="are in different CTAs"):
        launch(module([MAP.format("map"), POINTER.format("out")], single), t, out, grid=2, cluster=2)


def test_a_count_may_be_negative() -> None:
    """The copy completes before its bytes are expected (schedule eager)."""
    t = tensor("UINT8", [64], [64])
    body = load_body(1, [0], 64)
    lines = body.split("\n")
    arrive = next(i for i, x in enumerate(lines) if "arrive.expect_tx" in x)
    copy = next(i for i, x in enumerate(lines) if "cp.async.bulk.tensor" in x)
    lines[arrive], lines[copy] = lines[copy], lines[arrive]
    out = np.zeros(BOX, np.uint8)
    launch(module([MAP.format("map"), POINTER.format("out")], "\n".join(lines)), t, out, schedule="eager")
    np.testing.assert_array_equal(out[:64], t.array[:64])


# ---- maps edited on the device ----


def edit_body(edits: Sequence[str], rank: int, at: Sequence[int], credit: int, in_shared: bool) -> str:
    """Copies the map to shared memory or edits the one in global memory, then loads through the global one."""
    lines = "".join(f"@%p0 tensormap.replace.tile.{e};\n" for e in edits)
    if in_shared:
        lines = lines.replace("SPACE", "shared::cta").replace("MAP", "%r30")
        steps = f"""
add.u32 %r30, %r1, {BOX + 128};
setp.lt.u32 %p3, %r0, 16;
mul.wide.u32 %rd20, %r0, 8; add.u64 %rd20, %rd20, %rd2; @%p3 ld.global.u64 %rd21, [%rd20];
shl.b32 %r31, %r0, 3; add.u32 %r31, %r31, %r30; @%p3 st.shared.u64 [%r31], %rd21;
bar.warp.sync 0xffffffff;
{lines}
bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%r30], 128;
"""
    else:
        steps = lines.replace("SPACE", "global").replace("MAP", "%rd2") + "bar.warp.sync 0xffffffff;"
    body = load_body(rank, at, credit).replace("mov.b64 %rd1, map;\ncvta.param.u64 %rd1, %rd1;", "")
    return f"""
ld.param.u64 %rd1, [map];
ld.param.u64 %rd3, [array];
cvta.to.global.u64 %rd2, %rd1;
{steps}
fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
{body}"""


@pytest.mark.parametrize("in_shared", [False, True])
@pytest.mark.parametrize("from_nothing", [False, True])
def test_replaced_fields(in_shared: bool, from_nothing: bool) -> None:
    """From a map of other values, or from zeros, field by field; the result is that of encoding it anew."""
    want = tensor("FLOAT16", [70, 20, 6], [32, 12, 2], swizzle=2, estride=(1, 2, 1), offset=16)
    start = tensor("UINT8", [16, 4], [16, 1])
    at = [-3, 15, 4]
    image = tile_image(want, at)
    edits = [
        "global_address.SPACE.b1024.b64 [MAP], %rd3",
        "rank.SPACE.b1024.b32 [MAP], 2",
        "elemtype.SPACE.b1024.b32 [MAP], 6",
    ]
    edits += [
        f"{f}.SPACE.b1024.b32 [MAP], {i}, {v}"
        for f, vs in (("box_dim", want.box), ("global_dim", want.gdim), ("element_stride", want.estride))
        for i, v in enumerate(vs)
    ]
    edits += [f"global_stride.SPACE.b1024.b64 [MAP], {i}, {v}" for i, v in enumerate(want.gstride_bytes)]
    edits += ["interleave_layout.SPACE.b1024.b32 [MAP], 0", "swizzle_mode.SPACE.b1024.b32 [MAP], 2"]
    edits += ["swizzle_atomicity.SPACE.b1024.b32 [MAP], 0", "fill_mode.SPACE.b1024.b32 [MAP], 1"]
    body = edit_body(edits, 3, at, image.credit, in_shared)
    # The map lies in a buffer; its address in the kernel is that of the array.
    storage, out = np.zeros(256, np.uint8), np.zeros(BOX, np.uint8)
    storage = storage[-storage.ctypes.data % 128 :][:128]
    if not from_nothing:
        storage[...] = np.frombuffer(dataclasses.replace(start, array=want.array).encode(0), np.uint8)
    m = module([POINTER.format(x) for x in ("map", "array", "out")], body)
    array = vsm.Struct(bytes(8), {0: (want.array, want.offset)})
    launch(m, storage, array, out)
    np.testing.assert_array_equal(out, image.load(want.array, BOX, (0xF7, 0x7F)))


@pytest.mark.parametrize(
    "edit, message",
    [
        ("swizzle_atomicity.SPACE.b1024.b32 [MAP], 1", r"swizzle atomicity is 1, allowed: 0 \(16B\) unless"),
        (
            "global_stride.SPACE.b1024.b64 [MAP], 0, 24",
            r"gstride\[0\] in bytes is 24, allowed: multiples of 16",
        ),
        (
            "box_dim.SPACE.b1024.b32 [MAP], 0, 12",
            r"box\[0\] in bits is 96, allowed: multiples of 128",
        ),
        ("box_dim.SPACE.b1024.b32 [MAP], 0, 257", r"new value of the field is 257, allowed: up to 256"),
        ("fill_mode.SPACE.b1024.b32 [MAP], 1", r"fill mode is 1 \(NaN\), allowed: 0"),
        ("rank.SPACE.b1024.b32 [MAP], 0", r"the instruction is for rank 2, the tensor map has rank 1"),
    ],
)
def test_bad_edits_are_found(edit: str, message: str) -> None:
    t = tensor("UINT8", [64, 8], [32, 4], swizzle=1)
    storage, out = np.zeros(256, np.uint8), np.zeros(BOX, np.uint8)
    storage = storage[-storage.ctypes.data % 128 :][:128]
    storage[...] = np.frombuffer(t.encode(0), np.uint8)
    m = module([POINTER.format(x) for x in ("map", "array", "out")], edit_body([edit], 2, [0, 0], 128, False))
    with pytest.raises(vsm.ExecutionError, match=message):
        launch(m, storage, t.array, out)


# ---- refusals ----


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"dtype": "FLOAT17"}, r"dtype is 'FLOAT17', allowed: UINT8, UINT16"),
        ({"gdim": (64, 0)}, r"gdim\[1\] is 0, allowed: 1 to 4294967296"),
        ({"gdim": ()}, r"rank is 0, allowed: 1 to 5"),
        ({"gstride_bytes": (72,)}, r"gstride\[0\] in bytes is 72, allowed: multiples of 16"),
        ({"gstride_bytes": (1 << 40,)}, r"gstride\[0\] is 1099511627776, allowed: below 2\^40"),
        ({"gstride_bytes": ()}, r"length of gstride is 0, allowed: 1 for rank 2"),
        ({"box": (32, 257)}, r"box\[1\] is 257, allowed: 1 to 256"),
        ({"box": (24, 4)}, r"box\[0\] in bits is 192, allowed: multiples of 128"),
        ({"estride": (1, 9)}, r"estride\[1\] is 9, allowed: 1 to 8"),
        ({"swizzle": 7}, r"swizzle is 7, allowed: 0 to 6"),
        (
            {"swizzle": 1, "box": (48, 4)},
            r"box\[0\] is 48 bytes, allowed: at most the 32 bytes of the swizzle span",
        ),
        ({"interleave": 1}, r"rank of an interleaved tensor is 2, allowed: 3 to 5"),
        ({"oob": 1}, r"fill mode is 1 \(NaN\), allowed: 0 \(zeros\)"),
        ({"offset": 8}, r"address is 8, allowed: multiples of 16"),
        ({"dtype": "16U4_ALIGN16B", "gstride_bytes": (64,)}, r"box\[0\] is 32, allowed: 128"),
        (
            {"im2col": ((0,), (0,), 32, 8)},
            r"rank of an im2col tensor is 2, allowed: 3 to 5",
        ),
    ],
)
def test_encoding_refuses(fields: dict[str, Any], message: str) -> None:
    t = vsm.TensorMap(np.zeros(1024, np.uint8), "UINT8", (64, 8), (64,), (32, 4))
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(t, **fields).encode(0)


@pytest.mark.parametrize(
    "change, message",
    [
        (("[%r1], [%rd1", "[%r24], [%rd1"), r"destination address 0x[0-9a-f]+ is not aligned to 128 bytes"),
        (("1d.", "2d."), r"has 1 coordinates, needs 2"),
        (
            (".mbarrier::complete_tx::bytes [", " ["),
            r"needs one of the modifiers \.mbarrier::complete_tx::bytes",
        ),
        ((".shared::cta.global.", ".shared::cta.global.im2col."), r"im2col is for \.3d, \.4d and \.5d"),
        (
            (".shared::cta.global.", ".shared::cta.global.tile::gather4."),
            r"gather4 and scatter4 are for \.2d",
        ),
        ((".shared::cta.global.", ".shared::cta.global.tile::scatter4."), r"this mode is for stores"),
        (
            ("bytes [%r1]", "bytes.multicast::cluster [%r1]"),
            r"\.multicast::cluster needs the destination \.shared::cluster",
        ),
        (("[%rd1, {8}]", "[%rd1]"), r"expected \[tensor map, \{coordinates\}\]"),
        (("[%r1], [%rd1", "[%r25], [%rd1"), r"leaves the \d+ bytes of the CTA's shared memory"),
        (("add.u64 %rd1, %rd1, 0", "add.u64 %rd1, %rd1, 64"), r"128-byte access at parameter address"),
    ],
)
def test_instructions_are_refused(change: tuple[str, str], message: str) -> None:
    t = tensor("UINT8", [64], [32])
    body = load_body(1, [8], 32).replace(
        "cvta.param.u64 %rd1, %rd1;",
        f"cvta.param.u64 %rd1, %rd1; add.u64 %rd1, %rd1, 0;\nadd.u32 %r24, %r1, 16; add.u32 %r25, %r1, {BOX + 256};",
    )
    assert change[0] in body
    with pytest.raises((vsm.LoadError, vsm.ExecutionError), match=message):
        launch(
            module([MAP.format("map"), POINTER.format("out")], body.replace(*change)),
            t,
            np.zeros(BOX, np.uint8),
        )


def test_a_box_that_reaches_out_of_the_buffer_is_named() -> None:
    t = dataclasses.replace(tensor("UINT8", [64, 8], [32, 4]), gdim=(64, 800))
    with pytest.raises(
        vsm.ExecutionError, match=r"outside all buffers(.|\n)*cp\.async\.bulk\.tensor\.2d(.|\n)*thread 0"
    ):
        load(t, [0, 700], 128)


def test_bytes_that_are_no_map() -> None:
    body = load_body(1, [8], 32)
    with pytest.raises(vsm.ExecutionError, match="the 128 bytes hold no tensor map"):
        launch(module([MAP.format("map"), POINTER.format("out")], body), bytes(128), np.zeros(BOX, np.uint8))


def test_prefetch_does_nothing() -> None:
    body = """
mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1;
prefetch.tensormap [%rd1];
cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {0, 0}];
cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%rd1, {0, 0, 1, 2, 3}];
mov.b16 %h1, 0;
cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%rd1, {0, 0, 1, 2}], {%h1, %h1};
"""
    launch(module([MAP.format("map")], body), tensor("UINT8", [64, 8], [32, 4]))
