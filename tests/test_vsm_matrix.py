"""Warp-level matrices on the virtual SM: mma.sync, wmma, ldmatrix, stmatrix, movmatrix.

Fragments are packed here by the formulas of PTX ISA 9.7.14.5, sums are exact integers, and the arithmetic is held
against outputs of a B200 (tests/data/vectors.npz, taken through wmma)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jax_tcgen05 import vsm

#: (index of an element in its lane, lane) -> (row, column)
Place = Callable[[int, int], tuple[int, int]]
HEADER = ".version 9.1\n.target sm_100a\n.address_size 64\n"
VECTORS = np.load(Path(__file__).parent / "data" / "vectors.npz")

#: name: (bits of an element, from numbers to codes)
ELEMENTS = {
    "f16": (16, lambda x: x.astype(np.float16).view(np.uint16)),
    "bf16": (16, lambda x: x.astype(ml_dtypes.bfloat16).view(np.uint16)),
    "tf32": (32, lambda x: x.astype(np.float32).view(np.uint32)),
    "f32": (32, lambda x: x.astype(np.float32).view(np.uint32)),
    "e4m3": (8, lambda x: x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)),
    "e5m2": (8, lambda x: x.astype(ml_dtypes.float8_e5m2).view(np.uint8)),
    "s8": (8, lambda x: x.astype(np.int8).view(np.uint8)),
    "u8": (8, lambda x: x.astype(np.uint8)),
    "s4": (4, lambda x: (x & 15).astype(np.uint8)),
    "u4": (4, lambda x: x.astype(np.uint8)),
    "b1": (1, lambda x: x.astype(np.uint8)),
    "s32": (32, lambda x: x.astype(np.int32).view(np.uint32)),
    "f64": (64, lambda x: x.astype(np.float64).view(np.uint64)),
}
UNSIGNED = {"u8", "u4", "b1"}


def operand_place(i: int, lane: int, per: int, rows: int) -> tuple[int, int]:
    """Row (of A; column of B) and k of the i-th element of a lane, `per` elements to a register."""
    register, e = divmod(i, per)
    group, thread = divmod(lane, 4)
    if rows == 16:
        return group + 8 * (register % 2), thread * per + e + 4 * per * (register // 2)
    return group, thread * per + e + 4 * per * register


def accumulator_place(i: int, lane: int) -> tuple[int, int]:
    """Row and column of the i-th accumulator of a lane of an m16n8 or m8n8 product."""
    return lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2


def pack(matrix: np.ndarray, bits: int, place: Place) -> np.ndarray:
    """Registers [lane][register] of a matrix of codes whose elements lie at `place(i, lane)`."""
    per = max(32 // bits, 1)
    count = matrix.size // 32
    out = np.zeros((32, -(-count // per)), np.uint64 if bits == 64 else np.uint32)
    for lane in range(32):
        for i in range(count):
            out[lane, i // per] |= out.dtype.type(int(matrix[place(i, lane)]) << (bits * (i % per) % 64))
    return out


def unpack(registers: np.ndarray, bits: int, shape: tuple[int, int], place: Place) -> np.ndarray:
    per = max(32 // bits, 1)
    out = np.zeros(shape, f"u{bits // 8}")
    for lane in range(32):
        for i in range(shape[0] * shape[1] // 32):
            out[place(i, lane)] = int(registers[lane, i // per]) >> (bits * (i % per) % 64) & (
                (1 << bits) - 1
            )
    return out


def register_kernel(instruction: str, inputs: tuple[tuple[int, int], ...], output: tuple[int, int]) -> str:
    """One warp per CTA: loads the register vectors {0}, {1}, ... of (count, bytes) each, and stores {d}."""
    body, names = [], []
    for n, (count, size) in enumerate((*inputs, output)):
        name = f"x{n}" if n < len(inputs) else "d"
        body.append(f".reg .b{8 * size} %{name}_<{count}>; ld.param.u64 %base, [p{n}];")
        body.append(
            f"mad.lo.u32 %i, %block, {32 * count * size}, 0; mad.lo.u32 %i, %lane, {count * size}, %i;"
        )
        body.append(f"cvt.u64.u32 %at, %i; add.u64 %at{n}, %base, %at;")
        names.append("{" + ", ".join(f"%{name}_{k}" for k in range(count)) + "}")
        if n < len(inputs):
            body += [f"ld.global.b{8 * size} %{name}_{k}, [%at{n}+{k * size}];" for k in range(count)]
    last = len(inputs)
    body.append(instruction.format(*names[:-1], d=names[-1]))
    body += [f"st.global.b{8 * output[1]} [%at{last}+{k * output[1]}], %d_{k};" for k in range(output[0])]
    params = ", ".join(f".param .u64 p{n}" for n in range(last + 1))
    return (
        f"{HEADER}.visible .entry k({params}) {{\n.reg .b32 %i, %lane, %block; .reg .b64 %base, %at, %at<{last + 1}>;\n"
        "mov.u32 %lane, %tid.x; mov.u32 %block, %ctaid.x;\n" + "\n".join(body) + "\nret;\n}\n"
    )


def run_registers(instruction: str, inputs: list[np.ndarray], count: int, dtype: type) -> np.ndarray:
    """The instruction on arrays [warp][lane][register]; the result has `count` registers."""
    inputs = [np.ascontiguousarray(x if x.ndim == 3 else x[None]) for x in inputs]
    sizes = tuple((x.shape[2], x.dtype.itemsize) for x in inputs)
    out = np.zeros((inputs[0].shape[0], 32, count), dtype)
    module = vsm.Module(register_kernel(instruction, sizes, (count, out.dtype.itemsize)))
    module.launch("k", grid=len(out), block=32, args=(*inputs, out))
    return out


def mma(
    a_type: str,
    b_type: str,
    c_type: str,
    shape: tuple[int, int, int],
    a,
    b,
    c,
    suffix: str = "",
    kind: str = "",
) -> np.ndarray:
    """Codes of D of one mma.sync; a: m x k, b: k x n, c: m x n codes."""
    m, n, k = shape
    width, c_width = ELEMENTS[a_type][0], ELEMENTS[c_type][0]
    per = max(32 // width, 1)
    regs = [
        pack(a, width, lambda i, lane: operand_place(i, lane, per, m)),
        pack(b.T, width, lambda i, lane: operand_place(i, lane, per, n)),
        pack(c, c_width, accumulator_place),
    ]
    satfinite = ".satfinite" if suffix == ".satfinite" else ""
    tail = "" if satfinite else suffix
    tag = f"m{m}n{n}k{k}.row.col{kind}{satfinite}.{c_type}.{a_type}.{b_type}.{c_type}{tail}"
    text = f"mma.sync.aligned.{tag} {{d}}, {{0}}, {{1}}, {{2}};"
    d = run_registers(text, regs, regs[2].shape[1], regs[2].dtype)
    return unpack(d[0], c_width, (m, n), accumulator_place)


def numbers(rng: np.random.Generator, name: str, shape: tuple[int, int]) -> np.ndarray:
    low, high = (
        (0, 2) if name == "b1" else (0, 8) if name in UNSIGNED else (-8, 8) if name == "s4" else (-4, 5)
    )
    return rng.integers(low, high, shape)


SHAPES = [
    *[(t, t, c, s) for t in ("f16",) for c in ("f16", "f32") for s in ((16, 8, 8), (16, 8, 16))],
    *[("bf16", "bf16", "f32", s) for s in ((16, 8, 8), (16, 8, 16))],
    *[("tf32", "tf32", "f32", s) for s in ((16, 8, 4), (16, 8, 8))],
    *[
        (a, b, c, s)
        for a, b, c in (("e4m3", "e4m3", "f32"), ("e5m2", "e4m3", "f32"), ("e4m3", "e5m2", "f16"))
        for s in ((16, 8, 16), (16, 8, 32))
    ],
    *[
        (a, b, "s32", s)
        for a, b in (("s8", "s8"), ("u8", "s8"), ("s8", "u8"))
        for s in ((8, 8, 16), (16, 8, 16), (16, 8, 32))
    ],
    *[
        (a, b, "s32", s)
        for a, b in (("s4", "s4"), ("u4", "s4"))
        for s in ((8, 8, 32), (16, 8, 32), (16, 8, 64))
    ],
    *[("f64", "f64", "f64", s) for s in ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16))],
]


@pytest.mark.parametrize("a_type, b_type, c_type, shape", SHAPES, ids=str)
def test_small_integers_are_exact(a_type: str, b_type: str, c_type: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k * 7 + m)
    a, b, c = numbers(rng, a_type, (m, k)), numbers(rng, b_type, (k, n)), rng.integers(-9, 10, (m, n))
    encode = ELEMENTS[c_type][1]
    d = mma(a_type, b_type, c_type, shape, ELEMENTS[a_type][1](a), ELEMENTS[b_type][1](b), encode(c))
    np.testing.assert_array_equal(d, encode(a @ b + c))


@pytest.mark.parametrize("op", ["and", "xor"])
@pytest.mark.parametrize("shape", [(8, 8, 128), (16, 8, 128), (16, 8, 256)], ids=str)
def test_one_bit_products_count_bits(op: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b, c = rng.integers(0, 2, (m, k)), rng.integers(0, 2, (k, n)), rng.integers(-99, 99, (m, n))
    d = mma("b1", "b1", "s32", shape, a, b, c.astype(np.int32).view(np.uint32), f".{op}.popc")
    count = a @ b if op == "and" else (a[:, :, None] != b[None]).sum(axis=1)
    np.testing.assert_array_equal(d.view(np.int32), count + c)


def test_integer_sums_wrap_or_saturate() -> None:
    a, b = np.full((16, 16), 127, np.int8).view(np.uint8), np.full((16, 8), 127, np.int8).view(np.uint8)
    c = np.full((16, 8), 2**31 - 1, np.uint32)
    exact = 2**31 - 1 + 16 * 127 * 127
    assert (mma("s8", "s8", "s32", (16, 8, 16), a, b, c) == exact % 2**32).all()
    assert (mma("s8", "s8", "s32", (16, 8, 16), a, b, c, ".satfinite") == 2**31 - 1).all()


def dots(
    name: str, shape: tuple[int, int, int], a: np.ndarray, b: np.ndarray, c: np.ndarray, c_type: str
) -> np.ndarray:
    """Dot products as diagonals of mma.sync products, eight per warp."""
    m, n, k = shape
    width, c_width = ELEMENTS[name][0], ELEMENTS[c_type][0]
    per = 32 // width
    warps = -(-len(a) // 8)
    a_regs, b_regs, c_regs = [], [], []
    for warp in range(warps):
        part = slice(8 * warp, 8 * warp + 8)
        left, right, add = np.zeros((m, k), a.dtype), np.zeros((n, k), b.dtype), np.zeros((m, n), c.dtype)
        count = len(a[part])
        left[:count], right[:count] = a[part], b[part]
        add[np.arange(count), np.arange(count)] = c[part]
        a_regs.append(pack(left, width, lambda i, lane: operand_place(i, lane, per, m)))
        b_regs.append(pack(right, width, lambda i, lane: operand_place(i, lane, per, n)))
        c_regs.append(pack(add, c_width, accumulator_place))
    text = (
        f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{c_type}.{name}.{name}.{c_type} {{d}}, {{0}}, {{1}}, {{2}};"
    )
    regs = [np.stack(x) for x in (a_regs, b_regs, c_regs)]
    d = run_registers(text, regs, regs[2].shape[2], np.uint32)
    results = [unpack(x, c_width, (m, n), accumulator_place)[np.arange(8), np.arange(8)] for x in d]
    return np.concatenate(results)[: len(a)]


@pytest.mark.parametrize(
    "name, k, c_type", [("f16", 16, "f32"), ("f16", 16, "f16"), ("bf16", 16, "f32"), ("tf32", 8, "f32")]
)
def test_sums_are_those_of_a_b200(name: str, k: int, c_type: str) -> None:
    chosen = VECTORS["b200.combo"] == list(VECTORS["b200.combos"]).index(f"{name}_{c_type}")
    a, b, c, d = (VECTORS[f"b200.{field}"][chosen] for field in "ABCD")
    assert len(d) > 100
    a, b = (x[:, :: x.shape[1] // k] for x in (a, b))  # stacked with longer sums, entries were repeated
    np.testing.assert_array_equal(dots(name, (16, 8, k), a, b, c, c_type), d)


def test_fp8_adds_the_accumulator_by_a_rounded_addition() -> None:
    """A B200's mma.sync does: one fused sum would cut 1.5 * 2**-24 off (numerics.md 6.C)."""
    a, b = np.zeros((16, 32)), np.zeros((32, 8))
    a[:, 3] = b[3] = 1
    c = np.full((16, 8), 1.5 * 2**-24, np.float32)
    encode = ELEMENTS["e4m3"][1]
    d = mma("e4m3", "e4m3", "f32", (16, 8, 32), encode(a), encode(b), c.view(np.uint32))
    np.testing.assert_array_equal(d.view(np.float32), np.float32(1 + 2**-23))
    again = mma(
        "e4m3", "e4m3", "f32", (16, 8, 32), encode(a), encode(b), c.view(np.uint32), kind=".kind::f8f6f4"
    )
    np.testing.assert_array_equal(again, d)


