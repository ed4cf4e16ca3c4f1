"""The virtual SM's control flow, barriers, warps, atomics and memory errors."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from jax_tcgen05 import vsm

HEAD = ".version 9.1\n.target sm_100a\n.address_size 64\n"


def kernel(body: str, before: str = "", attributes: str = "") -> str:
    """Kernel `k(out, in)`: %t the thread's number, %o its word in `out`, %i in `in`; %r, %d, %p to use."""
    return f"""{HEAD}{before}
.visible .entry k(.param .u64 out, .param .u64 in) {attributes} {{
.reg .b32 %r<20>, %t, %c, %n; .reg .b64 %d<10>, %o, %i, %out, %in; .reg .pred %p<6>;
ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x;
mad.lo.u32 %r0, %c, %n, %t; mul.wide.u32 %d0, %r0, 4; add.s64 %o, %out, %d0; add.s64 %i, %in, %d0;
{body}
ret;
}}
"""


def run(
    body: str, given: np.ndarray, *, before: str = "", attributes: str = "", **launch: object
) -> np.ndarray:
    out = np.zeros_like(given)
    options: dict[str, object] = {"grid": 1, "block": given.size, **launch}
    vsm.Module(kernel(body, before, attributes)).launch("k", args=(out, given), **options)  # type: ignore[arg-type]
    return out


def fails(body: str, *, threads: int = 32, before: str = "", **launch: object) -> str:
    with pytest.raises(vsm.ExecutionError) as error:
        run(body, np.zeros(threads, np.uint32), before=before, **launch)
    return str(error.value)


RANDOM = np.random.default_rng(5)
#: Members of a warp together: 64 threads, a warp and a part of one, and one.
SIZES = (64, 50, 1)


# ---- divergence ----


