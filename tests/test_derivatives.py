"""Differentiation of `mma`: linear in D, A and B, like the reference, in every mode that JAX has (B81)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from base_calls import Call, leaves, legal_call, run

import jax_tcgen05 as tc

FORMS = {
    "f16": {"N": 16, "repeats": (1, 2, 2)},
    "bf16": {"N": 16, "a_format": "bfloat16", "b_format": "bfloat16"},
    "f16 D": {"M": 64, "N": 8, "d_format": "float16"},
    "tf32": {"kind": "tf32", "M": 64, "N": 8},
    "fp8": {"kind": "f8f6f4", "M": 64, "N": 8},
    "A in TMEM, pair": {"M": 128, "N": 32, "group": 2, "a_swizzle": None},
    ".ws, banks": {"M": 64, "ws": True, "a_swizzle": None},
    "mx": {"kind": "mxf8f6f4", "N": 8, "repeats": (1, 1, 2)},
    "batch, broadcast": {"N": 8, "batch": (3,), "broadcast": ("b",)},
    "negated": {"N": 8, "options": {"neg_a": True}},
}
DIFFERENTIABLE = ("d", "a", "b")


def form_of(name: str) -> Call:
    form = dict(FORMS[name])
    options = form.pop("options", {})
    return legal_call(**form) | options


def loss_of(call: Call, mma: Any, controls: Any = None) -> Any:
    """A function of (d, a, b) in float32, weighted so that no two elements of D count alike."""
    fixed = {n: x for n, x in leaves(call).items() if n not in DIFFERENTIABLE} | (controls or {})

    def loss(arrays: dict[str, jax.Array]) -> jax.Array:
        out = run(call, mma)(fixed | arrays).astype(jnp.float32)
        weights = (jnp.arange(out.size) % 5 - 2).reshape(out.shape).astype(jnp.float32)
        return (out * weights).sum()

    return loss


def variables(call: Call) -> dict[str, jax.Array]:
    return {name: leaves(call)[name] for name in DIFFERENTIABLE}


def assert_trees_equal(got: Any, want: Any) -> None:
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(np.asarray(x, np.float64), np.asarray(y, np.float64)),
        got,
        want,
    )
    assert all(np.any(np.asarray(x, np.float64)) for x in jax.tree.leaves(want))


@pytest.mark.parametrize("name", FORMS)
def test_grad_equals_the_reference(name):
    """Integers: every sum is exact, so equal and not close."""
    call = form_of(name)
    got = jax.jit(jax.grad(loss_of(call, tc.mma)))(variables(call))
    want = jax.jit(jax.grad(loss_of(call, tc.reference.mma)))(variables(call))
    assert_trees_equal(got, want)
    assert {n: (x.shape, x.dtype) for n, x in got.items()} == {
        n: (x.shape, x.dtype) for n, x in variables(call).items()
    }


def test_grad_by_hand():
    """d(sum of w * (D + A B^T)): the cotangents are w, w B and w^T A."""
    call = legal_call("tf32", 128, 8)
    grads = jax.jit(jax.grad(loss_of(call, tc.mma)))(variables(call))
    w = (np.arange(128 * 8) % 5 - 2).reshape(128, 8).astype(np.float32)
    a, b = (np.asarray(leaves(call)[n]) for n in ("a", "b"))
    np.testing.assert_array_equal(grads["d"][0, 0], w)
    np.testing.assert_array_equal(grads["a"], w @ b)
    np.testing.assert_array_equal(grads["b"], w.T @ a)


@pytest.mark.parametrize(
    "controls",
    [
        {"accum": False},
        {"pred": False},
        {"disable_output_lane": np.array([5, 0, 1 << 31, 0], np.uint32)},
        {"accum": np.array([True, False, True]), "pred": np.array([True, True, False])},
    ],
    ids=["accum", "pred", "lane mask", "per element"],
)
def test_switches_and_masks_in_the_derivative(controls):
    batch = (3,) if np.ndim(controls.get("accum")) else ()
    call = legal_call(N=8, batch=batch)
    got = jax.jit(jax.grad(loss_of(call, tc.mma, controls)))(variables(call))
    want = jax.jit(jax.grad(loss_of(call, tc.reference.mma, controls)))(variables(call))
    jax.tree.map(np.testing.assert_array_equal, got, want)
    if controls.get("accum") is False:
        assert not np.any(got["d"])
    if controls.get("pred") is False:
        assert np.any(got["d"]) and not np.any(got["a"])


def test_zero_columns_in_the_derivative():
    call = legal_call(ws=True)
    mask = {"zero_column_mask": jnp.asarray([0, 1 << 7 | 3 << 16 | 2 << 8], jnp.uint32)}
    got = jax.jit(jax.grad(loss_of(call, tc.mma, mask)))(variables(call))
    assert_trees_equal(got, jax.jit(jax.grad(loss_of(call, tc.reference.mma, mask)))(variables(call)))
    zeroed = ~np.any(np.asarray(got["b"], np.float32), axis=-1)
    assert 0 < zeroed.sum() < zeroed.size


@pytest.mark.parametrize("name", ["f16", "tf32", "mx"])
def test_jvp_equals_the_reference(name):
    call = form_of(name)
    tangents = {n: jnp.ones_like(x) for n, x in variables(call).items()}

    def derivative(mma: Any) -> Any:
        return jax.jit(lambda *pair: jax.jvp(loss_of(call, mma), *((x,) for x in pair)))(
            variables(call), tangents
        )

    assert_trees_equal(derivative(tc.mma), derivative(tc.reference.mma))


def test_the_primal_under_jvp_is_the_models():
    """Differentiation does not change the bits of the value: here they differ from float32's."""
    call = legal_call(N=8)
    noise = np.random.default_rng(0).normal(size=call["d"].leaf.shape).astype(np.float32) * 1e-4
    arrays = variables(call) | {"d": jnp.asarray(noise)}
    value, _ = jax.vjp(run(call), arrays)
    np.testing.assert_array_equal(value, run(call)(arrays))
    assert np.any(np.asarray(value) != np.asarray(run(call, tc.reference.mma)(arrays)))


