"""Integer, logic and bit-field instructions of the virtual SM over edge values, against Python's own integers."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from vsm_lanes import lanes, refusal

EDGES = {
    8: (0, 1, 0x7F, 0x80, 0xFF),
    16: (0, 1, 2, 0x7F, 0x80, 0xFF, 0x5A5A, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF),
    32: (
        0,
        1,
        2,
        7,
        0xFFFF,
        0x10000,
        0x12345678,
        2**31 - 2,
        2**31 - 1,
        2**31,
        2**31 + 1,
        0xDEADBEEF,
        2**32 - 1,
    ),
    64: (0, 1, 3, 2**32 - 1, 2**32, 0x123456789ABCDEF0, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1),
}
#: Shift distances, positions and lengths, beyond the width too; their upper bits are sometimes set.
COUNTS = (0, 1, 5, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 255, 256, 300, 0x80000000, 0xFFFFFFFF)
TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")

Function = Callable[..., int]


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def value(x: int, t: str) -> int:
    """The bits `x` read as type `t`."""
    bits = int(t[1:])
    return signed(x, bits) if t[0] == "s" else x & ((1 << bits) - 1)


def clamp(x: int, t: str) -> int:
    bits = int(t[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if t[0] == "s" else (0, (1 << bits) - 1)
    return min(max(x, low), high)


def quotient(a: int, b: int) -> int:
    """Division that rounds towards zero, as PTX does."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def table(kinds: tuple[int | tuple[int, ...], ...]) -> list[np.ndarray]:
    """Every combination of the operands' values, one array per operand. A kind: bits, or (bits, values...)."""
    columns = [EDGES[k] if isinstance(k, int) else k[1:] for k in kinds]
    rows = list(itertools.product(*columns))
    bits = [k if isinstance(k, int) else k[0] for k in kinds]
    return [np.array([row[i] for row in rows], f"u{b // 8}") for i, b in enumerate(bits)]


def check(body: str, kinds: tuple[int | tuple[int, ...], ...], out: int, expected: Function) -> None:
    operands = table(kinds)
    got = lanes(body, *operands, out=np.dtype(f"u{out // 8}"))
    rows = list(zip(*(o.tolist() for o in operands), strict=True))
    want = [expected(*row) for row in rows]
    for row, g, w in zip(rows, got.tolist(), want, strict=True):
        if w is not None:
            assert g == w & ((1 << out) - 1), f"{body} of {[hex(x) for x in row]}: {g:#x}, expected {w:#x}"


Row = tuple[str, tuple[int | tuple[int, ...], ...], int, Function]


