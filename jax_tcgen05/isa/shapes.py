"""Shapes, formats, majors and D datapaths: everything that decides whether an instruction is legal.

Sources: PTX ISA 9.4 tables of shapes and formats, CUTLASS for A in TMEM (contract sections 3, 4.4, 7).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .formats import FORMATS, NotStatic, dtype_name, format_name, refusal
from .opcode import KINDS, Opcode, check_target, targets_of

ROW_BYTES = 32  # bytes of a stored row that one instruction reads (48 with K=96)
A_TMEM_COLUMNS = ROW_BYTES // 4  # columns of A in TMEM per K step


class Datapath(NamedTuple):
    """Where D lies in TMEM (contract 7.1).

    rows: rows of D in one CTA. fold: groups of N/fold columns that lie side by side in the lanes.
    bank_axis: whether A in TMEM has an explicit axis of `fold` banks: "no", "optional", or "required".
    base_lanes: allowed first lanes of D.
    """

    letter: str
    rows: int
    fold: int
    bank_axis: str
    base_lanes: tuple[int, ...]


# (M, cta_group, ws) -> datapath; sparse pairs with M=128 use C instead of B.
_DATAPATHS = {
    (256, 2, False): Datapath("A", 128, 1, "no", (0,)),
    (128, 2, False): Datapath("B", 64, 2, "optional", (0,)),
    (128, 1, False): Datapath("D", 128, 1, "no", (0,)),
    (128, 1, True): Datapath("D", 128, 1, "no", (0,)),
    (64, 1, True): Datapath("E", 64, 2, "required", (0,)),
    (64, 1, False): Datapath("F", 64, 1, "no", (0, 16)),
    (32, 1, True): Datapath("G", 32, 4, "required", (0,)),
}
_DATAPATH_C = Datapath("C", 64, 1, "no", (0, 16))


def datapath(M: int, cta_group: int, ws: bool = False, sp: bool = False) -> Datapath:
    """The datapath of D for an M that is the total of the CTA group; ValueError if there is none."""
    if sp and (M, cta_group, bool(ws)) == (128, 2, False):
        return _DATAPATH_C
    found = _DATAPATHS.get((M, cta_group, bool(ws)))
    if found is None:
        allowed = sorted(m for m, g, w in _DATAPATHS if (g, w) == (cta_group, bool(ws)))
        raise refusal("M", M, allowed, f"cta_group::{cta_group}{' with .ws' if ws else ''}")
    return found


def datapath_letter(M: int, cta_group: int, ws: bool = False, sp: bool = False) -> str:
    """The letter of `datapath(...)`, "A" to "G"."""
    return datapath(M, cta_group, ws, sp).letter


def m_values(opcode: Opcode, k: int | None = None) -> tuple[int, ...]:
    """Allowed M, the total over the CTA group, for an instruction of this K."""
    if opcode.ws:
        return (32, 64, 128)
    if not opcode.block_scale:
        return (64, 128) if opcode.cta_group == 1 else (128, 256)
    if opcode.cta_group == 1:
        return (128,)
    # OQ2: with K=96 a pair has M=256 only (PTX ISA 9.4).
    return (256,) if opcode.sp or k == 96 else (128, 256)


def k_values(opcode: Opcode) -> tuple[int, ...]:
    """Allowed K over all targets; 96 needs one of `K96_TARGETS` (OQ2; OQ18: also with A in TMEM)."""
    dense = KINDS[opcode.kind].k
    if opcode.sp:
        return (2 * dense,)
    if opcode.kind not in ("mxf4", "mxf4nvf4") or opcode.scale_spelling in ("1X", "2X", "4X"):
        return (dense,)
    return (dense, 96)


@cache
def n_values(
    opcode: Opcode, M: int, a_in_tmem: bool = False, b_mn_8bit: bool = False
) -> tuple[tuple[int, ...], str]:
    """Allowed N, and the rule that says so. b_mn_8bit: B is MN-major with 8-bit elements."""
    g = opcode.cta_group
    if opcode.ws:
        values: tuple[int, ...] = (64, 128) if opcode.sp else (64, 128, 256)
        rule = "PTX ISA 9.4, .ws.sp" if opcode.sp else "PTX ISA 9.4, .ws"
    elif opcode.block_scale:
        values, rule = _steps(8 * g), f"PTX ISA 9.4, block scale, cta_group::{g}, OQ1"
    elif a_in_tmem:
        # OQ1: CUTLASS asks for coarser steps than PTX's table once A lies in TMEM.
        step = 32 if g == 2 else 16 if M == 128 else 8
        values, rule = _steps(step), f"CUTLASS, A in TMEM, M={M}, cta_group::{g}, OQ1"
    else:
        values, rule = _steps(8 * g), f"PTX ISA 9.4 and CUTLASS, A in shared memory, cta_group::{g}, OQ1"
    if opcode.kind == "i8" and not opcode.ws:
        # OQ19: N=24 is legal by PTX, and refused by CUTLASS.
        values = tuple(n for n in values if n % (16 * g) == 0 or (g == 1 and n in (8, 24)))
        rule += "; kind i8"
    if b_mn_8bit:
        values = tuple(n for n in values if n % (16 * g) == 0)
        rule += "; MN-major B with 8-bit elements, PTX ISA table 52"
    return values, rule


def _steps(step: int) -> tuple[int, ...]:
    return tuple(range(step, 257, step))


def static_shape(instruction_shape: Any) -> tuple[int, int, int]:
    """(M, N, K) as Python ints from ints or NumPy ints; anything else, traced values too, must be static."""
    m, n, k = static_ints("instruction_shape", instruction_shape, ("M", "N", "K"))
    return m, n, k


def static_ints(name: str, values: Any, fields: tuple[str, ...]) -> tuple[int, ...]:
    """The named fields of a tuple, list or NumPy array as Python ints; NotStatic for anything else."""
    wanted = f"{len(fields)} ints ({', '.join(fields)})"
    try:
        given = None if isinstance(values, str) else tuple(values)
    except Exception:  # a traced value raises its own error, which does not name the argument
        given = None
    if given is None or len(given) != len(fields):
        raise NotStatic(f"{name}: got {_shown(values)}; allowed: {wanted}, which must be static")
    return tuple(static_int(f"{name}: {field}", v) for field, v in zip(fields, given, strict=True))


def static_int(name: str, value: Any) -> int:
    """A Python int from an int or a NumPy integer; NotStatic for bools, floats, traced values."""
    if not isinstance(value, bool | np.bool_):
        try:
            return operator.index(value)
        except Exception:
            pass
    raise NotStatic(f"{name}: got {_shown(value)}; allowed: an int, which must be static")


def _shown(value: Any) -> str:
    return "a traced value" if "Tracer" in type(value).__name__ else repr(value)


def check_shape(
    opcode: Opcode, instruction_shape: Any, a_in_tmem: bool = False, b_mn_8bit: bool = False
) -> tuple[int, int, int]:
    """(M, N, K) as ints; ValueError naming the field and its allowed values."""
    m, n, k = static_shape(instruction_shape)
    what = f"kind {opcode.kind}" + (", sparse" if opcode.sp else "")
    if k not in k_values(opcode):
        why = what
        if k == 96 and opcode.block_scale and opcode.scale_vec and not opcode.sp:
            step = opcode.scales_per_step(KINDS[opcode.kind].k)
            why += (
                f"; .scale_vec::{opcode.scale_vec} means K = {step} scales * {opcode.scale_block}, "
                "K=96 is spelled with .block16 or .block32"
            )
        raise refusal("instruction_shape: K", k, k_values(opcode), why)
    if m not in m_values(opcode, k):
        form = ".ws" if opcode.ws else f"cta_group::{opcode.cta_group}"
        raise refusal("instruction_shape: M", m, m_values(opcode, k), f"{what}, {form}, K={k}")
    values, rule = n_values(opcode, m, bool(a_in_tmem), bool(b_mn_8bit))
    if n not in values:
        raise refusal("instruction_shape: N", n, values, rule)
    return m, n, k


def check_formats(
    opcode: Opcode, a_format: Any, b_format: Any, d_format: Any, scale_format: Any = None
) -> tuple[str, str, str, str | None]:
    """The four formats as names; ValueError unless the kind has them. scale_format None is not judged."""
    kind = KINDS[opcode.kind]
    # OQ6: A and B of kind f16 may differ (float16 with bfloat16).
    a = format_name("a_format", a_format, kind.formats, f"kind {kind.name}")
    b = format_name("b_format", b_format, kind.formats, f"kind {kind.name}")
    d = format_name("d_format", d_format, kind.d_formats, f"D of kind {kind.name}")
    if kind.name == "f16" and d == "float16" and (a, b) != ("float16", "float16"):
        raise refusal("d_format", d, "float32", f"float16 D needs float16 A and B, given {a} and {b}")
    if scale_format is None:
        return a, b, d, None
    block = opcode.scale_block
    if block is None:
        raise refusal("scale_format", dtype_name(scale_format), "none", f"kind {kind.name} has no scales")
    rule = f"kind {kind.name}, {block} elements per scale"
    return a, b, d, format_name("scale_format", scale_format, kind.scale_formats[block], rule)


def check_major(argument: str, major: Any, format_: str, in_tmem: bool = False) -> None:
    """ValueError unless an operand of this format may have this major ("k" or "mn"; contract 4.4)."""
    if major not in ("k", "mn"):
        raise refusal(argument, major, "'k', 'mn'")
    if major == "mn" and in_tmem:
        raise refusal(
            argument, major, "'k'", "A in TMEM is K-major: it takes neither a major nor a descriptor"
        )
    if major == "mn" and not FORMATS[format_].mn_major:
        raise refusal(argument, major, "'k'", f"{format_} is K-major only, PTX ISA table 51")


def check_modifiers(opcode: Opcode, neg_a: bool, neg_b: bool, sat_d: bool) -> None:
    """ValueError unless the kind can negate or saturate as asked (contract 4.1, 4.4)."""
    for name, value in (("neg_a", neg_a), ("neg_b", neg_b), ("sat_d", sat_d)):
        if not isinstance(value, bool | np.bool_):
            raise refusal(name, value, "True, False", "it must be static")
        if value and name == "sat_d" and opcode.kind != "i8":
            raise refusal(name, True, "False", f"only kind i8 saturates, not {opcode.kind}")
        if value and name != "sat_d" and opcode.kind == "i8":
            raise refusal(name, True, "False", "kind i8 cannot negate")


def legal(
    opcode: Opcode | str,
    instruction_shape: Any,
    a_format: Any,
    b_format: Any,
    d_format: Any,
    *,
    scale_format: Any = None,
    a_in_tmem: bool = False,
    a_major: str = "k",
    b_major: str = "k",
    neg_a: bool = False,
    neg_b: bool = False,
    sat_d: bool = False,
    target: str = "sm_100a",
) -> None:
    """Returns None if `target` has the instruction, else raises ValueError with the rule.

    instruction_shape: (M, N, K), M over the whole CTA group. Formats: ml_dtypes names, dtypes, or "tf32".
    It judges what PTX allows; `check_offered` says what `mma` leaves out of that.
    """
    op = Opcode.parse(opcode) if not isinstance(opcode, Opcode) else opcode
    a, b, _, _ = check_formats(op, a_format, b_format, d_format, scale_format)
    check_major("a_major", a_major, a, in_tmem=a_in_tmem)
    check_major("b_major", b_major, b)
    if op.ashift and not a_in_tmem:
        raise refusal("a", "shared", "tmem", ".ashift shifts A in TMEM")
    b_mn_8bit = b_major == "mn" and FORMATS[b].bits == 8
    m, _, k = check_shape(op, instruction_shape, a_in_tmem, b_mn_8bit)
    if op.ashift and m not in (128, 256):
        raise refusal("instruction_shape: M", m, (128, 256), ".ashift, PTX ISA 9.7.16.10")
    check_modifiers(op, neg_a, neg_b, sat_d)
    check_target(op, target, k)


def check_offered(opcode: Opcode, k: int) -> None:
    """ValueError for what PTX has and `mma` does not offer."""
    k96 = k == 96 and k in k_values(opcode)  # for other opcodes K=96 is simply wrong
    reasons = (
        ("opcode", ".sp", opcode.sp, "sparse A needs metadata in TMEM, which no executor models"),
        ("opcode", ".ashift", opcode.ashift, "its direction and extent are unsettled, OQ14"),
        ("instruction_shape", "K=96", k96, "it belongs to sm_103a and sm_107a; the model is an sm_100a, OQ2"),
    )
    for argument, what, asked, why in reasons:
        if asked:
            raise refusal(
                argument, what, "dense, .ws and block-scaled opcodes without it", f"not offered by mma: {why}"
            )


class InstructionRow(NamedTuple):
    """Legal instructions that differ in N only; `scale_format` is None without block scale."""

    opcode: Opcode
    a_format: str
    b_format: str
    d_format: str
    scale_format: str | None
    a_in_tmem: bool
    a_major: str
    b_major: str
    M: int
    N: tuple[int, ...]
    K: int
    targets: tuple[str, ...]

    @property
    def instruction_shapes(self) -> tuple[tuple[int, int, int], ...]:
        return tuple((self.M, n, self.K) for n in self.N)


def opcodes() -> Iterator[Opcode]:
    """Every opcode up to `.ashift` and the collectors, which change no other rule."""
    for kind, ws, sp, g in itertools.product(KINDS.values(), (False, True), (False, True), (1, 2)):
        if ws and (g == 2 or kind.block_scaled):
            continue
        default = (None,) if kind.default_scale or not kind.block_scaled else ()
        for scale_vec in (*default, *kind.scales):
            yield Opcode(g, kind.name, ws, sp, kind.block_scaled, scale_vec)


@cache
def instruction_table() -> tuple[InstructionRow, ...]:
    """All legal combinations, sparse ones and K=96 included, one row for each set of allowed N."""
    return tuple(row for opcode in opcodes() for row in _rows(opcode))


def _rows(opcode: Opcode) -> Iterator[InstructionRow]:
    kind, block = KINDS[opcode.kind], opcode.scale_block
    scales: tuple[str | None, ...] = kind.scale_formats[block] if block else (None,)
    for k, a, b, d, scale in itertools.product(
        k_values(opcode), kind.formats, kind.formats, kind.d_formats, scales
    ):
        targets = targets_of(opcode, k)
        for m, in_tmem, a_major, b_major in itertools.product(
            m_values(opcode, k), (False, True), ("k", "mn"), ("k", "mn")
        ):
            n, _ = n_values(opcode, m, in_tmem, b_major == "mn" and FORMATS[b].bits == 8)
            row = InstructionRow(opcode, a, b, d, scale, in_tmem, a_major, b_major, m, n, k, targets)
            if _is_legal(row):
                yield row


def _is_legal(row: InstructionRow) -> bool:
    try:
        legal(
            row.opcode,
            row.instruction_shapes[0],
            row.a_format,
            row.b_format,
            row.d_format,
            scale_format=row.scale_format,
            a_in_tmem=row.a_in_tmem,
            a_major=row.a_major,
            b_major=row.b_major,
            target=row.targets[0],
        )
    except ValueError:
        return False
    return True
