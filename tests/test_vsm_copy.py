"""cp.async, bulk copies, asynchronous stores and launch control of the virtual SM (PTX ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from copy_kernels import (
    CLUSTER_BARRIER,
    POINTER,
    UNTOUCHED,
    WORD,
    fill,
    init_barrier,
    loop,
    module,
    read_in,
    wait,
    write_out,
)

from jax_tcgen05 import vsm

SIZE = 1024  # bytes of shared memory in front of the mbarrier
RNG = np.random.default_rng(20260802)
NAMES = ("data", "out")
PARAMETERS = [POINTER.format(name) for name in NAMES]


def random_bytes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def launch(m: vsm.Module, *args: Any, **options: Any) -> vsm.Result:
    settings = {
        "grid": 1,
        "block": 32,
        "shared_bytes": SIZE + 256,
        "check": "strict",
        "threads": 1,
        "step_limit": 1 << 22,
    }
    return m.launch("k", args=args, **(settings | options))


def run(body: str, data: np.ndarray, size: int = SIZE, ctas: int = 1, **options: Any) -> np.ndarray:
    """Shared memory of each CTA after `body`, which had `data` at `%rd2` (global)."""
    out = np.zeros((ctas, size), np.uint8)
    text = "ld.param.u64 %rd2, [data];\n" + body + write_out("out", size)
    launch(module(PARAMETERS, text), data, out, **options)
    return out if ctas > 1 else out[0]


# ---- cp.async ----


@pytest.mark.parametrize("schedule", vsm.SCHEDULES)
@pytest.mark.parametrize("cache, size", [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
def test_cp_async(cache: str, size: int, schedule: str) -> None:
    """Every lane copies `size` bytes of which only lane % (size + 1) are read; lanes from 24 on copy nothing."""
    body = (
        fill(SIZE)
        + f"""
mul.lo.u32 %r3, %r0, {size}; add.u32 %r4, %r1, %r3;
cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd2;
rem.u32 %r5, %r0, {size + 1};
setp.lt.u32 %p3, %r0, 24;
@%p3 cp.async.{cache}.shared.global.L2::128B [%r4], [%rd3], {size}, %r5;
cp.async.commit_group;
cp.async.wait_group 0;
"""
    )
    data = random_bytes(SIZE)
    want = np.full(SIZE, UNTOUCHED, np.uint8)
    for lane in range(24):
        part = want[lane * size : (lane + 1) * size]
        part[...] = 0
        part[: lane % (size + 1)] = data[lane * size :][: lane % (size + 1)]
    np.testing.assert_array_equal(run(body, data, schedule=schedule), want)


def test_cp_async_ignores_its_source() -> None:
    body = (
        fill(SIZE)
        + """
setp.lt.u32 %p3, %r0, 7; shl.b32 %r3, %r0, 4; add.u32 %r4, %r1, %r3;
cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd2;
cp.async.cg.shared::cta.global [%r4], [%rd3], 16, %p3;
cp.async.wait_all;
"""
    )
    data = random_bytes(SIZE)
    want = np.where(np.arange(512) < 112, 0, data[:512])
    np.testing.assert_array_equal(run(body, data)[:512], want)


def test_groups_complete_in_order() -> None:
    """wait_group 1 waits for all groups but the newest: the copy of the newest is not there under schedule late."""
    copy = "cp.async.ca.shared.global [%r4+{at}], [%rd3+{at}], 4; cp.async.commit_group;\n"
    body = (
        fill(SIZE)
        + "shl.b32 %r3, %r0, 2; add.u32 %r4, %r1, %r3; cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd2;\n"
        + "".join(copy.format(at=128 * i) for i in range(3))
        + "cp.async.wait_group 1;\nld.shared.u32 %r20, [%r4+128]; ld.shared.u32 %r21, [%r4+256];\n"
        + "cp.async.wait_group 0;\nst.shared.u32 [%r4+512], %r20; st.shared.u32 [%r4+640], %r21;\n"
    )
    data = random_bytes(SIZE)
    out = run(body, data, schedule="late", check="normal")  # strict mode refuses the early read
    np.testing.assert_array_equal(out[:384], data[:384])
    np.testing.assert_array_equal(out[512:640], data[128:256])
    assert (out[640:768] == UNTOUCHED).all()


@pytest.mark.parametrize("noinc", [False, True])
def test_copies_arrive_at_an_mbarrier(noinc: bool) -> None:
    """With .noinc the barrier has to count the copies' arrivals; without it they bring their own."""
    count = 64 if noinc else 32
    body = (
        fill(SIZE)
        + init_barrier(SIZE, count)
        + f"""
shl.b32 %r3, %r0, 4; add.u32 %r4, %r1, %r3; cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd2;
cp.async.cg.shared.global [%r4], [%rd3], 16;
cp.async.mbarrier.arrive{".noinc" if noinc else ""}.shared.b64 [%r2];
mbarrier.arrive.shared.b64 _, [%r2];
"""
        + wait()
    )
    data = random_bytes(SIZE)
    np.testing.assert_array_equal(run(body, data, schedule="late")[:512], data[:512])