def test_special_values_give_the_canonical_nan() -> None:
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    a[0, 0], b[0, 0] = np.inf, 0
    encode = ELEMENTS["f16"][1]
    d = mma("f16", "f16", "f32", (16, 8, 16), encode(a), encode(b), np.zeros((16, 8), np.uint32))
    assert d[0, 0] == 0x7FFFFFFF
    assert d[1, 0] == 0


# ---- wmma ----

WMMA = [
    *[("f16", d, c, s) for d in ("f16", "f32") for c in ("f16", "f32") for s in ((16, 16, 16),)],
    *[("f16", "f32", "f32", s) for s in ((32, 8, 16), (8, 32, 16))],
    *[("bf16", "f32", "f32", s) for s in ((16, 16, 16), (32, 8, 16), (8, 32, 16))],
    ("tf32", "f32", "f32", (16, 16, 8)),
    *[(t, "s32", "s32", s) for t in ("s8", "u8") for s in ((16, 16, 16), (32, 8, 16), (8, 32, 16))],
    ("f64", "f64", "f64", (8, 8, 4)),
    ("s4", "s32", "s32", (8, 8, 32)),
    ("u4", "s32", "s32", (8, 8, 32)),
]


def wmma_registers(name: str, rows: int, columns: int) -> int:
    if name == "f16":
        return 8
    return rows * columns // 32 // max(32 // ELEMENTS[name][0], 1)


