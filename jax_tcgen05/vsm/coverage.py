"""Which instructions of the PTX ISA the virtual SM executes: the ISA's own list against the table of instructions."""

from __future__ import annotations

from .module import instruction_table

#: PTX ISA 9.0, chapter 9.7: section, title, instructions. An instruction in several sections is listed in each.
ISA: tuple[tuple[str, str, str], ...] = (
    (
        "9.7.1",
        "Integer arithmetic",
        "add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi bmsk szext dp4a dp2a",
    ),
    ("9.7.2", "Extended-precision integer arithmetic", "add addc sub subc mad madc"),
    (
        "9.7.3",
        "Floating point",
        "testp copysign add sub mul fma mad div abs neg min max rcp sqrt rsqrt sin cos lg2 ex2 tanh",
    ),
    ("9.7.4", "Half precision", "add sub mul fma neg abs min max tanh ex2"),
    ("9.7.5", "Mixed precision", "add sub fma"),
    ("9.7.6-7", "Comparison and selection", "set setp selp slct"),
    ("9.7.8", "Logic and shift", "and or xor not cnot lop3 shf shl shr"),
    (
        "9.7.9",
        "Data movement and conversion",
        "mov shfl prmt ld ldu st st.async st.bulk red.async multimem.ld_reduce multimem.st multimem.red prefetch "
        "prefetchu applypriority discard createpolicy isspacep cvta cvt cvt.pack mapa getctarank",
    ),
    (
        "9.7.9.25-27",
        "Asynchronous copies",
        "cp.async cp.async.commit_group cp.async.wait_group cp.async.wait_all cp.async.bulk cp.reduce.async.bulk "
        "cp.async.bulk.prefetch multimem.cp.async.bulk multimem.cp.reduce.async.bulk cp.async.bulk.tensor "
        "cp.reduce.async.bulk.tensor cp.async.bulk.prefetch.tensor cp.async.bulk.commit_group "
        "cp.async.bulk.wait_group tensormap.replace",
    ),
    ("9.7.10", "Textures", "tex tld4 txq istypep"),
    ("9.7.11", "Surfaces", "suld sust sured suq"),
    ("9.7.12", "Control flow", "bra brx.idx call ret exit"),
    (
        "9.7.13",
        "Synchronisation and communication",
        "bar barrier bar.warp barrier.warp barrier.cluster membar fence atom red vote match activemask redux "
        "griddepcontrol elect.sync mbarrier.init mbarrier.inval mbarrier.expect_tx mbarrier.complete_tx "
        "mbarrier.arrive mbarrier.arrive_drop cp.async.mbarrier.arrive mbarrier.test_wait mbarrier.try_wait "
        "mbarrier.pending_count tensormap.cp_fenceproxy clusterlaunchcontrol.try_cancel "
        "clusterlaunchcontrol.query_cancel",
    ),
    (
        "9.7.14",
        "Warp-level matrices",
        "wmma.load wmma.store wmma.mma mma mma.sp mma.sp::ordered_metadata ldmatrix stmatrix movmatrix",
    ),
    ("9.7.15", "Warpgroup matrices", "wgmma"),
    (
        "9.7.16",
        "Tensor core of the fifth generation",
        "tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.ld.red tcgen05.st "
        "tcgen05.wait::ld tcgen05.wait::st tcgen05.cp tcgen05.shift tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws.sp "
        "tcgen05.commit tcgen05.fence::before_thread_sync tcgen05.fence::after_thread_sync",
    ),
    ("9.7.17", "Stack", "stacksave stackrestore alloca"),
    (
        "9.7.18",
        "Video",
        "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 "
        "vavrg4 vabsdiff4 vmin4 vmax4 vset4",
    ),
    ("9.7.19", "Miscellaneous", "brkpt nanosleep pmevent trap setmaxnreg"),
)


def coverage_table() -> str:
    """The text of docs/opcodes.md: per section of the ISA each instruction, whether it is executed, forms or reason."""
    rows = {root: (executed, forms) for _, root, executed, forms in instruction_table()}
    lines = [
        "# Instructions of the virtual SM",
        "",
        "The chapter of the PTX ISA on instructions against the table of instructions (`csrc/vsm/ops`). Written by",
        "`python -m jax_tcgen05 vsm opcodes`; a test compares. Refused instructions are errors when a module is",
        "loaded, with the reason below; so is any form that is not listed.",
    ]
    seen: set[str] = set()
    for number, title, names in ISA:
        new = [name for name in names.split() if name not in seen]
        again = [name for name in names.split() if name in seen]
        lines += ["", f"## {title} ({number})", ""]
        if again:
            lines += [f"Also in sections above: {', '.join(f'`{name}`' for name in again)}.", ""]
        if new:
            lines += ["| instruction | | forms, or why not |", "|---|---|---|"]
        for name in new:
            executed, forms = rows.get(name, (False, "not in the table"))
            lines.append(f"| `{name}` | {'executed' if executed else 'refused'} | {forms} |")
        seen.update(new)
    return "\n".join(lines) + "\n"
