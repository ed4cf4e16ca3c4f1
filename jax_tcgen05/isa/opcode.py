"""Opcodes of tcgen05.mma: the kinds, the grammar, and what ptxas assembles for which target.

Sources: PTX ISA 9.7.16.10 (contract section 1), and the verdicts of ptxas 13.0 and 13.5 (contract section 2).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .formats import refusal

_FP8_FP6_FP4 = {
    "float8_e4m3fn": 0,
    "float8_e5m2": 1,
    "float6_e2m3fn": 3,
    "float6_e3m2fn": 4,
    "float4_e2m1fn": 5,
}
_UE8M0, _UE4M3 = "float8_e8m0fnu", "float8_e4m3fn"


@dataclass(frozen=True)
class Kind:
    """One `.kind`.

    formats: formats of A and B, with their code in bits 7-9 and 10-12 of the instruction descriptor.
    k: K of one dense instruction, which is 32 bytes of a stored row; `.sp` doubles it.
    scales: spellings of the scale vector, with elements per scale; empty: not block scaled.
    scale_formats: allowed scale formats by elements per scale.
    """

    name: str
    formats: Mapping[str, int]
    d_formats: tuple[str, ...]
    k: int
    scales: Mapping[str, int] = field(default_factory=dict)
    default_scale: str | None = None
    scale_formats: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def block_scaled(self) -> bool:
        return bool(self.scales)


KINDS = {
    k.name: k
    for k in (
        Kind("f16", {"float16": 0, "bfloat16": 1}, ("float32", "float16"), 16),
        Kind("tf32", {"tf32": 2}, ("float32",), 8),
        Kind("f8f6f4", _FP8_FP6_FP4, ("float32", "float16"), 32),
        Kind("i8", {"uint8": 0, "int8": 1}, ("int32",), 32),
        Kind(
            "mxf8f6f4",
            _FP8_FP6_FP4,
            ("float32",),
            32,
            {"1X": 32, "block32": 32},
            "block32",
            {32: (_UE8M0,)},
        ),
        Kind(
            "mxf4",
            {"float4_e2m1fn": 1},
            ("float32",),
            64,
            {"2X": 32, "block32": 32},
            "block32",
            {32: (_UE8M0,)},
        ),
        Kind(
            "mxf4nvf4",
            {"float4_e2m1fn": 1},
            ("float32",),
            64,
            {"2X": 32, "4X": 16, "block16": 16, "block32": 32},
            None,
            {32: (_UE8M0,), 16: (_UE4M3, _UE8M0)},  # OQ12: UE8M0 with blocks of 16 is accepted
        ),
    )
}

TARGETS = ("sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_107a", "sm_107f", "sm_110a", "sm_110f")
_I8_TARGETS = ("sm_100a", "sm_110a")
_ARCH_TARGETS = ("sm_100a", "sm_103a", "sm_107a", "sm_110a")
_SCALE_INPUT_D_TARGETS = tuple(t for t in TARGETS if not t.startswith("sm_110"))
K96_TARGETS = ("sm_103a", "sm_107a")  # OQ2: PTX ISA 9.4

_COLLECTOR_OPS = ("fill", "use", "lastuse", "discard")
_MODIFIERS = {
    "ws": re.compile(r"ws"),
    "sp": re.compile(r"sp"),
    "cta_group": re.compile(r"cta_group::(.*)"),
    "kind": re.compile(r"kind::(.*)"),
    "block_scale": re.compile(r"block_scale"),
    "scale_vec": re.compile(r"(?:scale_vec::(.*)|(block\d+))"),
    "ashift": re.compile(r"ashift"),
    "collector": re.compile(r"collector::(.*)"),
}
_SPELLINGS = (
    ".ws, .sp, .cta_group::1, .cta_group::2, .kind::K, .block_scale, .scale_vec::1X, .scale_vec::2X, "
    ".scale_vec::4X, .block16, .block32, .ashift, .collector::a::OP, .collector::bI::OP"
)


@dataclass(frozen=True)
class Opcode:
    """One spelling of tcgen05.mma. `Opcode.parse(text)` reads it, `str()` writes it in PTX's order.

    cta_group: 1 or 2. kind: a key of `KINDS`. scale_vec as written: "1X", "2X", "4X", "block16", "block32" or
    None. collector as written: "a::fill", "b0::use", ... or None (`discard`). ValueError if there is no such
    instruction on any target.
    """

    cta_group: int
    kind: str
    ws: bool = False
    sp: bool = False
    block_scale: bool = False
    scale_vec: str | None = None
    ashift: bool = False
    collector: str | None = None

    def __post_init__(self) -> None:
        _check_spelling(self)

    @classmethod
    def parse(cls, text: str) -> Opcode:
        """Reads `tcgen05.mma{.ws}...`; as in ptxas `.ws` follows `mma` directly, the rest has no order."""
        if not isinstance(text, str):
            raise TypeError(
                f"opcode: got {text!r}; expected a string such as 'tcgen05.mma.cta_group::1.kind::f16'"
            )
        parts = text.split(".")
        if parts[:2] != ["tcgen05", "mma"]:
            raise refusal("opcode", text, "tcgen05.mma followed by its modifiers")
        found: dict[str, Any] = {}
        for position, modifier in enumerate(parts[2:]):
            slot, value = _read_modifier(text, modifier)
            if slot in found:
                raise refusal("opcode", text, f"one .{slot}", f"a second one: .{modifier}")
            if slot == "ws" and position:
                raise refusal("opcode", text, "tcgen05.mma.ws", ".ws stands directly after mma")
            found[slot] = value
        for slot, choices in (("cta_group", ("1", "2")), ("kind", tuple(KINDS))):
            if slot not in found:
                raise refusal("opcode", text, [f".{slot}::{c}" for c in choices], f"no .{slot}")
        if found["cta_group"] not in ("1", "2"):
            raise refusal("opcode", text, ".cta_group::1, .cta_group::2", "cta_group")
        found["cta_group"] = int(found["cta_group"])
        return cls(**found)

    def __str__(self) -> str:
        parts = ["tcgen05.mma", *(m for m, on in (("ws", self.ws), ("sp", self.sp)) if on)]
        parts += [f"cta_group::{self.cta_group}", f"kind::{self.kind}"]
        if self.block_scale:
            parts.append("block_scale")
        if self.scale_vec:
            parts.append(
                self.scale_vec if self.scale_vec.startswith("block") else f"scale_vec::{self.scale_vec}"
            )
        if self.ashift:
            parts.append("ashift")
        if self.collector:
            parts.append(f"collector::{self.collector}")
        return ".".join(parts)

    @property
    def scale_spelling(self) -> str | None:
        """`scale_vec`, or the kind's default where it is left out."""
        return self.scale_vec or KINDS[self.kind].default_scale

    @property
    def scale_block(self) -> int | None:
        """Stored elements of a row that share one scale, or None; with `.sp` twice as many logical ones."""
        spelling = self.scale_spelling
        return KINDS[self.kind].scales[spelling] if spelling else None

    def scales_per_step(self, k: int) -> int:
        """Scales per row and K step (1, 2 or 4; 3 or 6 with K=96; 0 without block scale)."""
        block = self.scale_block
        return k // (block * (2 if self.sp else 1)) if block else 0

    def scale_ids(self, k: int) -> tuple[int, ...]:
        """Allowed scale-factor ids: the first byte of the word that this K step reads (contract 4.3, 4.5)."""
        return {0: (), 1: (0, 1, 2, 3), 2: (0, 2), 4: (0,), 3: (0, 1, 2, 3), 6: (0, 2)}[
            self.scales_per_step(k)
        ]


