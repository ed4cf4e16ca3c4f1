"""The descriptors of tcgen05.mma as bit fields: one table per descriptor drives encoding and decoding.

Sources: PTX ISA 9.7.16.4 and 9.7.16.5, CUTLASS (contract sections 4, 5 and 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from .isa import (
    D_CODES,
    FORMATS,
    KINDS,
    SCALE_CODES,
    Opcode,
    datapath,
    dtype_name,
    k_values,
    n_values,
    refusal,
)

_D = TypeVar("_D", bound="_Descriptor")
Table = Mapping[Any, int] | range  # value -> code; in a range the code is the value's index


class Field(NamedTuple):
    """A bit field, or `repeat` neighbouring ones. `values` may depend on the fields that stand before it."""

    name: str
    low: int
    width: int
    values: Table | Callable[[Mapping[str, Any]], Table]
    rule: str = ""
    repeat: int = 0

    def table(self, context: Mapping[str, Any]) -> Table:
        return self.values(context) if callable(self.values) else self.values

    @property
    def mask(self) -> int:
        return ((1 << self.width * max(self.repeat, 1)) - 1) << self.low

    def encode(self, owner: str, value: Any, context: Mapping[str, Any]) -> tuple[Any, int]:
        """The value in plain Python types, and its bits in place; ValueError if it is not allowed."""
        name, table = f"{owner}: {self.name}", self.table(context)
        if not self.repeat:
            value, code = _encode(name, value, table, self.rule)
            return value, code << self.low
        try:
            items = tuple(value)
        except TypeError:
            items = ()
        if len(items) != self.repeat:
            raise refusal(name, value, f"{self.repeat} values")
        pairs = [_encode(f"{name}[{i}]", v, table, self.rule) for i, v in enumerate(items)]
        bits = sum(code << self.low + i * self.width for i, (_, code) in enumerate(pairs))
        return tuple(v for v, _ in pairs), bits

    def decode(self, owner: str, word: int, context: Mapping[str, Any]) -> Any:
        name, table = f"{owner}: {self.name}", self.table(context)
        codes = {code: value for value, code in table.items()} if isinstance(table, Mapping) else table
        found = []
        for i in range(max(self.repeat, 1)):
            code = word >> (self.low + i * self.width) & ((1 << self.width) - 1)
            if code not in (codes if isinstance(codes, Mapping) else range(len(codes))):
                bits = f"bits {self.low}-{self.low + self.width - 1}"
                allowed = [f"{c} ({v})" for c, v in codes.items()] if isinstance(codes, Mapping) else codes
                raise refusal(f"{name} ({bits})", code, allowed, self.rule)
            found.append(codes[code])
        return tuple(found) if self.repeat else found[0]


def _encode(name: str, value: Any, table: Table, rule: str) -> tuple[Any, int]:
    value = value.item() if isinstance(value, np.integer | np.bool_) else value
    kind = type(next(iter(table)))
    if kind is str and not isinstance(value, str):
        try:
            value = dtype_name(value)
        except TypeError:
            raise refusal(name, value, table, rule) from None
    # The types must agree too: True is no 1, and 16.0 is no 16.
    if type(value) is not kind or value not in table:
        raise refusal(name, value, table, rule)
    return value, table[value] if isinstance(table, Mapping) else table.index(value)


class _Descriptor:
    """Encodes by `int(x)`, decodes by `decode(word)`; `str(x)` shows the word and its fields that are set."""

    BITS: ClassVar[int]
    FIELDS: ClassVar[tuple[Field, ...]]
    FIXED: ClassVar[tuple[int, int]] = (0, 0)  # bits always written, and bits never looked at

    def __post_init__(self) -> None:
        self._word()

    def _word(self) -> int:
        context = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        word = self.FIXED[0]
        for field in self.FIELDS:
            value, bits = field.encode(type(self).__name__, context[field.name], context)
            context[field.name] = value
            object.__setattr__(self, field.name, value)
            word |= bits
        return word

    def __int__(self) -> int:
        return self._word()

    __index__ = __int__  # for hex(x), numpy.uint64(x)

    @classmethod
    def _decode(cls, word: Any, **context: Any) -> Self:
        if isinstance(word, bool) or not isinstance(word, int | np.integer):
            raise TypeError(f"{cls.__name__}: got {word!r}; expected an int of {cls.BITS} bits")
        word = int(word)
        if not 0 <= word < 1 << cls.BITS:
            raise refusal(cls.__name__, word, f"an int of {cls.BITS} bits")
        for field in cls.FIELDS:
            context[field.name] = field.decode(cls.__name__, word, context)
        reserved = word & ~(sum(f.mask for f in cls.FIELDS) | cls._unread(word))
        if reserved:
            raise refusal(f"{cls.__name__}: reserved bits", f"{reserved:#x}", "0")
        return cls(**context)

    @classmethod
    def _unread(cls, word: int) -> int:
        """Bits of no field that decoding does not look at."""
        return cls.FIXED[1]

    def __str__(self) -> str:
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is True:
                shown.append(field.name)
            elif value is not False and (value or self.BITS == 64):
                shown.append(f"{field.name}={self._show(field.name, value)}")
        return f"{type(self).__name__} {int(self):#0{self.BITS // 4 + 2}x}: {', '.join(shown) or 'all zero'}"

    def _show(self, name: str, value: Any) -> str:
        return str(value)


_FLAG = {False: 0, True: 1}
_SWIZZLES = {0: "none", 1: "32B", 2: "64B", 3: "128B", 4: "128B, 32B atoms"}
_BYTES = range(0, 1 << 18, 16)
_BYTES_RULE = "bytes, a multiple of 16 below 2^18"


@dataclass(frozen=True)
class SharedDescriptor(_Descriptor):
    """The 64-bit shared-memory descriptor (contract section 5).

    start: byte address of the operand. ldo, sdo: leading and stride byte offsets (LBO and SBO). All three
    are multiples of 16 below 2^18 (OQ17: 14 bits). swizzle: 0 none, 1, 2, 3 for 32, 64, 128 bytes, 4 for 128
    bytes with 32-byte atoms. base_offset: 0 with a swizzle; without one 0..7, and no effect (OQ8).
    ldo_absolute: `ldo` is an address (K=96 on sm_103a).
    """

    start: int
    ldo: int
    sdo: int
    swizzle: int
    base_offset: int = 0
    ldo_absolute: bool = False

    BITS = 64
    FIELDS = (
        Field("start", 0, 14, _BYTES, _BYTES_RULE),
        Field("ldo", 16, 14, _BYTES, _BYTES_RULE),
        Field("sdo", 32, 14, _BYTES, _BYTES_RULE),
        Field("swizzle", 61, 3, {0: 0, 1: 6, 2: 4, 3: 2, 4: 1}, "swizzle mode"),
        Field(
            "base_offset",
            49,
            3,
            lambda x: range(8) if x["swizzle"] == 0 else range(1),
            "OQ8: 0 with a swizzle, without one it has no effect",
        ),
        Field("ldo_absolute", 52, 1, _FLAG),
    )
    # Bits 46-48 are 1 by the text; kernels that write 0 work, so decoding looks at none of them.
    FIXED = (1 << 46, 7 << 46)

    @classmethod
    def decode(cls, word: int) -> SharedDescriptor:
        """Reads a 64-bit word; ValueError names the field without a legal code, or the reserved bits."""
        return cls._decode(word)

    def _show(self, name: str, value: Any) -> str:
        return f"{value} ({_SWIZZLES[value]})" if name == "swizzle" else str(value)


def _formats(context: Mapping[str, Any]) -> Table:
    return KINDS[context["kind"]].formats


def _d_formats(x: Mapping[str, Any]) -> Table:
    table = {d: D_CODES[d] for d in KINDS[x["kind"]].d_formats}
    if x["kind"] == "f16" and (x["a_format"], x["b_format"]) != ("float16", "float16"):
        del table["float16"]
    return table


def _major(operand: str) -> Callable[[Mapping[str, Any]], Table]:
    return lambda x: {"k": 0, "mn": 1} if FORMATS[x[f"{operand}_format"]].mn_major else {"k": 0}


def _only(condition: Callable[[Mapping[str, Any]], bool]) -> Callable[[Mapping[str, Any]], Table]:
    return lambda x: _FLAG if condition(x) else {False: 0}


_N = Field("N", 17, 6, {n: n // 8 for n in range(8, 257, 8)}, "columns")
_OPERANDS = (
    Field("a_format", 7, 3, _formats, "format of A for the kind"),
    Field("b_format", 10, 3, _formats, "format of B for the kind"),
    Field("neg_a", 13, 1, _only(lambda x: x["kind"] != "i8"), "kind i8 cannot negate"),
    Field("neg_b", 14, 1, _only(lambda x: x["kind"] != "i8"), "kind i8 cannot negate"),
    Field("a_major", 15, 1, _major("a"), "FP6 and FP4 are K-major only"),
    Field("b_major", 16, 1, _major("b"), "FP6 and FP4 are K-major only"),
)


@dataclass(frozen=True)
class InstructionDescriptor(_Descriptor):
    """The 32-bit instruction descriptor of kinds f16, tf32, f8f6f4 and i8 (contract 4.1).

    M: rows over the whole CTA group, 32, 64, 128 or 256. N: columns. Formats: as in `isa.KINDS`.
    sparsity_selector: 0..3 with sparse f16 and tf32 (OQ20), else 0.
    max_shift: largest column shift of a later `.ws` reuse of B.
    """

    kind: str
    M: int
    N: int
    a_format: str
    b_format: str
    d_format: str
    a_major: str = "k"
    b_major: str = "k"
    neg_a: bool = False
    neg_b: bool = False
    sat_d: bool = False
    sparse: bool = False
    sparsity_selector: int = 0
    max_shift: int = 0

    BITS = 32
    FIELDS = (
        Field("M", 24, 5, {m: m // 16 for m in (32, 64, 128, 256)}, "rows over the CTA group"),
        _N,
        *_OPERANDS,
        Field("d_format", 4, 2, _d_formats, "D of the kind; float16 D of kind f16 needs float16 A and B"),
        Field("sat_d", 3, 1, _only(lambda x: x["kind"] == "i8"), "only kind i8 saturates"),
        Field("sparse", 2, 1, _FLAG),
        Field(
            "sparsity_selector",
            0,
            2,
            lambda x: range(4) if x["sparse"] and x["kind"] in ("f16", "tf32") else range(1),
            "non-zero with sparse f16 and tf32 only",
        ),
        Field("max_shift", 30, 2, {0: 0, 8: 1, 16: 2, 32: 3}, "columns"),
    )

    def __post_init__(self) -> None:
        _check_kind(self, [k.name for k in KINDS.values() if not k.block_scaled])
        super().__post_init__()

    @classmethod
    def decode(cls, word: int, kind: str | None = None) -> InstructionDescriptor:
        """Reads a 32-bit word. The kind stands in the opcode; None takes the first of `KINDS` that fits."""
        return _decode_kind(cls, word, kind, block_scaled=False)


@dataclass(frozen=True)
class BlockScaledInstructionDescriptor(_Descriptor):
    """The 32-bit instruction descriptor of kinds mxf8f6f4, mxf4 and mxf4nvf4 (contract 4.2, 4.3).

    M: 128 or 256 over the CTA group. scale_format: of SFA and SFB. sfa_id, sfb_id: first byte of the scale
    word. K: of the instruction; None stands for the kind's usual one.
    """

    kind: str
    M: int
    N: int
    a_format: str
    b_format: str
    scale_format: str
    a_major: str = "k"
    b_major: str = "k"
    neg_a: bool = False
    neg_b: bool = False
    sparse: bool = False
    sfa_id: int = 0
    sfb_id: int = 0
    K: int | None = None

    BITS = 32
    FIELDS = (
        # M/128 in bits 27-28 is M/16 in bits 24-28, which CUTLASS writes.
        Field("M", 24, 5, {128: 8, 256: 16}, "rows over the CTA group"),
        _N,
        *_OPERANDS,
        Field("scale_format", 23, 1, lambda x: _scale_codes(x["kind"]), "scales of the kind"),
        Field("sparse", 2, 1, _FLAG),
        Field("sfa_id", 29, 2, range(4), "byte of the scale word"),
        Field("sfb_id", 4, 2, range(4), "byte of the scale word"),
        Field("K", 31, 1, lambda x: _k_codes(x["kind"], x["sparse"]), "K of the kind"),
    )

    def __post_init__(self) -> None:
        _check_kind(self, [k.name for k in KINDS.values() if k.block_scaled])
        if self.K is None:
            object.__setattr__(self, "K", KINDS[self.kind].k * (2 if self.sparse else 1))
        super().__post_init__()

    @classmethod
    def decode(cls, word: int, kind: str | None = None) -> BlockScaledInstructionDescriptor:
        """Reads a 32-bit word. The kind stands in the opcode; None takes the first of `KINDS` that fits."""
        return _decode_kind(cls, word, kind, block_scaled=True)


def _scale_codes(kind: str) -> Table:
    return {f: SCALE_CODES[f] for formats in KINDS[kind].scale_formats.values() for f in formats}


def _k_codes(kind: str, sparse: bool) -> Table:
    spelling = "block32" if "block32" in KINDS[kind].scales else None
    return {k: i for i, k in enumerate(k_values(Opcode(1, kind, False, sparse, True, spelling)))}


def _check_kind(descriptor: Any, kinds: list[str]) -> None:
    if descriptor.kind not in kinds:
        raise refusal(f"{type(descriptor).__name__}: kind", descriptor.kind, kinds)


def _decode_kind(cls: type[_D], word: int, kind: str | None, block_scaled: bool) -> _D:
    kinds = [k.name for k in KINDS.values() if k.block_scaled == block_scaled]
    if kind is not None:
        if kind not in kinds:
            raise refusal("kind", kind, kinds, cls.__name__)
        return cls._decode(word, kind=kind)
    reasons = []
    for name in kinds:
        try:
            return cls._decode(word, kind=name)
        except ValueError as error:
            reasons.append(f"kind {name}: {error}")
    raise ValueError("; ".join(reasons))


@dataclass(frozen=True)
class ZeroColumnMask(_Descriptor):
    """The 64-bit zero-column mask of `.ws` (contract section 9; OQ10: skip_span counts the zeroed columns).

    In each sub-mask skip_span + 1 columns of B are read as zero, then use_span + 1 are used, and so on.
    first_spans: 1 starts in the zero span, 0 in the used one. start_counts: columns of the first span that
    are already gone, fewer than the span has (OQ15). nonzero: False makes no mask, and ignores those fields.
    column_shift: column n reads column n + shift of B, at most 32 (16 with M=32).
    """

    start_counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    first_spans: tuple[int, int, int, int] = (0, 0, 0, 0)
    skip_span: int = 0
    use_span: int = 0
    nonzero: bool = True
    column_shift: int = 0

    BITS = 64
    FIELDS = (
        Field("start_counts", 0, 8, range(256), "columns", repeat=4),
        Field("first_spans", 32, 1, range(2), "1 starts in the zero span", repeat=4),
        Field("nonzero", 39, 1, _FLAG),
        Field("skip_span", 40, 8, range(256), "zeroed columns - 1"),
        Field("use_span", 48, 8, range(256), "used columns - 1"),
        Field("column_shift", 56, 6, range(33), "columns"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.nonzero:
            return
        for i, (count, zero_first) in enumerate(zip(self.start_counts, self.first_spans, strict=True)):
            span = (self.skip_span if zero_first else self.use_span) + 1
            if count >= span:
                raise refusal(
                    f"ZeroColumnMask: start_counts[{i}]", count, range(span), "OQ15: below its span"
                )

    @classmethod
    def decode(cls, word: int) -> ZeroColumnMask:
        """Reads a 64-bit word; ValueError names the field without a legal code, or the reserved bits.

        Without bit 39 there is no mask: bits 0-55 have no effect, the reserved ones among them included.
        """
        return cls._decode(word)

    @classmethod
    def _unread(cls, word: int) -> int:
        return 0 if word >> 39 & 1 else 0b111 << 36

    def zeroed(self, M: int, N: int) -> np.ndarray:
        """Which columns of B are read as zero: bool, shape (sub-masks, N / sub-masks).

        There are 1, 2 or 4 sub-masks for M = 128, 64, 32: the column groups of datapaths D, E, G.
        """
        fold = datapath(M, 1, ws=True).fold
        allowed, rule = n_values(Opcode(1, "f16", ws=True), M)
        if N not in allowed:
            raise refusal("N", N, allowed, rule)
        if M == 32 and self.column_shift > 16:
            raise refusal("ZeroColumnMask: column_shift", self.column_shift, "0..16", "M=32")
        columns = np.arange(N // fold)
        if not self.nonzero:
            return np.zeros((fold, N // fold), bool)
        skip, period = self.skip_span + 1, self.skip_span + self.use_span + 2
        # A position counts from the start of a zero span.
        first = [c if z else skip + c for c, z in zip(self.start_counts, self.first_spans, strict=True)]
        return np.stack([(columns + p) % period < skip for p in first[:fold]])