@pytest.mark.parametrize("threads", SIZES)
def test_branches_of_both_kinds(threads: int) -> None:
    x = np.arange(threads, dtype=np.uint32)
    body = """
    ld.global.u32 %r1, [%i]; and.b32 %r2, %r1, 1; setp.eq.u32 %p0, %r2, 0; @%p0 bra EVEN;
    mul.lo.u32 %r1, %r1, 3; bra JOIN;
    EVEN: setp.gt.u32 %p1, %r1, 20; @!%p1 bra SMALL; add.u32 %r1, %r1, 1000; bra JOIN;
    SMALL: add.u32 %r1, %r1, 7;
    JOIN: activemask.b32 %r3; shl.b32 %r3, %r3, 16; add.u32 %r1, %r1, %r3; st.global.u32 [%o], %r1;
    """
    full = [(1 << min(32, threads - w)) - 1 for w in range(0, threads, 32)]
    want = [
        (3 * v if v & 1 else v + 1000 if v > 20 else v + 7) + (full[v // 32] << 16) for v in range(threads)
    ]
    assert run(body, x).tolist() == [w & 0xFFFFFFFF for w in want]  # and all lanes meet again at JOIN


@pytest.mark.parametrize("threads", SIZES)
def test_loops_with_trip_counts_of_their_own(threads: int) -> None:
    """Collatz steps: every thread leaves the loop at a time of its own."""
    x = RANDOM.integers(1, 5000, threads).astype(np.uint32)

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    body = """
    ld.global.u32 %r1, [%i]; mov.u32 %r2, 0;
    LOOP: setp.eq.u32 %p0, %r1, 1; @%p0 bra DONE; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0;
    @%p1 shr.u32 %r1, %r1, 1; @!%p1 mad.lo.u32 %r1, %r1, 3, 1; add.u32 %r2, %r2, 1; bra LOOP;
    DONE: st.global.u32 [%o], %r2;
    """
    assert run(body, x).tolist() == [steps(int(v)) for v in x]


def test_nested_divergent_loops_and_early_exits() -> None:
    body = """
    mov.u32 %r1, 0; mov.u32 %r2, 0; and.b32 %r9, %t, 7; setp.eq.u32 %p3, %r9, 7; @%p3 exit;
    OUTER: setp.ge.u32 %p0, %r1, %r9; @%p0 bra END; mov.u32 %r3, 0;
    INNER: add.u32 %r2, %r2, %r3; add.u32 %r3, %r3, 1; setp.le.u32 %p1, %r3, %r1; @%p1 bra INNER;
    add.u32 %r1, %r1, 1; bra OUTER;
    END: st.global.u32 [%o], %r2;
    """
    want = [0 if t & 7 == 7 else sum(sum(range(i + 1)) for i in range(t & 7)) for t in range(64)]
    assert run(body, np.zeros(64, np.uint32)).tolist() == want


def test_lanes_of_a_warp_wait_for_each_other() -> None:
    """A spinning lane must not starve the lane of its own warp that it waits for."""
    body = """
    setp.ne.u32 %p0, %t, 31; @%p0 bra SPIN; mov.u32 %r2, 200;
    WORK: sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra WORK;
    st.global.u32 [%out+124], 77; bra END;
    SPIN: ld.volatile.global.u32 %r1, [%out+124]; setp.eq.u32 %p1, %r1, 0; @%p1 bra SPIN;
    st.global.u32 [%o], %r1;
    END:
    """
    assert run(body, np.zeros(32, np.uint32)).tolist() == [77] * 32


def test_warps_wait_for_each_other() -> None:
    """A chain: each warp spins until the one before it has stored; the last warp starts it."""
    body = """
    shr.u32 %r1, %t, 5; setp.eq.u32 %p0, %r1, 7; @%p0 bra GO;
    SPIN: ld.relaxed.gpu.global.u32 %r2, [%o+128]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPIN;
    GO: @%p0 mov.u32 %r2, 0; add.u32 %r2, %r2, 1; st.global.u32 [%o], %r2;
    """
    assert run(body, np.zeros(256, np.uint32)).tolist() == [8 - t // 32 for t in range(256)]


@pytest.mark.parametrize("threads", [1, 2])
def test_ctas_wait_for_each_other(threads: int) -> None:
    """CTA 0 waits for the last one, with fewer host threads than CTAs."""
    body = """
    setp.ne.u32 %p0, %c, 0; @%p0 bra STORE;
    SPIN: ld.relaxed.gpu.global.u32 %r2, [%out+508]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPIN;
    STORE: add.u32 %r3, %c, 1; st.global.u32 [%o], %r3;
    """
    out = run(body, np.zeros(128, np.uint32), grid=4, block=32, threads=threads)
    assert out.tolist() == [1 + i // 32 for i in range(128)]


def test_divergent_calls() -> None:
    before = """
    .func (.param .b32 r) fib (.param .b32 n) { .reg .b32 %a, %b, %n, %x; .reg .pred %p;
      ld.param.b32 %n, [n]; mov.b32 %a, 0; mov.b32 %b, 1;
      L: setp.eq.u32 %p, %n, 0; @%p bra E; add.u32 %x, %a, %b; mov.b32 %a, %b; mov.b32 %b, %x; sub.u32 %n, %n, 1; bra L;
      E: st.param.b32 [r], %a; ret; }
    """
    body = """
    .param .b32 x, y; and.b32 %r1, %t, 15; st.param.b32 [x], %r1; mov.u32 %r2, 0; setp.ne.u32 %p0, %r1, 3;
    @%p0 call (y), fib, (x); @%p0 ld.param.b32 %r2, [y]; st.global.u32 [%o], %r2;
    """
    fib = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]
    want = [0 if t % 16 == 3 else fib[t % 16] for t in range(64)]
    assert run(body, np.zeros(64, np.uint32), before=before).tolist() == want


# ---- warps: shuffles, votes, matches, reductions, elections ----

SEGMENTS = (0x1F, 0, 0x1C03, 0x181F, 0x1000)  # clamp in bits 0-4, segment mask in bits 8-12


def shuffle(mode: str, a: np.ndarray, b: np.ndarray, c: int) -> tuple[list[int], list[int]]:
    """PTX ISA's description of shfl, for one warp."""
    values, valid = [], []
    for lane in range(32):
        mask, bound, n = c >> 8 & 31, c & 31, int(b[lane]) & 31
        most = (lane & mask) | (bound & ~mask)
        source = {"up": lane - n, "down": lane + n, "bfly": lane ^ n, "idx": (lane & mask) | (n & ~mask)}[
            mode
        ]
        ok = source >= most if mode == "up" else source <= most
        values.append(int(a[source if ok else lane]))
        valid.append(int(ok))
    return values, valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str) -> None:
    a = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
    for c in SEGMENTS:
        for b in (
            np.zeros(32, int),
            np.ones(32, int),
            np.full(32, 5),
            np.full(32, 31),
            RANDOM.integers(0, 40, 32),
        ):
            c_of = c & 0x1F1F if mode != "up" else c & 0x1F00
            body = f"""
            ld.global.u32 %r1, [%i]; ld.global.u32 %r2, [%i+128];
            shfl.sync.{mode}.b32 %r3|%p0, %r1, %r2, {c_of}, -1; selp.u32 %r4, 1, 0, %p0;
            st.global.u32 [%o], %r3; st.global.u32 [%o+128], %r4;
            """
            out = run(body, np.concatenate([a, b.astype(np.uint32)]), block=32)
            values, valid = shuffle(mode, a, b, c_of)
            assert out[32:].tolist() == valid
            assert out[:32].tolist() == values


def test_votes() -> None:
    rows = [np.zeros(32), np.ones(32), np.arange(32) == 9, np.arange(32) != 9, RANDOM.integers(0, 2, 32)]
    for flags in (np.array(r, np.uint32) for r in rows):
        body = """
        ld.global.u32 %r1, [%i]; setp.ne.u32 %p0, %r1, 0; mov.u32 %r2, 0;
        vote.sync.all.pred %p1, %p0, -1; @%p1 or.b32 %r2, %r2, 1;
        vote.sync.any.pred %p1, %p0, -1; @%p1 or.b32 %r2, %r2, 2;
        vote.sync.uni.pred %p1, %p0, -1; @%p1 or.b32 %r2, %r2, 4; vote.sync.any.pred %p1, !%p0, -1;
        @%p1 or.b32 %r2, %r2, 8; vote.sync.ballot.b32 %r3, %p0, -1; st.global.u32 [%o], %r2;
        st.global.u32 [%o+128], %r3;
        """
        out = run(body, np.concatenate([flags, flags]), block=32)
        yes = int(flags.sum())
        bits = (yes == 32) + 2 * (yes > 0) + 4 * (yes in (0, 32)) + 8 * (yes < 32)
        assert out[:32].tolist() == [bits] * 32
        assert out[32:].tolist() == [sum(int(f) << i for i, f in enumerate(flags))] * 32


def test_matches() -> None:
    a = RANDOM.integers(0, 4, 32).astype(np.uint32) * np.uint32(0x40000001)
    body = """
    ld.global.u32 %r1, [%i]; match.any.sync.b32 %r2, %r1, -1; match.all.sync.b32 %r3|%p0, %r1, -1;
    selp.u32 %r4, 1, 0, %p0; add.u32 %r3, %r3, %r4; st.global.u32 [%o], %r2; st.global.u32 [%o+128], %r3;
    cvt.u64.u32 %d1, %r1; shl.b64 %d1, %d1, 30; match.any.sync.b64 %r5, %d1, -1; st.global.u32 [%o+256], %r5;
    """
    out = run(body, np.concatenate([a, a, a]), block=32).reshape(3, 32)
    same = [sum(int(y == x) << i for i, y in enumerate(a)) for x in a]
    assert out[0].tolist() == same
    assert out[1].tolist() == [0] * 32
    assert out[2].tolist() == same
    equal = run(body, np.full(96, 7, np.uint32), block=32)
    assert equal[32:64].tolist() == [0] * 32  # all ones + 1


@pytest.mark.parametrize("members", [0xFFFFFFFF, 0x0000FFF0, 0x80000001])
def test_reductions_in_a_warp(members: int) -> None:
    a = RANDOM.integers(0, 1 << 32, 32, dtype=np.uint32)
    lanes = np.array([i for i in range(32) if members >> i & 1])
    s = a[lanes].astype(np.int32)
    want = {
        "add.u32": int(a[lanes].astype(np.uint64).sum()),
        "add.s32": int(a[lanes].astype(np.uint64).sum()),
        "min.u32": int(a[lanes].min()),
        "max.u32": int(a[lanes].max()),
        "min.s32": int(s.min()),
        "max.s32": int(s.max()),
        "and.b32": int(np.bitwise_and.reduce(a[lanes])),
        "or.b32": int(np.bitwise_or.reduce(a[lanes])),
        "xor.b32": int(np.bitwise_xor.reduce(a[lanes])),
    }
    for op, value in want.items():
        body = f"""
        shr.u32 %r2, {members}, %t; and.b32 %r2, %r2, 1; setp.ne.u32 %p0, %r2, 0; ld.global.u32 %r1, [%i];
        mov.u32 %r3, 0; @!%p0 bra E; redux.sync.{op} %r3, %r1, {members}; E: st.global.u32 [%o], %r3;
        """
        got = run(body, a)
        assert got[lanes].tolist() == [value & 0xFFFFFFFF] * lanes.size, op
        assert np.delete(got, lanes).tolist() == [0] * (32 - lanes.size)


def test_election() -> None:
    body = """
    and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 1; mov.u32 %r2, 99; mov.u32 %r3, 0; @!%p1 bra E;
    elect.sync %r2|%p0, 0xaaaaaaaa; selp.u32 %r3, 100, 0, %p0; E: add.u32 %r2, %r2, %r3; st.global.u32 [%o], %r2;
    """
    out = run(body, np.zeros(32, np.uint32))
    assert sorted(out[1::2].tolist()) == [1] * 15 + [101]
    assert out[0::2].tolist() == [99] * 16


def test_member_masks() -> None:
    assert "lane is not in the member mask 0xf of the instruction" in fails("redux.sync.add.u32 %r1, %t, 15;")
    predicated = "setp.lt.u32 %p0, %t, 4; @%p0 redux.sync.add.u32 %r1, %t, -1;"
    assert "names lanes that do not execute this instruction" in fails(predicated)
    missing = "setp.lt.u32 %p0, %t, 4; @!%p0 bra E; bar.warp.sync -1; E: @%p0 bar.warp.sync 1;"
    report = fails(missing.replace("E: @%p0 bar.warp.sync 1;", "E: @!%p0 bra E;"), step_limit=5000)
    assert "step limit of 5000 warp instructions is exceeded" in report
    assert "waits for lanes 0xfffffff0 of its warp" in report


# ---- barriers ----


def test_barrier_orders_shared_memory() -> None:
    before = ".shared .b32 s[256];"
    body = """
    mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.u32 %r1, %r1, %r2; mov.u32 %r5, 0; mov.u32 %r6, 0;
    L: add.u32 %r3, %t, %r5; st.shared.u32 [%r1], %r3; bar.sync 0; xor.b32 %r2, %t, 255; shl.b32 %r2, %r2, 2;
    mov.u32 %r4, s; add.u32 %r2, %r4, %r2; ld.shared.u32 %r3, [%r2]; add.u32 %r6, %r6, %r3; bar.sync 0;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, 4; @%p0 bra L; st.global.u32 [%o], %r6;
    """
    assert run(body, np.zeros(256, np.uint32), before=before).tolist() == [
        4 * (255 - t) + 6 for t in range(256)
    ]


def test_barriers_with_counts() -> None:
    """Producers arrive at barrier 1 and go on; consumers sync. Two warps of each; a third pair uses barrier 2."""
    before = ".shared .b32 s[2];"
    body = """
    shr.u32 %r1, %t, 5; setp.ge.u32 %p0, %r1, 4; @%p0 bra OTHER; setp.ge.u32 %p1, %r1, 2; @%p1 bra CONSUME;
    mov.u32 %r2, s; atom.shared.add.u32 %r3, [%r2], 1; bar.arrive 1, 128; bra END;
    CONSUME: bar.sync 1, 128; ld.shared.u32 %r4, [s]; st.global.u32 [%o], %r4; bra END;
    OTHER: mov.u32 %r2, s+4; atom.shared.add.u32 %r3, [%r2], 1; bar.sync 2, 64; ld.shared.u32 %r4, [s+4];
    st.global.u32 [%o], %r4;
    END:
    """
    out = run(body, np.zeros(192, np.uint32), before=before)
    assert out.tolist() == [0] * 64 + [64] * 128


def test_barrier_reductions() -> None:
    given = (RANDOM.integers(0, 2, 96) | (np.arange(96) < 32)).astype(np.uint32)
    body = """
    ld.global.u32 %r1, [%i]; setp.ne.u32 %p0, %r1, 0; bar.red.popc.u32 %r2, 0, %p0;
    bar.red.and.pred %p1, 0, %p0; bar.red.or.pred %p2, 0, !%p0; selp.u32 %r3, 1000, 0, %p1; selp.u32 %r4, 2000, 0, %p2;
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; st.global.u32 [%o], %r2;
    """
    for x in (given, np.ones(96, np.uint32), np.zeros(96, np.uint32)):
        want = int(x.sum()) + 1000 * bool(x.all()) + 2000 * (not x.all())
        assert run(body, x).tolist() == [want] * 96


def test_exited_threads_do_not_hold_a_barrier() -> None:
    body = "setp.lt.u32 %p0, %t, 64; @%p0 exit; bar.sync 0; st.global.u32 [%o], 1;"
    assert run(body, np.zeros(96, np.uint32)).tolist() == [0] * 64 + [1] * 32


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("bar.sync 16;", "barrier 16 does not exist; barriers are 0 to 15"),
        ("bar.sync 1, 48;", "thread count of a barrier must be a positive multiple of 32, found 48"),
        (
            "bar.arrive 1, 64; bar.sync 1, 96;",
            "barrier 1 is in use with thread count 64, this instruction names 96",
        ),
        ("barrier.sync %t;", "threads of a warp name different barriers in one instruction"),
        (
            "setp.lt.u32 %p0, %t, 3; @%p0 bar.sync 0;",
            "instruction with .aligned is executed by 3 of 32 threads",
        ),
        ("barrier.cluster.wait;", "barrier.cluster.wait without barrier.cluster.arrive"),
        (
            "barrier.cluster.arrive; barrier.cluster.arrive;",
            "barrier.cluster.arrive a second time without barrier.cluster.wait",
        ),
    ],
)
def test_barrier_errors(body: str, says: str) -> None:
    assert says in fails(body)