def _read_modifier(text: str, modifier: str) -> tuple[str, Any]:
    for slot, pattern in _MODIFIERS.items():
        match = pattern.fullmatch(modifier)
        if match:
            return slot, next((g for g in match.groups() if g is not None), True)
    raise refusal("opcode", text, _SPELLINGS, f"unknown modifier .{modifier}")


def _check_spelling(op: Opcode) -> None:
    """What no target can assemble, whatever the operands (contract 1.1 to 1.3)."""
    if op.kind not in KINDS:
        note = "kind ti16 exists on sm_107 only and is not covered" if op.kind == "ti16" else "kind"
        raise refusal("opcode", f".kind::{op.kind}", [f".kind::{k}" for k in KINDS], note)
    kind = KINDS[op.kind]
    try:
        group = 0 if isinstance(op.cta_group, bool) else operator.index(op.cta_group)
    except TypeError:
        group = 0
    if group not in (1, 2):
        raise refusal("opcode", f".cta_group::{op.cta_group}", ".cta_group::1, .cta_group::2", "cta_group")
    if op.ws and group != 1:
        raise refusal("opcode", f".ws with .cta_group::{group}", ".cta_group::1", "weight stationary")
    if op.ws and kind.block_scaled:
        raise refusal(
            "opcode", f".ws with .kind::{op.kind}", "kinds f16, tf32, f8f6f4, i8", "no block scale with .ws"
        )
    _check_scale_spelling(op, kind)
    if op.ashift and (op.ws or kind.block_scaled):
        raise refusal("opcode", ".ashift", "dense opcodes without .ws and .block_scale", "PTX ISA 9.7.16.10")
    _check_collector(op)