def arithmetic() -> Iterator[Row]:
    for t in TYPES:
        n = int(t[1:])

        def typed(f: Function, t: str = t) -> Function:
            return lambda *x: f(*(value(v, t) for v in x))

        two = {
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul.lo": lambda a, b: a * b,
            "mul.hi": lambda a, b, n=n: a * b >> n,
            "div": lambda a, b: quotient(a, b) if b else None,  # a zero divisor has no defined result
            "rem": lambda a, b: a - b * quotient(a, b) if b else None,
            "min": min,
            "max": max,
        }
        for name, f in two.items():
            yield f"{name}.{t} {{d}}, {{0}}, {{1}};", (n, n), n, typed(f)
        three = {
            "sad": lambda a, b, c: c + abs(a - b),
            "mad.lo": lambda a, b, c: a * b + c,
            "mad.hi": lambda a, b, c, n=n: (a * b >> n) + c,
        }
        for name, f in three.items():
            yield f"{name}.{t} {{d}}, {{0}}, {{1}}, {{2}};", (n, n, n), n, typed(f)
        if n < 64:
            yield f"mul.wide.{t} {{d}}, {{0}}, {{1}};", (n, n), 2 * n, typed(lambda a, b: a * b)
            yield (
                f"mad.wide.{t} {{d}}, {{0}}, {{1}}, {{2}};",
                (n, n, 2 * n),
                2 * n,
                lambda a, b, c, t=t: value(a, t) * value(b, t) + c,
            )
        if t[0] == "s":
            yield f"abs.{t} {{d}}, {{0}};", (n,), n, typed(abs)
            yield f"neg.{t} {{d}}, {{0}};", (n,), n, typed(lambda a: -a)
    s = lambda f: lambda *x: f(*(signed(v, 32) for v in x))  # noqa: E731
    yield "add.sat.s32 {d}, {0}, {1};", (32, 32), 32, s(lambda a, b: clamp(a + b, "s32"))
    yield "sub.sat.s32 {d}, {0}, {1};", (32, 32), 32, s(lambda a, b: clamp(a - b, "s32"))
    yield (
        "mad.hi.sat.s32 {d}, {0}, {1}, {2};",
        (32, 32, 32),
        32,
        s(lambda a, b, c: clamp((a * b >> 32) + c, "s32")),
    )
    yield "min.relu.s32 {d}, {0}, {1};", (32, 32), 32, s(lambda a, b: max(0, min(a, b)))
    yield "max.relu.s32 {d}, {0}, {1};", (32, 32), 32, s(lambda a, b: max(0, a, b))
    for t in ("u32", "s32"):

        def cut(x: int, t: str = t) -> int:
            return value(x, t[0] + "24")

        yield f"mul24.lo.{t} {{d}}, {{0}}, {{1}};", (32, 32), 32, lambda a, b, c=cut: c(a) * c(b)
        yield f"mul24.hi.{t} {{d}}, {{0}}, {{1}};", (32, 32), 32, lambda a, b, c=cut: c(a) * c(b) >> 16
        yield (
            f"mad24.lo.{t} {{d}}, {{0}}, {{1}}, {{2}};",
            (32,) * 3,
            32,
            lambda a, b, x, c=cut: c(a) * c(b) + x,
        )
        yield (
            f"mad24.hi.{t} {{d}}, {{0}}, {{1}}, {{2}};",
            (32,) * 3,
            32,
            lambda a, b, x, c=cut: (c(a) * c(b) >> 16) + x,
        )
    yield (
        "mad24.hi.sat.s32 {d}, {0}, {1}, {2};",
        (32,) * 3,
        32,
        lambda a, b, c: clamp((signed(a, 24) * signed(b, 24) >> 16) + signed(c, 32), "s32"),
    )


def packed() -> Iterator[Row]:
    halves = (32, 0, 0x00010001, 0x7FFF8000, 0x80007FFF, 0xFFFF0001, 0x1234ABCD, 0xFFFFFFFF, 0x8001FFFE)
    operations = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "min": min, "max": max}
    relu = {"min.relu": lambda a, b: max(0, min(a, b)), "max.relu": lambda a, b: max(0, a, b)}
    for t, ops in (("u16", operations), ("s16", operations | relu)):
        for name, f in ops.items():

            def both(a: int, b: int, f: Function = f, t: str = t) -> int:
                low = f(value(a, t), value(b, t)) & 0xFFFF
                return low | (f(value(a >> 16, t), value(b >> 16, t)) & 0xFFFF) << 16

            yield f"{name}.{t}x2 {{d}}, {{0}}, {{1}};", (halves, halves), 32, both