# ---- mbarriers ----

BARRIER = ".shared .align 8 .b64 bar; .shared .b32 s[64];"
INIT = """
setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [bar], {count}; bar.sync 0;
"""
WAIT = "W{n}: mbarrier.try_wait.parity.shared.b64 %p1, [bar], {parity}; @!%p1 bra W{n};"


def test_mbarrier_phases() -> None:
    """Two warps hand a value back and forth through four phases."""
    body = INIT.format(count=32) + "shr.u32 %r1, %t, 5; setp.eq.u32 %p2, %r1, 0; mov.u32 %r5, 0;"
    for phase in range(4):
        other = "!" if phase % 2 else ""
        body += f"@{other}%p2 bra STORE{phase}; {WAIT.format(n=phase, parity=phase % 2)} bra NEXT{phase};"
        body += f"STORE{phase}: ld.shared.u32 %r5, [s]; bar.warp.sync -1; add.u32 %r5, %r5, 1; st.shared.u32 [s], %r5;"
        body += f"bar.warp.sync -1; mbarrier.arrive.shared.b64 _, [bar]; {WAIT.format(n=phase + 10, parity=phase % 2)}"
        body += f"NEXT{phase}:"
    body += "ld.shared.u32 %r5, [s]; st.global.u32 [%o], %r5;"
    assert run(body, np.zeros(64, np.uint32), before=BARRIER).tolist() == [4] * 64


