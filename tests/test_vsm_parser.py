"""The virtual SM's PTX front end: what it reads, and what it says about text that it refuses."""

import struct

import numpy as np
import pytest

from jax_tcgen05 import vsm

HEAD = ".version 9.1\n.target sm_100a\n.address_size 64\n"


def module(body: str, *, before: str = "", params: str = "") -> str:
    """A kernel `k` with the pointer `%out`, registers `%r0..7`, `%d0..7`, `%p0..3`; line 1 is .version."""
    return (
        f"{HEAD}{before}\n.visible .entry k(.param .u64 out{params}) {{\n"
        ".reg .b32 %r<8>; .reg .b64 %d<8>, %out; .reg .pred %p<4>; ld.param.u64 %out, [out];\n"
        f"{body}\nret;\n}}\n"
    )


def run(
    body: str, *args: object, before: str = "", params: str = "", words: int = 4, threads: int = 1
) -> list[int]:
    """The 32-bit words that the kernel left at its first parameter."""
    out = np.zeros(words, np.uint32)
    vsm.Module(module(body, before=before, params=params)).launch(
        "k", grid=1, block=threads, args=(out, *args)
    )
    return out.tolist()


def refused(text: str) -> str:
    with pytest.raises(vsm.LoadError) as error:
        vsm.Module(text)
    return str(error.value)


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("10", 10),
        ("0", 0),
        ("-1", 0xFFFFFFFF),
        ("0x1F", 31),
        ("0XfF", 255),
        ("0b101", 5),
        ("0B11", 3),
        ("017", 15),
        ("42U", 42),
        ("0x2AU", 42),
        ("0f3F800000", 0x3F800000),
        ("0F00000001", 1),
        ("1.5", 0x3FC00000),
        ("0d3FF8000000000000", 0x3FC00000),
        ("-0.0", 0x80000000),
        ("1e2", 0x42C80000),
        ("(1 + 2) * 3", 9),
        ("1 + 2 * 3", 7),
        ("10 - 4 - 3", 3),
        ("1 << 4 | 1", 17),
        ("~0", 0xFFFFFFFF),
        ("!5", 0),
        ("7 / 2", 3),
        ("-7 / 2", 0xFFFFFFFD),
        ("-7 % 4", 0xFFFFFFFD),
        ("5 > 3 && 2 != 2", 0),
        ("5 >= 5 || 0", 1),
        ("6 ^ 3 & 1", 7),
        ("(.s64)5 - 6", 0xFFFFFFFF),
        ("WARP_SZ", 32),
    ],
)
def test_constants(spelled: str, value: int) -> None:
    assert run(f"mov.b32 %r0, {spelled}; st.global.b32 [%out], %r0;")[0] == value


def test_real_constants_of_64_bits() -> None:
    body = "mov.f64 %d0, 0dC000000000000000; st.global.f64 [%out], %d0; mov.f64 %d0, 0.1; st.global.f64 [%out+8], %d0;"
    assert struct.unpack("<dd", struct.pack("<4I", *run(body))) == (-2.0, 0.1)


def test_blocks_redeclare_registers_and_labels() -> None:
    body = """
    mov.b32 %r0, 1;
    { .reg .b32 %r<2>; .reg .b32 t; mov.b32 %r0, 10; mov.b32 t, 5;
      { .reg .b32 t; mov.b32 t, 7; bra DONE; mov.b32 t, 8; DONE: add.s32 %r0, %r0, t; }
      add.s32 %r0, %r0, t; st.global.b32 [%out], %r0; bra DONE; st.global.b32 [%out], 99; DONE: }
    { bra DONE; st.global.b32 [%out], 98; DONE: st.global.b32 [%out+4], %r0; }
    """
    assert run(body)[:2] == [22, 1]


def test_directives_may_touch() -> None:
    """CUDA's headers write `{.reg.b16 x;` in their inline assembly."""
    body = "{.reg.b32 x; .shared.align 16 .b8 s[16]; mov.b32 x, 4; st.shared.b32 [s+4], x; ld.shared.b32 %r0, [s+4];}"
    assert run(f"{body} st.global.b32 [%out], %r0;")[0] == 4