def small(call: Call) -> Any:
    """A function of two numbers that scale A and B: x*y*c1 + c2, so that second derivatives are short."""
    arrays = variables(call)

    def function(p: jax.Array, mma: Any = tc.mma) -> jax.Array:
        scaled = arrays | {
            "a": arrays["a"] * p[0].astype(arrays["a"].dtype),
            "b": arrays["b"] * p[1].astype(arrays["b"].dtype),
        }
        return loss_of(call, mma)(scaled)

    return function


@pytest.mark.parametrize("name", ["f16", "tf32"])
def test_forward_and_second_order(name):
    function = small(form_of(name))
    point = jnp.array([2.0, 1.0])
    gradient = jax.jit(jax.grad(function))(point)
    np.testing.assert_array_equal(jax.jit(jax.jacfwd(function))(point), gradient)
    hessian = np.asarray(jax.jit(jax.hessian(function))(point))
    np.testing.assert_array_equal(hessian, jax.jit(jax.jacrev(jax.grad(function)))(point))
    # Bilinear in (x, y): no pure second derivatives, and the mixed one is gradient[1] / x.
    assert hessian[0, 0] == hessian[1, 1] == 0
    assert hessian[0, 1] == hessian[1, 0] == gradient[1] / 2 != 0
    twice = jax.jit(jax.grad(lambda p: jax.grad(function)(p).sum()))(point)
    np.testing.assert_array_equal(twice, hessian.sum(axis=0))


def test_remat_and_scan():
    call = legal_call("tf32", 64, 8)
    arrays = variables(call)

    def chain(mma: Any, wrap: Any) -> Any:
        step = wrap(lambda d, a: run(call, mma)({"d": d, "a": a, "b": arrays["b"]}))

        def function(steps: jax.Array) -> jax.Array:
            d, _ = jax.lax.scan(lambda d, a: (step(d, a), None), arrays["d"], steps)
            return (d * (jnp.arange(d.size) % 3).reshape(d.shape)).sum()

        return function

    steps = jnp.stack([arrays["a"], arrays["a"] + 1, arrays["a"] - 1])
    want = jax.jit(jax.grad(chain(tc.reference.mma, lambda f: f)))(steps)
    for wrap in (lambda f: f, jax.checkpoint):
        assert_trees_equal(jax.jit(jax.grad(chain(tc.mma, wrap)))(steps), want)