def test_mbarrier_state_and_pending_count() -> None:
    body = (
        INIT.format(count=5)
        + """
    mbarrier.arrive.shared.b64 %d1, [bar], 2; mbarrier.arrive.shared.b64 %d2, [bar];
    mbarrier.pending_count.b64 %r1, %d1;
    mbarrier.pending_count.b64 %r2, %d2; mbarrier.test_wait.shared.b64 %p1, [bar], %d2; selp.u32 %r3, 1, 0, %p1;
    mbarrier.arrive.shared.b64 _, [bar], 2; mbarrier.test_wait.shared.b64 %p1, [bar], %d2; selp.u32 %r4, 1, 0, %p1;
    mbarrier.arrive_drop.shared.b64 %d3, [bar]; mbarrier.arrive.shared.b64 _, [bar], 4;
    mbarrier.arrive.shared.b64 %d3, [bar];
    mbarrier.pending_count.b64 %r5, %d3; st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4}; st.global.u32 [%out+16], %r5;
    """
    )
    out = run(body, np.zeros(8, np.uint32), before=BARRIER, block=1)
    assert out[:5].tolist() == [5, 3, 0, 1, 4]  # a dropped participant is missing from the next phase on


def test_mbarrier_transactions() -> None:
    """The phase needs both its arrival and its bytes; bytes may be credited before they are expected."""
    body = (
        INIT.format(count=1)
        + """
    mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 16; mbarrier.arrive.expect_tx.shared.b64 %d1, [bar], 48;
    mbarrier.test_wait.shared.b64 %p1, [bar], %d1; selp.u32 %r1, 1, 0, %p1;
    mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 32; mbarrier.test_wait.shared.b64 %p1, [bar], %d1;
    selp.u32 %r2, 1, 0, %p1; mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 8; mbarrier.arrive.shared.b64 %d1, [bar];
    mbarrier.test_wait.shared.b64 %p1, [bar], %d1; selp.u32 %r3, 1, 0, %p1;
    mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 8; mbarrier.test_wait.shared.b64 %p1, [bar], %d1;
    selp.u32 %r4, 1, 0, %p1; st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    """
    )
    assert run(body, np.zeros(4, np.uint32), before=BARRIER, block=1).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("mbarrier.arrive.shared.b64 _, [bar];", "no initialised mbarrier at shared address"),
        ("mbarrier.init.shared.b64 [bar], 0;", "mbarrier count must be 1 to 1048575, found 0"),
        ("mbarrier.init.shared.b64 [bar+4], 1;", "is not aligned to 8 bytes"),
        ("mbarrier.init.shared.b64 [bar+262144], 1;", "is outside the shared memory"),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 _, [bar], 2;",
            "arrival of 2 at the mbarrier at",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 0x100000;",
            "transaction count of the mbarrier at",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.try_wait.parity.shared.b64 %p0, [bar], 2;",
            "phase parity must be 0 or 1, found 2",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];",
            "no initialised mbarrier",
        ),
    ],
)
def test_mbarrier_errors(body: str, says: str) -> None:
    assert says in fails(body, threads=1, before=BARRIER)