def test_names_are_found_in_the_innermost_block() -> None:
    """A range %r<3> in a block hides its own names only."""
    body = "mov.b32 %r5, 5; { .reg .b32 %r<3>; mov.b32 %r2, 2; add.s32 %r2, %r2, %r5; st.global.b32 [%out], %r2; }"
    assert run(body)[0] == 7


def test_label_in_an_outer_block() -> None:
    assert run("mov.b32 %r0, 1; { { bra AFTER; } } mov.b32 %r0, 2; AFTER: st.global.b32 [%out], %r0;")[0] == 1


def test_vectors_and_sinks() -> None:
    body = """
    st.global.v4.b32 [%out], {1, 2, 3, 4};
    ld.global.v2.b32 {%r0, _}, [%out+8]; ld.global.v4.u32 {_, %r1, _, _}, [%out];
    mov.b64 %d0, {%r0, %r1}; st.global.v2.b32 [%out], {%r1, %r0}; st.global.b64 [%out+8], %d0;
    """
    assert run(body) == [2, 3, 3, 2]


def test_predicates() -> None:
    body = """
    mov.u32 %r0, %tid.x; setp.lt.u32 %p0|%p1, %r0, 2; mov.b32 %r1, 0;
    @%p0 mov.b32 %r1, 10; @!%p0 mov.b32 %r1, 20; @%p1 add.s32 %r1, %r1, 1;
    mul.wide.u32 %d0, %r0, 4; add.s64 %d0, %d0, %out; st.global.b32 [%d0], %r1;
    """
    assert run(body, threads=4) == [10, 10, 21, 21]


def test_parameters() -> None:
    params = ", .param .u32 a, .param .align 16 .b8 s[24], .param .f64 c, .param .u8 d"
    params += ", .param .u64 .ptr .global .align 16 e"
    body = """
    ld.param.u32 %r0, [a]; ld.param.u32 %r1, [s+20]; ld.param::entry.b64 %d0, [c]; ld.param.u8 %r2, [d];
    st.global.v2.b32 [%out], {%r0, %r1}; st.global.b32 [%out+8], %r2; st.global.b64 [%out+16], %d0;
    mov.b64 %d1, s; cvta.param.u64 %d1, %d1; ld.b32 %r3, [%d1+20]; st.global.b32 [%out+12], %r3;
    """
    struct_bytes = bytes(20) + (77).to_bytes(4, "little")
    out = run(body, 5, struct_bytes, 2.5, 200, np.zeros(2), params=params, words=6)
    assert out[:4] == [5, 77, 200, 77]
    assert struct.unpack("<d", struct.pack("<2I", *out[4:])) == (2.5,)
    rows = vsm.Module(module("", params=params)).parameters("k")
    assert [(p.name, p.offset, p.size) for p in rows] == [
        ("out", 0, 8),
        ("a", 8, 4),
        ("s", 16, 24),
        ("c", 40, 8),
        ("d", 48, 1),
        ("e", 56, 8),
    ]


def test_global_and_constant_variables() -> None:
    before = """
    .global .align 8 .b32 g[4] = {1, 0x2, 3 + 1};
    .const .b8 bytes[] = {0x11, 0x22, 0x33, 0x44};
    .global .f32 real = {1.5};
    .global .u64 pointer = g + 4;
    .global .u64 pointers[2] = {generic(g) + 8, real};
    .visible .global .align 4 .b16 grid[2][2] = {{1, 2}, {3, 4}};
    """
    body = """
    ld.global.u32 %r0, [g+8]; ld.const.u32 %r1, [bytes]; st.global.v2.b32 [%out], {%r0, %r1};
    ld.global.u64 %d0, [pointer]; ld.global.u32 %r0, [%d0]; ld.global.u64 %d0, [pointers]; ld.u32 %r1, [%d0];
    ld.global.u64 %d0, [pointers+8]; ld.global.u32 %r2, [%d0]; ld.global.u32 %r3, [grid+4];
    st.global.v4.b32 [%out+16], {%r0, %r1, %r2, %r3}; mov.u64 %d1, g; ld.global.u32 %r0, [%d1+12];
    st.global.b32 [%out+8], %r0;
    """
    assert run(body, before=before, words=8) == [4, 0x44332211, 0, 0, 2, 4, 0x3FC00000, 0x00040003]


