"""Speed of the virtual SM: thread instructions per second of one core, the example's kernel, other makers' kernels.

    python benchmarks/vsm.py [--seconds S] [--peers FOLDER]

`--peers` is a folder of launch descriptions (default: the shared data, if present). Times of launches are the quickest
of several with the module loaded; "load" is parsing and decoding. The example's kernel is the whole jitted call.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

import tensor_mma  # of examples/
from shared_data import SHARED  # of tests/

import jax_tcgen05 as tc
from jax_tcgen05 import vsm

#: Staging as kernels do it: global words to swizzled shared addresses and back, all integer arithmetic.
STAGING = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry staging(.param .u64 source, .param .u64 target, .param .u32 rounds) {
  .reg .b32 %i, %n, %t, %row, %column, %offset, %at, %swizzle, %value, %base, %sum;
  .reg .b64 %p, %q, %wide;
  .reg .pred %more;
  .shared .align 1024 .b8 tile[16384];
  ld.param.u64 %p, [source];
  ld.param.u64 %q, [target];
  ld.param.u32 %n, [rounds];
  mov.u32 %t, %tid.x;
  mov.u32 %i, 0;
  mov.u32 %sum, 0;
  mov.u32 %base, tile;
LOOP:
  mad.lo.s32 %offset, %i, 128, %t;
  and.b32 %offset, %offset, 4095;
  shr.u32 %row, %offset, 5;
  and.b32 %column, %offset, 31;
  mul.wide.u32 %wide, %offset, 4;
  add.s64 %wide, %p, %wide;
  ld.global.u32 %value, [%wide];
  shl.b32 %at, %row, 7;
  shl.b32 %swizzle, %column, 2;
  add.s32 %at, %at, %swizzle;
  and.b32 %swizzle, %row, 7;
  shl.b32 %swizzle, %swizzle, 4;
  xor.b32 %at, %at, %swizzle;
  add.s32 %at, %at, %base;
  st.shared.u32 [%at], %value;
  xor.b32 %at, %at, 16;
  ld.shared.u32 %value, [%at];
  prmt.b32 %value, %value, %sum, 0x5140;
  lop3.b32 %sum, %value, %sum, %offset, 0x96;
  add.s32 %i, %i, 1;
  setp.lt.u32 %more, %i, %n;
  @%more bra LOOP;
  mul.wide.u32 %wide, %t, 4;
  add.s64 %wide, %q, %wide;
  st.global.u32 [%wide], %sum;
  ret;
}
"""
ROUNDS = 2000


def best_time(run: Callable[[], object], seconds: float) -> float:
    """The quickest of the runs that fit into `seconds`, in seconds; at least two."""
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def staging(seconds: float) -> None:
    module = vsm.Module(STAGING)
    source = np.arange(4096, dtype=np.uint32)
    target = np.zeros(128, np.uint32)

    def launch(threads: int = 1, grid: int = 1) -> vsm.Result:
        arguments = (source, target, np.uint32(ROUNDS))
        return module.launch("staging", grid=grid, block=128, args=arguments, threads=threads)

    count = launch().thread_instructions
    one = best_time(launch, seconds)
    print(f"staging code, 1 core:              {count / one / 1e6:8.0f} million thread instructions/s")
    two = best_time(lambda: launch(2, 2), seconds)
    print(f"staging code, 2 clusters, 2 cores: {2 * count / two / 1e6:8.0f} million thread instructions/s")


def example(seconds: float) -> None:
    _, a, b = next(iter(tensor_mma.inputs()))
    a, b = jax.device_put((a, b))
    model = best_time(lambda: tensor_mma.tensor_mma(a, b).block_until_ready(), seconds)
    with tc.executor("vsm"):
        kernel = best_time(lambda: tensor_mma.tensor_mma(a, b).block_until_ready(), seconds)
    print(f"example's kernel (128x64x64, f16): {kernel * 1e3:8.3f} ms, the model takes {model * 1e3:.3f} ms")


def peers(folder: Path, seconds: float) -> None:
    paths = sorted(folder.rglob("*.launch.json"))
    load = run = 0.0
    instructions = macs = 0
    slowest: list[tuple[float, str, vsm.Result]] = []
    start = time.perf_counter()
    for path in paths:
        case = vsm.Case.load(path)
        buffers = case.zeros()
        begin = time.perf_counter()
        module = vsm.Module(case.text())
        middle = time.perf_counter()
        result = case.launch(buffers, module)
        end = time.perf_counter()
        load, run = load + middle - begin, run + end - middle
        instructions, macs = instructions + result.thread_instructions, macs + result.macs
        slowest.append((end - middle, f"{path.parent.name}/{path.name.removesuffix('.launch.json')}", result))
        if path.name.startswith("blackwell_matmul_f16_1cta"):
            spent = best_time(lambda c=case, b=buffers, m=module: c.launch(b, m), seconds)  # type: ignore[misc]
            start += time.perf_counter() - end
            print(
                f"blackwell_matmul_f16_1cta:         {spent * 1e3:8.3f} ms, {result.macs / spent / 1e9:.1f} GMAC/s"
            )
    total = time.perf_counter() - start
    print(
        f"all {len(paths)} kernels of {folder.name}/:{'':<{10 - len(folder.name)}}       {total:8.3f} s: "
        f"load {load:.3f} s, run {run:.3f} s; {instructions / run / 1e6:.0f} million thread instructions/s, "
        f"{macs / run / 1e9:.1f} GMAC/s"
    )
    for spent, name, result in sorted(slowest, key=lambda row: -row[0])[:5]:
        print(f"  {name:<40} {spent * 1e3:8.3f} ms {result.thread_instructions:>10,} {result.macs:>12,} MACs")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row")
    parser.add_argument("--peers", type=Path, default=SHARED / "peers" if SHARED else None)
    options = parser.parse_args()
    staging(options.seconds)
    example(options.seconds)
    if options.peers:
        peers(options.peers, options.seconds)


if __name__ == "__main__":
    main()