# ---- clusters ----


def test_cluster_barrier_and_distributed_shared_memory() -> None:
    """Every CTA stores into its neighbour's shared memory, through mapa in both spellings."""
    before = ".shared .align 8 .b32 s[2];"
    body = """
    mov.u32 %r1, %cluster_ctarank; add.u32 %r2, %r1, 1; mov.u32 %r3, %cluster_nctarank; rem.u32 %r2, %r2, %r3;
    mov.u32 %r4, s; mapa.shared::cluster.u32 %r5, %r4, %r2; mov.u64 %d1, s; cvta.shared.u64 %d1, %d1;
    mapa.u64 %d2, %d1, %r2; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    setp.ne.u32 %p0, %t, 0; @%p0 bra J; add.u32 %r6, %r1, 100; st.shared::cluster.u32 [%r5], %r6; st.u32 [%d2+4], %c;
    J: barrier.cluster.arrive.release; barrier.cluster.wait.acquire; ld.shared.u32 %r7, [s]; ld.shared.u32 %r8, [s+4];
    getctarank.shared::cluster.u32 %r9, %r5; setp.ne.u32 %p1, %r9, %r2; @%p1 trap; mad.lo.u32 %r7, %r8, 1000, %r7;
    st.global.u32 [%o], %r7; barrier.cluster.arrive; barrier.cluster.wait;
    """
    out = run(body, np.zeros(8 * 32, np.uint32), before=before, grid=8, block=32, cluster=4).reshape(8, 32)
    before_me = [(i // 4) * 4 + (i - 1) % 4 for i in range(8)]
    assert out[:, 5].tolist() == [b * 1000 + 100 + b % 4 for b in before_me]


def test_arrival_of_threads_that_exit() -> None:
    """A thread that arrives and exits must not stand in for one that has not arrived."""
    before = ".shared .b32 s;"
    body = """
    setp.lt.u32 %p0, %t, 32; @!%p0 bra REST; barrier.cluster.arrive; exit;
    REST: mov.u32 %r2, 3000; setp.ge.u32 %p1, %t, 64; @!%p1 bra WAIT;
    SPIN: sub.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra SPIN; st.shared.u32 [s], 7;
    WAIT: barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r3, [s]; st.global.u32 [%o], %r3;
    """
    out = run(body, np.zeros(96, np.uint32), before=before, block=96)
    assert out.tolist() == [0] * 32 + [7] * 64


def test_shared_memory_of_a_missing_cta() -> None:
    body = "mov.u32 %r1, s; mapa.shared::cluster.u32 %r2, %r1, 2;"
    message = fails(body, threads=64, before=".shared .b32 s;", grid=2, block=32, cluster=2)
    assert "CTA rank 2 does not exist in a cluster of 2" in message


# ---- atomics ----


@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics(space: str) -> None:
    """128 threads on one word: the last value, and every value that was seen on the way."""
    values = RANDOM.integers(0, 1 << 32, 128, dtype=np.uint32)
    start = 0x80000005
    place = "[%in+512]" if space == "global" else "[s]"
    for op, t, f in (
        ("add", "u32", lambda a, b: (a + b) % 2**32),
        ("and", "b32", lambda a, b: a & b),
        ("or", "b32", lambda a, b: a | b),
        ("xor", "b32", lambda a, b: a ^ b),
        ("min", "u32", min),
        ("max", "u32", max),
        ("min", "s32", lambda a, b: min(a, b, key=lambda x: x - (x >> 31 << 32))),
        ("max", "s32", lambda a, b: max(a, b, key=lambda x: x - (x >> 31 << 32))),
        ("exch", "b32", lambda a, b: b),
    ):
        body = f"""
        setp.eq.u32 %p0, %t, 0; @%p0 st.{space}.b32 {place}, {start}; bar.sync 0; ld.global.b32 %r1, [%i];
        atom.{space}.{op}.{t} %r2, {place}, %r1; st.global.b32 [%o], %r2; bar.sync 0;
        @%p0 ld.{space}.b32 %r3, {place}; @%p0 st.global.b32 [%out+512], %r3;
        """
        out = run(body, np.concatenate([values, values[:1]]), block=128, before=".shared .b32 s;").tolist()
        seen, last = out[:128], out[128]
        # Some order of the operations explains what was seen: undo it step by step from the values seen.
        steps = sorted(zip(seen, values.tolist(), strict=True))
        assert start in seen
        total = start
        for v in values.tolist():
            total = f(total, v)
        if op == "exch":
            assert sorted([*seen, last]) == sorted([start, *values.tolist()])
        else:
            assert last == total
            assert {f(a, b) for a, b in steps} | {start} == set(seen) | {last}


def test_atomic_counters() -> None:
    body = """
    setp.eq.u32 %p0, %t, 0; @%p0 st.global.u32 [%out+512], 0; @%p0 st.global.u32 [%out+516], 3; bar.sync 0;
    atom.global.inc.u32 %r1, [%out+512], 9; atom.global.dec.u32 %r2, [%out+516], 5; mad.lo.u32 %r1, %r2, 100, %r1;
    st.global.u32 [%o], %r1; red.global.add.u32 [%out+520], 2;
    """
    out = run(body, np.zeros(131, np.uint32), block=128)
    assert sorted((out[:128] % 100).tolist()) == sorted(i % 10 for i in range(128))
    assert sorted((out[:128] // 100).tolist()) == sorted((3 - i) % 6 for i in range(128))
    assert out[128:].tolist() == [128 % 10, (3 - 128) % 6, 256]


def test_compare_and_swap() -> None:
    """A lock around a counter in memory, taken by every thread in turn; and the 16, 64 and 128-bit forms."""
    body = """
    mov.u32 %r5, 0;
    TRY: atom.acquire.gpu.global.cas.b32 %r1, [%out+256], 0, 1; setp.ne.u32 %p0, %r1, 0; @%p0 bra TRY;
    ld.global.u32 %r2, [%out+260]; add.u32 %r2, %r2, 1; st.global.u32 [%out+260], %r2;
    atom.release.gpu.global.exch.b32 %r1, [%out+256], 0; st.global.u32 [%o], %r2;
    """
    out = run(body, np.zeros(66, np.uint32), block=64)
    assert sorted(out[:64].tolist()) == list(range(1, 65))
    assert out[64:].tolist() == [0, 64]
    wide = """
    .reg .b16 %h<3>; .reg .b128 %q<3>; mov.u16 %h1, 0; mov.u16 %h2, 0x1234; atom.global.cas.b16 %h0, [%out+2], %h1, %h2;
    atom.global.cas.b64 %d1, [%out+8], 1, 9; atom.global.cas.b64 %d2, [%out+8], 0, 9; mov.b64 %d3, 5; mov.b64 %d4, 6;
    mov.b128 %q0, {%d3, %d4}; atom.global.exch.b128 %q1, [%out+16], %q0; atom.global.cas.b128 %q2, [%out+16], %q0, %q1;
    mov.b128 {%d5, %d6}, %q2; st.global.b64 [%out+32], %d5; st.global.b64 [%out+40], %d6;
    """
    out = run(wide, np.zeros(12, np.uint32), block=1)
    assert out.tolist() == [0x12340000, 0, 9, 0, 0, 0, 0, 0, 5, 0, 6, 0]


# ---- memory errors ----

SPACES = ".shared .align 16 .b8 s[64]; .global .align 16 .b8 g[16];"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("ld.global.u32 %r1, [%in+128];", "4-byte access at global address"),
        ("ld.global.u32 %r1, [%in+128];", "0 bytes behind the end of buffer 'in' of 128 bytes"),
        ("ld.global.u32 %r1, [%in-4];", "before the start of buffer 'in'"),
        ("ld.global.u64 %d1, [%in+124];", "is not aligned to 8 bytes"),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in+116];", "is not aligned to 16 bytes"),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in+128];", "16-byte access"),
        ("ld.global.u32 %r1, [%in+2];", "is not aligned to 4 bytes"),
        ("ld.global.u32 %r1, [0];", "4-byte access at global address 0x0 is outside all buffers"),
        ("ld.global.u32 %r1, [0xfffffffffffffffc];", "is outside all buffers"),
        ("ld.global.u32 %r1, [g+16];", "buffer 'variables of the module'"),
        ("ld.shared.u32 %r1, [s+64];", "leaves the 64 bytes of this space"),
        ("ld.shared.u32 %r1, [s+2];", "shared address 0x402 is not aligned to 4 bytes"),
        ("ld.shared.u32 %r1, [0];", "leaves the 0 bytes of this space"),
        ("ld.shared.u32 %r1, [0x1000400];", "CTA rank 1 does not exist in a cluster of 1"),
        ("ld.shared.u32 %r1, [0x100000400];", "shared address 0x100000400 has more than 32 bits"),
        ("st.shared.v2.u64 [s+56], {%d1, %d2};", "is not aligned to 16 bytes"),
        (".local .b32 l[2]; ld.local.u32 %r1, [l+16];", "leaves the 16 bytes of this space"),
        (".local .b32 l[2]; st.local.u32 [l+3], %r1;", "local address 0x3 is not aligned to 4 bytes"),
        ("ld.param.u32 %r1, [in+8];", "leaves the 16 bytes of this space"),
        ("mov.u64 %d1, in; cvta.param.u64 %d1, %d1; st.u32 [%d1], 1;", "store to a kernel parameter"),
        (
            "mov.u64 %d1, s; cvta.shared.u64 %d1, %d1; ld.u32 %r1, [%d1+64];",
            "4-byte access at shared address 0x440",
        ),
        ("trap;", "the kernel executed trap"),
        ("mov.u32 %r1, %t; brx.idx %r1, T; T: .branchtargets L; L:", "branch index 1 exceeds the 1 targets"),
    ],
)
def test_memory_errors(body: str, says: str) -> None:
    one = "setp.ne.u32 %p5, %t, 5; @%p5 bra END; " + body + " END:"
    message = fails(body if body.startswith(("mov.u32 %r1", ".local")) else one, before=SPACES)
    assert says in message
    assert "line " in message and "in CTA (0, 0, 0), warp 0" in message