@pytest.mark.parametrize(
    "text, message",
    [
        ("cp.async.cg.shared.global [%r1], [%rd2], 8;", r"size is 8, allowed: 16 with \.cg"),
        ("cp.async.ca.shared.global [%r1], [%rd2], 2;", r"size is 2, allowed: 4, 8, 16 with \.ca"),
        ("cp.async.ca.shared.global [%r1], [%rd2], 4, 5;", r"source size 5 exceeds the copy's 4 bytes"),
        ("cp.async.ca.shared.global [%r1], [%rd2+2], 4;", r"source address 0x[0-9a-f]+ is not aligned to 4"),
        ("cp.async.ca.shared.global [%r1+4], [%rd2], 16;", r"shared address 0x404 is not aligned to 16"),
        (
            "cp.async.ca.global.global [%r1], [%rd2], 4;",
            r"needs one of the modifiers \.shared, \.shared::cta",
        ),
        ("cp.async.shared.global [%r1], [%rd2], 4;", r"needs one of the modifiers \.ca, \.cg"),
    ],
)
def test_cp_async_refuses(text: str, message: str) -> None:
    with pytest.raises((vsm.LoadError, vsm.ExecutionError), match=message):
        run(text, random_bytes(SIZE))


# ---- bulk copies ----

BULK_IN = "cp.async.bulk.{to}.global.mbarrier::complete_tx::bytes"


def bulk_body(copy: str, credit: int) -> str:
    return (
        fill(SIZE)
        + init_barrier(SIZE)
        + f"@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {credit};\n@%p0 {copy}\n"
        + wait()
    )


@pytest.mark.parametrize("to", ["shared::cta", "shared::cluster"])
def test_bulk_copy_in(to: str) -> None:
    data = random_bytes(SIZE)
    out = run(bulk_body(f"{BULK_IN.format(to=to)} [%r1+32], [%rd2+16], 80, [%r2];", 80), data)
    want = np.full(SIZE, UNTOUCHED, np.uint8)
    want[32:112] = data[16:96]
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    "text, message",
    [
        ("[%r1], [%rd2], 24, [%r2]", r"size of a bulk copy is 24 bytes, allowed: multiples of 16"),
        ("[%r1+8], [%rd2], 16, [%r2]", r"destination address 0x408 is not aligned to 16 bytes"),
        (
            "[%r1], [%rd2+8], 16, [%r2]",
            r"global address 0x[0-9a-f]+ of a bulk copy is not aligned to 16 bytes",
        ),
        ("[%r1], [%rd2], 2048, [%r2]", r"destination \[0x400, 0xc00\) leaves the 1280 bytes"),
        (
            "[%r1], [%rd2+1008], 32, [%r2]",
            r"32-byte access at global address (.|\n)*byte 1008 of buffer 'data'",
        ),
        ("[%r1], [%rd2], 16, [%r2+8]", r"no initialised mbarrier at shared address 0x808"),
        ("[%r1], [%rd2], 16, [%r2+4]", r"mbarrier address 0x804 is not aligned to 8 bytes"),
        ("[%r1], [%rd2], 16", r"has 3 operands, needs 4"),
    ],
)
def test_bulk_copy_refuses(text: str, message: str) -> None:
    with pytest.raises((vsm.LoadError, vsm.ExecutionError), match=message):
        run(bulk_body(f"{BULK_IN.format(to='shared::cta')} {text};", 16), random_bytes(SIZE))


def test_bulk_copy_refuses_other_routes() -> None:
    for copy, message in (
        (
            "cp.async.bulk.global.global.bulk_group [%rd2], [%rd2], 16;",
            r"does not copy from \.global to \.global",
        ),
        (
            "cp.async.bulk.shared::cta.global [%r1], [%rd2], 16, [%r2];",
            r"needs one of the modifiers \.mbarrier",
        ),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u16 [%rd2], [%r1], 16;",
            r"type \.u16 is not allowed",
        ),
        ("multimem.st.global.u32 [%rd2], %r0;", r"there is one device"),
    ):
        with pytest.raises(vsm.LoadError, match=message):
            run(copy, random_bytes(SIZE))