def _check_scale_spelling(op: Opcode, kind: Kind) -> None:
    if op.block_scale != kind.block_scaled:
        blocks = ", ".join(k.name for k in KINDS.values() if k.block_scaled)
        if op.block_scale:
            raise refusal("opcode", f".block_scale with .kind::{op.kind}", f"kinds {blocks}", "block scale")
        raise refusal(
            "opcode", f".kind::{op.kind} without .block_scale", ".block_scale", "compulsory for this kind"
        )
    if op.scale_vec is None:
        if kind.block_scaled and kind.default_scale is None:
            raise refusal(
                "opcode", f".kind::{op.kind}", _scale_texts(kind), "the scale vector must be written"
            )
    elif op.scale_vec not in kind.scales:
        given = op.scale_vec if op.scale_vec.startswith("block") else f"scale_vec::{op.scale_vec}"
        raise refusal("opcode", f".{given}", _scale_texts(kind), f"scale vector of .kind::{op.kind}")


def _scale_texts(kind: Kind) -> list[str]:
    return [f".{s}" if s.startswith("block") else f".scale_vec::{s}" for s in kind.scales]


def _check_collector(op: Opcode) -> None:
    if op.collector is None:
        return
    buffers = ("b0", "b1", "b2", "b3") if op.ws else ("a",)
    if op.collector not in {f"{b}::{o}" for b in buffers for o in _COLLECTOR_OPS}:
        allowed = f".collector::{'bI' if op.ws else 'a'}::OP with OP in {', '.join(_COLLECTOR_OPS)}"
        where = " and I in 0..3" if op.ws else ""
        note = (
            "collector with .ws"
            if op.ws
            else "collector without .ws; collector::b there is sm_107 only, not covered"
        )
        raise refusal("opcode", f".collector::{op.collector}", allowed + where, note)
    if op.ashift and op.collector in ("a::fill", "a::use"):
        raise refusal(
            "opcode", f".ashift with .collector::{op.collector}", "lastuse, discard", "with .ashift"
        )


def targets_of(opcode: Opcode, k: int | None = None, scale_input_d: bool = False) -> tuple[str, ...]:
    """The targets that have the instruction (contract 2.1); `k`: K of the instruction, if it matters."""
    return tuple(
        t for t in TARGETS if not any(t not in only for only, _ in _limits(opcode, k, scale_input_d))
    )