def test_grad_under_vmap():
    call = legal_call("tf32", 64, 8)
    arrays = variables(call)
    several = {n: jnp.stack([x, x + 1, -x]) for n, x in arrays.items()}
    got = jax.jit(jax.vmap(jax.grad(loss_of(call, tc.mma))))(several)
    one = jax.jit(jax.grad(loss_of(call, tc.mma)))
    for i in range(3):
        assert_trees_equal(
            {n: x[i] for n, x in got.items()},
            one({n: x[i] for n, x in several.items()}),
        )


def one_line(error: BaseException) -> str:
    """The message without JAX's own note on filtered frames."""
    text = str(error).split("\n--------------------")[0]
    assert "\n" not in text.strip() and "tcgen05_mma" not in text and "transpose" not in text
    return text


@pytest.mark.parametrize("name", ["a", "b", "d"])
def test_integer_operands_have_no_gradient(name):
    call = legal_call("i8", 64, 8)
    arrays = leaves(call)
    with pytest.raises(TypeError) as caught:
        jax.grad(lambda x: run(call)(arrays | {name: x}).sum().astype(jnp.float32))(arrays[name])
    assert "int" in one_line(caught.value)


def test_integer_codes_have_no_gradient():
    call = legal_call("f8f6f4", 64, 8, a_format="float6_e2m3fn")
    arrays = leaves(call)
    with pytest.raises(TypeError) as caught:
        jax.grad(lambda x: run(call)(arrays | {"a": x}).sum())(arrays["a"])
    assert "uint8" in one_line(caught.value)
    assert_trees_equal(  # but the others have
        jax.jit(jax.grad(lambda x: run(call)(arrays | {"b": x}).sum()))(arrays["b"]),
        jax.jit(jax.grad(lambda x: run(call, tc.reference.mma)(arrays | {"b": x}).sum()))(arrays["b"]),
    )


@pytest.mark.parametrize("name", ["sfa", "sfb"])
def test_scales_have_no_gradient(name):
    call = legal_call("mxf8f6f4", N=8)
    arrays = leaves(call)
    with pytest.raises(TypeError) as caught:
        jax.grad(lambda x: run(call)(arrays | {name: x}).sum())(arrays[name])
    assert f"{name} is not differentiable" in one_line(caught.value) and "stop_gradient" in str(caught.value)
    stopped = lambda x: run(call)(arrays | {name: jax.lax.stop_gradient(arrays[name]), "a": x}).sum()  # noqa: E731
    assert np.any(np.asarray(jax.jit(jax.grad(stopped))(arrays["a"]), np.float32))


def test_a_jvp_of_integers_is_float0():
    call = legal_call("i8", 64, 8)
    arrays = leaves(call)
    tangents = {n: np.zeros(x.shape, jax.dtypes.float0) for n, x in arrays.items()}
    _, tangent = jax.jvp(run(call), (arrays,), (tangents,))
    assert tangent.dtype == jax.dtypes.float0


@pytest.mark.parametrize("names", [("a",), ("b",), ("a", "d"), ("b", "d")], ids=" ".join)
def test_linear_transpose_is_the_vjp(names):
    call = form_of("f16") | {"accum": True}
    arrays = leaves(call)
    function = lambda xs: run(call)(arrays | xs)  # noqa: E731
    linear = {n: arrays[n] for n in names}
    out, vjp = jax.vjp(function, linear)
    cotangent = (jnp.arange(out.size) % 5 - 2).reshape(out.shape).astype(out.dtype)
    assert_trees_equal(jax.linear_transpose(function, linear)(cotangent), vjp(cotangent))


def test_linear_transpose_of_a_and_b_at_once_is_refused():
    call = legal_call(N=8)
    with pytest.raises(TypeError) as caught:
        jax.linear_transpose(run(call), {n: leaves(call)[n] for n in ("a", "b")})(call["d"].leaf)
    assert "not linear in a, b at once" in one_line(caught.value)