def test_module_variables_keep_their_values_between_launches() -> None:
    text = module("atom.global.add.u32 %r0, [n], 5; st.global.b32 [%out], %r0;", before=".global .u32 n = 7;")
    m, out = vsm.Module(text), np.zeros(1, np.uint32)
    seen = []
    for _ in range(3):
        m.launch("k", grid=1, block=1, args=(out,))
        seen.append(int(out[0]))
    assert seen == [7, 12, 17]


def test_extern_variables_are_defined_somewhere() -> None:
    before = ".extern .global .b32 x; .global .b64 p = x; .extern .global .b32 unused;"
    body = "ld.global.u64 %d0, [p]; ld.global.u32 %r0, [%d0]; ld.global.u32 %r1, [x];"
    body += "st.global.v2.u32 [%out], {%r0, %r1};"
    text = module(body, before=before) + ".global .b32 x = 5;\n"
    out = np.zeros(2, np.uint32)
    vsm.Module(text).launch("k", grid=1, block=1, args=(out,))
    assert out.tolist() == [5, 5]
    assert "variable 'x' is declared .extern and defined nowhere" in refused(module(body, before=before))


def test_numbered_variables() -> None:
    body = ".param .b32 a<2>, b<1>; st.param.b32 [a0], 3; st.param.b32 [a1], 4; st.param.b32 [b0], 5;"
    body += "ld.param.b32 %r0, [a1]; ld.param.b32 %r1, [b0]; st.global.v2.b32 [%out], {%r0, %r1};"
    assert run(body)[:2] == [4, 5]


def test_shared_and_local_variables() -> None:
    before = ".shared .align 16 .b8 a[64]; .extern .shared .align 1024 .b8 dynamic[];"
    body = """
    .shared .b32 b; .local .align 8 .b64 mine[2];
    mov.u32 %r0, a; mov.u32 %r1, b; mov.u32 %r2, dynamic; setp.eq.u32 %p0, %r0, %r1;
    and.b32 %r3, %r2, 1023; @%p0 mov.b32 %r3, 1; st.shared.b32 [b], 5; st.shared.b32 [a+4], 6;
    st.shared.b32 [dynamic+8], 7; ld.shared.b32 %r4, [%r0+4]; ld.shared.b32 %r5, [%r1]; ld.shared.b32 %r6, [%r2+8];
    st.local.b64 [mine+8], 9; cvta.local.u64 %d0, %d1; mov.u64 %d1, mine; cvta.local.u64 %d1, %d1; ld.b64 %d2, [%d1+8];
    cvt.u32.u64 %r7, %d2; st.global.v4.b32 [%out], {%r3, %r4, %r5, %r6}; st.global.b32 [%out+16], %r7;
    """
    out = np.zeros(5, np.uint32)
    vsm.Module(module(body, before=before)).launch("k", grid=1, block=1, shared_bytes=64, args=(out,))
    assert out.tolist() == [0, 6, 5, 7, 9]


FUNCTIONS = """
.func (.param .b32 out) twice (.param .b32 x);
.func (.param .b32 out) more (.param .b32 x, .param .b32 y) {
  .reg .b32 %r<3>; .param .b32 t, u;
  ld.param.b32 %r0, [x]; st.param.b32 [t], %r0; call (u), twice, (t); ld.param.b32 %r0, [u];
  ld.param.b32 %r1, [y]; add.s32 %r0, %r0, %r1; st.param.b32 [out], %r0; ret;
}
.func (.param .b32 out) twice (.param .b32 x) { .reg .b32 %r0; ld.param.b32 %r0, [x]; add.s32 %r0, %r0, %r0;
  st.param.b32 [out], %r0; }
.func store (.param .b64 to, .param .b32 v) { .reg .b64 %a; .reg .b32 %v; ld.param.u64 %a, [to];
  ld.param.b32 %v, [v]; st.global.b32 [%a], %v; ret; }
"""


