"""The document's split-N example: an M=64 .ws product of N=128 as two issues of N=64.

Layout E has two banks: lanes 0-63 of A feed the first half of an instruction's columns, lanes 64-127 the second.
Splitting N moves that border from column 64 to 32, so B must be prepared and D viewed to match.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_tcgen05 as tc

OPCODE = "tcgen05.mma.ws.cta_group::1.kind::f16"


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A with different data in its two banks (2, 64, 16), B (128, 16), D (64, 128)."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((2, 64, 16), (128, 16)))
    return a, b, rng.integers(-3, 4, (64, 128)).astype(np.float32)


def wanted(a: np.ndarray, b: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Bank 0 of A times B's rows 0-63, bank 1 times rows 64-127."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    return d + np.concatenate([a[0] @ b[:64].T, a[1] @ b[64:].T], axis=1)


def issue(a: np.ndarray, b: np.ndarray, d: tc.PlacedOperand, n: int) -> tc.PlacedOperand:
    """One .ws call with as many N repeats as b (repeats, n, 16) has."""
    a_layout = tc.tmem_mma_operand_layout("A", (2, 64, 16), "float16", M=64, cta_group=1, ws=True)
    rows = b.shape[0] * b.shape[1]
    b_layout = tc.mma_shared_layout("float16", 1, (rows, 16))
    return tc.mma(
        OPCODE,
        d,
        tc.tmem(a, a_layout).view(1, 1, 2, 64, 16),
        tc.shared(b.reshape(rows, 16), b_layout).view(-1, 1, n, 16),
        instruction_shape=(64, n, 16),
        b_descriptor=(16, 256, 1),
        accum=True,
    )


def d_of(d: np.ndarray) -> tc.PlacedOperand:
    return tc.tmem(d, tc.tmem_mma_operand_layout("D", (64, 128), "float32", M=64, cta_group=1, ws=True))


def test_one_issue_of_n_128():
    a, b, d = operands()
    got = issue(a, b[None], d_of(d).view(1, 1, 64, 128), 128)
    np.testing.assert_array_equal(got.leaf, wanted(a, b, d))


@pytest.mark.parametrize("compiled", [False, True])
def test_two_issues_of_n_64_with_b_prepared(compiled):
    """Issue s takes columns 32s.. of each half: B's rows go there, and D's view says where they lie."""
    a, b, d = operands()

    def product(a, b, d):
        prepared = b.reshape(2, 2, 32, 16).swapaxes(0, 1).reshape(2, 64, 16)
        view = d_of(d).rearrange("m (p s n) -> s m (p n)", p=2, s=2).view(1, 2, 64, 64)
        return issue(a, prepared, view, 64).leaf

    got = (jax.jit(product) if compiled else product)(*map(jnp.asarray, (a, b, d)))
    np.testing.assert_array_equal(got, wanted(a, b, d))


def test_naive_slices_are_refused():
    """Two consecutive slices of D: columns 0-63 lie in lanes 0-63, where an instruction of N=64 has 0-31."""
    a, b, d = operands()
    with pytest.raises(ValueError, match=r"d: .*disagrees with the datapath.*layout E"):
        issue(a, b.reshape(2, 64, 16), d_of(d).rearrange("m (s n) -> s m n", s=2).view(1, 2, 64, 64), 64)


def test_naive_slices_of_b_alone_give_other_numbers():
    """With the right view of D but B cut in two, legal and wrong: bank 1 meets B's rows 32-63 in the first issue."""
    a, b, d = operands()
    view = d_of(d).rearrange("m (p s n) -> s m (p n)", p=2, s=2).view(1, 2, 64, 64)
    got = np.asarray(issue(a, b.reshape(2, 64, 16), view, 64).leaf)
    right = wanted(a, b, d)
    np.testing.assert_array_equal(got[:, :32], right[:, :32])
    assert np.any(got[:, 64:96] != right[:, 64:96])
    mixed = a[1].astype(np.float32) @ b[32:64].astype(np.float32).T
    np.testing.assert_array_equal(got[:, 64:96], d[:, 64:96] + mixed)


def test_equal_banks_give_the_plain_product():
    a, b, d = operands()
    same = np.stack([a[0], a[0]])
    got = issue(same, b[None], d_of(d).view(1, 1, 64, 128), 128)
    np.testing.assert_array_equal(got.leaf, d + a[0].astype(np.float32) @ b.astype(np.float32).T)