def carries() -> Iterator[Row]:
    for n in (32, 64):
        t, top = f"u{n}", 1 << n
        out = "{d}"
        pair = (n, n)
        # The carry: of a + b, and of a - b as a borrow; then with a carry (borrow) that comes in.
        yield (
            f"add.cc.{t} {out}, {{0}}, {{1}}; addc.{t} {out}, 0, 0;",
            pair,
            n,
            lambda a, b, m=top: a + b >= m,
        )
        yield f"sub.cc.{t} {out}, {{0}}, {{1}}; subc.{t} {out}, 0, 0;", pair, n, lambda a, b: -(a < b)
        set_carry = f"add.cc.{t} {out}, -1, 1; "
        yield set_carry + f"addc.{t} {out}, {{0}}, {{1}};", pair, n, lambda a, b: a + b + 1
        yield set_carry + f"subc.{t} {out}, {{0}}, {{1}};", pair, n, lambda a, b: a - b - 1
        again = f" addc.{t} {out}, 0, 0;"
        yield (
            set_carry + f"addc.cc.{t} {out}, {{0}}, {{1}};" + again,
            pair,
            n,
            lambda a, b, m=top: a + b + 1 >= m,
        )
        again = f" subc.{t} {out}, 0, 0;"
        yield set_carry + f"subc.cc.{t} {out}, {{0}}, {{1}};" + again, pair, n, lambda a, b: -(a < b + 1)
        for s in ("u", "s"):
            low = lambda a, b, n=n, s=s: value(a, f"{s}{n}") * value(b, f"{s}{n}") & ((1 << n) - 1)  # noqa: E731
            high = lambda a, b, n=n, s=s: value(a, f"{s}{n}") * value(b, f"{s}{n}") >> n & ((1 << n) - 1)  # noqa: E731
            for part, f in (("lo", low), ("hi", high)):
                yield (
                    f"mad.{part}.cc.{s}{n} {out}, {{0}}, {{1}}, {{2}}; addc.u{n} {out}, 0, 0;",
                    (n, n, n),
                    n,
                    lambda a, b, c, f=f, m=top: f(a, b) + c >= m,
                )
                yield (
                    set_carry.replace(t, f"u{n}") + f"madc.{part}.{s}{n} {out}, {{0}}, {{1}}, {{2}};",
                    (n, n, n),
                    n,
                    lambda a, b, c, f=f: f(a, b) + c + 1,
                )


