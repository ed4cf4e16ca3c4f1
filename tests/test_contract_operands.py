"""Operands of one call: storages, prefixes, canonical shapes, scale factors; each rule's edge and what lies past it.

A row is a call and, for a refusal, words that its message must have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from base_calls import Call, assert_exact, changed, leaves, legal_call, made, refuse, with_leaves

import jax_tcgen05 as tc

S, R, TLane, TCol = tc.S, tc.R, tc.TLane, tc.TCol
E8M0 = ml_dtypes.float8_e8m0fnu
Make = Callable[[], Call]


# Operands


def test_every_operand_must_be_placed_and_in_its_storage():
    call = legal_call("mxf8f6f4")
    wanted = {"d": "tmem", "b": "shared", "sfa": "tmem", "sfb": "tmem"}
    for name in ("d", "a", "b", "sfa", "sfb"):
        refuse(
            lambda name=name: call | {name: jnp.zeros((1, 1, 128, 64))},
            TypeError,
            f"{name}:",
            "placed operand",
        )
        if name in wanted:
            other = call["a"] if wanted[name] == "tmem" else call["d"]
            given = "shared" if wanted[name] == "tmem" else "tmem"
            refuse(
                lambda name=name, other=other: call | {name: other},
                ValueError,
                f"{name}:",
                given,
                wanted[name],
            )
    refuse(lambda: call | {"d": None}, TypeError, "d:", "None", "tmem_empty")


def test_scales_missing_or_extra():
    """B37: four distinct errors, and the next valid call works."""
    call = legal_call("mxf8f6f4")
    scales = {name: call[name] for name in ("sfa", "sfb")}
    dense, ws = legal_call("f8f6f4"), legal_call("f8f6f4", ws=True)
    texts = {
        refuse(lambda: call | {"sfb": None}, TypeError, "sfb: got None", "needs both"),
        refuse(lambda: call | {"sfa": None}, TypeError, "sfa: got None", "needs both"),
        refuse(lambda: dense | scales, TypeError, "sfa: given", "dense form", ".block_scale"),
        refuse(lambda: ws | scales, TypeError, "sfa: given", ".ws form", ".block_scale"),
        refuse(lambda: dense | {"sfb": scales["sfb"]}, TypeError, "sfb: given", "dense form"),
    }
    assert len(texts) == 5
    assert_exact(call)


# Prefixes (B19)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3, 1)])
@pytest.mark.parametrize("group", [1, 2])
def test_a_batch_equals_a_loop(batch, group):
    call = legal_call(M=128 * group, N=32, group=group, batch=batch, repeats=(1, 1, 2))
    got = np.asarray(tc.mma(**call).leaf)
    arrays = leaves(call)
    for index in np.ndindex(batch):
        where = ((slice(None),) if group == 2 else ()) + index
        one = with_leaves(call, {name: x[where] for name, x in arrays.items()})
        np.testing.assert_array_equal(got[where], tc.mma(**one).leaf)


def cut(make: Make, **changes: Callable[[jax.Array], Any]) -> Make:
    """Some of the operands' arrays changed."""

    def build() -> Call:
        call = make()
        return with_leaves(call, {name: change(leaves(call)[name]) for name, change in changes.items()})

    return build


PREFIXES_ACCEPTED = {
    "A broadcast": made(batch=(3,), N=16, broadcast=("a",)),
    "all but D broadcast": made("mxf4", batch=(3, 2), N=16, broadcast=("a", "b", "sfa", "sfb")),
    "SFB shared by a pair": made("mxf8f6f4", M=256, group=2, N=16, shared_sfb=True),
}


@pytest.mark.parametrize("name", PREFIXES_ACCEPTED)
def test_prefixes_accepted(name):
    assert_exact(PREFIXES_ACCEPTED[name]())


PAIR = made(M=256, group=2, batch=(3,))
PREFIXES_REFUSED = {
    "a pair without its axis": (
        cut(made(M=256, group=2), a=lambda x: x[0]),
        ("a:", "execution-group axis of size 2"),
    ),
    "a pair of one": (cut(PAIR, b=lambda x: x[:1]), ("b:", "prefix (1, 3)", "size 2")),
    "SFA shared by a pair": (
        cut(made("mxf4", M=256, group=2), sfa=lambda x: x[:1]),
        ("sfa:", "prefix (1,)", "size 2"),
    ),
    "three CTAs": (cut(PAIR, d=lambda x: jnp.concatenate([x, x[:1]])), ("d:", "prefix (3, 3)", "size 2")),
    "ranks": (cut(made(batch=(3,)), a=lambda x: x[0]), ("a:", "0 batch axes", "d has 1 (3,)", "equal rank")),
    "an extra axis": (cut(made(), b=lambda x: x[None]), ("b:", "1 batch axes (1,)", "d has 0", "equal rank")),
    "sizes": (cut(made(batch=(3,)), a=lambda x: x[:2]), ("a:", "(2,)", "d has (3,)", "may be 3 or 1")),
    "D broadcast": (
        cut(made(batch=(3,)), d=lambda x: x[:1]),
        ("a:", "(3,)", "d has (1,)", "d's batch must be full"),
    ),
}


