"""Ways in for block-scaled products: plain arrays to element codes and scale factors, and scales into place.

Nothing here decides the instruction: opcode, shapes and layouts stay with the caller. Everything is jax.numpy,
works under `jit` and `vmap`, and is exact: numbers are taken apart into integers and rounded once, so results
are the same bits on every platform, also where its float arithmetic flushes subnormals. The derivative of
what is returned is zero, as that of `jnp.round`: put a straight-through estimator around it for training.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from .isa import FORMATS, KINDS, SCALE_CODES, format_name, refusal

# The elements that kinds of block-scaled products take.
_ELEMENTS = tuple(
    name for name in FORMATS if any(k.block_scaled and name in k.formats for k in KINDS.values())
)
_UE8M0, _UE4M3, _E2M1 = "float8_e8m0fnu", "float8_e4m3fn", "float4_e2m1fn"
_INPUTS = ("float32", "float16", "bfloat16")
_SCALES = tuple(SCALE_CODES)
# Elements per scale in OCP MX and in NVFP4: the defaults of the quantisers.
_BLOCKS = {_UE8M0: 32, _UE4M3: 16}

_BLOCK_ROWS, _BLOCK_COLUMNS, _LANES = 128, 4, 32  # of the 512 bytes that tcgen05.cp.32x128b.warpx4 copies


def quantize_mx(x: Any, format: Any, block: int = 32) -> tuple[jax.Array, jax.Array]:
    """Blocks along the last axis in an OCP MX format (OCP Microscaling v1.0, section 6.3).

    The scale of a block is 2**e, e = floor(log2(max |x|)) - emax, clamped to e8m0's -127..127, emax the
    exponent of the format's largest number. The elements are x / 2**e rounded to nearest even, saturating
    at the largest number; zeros keep their sign. A block of zeros gets the smallest scale, 2**-127 (code 0).
    A block with a NaN or an infinity gets the scale NaN (code 0xFF) and zeros for elements, so that
    all of it reads as NaN.

    Args:
      x: (..., K) float32, float16 or bfloat16.
      format: float8_e4m3fn, float8_e5m2, float6_e2m3fn, float6_e3m2fn or float4_e2m1fn, by name or dtype.
      block: elements per scale; K is a multiple of it.

    Returns:
      (codes, scales): codes (..., K) of dtype `format`, or uint8 with one code an entry for the two FP6
      formats; scales (..., K/block) float8_e8m0fnu.

    Raises:
      ValueError: another format or dtype, or K is no multiple of `block`. TypeError: x is no array.
    """
    return _quantize_mx(_blocks(x, block), format_name("format", format, _ELEMENTS))


@partial(jax.jit, static_argnums=1)
def _quantize_mx(x: jax.Array, name: str) -> tuple[jax.Array, jax.Array]:
    target, scale, source = _encoding(name), _encoding(_UE8M0), _encoding(x.dtype.name)
    size = _bits(x) & source.magnitude
    block_max = jnp.max(size, axis=-1)
    bad = block_max > source.largest
    shift = _floor_log2(*_unpack(block_max, source)) - _floor_log2_of_max(target)
    code = jnp.where(block_max == 0, 0, jnp.clip(shift - scale.min_exponent, 0, scale.largest))
    significand, exponent = _unpack(size, source)
    size = _pack(significand, exponent - (code + scale.min_exponent)[..., None], target)
    return _finish(x, size, code, bad, name, scale)


def quantize_nv(x: Any, block: int = 16, *, global_scale: Any = None) -> tuple[jax.Array, jax.Array]:
    """Blocks along the last axis in NVFP4: e2m1 elements, e4m3 scales, x ~ code * scale * global_scale.

    The scale of a block is max |x| / 6 / global_scale rounded to e4m3, to nearest even, saturating at 448.
    The elements are x / (scale * global_scale), with the scale as rounded, rounded once from the
    exact quotient to e2m1, to nearest even, saturating at 6; zeros keep their sign. A block whose scale
    rounds to zero (up to 2**-10; also a block of zeros) gets the scale 0 and zeros for elements. A block with
    a NaN or an infinity gets the scale NaN (code 0x7F) and zeros, so that all of it reads as NaN (e2m1 itself
    has no NaN).

    Args:
      x: (..., K) float32, float16 or bfloat16.
      block: elements per scale; K is a multiple of it.
      global_scale: None (1), a positive number, or a float32 scalar array, traced or not; commonly
        ``jnp.max(jnp.abs(x)) / (6 * 448)``. `mma` does not apply it: multiply D by it. Where an array holds a
        NaN, an infinity or a negative number, every block becomes NaN; zero does so for blocks that are not zero.

    Returns:
      (codes, scales): codes (..., K) float4_e2m1fn, scales (..., K/block) float8_e4m3fn (bit 7 clear).

    Raises:
      ValueError: another dtype, K no multiple of `block`, or a global_scale as described. TypeError: no array.
    """
    return _quantize_nv(_blocks(x, block), None if global_scale is None else _global_scale(global_scale))


@jax.jit
def _quantize_nv(x: jax.Array, global_scale: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    target, scale, source = _encoding(_E2M1), _encoding(_UE4M3), _encoding(x.dtype.name)
    size = _bits(x) & source.magnitude
    block_max = jnp.max(size, axis=-1)
    bad = block_max > source.largest
    factor, factor_exponent = jnp.uint32(1), jnp.int32(0)
    if global_scale is not None:
        whole = _bits(global_scale)  # the sign included, so that negative numbers are too large
        bad |= (whole > _encoding("float32").largest) | ((whole == 0) & (block_max != 0))
        factor, factor_exponent = _unpack(whole, _encoding("float32"))
    # Six is the largest e2m1. The products of significands have at most 2 + 24 and 4 + 24 bits.
    six, six_exponent = _unpack(jnp.uint32(target.largest), target)
    largest = _unpack(block_max, source)
    code = _pack(*_divide(*largest, six * factor, six_exponent + factor_exponent), scale)
    code = jnp.where(block_max == 0, 0, code)  # also where the divisor is 0
    divisor, divisor_exponent = _unpack(code, scale)
    divisor, divisor_exponent = divisor * factor, divisor_exponent + factor_exponent
    quotient = _divide(*_unpack(size, source), divisor[..., None], divisor_exponent[..., None])
    size = jnp.where(divisor[..., None] == 0, 0, _pack(*quotient, target))
    return _finish(x, size, code, bad, _E2M1, scale)


def dequantize(
    codes: Any, scales: Any, format: Any = None, block: int | None = None, *, global_scale: Any = None
) -> jax.Array:
    """code * scale as float32 (..., K), rounded once where float32 cannot hold it; not flushed.

    NaN where the code or the scale is NaN (the scale's code 0xFF, in e4m3 0x7F; e8m0's 127..254 are numbers),
    infinite where the product is too large. Bit 7 of an e4m3 scale is ignored, as the instruction does.

    Args:
      codes: (..., K) of a format's dtype, or uint8 with one code an entry for FP6 and FP4 (higher bits are
        ignored). Two FP4 codes a byte are not accepted.
      scales: (..., K/block), float8_e8m0fnu or float8_e4m3fn.
      format: the elements' format; needed for uint8 codes, else the codes' dtype.
      block: elements per scale: by default that of the scales' dtype in OCP MX and NVFP4, 32 for e8m0, 16
        for e4m3. It is never taken from the shapes, which must fit it: no padded columns.
      global_scale: None, or what `quantize_nv` got: multiplies the result, in plain float32 arithmetic.

    Raises:
      ValueError: another dtype or format, or shapes that do not fit. TypeError: no array.
    """
    codes = _array("codes", codes, (*dict.fromkeys(a for f in _ELEMENTS for a in FORMATS[f].arrays),))
    scales = _array("scales", scales, _SCALES, "their dtype says what the codes mean")
    name = _element_format(codes, format)
    block = _BLOCKS[scales.dtype.name] if block is None else _size("block", block)
    if scales.shape[:-1] != codes.shape[:-1] or codes.shape[-1] != block * scales.shape[-1]:
        raise ValueError(
            f"scales: got shape {scales.shape} for codes of shape {codes.shape} and block={block}; expected "
            f"(..., K/{block}) with equal leading axes, not padded; K counts elements, one code an entry"
        )
    result = _dequantize(codes, scales, name, block)
    return result if global_scale is None else result * _global_scale(global_scale)


@partial(jax.jit, static_argnums=(2, 3))
def _dequantize(codes: jax.Array, scales: jax.Array, name: str, block: int) -> jax.Array:
    element, kind = _encoding(name), _encoding(scales.dtype.name)
    bits = _bits(codes)
    size = bits & element.magnitude
    scale_code = jnp.repeat(_bits(scales) & kind.magnitude, block, axis=-1)
    significand, exponent = _unpack(size, element)
    factor, factor_exponent = _unpack(scale_code, kind)
    target = _encoding("float32")
    infinity = target.largest + 1
    value = _pack(significand * factor, exponent + factor_exponent, target, infinity)
    infinite = (size == element.largest + 1) & element.infinite
    value = jnp.where(infinite & (factor != 0), infinity, value)
    nan = (size > element.largest) & ~(infinite & (factor != 0)) | (scale_code > kind.largest)
    value = jnp.where(nan, infinity | infinity >> 1, value)
    value |= jnp.where((bits & element.sign != 0) & ~nan, target.sign, np.uint32(0))
    return lax.bitcast_convert_type(value, jnp.float32)


# Scales into place


def scale_operand(scales: Any, *, rows: int, vec: int) -> jax.Array:
    """Logical scales (..., R, C) as the canonical operand (..., R/rows, C/vec, rows, vec) of `mma`.

    Rows are rows of A for SFA and columns of D (rows of a stored (N, K) B) for SFB; the shape returned is
    the one that `scale_factor_layout` takes. Leading axes are the operand's prefix.

    Args:
      scales: (..., R, C), C = K/block; float8_e8m0fnu, float8_e4m3fn or uint8.
      rows: rows of one instruction: M/g for SFA, N for SFB.
      vec: scales per row and instruction: K of the instruction / block.

    Raises:
      ValueError: another dtype or rank, R no multiple of `rows`, C no multiple of `vec`. TypeError: no array.
    """
    scales = _scale_array("scales", scales, 2, "(..., R, C)")
    rows, vec = _size("rows", rows), _size("vec", vec)
    *prefix, all_rows, columns = scales.shape
    for axis, extent, name, step in (("R", all_rows, "rows", rows), ("C", columns, "vec", vec)):
        if extent % step:
            raise ValueError(
                f"scales: got shape {scales.shape} and {name}={step}; expected (..., R, C) with {axis} a "
                f"multiple of {name}"
            )
    split = scales.reshape(*prefix, all_rows // rows, rows, columns // vec, vec)
    return jnp.swapaxes(split, -3, -2)


def scale_matrix(operand: Any) -> jax.Array:
    """The inverse of `scale_operand`: (..., repeat, k_repeat, rows, vec) as (..., repeat*rows, k_repeat*vec)."""
    operand = _scale_array("operand", operand, 4, "(..., repeat, k_repeat, rows, vec)")
    *prefix, repeat, k_repeat, rows, vec = operand.shape
    return jnp.swapaxes(operand, -3, -2).reshape(*prefix, repeat * rows, k_repeat * vec)


def pack_scale_blocks(scales: Any) -> jax.Array:
    """Logical scales (..., R, C) in blocks of 128 rows by 4 columns, as (..., ceil(R/128), ceil(C/4), 512).

    Row r, column c of a block is byte ``16*(r % 32) + 4*(r // 32) + c``: what `tcgen05.cp.32x128b.warpx4` copies
    to TMEM (ptx_contract 8.3), and, flattened, the order in which cuBLAS takes scales. Every element
    of the leading axes is padded on its own, with code 0 (2**-127 in e8m0, 0 in e4m3; not NaN).

    Args:
      scales: (..., R, C); float8_e8m0fnu, float8_e4m3fn or uint8.

    Raises:
      ValueError: another dtype or rank. TypeError: no array.
    """
    scales = _scale_array("scales", scales, 2, "(..., R, C)")
    *prefix, rows, columns = scales.shape
    down, across = -(-rows // _BLOCK_ROWS), -(-columns // _BLOCK_COLUMNS)
    codes = lax.bitcast_convert_type(scales, jnp.uint8)
    padding = [(0, 0)] * len(prefix)
    padding += [(0, down * _BLOCK_ROWS - rows), (0, across * _BLOCK_COLUMNS - columns)]
    split = jnp.pad(codes, padding).reshape(
        *prefix, down, _BLOCK_ROWS // _LANES, _LANES, across, _BLOCK_COLUMNS
    )
    moved = _permute_last(split, (0, 3, 2, 1, 4))
    packed = moved.reshape(*prefix, down, across, _BLOCK_ROWS * _BLOCK_COLUMNS)
    return lax.bitcast_convert_type(packed, scales.dtype)


def unpack_scale_blocks(blocks: Any, *, rows: int, columns: int) -> jax.Array:
    """The inverse of `pack_scale_blocks`: (..., ceil(rows/128), ceil(columns/4), 512) as (..., rows, columns).

    What stands in the padding does not matter. `rows` and `columns` are needed because the blocks do not tell
    them. ValueError where the blocks are not those of (rows, columns); TypeError: no array.
    """
    blocks = _scale_array("blocks", blocks, 3, "(..., ceil(rows/128), ceil(columns/4), 512)")
    rows, columns = _size("rows", rows, least=0), _size("columns", columns, least=0)
    *prefix, down, across, size = blocks.shape
    expected = (-(-rows // _BLOCK_ROWS), -(-columns // _BLOCK_COLUMNS), _BLOCK_ROWS * _BLOCK_COLUMNS)
    if (down, across, size) != expected:
        raise ValueError(
            f"blocks: got shape {blocks.shape} with rows={rows}, columns={columns}; expected (..., "
            f"{', '.join(map(str, expected))})"
        )
    split = blocks.reshape(*prefix, down, across, _LANES, _BLOCK_ROWS // _LANES, _BLOCK_COLUMNS)
    moved = _permute_last(split, (0, 3, 2, 1, 4))
    return moved.reshape(*prefix, down * _BLOCK_ROWS, across * _BLOCK_COLUMNS)[..., :rows, :columns]


def _permute_last(array: jax.Array, order: tuple[int, ...]) -> jax.Array:
    first = array.ndim - len(order)
    return jnp.transpose(array, (*range(first), *(first + axis for axis in order)))


# Exact numbers: a magnitude is significand * 2**exponent, uint32 and int32; a code's magnitude is the code
# without its sign, so that codes are ordered as the numbers are, infinity and NaN last.


@dataclass(frozen=True)
class _Encoding:
    """A binary format. min_exponent: of its smallest normal number. largest: code of its largest finite one.

    sign: the sign bit, or the bit above the code if there is none. infinite: largest + 1 is infinity, not NaN.
    """

    bits: int
    mantissa: int
    min_exponent: int
    signed: bool
    largest: int
    infinite: bool

    @property
    def sign(self) -> np.uint32:
        return np.uint32(1 << (self.bits - self.signed))

    @property
    def magnitude(self) -> np.uint32:
        """The mask of a magnitude."""
        return np.uint32(self.sign - 1)


@lru_cache
def _encoding(name: str) -> _Encoding:
    info = ml_dtypes.finfo(name)
    word = "uint8" if info.bits < 8 else f"uint{info.bits}"
    largest = int(np.asarray(info.max, dtype=name).view(word))
    signed = bool(info.min < 0)
    with np.errstate(all="ignore"):
        infinite = bool(np.isinf(np.asarray(largest + 1, dtype=word).view(name)))
    return _Encoding(info.bits, int(info.nmant), int(info.minexp), signed, largest, infinite)


def _bits(array: jax.Array) -> jax.Array:
    """The codes of an array as uint32."""
    width = jnp.iinfo(array.dtype).bits if jnp.issubdtype(array.dtype, jnp.integer) else None
    width = width or ml_dtypes.finfo(array.dtype).bits
    return lax.bitcast_convert_type(array, jnp.dtype(f"uint{width}")).astype(jnp.uint32)


def _unpack(size: jax.Array, encoding: _Encoding) -> tuple[jax.Array, jax.Array]:
    """Code magnitudes as (significand, exponent); infinities and NaN give some finite number."""
    field = size >> encoding.mantissa
    exponent = field.astype(jnp.int32) + encoding.min_exponent
    if not encoding.signed:  # e8m0: no zero, no subnormal numbers
        return jnp.ones_like(size), exponent
    fraction = size & ((1 << encoding.mantissa) - 1)
    significand = jnp.where(field > 0, fraction | 1 << encoding.mantissa, fraction)
    return significand, jnp.maximum(exponent - 1, encoding.min_exponent) - encoding.mantissa


def _floor_log2(significand: jax.Array, exponent: jax.Array) -> jax.Array:
    return exponent + 31 - lax.clz(significand).astype(jnp.int32)


def _floor_log2_of_max(encoding: _Encoding) -> int:
    return (encoding.largest >> encoding.mantissa) - 1 + encoding.min_exponent


def _pack(
    significand: jax.Array, exponent: jax.Array, encoding: _Encoding, above: int | None = None
) -> jax.Array:
    """The code magnitude nearest to significand * 2**exponent, ties to even; `above` (default: the largest
    finite) where that is larger than the largest finite code. The significand has at most 30 bits from its
    first to its last one."""
    lowest = encoding.min_exponent
    zeros = lax.clz(significand)
    top = exponent + 31 - zeros.astype(jnp.int32)  # floor(log2)
    shifted = significand << jnp.minimum(zeros, 31) >> 2  # in [2**29, 2**30)
    drop = 29 - encoding.mantissa + jnp.maximum(lowest - top, 0)
    drop = jnp.minimum(drop, 31).astype(jnp.uint32)
    half = jnp.uint32(1) << (drop - 1)
    rounded = (shifted + (half - 1) + ((shifted >> drop) & 1)) >> drop
    # A carry out of the significand steps to the next exponent by itself. The bound keeps the code in 32 bits.
    binade = jnp.clip(top - lowest, 0, (encoding.largest >> encoding.mantissa) + 1).astype(jnp.uint32)
    code = rounded + (binade << encoding.mantissa)
    code = jnp.where(code > encoding.largest, encoding.largest if above is None else above, code)
    return jnp.where(significand == 0, 0, code).astype(jnp.uint32)


def _divide(
    significand: jax.Array, exponent: jax.Array, divisor: jax.Array, divisor_exponent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A quotient of at least 7 bits, and below them one bit that is set if it is not exact.

    That is enough to round to up to 5 bits as if the quotient were exact. Both significands are below 2**31;
    a divisor of 0 gives some number.
    """
    zeros, divisor_zeros = (jnp.minimum(lax.clz(v), 31) for v in (significand, divisor))
    rest, divisor = significand << zeros >> 1, divisor << divisor_zeros >> 1  # both in [2**30, 2**31)
    quotient = jnp.zeros_like(rest)
    for _ in range(8):
        fits = rest >= divisor
        quotient = quotient << 1 | fits.astype(jnp.uint32)
        rest = jnp.where(fits, rest - divisor, rest) << 1
    shift = divisor_zeros.astype(jnp.int32) - zeros.astype(jnp.int32)
    return quotient << 1 | (rest != 0).astype(jnp.uint32), exponent - divisor_exponent + shift - 8


# What the two quantisers share


def _blocks(x: Any, block: Any) -> jax.Array:
    """x as (..., K/block, block)."""
    x = _array("x", x, _INPUTS)
    block = _size("block", block)
    if x.shape[-1] % block:
        raise ValueError(f"x: got shape {x.shape}; expected (..., K) with K a multiple of block={block}")
    return x.reshape(*x.shape[:-1], x.shape[-1] // block, block)


def _finish(
    x: jax.Array, size: jax.Array, code: jax.Array, bad: jax.Array, name: str, scale: _Encoding
) -> tuple[jax.Array, jax.Array]:
    """(codes, scales) in their dtypes, with the signs of x. `bad` blocks get the scale NaN, which in e8m0 and in
    e4m3 follows the largest number."""
    element = _encoding(name)
    negative = _bits(x) & _encoding(x.dtype.name).sign != 0
    codes = jnp.where(bad[..., None], 0, size | jnp.where(negative, element.sign, np.uint32(0)))
    codes = codes.reshape(*codes.shape[:-2], codes.shape[-2] * codes.shape[-1])
    codes = codes.astype(f"uint{8 if element.bits == 6 else element.bits}")
    if element.bits != 6:
        codes = lax.bitcast_convert_type(codes, jnp.dtype(name))
    scales = jnp.where(bad, scale.largest + 1, code).astype(jnp.uint8)
    return codes, lax.bitcast_convert_type(scales, jnp.dtype(_UE4M3 if scale.signed else _UE8M0))


# Arguments


def _array(argument: str, given: Any, dtypes: tuple[str, ...], why: str = "") -> jax.Array:
    """`given` as a JAX array; its dtype, looked at before JAX narrows it, must be one of `dtypes`."""
    if not hasattr(given, "dtype") or not hasattr(given, "shape"):
        raise TypeError(f"{argument}: got {type(given).__name__}; expected an array of {', '.join(dtypes)}")
    if str(given.dtype) not in dtypes:
        raise refusal(f"{argument}: dtype", str(given.dtype), dtypes, why)
    if not given.shape:
        raise ValueError(f"{argument}: got a scalar; expected at least one axis")
    return jnp.asarray(given)


def _scale_array(argument: str, given: Any, rank: int, form: str) -> jax.Array:
    array = _array(argument, given, (*_SCALES, "uint8"))
    if array.ndim < rank:
        raise ValueError(f"{argument}: got shape {array.shape}; expected {form}")
    return array


def _size(argument: str, given: Any, least: int = 1) -> int:
    try:
        size = None if isinstance(given, bool) else operator.index(given)
    except TypeError:  # traced values too
        size = None
    if size is None or size < least:
        raise refusal(argument, given, f"an int of at least {least}", "it must be static")
    return size


def _element_format(codes: jax.Array, given: Any) -> str:
    """The format of codes: named, or that of their dtype."""
    dtype = codes.dtype.name
    if given is None:
        if dtype in _ELEMENTS:
            return dtype
        raise refusal(
            "format", None, [f for f in _ELEMENTS if dtype in FORMATS[f].arrays], f"codes are {dtype}"
        )
    name = format_name("format", given, _ELEMENTS)
    if dtype not in FORMATS[name].arrays:
        raise refusal("codes: dtype", dtype, FORMATS[name].arrays, f"format is {name}")
    return name


def _global_scale(given: Any) -> jax.Array:
    """A float32 scalar; a Python or NumPy number must be positive and finite in float32."""
    if isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool):
        try:
            with np.errstate(over="ignore"):
                value = np.float32(given)
        except OverflowError:  # a huge int
            value = np.float32(np.inf)
        if not 0 < value < np.inf:
            raise refusal("global_scale", given, "a positive, finite float32")
        return jnp.asarray(value)
    if getattr(given, "shape", None) != () or str(getattr(given, "dtype", None)) != "float32":
        what = f"{given.dtype}{list(given.shape)}" if hasattr(given, "shape") else repr(given)
        raise refusal(
            "global_scale", what, "a number, or a float32 array of shape ()", "map over others with vmap"
        )
    return jnp.asarray(given)
