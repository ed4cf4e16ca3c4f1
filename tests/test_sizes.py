"""Sizes: the smallest, the largest that TMEM and shared memory hold, offsets past 2^31 and 2^32 bytes (B85, B89)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from base_calls import assert_exact, leaves, legal_call, refuse, run

import jax_tcgen05 as tc


def aligned_zeros(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Zeros that start on 64 bytes, so that JAX takes them without a copy; untouched pages cost no memory."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def test_offsets_past_two_and_four_gib():
    """A's leaf is 216 KiB a batch element, 4.4 GB in all; the elements beyond each boundary are right."""
    probe = aligned_zeros((1024,), np.float32)
    if jnp.from_dlpack(probe).unsafe_buffer_pointer() != probe.ctypes.data:
        pytest.skip("this JAX copies NumPy arrays, which would take 4.4 GB")
    count, rows, columns = 20_000, 64, 1728
    leaf = aligned_zeros((count, rows, columns), np.float16)
    per_element = rows * columns * 2
    assert leaf.nbytes > 1 << 32
    marked = {
        0: 1,
        2**31 // per_element: 2,
        2**31 // per_element + 1: 3,
        2**32 // per_element: 4,
        count - 1: 5,
    }
    for index, value in marked.items():
        leaf[index, :, :16] = value
    layout = tc.mma_shared_layout("float16", 0, (rows, columns))
    d_layout = tc.tmem_datapath_layout("F", 64, 8)

    @jax.jit
    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        d = tc.tmem_empty((count, 64, 8), "float32", d_layout).view(1, 1, 64, 8)
        return tc.mma(
            "tcgen05.mma.cta_group::1.kind::f16",
            d,
            tc.shared(a, layout)[:, :16].view(1, 1, 64, 16),
            tc.shared(b, tc.mma_shared_layout("float16", 0, (8, 16))).view(1, 1, 8, 16),
            instruction_shape=(64, 8, 16),
            a_descriptor=(16 * rows, 128, 0),
            b_descriptor=(128, 128, 0),
        ).leaf

    got = np.asarray(product(jnp.from_dlpack(leaf), jnp.ones((1, 8, 16), jnp.float16)))
    want = np.zeros(count, np.float32)
    for index, value in marked.items():
        want[index] = 16 * value
    np.testing.assert_array_equal(got, np.broadcast_to(want[:, None, None], got.shape))


@pytest.mark.parametrize("columns", [1894, 20, 17])
def test_row_strides_that_are_no_multiple_of_16_bytes(columns):
    x = tc.shared(jnp.zeros((64, columns), jnp.float16), tc.mma_shared_layout("float16", 0, (64, columns)))
    call = legal_call(M=64, N=8) | {
        "a": x[:, :16].view(1, 1, 64, 16),
        "a_descriptor": (16, 2 * columns // 16 * 16, 0),
    }
    text = refuse(lambda: call, ValueError, "a")
    assert "no descriptor fits" in text or "16" in text


LARGEST = {
    "N=256 twice": {"M": 128, "N": 256, "repeats": (2, 1, 1)},
    "eight tiles of 64 columns": {"M": 128, "N": 64, "repeats": (2, 4, 1)},
    "a pair": {"M": 256, "N": 256, "group": 2, "repeats": (2, 1, 1)},
    ".ws, M=32": {"M": 32, "N": 256, "ws": True, "repeats": (1, 5, 1)},
    "A in TMEM": {"M": 128, "N": 256, "a_swizzle": None, "repeats": (1, 1, 27)},
    "long K": {"kind": "i8", "M": 64, "N": 8, "repeats": (1, 1, 100)},
    "scales for long K": {"kind": "mxf8f6f4", "N": 8, "repeats": (1, 1, 48)},
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_calls(name):
    assert_exact(legal_call(**LARGEST[name]))


@pytest.mark.parametrize("n", [8, 16, 24, 40, 248, 256])
def test_n_from_8_to_256(n):
    assert_exact(legal_call(N=n))


@pytest.mark.parametrize("n", [8, 24, 40, 136, 200, 256])
def test_scales_of_any_n(n):
    """Rows that are no multiple of 32 lie in a padded tile."""
    assert_exact(legal_call("mxf4nvf4", N=n))


def test_repeats_of_zero_are_refused():
    with pytest.raises(ValueError, match=r"slice\(None, 0, None\) is empty"):
        legal_call()["a"][:, :0]
    with pytest.raises(ValueError, match="0"):
        tc.mma_shared_layout("float16", 0, (0, 16))


@pytest.mark.parametrize("batch", [(1,), (1, 1, 1, 1, 1), (0,), (2, 0, 3)])
def test_batches_of_one_and_none(batch):
    call = legal_call(N=8, batch=batch)
    got = jax.jit(run(call))(leaves(call))
    assert got.shape == call["d"].leaf.shape
    if got.size:
        assert_exact(call)
