"""An independent, slow implementation of one `mma` call, for tests. It shares no code with the package.

`run` takes what an executor gets: the custom call's attributes (opcode text, encoded descriptors, placements as
lists of ints) and NumPy arrays. It decodes the encoded words itself, stages the arrays into images of shared
memory and TMEM, one entry per bit, walks the addresses, evaluates the arithmetic (`slow_numerics`) and returns
the leaf of D. Numbers in brackets are sections of the PTX contract that the project's specification states.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import slow_numerics as numerics

LANES, COLUMNS = 128, 512
LANE_BITS = 32 * COLUMNS

Array = np.ndarray


# Bits


def field(word: int, low: int, width: int) -> int:
    return word >> low & ((1 << width) - 1)


class Memory:
    """The memories of one CTA, one array entry per bit, all ones at first."""

    def __init__(self, shared_bytes: int) -> None:
        self.shared = np.ones(8 * shared_bytes, np.uint8)
        self.tmem = np.ones(LANES * LANE_BITS, np.uint8)


def read(bits: Array, position: Array, width: int) -> Array:
    """Words of `width` bits, lowest bit first, at bit positions."""
    assert position.min() >= 0 and position.max() + width <= bits.size
    word = bits[position[..., None] + np.arange(width)].astype(np.int64)
    return (word << np.arange(width)).sum(-1)


def write(bits: Array, position: Array, width: int, words: Array) -> None:
    assert position.min() >= 0 and position.max() + width <= bits.size
    bits[position[..., None] + np.arange(width)] = words[..., None] >> np.arange(width) & 1


def cell(lane: Array, column: Array) -> Array:
    """The first bit of a TMEM cell."""
    assert (lane >= 0).all() and (lane < LANES).all() and (column >= 0).all() and (column < COLUMNS).all()
    return lane * LANE_BITS + 32 * column


# Placements: where the entries of an array lie


class Place(NamedTuple):
    """A decoded placement; the meaning of its numbers is that of the custom call's attribute."""

    in_tmem: bool
    packing: str
    item_bytes: int
    bits: int
    base: int
    size: int
    origin: tuple[int, int]
    swizzle: tuple[int, int]
    axes: tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]
    replicas: tuple[tuple[int, int, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for size, _ in self.axes)


def decode_place(numbers: Sequence[int]) -> Place:
    words: Iterator[int] = iter(int(x) for x in numbers)

    def digits() -> tuple[tuple[int, int, int], ...]:
        return tuple((next(words), next(words), next(words)) for _ in range(next(words)))

    storage, packing, item_bytes, bits, base, size = itertools.islice(words, 6)
    origin, swizzle = (next(words), next(words)), (next(words), next(words))
    axes = tuple((next(words), digits()) for _ in range(next(words)))
    replicas = digits()
    assert not list(words)
    named = ("plain", "fp6", "fp4")[packing]
    return Place(storage == 1, named, item_bytes, bits, base, size, origin, swizzle, axes, replicas)


def _coordinates(size: int, digits: Sequence[tuple[int, int, int]]) -> tuple[Array, Array]:
    first, second = np.zeros(size, np.int64), np.zeros(size, np.int64)
    rest = np.arange(size)
    for extent, step_first, step_second in reversed(digits):
        first += rest % extent * step_first
        second += rest % extent * step_second
        rest = rest // extent
    return first, second


def bit_positions(place: Place) -> tuple[Array, int]:
    """The first bit of every array entry (its copies on a last axis), and the bits of an entry."""
    first, second = np.array(place.origin[0]), np.array(place.origin[1])
    for size, digits in place.axes:
        more_first, more_second = _coordinates(size, digits)
        first, second = first[..., None] + more_first, second[..., None] + more_second
    width = {"plain": place.bits, "fp6": 6, "fp4": 4}[place.packing]
    if not place.in_tmem:
        mask, shift = place.swizzle
        moved = (first >> shift) & mask if shift >= 0 else (first & mask) << -shift
        element = first ^ moved
        # [6] FP6 and FP4: sixteen codes, lowest first, at the start of sixteen bytes
        padded = element // 16 * 128 + element % 16 * width
        bit = element * place.bits if place.packing == "plain" else padded
        assert bit.max() + width <= 8 * place.size
        return (8 * place.base + bit)[..., None], width
    along = 32 * place.base + second * place.bits
    if place.packing == "fp4":
        along = along + 2  # [6] FP4 lies in bits 2-5 of its byte
    copies_first, copies_second = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for extent, step_first, step_second in place.replicas:
        steps = np.arange(extent)
        copies_first = (copies_first[:, None] + steps * step_first).ravel()
        copies_second = (copies_second[:, None] + steps * step_second * place.bits).ravel()
    lane = first[..., None] + copies_first
    along = along[..., None] + copies_second
    assert lane.min() >= 0 and lane.max() < LANES and along.max() < 32 * (place.base + place.size)
    return lane * LANE_BITS + along, width


def stage(memory: Memory, place: Place, array: Array) -> None:
    codes = np.ascontiguousarray(array).view(f"u{place.item_bytes}").astype(np.int64)
    position, width = bit_positions(place)
    copied = np.broadcast_to(codes[..., None], position.shape)
    write(memory.tmem if place.in_tmem else memory.shared, position, width, copied)


def unstage(memory: Memory, place: Place) -> Array:
    position, width = bit_positions(place)
    return read(memory.tmem, position[..., 0], width).astype(f"u{place.item_bytes}")


# The instruction: opcode, descriptors


class Instruction(NamedTuple):
    kind: str
    group: int
    ws: bool
    m: int
    n: int
    k: int
    a_format: str
    b_format: str
    d_format: str
    a_mn: bool
    b_mn: bool
    negate: tuple[bool, bool]
    saturate: bool
    scale_format: str
    scales: int  # per row and step
    sfa_id: int
    sfb_id: int


_F8F6F4 = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_TYPES = {  # [4.1, 4.2, 4.3] codes of A and B
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _F8F6F4,
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": _F8F6F4,
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
_K = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
_FP4_KINDS = ("mxf4", "mxf4nvf4")


def decode_instruction(opcode: str, idesc: int) -> Instruction:
    kind = re.search(r"kind::(\w+)", opcode)[1]
    group = int(re.search(r"cta_group::(\d)", opcode)[1])
    k = _K[kind]
    types = _TYPES[kind]
    scaled = ".block_scale" in opcode
    scales = 0
    if scaled:
        spelled = re.search(r"scale_vec::(\d)X|block(\d+)", opcode)
        block = 32 if spelled is None else int(spelled[2] or k // int(spelled[1]))
        scales = k // block
    return Instruction(
        kind=kind,
        group=group,
        ws=".ws" in opcode,
        m=128 * field(idesc, 27, 2) if scaled else 16 * field(idesc, 24, 5),
        n=8 * field(idesc, 17, 6),
        k=k,
        a_format=types[field(idesc, 7, 3)],
        b_format=types[field(idesc, 10, 2 if kind in _FP4_KINDS else 3)],
        d_format="f32" if scaled else ("f16", "f32", "s32")[field(idesc, 4, 2)],
        a_mn=field(idesc, 15, 1) == 1,
        b_mn=field(idesc, 16, 1) == 1,
        negate=(field(idesc, 13, 1) == 1, field(idesc, 14, 1) == 1),
        saturate=not scaled and field(idesc, 3, 1) == 1,
        scale_format=("ue4m3", "ue8m0")[field(idesc, 23, 1)],
        scales=scales,
        sfa_id=field(idesc, 29, 2),
        sfb_id=field(idesc, 4, 2),
    )


def swizzled(address: Array, code: int) -> Array:
    """[5.1] the permutation of byte addresses for the code in bits 61-63 of a descriptor."""
    if code == 1:  # 128 bytes in atoms of 32
        return address ^ ((address >> 2) & 0x60)
    bits = {0: 0, 6: 1, 4: 2, 2: 3}[code]
    return address ^ ((address >> 3) & (((1 << bits) - 1) << 4))


def shared_operand(
    memory: Memory, descriptor: int, rows: int, k: int, kind: str, form: str, mn: bool
) -> Array:
    """[5.2] the codes (rows, k) that a shared-memory descriptor names."""
    start = field(descriptor, 0, 14) << 4
    leading, stride = field(descriptor, 16, 14) << 4, field(descriptor, 32, 14) << 4
    code = field(descriptor, 61, 3)
    assert field(descriptor, 46, 3) == 1 and field(descriptor, 52, 1) == 0
    assert code == 0 or field(descriptor, 49, 3) == 0
    width = {"f16": 16, "bf16": 16, "tf32": 32}.get(form, 8)
    if kind in _FP4_KINDS:
        width = 4
    r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
    row_bytes = {0: 16, 6: 32, 4: 64, 2: 128, 1: 128}[code]
    group = 4 if code == 1 else 8
    if mn:  # rows of the walk are K, MN is contiguous
        line, along = c, r * width // 8
        piece_step, group_step = (stride, leading) if code == 0 else (leading, stride)
    else:
        line, along = r, c * width // 8
        piece_step, group_step = leading, stride
        assert code != 1
    offset = line % group * row_bytes + line // group * group_step
    offset = offset + along // row_bytes * piece_step + along % row_bytes
    address = swizzled(start + offset, code)
    if kind in ("f8f6f4", "mxf8f6f4") and form in ("e3m2", "e2m3", "e2m1"):  # [6] padded containers
        payload = 4 if form == "e2m1" else 6
        return read(memory.shared, address // 16 * 128 + address % 16 * payload, payload)
    return read(memory.shared, 8 * address + c * width % 8, width)


def tmem_operand(memory: Memory, lanes: Array, column: int, k: int, kind: str, form: str) -> Array:
    """[6, 7.2] the codes (rows, k) of A in TMEM, its rows in the given lanes."""
    width = {"f16": 16, "bf16": 16, "tf32": 32}.get(form, 8)
    if kind in _FP4_KINDS:
        width = 4
    position = cell(lanes, np.array(column))[:, None] + width * np.arange(k)
    if width == 8 and form in ("e3m2", "e2m3", "e2m1"):
        return read(memory.tmem, position + 2, 4) if form == "e2m1" else read(memory.tmem, position, 6)
    return read(memory.tmem, position, width)


class Datapath(NamedTuple):
    """[7.1] rows per CTA, banks of columns, the lane of row i in bank b."""

    rows: int
    banks: int
    lanes: Array  # (banks, rows)


def datapath(m: int, group: int, ws: bool) -> Datapath:
    rows = m // group
    banks = 1
    if (m, group, ws) in ((128, 2, False), (64, 1, True), (32, 1, True)):  # B, E, G
        banks = 128 // rows
    row = np.arange(rows)
    if (m, group, ws) == (64, 1, False):  # F
        row = 32 * (row // 16) + row % 16
    return Datapath(rows, banks, row + rows * np.arange(banks)[:, None])


def scale_factors(memory: Memory, address: int, id_: int, rows: int, count: int) -> Array:
    """[8.1] (rows, count) scale codes; the four copies must agree."""
    column = field(address, 0, 16)
    assert field(address, 16, 14) == 0
    row = np.arange(rows)
    copies = [
        read(
            memory.tmem,
            cell(row % 32 + 32 * p, column + row // 32)[:, None] + 8 * (id_ + np.arange(count)),
            8,
        )
        for p in range(4)
    ]
    assert all((copy == copies[0]).all() for copy in copies)
    return copies[0]


def zeroed_columns(mask: int, m: int, n: int) -> Array:
    """[9] which columns of B are read as zero, by counting through the spans."""
    zeroed = np.zeros(n, bool)
    if not field(mask, 39, 1):
        return zeroed
    length = {True: field(mask, 40, 8) + 1, False: field(mask, 48, 8) + 1}  # zeroed, used
    parts = 128 // m
    for part in range(parts):
        zero = field(mask, 32 + part, 1) == 1
        left = length[zero] - field(mask, 8 * part, 8)
        assert left > 0
        for j in range(n // parts):
            zeroed[part * (n // parts) + j] = zero
            left -= 1
            if left == 0:
                zero = not zero
                left = length[zero]
    return zeroed


# One issue


def _dot(
    ins: Instruction, a: Array, b: Array, c: Array | None, sfa: Array | None, sfb: Array | None
) -> Array:
    """a (rows, K), b (columns, K), c (rows, columns): the codes of D."""
    a, b = a[:, None, :], b[None, :, :]
    if ins.kind == "i8":
        signed = [
            np.where(x < 128, x, x - 256) if form == "s8" else x
            for x, form in ((a, ins.a_format), (b, ins.b_format))
        ]
        return numerics.integer(*signed, c, ins.saturate)
    left, right = numerics.decode(a, ins.a_format), numerics.decode(b, ins.b_format)
    left = left._replace(negative=left.negative ^ ins.negate[0])
    right = right._replace(negative=right.negative ^ ins.negate[1])
    if sfa is None or sfb is None:
        return numerics.fused(left, right, c, ins.d_format)
    scales = [numerics.decode_scale(x, ins.scale_format) for x in (sfa[:, None, :], sfb[None, :, :])]
    if ins.kind in _FP4_KINDS:
        return numerics.grouped(left, right, c, *scales)
    return numerics.fused(left, right, c, ins.d_format, (scales[0].at((..., 0)), scales[1].at((..., 0))))


def issue(
    ins: Instruction,
    memories: Sequence[Memory],
    starts: Mapping[str, int],
    a_in_tmem: bool,
    enable_d: bool,
    lane_mask: Sequence[int],
    column_mask: int,
) -> None:
    """One instruction on the memories of the CTA (pair)."""
    path = datapath(ins.m, ins.group, ins.ws)
    part = ins.n // ins.group
    # [5.5] the even CTA holds the first half of B's rows
    b = np.concatenate(
        [
            shared_operand(memory, starts["b"], part, ins.k, ins.kind, ins.b_format, ins.b_mn)
            for memory in memories
        ]
    )
    if ins.ws:
        b = np.where(zeroed_columns(column_mask, ins.m, ins.n)[:, None], 0, b)
    d_lane, d_column = starts["d"] >> 16, field(starts["d"], 0, 16)
    columns = ins.n // path.banks
    for cta, memory in enumerate(memories):
        sfa = sfb = None
        if ins.scales:
            sfa = scale_factors(memory, starts["sfa"], ins.sfa_id, path.rows, ins.scales)
            sfb = scale_factors(memory, starts["sfb"], ins.sfb_id, ins.n, ins.scales)
        for bank in range(path.banks):
            lanes = path.lanes[bank]
            if a_in_tmem:
                a = tmem_operand(
                    memory,
                    (starts["a"] >> 16) + lanes,
                    field(starts["a"], 0, 16),
                    ins.k,
                    ins.kind,
                    ins.a_format,
                )
            else:
                a = shared_operand(memory, starts["a"], path.rows, ins.k, ins.kind, ins.a_format, ins.a_mn)
            chosen = slice(bank * columns, (bank + 1) * columns)
            here = d_lane + lanes
            position = cell(here[:, None], d_column + np.arange(columns))
            c = read(memory.tmem, position, 16 if ins.d_format == "f16" else 32) if enable_d else None
            result = _dot(ins, a, b[chosen], c, sfa, None if sfb is None else sfb[chosen])
            words = np.array([lane_mask[4 * cta + lane // 32] for lane in here])
            live = (words >> (here % 32) & 1) == 0  # [10]
            # An f16 accumulator takes the whole cell, its upper half zero.
            write(memory.tmem, position[live], 32, result[live])


# One call


def _share(array: Array, cta: int, group: int, index: tuple[int, ...]) -> Array:
    """The part of an array that belongs to one CTA of one batch element; axes of size 1 broadcast."""
    if group == 2:
        array = array[min(cta, array.shape[0] - 1)]
    return array[tuple(min(i, size - 1) for i, size in zip(index, array.shape, strict=False))]


def run(
    attributes: Mapping[str, Any],
    arrays: Mapping[str, Array],
    accum: Any = False,
    pred: Any = True,
    lane_mask: Any = None,
    column_mask: Any = None,
) -> Array:
    """The leaf of D after the call, in D's dtype.

    attributes: those of the custom call. arrays: leaves d, a, b[, sfa, sfb]. accum, pred: bool scalars or of the
    batch's shape. lane_mask: uint32 (4g,) or (batch..., 4g); column_mask: uint32 (2,) or (batch..., 2).
    """
    places = {name: decode_place(attributes[f"{name}_place"]) for name in arrays}
    starts = {name: [int(s) & (1 << 64) - 1 for s in attributes[f"{name}_starts"]] for name in arrays}
    group = int(re.search(r"cta_group::(\d)", attributes["opcode"])[1])
    d = np.asarray(arrays["d"])
    batch = d.shape[group - 1 : d.ndim - len(places["d"].shape)]
    lane_mask = np.zeros(4 * group, np.uint32) if lane_mask is None else np.asarray(lane_mask)
    column_mask = np.zeros(2, np.uint32) if column_mask is None else np.asarray(column_mask)
    accum, pred = np.broadcast_to(accum, batch), np.broadcast_to(pred, batch)
    lane_mask = np.broadcast_to(lane_mask, (*batch, 4 * group))
    column_mask = np.broadcast_to(column_mask, (*batch, 2))
    out = np.array(d)
    bits = out.view(f"u{places['d'].item_bytes}")
    for index in np.ndindex(*batch):
        if not pred[index]:
            continue
        memories = [Memory(int(attributes["shared_bytes"])) for _ in range(group)]
        for cta, memory in enumerate(memories):
            for name, array in arrays.items():
                stage(memory, places[name], _share(np.asarray(array), cta, group, index))
        low, high = (int(word) for word in column_mask[index])
        _issues(
            attributes, starts, memories, places["a"].in_tmem, bool(accum[index]),
            [int(word) for word in lane_mask[index]], high << 32 | low,
        )  # fmt: skip
        for cta, memory in enumerate(memories):
            bits[(cta, *index) if group == 2 else index] = unstage(memory, places["d"])
    return out


def _issues(
    attributes: Mapping[str, Any],
    starts: Mapping[str, Sequence[int]],
    memories: Sequence[Memory],
    a_in_tmem: bool,
    accum: bool,
    lane_mask: Sequence[int],
    column_mask: int,
) -> None:
    m_repeat, n_repeat, k_repeat = (int(x) for x in attributes["repeats"])
    for m, n, k in itertools.product(range(m_repeat), range(n_repeat), range(k_repeat)):
        at = {"d": m * n_repeat + n, "a": m * k_repeat + k, "b": n * k_repeat + k}
        at |= {"sfa": m * k_repeat + k, "sfb": n * k_repeat + k}
        chosen = {name: starts[name][at[name]] for name in starts}
        idesc = int(attributes["idesc"])
        if "sfa" in chosen:  # [4.5] the scale-factor ids of this issue
            idesc |= field(chosen["sfa"], 30, 2) << 29 | field(chosen["sfb"], 30, 2) << 4
        ins = decode_instruction(attributes["opcode"], idesc)
        issue(ins, memories, chosen, a_in_tmem, accum or k > 0, lane_mask, column_mask)
