"""A 128x64x64 product as four K16 issues of tcgen05.mma, inside jax.jit, checked three ways."""

import jax
import jax.numpy as jnp
import numpy as np

import jax_tcgen05 as tc

OPCODE = "tcgen05.mma.cta_group::1.kind::f16"
al = tc.mma_shared_layout("float16", 3, (128, 64))
bl = tc.mma_shared_layout("float16", 3, (64, 64))
dl = tc.tmem_mma_operand_layout("D", (128, 64), "float32", M=128, cta_group=1)


def call(a, b):
    """The operands and fields of the call: a (128, 64) and b (64, 64), stored (N, K), are float16."""
    av = tc.shared(a, al).rearrange("m (kr k) -> kr m k", k=16).view(1, 4, 128, 16)
    bv = tc.shared(b, bl).rearrange("n (kr k) -> kr n k", k=16).view(1, 4, 64, 16)
    d = tc.tmem_empty((128, 64), "float32", dl).view(1, 1, 128, 64)
    fields = {
        "instruction_shape": (128, 64, 16),
        "a_descriptor": (16, 1024, 3),
        "b_descriptor": (16, 1024, 3),
        "accum": False,
    }
    return (OPCODE, d, av, bv), fields


@jax.jit
def tensor_mma(a, b):
    operands, fields = call(a, b)
    return tc.mma(*operands, **fields).array.reshape(128, 64)


def exact_step(c, a, b):
    """One K16 issue by the published rule, in integers: align to the top exponent, cut, add, cut to float32."""

    def split(x, fraction_bits, lowest):
        exponent = np.maximum(np.frexp(x.astype(np.float64))[1] - 1, lowest)
        return np.ldexp(x.astype(np.float64), fraction_bits - exponent).astype(np.int64), exponent

    (sa, ea), (sb, eb), (sc, ec) = split(a, 10, -14), split(b, 10, -14), split(c, 23, -126)
    terms = np.concatenate([sa[:, None] * sb[None] << 5, sc[..., None] << 2], axis=-1)  # 25 fraction bits
    exponents = np.concatenate([ea[:, None] + eb[None], ec[..., None]], axis=-1)
    top = np.where(terms == 0, -133, exponents).max(axis=-1, initial=-133)
    cut = np.abs(terms) >> np.minimum(top[..., None] - exponents, 63)
    total = np.ldexp((np.sign(terms) * cut).sum(axis=-1).astype(np.float64), top - 25)
    nearest = total.astype(np.float32)
    return np.where(np.abs(nearest) > np.abs(total), np.nextafter(nearest, np.float32(0)), nearest)


def exact(a, b):
    """The four issues, one after another."""
    d = np.zeros((128, 64), np.float32)
    for k in range(0, 64, 16):
        d = exact_step(d, a[:, k : k + 16], b[:, k : k + 16])
    return d


def inputs():
    """The document's input, and a Hilbert matrix times a cosine basis, whose sums do round."""
    rng = np.random.default_rng(0)
    a = (rng.integers(-4, 5, (128, 64)) / 4).astype(np.float16)
    b = (rng.integers(-4, 5, (64, 64)) / 4).astype(np.float16)
    yield "document", a, b
    m, n, k = np.arange(128), np.arange(64), np.arange(64)
    hilbert = 1 / (m[:, None] + k + 1)
    cosines = np.cos(np.pi * (k + 0.5) * n[:, None] / 64)
    yield "Hilbert x cosines", hilbert.astype(np.float16), cosines.astype(np.float16)


def main():
    for number, (name, a, b) in enumerate(inputs()):
        if number == 0:
            operands, fields = call(jnp.asarray(a), jnp.asarray(b))
            print(tc.plan(*operands, **fields), end="\n\n")
        d = np.asarray(tensor_mma(a, b))
        expected = np.asarray(jnp.dot(a.astype(np.float32), b.astype(np.float32).T, precision="highest"))
        difference = np.abs(d - expected).max()
        same = np.array_equal(d.view(np.uint32), exact(a, b).view(np.uint32))
        print(f"{name:18} max |mma - jax.numpy| = {difference:.2e}   bits equal to the exact model: {same}")
        if not same or difference > 1e-5:
            raise SystemExit("mismatch")


if __name__ == "__main__":
    main()
