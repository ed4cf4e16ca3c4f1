"""`mma` under jit, eval_shape, vmap and scan: the same bits as the plain call, and no cost that grows."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from base_calls import Call, assert_exact, bits, leaves, legal_call, run

import jax_tcgen05 as tc

TARGET = "jax_tcgen05_mma"


def compiled(function: Any, *args: Any) -> str:
    """The StableHLO text."""
    return jax.jit(function).lower(*args).as_text()


# jit and eval_shape


@pytest.mark.parametrize(
    "form", [{}, {"M": 256, "group": 2, "batch": (2,)}, {"kind": "mxf4", "repeats": (1, 1, 2)}]
)
def test_jit_gives_the_eager_bits(form):
    call = legal_call(N=16, **form)
    np.testing.assert_array_equal(bits(jax.jit(run(call))(leaves(call))), bits(tc.mma(**call).leaf))


def test_eval_shape_and_the_operand_that_comes_back():
    call = legal_call("i8", batch=(3,))
    shape = jax.eval_shape(run(call), leaves(call))
    assert (shape.shape, shape.dtype) == (call["d"].leaf.shape, jnp.int32)
    d = tc.mma(**call)
    assert (d.layout, d.storage, d.shape) == (call["d"].layout, "tmem", call["d"].shape)


def test_placed_operands_pass_through_jit():
    call = legal_call(repeats=(1, 1, 2))
    placed = {name: x for name, x in call.items() if isinstance(x, tc.PlacedOperand)}
    fields = {name: x for name, x in call.items() if name not in placed}
    d = jax.jit(lambda placed: tc.mma(**placed, **fields))(placed)
    np.testing.assert_array_equal(d.array, tc.mma(**call).array)


def test_equal_spellings_share_one_trace():
    """B73: tuples, lists and NumPy ints are one jit cache entry of the primitive."""
    call = legal_call()
    fields = ("instruction_shape", "a_descriptor", "b_descriptor")
    texts = {
        compiled(run(call | {name: spell(call[name]) for name in fields}), leaves(call))
        for spell in (
            tuple,
            list,
            np.array,
            lambda x: [np.int32(v) for v in x],
            lambda x: np.array(x, np.uint16),
        )
    }
    assert len(texts) == 1
    traces = []

    @jax.jit
    def function(arrays):
        traces.append(1)
        return run(call | {"a_descriptor": list(call["a_descriptor"])})(arrays)

    function(leaves(call))
    function(leaves(legal_call(seed=1)))
    assert len(traces) == 1


def test_static_argument_spelling():
    call = legal_call()

    def function(descriptor, arrays):
        return run(call | {"a_descriptor": descriptor})(arrays)

    got = jax.jit(function, static_argnums=0)(call["a_descriptor"], leaves(call))
    np.testing.assert_array_equal(got, tc.mma(**call).leaf)


@pytest.mark.parametrize(
    "change", ["transpose", "fortran", "negative stride", "broadcast_to", "every second row"]
)
def test_inputs_that_are_not_row_major(change):
    """B79: the same result as a contiguous copy."""
    call = legal_call()
    x = np.asarray(call["a"].leaf)
    changed: Any = {
        "transpose": lambda: jnp.asarray(np.ascontiguousarray(x.T)).T,
        "fortran": lambda: np.asfortranarray(x),
        "negative stride": lambda: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "broadcast_to": lambda: np.broadcast_to(x[:1], x.shape),
        "every second row": lambda: np.repeat(x, 2, axis=0)[::2],
    }[change]()
    placed = tc.shared(changed, call["a"].placement)
    copy = tc.shared(np.array(changed, order="C"), call["a"].placement)
    got = tc.mma(**call | {"a": placed.view(*call["a"].shape)})
    want = tc.mma(**call | {"a": copy.view(*call["a"].shape)})
    np.testing.assert_array_equal(got.leaf, want.leaf)
    assert_exact(call | {"a": placed.view(*call["a"].shape)})


def test_an_array_in_another_device_layout():
    """B79: an input whose device layout is column-major."""
    from jax.experimental.layout import Format, Layout

    call = legal_call()
    arrays = leaves(call)
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    column_major = jax.device_put(arrays["a"], Format(Layout(major_to_minor=(1, 0)), sharding))
    np.testing.assert_array_equal(jax.jit(run(call))(arrays | {"a": column_major}), tc.mma(**call).leaf)


# vmap


def stacked(call: Call, count: int, names: Any = None) -> dict[str, jax.Array]:
    """Different data for each of `count` calls, on a new leading axis of the named operands."""
    seeds = [leaves(_like(call, seed)) for seed in range(count)]
    return {
        name: jnp.stack([arrays[name] for arrays in seeds]) if names is None or name in names else x
        for name, x in seeds[0].items()
    }


def _like(call: Call, seed: int) -> Call:
    rng = np.random.default_rng(seed)
    placed = {n: x for n, x in call.items() if isinstance(x, tc.PlacedOperand)}
    return call | {n: x.with_leaf(jnp.asarray(rng.permuted(np.asarray(x.leaf)))) for n, x in placed.items()}


def one_by_one(call: Call, arrays: dict[str, Any], axes: dict[str, int | None]) -> np.ndarray:
    """vmap by a Python loop, the results on a new leading axis."""
    (count,) = {x.shape[axes[n]] for n, x in arrays.items() if axes[n] is not None}
    function = jax.jit(run(call))
    results = []
    for i in range(count):
        results.append(
            function({n: x if axes[n] is None else jnp.take(x, i, axes[n]) for n, x in arrays.items()})
        )
    return np.stack(results)


FORMS = {
    "dense": {"N": 16},
    "batch": {"N": 16, "batch": (2,)},
    "pair": {"M": 256, "N": 16, "group": 2},
    "pair with a batch": {"M": 256, "N": 32, "group": 2, "batch": (2,), "a_swizzle": None},
    ".ws": {"M": 64, "ws": True},
    "scaled": {"kind": "mxf8f6f4", "N": 48, "repeats": (1, 1, 2)},
    "scaled, N=24": {"kind": "mxf4nvf4", "N": 24},
    "f16 D": {"M": 64, "N": 16, "d_format": "float16"},
}


@pytest.mark.parametrize("name", FORMS)
def test_vmap_equals_a_loop(name):
    """B27 too: scales of each element by themselves, N no multiple of 128."""
    call = legal_call(**FORMS[name])
    arrays = stacked(call, 3)
    axes = dict.fromkeys(arrays, 0)
    got = jax.jit(jax.vmap(run(call)))(arrays)
    np.testing.assert_array_equal(bits(got), bits(one_by_one(call, arrays, axes)))


@pytest.mark.parametrize("mapped", ["d", "a", "b", "da", "ab"])
@pytest.mark.parametrize("form", ["batch", "pair"])
def test_vmap_with_unmapped_operands(mapped, form):
    call = legal_call(**FORMS[form])
    arrays = stacked(call, 3, mapped)
    axes = {name: 0 if name in mapped else None for name in arrays}
    got = jax.vmap(run(call), in_axes=(axes,))(arrays)
    np.testing.assert_array_equal(got, one_by_one(call, arrays, axes))


def test_vmap_over_any_axis_in_and_out():
    call = legal_call(**FORMS["batch"])
    arrays = stacked(call, 3)
    axes = {"d": 2, "a": -1, "b": 1}
    moved = {name: jnp.moveaxis(x, 0, axes[name]) for name, x in arrays.items()}
    got = jax.vmap(run(call), in_axes=(axes,), out_axes=-1)(moved)
    want = one_by_one(call, arrays, dict.fromkeys(arrays, 0))
    np.testing.assert_array_equal(jnp.moveaxis(got, -1, 0), want)


@pytest.mark.parametrize("form", ["dense", "pair"])
def test_nested_vmap(form):
    call = legal_call(**FORMS[form])
    arrays = stacked(call, 2, "d")
    arrays["a"] = stacked(call, 3, "a")["a"]
    inner = jax.vmap(run(call), in_axes=({"d": None, "a": 0, "b": None},))
    got = jax.vmap(inner, in_axes=({"d": 0, "a": None, "b": None},), out_axes=1)(arrays)
    assert got.shape[:2] == (3, 2)
    for i in range(3):
        for j in range(2):
            one = run(call)(arrays | {"d": arrays["d"][j], "a": arrays["a"][i]})
            np.testing.assert_array_equal(got[i, j], one)


@pytest.mark.parametrize("form", ["dense", "batch", "pair with a batch"])
def test_vmap_of_switches_and_masks(form):
    call = legal_call(**FORMS[form])
    words = 4 * (2 if "pair" in form else 1)
    count = 4
    rng = np.random.default_rng(0)
    mapped = {
        "accum": jnp.array([True, False, True, False]),
        "pred": jnp.array([True, True, False, False]),
        "disable_output_lane": jnp.asarray(rng.integers(0, 1 << 32, (count, words), dtype=np.uint32)),
    }
    arrays = leaves(call)
    axes = dict.fromkeys(arrays, None) | dict.fromkeys(mapped, 0)
    got = jax.vmap(run(call), in_axes=(axes,))(arrays | mapped)
    want = np.stack([run(call)(arrays | {n: x[i] for n, x in mapped.items()}) for i in range(count)])
    np.testing.assert_array_equal(got, want)
    assert len({g.tobytes() for g in np.asarray(got)}) == 3  # two of them write nothing


def test_vmap_of_a_zero_column_mask():
    call = legal_call(ws=True)
    masks = jnp.asarray([[0, 0], [0, 1 << 7 | 3 << 16], [0, 1 << 7 | 1 | 1 << 8]], jnp.uint32)
    function = jax.jit(run(call))
    got = jax.vmap(lambda mask: run(call)(leaves(call) | {"zero_column_mask": mask}))(masks)
    for i, mask in enumerate(masks):
        np.testing.assert_array_equal(got[i], function(leaves(call) | {"zero_column_mask": mask}))
    assert len({g.tobytes() for g in np.asarray(got)}) == 3


@pytest.mark.parametrize("form", ["dense", "pair"])
def test_unmapped_operands_broadcast_without_a_copy(form):
    """The custom call gets them with a batch axis of 1."""
    call = legal_call(**FORMS[form])
    arrays = stacked(call, 5, "d")
    axes = {"d": 0, "a": None, "b": None}
    jaxpr = jax.make_jaxpr(jax.vmap(run(call), in_axes=(axes,)))(arrays)
    (equation,) = [e for e in jaxpr.eqns if e.primitive.name == "tcgen05_mma"]
    shapes = [v.aval.shape for v in equation.invars]
    group = (2,) if form == "pair" else ()
    for name, shape in zip(("d", "a", "b"), shapes, strict=False):
        assert shape == (*group, 5 if name == "d" else 1, *arrays[name].shape[len(group) + (name == "d") :])
    text = compiled(jax.vmap(run(call), in_axes=(axes,)), arrays)
    for name in ("a", "b"):
        copies = "x".join(map(str, (*group, 5, *arrays[name].shape[len(group) :])))
        assert f"tensor<{copies}xf16>" not in text


# Batches


def test_an_empty_batch():
    call = legal_call(N=16, batch=(0, 3))
    assert call["d"].leaf.size == 0
    for function in (run(call), jax.jit(run(call))):
        assert function(leaves(call)).shape == call["d"].leaf.shape
    one = legal_call(N=16)
    empty = {name: jnp.zeros((0, *x.shape), x.dtype) for name, x in leaves(one).items()}
    assert jax.vmap(run(one))(empty).shape == (0, *one["d"].leaf.shape)


def test_many_thousands_cost_no_larger_plan():
    """The custom call's text has the same length but for the batch's digits; the last element is right."""
    base = legal_call("i8", 64, 8)
    arrays = leaves(base)

    def batched(count: int) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        a = jnp.asarray(rng.integers(-128, 128, (count, *arrays["a"].shape), np.int8))
        d = jnp.zeros((count, *arrays["d"].shape), jnp.int32)
        return {"d": d, "a": a, "b": arrays["b"]}

    axes = {"d": 0, "a": 0, "b": None}
    function = jax.vmap(run(base), in_axes=(axes,))
    texts = [compiled(function, batched(count)).replace(f"{count}x", "Nx") for count in (1111, 9999)]
    assert texts[0] == texts[1].replace("9999", "1111")
    many = batched(9999)
    got = jax.jit(function)(many)
    for index in (0, 5000, 9998):
        want = np.asarray(many["a"][index], np.int64) @ np.asarray(arrays["b"], np.int64).T
        np.testing.assert_array_equal(got[index, 0, 0], want)


# scan, threads


def test_a_thousand_calls_in_scan():
    """B83: D carried through, one call after another."""
    call = legal_call("i8", 64, 8)
    arrays = leaves(call)

    @jax.jit
    def function(d):
        return jax.lax.scan(lambda d, _: (run(call)(arrays | {"d": d}), None), d, length=1000)[0]

    step = np.asarray(arrays["a"], np.int64) @ np.asarray(arrays["b"], np.int64).T
    np.testing.assert_array_equal(function(arrays["d"])[0, 0], np.asarray(arrays["d"])[0, 0] + 1000 * step)


def test_two_threads_at_once():
    """Each traces, compiles and runs its own calls, on more than 1 MB, and gets its own bits."""
    call = legal_call(batch=(48,))
    want = [np.asarray(jax.jit(run(_like(call, seed)))(leaves(_like(call, seed)))) for seed in range(2)]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            mine = _like(call, seed)
            function = jax.jit(lambda arrays: run(mine)(arrays))
            for _ in range(10):
                np.testing.assert_array_equal(function(leaves(mine)), want[seed])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not failures and not any(thread.is_alive() for thread in threads)


# Donation (B75)


def donating(call: Call) -> Any:
    return jax.jit(lambda d, rest: run(call)(rest | {"d": d}), donate_argnums=0)


def test_a_donated_d_is_updated_in_place():
    call = legal_call()
    rest = leaves(call)
    d = jnp.array(rest.pop("d"))
    want = np.asarray(tc.mma(**call).leaf)
    address = d.unsafe_buffer_pointer()
    out = donating(call)(d, rest)
    assert out.unsafe_buffer_pointer() == address and d.is_deleted()
    np.testing.assert_array_equal(out, want)
    with pytest.raises(RuntimeError, match="deleted"):
        d + 1


def test_a_d_that_is_not_donated_stays():
    call = legal_call()
    arrays = leaves(call)
    before = np.array(arrays["d"])
    function = jax.jit(run(call))
    first, second = function(arrays), function(arrays)
    np.testing.assert_array_equal(arrays["d"], before)
    np.testing.assert_array_equal(first, second)
    assert first.unsafe_buffer_pointer() != arrays["d"].unsafe_buffer_pointer()


def test_one_array_as_a_and_d():
    """A in shared memory of the very buffer that D starts from, donated or not."""
    call = legal_call("tf32", 64, 8, seed=3)
    x = jnp.asarray(np.random.default_rng(0).integers(-2, 3, (64, 8)), jnp.float32)
    d_layout, a_layout = tc.tmem_datapath_layout("F", 64, 8), call["a"].placement

    def function(x):
        d, a = tc.tmem(x, d_layout).view(1, 1, 64, 8), tc.shared(x, a_layout).view(1, 1, 64, 8)
        return tc.mma(**call | {"d": d, "a": a}).leaf

    want = np.asarray(x) + np.asarray(x) @ np.asarray(call["b"].leaf).T
    np.testing.assert_array_equal(jax.jit(function)(x), want)
    np.testing.assert_array_equal(jax.jit(function, donate_argnums=0)(x), want)


def test_a_donated_array_that_cannot_be_used():
    """An f16 array is no place for an f32 D: JAX may say so, and the result is right."""
    call = legal_call()
    rest = leaves(call)
    d = jnp.array(rest.pop("d")).astype(jnp.float16)
    function = jax.jit(lambda d, rest: run(call)(rest | {"d": d.astype(jnp.float32)}), donate_argnums=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        out = function(d, rest)
    np.testing.assert_array_equal(out, tc.mma(**call).leaf)


# Executors


def test_the_executor_is_part_of_the_cache_key():
    call = legal_call()
    arrays = leaves(call)
    traced = []

    @jax.jit
    def function(arrays):
        traced.append(1)
        return run(call)(arrays)

    texts = {}
    for name in ("model", "vsm", "model"):
        with tc.executor(name):
            texts[name] = function.lower(arrays).as_text()
            assert f'executor = "{name}"' in texts[name]
    assert texts["model"] != texts["vsm"]
    assert 'executor = "model"' in function.lower(arrays).as_text()  # the default comes back


@pytest.mark.parametrize("name", ["gpu", "", "MODEL", None, 1])
def test_unknown_executors(name):
    with pytest.raises(ValueError, match=r"executor: got .*; allowed: 'model', 'vsm'"):
        tc.executor(name)


def test_the_default_executor_comes_from_the_environment(monkeypatch):
    call = legal_call(seed=7)
    monkeypatch.setenv("JAX_TCGEN05_EXECUTOR", "vsm")
    assert 'executor = "vsm"' in compiled(run(call), leaves(call))
    monkeypatch.setenv("JAX_TCGEN05_EXECUTOR", "warp")
    with pytest.raises(ValueError, match="JAX_TCGEN05_EXECUTOR: got 'warp'; allowed: 'model', 'vsm'"):
        tc.mma(**legal_call(seed=8))