def test_functions() -> None:
    body = """
    mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 1; mul.wide.u32 %d0, %r0, 4; add.s64 %d0, %d0, %out; mov.b32 %r2, 0;
    { .param .b32 a, b, c; .param .b64 p; st.param.b32 [a], %r0; st.param.b32 [b], 100;
      @!%p0 call.uni (c), more, (a, b); @!%p0 ld.param.b32 %r2, [c];
      st.param.b64 [p], %d0; call store, (p, %r2); }
    """
    assert run(body, before=FUNCTIONS, threads=4) == [100, 0, 104, 106]


def test_printf_answers_nothing() -> None:
    before = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);"
    body = """
    .param .b32 r; .param .b64 f; st.param.b64 [f], 0; call.uni (r), vprintf, (f, f);
    ld.param.b32 %r0, [r]; st.global.b32 [%out], %r0;
    """
    assert run(body, before=before)[0] == 0


def test_branch_table() -> None:
    body = """
    mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 3; mov.b32 %r2, 99;
    TABLE: .branchtargets A, B, C, A;
    brx.idx %r1, TABLE;
    A: mov.b32 %r2, 1; bra DONE;
    B: mov.b32 %r2, 2; bra DONE;
    C: mov.b32 %r2, 3;
    DONE: mul.wide.u32 %d0, %r0, 4; add.s64 %d0, %d0, %out; st.global.b32 [%d0], %r2;
    """
    assert run(body, words=8, threads=8) == [1, 2, 3, 1, 1, 2, 3, 1]
    with pytest.raises(vsm.ExecutionError, match="branch index 4 exceeds the 4 targets"):
        run(body.replace("and.b32 %r1, %r0, 3", "add.u32 %r1, %r0, 4"))


def test_comments_debug_lines_and_directives() -> None:
    before = """
    // a comment { with braces
    /* another
       ; over lines */ .file 1 "a.cu", 12, 34
    .global .b32 after_comment = 3;
    .pragma "nounroll";
    """
    body = """
    .loc 1 5 3
    .loc 1 6 1, function_name $x, inlined_at 1 2 3
    .pragma "nounroll";
    ld.global.b32 %r0, [after_comment]; /* in the
    middle */ st.global.b32 [%out], %r0; // at the end
    """
    text = module(body, before=before).replace(
        "out) {", "out)\n.maxntid 128, 1, 1\n.minnctapersm 1\n.noreturn {"
    )
    text += """
    .section .debug_str { info_string0: .b8 95 .b8 0 }
    .section .debug_abbrev { .b8 1, 2, 3 .b32 0x10 }
    """
    out = np.zeros(1, np.uint32)
    vsm.Module(text).launch("k", grid=1, block=1, args=(out,))
    assert out[0] == 3
    assert vsm.Module(text.encode()).kernels == ("k",)