def bits() -> Iterator[Row]:
    logic = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
    for n in (16, 32, 64):
        for name, f in logic.items():
            yield f"{name}.b{n} {{d}}, {{0}}, {{1}};", (n, n), n, f
        yield f"not.b{n} {{d}}, {{0}};", (n,), n, lambda a: ~a
        yield f"cnot.b{n} {{d}}, {{0}};", (n,), n, lambda a: a == 0
        by = (n, (32, *COUNTS))
        yield f"shl.b{n} {{d}}, {{0}}, {{1}};", by, n, lambda a, c, n=n: a << min(c, n)
        yield f"shr.b{n} {{d}}, {{0}}, {{1}};", by, n, lambda a, c, n=n: a >> min(c, n)
        yield f"shr.u{n} {{d}}, {{0}}, {{1}};", by, n, lambda a, c, n=n: a >> min(c, n)
        yield f"shr.s{n} {{d}}, {{0}}, {{1}};", by, n, lambda a, c, n=n: signed(a, n) >> min(c, n)
    for n in (32, 64):
        yield f"popc.b{n} {{d}}, {{0}};", (n,), 32, lambda a: bin(a).count("1")
        yield f"clz.b{n} {{d}}, {{0}};", (n,), 32, lambda a, n=n: n - a.bit_length()
        yield f"brev.b{n} {{d}}, {{0}};", (n,), n, lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2)
        for s in ("u", "s"):

            def found(a: int, n: int = n, s: str = s) -> int:
                x = value(a, f"{s}{n}")
                return (~x if x < 0 else x).bit_length() - 1  # -1: 0xffffffff

            yield f"bfind.{s}{n} {{d}}, {{0}};", (n,), 32, found
            yield (
                f"bfind.shiftamt.{s}{n} {{d}}, {{0}};",
                (n,),
                32,
                lambda a, n=n, f=found: -1 if f(a) < 0 else n - 1 - f(a),
            )
            yield (
                f"bfe.{s}{n} {{d}}, {{0}}, {{1}}, {{2}};",
                (n, (32, *COUNTS), (32, *COUNTS)),
                n,
                lambda a, p, c, n=n, s=s: extract(a, p & 255, c & 255, n, s == "s"),
            )
        few = (n, (1 << n) - 1, 0xA5A5A5A5, 1 << (n - 1))
        places = (32, 0, 1, 15, 31, 32, 33, 63, 64, 255, 300)
        yield (
            f"bfi.b{n} {{d}}, {{0}}, {{1}}, {{2}}, {{3}};",
            (few, few, places, places),
            n,
            lambda a, b, p, c, n=n: insert(a, b, p & 255, c & 255, n),
        )
    for mode in ("clamp", "wrap"):
        limit = (lambda x: min(x, 32)) if mode == "clamp" else (lambda x: x & 31)
        counts = (32, *COUNTS)

        def mask(a: int, b: int, f: Function = limit) -> int:
            return ((1 << f(b)) - 1) << f(a)

        yield f"bmsk.{mode}.b32 {{d}}, {{0}}, {{1}};", (counts, counts), 32, mask
        yield (
            f"szext.{mode}.u32 {{d}}, {{0}}, {{1}};",
            (32, counts),
            32,
            lambda a, c, f=limit: a & ((1 << f(c)) - 1),
        )
        yield (
            f"szext.{mode}.s32 {{d}}, {{0}}, {{1}};",
            (32, counts),
            32,
            lambda a, c, f=limit: signed(a, f(c)) if f(c) else 0,
        )
        funnel = (32, 32, counts)
        yield (
            f"shf.l.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}};",
            funnel,
            32,
            lambda a, b, c, f=limit: (b << 32 | a) << f(c) >> 32,
        )
        yield (
            f"shf.r.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}};",
            funnel,
            32,
            lambda a, b, c, f=limit: (b << 32 | a) >> f(c),
        )
    few = (32, 0, 0xFFFFFFFF, 0xF0F0CCAA, 0x00FF00FF)
    for lut in (0x00, 0x80, 0x96, 0xE8, 0x1B, 0xCA, 0xFF):
        yield (
            f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {lut};",
            (few, few, few),
            32,
            lambda a, b, c, u=lut: look_up(a, b, c, u),
        )
    selectors = (32, 0x3210, 0x7654, 0x0123, 0x89AB, 0xFEDC, 0x1111, 0x8F08, 0xFFFF5410)
    data = (32, 0x03020100, 0x87868584, 0xFF7F8001)
    yield "prmt.b32 {d}, {0}, {1}, {2};", (data, data, selectors), 32, permute
    # Rows of the ISA's table of prmt's modes: source bytes of d.b3 d.b2 d.b1 d.b0.
    modes = {
        "f4e": ("3210", "4321", "5432", "6543"),
        "b4e": ("5670", "6701", "7012", "0123"),
        "rc8": ("0000", "1111", "2222", "3333"),
        "ecl": ("3210", "3211", "3222", "3333"),
        "ecr": ("0000", "1110", "2210", "3210"),
        "rc16": ("1010", "3232", "1010", "3232"),
    }
    for mode, rows in modes.items():
        yield (
            f"prmt.b32.{mode} {{d}}, {{0}}, {{1}}, {{2}};",
            (data, data, (32, 0, 1, 2, 3, 0xFFFFFFFE)),
            32,
            lambda a, b, c, r=rows: permute(a, b, int(r[c & 3], 16)),
        )
    yield (
        "fns.b32 {d}, {0}, {1}, {2};",
        (32, (32, 0, 1, 5, 31), (32, 0, 1, 2, 7, 0xFFFFFFFF, 0xFFFFFFFE)),
        32,
        nth_set,
    )


def extract(a: int, p: int, c: int, n: int, sign: bool) -> int:
    """bfe, by the ISA's description."""
    fill = sign and c > 0 and a >> min(p + c - 1, n - 1) & 1
    return sum((a >> (p + i) & 1 if i < c and p + i < n else fill) << i for i in range(n))


def insert(a: int, b: int, p: int, c: int, n: int) -> int:
    for i in range(min(c, n)):
        if p + i < n:
            b = (b & ~(1 << (p + i))) | (a >> i & 1) << (p + i)
    return b


def look_up(a: int, b: int, c: int, lut: int) -> int:
    return sum((lut >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))


def permute(a: int, b: int, selector: int) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    out = 0
    for k in range(4):
        s = selector >> 4 * k & 15
        byte = source[s & 7]
        out |= ((0xFF if byte & 0x80 else 0) if s & 8 else byte) << 8 * k
    return out