def laid_out(matrix: np.ndarray, bits: int, row_major: bool, stride: int) -> np.ndarray:
    """Bytes of a matrix of codes in memory with the given stride in elements; gaps are filled with ones."""
    lines = matrix if row_major else matrix.T
    out = np.full((lines.shape[0], stride), (1 << min(bits, 8)) - 1 if bits < 16 else 0x55, matrix.dtype)
    out[:, : lines.shape[1]] = lines
    if bits == 4:
        out = (out[:, ::2] | out[:, 1::2] << 4).astype(np.uint8)
    return out


#: Layouts of A, B, and C and D; operands below a byte have the first ones only.
LAYOUTS = (("row", "col", "row"), ("col", "row", "col"))


@pytest.mark.parametrize(
    "name, d_type, c_type, shape, layouts",
    [(*case, x) for case in WMMA for x in LAYOUTS[: 1 if ELEMENTS[case[0]][0] < 8 else 2]],
    ids=str,
)
def test_wmma(
    name: str, d_type: str, c_type: str, shape: tuple[int, int, int], layouts: tuple[str, str, str]
) -> None:
    m, n, k = shape
    bits = ELEMENTS[name][0]
    rng = np.random.default_rng(m + k)
    a, b, c = numbers(rng, name, (m, k)), numbers(rng, name, (k, n)), rng.integers(-9, 10, (m, n))
    row = [x == "row" for x in layouts]
    strides = [(x.shape[1] if r else x.shape[0]) + 32 for x, r in zip((a, b, c), row, strict=True)]
    codes = [ELEMENTS[t][1](x) for t, x in ((name, a), (name, b), (c_type, c))]
    widths = [bits, bits, ELEMENTS[c_type][0]]
    arrays = [laid_out(x, w, r, s) for x, w, r, s in zip(codes, widths, row, strides, strict=True)]
    d_lines = (m, n) if row[2] else (n, m)
    d = np.zeros((d_lines[0], d_lines[1] + 32), f"u{ELEMENTS[d_type][0] // 8}")
    counts = [wmma_registers(name, m, k), wmma_registers(name, n, k)]
    counts += [m * n // 32 // (2 if t == "f16" else 1) for t in (c_type, d_type)]
    size = "b64" if name == "f64" else "b32"
    registers = "".join(f".reg .{size} %{x}<{count}>;" for x, count in zip("abcd", counts, strict=True))
    lists = {
        x: "{" + ",".join(f"%{x}{i}" for i in range(count)) + "}"
        for x, count in zip("abcd", counts, strict=True)
    }
    tag = f"m{m}n{n}k{k}"
    types = f"{d_type}.{c_type}" if name == "f16" else f"{d_type}.{name}.{name}.{c_type}"
    text = f"""{HEADER}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
.reg .b64 %p<4>; .reg .b32 %stride; {registers}
ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u64 %p2, [c]; ld.param.u64 %p3, [d];
mov.u32 %stride, {strides[0]};
wmma.load.a.sync.aligned.{layouts[0]}.{tag}.global.{name} {lists["a"]}, [%p0], %stride;
wmma.load.b.sync.aligned.{layouts[1]}.{tag}.{name} {lists["b"]}, [%p1], {strides[1]};
wmma.load.c.sync.aligned.{layouts[2]}.{tag}.global.{c_type} {lists["c"]}, [%p2], {strides[2]};
wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{tag}.{types} {lists["d"]}, {lists["a"]}, {lists["b"]}, {lists["c"]};
wmma.store.d.sync.aligned.{layouts[2]}.{tag}.global.{d_type} [%p3], {lists["d"]}, {d.shape[1]};
ret; }}"""
    vsm.Module(text).launch("k", grid=1, block=32, args=(*arrays, d))
    expected = ELEMENTS[d_type][1](a @ b + c)
    np.testing.assert_array_equal(d[:, : d_lines[1]], expected if row[2] else expected.T)
    assert not d[:, d_lines[1] :].any()


# ---- ldmatrix, stmatrix, movmatrix ----


def shared_kernel(count: int, body: str) -> str:
    """One warp: copies 1024 bytes from p to shared memory, runs `body` with %row (a permuted row of 16 bytes per
    lane) and the registers %r0.., and stores `count` of them (p2), and the 1024 bytes (p3)."""
    stores = "\n".join(f"st.global.b32 [%q+{4 * i}], %r{i};" for i in range(count))
    return f"""{HEADER}.visible .entry k(.param .u64 p, .param .u64 p2, .param .u64 p3) {{
.reg .b64 %p, %q, %s, %u; .reg .b32 %lane, %i, %row, %base, %r<8>; .reg .b128 %v; .reg .pred %more;
.shared .align 16 .b8 memory[1024];
mov.u32 %lane, %tid.x; mov.u32 %base, memory;
ld.param.u64 %p, [p]; ld.param.u64 %q, [p2]; ld.param.u64 %s, [p3];
mul.wide.u32 %u, %lane, 4;
add.u64 %p, %p, %u; add.u64 %s, %s, %u;
mad.lo.u32 %i, %lane, 4, %base;
.reg .b32 %t<8>;
{"".join(f"ld.global.b32 %t{k}, [%p+{128 * k}]; st.shared.b32 [%i+{128 * k}], %t{k};" for k in range(8))}
bar.warp.sync -1;
mul.wide.u32 %u, %lane, {4 * count}; add.u64 %q, %q, %u;
mul.lo.u32 %row, %lane, 5; and.b32 %row, %row, 31; mad.lo.u32 %row, %row, 32, %base;
{"".join(f"ld.global.b32 %r{i}, [%q+{4 * i}];" for i in range(count))}
{body}
{stores}
bar.warp.sync -1;
{"".join(f"ld.shared.b32 %t{k}, [%i+{128 * k}]; st.global.b32 [%s+{128 * k}], %t{k};" for k in range(8))}
ret; }}"""


def lane_row(lane: int) -> int:
    """Byte offset of the row that a lane names in `shared_kernel`."""
    return (lane * 5 & 31) * 32


def run_shared(body: str, memory: np.ndarray, registers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    registers, after = registers.copy(), np.zeros(1024, np.uint8)
    vsm.Module(shared_kernel(registers.shape[1], body)).launch(
        "k", grid=1, block=32, args=(memory, registers, after)
    )
    return registers, after


def names(count: int) -> str:
    return "{" + ", ".join(f"%r{i}" for i in range(count)) + "}"


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix(count: int, trans: str) -> None:
    memory = np.random.default_rng(count).integers(0, 256, 1024).astype(np.uint8)
    r, _ = run_shared(
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names(count)}, [%row];",
        memory,
        np.zeros((32, count), np.uint32),
    )
    for lane in range(32):
        for j in range(count):
            rows = [memory[lane_row(8 * j + i) :][:16].view(np.uint16) for i in range(8)]
            places = [(lane // 4, lane % 4 * 2 + e) for e in range(2)]
            low, high = (int(rows[y][x]) if not trans else int(rows[x][y]) for y, x in places)
            assert r[lane, j] == low | high << 16


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_is_the_inverse_of_ldmatrix(count: int, trans: str) -> None:
    rng = np.random.default_rng(count)
    memory, values = (
        rng.integers(0, 256, 1024).astype(np.uint8),
        rng.integers(0, 2**32, (32, count), dtype=np.uint32),
    )
    _, after = run_shared(
        f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%row], {names(count)};", memory, values
    )
    r, _ = run_shared(
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names(count)}, [%row];",
        after,
        np.zeros((32, count), np.uint32),
    )
    np.testing.assert_array_equal(r, values)
    written = np.concatenate([np.arange(16) + lane_row(i) for i in range(8 * count)])
    others = np.setdiff1d(np.arange(1024), written)
    np.testing.assert_array_equal(after[others], memory[others])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_byte_matrices_transposed(count: int) -> None:
    """stmatrix.m16n8: the accumulator fragment of m16n8 in bytes, column by column (CuTe's SM100_U8x4_STSM_T)."""
    rng = np.random.default_rng(count)
    values = rng.integers(0, 2**32, (32, count), dtype=np.uint32)
    _, after = run_shared(
        f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%row], {names(count)};",
        np.zeros(1024, np.uint8),
        values,
    )
    for lane in range(32):
        for j in range(count):
            for e in range(4):
                row, column = accumulator_place(e, lane)
                assert after[lane_row(8 * j + column) + row] == int(values[lane, j]) >> (8 * e) & 255


