"""What users pass: bad arrays are refused in words, odd ones give the exact bits, and codes decode to their values.

Values of codes come from tables worked out from the formats' definitions (OCP 8-bit and MX formats), and from
ml_dtypes; never from the package's own decoder.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from base_calls import assert_exact, bits, leaves, legal_call, refuse, run, with_leaves

import jax_tcgen05 as tc

QUIET_NAN = 0x7FFFFFFF  # numerics 4: the one NaN that comes out

# Placing


LAYOUT = tc.mma_shared_layout("float16", 0, (128, 16))
D_LAYOUT = tc.tmem_datapath_layout("D", 128, 64)


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        ([[0.0] * 16] * 128, TypeError, ("list", "JAX or NumPy array")),
        (None, TypeError, ("NoneType", "JAX or NumPy array")),
        (1.0, TypeError, ("float", "JAX or NumPy array")),
        ("x", TypeError, ("str", "JAX or NumPy array")),
        (np.zeros((128, 16)), TypeError, ("float64", "float16")),
        (np.zeros((128, 16), np.int64), TypeError, ("int64", "int8")),
        (np.zeros((128, 16), np.uint16), TypeError, ("uint16", "uint8")),
        (np.zeros((128, 16), bool), TypeError, ("bool",)),
        (np.zeros((128, 16), np.complex64), TypeError, ("complex64",)),
        (np.zeros((128, 16), object), TypeError, ("object",)),
        (np.zeros((128, 16), "U1"), TypeError, ("float16",)),
        (np.zeros((128, 16), ml_dtypes.float6_e2m3fn), TypeError, ("float6_e2m3fn", "uint8")),
        (np.zeros((128, 16), ml_dtypes.float8_e4m3fnuz), TypeError, ("float8_e4m3fnuz", "float8_e4m3fn,")),
        (np.zeros((128, 16), ml_dtypes.int4), TypeError, ("int4",)),
        (np.zeros((16, 128), np.float16), ValueError, ("(16, 128)", "(128, 16)", "prefix")),
        (np.zeros((128,), np.float16), ValueError, ("(128,)", "(128, 16)")),
        (np.zeros((), np.float16), ValueError, ("()", "(128, 16)")),
        (np.zeros((128, 16, 1), np.float16), ValueError, ("(128, 16, 1)", "(128, 16)")),
    ],
    ids=lambda x: str(getattr(x, "dtype", x))[:20],
)
def test_arrays_that_cannot_be_placed(array, error, words):
    with pytest.raises(error) as caught:
        tc.shared(array, LAYOUT)
    text = str(caught.value)
    assert text.startswith("shared: ") and [word for word in words if word not in text] == [], text


def test_layouts_of_another_storage():
    for place, layout, words in (
        (tc.shared, D_LAYOUT, ("shared", "TCol", "tmem(...)")),
        (tc.tmem, LAYOUT, ("tmem", "'m'", "shared(...)")),
        (tc.shared, (128, 16), ("shared", "tuple", "TileLayout")),
        (tc.tmem, None, ("tmem", "NoneType", "TileLayout")),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            place(np.zeros((128, 64 if layout is D_LAYOUT else 16), np.float16), layout)
        assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("shape", [(128.0, 64), ("128", 64), 128, None, (-128, 64), (64, 128)])
def test_shapes_of_an_empty_d(shape):
    with pytest.raises((TypeError, ValueError), match=r"tmem_empty: (shape|array)"):
        tc.tmem_empty(shape, "float32", D_LAYOUT)


def test_an_empty_d_is_zeros():
    call = legal_call()
    empty = tc.tmem_empty((128, 64), "float32", D_LAYOUT).view(1, 1, 128, 64)
    zeros = tc.mma(**call | {"d": empty, "accum": True})
    np.testing.assert_array_equal(zeros.leaf, tc.mma(**call | {"d": empty, "accum": False}).leaf)


def test_a_traced_array_and_a_numpy_array_are_placed_alike():
    call = legal_call()
    for convert in (np.asarray, jnp.asarray):
        placed = {n: x.with_leaf(convert(x.leaf)) for n, x in call.items() if isinstance(x, tc.PlacedOperand)}
        np.testing.assert_array_equal(tc.mma(**call | placed).leaf, jax.jit(run(call))(leaves(call)))


def test_float64_in_x64_mode_is_still_refused():
    with jax.enable_x64(True):
        for array in (np.zeros((128, 16)), jnp.zeros((128, 16), jnp.float64)):
            with pytest.raises(TypeError, match="float64"):
                tc.shared(array, LAYOUT)
        assert_exact(legal_call())


def test_a_dtype_that_disagrees_with_the_container():
    """f16 numbers in a layout of 8-bit containers: positions would be wrong by two."""
    call = legal_call("f8f6f4")
    with pytest.raises((TypeError, ValueError), match="a"):
        tc.plan(
            **call
            | {"a": tc.shared(jnp.zeros((128, 32), jnp.float16), call["a"].placement).view(1, 1, 128, 32)}
        )


# Special values


@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4", "mxf8f6f4"])
def test_nan_everywhere(kind):
    call = legal_call(kind)
    arrays = {name: jnp.full_like(x, jnp.nan) for name, x in leaves(call).items()}
    got = tc.mma(**with_leaves(call, arrays))
    assert set(np.unique(bits(got.leaf))) == {QUIET_NAN}


@pytest.mark.parametrize("kind", ["mxf4", "mxf4nvf4"])
def test_nan_scales_and_nan_d(kind):
    call = legal_call(kind)
    for name in ("d", "sfa", "sfb"):
        nan = with_leaves(call, {name: jnp.full_like(leaves(call)[name], jnp.nan)})
        assert set(np.unique(bits(tc.mma(**nan).leaf))) == {QUIET_NAN}


def test_infinities():
    call = legal_call(M=64, N=8)
    a = jnp.zeros_like(leaves(call)["a"]).at[:, 0].set(jnp.inf)
    for b, want in ((1.0, 0x7F800000), (-2.0, 0xFF800000), (0.0, QUIET_NAN)):
        changed = with_leaves(call, {"a": a, "b": jnp.full_like(leaves(call)["b"], b)})
        assert set(np.unique(bits(tc.mma(**changed).leaf))) == {want}


FLOAT_KINDS = ["f16", "tf32", "f8f6f4", "mxf8f6f4", "mxf4", "mxf4nvf4"]


@pytest.mark.parametrize("kind", FLOAT_KINDS)
def test_the_accumulator_passes_through(kind):
    """B55: A = B = 0 returns C bit for bit, subnormals and all; -0 + 0 is +0 (numerics 4)."""
    call = legal_call(kind, N=8)
    words = np.array(
        [0x3F800001, 0x3FFFFFFF, 1, 0x7F7FFFFF, 0x80000001, 0xBF800001, 0x00800000, 0], np.uint32
    )
    d = np.broadcast_to(words.view(np.float32), call["d"].leaf.shape)
    zeros = {name: jnp.zeros_like(leaves(call)[name]) for name in ("a", "b")}
    for a in (zeros["a"], -zeros["a"]):
        got = tc.mma(**with_leaves(call, zeros | {"a": a, "d": d}))
        np.testing.assert_array_equal(bits(got.leaf), bits(d))
    minus = with_leaves(call, zeros | {"d": jnp.full_like(leaves(call)["d"], -0.0)})
    assert set(np.unique(bits(tc.mma(**minus).leaf))) == {0}


def test_subnormal_sums_are_kept():
    """B57: 2^-100 * 2^-40 = 2^-140 is 0x00000200; sixteen of 2^-149 are 0x10."""
    call = legal_call(M=64, N=8, a_format="bfloat16", b_format="bfloat16")
    for a, b, count, want in ((-100, -40, 1, 0x200), (-75, -74, 16, 0x10), (-75, -75, 16, 8)):
        arrays = {n: np.zeros(call[n].leaf.shape, ml_dtypes.bfloat16) for n in ("a", "b")}
        arrays["a"][:, :count], arrays["b"][:, :count] = 2.0**a, 2.0**b
        got = tc.mma(**with_leaves(call, {n: jnp.asarray(x) for n, x in arrays.items()}) | {"accum": False})
        assert set(np.unique(bits(got.leaf))) == {want}


# Codes (B49, B51, B59)


def small_float(code: int, exponent_bits: int, fraction_bits: int, bias: int, top: str) -> float:
    """The value of a code by the format's definition; `top` says what the highest exponent is."""
    fraction = code & ((1 << fraction_bits) - 1)
    exponent = code >> fraction_bits & ((1 << exponent_bits) - 1)
    sign = -1.0 if code >> (fraction_bits + exponent_bits) else 1.0
    highest = exponent == (1 << exponent_bits) - 1
    if top == "ieee" and highest:
        return sign * math.inf if fraction == 0 else math.nan
    if top == "nan" and highest and fraction == (1 << fraction_bits) - 1:
        return math.nan
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)


