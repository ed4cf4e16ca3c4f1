"""``python -m jax_tcgen05 vsm run | list | opcodes``: kernels on the virtual SM from the command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import numpy as np

from .case import Case
from .coverage import coverage_table
from .module import CHECKS, SCHEDULES, ExecutionError, LoadError, Module
from .result import Result

FILLS = ("integers", "bits", "zeros")


class ProgressBar:
    """One line of clusters, instructions and seconds, at most ten times a second, on a terminal only."""

    WIDTH = 30

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._start = self._last = time.monotonic()
        self._shown = False

    def __call__(self, finished: int, clusters: int, instructions: int) -> None:
        now = time.monotonic()
        if not self._stream.isatty() or now - self._last < 0.1:
            return
        self._last, self._shown = now, True
        done = "#" * (self.WIDTH * finished // max(clusters, 1))
        self._stream.write(
            f"\r[{done:<{self.WIDTH}}] {finished}/{clusters} clusters, {instructions:,} warp instructions, "
            f"{now - self._start:.1f} s"
        )
        self._stream.flush()

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\033[K")


def fill(buffers: Mapping[str, np.ndarray], how: str, seed: int) -> None:
    """Fills buffers with small integers, random bits, or zeros."""
    rng = np.random.default_rng(seed)
    for buffer in buffers.values():
        if how == "integers":
            low = 0 if np.issubdtype(buffer.dtype, np.unsignedinteger) else -4
            buffer[...] = rng.integers(low, 5, buffer.shape).astype(np.float32).astype(buffer.dtype)
        elif how == "bits":
            raw = buffer.reshape(-1).view(np.uint8)
            raw[...] = rng.integers(0, 256, raw.shape)


def named_files(arguments: list[str], buffers: Mapping[str, np.ndarray], what: str) -> dict[str, np.ndarray]:
    """Arrays of ``NAME=file.npy`` arguments, in the shapes and dtypes of the buffers; ValueError if they do not fit."""
    out = {}
    for argument in arguments:
        name, _, file = argument.partition("=")
        if name not in buffers or not file:
            raise ValueError(
                f"{what} must be NAME=file.npy with NAME one of {', '.join(buffers)}, got {argument!r}"
            )
        array, buffer = np.load(file), buffers[name]
        if array.dtype.kind == "V" and array.dtype.itemsize == buffer.dtype.itemsize:
            array = array.view(buffer.dtype)  # NumPy does not store the names of the ml_dtypes
        if array.size != buffer.size:
            raise ValueError(f"{what} {name}: {file} has shape {array.shape}, the buffer {buffer.shape}")
        out[name] = array.reshape(buffer.shape).astype(buffer.dtype)
    return out


def report(result: Result, seconds: float, opcodes: int) -> None:
    """Prints counts, bytes per space, and the most executed opcodes."""
    rate = result.thread_instructions / max(seconds, 1e-9) / 1e6
    print(f"{result.thread_instructions:,} thread instructions, {result.instructions:,} warp instructions")
    print(f"{result.macs:,} multiply-accumulates, {result.asynchronous:,} asynchronous works")
    print(f"{seconds:.3f} s, {rate:.1f} million thread instructions per second")
    print(f"{'bytes':<10}{'read':>16}{'written':>16}")
    for space, read in result.bytes_read.items():
        print(f"{space:<10}{read:>16,}{result.bytes_written[space]:>16,}")
    print(f"{'thread instructions':>20}  opcode")
    ranked = sorted(result.opcodes.items(), key=lambda row: -row[1])
    for opcode, count in ranked[:opcodes]:
        print(f"{count:>20,}  {opcode}")
    if len(ranked) > opcodes:
        print(f"{'':>20}  ... {len(ranked) - opcodes} more opcodes")


def run(options: argparse.Namespace) -> int:
    case = Case.load(options.case)
    buffers = case.zeros()
    fill(buffers, options.fill, options.seed)
    for name, array in named_files(options.input, buffers, "--input").items():
        buffers[name][...] = array
    expected = named_files(options.expect, buffers, "--expect")
    module = Module(case.text())
    bar = ProgressBar(sys.stderr)
    start = time.perf_counter()
    try:
        result = case.launch(
            buffers,
            module,
            check=options.check,
            schedule=options.schedule,
            step_limit=options.step_limit,
            trace=options.trace or options.timeline is not None,
            watch=[buffers[name] for name in expected],
            progress=bar,
        )
    except ExecutionError as error:
        bar.close()
        trace = getattr(error, "trace", None)
        if trace is not None and options.trace:
            print(trace.text())
        if trace is not None and options.timeline:
            trace.timeline().savefig(options.timeline)
        raise
    seconds = time.perf_counter() - start
    bar.close()
    if options.trace:
        assert result.trace is not None
        print(result.trace.text())
    if options.timeline:
        assert result.trace is not None
        result.trace.timeline().savefig(options.timeline)
    report(result, seconds, options.opcodes)
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        for name, buffer in buffers.items():
            np.save(options.save / f"{name}.npy", buffer)
    wrong = False
    for name, array in expected.items():
        difference = result.first_difference(buffers[name], array, rtol=options.rtol, atol=options.atol)
        print(f"{name}: as expected" if difference is None else f"{name}{difference}")
        wrong = wrong or difference is not None
    return int(wrong)


def list_kernels(options: argparse.Namespace) -> int:
    """Prints the kernels of a PTX file with their parameters: offset, size and alignment in bytes, type, name."""
    module = Module(Case.read_text(options.ptx))
    for kernel in module.kernels:
        print(kernel)
        for p in module.parameters(kernel):
            name = p.name.removeprefix(f"{kernel}_")
            print(f"  {p.offset:>6} {p.size:>6} {p.align:>4}  .{p.type:<6} {name}")
    return 0


def add_commands(commands: argparse._SubParsersAction) -> None:
    """The subcommand ``vsm`` with its own."""
    vsm = commands.add_parser("vsm", help="the virtual SM: run PTX kernels on the CPU")
    inner = vsm.add_subparsers(dest="vsm_command", required=True)

    p = inner.add_parser("run", help="run a launch description and report what it did")
    p.add_argument("case", type=Path, metavar="case.launch.json")
    p.add_argument("--check", choices=CHECKS, default="normal", help="strict reports what hardware does not")
    p.add_argument(
        "--schedule", choices=SCHEDULES, default="fair", help="when asynchronous work takes effect"
    )
    p.add_argument("--step-limit", type=int, default=1 << 32, help="warp instructions")
    p.add_argument(
        "--fill", choices=FILLS, default="integers", help="buffers without --input (default: integers)"
    )
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--input", action="append", default=[], metavar="NAME=file.npy", help="contents of a buffer"
    )
    p.add_argument("--expect", action="append", default=[], metavar="NAME=file.npy", help="compare a buffer")
    p.add_argument("--rtol", type=float, default=0.0)
    p.add_argument("--atol", type=float, default=0.0)
    p.add_argument("--save", type=Path, metavar="FOLDER", help="write the buffers as .npy files afterwards")
    p.add_argument("--trace", action="store_true", help="print tensor memory, barrier and copy events")
    p.add_argument("--timeline", type=Path, metavar="file.png", help="draw them (needs matplotlib)")
    p.add_argument("--opcodes", type=int, default=20, help="opcodes to list (default: 20)")
    p.set_defaults(function=run)

    p = inner.add_parser("list", help="kernels and parameters of a PTX file")
    p.add_argument("ptx", type=Path)
    p.set_defaults(function=list_kernels)

    p = inner.add_parser("opcodes", help="which instructions are executed")
    p.set_defaults(function=lambda _: print(coverage_table(), end="") or 0)


def main(options: argparse.Namespace) -> int:
    """Runs the chosen command; errors of input and of kernels are one message and status 2."""
    try:
        return int(options.function(options))
    except (LoadError, ExecutionError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