@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_of_16_by_16_bytes(count: int) -> None:
    """Lane (g, t) receives rows g and g + 8 of the transposed matrix, columns 4t..4t+3, two columns per register
    (CuTe's SM100_U8x8_LDSM_T)."""
    memory = np.random.default_rng(count).integers(0, 256, 1024).astype(np.uint8)
    n = 2 * count
    r, _ = run_shared(
        f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {names(n)}, [%row];",
        memory,
        np.zeros((32, n), np.uint32),
    )
    for lane in range(32):
        g, t = divmod(lane, 4)
        for j in range(n):
            columns = [16 * (j // 2) + 4 * t + 2 * (j % 2) + e % 2 for e in range(4)]
            expected = [int(memory[lane_row(c) + g + 8 * (e // 2)]) for e, c in enumerate(columns)]
            assert r[lane, j] == int.from_bytes(bytes(expected), "little")


@pytest.mark.parametrize("bits, packing", [(4, "b4x16_p64"), (6, "b6x16_p32")])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_unpacks_narrow_elements(bits: int, packing: str, count: int) -> None:
    memory = np.random.default_rng(bits).integers(0, 256, 1024).astype(np.uint8)
    body = f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.{packing} {names(count)}, [%row];"
    r, _ = run_shared(body, memory, np.zeros((32, count), np.uint32))
    for lane in range(32):
        for j in range(count):
            row = int.from_bytes(memory[lane_row(8 * j + lane // 4) :][:16].tobytes(), "little")
            elements = [row >> (bits * (lane % 4 * 4 + e)) & ((1 << bits) - 1) for e in range(4)]
            assert r[lane, j] == int.from_bytes(bytes(x << 2 if bits == 4 else x for x in elements), "little")


def test_movmatrix_transposes() -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000 + 7
    d = run_registers(
        "movmatrix.sync.aligned.m8n8.trans.b16 {d}, {0};".replace("{d}", "%d_0").replace("{0}", "%x0_0"),
        [np.ascontiguousarray(matrix).view(np.uint32).reshape(32, 1)],
        1,
        np.uint32,
    )
    np.testing.assert_array_equal(np.ascontiguousarray(d).view(np.uint16).reshape(8, 8), matrix.T)


# ---- refusals ----

REFUSED = [
    (
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {0}, {0}, {0}, {0};",
        "shape .m8n8k4 does not exist for .f16",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {0}, {0}, {0}, {0};",
        "A and B cannot be .f16 and .bf16",
    ),
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 {0}, {0}, {0}, {0};",
        "accumulators cannot be .f16 and .f32",
    ),
    ("mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32 {0}, {0}, {0}, {0};", ".row.col"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e2m1.f32 {0}, {0}, {0}, {0};", "sm_120 only"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {0}, {0}, {0}, {0};", "A needs 4 registers, found 2"),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {0}, {0}, {0}, {0};", "sparse"),
    ("wgmma.fence.sync.aligned;", "sm_90a only"),
    ("ldmatrix.sync.aligned.m16n16.x1.shared.b8 {0}, [%i];", ".m16n16 needs .trans"),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {0}, [%i];", "needs 4 registers, found 2"),
    ("ldmatrix.sync.aligned.m8n8.x2.global.b16 {0}, [%i];", "only shared memory"),
    ("stmatrix.sync.aligned.m16n8.x2.shared.b8 [%i], {0};", ".m16n8 needs .trans"),
    ("wmma.load.a.sync.aligned.row.m16n16k8.f16 {0}, [%at];", "shape .m16n16k8 does not exist for .f16"),
    ("wmma.load.b.sync.aligned.row.m8n8k32.s4 {0}, [%at];", "B in .col"),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.e4m3.e4m3.f32 {0}, {0}, {0}, {0};", "A and B cannot be"),
]


@pytest.mark.parametrize("text, message", REFUSED, ids=[m for _, m in REFUSED])
def test_refusals_name_the_reason(text: str, message: str) -> None:
    kernel = register_kernel(text.replace("{0}", "{{%x0_0, %x0_1}}"), ((2, 4),), (1, 4))
    with pytest.raises(vsm.LoadError, match="line ") as error:
        vsm.Module(kernel)
    assert message in str(error.value)


def test_a_warp_with_missing_threads_is_an_error() -> None:
    with pytest.raises(vsm.ExecutionError, match="needs all 32 threads of the warp, 16 execute it"):
        vsm.Module(
            f"{HEADER}.visible .entry k() {{ .reg .b32 %r<2>; movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1; ret; }}"
        ).launch("k", grid=1, block=16, args=())


def test_rows_must_be_aligned() -> None:
    body = "add.u32 %row, %row, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%row];"
    with pytest.raises(vsm.ExecutionError, match="not aligned to 16 bytes"):
        run_shared(body, np.zeros(1024, np.uint8), np.zeros((32, 1), np.uint32))