DEFINITIONS = {
    "float8_e4m3fn": (4, 3, 7, "nan"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float6_e2m3fn": (2, 3, 1, "finite"),
    "float6_e3m2fn": (3, 2, 3, "finite"),
    "float4_e2m1fn": (2, 1, 1, "finite"),
}


def table(fmt: str) -> np.ndarray:
    exponent_bits, fraction_bits, *_ = DEFINITIONS[fmt]
    count = 1 << (1 + exponent_bits + fraction_bits)
    return np.array([small_float(code, *DEFINITIONS[fmt]) for code in range(count)], np.float32)


@pytest.mark.parametrize("fmt", DEFINITIONS)
def test_the_tables_agree_with_ml_dtypes(fmt):
    codes = np.arange(len(table(fmt)), dtype=np.uint8)
    np.testing.assert_array_equal(table(fmt), codes.view(getattr(ml_dtypes, fmt)).astype(np.float32))


def test_the_tables_have_the_known_landmarks():
    e4m3, e5m2, e2m1 = table("float8_e4m3fn"), table("float8_e5m2"), table("float4_e2m1fn")
    assert np.flatnonzero(np.isnan(e4m3)).tolist() == [0x7F, 0xFF] and e4m3[0x7E] == 448 and e4m3[1] == 2**-9
    assert e5m2[1] == 2**-16 and e5m2[0x7C] == np.inf and np.isnan(e5m2).sum() == 6
    assert e2m1.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def codes_as(fmt: str, codes: np.ndarray) -> Any:
    """An array of these codes in the dtype that `mma` takes."""
    return codes if fmt.startswith("float6") else codes.view(getattr(ml_dtypes, fmt))


def decoded_by_mma(kind: str, fmt: str, codes: np.ndarray, side: str, a_in_tmem: bool = False) -> np.ndarray:
    """Each code at k=0 of a row of `side`, 1 at k=0 of the other operand, zeros elsewhere, through a real mma."""
    one = {
        "float8_e4m3fn": 0x38,
        "float8_e5m2": 0x3C,
        "float6_e2m3fn": 8,
        "float6_e3m2fn": 12,
        "float4_e2m1fn": 2,
    }
    form = {"a_swizzle": None} if a_in_tmem else {}
    packed = not fmt.startswith("float6")
    call = legal_call(kind, 128, 16, a_format=fmt, b_format=fmt, packed_arrays=packed, **form)
    values = []
    rows = 128 if side == "a" else 16
    for start in range(0, len(codes), rows):
        part = codes[start : start + rows]
        new = {}
        for name in ("a", "b"):
            matrix = np.zeros(call[name].leaf.shape, np.uint8)
            matrix[..., 0] = one[fmt]
            if name == side:
                matrix[..., : len(part), 0] = part
            new[name] = codes_as(fmt, matrix)
        new |= {s: np.ones(call[s].leaf.shape, call[s].dtype) for s in ("sfa", "sfb") if s in call}
        got = np.asarray(tc.mma(**with_leaves(call, new) | {"accum": False}).array)[0, 0]
        values.append(got[: len(part), 0] if side == "a" else got[0, : len(part)])
    return np.concatenate(values)


CODES = [
    ("f8f6f4", fmt, side, tmem)
    for fmt in DEFINITIONS
    for side, tmem in (("a", False), ("b", False), ("a", True))
] + [("mxf4", "float4_e2m1fn", side, tmem) for side, tmem in (("a", False), ("b", False), ("a", True))]


@pytest.mark.parametrize(("kind", "fmt", "side", "tmem"), CODES)
def test_every_code_through_a_real_mma(kind, fmt, side, tmem):
    values = table(fmt)
    got = decoded_by_mma(kind, fmt, np.arange(len(values), dtype=np.uint8), side, tmem)
    np.testing.assert_array_equal(got, values)
    assert set(bits(got[np.isnan(values)]).tolist()) <= {QUIET_NAN}
    assert not np.signbit(got[values == 0]).any()  # code 0x80 gives a zero, and zeros come out as +0


@pytest.mark.parametrize("fmt", ["float16", "bfloat16"])
def test_16_bit_codes_through_a_real_mma(fmt):
    """All 65536, 2048 in a call: 128 rows of 16 elements, B the unit matrix."""
    dtype = np.dtype(getattr(ml_dtypes, fmt, fmt))
    call = legal_call(M=128, N=16, a_format=fmt, b_format=fmt, batch=(32,), broadcast=("b",)) | {
        "accum": False
    }
    codes = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    values = codes.astype(np.float32)
    finite = np.where(
        np.isfinite(values), codes, codes[:1]
    )  # an infinity or NaN takes the row's others along
    b = np.eye(16, dtype=np.float32).astype(dtype)[None]
    got = np.asarray(tc.mma(**with_leaves(call, {"a": finite.reshape(32, 128, 16), "b": b})).leaf)
    np.testing.assert_array_equal(got.reshape(-1), np.where(np.isfinite(values), values, 0))


# int8 (B61)


def test_signed_and_unsigned_bytes():
    for fmt, want in (("int8", -32), ("uint8", 8160)):
        call = legal_call("i8", a_format=fmt, b_format="int8")
        a = np.full(call["a"].leaf.shape, 0xFF, np.uint8).view(fmt)
        got = tc.mma(**with_leaves(call, {"a": a, "b": jnp.ones_like(leaves(call)["b"])}) | {"accum": False})
        np.testing.assert_array_equal(got.array, np.full((1, 1, 128, 64), want))


@pytest.mark.parametrize(
    ("start", "sign", "wrapped"), [(2**31 - 1, 1, -(2**31)), (-(2**31), -1, 2**31 - 1)], ids=["top", "bottom"]
)
def test_integers_wrap_or_saturate(start, sign, wrapped):
    call = legal_call("i8")
    arrays = leaves(call)
    one = {n: jnp.zeros_like(arrays[n]).at[:, 0].set(1) for n in ("a", "b")}
    changed = with_leaves(call, one | {"a": one["a"] * sign, "d": jnp.full_like(arrays["d"], start)})
    for sat_d, want in ((False, wrapped), (True, start)):
        got = tc.mma(**changed | {"sat_d": sat_d})
        np.testing.assert_array_equal(got.array, np.full((1, 1, 128, 64), want))
        np.testing.assert_array_equal(got.leaf, tc.reference.mma(**changed | {"sat_d": sat_d}).leaf)


# Sub-byte arrays (B63, B65)


def fp4_matrix(rows: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 16, (rows, k)).astype(np.uint8)


@pytest.mark.parametrize("batch", [1, 9])
@pytest.mark.parametrize("change", ["plain", "reshaped", "transposed"])
def test_fp4_arrays_keep_their_codes(batch, change):
    """All 16 codes; 8 Ki and 72 Ki elements; reshaped and transposed before the call; twice in a row."""
    call = legal_call("mxf4", N=8, batch=(batch,), broadcast=("b", "sfa", "sfb"))
    ones = {n: jnp.ones_like(leaves(call)[n]) for n in ("sfa", "sfb")}
    codes = fp4_matrix(batch * 128, 64).reshape(batch, 128, 64)
    b = fp4_matrix(8, 64, 1)[None]

    @jax.jit
    def product(values: jax.Array) -> jax.Array:
        x = {
            "plain": lambda: values.reshape(batch, 128, 64),
            "reshaped": lambda: values.reshape(-1).reshape(batch, 128, 64),
            "transposed": lambda: values.swapaxes(1, 2),
        }[change]()
        return run(call | {"accum": False})(leaves(call) | ones | {"a": x, "b": codes_as("float4_e2m1fn", b)})

    values = table("float4_e2m1fn")
    want = np.einsum("bmk,nk->bmn", values[codes], values[b[0]])
    stored = {"plain": codes, "reshaped": codes.reshape(-1, 128), "transposed": codes.swapaxes(1, 2)}[change]
    given = jnp.asarray(codes_as("float4_e2m1fn", np.ascontiguousarray(stored)))
    for _ in range(2):
        np.testing.assert_array_equal(product(given)[:, 0, 0], want)


def test_fp4_as_numbers_and_as_codes():
    """B65: shapes count elements; float4_e2m1fn and one uint8 code per entry are the same operand."""
    call = legal_call("mxf4", packed_arrays=True)
    coded = legal_call("mxf4", packed_arrays=False)
    assert call["a"].dtype == jnp.float4_e2m1fn and coded["a"].dtype == jnp.uint8
    assert call["a"].shape == coded["a"].shape == (1, 1, 128, 64)
    np.testing.assert_array_equal(tc.mma(**call).leaf, tc.mma(**coded).leaf)


@pytest.mark.parametrize("dtype", [np.uint8, ml_dtypes.float4_e2m1fn])
def test_two_codes_a_byte_are_refused(dtype):
    half = tc.shared(np.zeros((128, 32), dtype), tc.mma_shared_layout("float4_e2m1fn", 0, (128, 32)))
    call = legal_call("mxf4", packed_arrays=dtype != np.uint8) | {"a": half.view(1, 1, 128, 32)}
    refuse(lambda: call, ValueError, "a:", "(1, 1, 128, 32)", "(.., .., 128, 64)")


def test_codes_past_four_bits_do_not_reach_their_neighbours():
    """A code's upper bits are no part of it."""
    call = legal_call("mxf4", N=8, packed_arrays=False)
    dirty = {n: leaves(call)[n] | np.uint8(0xF0) for n in ("a", "b")}
    np.testing.assert_array_equal(tc.mma(**with_leaves(call, dirty)).leaf, tc.mma(**call).leaf)


# The references themselves (B67)


def test_the_reference_sums_in_float32_and_int32():
    f8 = legal_call("f8f6f4", repeats=(1, 1, 8))
    sixteen = {n: jnp.full_like(leaves(f8)[n], 16) for n in ("a", "b")}
    i8 = legal_call("i8")
    hundred = {n: jnp.zeros_like(leaves(i8)[n]).at[:, :4].set(100) for n in ("a", "b")}
    for call, arrays, want, dtype in ((f8, sixteen, 65536, np.float32), (i8, hundred, 40000, np.int32)):
        for mma in (tc.mma, tc.reference.mma):
            got = mma(**with_leaves(call, arrays) | {"accum": False})
            assert got.dtype == dtype
            np.testing.assert_array_equal(got.array, np.full((1, 1, 128, 64), want))


def test_the_reference_in_float64():
    call = legal_call(M=64, N=8)
    with jax.enable_x64(True):
        got = tc.reference.mma(**call, compute_dtype=np.float64)
    np.testing.assert_array_equal(got.leaf, tc.mma(**call).leaf)


def test_after_a_refusal_the_next_call_works():
    call = legal_call()
    want = np.asarray(tc.mma(**call).leaf)
    for bad in ({"instruction_shape": (128, 64, 15)}, {"a_descriptor": (8, 8, 0)}, {"d": None}):
        with pytest.raises((TypeError, ValueError)):
            tc.mma(**call | bad)
        np.testing.assert_array_equal(tc.mma(**call).leaf, want)
