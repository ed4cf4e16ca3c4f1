"""Checks on eight CPU devices; run as a script, in a process of its own, since the device count is fixed at start.

Prints a JSON object: name of the check -> "" or the traceback.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from base_calls import Call, leaves, legal_call, run
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def mesh(count: int = 8) -> Any:
    return jax.make_mesh((count,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:count])


def place(arrays: dict[str, Any], over: Any, spec: Any) -> dict[str, Any]:
    return {name: jax.device_put(np.asarray(x), NamedSharding(over, spec)) for name, x in arrays.items()}


def collectives(function: Any, *args: Any) -> list[str]:
    text = jax.jit(function).lower(*args).compile().as_text()
    return [word for word in COLLECTIVES if word in text]


def pair_of_calls(batch: int = 8, **form: Any) -> tuple[Call, Call]:
    """The whole batch, and one device's part of it."""
    return legal_call(N=16, batch=(batch,), **form), legal_call(N=16, batch=(batch // 8,), **form)


def each_device_by_itself() -> None:
    call = legal_call()
    want = np.asarray(jax.jit(run(call))(leaves(call)))
    outs = [jax.jit(run(call))(jax.device_put(leaves(call), device)) for device in jax.devices()]
    for out, device in zip(outs, jax.devices(), strict=True):
        assert out.devices() == {device}
        np.testing.assert_array_equal(out, want)


def sharded_outside_shard_map() -> None:
    """Right numbers; XLA may gather, as the documentation says."""
    whole, _ = pair_of_calls()
    want = np.asarray(run(whole)(leaves(whole)))
    got = jax.jit(run(whole))(place(leaves(whole), mesh(), P("x")))
    np.testing.assert_array_equal(got, want)


def sharded_inside_shard_map() -> None:
    for form in ({}, {"kind": "mxf4"}):
        whole, part = pair_of_calls(16, **form)
        arrays = place(leaves(whole), mesh(), P("x"))
        function = jax.shard_map(run(part), mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
        np.testing.assert_array_equal(jax.jit(function)(arrays), run(whole)(leaves(whole)))
        assert collectives(function, arrays) == []


def a_pair_inside_shard_map() -> None:
    """The batch axis, after the execution group, is the mapped one."""
    whole, part = pair_of_calls(8, M=256, group=2)
    arrays = place(leaves(whole), mesh(), P(None, "x"))
    function = jax.shard_map(run(part), mesh=mesh(), in_specs=P(None, "x"), out_specs=P(None, "x"))
    np.testing.assert_array_equal(jax.jit(function)(arrays), run(whole)(leaves(whole)))
    assert collectives(function, arrays) == []


def replicated_operands_inside_shard_map() -> None:
    whole, part = pair_of_calls(broadcast=("b",))
    over = mesh()
    b = place({"b": leaves(whole)["b"]}, over, P())["b"]
    arrays = place({n: x for n, x in leaves(whole).items() if n != "b"}, over, P("x"))
    flags = place({"accum": np.arange(8) % 2 == 0}, over, P("x"))
    function = jax.shard_map(
        lambda arrays, b, flags: run(part)(arrays | {"b": b} | flags),
        mesh=over,
        in_specs=(P("x"), P(), P("x")),
        out_specs=P("x"),
    )
    want = run(whole)(leaves(whole) | {"accum": np.arange(8) % 2 == 0})
    np.testing.assert_array_equal(jax.jit(function)(arrays, b, flags), want)
    assert collectives(function, arrays, b, flags) == []


def gradient_of_a_replicated_operand() -> None:
    """B71: equal to the gradient without sharding, not four or eight times it; one all-reduce at most."""
    whole, part = pair_of_calls(4 * 2, broadcast=("b",))
    part = legal_call(N=16, batch=(2,), broadcast=("b",))
    over = mesh(4)
    arrays = place({n: x for n, x in leaves(whole).items() if n != "b"}, over, P("x"))
    b = place({"b": leaves(whole)["b"]}, over, P())["b"]

    def loss(b: Any) -> Any:
        def inner(arrays: Any, b: Any) -> Any:
            return jax.lax.psum(run(part)(arrays | {"b": b}).sum(), "x")

        return jax.shard_map(inner, mesh=over, in_specs=(P("x"), P()), out_specs=P())(arrays, b)

    want = jax.grad(lambda b: run(whole)(leaves(whole) | {"b": b}).sum())(leaves(whole)["b"])
    got = jax.jit(jax.grad(loss))(b)
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))
    assert np.any(np.asarray(want, np.float32))
    text = jax.jit(jax.grad(loss)).lower(b).compile().as_text()
    assert text.count(" all-reduce(") + text.count(" all-reduce-start(") <= 1


def vmap_over_a_mapped_axis() -> None:
    one = legal_call(N=16)
    whole, _ = pair_of_calls()
    arrays = place(leaves(whole), mesh(), P("x"))
    function = jax.shard_map(jax.vmap(run(one)), mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(jax.jit(function)(arrays), run(whole)(leaves(whole)))


def explicit_sharding() -> None:
    """An explicit mesh: D's sharding is the result's."""
    whole, _ = pair_of_calls()
    over = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    arrays = place(leaves(whole), over, P("x"))
    got = jax.jit(run(whole))(arrays)
    np.testing.assert_array_equal(got, run(whole)(leaves(whole)))
    assert got.sharding.spec[0] == "x"


def donated_and_sharded() -> None:
    whole, part = pair_of_calls()
    arrays = place(leaves(whole), mesh(), P("x"))
    d = arrays.pop("d")
    inner = jax.shard_map(
        lambda d, rest: run(part)(rest | {"d": d}), mesh=mesh(), in_specs=P("x"), out_specs=P("x")
    )
    got = jax.jit(inner, donate_argnums=0)(d, arrays)
    assert d.is_deleted()
    np.testing.assert_array_equal(got, run(whole)(leaves(whole)))


def refusals_are_the_same() -> None:
    """A refusal inside shard_map is the same refusal."""
    whole, part = pair_of_calls()
    arrays = place(leaves(whole), mesh(), P("x"))
    bad = part | {"a_descriptor": (8, 128, 0)}
    try:
        jax.shard_map(run(bad), mesh=mesh(), in_specs=P("x"), out_specs=P("x"))(arrays)
    except ValueError as error:
        assert "a_descriptor" in str(error) and "got 8" in str(error)
    else:
        raise AssertionError("accepted")


CHECKS = (
    each_device_by_itself,
    sharded_outside_shard_map,
    sharded_inside_shard_map,
    a_pair_inside_shard_map,
    replicated_operands_inside_shard_map,
    gradient_of_a_replicated_operand,
    vmap_over_a_mapped_axis,
    explicit_sharding,
    donated_and_sharded,
    refusals_are_the_same,
)


def main() -> None:
    assert len(jax.devices()) == 8
    results = {}
    for check in CHECKS:
        try:
            check()
            results[check.__name__] = ""
        except Exception:
            results[check.__name__] = traceback.format_exc()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
