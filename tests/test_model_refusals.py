"""What the functional model refuses, of an issue and of a Plan, and what it says it touches."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from raw_issue import (
    A_BASE,
    B_BASE,
    F16,
    F16_PAIR,
    F16_WS,
    MXF8,
    SHARED_BYTES,
    STEP_K,
    UNTOUCHED,
    Machine,
    descriptor,
    idesc,
    product,
    scale_word,
    small,
    zero_mask,
)

from jax_tcgen05 import _core, descriptors, isa

# Refusals: each names the field, what was given, what is allowed.

REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("M", {"word": idesc(96, 64)}, "M = 96, allowed: 64, 128"),
    ("M of a pair", {"opcode": F16_PAIR, "word": idesc(64, 64)}, "M = 64, allowed: 128, 256"),
    ("N", {"word": idesc(128, 0)}, "N = 0, allowed: 8 to 256 in steps of 8"),
    ("N 264", {"word": idesc(128, 264)}, "N = 264"),
    ("N, A in TMEM", {"word": idesc(128, 24), "a_in_tmem": True}, "N = 24, allowed: 16 to 256 in steps of 16"),
    ("N of .ws", {"opcode": F16_WS, "word": idesc(64, 32)}, "allowed with .ws: 64, 128, 256"),
    ("format", {"word": idesc(128, 64, 1, 2)}, "A format code 2 is reserved for kind::f16"),
    ("D format", {"word": idesc(128, 64, 0, 1, 1)}, "float16 D|D format float16 needs float16 A and B"),
    ("sparse", {"word": idesc(128, 64) | 4}, "sparse"),
    ("saturate", {"word": idesc(128, 64, sat=1)}, "saturate .bit 3. is for kind::i8 only"),
    ("reserved idesc", {"word": idesc(128, 64) | 1 << 23}, "reserved bits 0x800000 set"),
    ("shift", {"word": idesc(128, 64) | 1 << 30}, "maximal shift .* needs .ws"),
    ("swizzle code", {"b": descriptor(B_BASE, 128, 256) | 3 << 61}, "swizzle code 3 is reserved"),
    ("base offset", {"b": descriptor(B_BASE, 128, 256, 3) | 1 << 49}, "base offset .* is 1, must be 0"),
    ("LDO mode", {"b": descriptor(B_BASE, 128, 256) | 1 << 52}, "LDO mode"),
    ("reserved bits", {"a": descriptor(A_BASE, 128, 256) | 1 << 14}, "a descriptor .*reserved bits"),
    ("mode 4", {"b": descriptor(B_BASE, 128, 256, 4)}, "swizzle mode 4 is for MN-major tf32 only"),
    ("MN-major A in TMEM", {"word": idesc(128, 64, a_mn=1), "a_in_tmem": True}, "in TMEM is K-major"),
    ("lane of D", {"d": 16 << 16}, "d address: lane 16, allowed for this layout: 0"),
    ("lane of F", {"word": idesc(64, 64), "d": 32 << 16}, "lane 32, allowed for this layout: 0, 16"),
    ("columns of D", {"d": 449}, "d address: columns 449 to 512 leave TMEM"),
    ("columns of A", {"a_in_tmem": True, "a": 505}, "a address: columns 505 to 512"),
    ("lanes of A and D", {"word": idesc(64, 64), "a_in_tmem": True, "a": 16 << 16}, "differs from d's lane 0"),
    ("shared memory", {"b": descriptor(SHARED_BYTES - 256, 128, 256)}, "b descriptor: reads shared bytes"),
    ("lane mask of .ws", {"opcode": F16_WS, "disable_output_lane": [1]}, "disable_output_lane: word 0"),
    ("lane mask words", {"disable_output_lane": [0, 0, 0, 0, 1]}, "cta_group::1 has 4 words"),
    ("zero columns", {"zero_column_mask": 1}, "zero_column_mask: only .ws"),
    ("column shift", {"opcode": F16_WS, "zero_column_mask": 1 << 56}, "column shift 1 is not offered"),
    ("start count", {"opcode": F16_WS, "zero_column_mask": zero_mask((4,), (0,), 2, 3)}, "start count 4"),
    ("reserved mask", {"opcode": F16_WS, "zero_column_mask": zero_mask((0,), (0,), 2, 3) | 1 << 36}, "reserved"),
    ("scale id", {"opcode": MXF8.replace("mxf8f6f4", "mxf4").replace("1X", "2X"),
                  "word": scale_word(128, 64, 1, 0, 1, 1), "sfa": 0, "sfb": 0}, "SFA id 1, allowed"),
    ("scale lane", {"opcode": MXF8, "word": scale_word(128, 64, 0, 0), "sfa": 32 << 16}, "sfa address: lane 32"),
    ("scale columns", {"opcode": MXF8, "word": scale_word(128, 64, 0, 0), "sfb": 511}, "sfb address: columns 511"),
    ("scale type", {"opcode": MXF8, "word": scale_word(128, 64, 0, 0, ue8m0=0)}, "scale type 0"),
    ("K = 96", {"opcode": MXF8.replace("mxf8f6f4", "mxf4").replace("1X", "2X"),
                "word": scale_word(128, 64, 0, 0, 1, 1) | 1 << 31}, "K = 96"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), REFUSALS, ids=[case[0] for case in REFUSALS])
def test_refusals(name: str, changes: dict[str, Any], message: str) -> None:
    """An illegal issue says why, and leaves the memories alone; `mma_footprint` refuses it too."""
    legal = {
        "opcode": F16,
        "word": idesc(128, 64),
        "a": 400 if changes.get("a_in_tmem") else descriptor(A_BASE, 128, 256),
        "b": descriptor(B_BASE, 128, 256),
        "d": 0,
    }
    machine = Machine(2 if changes.get("opcode") == F16_PAIR else 1)
    with pytest.raises(ValueError, match=message):
        machine.issue(**(legal | changes))
    with pytest.raises(ValueError, match=message):
        machine.footprint(**(legal | changes))
    assert all((t == UNTOUCHED).all() for t in machine.tmem)


# Footprints: what they leave out does not matter, what they list does.

FOOTPRINTS = [
    (F16, idesc(64, 24), {"d": 16 << 16 | 9}),
    (F16, idesc(128, 16), {"disable_output_lane": [0xF0, 0, 0, 1], "enable_input_d": False}),
    (F16_WS, idesc(32, 64), {"a_in_tmem": True, "a": 400}),
    (F16_PAIR, idesc(128, 32), {}),
    ("tcgen05.mma.cta_group::1.kind::f8f6f4", idesc(64, 8, 0, 4, 5), {}),
    (MXF8, scale_word(128, 40, 2, 1), {"sfa": 200, "sfb": 300}),
]


@pytest.mark.parametrize(("opcode", "word", "options"), FOOTPRINTS)
def test_footprint(opcode: str, word: int, options: dict[str, Any]) -> None:
    arguments = {"a": descriptor(A_BASE, 128, 256), "b": descriptor(B_BASE, 128, 256)} | options
    ctas = 2 if opcode == F16_PAIR else 1
    rng = np.random.default_rng(0)
    machine = Machine(ctas)
    for shared, tmem in zip(machine.shared, machine.tmem, strict=True):
        shared[:] = rng.integers(0, 0x3C, SHARED_BYTES)
        tmem[:] = rng.integers(0x3F, 0x40, (128, 512)) * 0x01010101
    told = machine.footprint(opcode, word, **arguments)
    first, second = Machine(ctas), Machine(ctas)
    for cta in range(ctas):
        shared_read = np.zeros(SHARED_BYTES, bool)
        for of, address, count in told["shared_read"]:
            shared_read[address : address + count] |= of == cta
        read, written = (np.zeros((128, 512), bool) for _ in range(2))
        for mask, key in ((read, "tmem_read"), (written, "tmem_write")):
            for of, lane, column, columns in told[key]:
                mask[lane, column : column + columns] |= of == cta
        # Elsewhere the two machines differ everywhere.
        for copy, filler in ((first, 0xFF), (second, 0x55)):
            copy.shared[cta][:] = np.where(shared_read, machine.shared[cta], filler)
            copy.tmem[cta][:] = np.where(read, machine.tmem[cta], filler * 0x01010101)
        machine.shared[cta], machine.tmem[cta] = shared_read, written
    before = [t.copy() for t in second.tmem]
    first.issue(opcode, word, **arguments)
    second.issue(opcode, word, **arguments)
    for cta in range(ctas):
        written = machine.tmem[cta]
        assert written.any()
        np.testing.assert_array_equal(first.tmem[cta][written], second.tmem[cta][written])
        np.testing.assert_array_equal(
            second.tmem[cta] != before[cta], written & (second.tmem[cta] != before[cta])
        )
    assert all(count in (16, 12, 8) for _, _, count in told["shared_read"])


# Legality, against the Python tables.


def python_says(opcode: isa.Opcode, word: int, a_in_tmem: bool) -> bool:
    """Whether isa.py and descriptors.py find the instruction legal and `mma` offers it."""
    try:
        if opcode.block_scale:
            d = descriptors.BlockScaledInstructionDescriptor.decode(word, opcode.kind)
            scale, ids = d.scale_format, (d.sfa_id, d.sfb_id)
            neg, sat, d_format, k = (d.neg_a, d.neg_b), False, "float32", d.K
        else:
            d = descriptors.InstructionDescriptor.decode(word, opcode.kind)
            scale, ids, neg, sat, d_format = None, (), (d.neg_a, d.neg_b), d.sat_d, d.d_format
            k = STEP_K.get(opcode.kind, 32)
            if d.sparse or (d.max_shift and not opcode.ws):
                return False
        shape = (d.M, d.N, k)
        options = {"a_in_tmem": a_in_tmem, "a_major": d.a_major, "b_major": d.b_major}
        options |= {"neg_a": neg[0], "neg_b": neg[1], "sat_d": sat, "scale_format": scale}
        isa.legal(opcode, shape, d.a_format, d.b_format, d_format, **options)
    except ValueError:
        return False
    vec = opcode.scales_per_step(k) if opcode.block_scale else 1
    return k != 96 and all(id_ % vec == 0 for id_ in ids)


def core_says(opcode: isa.Opcode, word: int, a_in_tmem: bool, tf32: bool) -> bool:
    a_mode, b_mode = (4 if tf32 and word >> bit & 1 else 0 for bit in (15, 16))
    a = 0 if a_in_tmem else descriptor(0, 128, 256, a_mode)
    try:
        _core.mma_resolve(str(opcode), word, a, descriptor(0, 128, 256, b_mode), a_in_tmem)
    except ValueError:
        return False
    return True


OFFERED = [
    o for o in isa.opcodes() if (not o.sp and o.scale_vec is not None) or (not o.sp and not o.block_scale)
]


@pytest.mark.parametrize("opcode", OFFERED, ids=str)
def test_legality_equals_isa(opcode: isa.Opcode) -> None:
    """All M, N, majors, places of A; then all format, D, modifier, scale and reserved codes."""
    codes = {"f16": (0, 1), "tf32": (2,), "i8": (0, 1), "mxf4": (1,), "mxf4nvf4": (1,)}.get(
        opcode.kind, (0, 5)
    )
    d = {"i8": 2}.get(opcode.kind, 1)
    legal_word = 0
    disagree = []

    def word_of(m: int, n: int, a: int, b: int, majors: tuple[int, int]) -> int:
        base = (1 << 23 if opcode.block_scale else d << 4) | a << 7 | b << 10
        return base | majors[0] << 15 | majors[1] << 16 | n << 17 | m << 24

    def compare(word: int, tmem: bool) -> bool:
        python, core = python_says(opcode, word, tmem), core_says(opcode, word, tmem, opcode.kind == "tf32")
        if python != core:
            disagree.append((hex(word), tmem, python, core))
        return python

    majors = list(itertools.product((0, 1), (0, 1)))
    for m, n, tmem, code, major in itertools.product(
        range(0, 18, 2), range(34), (False, True), codes, majors
    ):
        word = word_of(m, n, code, code, major)
        if compare(word, tmem):
            legal_word = word
    assert legal_word
    for a, b, low in itertools.product(range(8), range(8), range(4)):
        compare(legal_word & ~(0x3F << 7) & ~(3 << 4) | a << 7 | b << 10 | low << 4, False)
    for bit in (*range(7), *range(13, 17), 23, *range(29, 32)):
        compare(legal_word ^ 1 << bit, False)
    assert not disagree, disagree[:5]


# Plans: hostile attributes.


def plan_lists() -> dict[str, Any]:
    """A plan of two K steps by hand: A (128, 32) and B (16, 32) float16 K-major unswizzled, D (128, 16) float32."""

    def shared(base: int, rows: int) -> list[int]:
        axes = [rows, 2, rows // 8, 8 * 8, 0, 8, 8, 0, 32, 2, 4, 8 * rows, 0, 8, 1, 0]
        return [0, 0, 2, 16, base, 64 * rows, 0, 0, 0, 0, 2, *axes, 0]

    lists = {
        "repeats": [1, 1, 2],
        "d_starts": [0],
        "a_starts": [descriptor(4096 * k, 2048, 128) for k in range(2)],
        "b_starts": [descriptor(8192 + 512 * k, 256, 128) for k in range(2)],
        "d_place": [1, 0, 4, 32, 0, 16, 0, 0, 0, 0, 2, 128, 1, 128, 1, 0, 16, 1, 16, 0, 1, 0],
        "a_place": shared(0, 128),
        "b_place": shared(8192, 16),
    }
    return {k: np.array(v, np.uint64).astype(np.int64) for k, v in lists.items()}


PLAN = {"opcode": F16, "idesc": idesc(128, 16), "shared_bytes": 9216, "tmem_columns": 16}


def test_plan_by_hand() -> None:
    rng = np.random.default_rng(0)
    a, b = small(rng, 128, 32), small(rng, 16, 32)
    d = np.arange(128 * 16, dtype=np.float32)
    arrays = {"a": a.view(np.uint8).ravel(), "b": b.view(np.uint8).ravel(), "d": d.view(np.uint8)}
    for accum, start in ((True, d.reshape(128, 16)), (False, 0)):
        out = _core.run_plan(**PLAN, lists=plan_lists(), arrays=arrays, accum=accum)
        np.testing.assert_array_equal(out.view(np.float32).reshape(128, 16), product(a, b) + start)
    kept = _core.run_plan(**PLAN, lists=plan_lists(), arrays=arrays, pred=False)
    np.testing.assert_array_equal(kept.view(np.float32), d)


BAD_PLANS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("budget", {"shared_bytes": 226 * 1024 + 1}, {}, "shared_bytes"),
    ("columns", {"tmem_columns": 513}, {}, "tmem_columns"),
    ("idesc", {"idesc": -1}, {}, "idesc"),
    ("repeats", {}, {"repeats": [1, 1]}, "repeats"),
    ("no repeats", {}, {"repeats": [0, 1, 2]}, "repeats"),
    ("huge repeats", {}, {"repeats": [2**40, 2**40, 2**40]}, "repeats"),
    ("short table", {}, {"a_starts": [0]}, "a_starts"),
    ("wide address", {}, {"d_starts": [2**32]}, "d_starts"),
    ("outside D", {}, {"d_starts": [1]}, "d_starts"),
    ("truncated", {}, {"a_place": [0, 0, 2]}, "a_place: ends before"),
    ("empty", {}, {"b_place": []}, "b_place"),
    ("B in TMEM", {}, {"b_place": [1, 0, 2, 16, 0, 0, 0, 0, 0, 0, 0, 0]}, "b_place"),
    ("scales", {}, {"sfa_place": [1]}, "sfa_place: scales given"),
    ("overlap", {}, {"b_place": ("base", 4096)}, "overlaps"),
    ("outside shared", {}, {"a_place": ("base", 9000)}, "a_place: size"),
    ("element outside", {}, {"a_place": ("size", 8000)}, "a_place: elements"),
    ("item", {}, {"a_place": ("item_bytes", 4)}, "a_place: 4-byte items"),
    ("no padding of half", {}, {"a_place": ("packing", 1)}, "a_place"),
    ("origin", {}, {"a_place": ("origin", 1)}, "a_place: elements"),
    ("swizzle leaves", {}, {"a_place": ("swizzle", [1 << 11, -1])}, "a_place: elements"),
]
PLACE_FIELDS = {"packing": 1, "item_bytes": 2, "base": 4, "size": 5, "origin": 6, "swizzle": slice(8, 10)}


@pytest.mark.parametrize(
    ("name", "scalars", "changes", "message"), BAD_PLANS, ids=[case[0] for case in BAD_PLANS]
)
def test_bad_plans(name: str, scalars: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    lists = plan_lists()
    for key, change in changes.items():
        if isinstance(change, tuple):
            lists[key][PLACE_FIELDS[change[0]]] = change[1]
        else:
            lists[key] = np.array(change, np.int64)
    with pytest.raises(ValueError, match=message):
        _core.check_plan(**(PLAN | scalars), lists=lists)


def test_forged_plans_never_crash() -> None:
    """Random numbers in random places of a good plan: refused, or run."""
    rng = np.random.default_rng(0)
    arrays = {"a": np.zeros(8192, np.uint8), "b": np.zeros(1024, np.uint8), "d": np.zeros(8192, np.uint8)}
    refused = 0
    for _ in range(3000):
        lists = plan_lists()
        for _ in range(rng.integers(1, 4)):
            key = rng.choice(list(lists))
            value = rng.choice(
                [-1, 0, 1, 2, 3, 5, 127, 128, 513, 2**31, 2**62, -(2**63), int(rng.integers(0, 9999))]
            )
            lists[key][rng.integers(len(lists[key]))] = value
        try:
            _core.run_plan(**PLAN, lists=lists, arrays=arrays)
        except ValueError:
            refused += 1
    assert 1500 < refused < 3000
