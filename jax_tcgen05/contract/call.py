"""Reads one call's arguments: what is static becomes a hashable `Call`, the rest a list of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..descriptors import ZeroColumnMask
from ..isa import Opcode, check_offered, static_int, static_ints, static_shape
from ..layouts import TileLayout
from ..operands import PlacedOperand

Descriptor = tuple[int, int, int]


@dataclass(frozen=True)
class OperandSpec:
    """The static part of a placed operand: its storage, the array's dtype and layout, and the view of it."""

    storage: str
    dtype: str
    placement: TileLayout
    positions: TileLayout

    @cached_property
    def view(self) -> TileLayout:
        """The viewed layout."""
        return self.place(None).layout

    def place(self, leaf: Any) -> PlacedOperand:
        """Another array with the same placement and view."""
        return PlacedOperand(leaf, self.placement, self.positions, self.storage)


@dataclass(frozen=True)
class Call:
    """Everything static about one `mma` call. Equal calls have equal Plans."""

    opcode: Opcode
    instruction_shape: tuple[int, int, int]
    specs: tuple[OperandSpec, ...]
    a_format: str
    b_format: str
    a_descriptor: Descriptor | None
    b_descriptor: Descriptor | None
    a_major: str
    b_major: str
    neg_a: bool
    neg_b: bool
    sat_d: bool
    masked: bool

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the placed operands, in the primitive's order."""
        return ("d", "a", "b", "sfa", "sfb")[: len(self.specs)]

    def spec(self, name: str) -> OperandSpec:
        return self.specs[self.operands.index(name)]

    @property
    def group_axes(self) -> int:
        """Execution-group axes in front of every leaf: 1 with cta_group::2, else 0."""
        return self.opcode.cta_group - 1

    def batch_shape(self, d: Any) -> tuple[int, ...]:
        """The batch axes of D's leaf, which are always full."""
        return tuple(d.shape[self.group_axes : len(d.shape) - len(self.spec("d").placement.shape)])

    def check_arrays(self, arrays: Sequence[Any]) -> None:
        """Ranks, prefixes and dtypes of the leaves and controls against this call; ValueError otherwise."""
        batch = self.batch_shape(arrays[0])
        for name, spec, array in zip(self.operands, self.specs, arrays, strict=False):
            _check_leaf(name, self.opcode.cta_group, spec, array, batch)
        for name, array in zip(("accum", "pred", "mask"), arrays[len(self.specs) :], strict=False):
            _check_control(name, array, batch)


def _check_leaf(name: str, cta_group: int, spec: OperandSpec, array: Any, batch: tuple[int, ...]) -> None:
    own = spec.placement.shape
    prefix = tuple(array.shape[: len(array.shape) - len(own)])
    if cta_group == 2:
        allowed = (1, 2) if name == "sfb" else (2,)
        if not prefix or prefix[0] not in allowed:
            raise ValueError(
                f"{name}: got the shape {tuple(array.shape)} with prefix {prefix}; cta_group::2 wants an "
                f"execution-group axis of size {' or '.join(map(str, allowed))} first (entry 0 is the even CTA)"
            )
        prefix = prefix[1:]
    if len(prefix) != len(batch):
        raise ValueError(
            f"{name}: got {len(prefix)} batch axes {prefix}, d has {len(batch)} {batch}; all operands have prefixes of "
            "equal rank (a batch axis of size 1 broadcasts)"
        )
    for axis, (size, full) in enumerate(zip(prefix, batch, strict=True)):
        if size not in (1, full):
            hint = "; d's batch must be full" if full == 1 else ""
            raise ValueError(
                f"{name}: got batch axes {prefix}, d has {batch}: axis {axis} may be {full}"
                + ("" if full == 1 else " or 1 (broadcast)")
                + hint
            )


def _check_control(name: str, array: Any, batch: tuple[int, ...]) -> None:
    shape = tuple(array.shape[: len(batch)])
    if len(shape) != len(batch) or any(s not in (1, f) for s, f in zip(shape, batch, strict=True)):
        raise ValueError(
            f"{name}: got the shape {tuple(array.shape)}; its batch axes must broadcast to {batch}"
        )