def test_bulk_copy_multicast() -> None:
    body = (
        fill(SIZE)
        + init_barrier(SIZE)
        + f"""
mov.u32 %r20, %cluster_ctarank;
setp.ne.u32 %p3, %r20, 1; selp.u32 %r21, 64, 0, %p3;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], %r21;
{CLUSTER_BARRIER}
setp.eq.u32 %p3, %r20, 2; and.pred %p3, %p3, %p0; mov.b16 %h1, 5;
@%p3 {BULK_IN.format(to="shared::cluster")}.multicast::cluster [%r1], [%rd2], 64, [%r2], %h1;
"""
        + wait()
        + CLUSTER_BARRIER
    )
    data = random_bytes(SIZE)
    out = run(body, data, ctas=3, grid=3, cluster=3)
    for rank in range(3):
        want = np.full(SIZE, UNTOUCHED, np.uint8)
        if rank != 1:
            want[:64] = data[:64]
        np.testing.assert_array_equal(out[rank], want)
    with pytest.raises(
        vsm.ExecutionError, match=r"the mask of CTAs is 0x5, allowed: CTAs of this cluster of 2"
    ):
        run(body.replace("%r20, 2;", "%r20, 0;"), data, ctas=2, grid=2, cluster=2)


@pytest.mark.parametrize(
    "op, dtype",
    [
        ("", np.uint32),
        ("add.u32", np.uint32),
        ("add.u64", np.uint64),
        ("max.s32", np.int32),
        ("xor.b32", np.uint32),
        ("inc.u32", np.uint32),
    ],
)
def test_bulk_copy_to_another_cta(op: str, dtype: Any) -> None:
    """From the shared memory of each CTA to that of the other, where the other's mbarrier counts the bytes."""
    name = "cp.reduce.async.bulk" if op else "cp.async.bulk"
    route = "shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    body = (
        read_in("data", 128)
        + init_barrier(SIZE)
        + f"""
mov.u32 %r20, %cluster_ctarank; xor.b32 %r21, %r20, 1;
setp.eq.and.u32 %p3, %r20, 1, %p0;
@%p3 ld.shared.u32 %r22, [%r1]; @%p3 add.u32 %r22, %r22, 77; @%p3 st.shared.u32 [%r1], %r22;
fence.proxy.async;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;
mapa.shared::cluster.u32 %r23, %r1, %r21; mapa.shared::cluster.u32 %r24, %r2, %r21;
{CLUSTER_BARRIER}
@%p0 {name}.{route}{"." + op if op else ""} [%r23+64], [%r1], 64, [%r24];
"""
        + wait()
        + CLUSTER_BARRIER
    )
    data = RNG.integers(0, 1 << 20, 32).astype(np.uint32)
    out = run(body, data.view(np.uint8), 128, ctas=2, grid=2, cluster=2)
    for rank in range(2):
        sent = data[:16].copy()
        sent[0] += 77 * (rank == 0)  # what the other CTA has there
        old, new = data[16:].view(dtype), sent.view(dtype)
        want = {
            "": new,
            "add": old + new,
            "max": np.maximum(old, new),
            "xor": old ^ new if dtype == np.uint32 else old,
            "inc": np.where(old >= new, 0, old + 1).astype(np.uint32) if dtype == np.uint32 else old,
        }[op.split(".")[0]]
        np.testing.assert_array_equal(out[rank, 64:].view(dtype), want)


def test_bulk_copy_out_with_a_byte_mask() -> None:
    body = (
        read_in("data", SIZE)
        + """
ld.param.u64 %rd3, [target]; mov.b16 %h1, 0x8105;
@%p0 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd3+16], [%r1], 48, %h1;
@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd3+128], [%r1+128], 64;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
"""
    )
    data, target = random_bytes(SIZE), random_bytes(SIZE)
    want = target.copy()
    want[128:192] = data[128:192]
    for i in range(48):
        if 0x8105 >> i % 16 & 1:
            want[16 + i] = data[i]
    launch(module([POINTER.format("data"), POINTER.format("target")], body), data, target)
    np.testing.assert_array_equal(target, want)