def nth_set(mask: int, base: int, offset: int) -> int:
    step = signed(offset, 32)
    if step == 0:
        return base if mask >> base & 1 else -1
    order = range(base, 32) if step > 0 else range(base, -1, -1)
    found = [i for i in order if mask >> i & 1]
    return found[abs(step) - 1] if len(found) >= abs(step) else -1


def dots() -> Iterator[Row]:
    data = (32, 0x7F80FF01, 0xFFFFFFFF, 0x80808080, 0x01020304, 0)
    sums = (32, 0, 0x7FFFFFFF, 0xFFFFFFFF)
    for sa, sb in itertools.product("us", repeat=2):

        def dot(a: int, b: int, c: int, sa: str = sa, sb: str = sb) -> int:
            return c + sum(value(a >> 8 * k, sa + "8") * value(b >> 8 * k, sb + "8") for k in range(4))

        yield f"dp4a.{sa}32.{sb}32 {{d}}, {{0}}, {{1}}, {{2}};", (data, data, sums), 32, dot
        for half, shift in (("lo", 0), ("hi", 16)):

            def dot2(a: int, b: int, c: int, sa: str = sa, sb: str = sb, h: int = shift) -> int:
                return c + sum(
                    value(a >> 16 * k, sa + "16") * value(b >> (8 * k + h), sb + "8") for k in range(2)
                )

            yield f"dp2a.{half}.{sa}32.{sb}32 {{d}}, {{0}}, {{1}}, {{2}};", (data, data, sums), 32, dot2


def comparisons() -> Iterator[Row]:
    operations = {
        "eq": lambda a, b: a == b,
        "ne": lambda a, b: a != b,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b,
    }
    unsigned = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    for t in (*TYPES, "b16", "b32", "b64"):
        n, read = int(t[1:]), t.replace("b", "u")
        names = ("eq", "ne") if t[0] == "b" else tuple(operations) + (tuple(unsigned) if t[0] == "u" else ())
        for name in names:
            f = operations[unsigned.get(name, name)]
            g = lambda a, b, f=f, t=read: f(value(a, t), value(b, t))  # noqa: E731
            yield f".reg .pred %p; setp.{name}.{t} %p, {{0}}, {{1}}; selp.b32 {{d}}, 1, 0, %p;", (n, n), 32, g
        yield f"set.eq.u32.{t} {{d}}, {{0}}, {{1}};", (n, n), 32, lambda a, b: -(a == b)
        yield f"set.eq.f32.{t} {{d}}, {{0}}, {{1}};", (n, n), 32, lambda a, b: 0x3F800000 if a == b else 0
    # Both results with a predicate joined in: p = t op c, q = !t op c; d = p + 2 q.
    joins = {"and": lambda x, c: x and c, "or": lambda x, c: x or c, "xor": lambda x, c: x != c}
    for (name, join), negated in itertools.product(joins.items(), (False, True)):
        body = (
            ".reg .pred %p, %q, %c; .reg .b32 %t; setp.ne.s32 %c, {2}, 0; "
            f"setp.lt.{name}.s32 %p|%q, {{0}}, {{1}}, {'!' if negated else ''}%c; "
            "selp.b32 {d}, 1, 0, %p; selp.b32 %t, 2, 0, %q; add.s32 {d}, {d}, %t;"
        )

        def expected(a: int, b: int, c: int, join: Function = join, negated: bool = negated) -> int:
            t, c = signed(a, 32) < signed(b, 32), (c != 0) != negated
            return bool(join(t, c)) + 2 * bool(join(not t, c))

        yield body, (32, 32, (32, 0, 1)), 32, expected
    for t in ("b16", "u32", "s64"):
        n = int(t[1:])
        yield (
            f".reg .pred %p; setp.ne.u32 %p, {{2}}, 0; selp.{t} {{d}}, {{0}}, {{1}}, !%p;",
            (n, n, (32, 0, 1)),
            n,
            lambda a, b, c: b if c else a,
        )
        yield (
            f"slct.{t}.s32 {{d}}, {{0}}, {{1}}, {{2}};",
            (n, n, 32),
            n,
            lambda a, b, c: a if signed(c, 32) >= 0 else b,
        )
    real = (32, 0, 0x80000000, 0x3F800000, 0xBF800000, 0x7FC00000)  # -0 counts as not negative, NaN selects b
    yield (
        "slct.u32.f32 {d}, {0}, {1}, {2};",
        (32, 32, real),
        32,
        lambda a, b, c: b if c in (0xBF800000, 0x7FC00000) else a,
    )


