"""Strict mode of the virtual SM: what it reports, what it lets pass, and that no synchronisation of the device kernels
can be taken out unseen.
"""

from __future__ import annotations

import re
from pathlib import Path

import kernel_faults as faults
import numpy as np
import pytest
from ptx_reader import entries
from test_vsm_peers import cases, same, tvm_data, tvm_expected

from jax_tcgen05 import vsm

# Small kernels. Threads: %t; warps: %w; %own: the thread's word of `words`; %other: that of a thread in another warp.

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.shared .align 1024 .b8 words[4096];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 where;
.visible .entry k(.param .u64 out) {
.reg .pred %p, %q, %unset_p, %first, %second;
.reg .b32 %t, %w, %own, %other, %x, %y, %unset, %at, %tm, %c<8>;
.reg .b64 %out, %g, %state, %desc, %wide;
.local .align 4 .b8 stack[8];
ld.param.u64 %out, [out];
mov.u32 %t, %tid.x;
shr.u32 %w, %t, 5;
mov.u32 %at, words;
shl.b32 %x, %t, 2;
add.u32 %own, %at, %x;
xor.b32 %y, %x, 128;
add.u32 %other, %at, %y;
mul.wide.u32 %g, %t, 4;
add.u64 %g, %g, %out;
setp.eq.u32 %first, %t, 0;
setp.eq.u32 %second, %t, 32;
"""
INIT = "@%first mbarrier.init.shared.b64 [bar], 32; bar.sync 0;"
ONE = "@%first mbarrier.init.shared.b64 [bar], 1; bar.sync 0;"
ALLOC = """setp.lt.u32 %q, %t, 32; @!%q bra HAVE;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [where], 32;
HAVE: bar.sync 0; ld.shared.u32 %tm, [where]; shl.b32 %x, %w, 21; add.u32 %tm, %tm, %x;"""
FREE = """ld.shared.u32 %tm, [where]; @!%q bra DONE;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 32; DONE:"""
PUT = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%tm], {%t};"
GET = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x}, [%tm];"
WAITED = "AGAIN: mbarrier.try_wait.parity{order}.shared.b64 %p, [bar], 0; @!%p bra AGAIN;"
# Copies 128 bytes from global to shared memory by thread 0.
COPY = """@%first mbarrier.arrive.expect_tx.shared.b64 %state, [bar], 128;
@%first cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%at], [%out], 128, [bar];"""
ST_WAIT, LD_WAIT = (f"tcgen05.wait::{x}.sync.aligned;" for x in ("st", "ld"))
SYNC, FENCED = "bar.sync 0;", "fence.proxy.async.shared::cta;"
STORED, LOAD = "st.shared.u32 [%own], 1;", "ld.shared.u32 %x, [%own];"
OUT = "@%first cp.async.bulk.global.shared::cta.bulk_group [%out], [%at], 128;"
CP_ASYNC = "cp.async.ca.shared.global [%own], [%g], 4; cp.async.commit_group;"
OUT_GROUP = "@%first cp.async.bulk.commit_group;"
AGAIN = "st.shared.u32 [%own], 2;"
USE = "st.global.u32 [%g], %x;"
WAIT, RELAXED = WAITED.format(order=""), WAITED.format(order=".relaxed.cta")

# (kernel, what is reported; None: nothing)
KERNELS: dict[str, tuple[str, str | None]] = {
    "register": (
        "add.u32 %x, %unset, 1; st.global.u32 [%g], %x;",
        r"register %x is used here and has no defined",
    ),
    "register, unused": ("add.u32 %x, %unset, 1; mul.lo.u32 %y, %x, %x;", None),
    "register, one lane": (
        "@%first mov.u32 %unset, 1; st.global.u32 [%g], %unset;",
        r"%unset is used .*thread 1\b",
    ),
    "address": (
        "mov.u64 %g, %wide; ld.global.u32 %x, [%g];",
        "register %g is used here and has no defined value",
    ),
    "predicate": ("@%unset_p mov.u32 %x, 0;", "register %unset_p decides here and has no defined value"),
    "branch": ("setp.eq.u32 %p, %unset, 0; @%p bra END; END:", "register %p decides here"),
    "shared, unwritten": (
        "ld.shared.u32 %x, [%own]; " + USE,
        "register %x is used here and has no defined value",
    ),
    "shared, half written": (
        "st.shared.u16 [%own], 1; ld.shared.u32 %x, [%own]; " + USE,
        "%x is used here and has no",
    ),
    "shared, unwritten, unused": ("ld.shared.u32 %x, [%own];", None),
    "read, write": (
        "st.shared.u32 [%own], %t; ld.shared.u32 %x, [%other];",
        r"a read of shared memory at 0x\w+ is not ordered after the write by warp \d \(line \d+: st\.shared.*no bar",
    ),
    "read, barrier, write": ("st.shared.u32 [%own], %t; bar.sync 0; ld.shared.u32 %x, [%other];", None),
    "overtaken read": (
        "st.shared.u32 [%own], %t; bar.sync 0; ld.shared.u32 %x, [%other]; st.shared.u32 [%own], 7;",
        r"a (write|read) of shared memory at 0x\w+ is not ordered after the (read|write) by warp",
    ),
    "different values": (
        "st.shared.u32 [%at], %w;",
        "a write of shared memory .* is not ordered after the write",
    ),
    "the same value": ("st.shared.u32 [%at], 5;", None),
    "lanes without order": (
        "shr.u32 %x, %own, 7; shl.b32 %x, %x, 7; st.shared.u32 [%own], %t; ld.shared.u32 %y, [%x];",
        r"a read of shared memory .* is not ordered after the write by warp \d .*no bar\.warp\.sync",
    ),
    "lanes in order": (
        "shr.u32 %x, %own, 7; shl.b32 %x, %x, 7; st.shared.u32 [%own], %t; bar.warp.sync -1; ld.shared.u32 %y, [%x];",
        None,
    ),
    "bytes of a word": ("cvt.u16.u32 %h, %t; add.u32 %y, %at, %t; st.shared.u8 [%y], %h;", None),
    "atomics": ("@%first st.shared.u32 [%at], 0; bar.sync 0; atom.shared.add.u32 %x, [%at], 1;", None),
    "read beside atomics": (
        "@%first st.shared.u32 [%at], 0; bar.sync 0; atom.shared.add.u32 %x, [%at], 1; ld.shared.u32 %x, [%at];",
        "a (write|read) of shared memory .* is not ordered after the (read|write)",
    ),
    "flag": (
        """@%first st.shared.u32 [%at], 1; @%first st.release.cta.shared.u32 [%at+4], 1;
        @!%first bra LAST; bra END;
        LAST: ld.acquire.cta.shared.u32 %x, [%at+4]; setp.eq.u32 %p, %x, 1; @!%p bra LAST;
        ld.shared.u32 %x, [%at]; END:""",
        None,
    ),
    "mbarrier": (
        INIT + "@%q bra WAIT; @%first st.shared.u32 [%at], 1;"
        "mbarrier.arrive.shared.b64 %state, [bar]; bra END;"
        "WAIT: " + WAIT + "ld.shared.u32 %x, [%at]; END:",
        None,
    ),
    "mbarrier, relaxed": (
        INIT + "@%q bra WAIT; @%first st.shared.u32 [%at], 1;"
        "mbarrier.arrive.relaxed.cta.shared.b64 %state, [bar]; bra END;"
        "WAIT: " + RELAXED + "ld.shared.u32 %x, [%at]; END:",
        "a read of shared memory .* is not ordered after the write",
    ),
    "mbarrier, relaxed with fences": (
        INIT + "@%q bra WAIT; @%first st.shared.u32 [%at], 1; fence.acq_rel.cta;"
        "mbarrier.arrive.relaxed.cta.shared.b64 %state, [bar]; bra END;"
        "WAIT: " + RELAXED + "fence.acq_rel.cta; ld.shared.u32 %x, [%at]; END:",
        None,
    ),
    "mbarrier asked once": (
        "@%first st.shared.u32 [%at], 0;"
        + INIT
        + "@%q bra WAIT; nanosleep.u32 9; @%first st.shared.u32 [%at], 1;"
        "mbarrier.arrive.shared.b64 %state, [bar]; bra END;"
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; ld.shared.u32 %x, [%at]; END:",
        "of shared memory at 0x400 is not ordered after",
    ),
    "mbarrier, not behind its init": (
        "@%first mbarrier.init.shared.b64 [bar], 64; mbarrier.arrive.shared.b64 %state, [bar];",
        "the mbarrier at 0x\\w+ is used without a barrier behind its initialisation by warp 0",
    ),
    "mbarrier overwritten": (INIT + "@%first st.shared.u32 [bar], 0;", "hits an mbarrier object"),
    "mbarrier invalidated": (
        INIT + "@%first mbarrier.inval.shared.b64 [bar]; @%first st.shared.u32 [bar], 0;",
        None,
    ),
    "tensor memory": (ALLOC + PUT + ST_WAIT + GET + LD_WAIT + SYNC + FREE, None),
    "tensor memory, no wait::st": (
        ALLOC + PUT + GET,
        r"the read of tensor memory at lane \d+, column 0 is not ordered after the write by warp \d .*wait::st between",
    ),
    "tensor memory, no wait::ld": (
        ALLOC + PUT + ST_WAIT + GET + USE + "bar.sync 0;" + FREE,
        "the deallocation of tensor memory at lane 32, column 0 is not ordered after the read by warp 1",
    ),
    "tensor memory, overtaken load": (
        ALLOC + PUT + ST_WAIT + GET + PUT,
        "the write of tensor memory .* is not ordered after the read by warp \\d .*: no tcgen05.wait::ld",
    ),
    "tensor memory, no barrier before dealloc": (
        ALLOC + PUT + ST_WAIT + FREE,
        "is not ordered after the write by warp 1|is not allocated",
    ),
    "tensor memory, unwritten": (ALLOC + GET + LD_WAIT + USE, "%x is used here and has no"),
    "tensor memory, unallocated": (
        ALLOC + "add.u32 %tm, %tm, 32;" + PUT,
        "tensor memory at lane \\d+, column 32 is not allocated",
    ),
    "tensor memory, freed": (
        ALLOC + "bar.sync 0;" + FREE + "bar.sync 0;" + PUT,
        "tensor memory at lane \\d+, column 0 is not allocated",
    ),
    "tensor memory, leaked": (
        ALLOC,
        r"not deallocated: the threads of CTA \(0, 0, 0\) have exited and 32 columns from column 0 on are still \w+"
        r"\n  by line \d+: tcgen05\.alloc",
    ),
    "allocation after relinquish": (
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" + ALLOC,
        "tcgen05.alloc after tcgen05.relinquish_alloc_permit",
    ),
    "illegal descriptor": (
        "mov.u64 %desc, 0; mov.u32 %x, 0; setp.ne.u32 %p, %x, 0;"
        "@%first tcgen05.mma.cta_group::1.kind::f16 [%x], %desc, %desc, %x, %p;",
        "instruction descriptor: M = 0",
    ),
    "copy": (ONE + COPY + WAIT + "ld.shared.u32 %x, [%at];", None),
    "copy, not waited for": (
        ONE + COPY + "bar.sync 0; ld.shared.u32 %x, [%at];",
        r"a read of shared memory .* is not ordered after the write by warp 0 \(line .*cp\.async\.bulk.*may still run",
    ),
    "copy over a fresh store": (
        "st.shared.u32 [%own], 1;" + ONE + COPY,
        "the asynchronous write of shared memory .* no fence.proxy.async between them",
    ),
    "copy over a fresh store, fenced": (STORED + FENCED + ONE + COPY + WAIT, None),
    "copy over what was read": (STORED + SYNC + LOAD + ONE + COPY + WAIT, None),
    "copy out": (
        STORED + FENCED + SYNC + OUT + OUT_GROUP + "@%first cp.async.bulk.wait_group.read 0;" + SYNC + AGAIN,
        None,
    ),
    "copy out, no fence": (
        STORED + SYNC + OUT,
        "the asynchronous read of shared memory .* no fence.proxy.async between them",
    ),
    "copy out, fence after the barrier": (STORED + SYNC + FENCED + OUT, None),
    "copy out, fence of global memory": (
        STORED + SYNC + "fence.proxy.async.global;" + OUT,
        "no fence.proxy.async between them",
    ),
    "copy out, overwritten": (
        STORED + FENCED + SYNC + OUT + OUT_GROUP + SYNC + AGAIN,
        r"a write of shared memory .* is not ordered after the read .*it may still run: no wait for its completion",
    ),
    "copy into a CTA that has exited": (
        ONE + COPY,
        r"shared memory at 0x\w+ is reached when all threads of its CTA have exited",
    ),
    "cp.async": (
        CP_ASYNC + "cp.async.wait_group 0; ld.shared.u32 %x, [%own];",
        None,
    ),
    "cp.async, not waited for": (
        CP_ASYNC + "ld.shared.u32 %x, [%own];",
        "a read of shared memory .* it may still run: no cp.async.wait_group",
    ),
    "cp.async, a group too few": (
        CP_ASYNC + "cp.async.wait_group 1; ld.shared.u32 %x, [%own];",
        "a read of shared memory .* it may still run",
    ),
    "shared, out of bounds": ("add.u32 %y, %own, 65536; st.shared.u32 [%y], 0;", "shared address 0x"),
    "shared, misaligned": ("st.shared.u32 [%own+2], 0;", r"shared address 0x\w+ is not aligned to 4 bytes"),
    "global, out of bounds": (
        "st.global.u32 [%g+256], %t;",
        "0 bytes behind the end of buffer 'out' of 256 bytes",
    ),
    "global, misaligned": ("st.global.u32 [%g+2], %t;", r"global address 0x\w+ is not aligned to 4 bytes"),
    "local, out of bounds": ("mov.u64 %wide, stack; st.local.u32 [%wide+16], 0;", "local address"),
    "parameter, out of bounds": ("ld.param.u32 %x, [out+8];", "parameter address"),
    "deadlock": (
        INIT + WAIT,
        r"deadlock: nothing can run any more\n.*CTA \(0, 0, 0\) warp 0 .*waits for mbarrier 0x\w+; line \d+: mbarrier",
    ),
    "barrier of too few": ("@!%first bra END; bar.sync 1, 64; END:", "waits for|executed by"),
    "step limit": ("LOOP: bra LOOP;", "step limit of 65536 warp instructions is exceeded"),
}


def kernel(body: str) -> str:
    if "%h" in body:
        body = ".reg .b16 %h; " + body
    return HEAD + "setp.ge.u32 %q, %t, 32;\n" + body.replace(";", ";\n") + "\nret;\n}\n"


def launch(body: str) -> None:
    out = np.zeros(64, np.uint32)
    vsm.Module(kernel(body)).launch(
        "k", grid=1, block=64, args=(out,), check="strict", step_limit=1 << 16, threads=1
    )


@pytest.mark.parametrize("name", [name for name, (_, report) in KERNELS.items() if report])
def test_reports(name: str) -> None:
    body, report = KERNELS[name]
    with pytest.raises(vsm.ExecutionError) as caught:
        launch(body)
    text = str(caught.value)
    assert re.search(report or "", text, re.DOTALL), text
    assert re.search(r"line \d+", text)
    if not re.match("deadlock|step limit|tensor memory is not dealloc", text):
        assert re.search(r"\n  at line \d+ of 'k': .*\n  in CTA \(0, 0, 0\), warp \d, thread \d+$", text), (
            text
        )


@pytest.mark.parametrize("name", [name for name, (_, report) in KERNELS.items() if report is None])
def test_lets_right_programs_pass(name: str) -> None:
    launch(KERNELS[name][0])


def test_normal_mode_does_not_report() -> None:
    out = np.zeros(64, np.uint32)
    body = KERNELS["read, write"][0]
    vsm.Module(kernel(body)).launch("k", grid=1, block=64, args=(out,), threads=1)


# Other makers' kernels


@pytest.mark.parametrize("path", cases("tvm"))
def test_tvm_kernels_are_clean(path: Path) -> None:
    case = vsm.Case.load(path)
    buffers = case.zeros()
    p = case.description["problem"]
    tvm_data(p, buffers)
    case.launch(buffers, threads=1, check="strict")
    flags = [q["value"] for q in case.description["params"] if q["kind"] == "i32"]
    if not flags:
        same(buffers["Out"], tvm_expected(p, buffers, p["accum"] == "True"))


# Others are known to work on the chip and leave out what the text of PTX asks for: what is reported first, by folder
# and kernel. With the fences and waits that the text asks for put in, all of them are clean.

NO_BEFORE, NO_AFTER = (f"no tcgen05.fence::{side}_thread_sync" for side in ("before", "after"))
NO_WAIT, NO_PROXY = "no tcgen05.wait::ld and barrier between them", "no fence.proxy.async between them"
LACKING: dict[str, dict[str, str | None]] = {
    "triton": {"": NO_BEFORE},
    "gluon": {"": NO_BEFORE, "cp_": NO_AFTER, "mma2_": NO_AFTER, "rt_": None, "tma_reduce": None},
    "mosaic": {"": NO_WAIT, "mma_bf16_ts": NO_BEFORE, "blackwell_matmul": None},
    "cutlass": {"cute01": NO_PROXY, "cute02": NO_AFTER},
}
OTHERS = [
    pytest.param(*p.values, folder, id=f"{folder}-{p.id}", marks=p.marks)
    for folder in LACKING
    for p in cases(folder)
]


def repaired(text: str) -> str:
    """tcgen05 fences around everything that orders threads, wait::ld behind loads, proxy fences behind stores."""
    guard = r"^\s*(@!?%?\w+\s+)?"
    before = rf"{guard}(bar\.sync|barrier\.|mbarrier\.arrive)"
    text = re.sub(
        f"(?m)(?={before})", "fence.proxy.async.shared::cta; tcgen05.fence::before_thread_sync;\n", text
    )
    text = re.sub(rf"(?m)(?={guard}tcgen05\.(mma|ld|st|cp)\b)", "tcgen05.fence::after_thread_sync;\n", text)
    return re.sub(rf"(?m)({guard}tcgen05\.ld\b[^;]*;)", r"\1 tcgen05.wait::ld.sync.aligned;", text)


@pytest.mark.parametrize(("path", "folder"), OTHERS)
def test_what_others_leave_out(path: Path, folder: str) -> None:
    case = vsm.Case.load(path)
    buffers, rng = case.zeros(), np.random.default_rng(1)
    for buffer in buffers.values():
        buffer.view(np.uint8)[...] = rng.integers(0, 50, buffer.view(np.uint8).shape)
    prefixes = LACKING[folder]
    report = prefixes[max((x for x in prefixes if path.name.startswith(x)), key=len)]
    if report is None:
        case.launch(buffers, threads=1, check="strict")
        return
    with pytest.raises(vsm.ExecutionError, match=report):
        case.launch(buffers, threads=1, check="strict")
    case.launch(buffers, vsm.Module(repaired(case.text())), threads=1, check="strict")


# The device kernels

NAMES = list(faults.texts()) or [
    pytest.param("", marks=pytest.mark.skip("the package was built without kernels"))
]


@pytest.mark.parametrize("name", NAMES)
def test_device_kernels_are_clean(name: str) -> None:
    assert faults.prepare(name).run(faults.texts()[name])


# What happens when one instruction is taken out. Per opcode, in the text's order: a part of the report, or, behind
# HARMLESS, why the memory model does not need the instruction. Nothing is ever merely a wrong result.

HARMLESS = "harmless: "
PERMIT = HARMLESS + "it gives up a right that the kernel does not use again, in favour of other kernels' CTAs"
RELEASED = HARMLESS + "the barrier of all threads behind it releases mbarrier.init, too (PTX ISA 8.9.4)"
NOTHING_YET = (
    HARMLESS + "no asynchronous tcgen05 instruction comes before it; alloc is synchronous (9.7.16.6.1)"
)
COMPLETE = HARMLESS + "every tcgen05.ld is complete, by wait::ld, and dealloc is synchronous (9.7.16.6.1)"
READ_BACK = HARMLESS + "behind the last wait::ld the reading back of D has a barrier of its own"
ALIGNED = (
    HARMLESS + "all lanes of the warp execute the next .aligned instruction, which waits for them (9.7.16.8)"
)
RACE = "not ordered after the"
STUCK = "deadlock: nothing can run any more"

OUTCOMES: dict[str, tuple[str, ...]] = {
    "tcgen05.alloc": ("has no defined value",),
    "tcgen05.relinquish_alloc_permit": (PERMIT,),
    "tcgen05.dealloc": ("tensor memory is not deallocated",),
    "tcgen05.commit": (STUCK,),
    "tcgen05.wait::st": ("no tcgen05.wait::st between them",),
    "tcgen05.wait::ld": ("no tcgen05.wait::ld between them",),
    "tcgen05.fence::before_thread_sync": (NOTHING_YET, NO_BEFORE, COMPLETE),
    "tcgen05.fence::after_thread_sync": (NOTHING_YET, NO_AFTER, NO_AFTER, COMPLETE),
    "fence.proxy.async": ("no fence.proxy.async between them",),
    "fence.mbarrier_init": (RELEASED,),
    "mbarrier.init": ("no initialised mbarrier",),
    "mbarrier.try_wait": (RACE,),  # taken out: the wait returns at once
}
OF_GROUP: dict[int, dict[str, tuple[str, ...]]] = {
    # allocation and mbarrier; staging: cleared, filled, copied to tensor memory; handed to the MMA; D: in the image,
    # copied out; deallocation
    1: {"bar.sync": (*(RACE,) * 7, READ_BACK), "bar.warp.sync": (ALIGNED,) * 2},
    2: {
        "bar.sync": (RACE,) * 5,
        "barrier.cluster": (RACE, RACE, READ_BACK),
        "bar.warp.sync": (ALIGNED,) * 5,
    },
}


ASYNCHRONOUS = ("tcgen05.ld", "tcgen05.st", "tcgen05.mma", "tcgen05.cp")


@pytest.mark.parametrize("name", NAMES)
def test_why_that_is_harmless(name: str) -> None:
    """The claims above that are facts of the text: what lies on every path of the kernel."""
    (entry,) = entries(faults.texts()[name]).values()
    group = faults.form_of(name).group
    barrier = "bar.sync" if group == 1 else "barrier.cluster.wait"
    started = [i for opcode in ASYNCHRONOUS for i in entry.find(opcode)]
    assert started
    for fence in ("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync"):
        first = entry.find(fence)[0]
        assert all(first not in entry.reachable(i) for i in started)  # NOTHING_YET
    for user in ("tcgen05.commit", "mbarrier.try_wait"):
        assert entry.bypass(entry.find("mbarrier.init"), user, [barrier]) is None  # RELEASED
    last = entry.find(barrier)[-1]
    loads = entry.find("tcgen05.ld")
    assert (
        entry.without(last).bypass(loads, "tcgen05.dealloc", ["tcgen05.wait::ld", "bar.sync"]) is None
    )  # READ_BACK


def outcome(run: faults.Launch, text: str) -> str:
    try:
        return "the right bits" if run.run(text) else "wrong bits"
    except vsm.ExecutionError as error:
        return str(error)


@pytest.mark.parametrize("name", NAMES)
def test_no_synchronisation_can_be_taken_out_unseen(name: str) -> None:
    run = faults.prepare(name)
    table = OUTCOMES | OF_GROUP[run.arguments.form.group]
    found: dict[str, list[str]] = {root: [] for root in table}
    for opcode, text in faults.without_each(faults.texts()[name]):
        (root,) = (r for r in table if opcode == r or opcode.startswith(r + "."))
        found[root].append(outcome(run, text))
    for root, expected in table.items():
        assert len(found[root]) == len(expected), root
        for number, (got, want) in enumerate(zip(found[root], expected, strict=True), 1):
            assert got == "the right bits" if want.startswith(HARMLESS) else want in got, (root, number, got)