def read_call(
    opcode: str | Opcode,
    d: Any,
    a: Any,
    b: Any,
    sfa: Any = None,
    sfb: Any = None,
    *,
    instruction_shape: Any,
    a_descriptor: Any = None,
    b_descriptor: Any = None,
    a_major: str = "k",
    b_major: str = "k",
    a_format: Any = None,
    b_format: Any = None,
    neg_a: bool = False,
    neg_b: bool = False,
    sat_d: bool = False,
    accum: Any = False,
    pred: Any = None,
    disable_output_lane: Any = None,
    zero_column_mask: Any = None,
) -> tuple[Call, list[Any]]:
    """Arguments of `mma` -> (call, arrays in the primitive's order); TypeError or ValueError names the argument."""
    parsed = _read_opcode(opcode)
    shape = static_shape(instruction_shape)
    check_offered(parsed, shape[2])
    operands = _read_operands(parsed, d, a, b, sfa, sfb)
    specs = tuple(
        OperandSpec(operand.storage, np.dtype(operand.dtype).name, operand.placement, operand.positions)
        for operand in operands
    )
    call = Call(
        opcode=parsed,
        instruction_shape=shape,
        specs=specs,
        a_format=_read_format("a_format", a_format, specs[1].dtype),
        b_format=_read_format("b_format", b_format, specs[2].dtype),
        a_descriptor=_read_descriptor("a", a_descriptor, operands[1]),
        b_descriptor=_read_descriptor("b", b_descriptor, operands[2]),
        a_major=_read_major("a_major", a_major),
        b_major=_read_major("b_major", b_major),
        neg_a=_read_flag("neg_a", neg_a),
        neg_b=_read_flag("neg_b", neg_b),
        sat_d=_read_flag("sat_d", sat_d),
        masked=disable_output_lane is not None or zero_column_mask is not None,
    )
    arrays = [jnp.asarray(operand.leaf) for operand in operands]
    call.check_arrays(arrays)
    batch = call.batch_shape(arrays[0])
    arrays.append(_read_switch("accum", accum, batch))
    arrays.append(_read_switch("pred", True if pred is None else pred, batch))
    mask = _read_masks(call, disable_output_lane, zero_column_mask, batch)
    return call, arrays if mask is None else [*arrays, mask]


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


def _read_opcode(opcode: Any) -> Opcode:
    if not isinstance(opcode, str | Opcode):
        raise TypeError(f"opcode: got {type(opcode).__name__}; expected the PTX opcode as a str")
    return Opcode.parse(opcode) if isinstance(opcode, str) else opcode


def _read_operands(opcode: Opcode, d: Any, a: Any, b: Any, sfa: Any, sfb: Any) -> list[PlacedOperand]:
    if d is None:
        raise TypeError(
            "d: got None; mma needs a placed D: tc.tmem(array, layout) or tc.tmem_empty(shape, dtype, layout)"
        )
    allowed = {"d": ("tmem",), "a": ("shared", "tmem"), "b": ("shared",), "sfa": ("tmem",), "sfb": ("tmem",)}
    given = {"d": d, "a": a, "b": b}
    if opcode.block_scale:
        for name, scale in (("sfa", sfa), ("sfb", sfb)):
            if scale is None:
                raise TypeError(f"{name}: got None; {opcode} is block-scaled and needs both sfa and sfb")
            given[name] = scale
    else:
        for name, scale in (("sfa", sfa), ("sfb", sfb)):
            if scale is not None:
                form = ".ws form" if opcode.ws else "dense form"
                raise TypeError(
                    f"{name}: given, but {opcode} is the {form}, which takes no scale factors; use .block_scale"
                )
    for name, operand in given.items():
        if not isinstance(operand, PlacedOperand):
            raise TypeError(
                f"{name}: got {type(operand).__name__}; expected a placed operand: tc.shared(array, layout) or "
                "tc.tmem(array, layout)"
            )
        if operand.storage not in allowed[name]:
            raise ValueError(
                f"{name}: got an operand in {operand.storage}; allowed: {' or '.join(allowed[name])}"
            )
    return list(given.values())


def _read_format(name: str, value: Any, dtype: str) -> str:
    if value is None:
        return dtype
    if isinstance(value, str):
        return value
    try:
        return np.dtype(value).name
    except TypeError:
        raise TypeError(
            f"{name}: got {value!r}; expected the name of a format, such as 'float16' or 'tf32'"
        ) from None


def _read_descriptor(name: str, value: Any, operand: PlacedOperand) -> Descriptor | None:
    label = f"{name}_descriptor"
    if operand.storage == "tmem":
        if value is not None:
            raise ValueError(
                f"{label}: got {value!r}; {name} is in TMEM, which takes no descriptor: leave it out"
            )
        return None
    if value is None:
        raise TypeError(
            f"{label}: got None; {name} is in shared memory and needs (ldo_bytes, sdo_bytes, swizzle)"
        )
    ldo, sdo, swizzle = static_ints(label, value, ("ldo_bytes", "sdo_bytes", "swizzle"))
    return ldo, sdo, swizzle


