"""The CUDA side of the custom call: its lowering on any machine, and the call itself where a GPU is."""

import functools
import re
from typing import Any

import jax
import numpy as np
import pytest
from calls import Form, place, random_arrays

import jax_tcgen05 as tc
from jax_tcgen05.__main__ import CAPABILITIES
from jax_tcgen05._core import cuda_devices, cuda_unavailable

FORMS = {
    "dense": Form("f16", repeats=(1, 2, 2), a_swizzle=3, b_swizzle=3),
    "dense, A in TMEM": Form("f16", a_swizzle=None, b_swizzle=3),
    "tf32, MN-major": Form("tf32", N=64, a_swizzle=4, b_swizzle=4, a_major="mn", b_major="mn"),
    "fp4 in padded bytes": Form("f8f6f4", a_format="float4_e2m1fn", b_format="float6_e3m2fn", a_swizzle=1),
    "i8": Form("i8", M=64, N=24),
    "pair": Form("f16", M=256, group=2, a_swizzle=3, b_swizzle=2, batch=(3,)),
    "pair, layout B": Form("f16", M=128, group=2, a_swizzle=None, b_swizzle=3),
    ".ws": Form("f16", M=64, ws=True, a_swizzle=3),
    ".ws, M=32, A in TMEM": Form("f8f6f4", M=32, ws=True, a_swizzle=None),
    "mxf8f6f4": Form("mxf8f6f4", repeats=(1, 1, 4), a_swizzle=3, b_swizzle=3, batch=(2, 3), broadcast=("b",)),
    "mxf4": Form("mxf4", N=48, a_swizzle=2),
    "mxf4nvf4 4X": Form("mxf4nvf4", scale="scale_vec::4X", scale_format="float8_e4m3fn", packed_arrays=True),
    "mxf4nvf4 pair": Form("mxf4nvf4", M=256, group=2, scale="block16", scale_format="float8_e4m3fn"),
}
every_form = pytest.mark.parametrize("form", [pytest.param(form, id=name) for name, form in FORMS.items()])


def arguments(form: Form, **options: Any) -> Any:
    return place(form, random_arrays(form, seed=1), accum=True, **options)


def lowered(form: Form, **options: Any) -> tuple[str, Any]:
    """The custom call's line of StableHLO for a CUDA device, and the Plan."""
    given = arguments(form, **options)
    call = jax.jit(lambda *operands: tc.mma(form.opcode, *operands, **given.options).leaf)
    text = call.trace(*given.operands.values()).lower(lowering_platforms=("cuda",)).as_text()
    (line,) = [line for line in text.splitlines() if "custom_call" in line]
    return line, given


def dense(numbers: tuple[int, ...]) -> str:
    """How StableHLO prints int64 numbers (64-bit words as they are); equal ones are printed once."""
    signed = [int(number) for number in np.array(numbers, np.uint64).astype(np.int64)]
    return f"dense<{signed[0] if len(set(signed)) == 1 else signed}> : tensor<{len(signed)}xi64>"


@every_form
def test_lowering_for_cuda_carries_the_plan(form: Form) -> None:
    line, given = lowered(form)
    plan = given.plan()
    assert "stablehlo.custom_call @jax_tcgen05_mma(" in line
    assert f'opcode = "{form.opcode}"' in line
    assert f"idesc = {plan.idesc} : i64" in line
    assert f"repeats = {dense(plan.repeats)}" in line
    assert f"shared_bytes = {plan.shared_bytes} : i64" in line
    for name, operand in plan.operands.items():
        assert f"{name}_starts = {dense(operand.starts)}" in line


@every_form
def test_lowering_for_cuda_aliases_d_and_asks_for_row_major_layouts(form: Form) -> None:
    line, given = lowered(form)
    assert "output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []" in line
    ranks = [leaf.ndim for leaf in given.leaves.values()] + [len(form.batch)] * 2
    layouts = re.search(r"operand_layouts = \[(.*?)\], output_operand_aliases", line)
    assert layouts is not None
    found = re.findall(r"dense<(\[[^\]]*\]|\d*)> : tensor<(\d+)xindex>", layouts.group(1))
    assert [int(rank) for _, rank in found] == ranks
    for order, rank in found:
        wanted = list(range(int(rank)))[::-1]
        assert order in ("", "0") or order == str(wanted)


def test_lowering_for_cuda_passes_a_mask_as_the_last_operand() -> None:
    form = FORMS["pair"]
    line, _ = lowered(form, disable_output_lane=[1] * 8)
    assert "tensor<1x8xui32>" in line


def test_fp4_arrays_arrive_as_codes() -> None:
    line, _ = lowered(FORMS["mxf4nvf4 4X"])
    assert "f4E2M1FN" not in line


@functools.cache
def gpu() -> tuple[str, tuple[int, int]] | None:
    """(name, compute capability) of JAX's first GPU."""
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        return None
    major, minor = device.compute_capability.split(".")
    return device.device_kind, (int(major), int(minor))


def needs_gpu() -> tuple[int, int]:
    found = gpu()
    if found is None:
        pytest.skip(f"no GPU that JAX can use: {cuda_unavailable() or 'jax without its CUDA plugin'}")
    return found[1]


@every_form
def test_a_blackwell_gpu_gives_the_models_bits(form: Form) -> None:
    capability = needs_gpu()
    if capability not in CAPABILITIES:
        pytest.skip(f"this GPU has compute capability {capability}; tcgen05 needs 10.0, 10.3 or 11.0")
    given = arguments(form)
    call = jax.jit(lambda *operands: tc.mma(form.opcode, *operands, **given.options).leaf)
    results = []
    for platform in ("cpu", "cuda"):
        operands = jax.device_put(tuple(given.operands.values()), jax.devices(platform)[0])
        results.append(np.asarray(call(*operands)))
    np.testing.assert_array_equal(results[0].view(np.uint8), results[1].view(np.uint8))


def test_another_gpu_is_refused_with_its_capability() -> None:
    capability = needs_gpu()
    if capability in CAPABILITIES:
        pytest.skip("this GPU has tcgen05 instructions")
    given = arguments(FORMS["dense"])
    operands = jax.device_put(tuple(given.operands.values()), jax.devices("cuda")[0])
    call = jax.jit(lambda *operands: tc.mma(FORMS["dense"].opcode, *operands, **given.options).leaf)
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=rf"compute capability {capability[0]}\.{capability[1]}"
    ):
        call(*operands).block_until_ready()


def test_the_cpu_model_needs_no_gpu() -> None:
    needs_gpu()
    given = arguments(FORMS["dense"])
    with jax.default_device(jax.devices("cpu")[0]):
        result = given.mma().leaf
    assert {device.platform for device in result.devices()} == {"cpu"}


def test_the_driver_names_what_is_there() -> None:
    """Without a driver there is a reason and no device; with one there is no reason."""
    assert bool(cuda_unavailable()) != bool(cuda_devices())