def check_target(opcode: Opcode, target: str, k: int | None = None, scale_input_d: bool = False) -> None:
    """ValueError unless `target` (such as "sm_100a") has the instruction."""
    if target not in TARGETS:
        raise refusal("target", target, TARGETS, "only these have tcgen05")
    for only, what in _limits(opcode, k, scale_input_d):
        if target not in only:
            raise refusal("target", target, only, f"{what}; opcode {opcode}")


def _limits(op: Opcode, k: int | None, scale_input_d: bool) -> list[tuple[tuple[str, ...], str]]:
    found: list[tuple[tuple[str, ...], str]] = []
    if op.kind == "i8":
        found.append((_I8_TARGETS, "kind i8 exists there only"))
    if op.scale_vec and not op.scale_vec.startswith("block"):
        found.append(
            (_ARCH_TARGETS, ".scale_vec::NX exists there only; .block16/.block32 is its family spelling")
        )
    if op.sp and op.kind in ("mxf4", "mxf4nvf4"):
        found.append((_ARCH_TARGETS, "sparse FP4 block scale exists there only"))
    if scale_input_d:
        found.append((_SCALE_INPUT_D_TARGETS, "scale-input-d exists there only"))
    if k == 96:
        found.append((K96_TARGETS, "K=96 exists there only, PTX ISA 9.4, OQ2"))
    return found


def check_operands(
    opcode: Opcode,
    storage: Mapping[str, str],
    *,
    lane_mask_words: int = 0,
    zero_column_mask: bool = False,
    scale_input_d: int | None = None,
    target: str = "sm_100a",
) -> None:
    """ValueError unless ptxas would assemble the opcode with operands of these forms.

    storage: "shared" or "tmem" of each operand given: d, a, b, metadata (`.sp`), sfa, sfb (block scale).
    lane_mask_words: length of disable_output_lane, 0 without. scale_input_d: its immediate, None without.
    """
    allowed = {"d": ("tmem",), "a": ("shared", "tmem"), "b": ("shared",)}
    if opcode.sp:
        allowed["metadata"] = ("tmem",)
    if opcode.block_scale:
        allowed |= {"sfa": ("tmem",), "sfb": ("tmem",)}
    for name in allowed.keys() | storage.keys():
        if storage.get(name) not in allowed.get(name, (None,)):
            places = allowed.get(name, ("no such operand",))
            raise refusal(name, storage.get(name, "nothing"), places, f"storage of an operand of {opcode}")
    if opcode.ashift and storage["a"] != "tmem":
        raise refusal("a", storage["a"], "tmem", ".ashift shifts A in TMEM")
    _check_masks(opcode, lane_mask_words, zero_column_mask)
    if scale_input_d is not None:
        _check_scale_input_d(opcode, scale_input_d)
    check_target(opcode, target, scale_input_d=scale_input_d is not None)


def _check_masks(opcode: Opcode, lane_mask_words: int, zero_column_mask: bool) -> None:
    plain = not (opcode.ws or opcode.block_scale)
    if lane_mask_words and not plain:
        why = ".ws takes a zero_column_mask instead" if opcode.ws else "no lane mask with block scale"
        raise refusal("disable_output_lane", f"{lane_mask_words} words", "no mask", why)
    if lane_mask_words and lane_mask_words != 4 * opcode.cta_group:
        words = f"{4 * opcode.cta_group} words"
        raise refusal(
            "disable_output_lane", f"{lane_mask_words} words", words, f"cta_group::{opcode.cta_group}"
        )
    if zero_column_mask and not opcode.ws:
        raise refusal("zero_column_mask", "a mask", "no mask", "only .ws opcodes take one")


def _check_scale_input_d(opcode: Opcode, value: int) -> None:
    # OQ11: the text names kinds f16 and tf32; ptxas also assembles it with i8.
    if opcode.kind not in ("f16", "tf32") or opcode.ws:
        raise refusal("scale_input_d", value, "kinds f16 and tf32 without .ws", f"opcode {opcode}; OQ11")
    if value not in range(16):
        raise refusal("scale_input_d", value, range(16), "an immediate")
