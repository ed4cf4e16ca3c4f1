"""Speed of the functional model: GMAC/s of one core per kind, and the latency of the example's call.

    python benchmarks/model.py [--seconds S]

One 128x256 tile over 4 K repeats with D resident, through the public jitted call: a batch of one runs on one core.
The last column compares with NumPy's float32 product of the same size in the same run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

# One core for NumPy too: the comparison is core against core.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import jax
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

import tensor_mma  # of examples/
from calls import Form, multiply_adds, place, random_arrays  # of tests/

import jax_tcgen05 as tc
from jax_tcgen05.contract import make_plan, read_call

TILE = {"M": 128, "N": 256, "repeats": (1, 1, 4), "a_swizzle": 3, "b_swizzle": 3}
FORMS = {
    "f16": Form("f16", **TILE),
    "f16 -> f16": Form("f16", d_format="float16", **TILE),
    "bf16": Form("f16", a_format="bfloat16", b_format="bfloat16", **TILE),
    "tf32": Form("tf32", **TILE),
    "f8f6f4 e4m3": Form("f8f6f4", **TILE),
    "f8f6f4 e2m1": Form("f8f6f4", a_format="float4_e2m1fn", b_format="float4_e2m1fn", **TILE),
    "i8": Form("i8", **TILE),
    "f16 .ws": Form("f16", ws=True, **TILE),
    "mxf8f6f4": Form("mxf8f6f4", **TILE),
    "mxf4": Form("mxf4", **TILE),
    "mxf4nvf4": Form("mxf4nvf4", scale="block16", scale_format="float8_e4m3fn", **TILE),
}


def best_time(run: Callable[[], object], seconds: float) -> float:
    """The quickest of the runs that fit into `seconds`, in seconds."""
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def tile_time(form: Form, seconds: float) -> float:
    arguments = place(form, random_arrays(form), accum=True)

    @jax.jit
    def call(*operands: tc.PlacedOperand) -> jax.Array:
        return tc.mma(form.opcode, *operands, **arguments.options).leaf

    return best_time(lambda: call(*arguments.operands.values()).block_until_ready(), seconds)


def numpy_time(form: Form, seconds: float) -> float:
    mr, nr, kr = form.repeats
    k = kr * form.instruction_shape[2]
    rng = np.random.default_rng(0)
    a, b = rng.random((mr * form.M, k), np.float32), rng.random((k, nr * form.N), np.float32)
    return best_time(lambda: a @ b, seconds / 4)


def contract_time(seconds: float) -> float:
    """All checks of one call with a 256x64 operand B, without the cache of Plans."""
    form = Form("f16", N=256, repeats=(1, 1, 4), a_swizzle=3, b_swizzle=3)
    arguments = place(form, random_arrays(form))
    call, _ = read_call(*arguments.positional, **arguments.options)
    return best_time(lambda: make_plan.__wrapped__(call), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row")
    seconds = parser.parse_args().seconds
    print(f"{'kind':14}{'ms/call':>10}{'GMAC/s/core':>14}{'of NumPy f32':>14}")
    for name, form in FORMS.items():
        spent, numpy = tile_time(form, seconds), numpy_time(form, seconds)
        print(f"{name:14}{spent * 1e3:10.3f}{multiply_adds(form) / spent / 1e9:14.2f}{numpy / spent:14.3f}")
    _, a, b = next(iter(tensor_mma.inputs()))
    a, b = jax.device_put((a, b))
    spent = best_time(lambda: tensor_mma.tensor_mma(a, b).block_until_ready(), seconds)
    print(f"\nexample's call (128x64x64, f16): {spent * 1e3:.3f} ms")
    print(f"checking a call with a 256x64 operand, uncached: {contract_time(seconds) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