BULK_REDUCTIONS = [
    ("add.u32", np.uint32), ("add.s32", np.int32), ("add.u64", np.uint64), ("inc.u32", np.uint32),
    ("dec.u32", np.uint32), ("min.s64", np.int64), ("max.u64", np.uint64), ("min.s32", np.int32),
    ("and.b32", np.uint32), ("or.b64", np.uint64),
    ("xor.b64", np.uint64), ("add.f32", np.float32), ("add.f64", np.float64), ("add.noftz.f16", np.float16),
    ("add.noftz.bf16", ml_dtypes.bfloat16), ("min.f16", np.float16), ("max.bf16", ml_dtypes.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize("op, dtype", BULK_REDUCTIONS)
def test_bulk_reductions_to_global_memory(op: str, dtype: Any) -> None:
    body = (
        read_in("data", 256)
        + f"""
ld.param.u64 %rd3, [target];
@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%rd3], [%r1], 256;
@%p0 cp.async.bulk.commit_group;
"""
    )
    n = 256 // np.dtype(dtype).itemsize
    low = 0 if np.dtype(dtype).kind == "u" else -50
    new, old = (RNG.integers(low, 50, n).astype(np.int64).astype(dtype) for _ in range(2))
    wide = (lambda x: x.astype(np.float64)) if np.dtype(dtype).kind not in "iu" else (lambda x: x)
    a, b = wide(old), wide(new)
    want = {
        "add": lambda: a + b,
        "min": lambda: np.minimum(a, b),
        "max": lambda: np.maximum(a, b),
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
        "inc": lambda: np.where(a >= b, 0, a + 1),
        "dec": lambda: np.where((a == 0) | (a > b), b, a - 1),
    }[op.split(".")[0]]()
    target = old.copy()
    # No wait for the group: what is under way when the last thread exits still lands.
    launch(
        module([POINTER.format("data"), POINTER.format("target")], body),
        new.view(np.uint8),
        target,
        schedule="late",
    )
    np.testing.assert_array_equal(target.view(np.uint8), want.astype(dtype).view(np.uint8))


def test_wait_group_read_frees_the_source() -> None:
    """After wait_group.read the source may be overwritten; without it the store takes what is there later."""
    body = (
        read_in("data", 64)
        + """
ld.param.u64 %rd3, [target];
@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r1], 64;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group.read 0;
bar.warp.sync 0xffffffff;
"""
        + fill(64, 0x11)
    )
    data, target = random_bytes(64), np.zeros(64, np.uint8)
    parameters = [POINTER.format("data"), POINTER.format("target")]
    launch(module(parameters, body), data, target, schedule="late")
    np.testing.assert_array_equal(target, data)
    without = module(parameters, body.replace("@%p0 cp.async.bulk.wait_group.read 0;", ""))
    launch(without, data, target, schedule="late", check="normal")
    assert (target == 0x11).all()
    with pytest.raises(vsm.ExecutionError, match="is not ordered after the read by warp 0"):
        launch(without, data, target)


def test_bulk_groups_may_stay_open() -> None:
    """wait_group 1 returns while the newest group has not landed."""
    body = (
        read_in("data", 128)
        + """
ld.param.u64 %rd3, [target];
@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r1], 64;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd3+64], [%r1+64], 64;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 1;
@%p0 ld.global.u32 %r20, [%rd3]; @%p0 ld.global.u32 %r21, [%rd3+64];
@%p0 st.global.u32 [%rd3+128], %r20; @%p0 st.global.u32 [%rd3+132], %r21;
"""
    )
    data, target = random_bytes(128), np.zeros(144, np.uint8)
    launch(module([POINTER.format("data"), POINTER.format("target")], body), data, target, schedule="late")
    np.testing.assert_array_equal(target[:128], data)
    np.testing.assert_array_equal(target[128:132], data[:4])
    assert not target[132:136].any()


# ---- asynchronous stores ----


def test_st_async_and_red_async() -> None:
    """Every thread of each CTA stores to the other CTA; its mbarrier counts the bytes."""
    body = (
        fill(SIZE, 0)
        + init_barrier(SIZE)
        + f"""
mov.u32 %r20, %cluster_ctarank; xor.b32 %r21, %r20, 1;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {32 * (16 + 8 + 4)};
shl.b32 %r3, %r0, 4; add.u32 %r4, %r1, %r3; mapa.shared::cluster.u32 %r23, %r4, %r21;
mapa.shared::cluster.u32 %r25, %r1, %r21; mapa.shared::cluster.u32 %r24, %r2, %r21;
{CLUSTER_BARRIER}
add.u32 %r5, %r0, 1; mul.lo.u32 %r6, %r5, 3; cvt.u64.u32 %rd3, %r5;
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r23], {{%r0, %r5, %r6, %r20}}, [%r24];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%r25+512], %rd3, [%r24];
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%r25+520], %r6, [%r24];
"""
        + wait()
        + CLUSTER_BARRIER
    )
    out = run(body, random_bytes(16), ctas=2, grid=2, cluster=2, schedule="late")
    lane = np.arange(32)
    for rank in range(2):
        want = np.stack([lane, lane + 1, 3 * (lane + 1), np.full(32, 1 - rank)], 1)
        np.testing.assert_array_equal(out[rank, :512].view(np.uint32).reshape(32, 4), want)
        assert out[rank, 512:520].view(np.uint64)[0] == 32 * 33 // 2
        assert out[rank, 520:524].view(np.uint32)[0] == 96


def test_st_bulk() -> None:
    body = fill(SIZE) + "@%p0 st.bulk.weak.shared::cta [%r1+64], 128, 0;\nbar.sync 0;\n"
    out = run(body, random_bytes(16))
    want = np.full(SIZE, UNTOUCHED, np.uint8)
    want[64:192] = 0
    np.testing.assert_array_equal(out, want)


# ---- launch control ----


def persistent(cluster: int, multicast: bool) -> str:
    """Every CTA adds 1 to the counter of its CTA number, then to those of the CTAs that it takes over."""
    how = "shared::cta.mbarrier::complete_tx::bytes" + (".multicast::cluster::all" if multicast else "")
    return f"""
ld.param.u64 %rd2, [counters];
mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ctaid.y; mov.u32 %r22, %cluster_ctarank; mov.u32 %r23, 0;
{init_barrier(SIZE)}
{CLUSTER_BARRIER}
NEXT:
mov.u32 %r24, %nctaid.x; mad.lo.u32 %r25, %r21, %r24, %r20; mul.wide.u32 %rd3, %r25, 4; add.u64 %rd3, %rd3, %rd2;
@%p0 red.global.add.u32 [%rd3], 1;
@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 16;
{CLUSTER_BARRIER}
setp.eq.u32 %p3, %r22, 0; and.pred %p3, %p3, %p0;
@%p3 clusterlaunchcontrol.try_cancel.async.{how}.b128 [%r1], [%r2];
AGAIN:
mbarrier.try_wait.parity.shared.b64 %p2, [%r2], %r23;
@!%p2 bra AGAIN;
xor.b32 %r23, %r23, 1;
ld.shared.b128 %q0, [%r1];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q0;
@!%p4 bra DONE;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r20, %r21, %r26, _}}, %q0;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r27, %q0;
setp.ne.u32 %p5, %r20, %r27; @%p5 trap;
clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r27, %q0;
setp.ne.u32 %p5, %r26, %r27; @%p5 trap;
add.u32 %r20, %r20, %r22;
bra NEXT;
DONE:
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("cluster, multicast", [(1, False), (2, True)])
def test_persistent_ctas_take_over_the_grid(cluster: int, multicast: bool, threads: int) -> None:
    counters = np.zeros((3, 8), np.uint32)
    m = module([POINTER.format("counters")], persistent(cluster, multicast))
    launch(m, counters, grid=(8, 3), cluster=cluster, threads=threads)
    assert (counters == 1).all(), counters


def test_without_effect() -> None:
    body = """
griddepcontrol.wait; griddepcontrol.launch_dependents;
setmaxnreg.inc.sync.aligned.u32 232; setmaxnreg.dec.sync.aligned.u32 24;
ld.param.u64 %rd2, [data];
createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;
prefetch.global.L2 [%rd2]; applypriority.global.L2::evict_normal [%rd2], 128;
cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd2], 64, %rd3;
"""
    launch(module([POINTER.format("data")], body), random_bytes(128))
    with pytest.raises(
        vsm.LoadError, match=r"number of registers is 20, allowed: multiples of 8 from 24 to 256"
    ):
        module([WORD.format("x")], "setmaxnreg.inc.sync.aligned.u32 20;")


def test_a_fault_in_an_effect_names_its_instruction() -> None:
    """The mbarrier is gone when the copy takes effect."""
    body = (
        init_barrier(SIZE)
        + """
ld.param.u64 %rd2, [data];
@%p0 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r2], 16;
@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd2], 16, [%r2];
@%p0 mbarrier.inval.shared.b64 [%r2];
"""
        + loop(64, "ld.shared.u32 %r13, [%r10];")
    )
    message = (
        r"no initialised mbarrier at shared address 0x800 \(when it took effect\)(.|\n)*cp\.async\.bulk\."
    )
    with pytest.raises(vsm.ExecutionError, match=message):
        launch(module([POINTER.format("data")], body), random_bytes(64), schedule="late", check="normal")