def test_special_registers() -> None:
    body = """
    mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %nctaid.x; mad.lo.u32 %r3, %r4, 32, %r3; mul.wide.u32 %d0, %r3, 16;
    add.s64 %d0, %d0, %out; mov.u32 %r6, %laneid; mov.u32 %r7, %warpid;
    st.global.v4.b32 [%d0], {%r4, %r1, %r6, %r7};
    """
    out = np.zeros((64, 4), np.uint32)
    vsm.Module(module(body)).launch("k", grid=2, block=(8, 4), args=(out,))
    i = np.arange(64)
    np.testing.assert_array_equal(out, np.stack([i // 32, i % 32 // 8, i % 32, i * 0], 1))


def test_kernels_and_targets() -> None:
    text = (
        HEAD
        + ".entry a() { ret; }\n.visible .entry b() { exit; }\n.weak .entry c() { }\n.func d() { ret; }\n"
    )
    assert vsm.Module(text).kernels == ("a", "b", "c")
    with pytest.raises(vsm.LoadError, match="no kernel 'd' in the module; it has: a, b, c"):
        vsm.Module(text).launch("d", grid=1, block=1)


# ---- what is refused, and what the message says: line, text, opcode ----

LINE = 8  # of the body's first line in `module`


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "frobnicate.b32 %r0, %r1;",
            ("unknown instruction", "opcode: frobnicate.b32", "in: frobnicate.b32 %r0, %r1"),
        ),
        ("mov.b32 %r0, %r9;", ("unknown register '%r9'", "opcode: mov.b32")),
        ("mov.b32 %r08, 1;", ("destination must be a register, found '%r08'", "opcode: mov.b32")),
        ("@%q bra L;", ("unknown predicate register '%q'",)),
        ("@%r0 bra L;", ("'%r0' is not a predicate",)),
        ("bra NOWHERE;", ("unknown name 'NOWHERE'",)),
        ("{ INNER: } bra INNER;", ("unknown name 'INNER'",)),
        ("add.u33 %r0, %r1, %r2;", ("needs a type", "opcode: add.u33")),
        (
            "tcgen05.shift.cta_group::1.down [%r0];",
            ("'tcgen05.shift' is not executed here: ", "opcode: tcgen05.shift"),
        ),
        ("call missing, ();", ("unknown name 'missing'",)),
        ("ld.global.b32 %r0, [%out, %r1];", ("an address has one part here, found 2",)),
        ("ld.global.v3.b32 {%r0, %r1, %r2}, [%out];", ("needs a vector of 1 registers, found 3",)),
        ("ld.global.v2.b32 {%r0, %r1, %r2}, [%out];", ("needs a vector of 2 registers, found 3",)),
        ("ld.global.b32 %p0, [%out];", ("a register is too small for .b32",)),
        ("ld.global.b64 %r0, [%out];", ("a register is too small for .b64",)),
        ("ld.shared.b32 %r0, [out];", ("variable 'out' is not in the space that the instruction names",)),
        ("st.const.b32 [%out], %r0;", ("constants cannot be stored to",)),
        ("red.global.exch.b32 [%out], %r0;", ("red has no .exch and no .cas",)),
        ("mov.b128 %r0, %r1;", ("the instruction writes .b128",)),
        ("mov.b32 %r0, out+;", ("expected a constant, found ';'",)),
        ("mov.b32 %r0, 1 / 0;", ("constant expression divides by zero or overflows",)),
        ("mov.b32 %r0, 0x8000000000000000 / -1;", ("constant expression divides by zero or overflows",)),
        (
            "mov.b32 %r0, 99999999999999999999;",
            ("'99999999999999999999' is no integer of 64 bits in base 10",),
        ),
        ("mov.b32 %r0, 089;", ("is no integer of 64 bits in base 8",)),
        ("mov.b32 %r0, 0x;", ("number has no digits",)),
        ("mov.b32 %r0, 12abc;", ("unexpected character after a number: 'a'",)),
        ("mov.b32 %r0, 0f3F80;", ("floating-point constant needs 8 hexadecimal digits",)),
        ("mov.b32 %r0, 1.0 + 2;", ("constant expressions are of integers only",)),
        ("mov.b32 %r0 %r1;", ("expected ',' or ';', found '%r1'",)),
        ("mov.b32 %r0, %r1 }", ("expected ',' or ';', found '}'",)),
        (".reg .b7 %x;", ("unknown register type",)),
        (".reg .v4 .b32 %x;", ("vector registers are not supported",)),
        (".reg .b32 %x<%r0>;", ("expected a count, found '%r0'",)),
        (".shared .align 3 .b8 x[4];", (".align must be a power of two, found 3",)),
        (".shared .b8 x[];", ("an array without an extent is allowed only for .extern .shared variables",)),
        ("L: mov.b32 %r0, 1; L: mov.b32 %r0, 2;", ("label 'L' is defined twice in one scope",)),
        (".bogus 5;", ("unknown directive '.bogus'",)),
        ("mov.b32 %r0, $;", ("unknown name '$'",)),
        ("mov.b32 %r0, `;", ("unexpected character '`'",)),
        ("mov.b32 %r0, \xe9;", (r"unexpected character '\xc3'",)),
        ("bar.sync 0, 32, 5;", ("has 3 operands, needs 1 to 2",)),
        ("fence.nonsense;", ("modifier '.nonsense' is not understood on 'fence'",)),
    ],
)
def test_refused_statements(body: str, says: tuple[str, ...]) -> None:
    message = refused(module("\n" + body))
    for part in (f"line {LINE}: ", *says):
        assert part in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "line 1: expected a directive, found 'hello'"),
        (".address_size 32", "line 1: only .address_size 64 is supported"),
        (HEAD + "/* open", "line 4: comment is not closed"),
        (HEAD + '.file 1 "open\n', "line 4: string is not closed"),
        (HEAD + ".entry k() { ret;", "line 4: function 'k' is not closed"),
        (HEAD + ".entry k() { ret; }\n.entry k() { ret; }", "line 5: function 'k' is defined twice"),
        (HEAD + ".func k();\n.entry k() { ret; }", "'k' is declared as .entry and as .func"),
        (HEAD + ".global .b32 x; .global .b32 x;", "'x' is declared twice in one scope"),
        (HEAD + ".shared .b32 x = 1;", "only variables of .global and .const have initial values"),
        (HEAD + ".extern .global .b32 x = 1;", "an .extern variable has no initial value"),
        (
            HEAD + ".global .b32 x[4] = {1, 2, 3, 4}; .extern .global .b32 x;",
            "'x' is declared twice in one scope",
        ),
        (HEAD + ".global .b32 x[2] = {1, 2, 3};", "too many initial values for 'x'"),
        (HEAD + ".global .u64 x = y;", "initial value names the unknown symbol 'y'"),
        (
            HEAD + ".shared .b32 s; .global .u64 x = s;",
            "is the address of something that is not in global memory",
        ),
        (HEAD + ".global .b8 x[2147483648];", "variable 'x' is larger than 1 GiB"),
        (HEAD + ".global .b8 x[1073741824][4];", "variable 'x' is larger than 1 GiB"),
        (
            HEAD + ".entry k() { .local .b8 x[16777216]; st.local.b8 [x], 0; }",
            "variable 'x' of 16777216 bytes does not fit into the 524288 bytes of its space",
        ),
        (HEAD + ".global x;", "a declaration needs a type"),
        (HEAD + ".global .b32 .b8 7;", "expected a variable's name, found '7'"),
        (HEAD + ".func f(.reg .b32 x) { ret; }", "functions with .reg parameters are not supported"),
        (HEAD + ".entry k(.param .b8 x[40000]) { ret; }", "parameters of 'k' exceed 32764 bytes"),
        (
            HEAD + ".func f() { call f, (); ret; }\n.entry k() { call f, (); }",
            "line 4: recursion is not executed here; 'f' calls itself",
        ),
        (
            HEAD
            + ".func f();\n.func g() { call f, (); }\n.func f() { call g, (); }\n.entry k() { call g, (); }",
            "recursion is not executed here",
        ),
    ],
)
def test_refused_modules(text: str, says: str) -> None:
    assert says in refused(text)


def test_call_mismatches() -> None:
    def message(body: str) -> str:
        return refused(module(".param .b32 a, b; .param .b16 h; " + body, before=FUNCTIONS))

    assert "call of 'twice' has 2 arguments, it takes 1" in message("call (b), twice, (a, a);")
    assert "call of 'twice' takes 0 results, it returns 1" in message("call twice, (a);")
    assert "argument 'h' is smaller than parameter 'x'" in message("call (b), twice, (h);")
    assert "arguments of call must be .param variables, registers or constants" in message(
        "call (b), twice, (_);"
    )
    external = ".extern .func (.param .b32 r) sqrtf (.param .b32 x);"
    text = module(".param .b32 a; call (a), sqrtf, (a);", before=external)
    assert "call of the external function 'sqrtf'" in refused(text)


@pytest.mark.parametrize("text", [5, None, ["x"]])
def test_text_of_another_type(text: object) -> None:
    with pytest.raises(TypeError, match="ptx must be the text of a module"):
        vsm.Module(text)  # type: ignore[arg-type]