def _read_major(name: str, value: Any) -> str:
    if value not in ("k", "mn"):
        raise ValueError(f"{name}: got {value!r}; allowed: 'k', 'mn'")
    return str(value)


def _read_flag(name: str, value: Any) -> bool:
    if _is_traced(value):
        raise TypeError(
            f"{name}: got a traced value; it is a bit of the instruction descriptor and must be static"
        )
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: got {value!r}; expected a bool")
    return bool(value)


def _read_switch(name: str, value: Any, batch: tuple[int, ...]) -> Any:
    """accum, pred: a bool, static or traced, a scalar or shaped like the batch -> array of the batch's rank."""
    if isinstance(value, bool):
        value = np.bool_(value)
    dtype = getattr(value, "dtype", None)
    if dtype != np.bool_:
        given = repr(value) if dtype is None else f"dtype {dtype}"
        raise TypeError(f"{name}: got {given}; expected a bool (scalar or of the batch's shape {batch})")
    shape = tuple(np.shape(value))
    if shape not in ((), batch):
        raise ValueError(f"{name}: got the shape {shape}; allowed: () or the batch's shape {batch}")
    return jnp.reshape(value, shape or (1,) * len(batch))


def _read_masks(call: Call, lanes: Any, columns: Any, batch: tuple[int, ...]) -> Any:
    """disable_output_lane (dense) or zero_column_mask (.ws) -> uint32 array (batch or 1s..., words), or None."""
    if lanes is not None:
        if call.opcode.ws or call.opcode.block_scale:
            form = ".ws" if call.opcode.ws else ".block_scale"
            raise ValueError(
                f"disable_output_lane: given, but {form} has no lane mask; it belongs to the dense form"
            )
        words = 4 * call.opcode.cta_group
        rule = f"{words} 32-bit words with cta_group::{call.opcode.cta_group}"
        return _mask_words("disable_output_lane", lanes, words, rule, batch)
    if columns is None:
        return None
    if not call.opcode.ws:
        raise ValueError(
            "zero_column_mask: given, but only the .ws form has one; the dense form takes disable_output_lane"
        )
    if isinstance(columns, ZeroColumnMask) or (
        hasattr(columns, "__index__") and np.ndim(columns) == 0 and not _is_traced(columns)
    ):
        value = (
            int(columns) if isinstance(columns, ZeroColumnMask) else static_int("zero_column_mask", columns)
        )
        check_zero_column_mask(value)
        columns = [value & 0xFFFFFFFF, value >> 32]
    return _mask_words("zero_column_mask", columns, 2, "2 words, low word first, or one 64-bit int", batch)


def check_zero_column_mask(value: int) -> None:
    """A mask that `mma` offers: decodable, and without a column shift (OQ14)."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"zero_column_mask: got {value:#x}; expected 64 bits")
    try:
        decoded = ZeroColumnMask.decode(value)
    except ValueError as error:
        raise ValueError(f"zero_column_mask: got {value:#x}; {error}") from None
    if decoded.column_shift:
        raise ValueError(
            f"zero_column_mask: got column shift {decoded.column_shift}; mma offers only 0 (a shifted B is not offered)"
        )


def _mask_words(name: str, value: Any, words: int, rule: str, batch: tuple[int, ...]) -> Any:
    if isinstance(value, list | tuple):
        if len(value) != words:
            raise ValueError(f"{name}: got {len(value)} words; allowed: {rule}")
        if any(_is_traced(word) for word in value):
            value = jnp.stack([jnp.asarray(word) for word in value])
        else:
            ints = [static_int(f"{name}[{i}]", word) for i, word in enumerate(value)]
            if not all(0 <= word < 1 << 32 for word in ints):
                raise ValueError(f"{name}: got {[hex(word) for word in ints]}; each word has 32 bits")
            value = np.array(ints, dtype=np.uint32)
    dtype = getattr(value, "dtype", None)
    if dtype != np.uint32:
        given = repr(value) if dtype is None else f"dtype {dtype}"
        raise TypeError(f"{name}: got {given}; expected ints or a uint32 array: {rule}")
    shape = tuple(np.shape(value))
    if not shape or shape[-1] != words:
        raise ValueError(
            f"{name}: got the shape {shape}; allowed: {rule}, with batch axes in front if wanted"
        )
    if shape[:-1] not in ((), batch):
        raise ValueError(f"{name}: got batch axes {shape[:-1]}; allowed: () or the batch's shape {batch}")
    return jnp.reshape(value, (*(shape[:-1] or (1,) * len(batch)), words))
