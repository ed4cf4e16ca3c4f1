"""Legal calls as dictionaries of `mma`'s arguments, so that a test can change one entry of them.

Built by `calls`, with small integers as data: every sum is exact in float32 and float16, in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from calls import Form, place, random_arrays

import jax_tcgen05 as tc

Call = dict[str, Any]
SCALES = {"mxf8f6f4": "scale_vec::1X", "mxf4": "scale_vec::2X", "mxf4nvf4": "scale_vec::4X"}


def legal_call(kind: str = "f16", M: int = 128, N: int = 64, *, seed: int = 0, **form: Any) -> Call:
    """A call that `mma` accepts, with D preset and accum=True; `form` are fields of `calls.Form`."""
    return dict(_legal_call(kind, M, N, seed, tuple(sorted(form.items()))))


@lru_cache(maxsize=256)
def _legal_call(kind: str, M: int, N: int, seed: int, form: tuple[tuple[str, Any], ...]) -> Call:
    made = Form(kind, M, N, **{"packed_arrays": True, "scale": SCALES.get(kind, "")} | dict(form))
    placed = place(made, random_arrays(made, seed, "small"), accum=True)
    return {"opcode": made.opcode, **placed.operands, **placed.options}


def made(*args: Any, **form: Any) -> Callable[[], Call]:
    """`legal_call`, later."""
    return lambda: legal_call(*args, **form)


def changed(make: Callable[[], Call], **changes: Any) -> Callable[[], Call]:
    """A call with other arguments, later."""
    return lambda: make() | changes


def shared_k_major(x: Any, rows: int, k: int, swizzle: int, container: str | None = None) -> tc.PlacedOperand:
    """(*prefix, repeat * rows, k_repeat * k) -> shared memory, viewed as (*prefix, repeat, k_repeat, rows, k)."""
    layout = tc.mma_shared_layout(container or x.dtype.name, swizzle, x.shape[-2:])
    return tc.shared(x, layout).rearrange("(r m) (s k) -> r s m k", m=rows, k=k)


def bits(x: Any) -> np.ndarray:
    """An array's bit patterns."""
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def refuse(make: Callable[[], Call], error: type[Exception], *words: Any) -> str:
    """The call is refused by the Plan, by abstract evaluation and by the reference alike; returns the text."""
    call = make()
    with pytest.raises(error) as caught:
        tc.plan(**call)
    text = str(caught.value)
    assert "\n" not in text and "np." not in text and "Traced" not in text
    missing = [word for word in words if str(word) not in text]
    assert not missing, f"{missing} not in: {text}"
    for function in (lambda: jax.eval_shape(lambda: tc.mma(**call).leaf), lambda: tc.reference.mma(**call)):
        with pytest.raises(error) as again:
            function()
        assert str(again.value) == text
    return text


def assert_same(got: tc.PlacedOperand, want: tc.PlacedOperand) -> None:
    """Equal leaves of D, bit for bit."""
    np.testing.assert_array_equal(bits(got.leaf), bits(want.leaf))


def jitted(function: Callable[..., tc.PlacedOperand], call: Call) -> tc.PlacedOperand:
    """`mma` or `reference.mma` of the call, compiled as one function of its arrays."""
    return call["d"].with_leaf(jax.jit(run(call, function))(leaves(call)))


def assert_exact(call: Call) -> None:
    """`mma` equals the reference bit for bit, and does something."""
    want = jitted(tc.reference.mma, call)
    assert_same(jitted(tc.mma, call), want)
    assert not np.array_equal(bits(want.leaf), bits(call["d"].leaf))


def leaves(call: Call) -> dict[str, jax.Array]:
    """The operands' arrays by name."""
    return {name: jnp.asarray(x.leaf) for name, x in call.items() if isinstance(x, tc.PlacedOperand)}


def with_leaves(call: Call, arrays: dict[str, Any]) -> Call:
    """The call with other arrays in the same places."""
    return call | {name: call[name].with_leaf(x) for name, x in arrays.items()}


def run(call: Call, mma: Callable[..., tc.PlacedOperand] = tc.mma) -> Callable[[dict[str, Any]], jax.Array]:
    """The call as a function of its operands' arrays, and of accum, pred and masks if given; returns D's leaf."""

    def function(arrays: dict[str, Any]) -> jax.Array:
        placed = {name: x for name, x in arrays.items() if isinstance(call.get(name), tc.PlacedOperand)}
        traced = {name: x for name, x in arrays.items() if name not in placed}
        return mma(**with_leaves(call, placed) | traced).leaf

    return function
