"""Hostile PTX and launches end in errors: a short, always-on companion of the fuzzer in tests/fuzz."""

import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jax_tcgen05 import vsm

FOLDER = Path(__file__).parent / "fuzz"
HEAD = ".version 9.1\n.target sm_100a\n.address_size 64\n"
EXTREMES = (0, 1, 31, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1, 2**64)


def kernel(body: str) -> str:
    return "BODY".join((FOLDER / "kernel.ptx").read_text().split("BODY")[:-1]) + body + "\nEND: ret;\n}\n"


def choose(statement: str, rng: random.Random) -> str:
    """A line of statements.txt with one of each of its alternatives `<a|b>`; `^` stands for `|`."""
    return re.sub(r"<([^>]*)>", lambda m: rng.choice(m[1].split("|")).replace("^", "|"), statement)


def statements() -> list[str]:
    lines = (FOLDER / "statements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("statement", statements())
def test_statement_is_understood(statement: str) -> None:
    """What the fuzzer damages is PTX before: some choice of the alternatives loads."""
    rng = random.Random(0)
    errors = []
    for _ in range(40):
        try:
            vsm.Module(kernel(f"A: {choose(statement, rng)};"))
            return
        except vsm.LoadError as error:
            errors.append(str(error))
    pytest.fail(errors[-1])


def damage(text: str, rng: random.Random) -> str:
    tokens = re.findall(r"[\w$%.:]+|\s+|.", text, re.DOTALL)
    for _ in range(rng.randint(1, 4)):
        # Mostly in the second half, where the generated statements are.
        i = rng.randrange(len(tokens) // 2 if rng.random() < 0.7 else 0, len(tokens))
        match rng.randrange(8):
            case 0:
                del tokens[i]
            case 1:
                tokens.insert(i, tokens[i])
            case 2:
                j = rng.randrange(len(tokens))
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case 3:
                numbers = [k for k, t in enumerate(tokens) if t[0].isdigit()]
                tokens[rng.choice(numbers)] = str(rng.choice(EXTREMES))
            case 4:
                tokens[i] = rng.choice(tokens)
            case 5:
                parts = tokens[i].split(".")
                parts[rng.randrange(len(parts))] = rng.choice(rng.choice(tokens).split("."))
                tokens[i] = ".".join(parts)
            case 6:
                tokens[i : i + 5] = tokens[i : i + 5] * rng.randint(2, 40)
            case _:
                tokens.insert(i, "".join(rng.choice('{}()[]<>,;:+-*/%&|^~!=?@"\\#\0\xe9') for _ in range(3)))
        if not tokens:
            break
    return "".join(tokens[: rng.randrange(len(tokens))] if rng.random() < 0.02 else tokens)


def launch(text: str, rng: random.Random) -> str:
    """Loads and launches; what kind of end that had."""
    buffer = np.arange(4096, dtype=np.uint8)
    try:
        module = vsm.Module(text)
    except vsm.LoadError:
        return "refused"
    kernels = module.kernels
    if not kernels:
        return "empty"
    name = rng.choice(kernels)
    args: list[object] = []
    for p in module.parameters(name):
        if p.size == 8 and rng.random() < 0.9:
            args.append(vsm.Struct(bytes(8), {0: (buffer, rng.choice((0, 0, 0, 1, 4000, 2**20)))}))
        else:
            args.append(rng.randbytes(p.size))
    options = {
        "grid": rng.choice((1, 1, 2, (2, 2), 2**31 - 1)),
        "block": rng.choice((32, 64, 33, 1, 1024, (8, 8, 8), 2000)),
        "cluster": rng.choice((1, 1, 1, 2, 16, 17)),
        "shared_bytes": rng.choice((16384, 16384, 0, 2**31 - 1)),
        "schedule": rng.choice(vsm.SCHEDULES),
        "check": rng.choice(vsm.CHECKS),
    }
    try:
        module.launch(name, args=args, step_limit=2000, **options)  # type: ignore[arg-type]
    except vsm.ExecutionError as error:
        assert str(error).isascii()
        return "stopped"
    return "finished"


def run_cases(seed: int, count: int) -> None:
    """Run in a process of its own, so that a crash is seen; prints what the cases came to."""
    lines = statements()
    ends: dict[str, int] = {}
    for case in range(count):
        rng = random.Random(f"{seed} {case}")
        print(f"seed {seed} case {case}", file=sys.stderr, flush=True)
        body = [choose(rng.choice(lines), rng) + ";" for _ in range(rng.randint(1, 8))]
        body[rng.randrange(len(body))] += "\nA:"
        text = kernel("\n".join(body))
        if rng.random() < 0.1:
            text = text.replace("cta_group::1", "cta_group::2")
        end = launch(damage(text, rng) if rng.random() < 0.7 else text, rng)
        ends[end] = ends.get(end, 0) + 1
    print(ends)
    assert {"refused", "stopped", "finished"} <= set(ends), "the cases do not reach all kinds of ends"


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_kernels(seed: int) -> None:
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_vsm_hostile as t; "
    done = subprocess.run(
        [sys.executable, "-P", "-c", script + f"t.run_cases({seed}, 150)"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]


DEEP = 100_000
HOSTILE = {
    "blocks": kernel("{" * DEEP),
    "parentheses": kernel("mov.b32 %r0, " + "(" * DEEP + "1;"),
    "signs": kernel("mov.b32 %r0, " + "-" * DEEP + "1;"),
    "negations": kernel("and.pred %p0, " + "!" * DEEP + "%p1, %p1;"),
    "vectors": kernel("mov.b64 " + "{" * DEEP + "%r0;"),
    "addresses": kernel("ld.b32 %r0, " + "[%g, " * DEEP + "0];"),
    "sums": kernel("mov.b32 %r0, 1" + " + (1" * DEEP + ";"),
    "initialisers": HEAD + ".global .b64 x = " + "{" * DEEP + "1;",
    "generic()": HEAD + ".global .b64 x = " + "generic(" * DEEP + "1;",
    "functions in a circle": HEAD
    + "".join(f".func f{i};\n" for i in range(2000))
    + "".join(f".func f{i} {{ call f{(i + 1) % 2000}; ret; }}\n" for i in range(2000))
    + ".entry k { call f0; ret; }\n",
    "kernels times functions": HEAD
    + ".func f0 { ret; }\n"
    + "".join(f".func f{i} {{ call f{i - 1}; ret; }}\n" for i in range(1, 1500))
    + "".join(f".entry k{i} {{ call f1499; }}\n" for i in range(1500)),
    "large variables": HEAD
    + "".join(f".global .b8 x{i}[1000000000] = {{1}};\n" for i in range(100))
    + ".entry k { ret; }",
    "wrapping extents": HEAD + ".global .b64 x[4294967296][4294967296]; .entry k { ret; }",
    "local memory": HEAD + ".entry k { .local .b8 x[1000000]; st.local.b8 [x], 1; }",
    "nothing but zeros": "\0" * DEEP + "x",
    "not text": bytes(range(256)) * 100,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts(name: str) -> None:
    with pytest.raises(vsm.LoadError) as error:
        vsm.Module(HOSTILE[name])
    assert str(error.value).isascii()
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "body",
    [
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 0xffffffe0, 32;",  # column + columns wraps to 0
        "mov.b32 %r0, 0xffffffff; ld.shared.b32 %r1, [%r0];",
        "ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [0xffffffffffffffe0];",
        "st.bulk.weak.shared::cta [%s], 0xfffffffffffffff8, 0;",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%g], 0xfffffff0, [%b];",
        "mbarrier.expect_tx.relaxed.cta.shared.b64 [%b], 0xffffffff;",
        "brx.idx 0xffffffff, targets;",
        "mapa.shared::cluster.u32 %r0, %s, 0xffffffff;",
        "shfl.sync.idx.b32 %r0, %r1, 0xffffffff, 0xffffffff, 0;",
        "mbarrier.init.shared.b64 [%b], 0xffffffff;",
        "tcgen05.mma.cta_group::1.kind::f16 [0xffffffff], %d1, %d1, 0xffffffff, 1;",
        "tcgen05.cp.cta_group::1.128x256b [0xffffffff], %d1;",
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r0}, [0xffffffff];",
        "LOOP: cp.async.ca.shared.global [%s], [%g], 4; bra LOOP;",  # asynchronous works without end
        "LOOP: { .reg .pred %q; mov.pred %q, 1; @%q bra LOOP; }",
    ],
)
def test_hostile_instructions(body: str) -> None:
    m = vsm.Module(
        kernel("A: " + body.replace("[0xffffffff]", "[%r5]").replace("A: ", "A: mov.b32 %r5, -1; "))
    )
    with pytest.raises(vsm.ExecutionError):
        m.launch(
            "k",
            grid=1,
            block=32,
            args=(np.zeros(4096, np.uint8), bytes(128), 1),
            shared_bytes=16384,
            step_limit=20000,
        )


@pytest.mark.parametrize("field", range(128))
def test_damaged_tensor_maps(field: int) -> None:
    """Every byte of a tensor map at its extremes: an error, or a copy within its bounds."""
    array = np.zeros((64, 64), np.float32)
    text = kernel(
        "A: mbarrier.expect_tx.relaxed.cta.shared.b64 [%b], 1024; cp.async.bulk.tensor.2d.shared::cta.global"
        ".mbarrier::complete_tx::bytes [dyn], [%m, {0, 0}], [%b];"
    )
    module = vsm.Module(text)
    encoded = vsm.TensorMap(array, "FLOAT32", (64, 64), (256,), (32, 8)).encode(1 << 44)
    for byte in (0, 1, 0x7F, 0x80, 0xFF):
        damaged = bytearray(encoded)
        damaged[field] = byte
        try:
            module.launch(
                "k", grid=1, block=1, args=(array, bytes(damaged), 0), shared_bytes=16384, step_limit=2000
            )
        except vsm.ExecutionError as error:
            assert str(error)