@pytest.mark.parametrize("name", PREFIXES_REFUSED)
def test_prefixes_refused(name):
    make, words = PREFIXES_REFUSED[name]
    refuse(make, ValueError, *words)


# Canonical shapes


def moved(make: Make, name: str, change: Callable[[tc.PlacedOperand], tc.PlacedOperand]) -> Make:
    def build() -> Call:
        call = make()
        return call | {name: change(call[name])}

    return build


REPEATED = made(repeats=(1, 2, 4))
SHAPES_REFUSED = {
    "D without repeat axes": (
        moved(made(), "d", lambda d: d.view(128, 64)),
        ("d:", "(128, 64)", "(m_repeat, n_repeat, M/g, N)", "128, 64"),
    ),
    "D of another N": (
        moved(made(), "d", lambda d: d[..., :32]),
        ("d:", "(1, 1, 128, 32)", "(.., .., 128, 64)"),
    ),
    "A of another M": (
        moved(made(), "a", lambda a: a[:, :, :64]),
        ("a:", "(1, 1, 64, 16)", "(.., .., 128, 16)"),
    ),
    "A of another K": (
        moved(REPEATED, "a", lambda a: a.rearrange("r (s p) m k -> r s m (p k)", p=2)),
        ("a:", "(1, 2, 128, 32)", "(.., .., 128, 16)"),
    ),
    "B transposed": (
        moved(made(), "b", lambda b: b.rearrange("r s n k -> r s k n")),
        ("b:", "(1, 1, 16, 64)", "(.., .., 64, 16)"),
    ),
    "K repeats": (moved(REPEATED, "a", lambda a: a[:, :3]), ("b:", "(2, 4)", "k_repeat = 3", "wants (2, 3)")),
    "N repeats": (moved(REPEATED, "b", lambda b: b[:1]), ("b:", "(1, 4)", "wants (2, 4)")),
    "M repeats": (moved(made(repeats=(2, 1, 1)), "a", lambda a: a[:1]), ("a:", "(1, 1)", "wants (2, 1)")),
    ".ws M=64, A without banks": (
        lambda: (
            legal_call(M=64, ws=True) | {"a": legal_call(M=64, a_swizzle=None)["a"], "a_descriptor": None}
        ),
        ("a:", "(1, 1, 64, 16)", "(.., .., 2, 64, 16)"),
    ),
    ".ws M=32, two banks": (
        lambda: (
            legal_call(M=32, ws=True)
            | {"a": legal_call(M=64, ws=True, a_swizzle=None)["a"], "a_descriptor": None}
        ),
        ("a:", "(1, 1, 2, 64, 16)", "(.., .., 4, 32, 16)"),
    ),
}


@pytest.mark.parametrize("name", SHAPES_REFUSED)
def test_shapes_refused(name):
    make, words = SHAPES_REFUSED[name]
    refuse(make, ValueError, *words)


def scaled(
    name: str, shape: tuple[int, ...], layout: tuple[int, ...] | None = None, kind: str = "mxf8f6f4"
) -> Make:
    """A block-scaled call with scales of `shape`, placed as a scale operand of `layout`."""

    def build() -> Call:
        x = np.ones(shape, E8M0)
        placed = tc.tmem(x, tc.scale_factor_layout(layout or shape, "float8_e8m0fnu"))
        return legal_call(kind) | {name: placed}

    return build


SCALES_REFUSED = {
    # B31: SFB is (N, scale_vec), a row for each output column.
    "SFB transposed": (
        scaled("sfb", (1, 1, 1, 64), (1, 1, 1, 1)),
        ValueError,
        ("shape (1, 1, 1, 64)", "(1, 1, 1, 1)"),
    ),
    "SFB of K rows": (
        scaled("sfb", (1, 1, 32, 2)),
        ValueError,
        ("sfb", "(1, 1, 32, 2)", "(.., .., 64, 1)", "(n_repeat, k_repeat, N, scale_vec)"),
    ),
    # B35: scale_vec comes from the opcode, never from ratios.
    "4 columns with 2X": (
        scaled("sfa", (1, 1, 128, 4), kind="mxf4"),
        ValueError,
        ("sfa", "(1, 1, 128, 4)", "(.., .., 128, 2)", "scale_vec::2X"),
    ),
    "1 column with 2X": (
        scaled("sfb", (1, 1, 64, 1), kind="mxf4"),
        ValueError,
        ("sfb", "(1, 1, 64, 1)", "(.., .., 64, 2)"),
    ),
    "M rows in SFB": (
        scaled("sfb", (1, 1, 128, 1)),
        ValueError,
        ("sfb", "(1, 1, 128, 1)", "(.., .., 64, 1)"),
    ),
    "rows of one CTA in SFB": (
        lambda: (
            legal_call("mxf4", 256, 64, group=2)
            | {
                "sfb": tc.tmem(
                    np.ones((2, 1, 1, 32, 2), E8M0), tc.scale_factor_layout((1, 1, 32, 2), "float8_e8m0fnu")
                )
            }
        ),
        ValueError,
        ("sfb", "(1, 1, 32, 2)", "(.., .., 64, 2)"),
    ),
}


