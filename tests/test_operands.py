"""Placed operands: a pytree of one leaf, static views of it, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from shared_data import shared_json

from jax_tcgen05.layouts import (
    R,
    S,
    TCol,
    TLane,
    mma_shared_layout,
    scale_factor_layout,
    tmem_mma_operand_layout,
)
from jax_tcgen05.operands import PlacedOperand, shared, tmem, tmem_empty

A = mma_shared_layout("float16", 3, (128, 64))
D = tmem_mma_operand_layout("D", (128, 64), "float32", M=128, cta_group=1)


def ramp(*shape: int, dtype: Any = np.float16) -> np.ndarray:
    return np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)


def canonical_a(x: Any) -> PlacedOperand:
    return shared(x, A).rearrange("m (kr k) -> kr m k", k=16).view(1, 4, 128, 16)


def test_views_act_on_leaf_and_storage_alike() -> None:
    x = ramp(128, 64)
    view = canonical_a(x)
    assert view.shape == (1, 4, 128, 16) and view.ndim == 4
    assert view.dtype == jnp.float16 and view.storage == "shared"
    expected = x.reshape(128, 4, 16).transpose(1, 0, 2)[None]
    assert (np.asarray(view.array) == expected).all()
    assert view.layout == A.rearrange("m (kr k) -> kr m k", k=16).view(1, 4, 128, 16)
    assert view.placement == A
    # The same element is found in the leaf and in shared memory.
    flat = np.empty(128 * 64, np.float16)
    flat[A.image()["m"].ravel()] = x.ravel()
    assert (flat[view.layout.image()["m"]] == expected).all()
    assert (x.ravel()[view.leaf_index()] == expected).all()


def test_views_cost_nothing() -> None:
    x = jnp.asarray(ramp(128, 64))
    view = canonical_a(x)
    assert view.leaf is x and shared(x, A).leaf is x
    assert view[0, 1:3].leaf is x
    jaxpr = jax.make_jaxpr(canonical_a)(x)
    assert not jaxpr.eqns


def test_identity_view_is_the_leaf() -> None:
    x = jnp.asarray(ramp(128, 64))
    assert shared(x, A).array is x
    assert not jax.make_jaxpr(lambda x: shared(x, A).view(2, 64, 64).view(128, 64).array)(x).eqns


def test_prefix() -> None:
    x = ramp(2, 3, 128, 64)
    placed = shared(x, A)
    assert placed.prefix == (2, 3) and placed.shape == (2, 3, 128, 64)
    view = canonical_a(x)
    assert view.prefix == (2, 3) and view.shape == (2, 3, 1, 4, 128, 16)
    expected = x.reshape(2, 3, 128, 4, 16).transpose(0, 1, 3, 2, 4)[:, :, None]
    assert (np.asarray(view.array) == expected).all()
    assert (np.asarray(placed[:8, 4].array) == x[:, :, :8, 4]).all()  # an index counts the layout's axes
    assert placed[:8].shape == (2, 3, 8, 64)
    empty = shared(ramp(0, 128, 64), A)
    assert empty[:8].array.shape == (0, 8, 64)


PARTS: list[tuple[str, Any, Any]] = [
    ("rows", lambda p: p[64:], lambda x: x[64:]),
    ("columns", lambda p: p[:, 16:48], lambda x: x[:, 16:48]),
    ("one row", lambda p: p[5], lambda x: x[5]),
    ("new axis", lambda p: p[None, ..., -1], lambda x: x[None, ..., -1]),
    ("steps", lambda p: p[::2, ::-1], lambda x: x[::2, ::-1]),
    ("odd rows", lambda p: p[:100].view(1, 100, 4, 16), lambda x: x[:100].reshape(1, 100, 4, 16)),
    ("transposed", lambda p: p.rearrange("m k -> k m"), lambda x: x.T),
    ("merged", lambda p: p.rearrange("m k -> (k m)"), lambda x: x.T.ravel()),
    ("split", lambda p: p.view(-1, 16), lambda x: x.reshape(-1, 16)),
    ("tiles", lambda p: p.view((8, 16, 64)).rearrange("a b c -> b (a c)"), lambda x: transposed_tiles(x)),
]


def transposed_tiles(x: Any) -> Any:
    return x.reshape(8, 16, 64).transpose(1, 0, 2).reshape(16, 512)


@pytest.mark.parametrize(("_name", "view", "expected"), PARTS, ids=[name for name, _, _ in PARTS])
def test_array_of_a_view(_name: str, view: Any, expected: Any) -> None:
    x = ramp(128, 64)
    assert np.array_equal(view(shared(x, A)).array, expected(x))
    assert np.array_equal(jax.jit(lambda x: view(shared(x, A)).array)(x), expected(x))
    assert view(shared(x, A)).shape == expected(x).shape


@pytest.mark.parametrize(("_name", "view", "expected"), PARTS, ids=[name for name, _, _ in PARTS])
def test_transformations(_name: str, view: Any, expected: Any) -> None:
    x = jnp.asarray(ramp(128, 64, dtype=np.float32) / 64)
    many = jnp.stack([x, -x, 2 * x], axis=1)
    mapped = jax.vmap(lambda x: view(shared(x, A)).array, in_axes=1)(many)
    assert np.array_equal(mapped, np.stack([expected(np.asarray(x)) for x in (x, -x, 2 * x)]))
    grad = jax.grad(lambda x: (view(shared(x, A)).array ** 2).sum())(x)
    marked = np.zeros(128 * 64, np.float32)
    marked[expected(np.arange(128 * 64).reshape(128, 64)).ravel()] = 1
    assert np.array_equal(grad, 2 * x * marked.reshape(128, 64))


def test_bounded_rows_of_a_scale_layout() -> None:
    layout = scale_factor_layout((2, 6, 100, 1), "uint8")
    x = ramp(2, 6, 100, 1, dtype=np.uint8)
    view = tmem(x, layout).rearrange("r (a b) m v -> r a m (b v)", a=3)
    assert np.array_equal(view.array, x.reshape(2, 3, 2, 100).transpose(0, 1, 3, 2))
    assert np.array_equal(x.ravel()[view.leaf_index()], view.array)
    assert view.layout(1, 2, 99, 1) == layout(1, 5, 99, 0)


def test_pytree() -> None:
    view = canonical_a(ramp(128, 64))
    leaves, tree = jax.tree.flatten(view)
    assert len(leaves) == 1 and leaves[0] is view.leaf
    again = jax.tree.unflatten(tree, leaves)
    assert again.layout == view.layout and again.storage == "shared"
    assert tree == jax.tree.structure(canonical_a(ramp(128, 64) + 1))
    assert tree != jax.tree.structure(shared(ramp(128, 64), A))
    for leaf in (object(), None, jax.ShapeDtypeStruct((5, 128, 64), jnp.float16)):
        assert jax.tree.unflatten(tree, [leaf]).leaf is leaf
        assert "PlacedOperand" in repr(jax.tree.unflatten(tree, [leaf]))
    doubled = jax.tree.map(lambda x: 2 * x, view)
    assert np.array_equal(doubled.array, 2 * view.array)
    ((path, _),) = jax.tree_util.tree_leaves_with_path(view)
    assert jax.tree_util.keystr(path) == ".leaf"
    assert view.with_leaf(view.leaf + 1).array[0, 0, 0, 0] == 1


def test_operands_cross_transformations() -> None:
    x = jnp.asarray(ramp(3, 128, 64, dtype=np.float32))
    placed = jax.jit(canonical_a)(x)
    assert placed.shape == (3, 1, 4, 128, 16)
    inside = jax.vmap(lambda p: p.array.sum(axis=-1))(placed)  # loses an axis in front
    assert np.array_equal(inside, placed.array.sum(axis=-1))
    _, outs = jax.lax.scan(lambda carry, p: (carry, p[0, 1].array), 0, placed)
    assert np.array_equal(outs, x.reshape(3, 128, 4, 16)[:, :, 1])
    shape = jax.eval_shape(canonical_a, jax.ShapeDtypeStruct((2, 128, 64), jnp.float16))
    assert shape.shape == (2, 1, 4, 128, 16) and shape.dtype == jnp.float16


def test_numpy_arrays_of_any_memory_order() -> None:  # B79
    x = ramp(128, 64)
    backwards = np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    strided = np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3]
    for given in (np.asfortranarray(x), backwards, strided, x.astype(">f2")):
        assert np.array_equal(canonical_a(given).array, canonical_a(x).array)
    row = np.broadcast_to(x[0], (128, 64))
    assert np.array_equal(canonical_a(row).array, canonical_a(row.copy()).array)
    fixed = x.copy()
    placed = shared(fixed, A)
    fixed[:] = 0
    assert np.array_equal(placed.array, x)


@pytest.mark.parametrize("size", (256, 1024))
def test_fp4_arrays(size: int) -> None:  # B63
    codes = (np.arange(64 * size) % 16).astype(np.uint8).reshape(64, size)
    x = codes.view(ml_dtypes.float4_e2m1fn)
    view = shared(x, mma_shared_layout("float4_e2m1fn", 3, (64, size)))[:, 64:192].rearrange("m k -> k m")
    assert view.array.dtype == ml_dtypes.float4_e2m1fn
    assert np.array_equal(np.asarray(view.array).view(np.uint8) & 15, codes[:, 64:192].T)
    # Codes in bytes may lie in a 4-bit container.
    assert shared(codes, mma_shared_layout("float4_e2m1fn", 3, (64, size))).dtype == jnp.uint8


def test_tmem_empty() -> None:
    d = tmem_empty((2, 128, 64), "float32", D).view(1, 1, 128, 64)
    assert d.storage == "tmem" and d.shape == (2, 1, 1, 128, 64) and d.dtype == jnp.float32
    assert not d.array.any() and d.array.shape == d.shape
    assert d.layout.image()["TLane"][0, 0, 77, 3] == 77
    assert tmem_empty((0, 128, 64), jnp.int32, D).array.shape == (0, 128, 64)
    lanes_only = tmem(ramp(128), S[128 : 1 @ TLane])
    assert set(lanes_only.layout.image()) == {"TLane", "TCol"}


def test_layout_properties_of_tmem_operands() -> None:
    layout = S[(64, 32) : (1 @ TLane, 1 @ TCol)] + R[2 : 64 @ TLane]
    a = tmem(ramp(64, 32), layout)[:, 16:]
    assert a.layout.replicas == layout.replicas and a.layout.origin == {"TLane": 0, "TCol": 16}


X = ramp(128, 64)
REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: shared([[1.0]], A), TypeError, "shared: array: got list; expected a JAX or NumPy array"),
    (lambda: shared(None, A), TypeError, "shared: array: got NoneType"),
    (lambda: tmem(1.0, D), TypeError, "tmem: array: got float"),
    (lambda: shared(shared(X, A), A), TypeError, "shared: array: got a placed operand"),
    (lambda: shared(X, (128, 64)), TypeError, "shared: layout: got tuple; expected a TileLayout"),
    (lambda: shared(X.astype(np.float64), A), TypeError, "shared: dtype: got 'float64'; allowed: float32"),
    (lambda: tmem(X.astype(np.int64), D), TypeError, "tmem: dtype: got 'int64'; allowed: float32"),
    (lambda: shared(X > 0, A), TypeError, "shared: dtype: got 'bool'"),
    (lambda: shared(X.astype(np.complex64), A), TypeError, "got 'complex64'"),
    (lambda: shared(X.astype(ml_dtypes.float6_e2m3fn), A), TypeError, "float6_e2m3fn.*use uint8"),
    (
        lambda: shared(X.T, A),
        ValueError,
        r"got shape \(64, 128\) for a layout of shape \(128, 64\); the layout's",
    ),
    (lambda: shared(X[0], A), ValueError, r"got shape \(64,\) for a layout of shape \(128, 64\)"),
    (lambda: shared(X, D), ValueError, r"counts on \['TCol', 'TLane'\], expected memory axis 'm'.*use tmem"),
    (lambda: tmem(X, A), ValueError, r"counts on \['m'\], expected TLane and TCol; use shared"),
    (
        lambda: tmem(X, S[(128, 64) : (1 @ TLane, 1)]),
        ValueError,
        r"counts on \['TLane', 'm'\], expected TLane",
    ),
    (lambda: tmem(X, D + (1 @ TLane)), ValueError, r"it reaches lane 128; TMEM has lanes 0\.\.127"),
    (lambda: shared(X, A + -1), ValueError, "negative positions"),
    (lambda: tmem(X[:64], S[(64, 64) : (1 @ TLane, 1 @ TCol)] + R[4 : 64 @ TLane]), ValueError, "lane 255"),
    (lambda: tmem_empty((128, 64), "float64", D), TypeError, "tmem_empty: dtype: got 'float64'"),
    (lambda: tmem_empty(128, "float32", D), TypeError, "tmem_empty: shape: got 128; expected a tuple"),
    (lambda: tmem_empty((-1, 128, 64), "float32", D), ValueError, r"shape: got \(-1, 128, 64\)"),
    (lambda: tmem_empty((128.0, 64), "float32", D), TypeError, r"shape: axis 0: got 128\.0"),
    (lambda: tmem_empty((128, 32), "float32", D), ValueError, r"got shape \(128, 32\) for a layout of shape"),
    (lambda: tmem_empty((128, 64), "float32", A), ValueError, "expected TLane and TCol"),
    (lambda: list(shared(X, A)), TypeError, "not iterable"),
    (lambda: shared(X, A).view("float32"), TypeError, "view: axis 0: got 'float32'"),
    (
        lambda: shared(ramp(2, 128, 64), A)[0, 0, 0],
        ValueError,
        r"index: got \(0, 0, 0\) for shape \(128, 64\)",
    ),
]


@pytest.mark.parametrize(("make", "kind", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_refusals_say_what_was_given(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_columns_are_the_calls_budget() -> None:
    """Placing knows neither the container nor the other operands: the call refuses what 512 columns do not hold."""
    assert tmem_empty((128, 64), "float32", D + (1000 @ TCol)).shape == (128, 64)


def test_traced_sizes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"view: axis 0: got .*expected a static integer"):
        jax.jit(lambda x, n: shared(x, A).view(n, 64).array)(X, 128)


PROBES: dict[str, Any] = {
    "view_infer": lambda a: a.view(-1, 16),
    "view_permute": lambda a: a.rearrange("m k -> k m"),
    "view_rearrange_axis_mismatch": lambda a: a.rearrange("m k -> m j"),
    "view_rearrange_indivisible": lambda a: a.rearrange("m (ko ki) -> ko m ki", ki=24),
    "view_rearrange_merge": lambda a: a.rearrange("m (ko ki) -> (ko m) ki", ki=16),
    "view_rearrange_missing_size": lambda a: a.rearrange("m (ko ki kj) -> ko m (ki kj)", ki=16),
    "view_rearrange_no_arrow": lambda a: a.rearrange("m k"),
    "view_rearrange_split": lambda a: a.rearrange("(mo mi) (ko ki) -> mo ko mi ki", mi=8, ki=16),
    "view_rearrange_transpose": lambda a: a.rearrange("m k -> k m"),
    "view_rearrange_wrong_rank": lambda a: a.rearrange("m k j -> j m k"),
    "view_sub": lambda a: a[0:64, 16:32],
    "view_two_inferred": lambda a: a.view(-1, -1, 16),
    "view_view_merge_noncontiguous_plain": lambda a: a.rearrange("m k -> k m").view(8192),
    "view_view_of_permuted_plain": lambda a: a.rearrange("m k -> k m").view(32, 2, 128),
    "view_wrong_count": lambda a: a.view(128, 63),
}


def test_views_are_accepted_and_refused_as_elsewhere() -> None:
    probes = shared_json("oracles/semantics_probes.json")
    for name, view in PROBES.items():
        placed = shared(X, A)
        if probes[name]["ok"]:
            view(placed)
        else:
            with pytest.raises(ValueError, match=r"view: |rearrange: "):
                view(placed)
    # Not offered: views as another dtype, with another layout, by axis numbers. Banks: test_layouts_constructors.
    assert {name for name in probes if name.startswith("view_")} - set(PROBES) == {
        "view_dtype_down",
        "view_dtype_up",
        "view_dtype_up_128b",
        "view_explicit_layout_wrong_count",
        "view_permute_bad",
        "view_tmem_banks",
        "view_tmem_dtype",
    }
