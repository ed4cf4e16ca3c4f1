"""What the virtual SM tells a kernel writer: traces, bytes per space, who wrote a wrong element; the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jax_tcgen05 import __main__ as cli
from jax_tcgen05 import vsm

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"

#: One warp: allocates tensor memory, stores and loads it, copies 64 bytes through shared memory, and stores.
KERNEL = (
    HEADER
    + """
.visible .entry k(.param .u64 source, .param .u64 target) {
  .reg .b32 %r<8>; .reg .b64 %a, %b, %t; .reg .pred %p, %first;
  .shared .align 128 .b8 buffer[64];
  .shared .align 8 .b64 bar;
  .shared .b32 base;
  ld.param.u64 %a, [source];
  ld.param.u64 %b, [target];
  mov.u32 %r0, %tid.x;
  setp.eq.u32 %first, %r0, 0;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 32;
  @%first mbarrier.init.shared.b64 [bar], 1;
  bar.sync 0;
  ld.shared.b32 %r1, [base];
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r0};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [%r1];
  tcgen05.wait::ld.sync.aligned;
  @%first mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
  @%first cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [buffer], [%a], 64, [bar];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
  @!%p bra WAIT;
  mul.wide.u32 %t, %r0, 4;
  add.s64 %t, %t, %b;
  st.global.u32 [%t], %r2;
  @%first cp.async.bulk.global.shared::cta.bulk_group [%b + 128], [buffer], 64;
  @%first cp.async.bulk.commit_group;
  @%first cp.async.bulk.wait_group 0;
  bar.sync 0;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;
  ret;
}
"""
)


@pytest.fixture(scope="module")
def launched() -> tuple[vsm.Result, np.ndarray, np.ndarray]:
    source, target = np.arange(100, 116, dtype=np.uint32), np.zeros(64, np.uint32)
    result = vsm.Module(KERNEL).launch(
        "k", grid=1, block=32, args=(source, target), trace=True, watch=(target,)
    )
    return result, source, target


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(KERNEL.splitlines(), 1) if text in line)


def events(result: vsm.Result, opcode: str, kind: str) -> list[vsm.Event]:
    assert result.trace is not None
    return [e for e in result.trace if e.kind == kind and e.instruction.opcode.startswith(opcode)]


def test_the_kernel_itself(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    _, source, target = launched
    assert target[:32].tolist() == list(range(32))
    assert target[32:48].tolist() == source.tolist()
    assert not target[48:].any()


def test_bytes_per_space(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, _, _ = launched
    # Global: the bulk copies, and 32 words. Shared: the copies, the loads of `base` by 32 threads.
    assert result.bytes_read["global"] == 64
    assert result.bytes_written["global"] == 32 * 4 + 64
    assert result.bytes_read["shared"] == 64 + 32 * 4
    assert result.bytes_written["shared"] == 64
    assert result.bytes_read["tensor"] == result.bytes_written["tensor"] == 32 * 4
    assert result.bytes_read["param"] == 2 * 32 * 8
    assert result.bytes_written["param"] == result.bytes_read["local"] == result.bytes_written["local"] == 0


def test_bytes_and_macs_of_mma() -> None:
    text = HEADER + (
        ".visible .entry k() { .reg .b32 %d; .reg .pred %p; .shared .align 1024 .b8 s[32768]; .shared .b32 base;\n"
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 32; ld.shared.b32 %d, [base];\n"
        "{ .reg .b64 %a; .reg .pred %one, %e; elect.sync _|%e, -1; setp.eq.u32 %one, 0, 0;\n"
        "mov.u64 %a, s; shr.u64 %a, %a, 4; or.b64 %a, %a, 0x0000400800080000;\n"
        "@%e tcgen05.mma.cta_group::1.kind::f16 [%d], %a, %a, 0x8040010, %one;\n"
        "}\n tcgen05.dealloc.cta_group::1.sync.aligned.b32 %d, 32; ret; }\n"
    )
    result = vsm.Module(text).launch("k", grid=1, block=32, trace=True)
    assert result.macs == 128 * 16 * 16
    assert result.bytes_read["shared"] == (128 + 16) * 32 + 32 * 4
    assert result.bytes_read["tensor"] == result.bytes_written["tensor"] == 128 * 16 * 4
    (effect,) = events(result, "tcgen05.mma", "effect")
    assert effect.notes["idesc"] == 0x8040010 and effect.notes["accumulate"] == 1 and effect.group == "mma"


def test_trace_of_tensor_memory(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, _, _ = launched
    (alloc,) = events(result, "tcgen05.alloc", "instruction")
    assert alloc.notes == {"columns": 32, "column": 0}
    assert alloc.instruction.line == line_of("tcgen05.alloc")
    assert (alloc.cta, alloc.warp, alloc.lanes) == ((0, 0, 0), 0, 2**32 - 1)
    (store,) = events(result, "tcgen05.st", "instruction")
    (load,) = events(result, "tcgen05.ld", "instruction")
    assert alloc.start < store.start < load.start
    assert store.group == load.group == "tensor memory"


def test_trace_of_copies_and_their_barrier(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, _, _ = launched
    incoming = events(result, "cp.async.bulk.shared", "effect")[0]
    assert incoming.notes["bytes"] == 64 and incoming.lanes == 1 and incoming.group == "copy"
    (wait,) = events(result, "mbarrier.try_wait", "instruction")
    assert incoming.end is not None and wait.end is not None
    # Warps wait until the copy has taken effect, and not before it was issued.
    assert incoming.start < wait.start < wait.end and incoming.end <= wait.end
    assert result.trace is not None
    states = [
        (e.notes["phase"], e.notes["pending"], e.notes["tx"]) for e in result.trace if e.kind == "mbarrier"
    ]
    assert states == [(0, 1, 0), (0, 0, 64), (1, 1, 0)]
    assert [e.notes["completed"] for e in result.trace if e.kind == "mbarrier"] == [0, 0, 1]
    last = [e for e in result.trace if e.kind == "mbarrier"][-1]
    assert last.instruction.opcode.startswith("cp.async.bulk.shared") and last.owner == (0, 0, 0)


def test_trace_as_text(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, _, _ = launched
    assert result.trace is not None
    lines = result.trace.text().splitlines()
    assert len(lines) == len(result.trace) + 1
    assert any(
        "tcgen05.alloc" in line and "columns=32" in line and "CTA 0,0,0 warp 0" in line for line in lines
    )
    assert any("mbarrier of CTA 0,0,0" in line and "completed=1 phase=1" in line for line in lines)
    assert result.trace.text(3).splitlines()[-1] == f"... {len(result.trace) - 3} more events"


def test_trace_has_a_limit() -> None:
    result = vsm.Module(KERNEL).launch(
        "k", grid=1, block=32, args=(np.zeros(16, np.uint32), np.zeros(64, np.uint32)), trace=5
    )
    assert result.trace is not None
    assert len(result.trace) == 5 and result.trace.truncated
    assert "not recorded" in result.trace.text()


def test_trace_survives_a_deadlock() -> None:
    text = KERNEL.replace("expect_tx.shared.b64 _, [bar], 64;", "expect_tx.shared.b64 _, [bar], 80;")
    with pytest.raises(vsm.ExecutionError, match="deadlock") as error:
        vsm.Module(text).launch(
            "k", grid=1, block=32, args=(np.zeros(16, np.uint32), np.zeros(64, np.uint32)), trace=True
        )
    trace = error.value.trace  # type: ignore[attr-defined]
    assert [e.notes["tx"] for e in trace if e.kind == "mbarrier"][-1] == 16
    waiting = [e for e in trace if e.end is None]
    assert waiting and all(e.instruction.opcode.startswith("mbarrier.try_wait") for e in waiting)


def test_timeline(launched: tuple[vsm.Result, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result, _, _ = launched
    assert result.trace is not None
    figure = result.trace.timeline()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[:2] == ["CTA 0,0,0 warp 0", "CTA 0,0,0 copies"] and "mbarrier 0x" in labels[2]
    figure.savefig(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 1000
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert not result.trace.timeline(cta=(1, 0, 0)).axes[0].get_yticklabels()


def test_tracing_changes_nothing(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, source, target = launched
    again = np.zeros_like(target)
    plain = vsm.Module(KERNEL).launch("k", grid=1, block=32, args=(source, again))
    assert plain.trace is None
    assert again.tolist() == target.tolist()
    assert plain.opcodes == result.opcodes


# ---- the first difference and its writer ----


def test_the_writer_of_a_store(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, _, target = launched
    expected = target.copy()
    expected[[7, 9]] += 1
    difference = result.first_difference(target, expected)
    assert difference is not None and difference.writer is not None
    assert (difference.index, difference.got, difference.expected) == ((7,), 7, 8)
    assert (difference.count, difference.size) == (2, 64)
    assert difference.writer.instruction.line == line_of("st.global.u32")
    assert (difference.writer.cta, difference.writer.thread) == ((0, 0, 0), 7)
    assert "st.global.u32" in str(difference) and "thread 7" in str(difference)


def test_the_writer_of_a_copy(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, _, target = launched
    writer = result.writer(target, 33)
    assert writer is not None
    assert writer.instruction.line == line_of("cp.async.bulk.global") and writer.thread == 0


@pytest.mark.parametrize("schedule", ["fair", "late", "eager"])
def test_writers_without_a_trace(schedule: str) -> None:
    source, target = np.arange(100, 116, dtype=np.uint32), np.zeros(64, np.uint32)
    result = vsm.Module(KERNEL).launch(
        "k", grid=1, block=32, args=(source, target), watch=(target,), schedule=schedule
    )
    assert result.trace is None
    stored, copied = result.writer(target, 5), result.writer(target, 40)
    assert stored is not None and stored.instruction.line == line_of("st.global.u32")
    assert copied is not None and copied.instruction.line == line_of("cp.async.bulk.global")


def test_an_element_that_nobody_wrote(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, _, target = launched
    assert result.writer(target, 50) is None
    difference = result.first_difference(target, np.where(np.arange(64) == 50, 1, target))
    assert "never written" in str(difference)


def test_differences_are_of_bits_unless_a_tolerance_is_given(
    launched: tuple[vsm.Result, np.ndarray, np.ndarray],
) -> None:
    result, _, _ = launched
    got = np.array([[0.0, 1.0], [np.nan, 2.0]], np.float32)
    assert result.first_difference(got, got.copy()) is None
    difference = result.first_difference(got, np.array([[-0.0, 1.0], [np.nan, 2.0]]))
    assert difference is not None and difference.index == (0, 0) and not difference.watched
    near = got * np.float32(1.01)
    assert result.first_difference(got, near, rtol=0.02) is None
    difference = result.first_difference(got, near, rtol=0.001)
    assert difference is not None and difference.index == (0, 1) and difference.count == 2


def test_refusals(launched: tuple[vsm.Result, np.ndarray, np.ndarray]) -> None:
    result, source, target = launched
    with pytest.raises(ValueError, match="was not watched"):
        result.writer(source, 0)
    with pytest.raises(ValueError, match=r"shape \(64,\), expected is \(3,\)"):
        result.first_difference(target, np.zeros(3))
    with pytest.raises(ValueError, match="watch must hold arrays that are among the arguments"):
        vsm.Module(KERNEL).launch("k", grid=1, block=32, args=(source, target), watch=(np.zeros(1),))


# ---- the table of instructions and its page ----


def test_the_page_of_instructions_is_in_step() -> None:
    page = Path(__file__).parents[1] / "docs" / "opcodes.md"
    if not page.exists():
        pytest.skip("the documentation is not here")
    from jax_tcgen05.vsm.coverage import coverage_table

    assert page.read_text() == coverage_table(), "run: python -m jax_tcgen05 vsm opcodes > docs/opcodes.md"


def test_every_instruction_of_the_isa_has_a_row() -> None:
    from jax_tcgen05.vsm.coverage import ISA

    roots = [root for _, root, _, _ in vsm.instruction_table()]
    assert len(roots) == len(set(roots)), "an opcode is known in two places"
    assert set(roots) == {name for *_, names in ISA for name in names.split()}


def test_refused_instructions_say_why() -> None:
    for _, root, executed, forms in vsm.instruction_table():
        if executed:
            continue
        assert forms
        with pytest.raises(vsm.LoadError) as error:
            vsm.Module(HEADER + f".visible .entry k() {{ .reg .b32 %r; {root} %r, %r; }}")
        assert root in str(error.value) and "line 4" in str(error.value)
        assert root.startswith("tcgen05.mma") or forms in str(error.value)


# ---- the command line ----


@pytest.fixture
def case(tmp_path: Path) -> Path:
    (tmp_path / "k.ptx").write_text(KERNEL)
    description = {
        "ptx": "k.ptx",
        "entry": "k",
        "grid": [1, 1, 1],
        "block": [32, 1, 1],
        "buffers": {
            "source": {"dtype": "uint32", "shape": [16]},
            "target": {"dtype": "uint32", "shape": [4, 16]},
        },
        "params": [
            {"off": 0, "size": 8, "kind": "ptr", "buffer": "source"},
            {"off": 8, "size": 8, "kind": "ptr", "buffer": "target"},
        ],
    }
    path = tmp_path / "k.launch.json"
    path.write_text(json.dumps(description))
    return path


def test_run(case: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = np.arange(16, dtype=np.uint32)
    np.save(tmp_path / "source.npy", source)
    want = np.zeros((4, 16), np.uint32)
    want[:2] = np.arange(32).reshape(2, 16)
    want[2] = source
    np.save(tmp_path / "want.npy", want)
    arguments = ["vsm", "run", str(case), "--fill", "zeros", "--trace", "--save", str(tmp_path / "out")]
    arguments += [
        "--input",
        f"source={tmp_path / 'source.npy'}",
        "--expect",
        f"target={tmp_path / 'want.npy'}",
    ]
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert "target: as expected" in out
    assert "thread instructions" in out and "tcgen05.alloc" in out and "st.global.u32" in out
    assert np.load(tmp_path / "out" / "target.npy").tolist() == want.tolist()

    want[1, 3] += 1
    np.save(tmp_path / "want.npy", want)
    assert cli.main(arguments) == 1
    assert "target[1, 3] is 19, expected 20; written by line" in capsys.readouterr().out


def test_run_strict_and_random(case: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    outputs = []
    for name in "ab":
        folder = tmp_path / name
        options = ["--schedule", "late", "--fill", "bits", "--seed", "3", "--save", str(folder)]
        assert cli.main(["vsm", "run", str(case), *options]) == 0
        outputs.append(np.load(folder / "target.npy")[2].tolist())
    assert outputs[0] == outputs[1] and any(outputs[0])
    assert "as expected" not in capsys.readouterr().out


def test_run_reports_errors(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["vsm", "run", str(case), "--expect", "nothing=x.npy"]) == 2
    assert "NAME one of source, target" in capsys.readouterr().err
    assert cli.main(["vsm", "run", str(case), "--step-limit", "5"]) == 2
    assert "step limit of 5" in capsys.readouterr().err
    case.write_text("{}")
    assert cli.main(["vsm", "run", str(case)]) == 2
    assert "is no launch description: it lacks" in capsys.readouterr().err
    case.write_text("[")
    assert cli.main(["vsm", "run", str(case)]) == 2


def test_list_and_opcodes(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["vsm", "list", str(case.parent / "k.ptx")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "k" and lines[1].split() == ["0", "8", "8", ".u64", "source"]
    assert cli.main(["vsm", "opcodes"]) == 0
    assert "| `tcgen05.mma` | executed |" in capsys.readouterr().out


def test_progress() -> None:
    from jax_tcgen05.vsm.cli import ProgressBar

    class Terminal:
        def __init__(self, terminal: bool) -> None:
            self.text, self.terminal = "", terminal

        def isatty(self) -> bool:
            return self.terminal

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    for terminal in (True, False):
        stream = Terminal(terminal)
        bar = ProgressBar(stream)  # type: ignore[arg-type]
        bar._last -= 1
        bar(2, 4, 1234)
        bar(3, 4, 2000)  # too soon to show
        bar.close()
        if terminal:
            assert "#" * 15 + " " * 15 in stream.text and "2/4 clusters, 1,234 warp" in stream.text
            assert "3/4" not in stream.text and stream.text.endswith("\r\033[K")
        else:
            assert stream.text == ""

    calls: list[tuple[int, int, int]] = []
    text = HEADER + ".visible .entry k() { ret; }"
    vsm.Module(text).launch("k", grid=3, block=32, threads=1, progress=lambda *a: calls.append(a))
    assert calls[0] == (0, 3, 0) and calls[-1][0] == 3


def test_module_as_program(case: Path) -> None:
    command = [sys.executable, "-m", "jax_tcgen05", "vsm", "run", str(case), "--opcodes", "1"]
    # Not where the sources lie: they would hide the installed package.
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=case.parent)
    assert "more opcodes" in done.stdout and not done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buffers": {"source": {"dtype": "uint33", "shape": [4]}}}, "buffers: data type 'uint33'"),
        ({"buffers": {"source": {"dtype": "uint32", "shape": [-4]}}}, "buffers: negative dimensions"),
        ({"buffers": [1]}, "buffers: "),
        ({"params": [{"kind": "ptr", "buffer": "nobody"}] * 2}, "params: lacks 'nobody'"),
        ({"params": [{"kind": "tensormap", "tensormap": 3}] * 2}, "params: list index out of range"),
        ({"params": [{"kind": "i32", "value": 1 << 40}] * 2}, "params: int too big"),
        ({"params": [{"kind": "whatever"}] * 2}, "params: unknown kind of parameter: 'whatever'"),
        ({"params": []}, "launch: kernel 'k' has 2 parameters, got 0 arguments"),
        ({"grid": [0, 1, 1]}, "launch: grid must be one to three positive integers"),
        ({"dyn_smem": -1}, "launch: shared_bytes must be an integer from 0, got -1"),
        ({"tensormaps": [{"buffer": "source"}]}, "tensormaps: lacks 'dtype'"),
        (
            {"tensormaps": [{"buffer": "source", "dtype": "UINT8", "gdim": [-1], "gstride_bytes": []}]},
            "tensormaps: tensor map: gdim must hold integers that are not negative",
        ),
    ],
)
def test_wrong_descriptions(case: Path, change: dict[str, object], message: str) -> None:
    description = json.loads(case.read_text()) | change
    with pytest.raises(ValueError, match="launch description, " + re.escape(message)):
        wrong = vsm.Case(case, description)
        wrong.launch(wrong.zeros())


def test_wrong_options(case: Path) -> None:
    module = vsm.Module(KERNEL)
    for option in ({"step_limit": -1}, {"threads": 0}, {"trace": -3}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} must be an integer from"):
            module.launch("k", grid=1, block=32, args=(np.zeros(16), np.zeros(64)), **option)  # type: ignore[arg-type]