@pytest.mark.parametrize("name", SCALES_REFUSED)
def test_scale_shapes_refused(name):
    make, error, words = SCALES_REFUSED[name]
    if name == "SFB transposed":  # refused as early as it is placed
        with pytest.raises(error) as caught:
            make()
        assert all(word in str(caught.value) for word in words)
    else:
        refuse(make, error, *words)


@pytest.mark.parametrize("shape", [(1024,), (512,), (1, 512), (32, 16), (2, 512), (3, 128, 2)])
def test_other_forms_of_scales_are_refused(shape):
    """B29: flat scales and the 512-byte block form have as many elements, and no place."""
    layout = tc.scale_factor_layout((1, 4, 128, 1), "float8_e8m0fnu")
    with pytest.raises(ValueError, match=r"array: got shape .* for a layout of shape \(1, 4, 128, 1\)"):
        tc.tmem(np.ones(shape, E8M0), layout)
    with pytest.raises(
        ValueError, match=r"shape: got .*\(repeat, k_repeat, rows, vec\)|vec|allowed: 1, 2, 4"
    ):
        tc.scale_factor_layout(shape, "float8_e8m0fnu")


def test_three_scales_per_step_are_refused():
    with pytest.raises(ValueError, match=r"got 3 scales per row and step; allowed: 1, 2, 4"):
        tc.scale_factor_layout((1, 1, 128, 3), "float8_e8m0fnu")


# Scale placement: ids, lanes, replicas


def byte_scales(
    vec: int, byte: int = 0, lane: int = 0, rows: int = 128, copies: Any = ((4, 32),)
) -> tc.PlacedOperand:
    layout = S[(rows // 32, 32, vec) : (4 @ TCol, 1 @ TLane, 1 @ TCol)]
    for extent, stride in copies:
        layout = layout + R[extent : stride @ TLane]
    layout = layout + byte @ TCol + lane @ TLane if lane else layout + byte @ TCol
    return tc.tmem(np.ones((rows, vec), E8M0), layout.view(rows, vec)).view(1, 1, rows, vec)


@pytest.mark.parametrize(
    ("kind", "vec", "ids"), [("mxf8f6f4", 1, (0, 1, 2, 3)), ("mxf4", 2, (0, 2)), ("mxf4nvf4", 4, (0,))]
)
def test_scale_factor_ids(kind, vec, ids):
    for byte in range(8):
        call = changed(made(kind), sfa=byte_scales(vec, byte))
        if byte % 4 in ids:
            plan = tc.plan(**call())
            address = plan.sfa.starts[0]
            assert address >> 30 == byte % 4 and (address & 0xFFFF) == 64 + byte // 4
        else:
            refuse(
                call,
                ValueError,
                "sfa",
                f"byte {byte % 4}",
                "scale-factor id may be",
                ", ".join(map(str, ids)),
            )


SCALE_PLACES_REFUSED = {
    "no copies": (byte_scales(1, copies=()), ("sfa", "these replicas: none", "four copies, 32 lanes apart")),
    "two copies": (byte_scales(1, copies=((2, 64),)), ("sfa", "2 at 64", "four copies")),
    "row split (32, 4)": (
        tc.tmem(
            np.ones((128, 1), E8M0),
            (S[(32, 4, 1) : (1 @ TLane, 4 @ TCol, 1 @ TCol)] + R[4 : 32 @ TLane]).view(128, 1),
        ).view(1, 1, 128, 1),
        ("sfa", "element (0, 0, 1, 0)", "lane 0", "lane 1", "r % 32"),
    ),
}


@pytest.mark.parametrize("name", SCALE_PLACES_REFUSED)
def test_scale_places_refused(name):
    placed, words = SCALE_PLACES_REFUSED[name]
    refuse(changed(made("mxf8f6f4"), sfa=placed), ValueError, *words)