def test_errors_name_the_thread_and_the_instruction() -> None:
    body = "setp.eq.u32 %p1, %r0, 77;\n@%p1 ld.global.u32 %r1, [%in+1000000];"
    message = fails(body, threads=96, grid=1, block=96)
    assert "of 'k': @%p1 ld.global.u32 %r1, [%in+1000000]" in message
    assert "in CTA (0, 0, 0), warp 2, thread 77" in message
    assert "at line 10 " in message


def test_read_only_arrays() -> None:
    given = np.zeros(32, np.uint32)
    given.flags.writeable = False
    out = np.zeros(32, np.uint32)
    with pytest.raises(vsm.ExecutionError, match="store to the read-only buffer 'in'"):
        vsm.Module(kernel("st.global.u32 [%i], 1;")).launch("k", grid=1, block=32, args=(out, given))


# ---- what never ends ----


def test_deadlocks_say_who_waits_for_what() -> None:
    body = "setp.lt.u32 %p0, %t, 32; @%p0 bra A; bar.sync 1, 64; A: @%p0 bar.sync 2, 64;"
    message = fails(body, threads=64)
    assert "deadlock: nothing can run any more" in message
    assert "warp 0 lanes 0xffffffff: waits for barrier 0x2; line 9: @%p0 bar.sync 2, 64" in message
    assert "warp 1 lanes 0xffffffff: waits for barrier 0x1; line 9: bar.sync 1, 64" in message
    body = INIT.format(count=2) + "mbarrier.arrive.shared.b64 _, [bar]; " + WAIT.format(n=0, parity=0)
    assert "waits for mbarrier 0x" in fails(body, threads=1, before=BARRIER)
    lonely = (
        "setp.eq.u32 %p0, %c, 0; @%p0 bra E; barrier.cluster.arrive; barrier.cluster.wait; E: @%p0 bra E;"
    )
    message = fails(lonely, threads=64, grid=2, block=32, cluster=2, step_limit=10000)
    assert "waits for the cluster's barrier" in message


