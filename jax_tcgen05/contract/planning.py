"""A `Call` checked against the whole contract and turned into a `Plan`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .. import isa
from ..descriptors import BlockScaledInstructionDescriptor, InstructionDescriptor
from ..layouts import Digit as LayoutDigit
from ..layouts import Swizzle, TileLayout
from ..layouts.digits import canonical
from ..plan import SHARED_ALIGN, SHARED_BUDGET, TMEM_COLUMNS, TMEM_LANES, Digit, Operand, Placement, Plan
from . import shared, tmem
from .call import Call, OperandSpec


@lru_cache(maxsize=1024)
def make_plan(call: Call) -> Plan:
    """Checks every rule and returns the Plan; ValueError says which argument, what, and what is allowed."""
    m, n, k = call.instruction_shape
    _check_instruction(call)
    repeats = _check_shapes(call)
    return _place(call, m, n, k, repeats)


def _check_instruction(call: Call) -> None:
    isa.legal(
        call.opcode,
        call.instruction_shape,
        call.a_format,
        call.b_format,
        call.spec("d").dtype,
        a_in_tmem=call.spec("a").storage == "tmem",
        a_major=call.a_major,
        b_major=call.b_major,
        scale_format=_scale_format(call),
        neg_a=call.neg_a,
        neg_b=call.neg_b,
        sat_d=call.sat_d,
    )
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


def _place(call: Call, m: int, n: int, k: int, repeats: tuple[int, int, int]) -> Plan:
    mr, nr, _ = repeats
    opcode = call.opcode
    d_spec, a_spec, b_spec = call.specs[:3]
    d_bits = isa.container_bits(d_spec.dtype)
    d_starts, columns = tmem.d_starts(d_spec.view, opcode, m, n, d_bits)
    d = _tmem_operand("d", d_spec, d_bits, "plain", 0, d_starts, at_least=columns)
    used = {"d": d.placement.size}

    formats = {"a": isa.FORMATS[call.a_format], "b": isa.FORMATS[call.b_format]}
    bits = {name: isa.container_bits(fmt.container(opcode.kind)) for name, fmt in formats.items()}
    packing = {name: _packing(fmt, bits[name]) for name, fmt in formats.items()}
    shared_bytes = 0
    if a_spec.storage == "tmem":
        base = sum(used.values())
        starts = tmem.a_starts(a_spec.view, opcode, m, bits["a"], base, np.array(d_starts).reshape(mr, nr))
        a = _tmem_operand("a", a_spec, bits["a"], packing["a"], base, starts)
        used["a"] = a.placement.size
    else:
        assert call.a_descriptor is not None  # read_call demands it
        starts = shared.shared_starts(
            "a", a_spec.view, m // opcode.cta_group, bits["a"], call.a_descriptor, call.a_major, 0
        )
        a = _shared_operand("a", a_spec, bits["a"], packing["a"], 0, starts)
        shared_bytes = a.placement.size
    b_base = -(-shared_bytes // SHARED_ALIGN) * SHARED_ALIGN
    assert call.b_descriptor is not None
    starts = shared.shared_starts(
        "b", b_spec.view, n // opcode.cta_group, bits["b"], call.b_descriptor, call.b_major, b_base
    )
    b = _shared_operand("b", b_spec, bits["b"], packing["b"], b_base, starts)
    if b_base + b.placement.size > SHARED_BUDGET:
        raise ValueError(
            f"a, b: the operands need {b_base + b.placement.size} bytes of shared memory (a {shared_bytes}, "
            f"b {b.placement.size}); a CTA has {SHARED_BUDGET} (226 KiB)"
        )
    scales = {}
    if opcode.block_scale:
        ids = opcode.scale_ids(k)
        for name in ("sfa", "sfb"):
            base = sum(used.values())
            starts = tmem.scale_starts(name, call.spec(name).view, ids, base)
            scales[name] = _tmem_operand(name, call.spec(name), 8, "plain", base, starts)
            used[name] = scales[name].placement.size
    if sum(used.values()) > TMEM_COLUMNS:
        parts = ", ".join(f"{name} {columns}" for name, columns in used.items())
        raise ValueError(
            f"{', '.join(used)}: the operands need {sum(used.values())} columns of TMEM ({parts}); "
            f"a CTA has {TMEM_COLUMNS}"
        )
    return Plan(
        opcode=opcode,
        instruction_shape=call.instruction_shape,
        idesc=int(_instruction_descriptor(call)),
        repeats=repeats,
        d=d,
        a=a,
        b=b,
        sfa=scales.get("sfa"),
        sfb=scales.get("sfb"),
        shared_bytes=b_base + b.placement.size,
        tmem_columns=sum(used.values()),
    )


def _packing(fmt: isa.Format, bits: int) -> str:
    """The padded containers of FP6 and FP4 in the 8-bit kinds (ptx_contract 6)."""
    return f"fp{fmt.bits}" if fmt.bits < bits else "plain"


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


def _shared_operand(
    name: str, spec: OperandSpec, bits: int, packing: str, base: int, starts: tuple[int, ...]
) -> Operand:
    offsets = spec.placement.image()["m"]
    _check_injective(name, offsets - offsets.min() if offsets.size else offsets)
    if offsets.size and offsets.min() < 0:
        raise ValueError(
            f"{name}: the layout starts at element {int(offsets.min())}; offsets from the allocation are not negative"
        )
    end = int(offsets.max()) + 1 if offsets.size else 0
    size = -(-end * bits // 128) * 16  # whole 16-byte units
    if size > SHARED_BUDGET:
        raise ValueError(
            f"{name}: the layout needs {size} bytes of shared memory; a CTA has {SHARED_BUDGET} (226 KiB)"
        )
    return Operand(placement(spec, bits, packing, base, size), starts)


def _tmem_operand(
    name: str,
    spec: OperandSpec,
    bits: int,
    packing: str,
    base: int,
    starts: tuple[int, ...],
    at_least: int = 0,
) -> Operand:
    image = spec.placement.image()
    shape = spec.placement.shape
    lanes = np.broadcast_to(image.get("TLane", 0), shape)
    along = np.broadcast_to(image.get("TCol", 0), shape)
    copies = np.zeros(1, np.int64)
    for replica in spec.placement.replicas:
        steps = replica.stride("TLane") * np.arange(replica.extent)
        copies = (copies[:, None] + steps).ravel()
        if replica.stride("TCol"):
            raise ValueError(f"{name}: got a replica along TCol; copies are lanes apart")
    lanes = lanes[..., None] + copies
    tmem.check_lanes(name, lanes)
    if along.min() < 0:
        raise ValueError(
            f"{name}: the layout starts at column {int(along.min())}; columns from the allocation are not negative"
        )
    columns = max(at_least, (int(along.max()) + 1) * bits + 31 >> 5)
    if columns > TMEM_COLUMNS:
        raise ValueError(f"{name}: the layout needs {columns} columns of TMEM; a CTA has {TMEM_COLUMNS}")
    _check_injective(name, (along[..., None] * TMEM_LANES + lanes))
    return Operand(placement(spec, bits, packing, base, columns), starts)


def _check_injective(name: str, positions: np.ndarray) -> None:
    """Two entries in one place would lose data."""
    seen = np.zeros(int(positions.max()) + 1 if positions.size else 0, bool)
    seen[positions.ravel()] = True
    if np.count_nonzero(seen) != positions.size:
        raise ValueError(
            f"{name}: the layout puts {positions.size} entries into {np.count_nonzero(seen)} places; each needs its own"
        )


def placement(spec: OperandSpec, bits: int, packing: str, base: int, size: int) -> Placement:
    """The layout of an array as executors get it."""
    layout: TileLayout = spec.placement
    first, second = ("m", "") if spec.storage == "shared" else ("TLane", "TCol")

    def digits(given: tuple[LayoutDigit, ...]) -> tuple[Digit, ...]:
        return tuple(Digit(d.extent, d.stride(first), d.stride(second)) for d in given)

    return Placement(
        storage=spec.storage,
        packing=packing,
        item_bytes=np.dtype(spec.dtype).itemsize,  # sub-byte codes: one per byte
        bits=bits,
        base=base,
        size=size,
        origin=(layout.origin.get(first, 0), layout.origin.get(second, 0)),
        swizzle=_swizzle(layout.swizzle),
        axes=tuple((axis.size, digits(canonical(axis).digits)) for axis in layout.axes),
        replicas=digits(layout.replicas),
    )


def _swizzle(term: Swizzle | None) -> tuple[int, int]:
    """(mask, shift): x ^ ((x >> shift) & mask), or with a negative shift x ^ ((x & mask) << -shift)."""
    if term is None:
        return 0, 0
    mask = ((1 << term.s) - 1) << term.p
    return (mask, term.a) if term.inner else (mask, -term.a)
