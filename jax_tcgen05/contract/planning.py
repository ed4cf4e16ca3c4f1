"""A `Call` checked against the whole contract and turned into a `Plan`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .. import isa
from ..descriptors import BlockScaledInstructionDescriptor, InstructionDescriptor
from ..plan import SHARED_ALIGN, Operand, Plan
from . import shared, tmem
from .allocation import Element, check_budgets, shared_bytes, shared_operand, tmem_columns, tmem_operand
from .call import Call


@lru_cache(maxsize=1024)
def make_plan(call: Call) -> Plan:
    """Checks every rule and returns the Plan; ValueError says which argument, what, and what is allowed."""
    _check_instruction(call)
    return _place(call, _check_shapes(call))


def _check_instruction(call: Call) -> None:
    scale_format = _scale_format(call)
    try:
        isa.legal(
            call.opcode,
            call.instruction_shape,
            call.a_format,
            call.b_format,
            call.spec("d").dtype,
            a_in_tmem=call.spec("a").storage == "tmem",
            a_major=call.a_major,
            b_major=call.b_major,
            scale_format=scale_format,
            neg_a=call.neg_a,
            neg_b=call.neg_b,
            sat_d=call.sat_d,
        )
    except ValueError as error:
        # `mma` has no arguments d_format and scale_format: they are the operands' dtypes.
        for argument, operand in (("d_format", "d"), ("scale_format", "sfa, sfb")):
            if str(error).startswith(argument):
                raise ValueError(f"{operand}: {error}") from None
        raise
    for name, fmt in (("a", call.a_format), ("b", call.b_format)):
        dtype, allowed = call.spec(name).dtype, isa.FORMATS[fmt].arrays
        if dtype not in allowed:
            raise isa.refusal(f"{name}_format", fmt, _formats_of(dtype), f"{name} is an array of {dtype}")


def _formats_of(dtype: str) -> list[str]:
    return [fmt.name for fmt in isa.FORMATS.values() if dtype in fmt.arrays]


def _scale_format(call: Call) -> str | None:
    if not call.opcode.block_scale:
        return None
    sfa, sfb = call.spec("sfa").dtype, call.spec("sfb").dtype
    if sfa != sfb:
        raise ValueError(f"sfb: got scale factors of {sfb}, sfa has {sfa}; both must have the same format")
    return sfa


def _check_shapes(call: Call) -> tuple[int, int, int]:
    """Canonical shapes (the document's table); returns the (M, N, K) repeats."""
    m, n, k = call.instruction_shape
    g = call.opcode.cta_group
    rows = m // g
    atoms: dict[str, tuple[tuple[int, ...], ...]] = {
        "d": ((rows, n),),
        "a": _a_atoms(call),
        "b": ((n // g, k),),
    }
    if call.opcode.block_scale:
        vec = call.opcode.scales_per_step(k)
        atoms |= {"sfa": ((rows, vec),), "sfb": ((n, vec),)}
    labels = {
        "d": "(m_repeat, n_repeat, M/g, N)",
        "a": "(m_repeat, k_repeat, M/g, K)",
        "b": "(n_repeat, k_repeat, N/g, K)",
        "sfa": "(m_repeat, k_repeat, M/g, scale_vec)",
        "sfb": "(n_repeat, k_repeat, N, scale_vec)",
    }
    for name, allowed in atoms.items():
        shape = call.spec(name).view.shape
        if not any(len(shape) == 2 + len(atom) and shape[2:] == atom for atom in allowed):
            wanted = " or ".join(f"(.., .., {', '.join(map(str, atom))})" for atom in allowed)
            raise ValueError(
                f"{name}: got the canonical shape {shape} after the prefix; {call.opcode} with instruction_shape "
                f"{call.instruction_shape} wants {wanted}, that is {labels[name]} with g={g}"
            )
    mr, nr = call.spec("d").view.shape[:2]
    kr = call.spec("a").view.shape[1]
    repeats = {"d": (mr, nr), "a": (mr, kr), "b": (nr, kr), "sfa": (mr, kr), "sfb": (nr, kr)}
    for name in call.operands:
        given = call.spec(name).view.shape[:2]
        if given != repeats[name]:
            raise ValueError(
                f"{name}: got the repeats {given}; d has (m_repeat, n_repeat) = {(mr, nr)} and a has "
                f"k_repeat = {kr}, so {name} wants {repeats[name]}"
            )
    if min(mr, nr, kr) < 1:
        raise ValueError(f"d, a, b: got the repeats (M, N, K) = {(mr, nr, kr)}; each must be at least 1")
    return mr, nr, kr


def _a_atoms(call: Call) -> tuple[tuple[int, ...], ...]:
    """The shapes that one atom of A may have (ptx_contract 7.2)."""
    m, _, k = call.instruction_shape
    rows = m // call.opcode.cta_group
    if call.spec("a").storage == "shared":
        return ((rows, k),)
    path = isa.datapath(m, call.opcode.cta_group, call.opcode.ws)
    banked = (path.fold, path.rows, k)
    return {"no": ((rows, k),), "optional": ((rows, k), banked), "required": (banked,)}[path.bank_axis]


def _place(call: Call, repeats: tuple[int, int, int]) -> Plan:
    """Every operand in its storage: D, A, SFA and SFB one after another in TMEM, A and B in shared memory."""
    operands = {"d": _place_d(call)}
    if call.spec("a").storage == "tmem":
        operands["a"] = _place_a_in_tmem(call, operands["d"], repeats)
    else:
        operands["a"] = _place_shared(call, "a", 0)
    end = shared_bytes(operands)
    operands["b"] = _place_shared(call, "b", -(-end // SHARED_ALIGN) * SHARED_ALIGN)
    for name in call.operands[3:]:
        operands[name] = _place_scales(call, name, tmem_columns(operands))
    check_budgets(operands)
    return Plan(
        opcode=call.opcode,
        instruction_shape=call.instruction_shape,
        idesc=int(_instruction_descriptor(call)),
        repeats=repeats,
        d=operands["d"],
        a=operands["a"],
        b=operands["b"],
        sfa=operands.get("sfa"),
        sfb=operands.get("sfb"),
        shared_bytes=shared_bytes(operands),
        tmem_columns=tmem_columns(operands),
    )


def _place_d(call: Call) -> Operand:
    m, n, _ = call.instruction_shape
    spec = call.spec("d")
    element = Element(isa.container_bits(spec.dtype))
    starts, columns = tmem.d_starts(spec.view, call.opcode, m, n, element.bits)
    return tmem_operand("d", spec, element, 0, starts, at_least=columns)


def _place_a_in_tmem(call: Call, d: Operand, repeats: tuple[int, int, int]) -> Operand:
    spec, element, base = call.spec("a"), _element(call, call.a_format), d.placement.size
    d_starts = np.array(d.starts).reshape(repeats[:2])
    starts = tmem.a_starts(spec.view, call.opcode, call.instruction_shape[0], element.bits, base, d_starts)
    return tmem_operand("a", spec, element, base, starts)


def _place_shared(call: Call, name: str, base: int) -> Operand:
    m, n, _ = call.instruction_shape
    extent, fmt, descriptor, major = {
        "a": (m, call.a_format, call.a_descriptor, call.a_major),
        "b": (n, call.b_format, call.b_descriptor, call.b_major),
    }[name]
    assert descriptor is not None  # read_call demands it
    spec, element, rows = call.spec(name), _element(call, fmt), extent // call.opcode.cta_group
    starts = shared.shared_starts(name, spec.view, rows, element.bits, descriptor, major, base)
    return shared_operand(name, spec, element, base, starts)


def _place_scales(call: Call, name: str, base: int) -> Operand:
    ids = call.opcode.scale_ids(call.instruction_shape[2])
    starts = tmem.scale_starts(name, call.spec(name).view, ids, base)
    return tmem_operand(name, call.spec(name), Element(8), base, starts)


def _element(call: Call, fmt: str) -> Element:
    """How an element of A or B is stored; FP6 and FP4 have padded containers in the 8-bit kinds (ptx_contract 6)."""
    bits, own = isa.container_bits(isa.FORMATS[fmt].container(call.opcode.kind)), isa.FORMATS[fmt].bits
    return Element(bits, f"fp{own}" if own < bits else "plain")


def _instruction_descriptor(call: Call) -> InstructionDescriptor | BlockScaledInstructionDescriptor:
    m, n, _ = call.instruction_shape
    common: dict[str, Any] = {
        "kind": call.opcode.kind,
        "M": m,
        "N": n,
        "a_format": call.a_format,
        "b_format": call.b_format,
        "a_major": call.a_major,
        "b_major": call.b_major,
        "neg_a": call.neg_a,
        "neg_b": call.neg_b,
    }
    if call.opcode.block_scale:
        return BlockScaledInstructionDescriptor(**common, scale_format=call.spec("sfa").dtype)
    return InstructionDescriptor(**common, d_format=call.spec("d").dtype, sat_d=call.sat_d)