def predicates() -> Iterator[Row]:
    flag = (32, 0, 1)
    setup = ".reg .pred %p, %q, %r; setp.ne.u32 %p, {0}, 0; setp.ne.u32 %q, {1}, 0; "
    show = " selp.b32 {d}, 1, 0, %r;"
    for name, f in {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}.items():
        yield setup + f"{name}.pred %r, %p, %q;" + show, (flag, flag), 32, f
        yield setup + f"{name}.pred %r, !%p, %q;" + show, (flag, flag), 32, lambda a, b, f=f: f(1 - a, b)
    yield setup + "not.pred %r, %p;" + show, (flag, flag), 32, lambda a, b: 1 - a
    yield setup + "mov.pred %r, !%q;" + show, (flag, flag), 32, lambda a, b: 1 - b
    yield setup + "mov.pred %r, 1; @%p mov.pred %r, %q;" + show, (flag, flag), 32, lambda a, b: b if a else 1
    for combine, join in (("or", lambda x, q: x or q), ("and", lambda x, q: x and q)):
        yield (
            f".reg .pred %q, %r; setp.ne.u32 %q, {{1}}, 0; lop3.{combine}.b32 _|%r, {{0}}, -1, -1, 0x80, %q;"
            + show,
            ((32, 0, 4), flag),
            32,
            lambda a, q, j=join: bool(j(a != 0, q)),
        )


def moves() -> Iterator[Row]:
    yield "mov.b32 {d}, {{{0}, {1}}};", (16, 16), 32, lambda a, b: a | b << 16
    yield "mov.b64 {d}, {{{0}, {1}}};", (32, 32), 64, lambda a, b: a | b << 32
    yield "mov.b64 {d}, {{{0}, {1}, {0}, {1}}};", (16, 16), 64, lambda a, b: (a | b << 16) * 0x100000001
    for k in range(2):
        names = ("%x", "_") if k == 0 else ("_", "%x")
        yield (
            f".reg .b16 %x; mov.b32 {{{{{names[0]}, {names[1]}}}}}, {{0}}; mov.b16 {{d}}, %x;",
            (32,),
            16,
            lambda a, k=k: a >> 16 * k,
        )
    yield (
        ".reg .b128 %q; .reg .b64 %x, %y; mov.b128 %q, {{{0}, {1}}}; mov.b128 {{%x, %y}}, %q; sub.u64 {d}, %y, %x;",
        (64, 64),
        64,
        lambda a, b: b - a,
    )
    yield "mov.u32 {d}, -7;", (32,), 32, lambda a: -7
    yield "mov.u16 {d}, 0xffff;", (32,), 16, lambda a: 0xFFFF
    yield "@!%past mov.u32 {d}, {0}; @%past mov.u32 {d}, 0;", (32,), 32, lambda a: a
    for out, source in itertools.product(("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"), repeat=2):
        # 8-bit values live in 16-bit registers.
        n, m = max(16, int(source[1:])), max(16, int(out[1:]))
        yield f"cvt.{out}.{source} {{d}}, {{0}};", (n,), m, lambda a, o=out, s=source: value(value(a, s), o)
        yield (
            f"cvt.sat.{out}.{source} {{d}}, {{0}};",
            (n,),
            m,
            lambda a, o=out, s=source: clamp(value(a, s), o),
        )


FAMILIES = (arithmetic, packed, carries, bits, dots, comparisons, predicates, moves)


