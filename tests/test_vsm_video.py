"""SIMD video instructions against the ISA's pseudocode (PTX ISA 9.7.18.2, 9.7.18.3), in Python integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from vsm_lanes import lanes, refusal

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vavrg": lambda a, b: (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
EDGES = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7F80FF01, 0x80007FFF, 0xFFFFFFFF, 0x01020304]


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    pairs = [*itertools.product(EDGES, EDGES), *rng.integers(0, 1 << 32, (200, 2)).tolist()]
    a, b = np.array(pairs, np.uint32).T
    return a, b, rng.integers(0, 1 << 32, a.size, dtype=np.uint32)


def pieces(word: int, n: int, kind: str) -> list[int]:
    bits = 32 // n
    values = [word >> (bits * i) & ((1 << bits) - 1) for i in range(n)]
    return [v - (1 << bits) if kind == "s32" and v >> (bits - 1) else v for v in values]


def expected(values: list[int], n: int, c: int, add: bool, saturate: str | None) -> int:
    bits = 32 // n
    if saturate:
        least, most = (
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if saturate == "s32" else (0, (1 << bits) - 1)
        )
        values = [min(max(v, least), most) for v in values]
    if add:
        return (c + sum(values)) % (1 << 32)
    return sum((v % (1 << bits)) << (bits * i) for i, v in enumerate(values))


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic(name: str, n: int) -> None:
    a, b, c = operands()
    for types, form in itertools.product(itertools.product(("u32", "s32"), repeat=3), ("", ".sat", ".add")):
        result, left, right = types
        body = f"{name}{n}.{result}.{left}.{right}{form} {{d}}, {{0}}, {{1}}, {{2}};"
        got = lanes(body, a, b, c, out=np.uint32)
        want = [
            expected(
                list(map(OPERATIONS[name], pieces(x, n, left), pieces(y, n, right))),
                n,
                z,
                form == ".add",
                result if form == ".sat" else None,
            )
            for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(got, np.array(want, np.uint32), err_msg=body)


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_comparisons(comparison: str, n: int) -> None:
    a, b, c = operands()
    for left, right, form in itertools.product(("u32", "s32"), ("u32", "s32"), ("", ".add")):
        body = f"vset{n}.{left}.{right}.{comparison}{form} {{d}}, {{0}}, {{1}}, {{2}};"
        got = lanes(body, a, b, c, out=np.uint32)
        want = [
            expected(
                [
                    int(COMPARISONS[comparison](p, q))
                    for p, q in zip(pieces(x, n, left), pieces(y, n, right), strict=True)
                ],
                n,
                z,
                form == ".add",
                None,
            )
            for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(got, np.array(want, np.uint32), err_msg=body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("vadd4.u32.u32 {d}, {0}, {1}, {2};", "type"),
        ("vadd4.u32.u32.u64 {d}, {0}, {1}, {2};", "u64"),
        ("vadd4.u32.u32.u32 {d}, {0}, {1};", "operands"),
        ("vadd4.u32.u32.u32.sat.add {d}, {0}, {1}, {2};", "sat"),
        ("vset4.u32.u32.hi {d}, {0}, {1}, {2};", "needs one of"),
        ("vadd.u32.u32.u32 {d}, {0}, {1};", "scalar video instructions"),
    ],
)
def test_refusals(body: str, message: str) -> None:
    assert message in refusal(body, (4, 4, 4), 4)