def test_every_cluster_stuck() -> None:
    """Clusters that wait are kept only up to a limit, so a stuck grid ends."""
    body = "setp.eq.u32 %p0, %t, 0; @%p0 bra E; barrier.sync 1, 64; E:"
    with pytest.raises(vsm.ExecutionError, match="deadlock"):
        out = np.zeros(1 << 12, np.uint32)
        vsm.Module(kernel(body)).launch("k", grid=1 << 20, block=32, args=(out, out))


@pytest.mark.parametrize(
    "body", ["L: bra L;", "L: ld.volatile.global.u32 %r1, [%out]; nanosleep.u32 20; bra L;"]
)
def test_step_limit(body: str) -> None:
    message = fails(body, step_limit=20000)
    assert "step limit of 20000 warp instructions is exceeded" in message
    assert "warp 0 lanes 0xffffffff: runs; line 9" in message


@pytest.mark.parametrize("grid", [1, 64])
def test_ctrl_c(grid: int) -> None:
    """SIGINT ends a launch that would run for hours, with KeyboardInterrupt."""
    script = f"""
    import sys
    import numpy as np
    from jax_tcgen05 import vsm
    text = {kernel("L: ld.volatile.global.u32 %r1, [%out]; bra L;")!r}
    out = np.zeros(4096, np.uint32)
    m = vsm.Module(text)
    try:
        print("go", flush=True)
        m.launch("k", grid={grid}, block=64, args=(out, out), step_limit=1 << 60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(7)
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    process.send_signal(signal.SIGINT)
    try:
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, rest) == (7, "interrupted\n")


# ---- launches ----


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        ({"block": 1025}, "block (1025, 1, 1) "),
        ({"block": (32, 33)}, "block (32, 33, 1) has more than 1024 threads"),
        ({"grid": (1, 65536)}, "exceeds (2^31-1, 65535, 65535)"),
        ({"cluster": 17, "grid": 17}, "cluster (17, 1, 1) has more than 16 CTAs"),
        ({"cluster": 2, "grid": 3}, "grid (3, 1, 1) is no multiple of cluster (2, 1, 1)"),
        ({"cluster": (1 << 16, 1 << 16, 1 << 16)}, "has an extent above 1024"),
        ({"block": (1 << 22, 1 << 22, 1 << 20)}, "has an extent above 1024"),
        ({"shared_bytes": 240000}, "needs 240000 bytes of shared memory, a CTA has 232448"),
    ],
)
def test_launches_that_no_chip_takes(launch: dict[str, object], says: str) -> None:
    with pytest.raises(vsm.ExecutionError) as error:
        run("", np.zeros(32, np.uint32), **{"grid": 1, "block": 32, **launch})
    assert says in str(error.value)


def test_launch_bounds_of_the_kernel() -> None:
    x = np.zeros(64, np.uint32)
    with pytest.raises(
        vsm.ExecutionError, match=r"block is \(64, 1, 1\), the kernel has .reqntid \(32, 2, 1\)"
    ):
        run("", x, attributes=".reqntid 32, 2", block=64)
    with pytest.raises(vsm.ExecutionError, match=r"exceeds the kernel's .maxntid \(32, 1, 1\)"):
        run("", x, attributes=".maxntid 32", block=64)
    out = run(
        "mov.u32 %r1, %cluster_nctarank; st.global.u32 [%o], %r1;",
        x,
        attributes=".reqnctapercluster 2",
        grid=2,
        block=32,
    )
    assert out.tolist() == [2] * 64


def test_host_memory_of_a_launch_is_bounded() -> None:
    body = ".local .b8 l[524288]; st.local.b8 [l+5], %r1;"
    with pytest.raises(
        vsm.ExecutionError, match="bytes of the host for its registers and local memory, allowed: 4294967296"
    ):
        run(body, np.zeros(1024, np.uint32), grid=16, block=1024, cluster=16)


def test_counts() -> None:
    """Thread instructions per opcode, predicated-off lanes not counted."""
    x = np.zeros(48, np.uint32)
    text = kernel("setp.lt.u32 %p0, %t, 5; @%p0 add.u32 %r1, %r1, 1; st.global.u32 [%o], %r1;")
    result = vsm.Module(text).launch("k", grid=1, block=48, args=(x, x))
    assert result.opcodes["add.u32"] == 5
    assert result.opcodes["st.global.u32"] == 48
    assert result.thread_instructions == sum(result.opcodes.values())