@pytest.mark.parametrize(("body", "kinds", "out", "expected"), [row for f in FAMILIES for row in f()])
def test_instruction(
    body: str, kinds: tuple[int | tuple[int, ...], ...], out: int, expected: Function
) -> None:
    check(body, kinds, out, expected)


@pytest.mark.parametrize("t", TYPES)
def test_division_by_zero_stops_nothing(t: str) -> None:
    """The ISA leaves the result open."""
    n = int(t[1:])
    for name in ("div", "rem"):
        lanes(f"{name}.{t} {{d}}, {{0}}, {{1}};", *table((n, (n, 0))), out=np.dtype(f"u{n // 8}"))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("add.sat.u32 {d}, {0}, {0};", ".sat is for .s32 only"),
        ("add.b32 {d}, {0}, {0};", "type .b32 is not allowed"),
        ("abs.u32 {d}, {0};", "type .u32 is not allowed; allowed: .s16, .s32, .s64"),
        ("mul.u32 {d}, {0}, {0};", "needs one of the modifiers .lo, .hi, .wide"),
        ("mul.wide.u64 {d}, {0}, {0};", "mul.wide is for 16 and 32-bit types"),
        ("mad.lo.sat.s32 {d}, {0}, {0}, {0};", ".sat is for mad.hi.sat.s32 only"),
        ("and.u32 {d}, {0}, {0};", "type .u32 is not allowed; allowed: .pred, .b16, .b32, .b64"),
        ("shl.u32 {d}, {0}, {0};", "type .u32 is not allowed"),
        ("shl.f32 {d}, {0}, {0};", "type .f32 is not allowed"),
        ("shr.f16 {d}, {0}, {0};", "type .f16 is not allowed"),
        ("shf.l.b32 {d}, {0}, {0}, {0};", "needs one of the modifiers .clamp, .wrap"),
        ("lop3.b32 {d}, {0}, {0}, {0}, {0};", "the look-up table of lop3 must be a constant"),
        ("lop3.b32 {d}, {0}, {0}, {0}, 256;", "the look-up table of lop3 is 256, allowed: 0 to 255"),
        ("prmt.b32.f4 {d}, {0}, {0}, {0};", "modifier '.f4' is not understood on 'prmt'"),
        ("setp.lt.b32 %past, {0}, {0};", "comparison .lt is not defined on .b32"),
        ("setp.lo.s32 %past, {0}, {0};", "unknown comparison '.lo' of .s32"),
        ("setp.xx.s32 %past, {0}, {0};", "unknown comparison '.xx'"),
        ("selp.b32 {d}, {0}, {0}, {0};", "must be a predicate"),
        ("slct.pred.s32 {d}, {0}, {0}, {0};", "type .pred is not allowed"),
        ("slct.b128.s32 {d}, {0}, {0}, {0};", "type .b128 is not allowed"),
        ("set.lt.u64.u32 %base, {0}, {0};", "set cannot write .u64"),
        ("mov.b64 {d}, {0};", "the instruction writes .b64"),
        ("mov.b32 {{%past, {0}, {0}, {0}}}, {d};", "destination must be a register of 8 bits or more"),
        ("add.u32 {d}, {0};", "has 2 operands, needs 3"),
        ("add.u32 {d}, {0}, 0f3f800000;", "a floating-point constant where"),
        ("add.u32 7, {0}, {0};", "destination must be a register, found constant 7"),
        ("add.u32 {d}, {0}, %base;", "'%base' is .b64, the instruction reads .u32"),
        ("add.u32.u32 {d}, {0}, {0};", "modifier '.u32' is not understood on 'add'"),
        ("mov.b32 {d}, %clock64;", "'%clock64' has 64 bits"),
        ("mov.u32 {d}, %nothing;", "unknown register '%nothing'"),
    ],
)
def test_refused(body: str, says: str) -> None:
    message = refusal(body, (4,), 4)
    opcode = body.split(maxsplit=1)[0]
    assert says in message
    assert f"opcode: {opcode}" in message
    assert "line " in message
