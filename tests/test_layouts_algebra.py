"""Laws of the layout algebra against NumPy on the images, and what it refuses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_tcgen05.layouts import Axis, LayoutIndexError, R, S, Swizzle, TCol, TileLayout, TLane

AXES = (Axis("m"), TLane, TCol)
quick = settings(max_examples=100, deadline=None)


@st.composite
def layouts(draw: st.DrawFn, axes: tuple[Axis, ...] = AXES, bounded: bool = True) -> TileLayout:
    """Layouts of 1 to 3 axes of 1 to 3 digits, with offsets, some of them parts of a padded tile."""
    extents, strides = [], []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))
        extents.append(tuple(draw(st.sampled_from((1, 2, 2, 3, 4))) for _ in range(count)))
        steps = (draw(st.sampled_from((0, 1, 2, 3, 4, 8, 12, 16))) for _ in range(count))
        strides.append(tuple(step @ draw(st.sampled_from(axes)) for step in steps))
    layout = S[tuple(extents) : tuple(strides)] + (draw(st.integers(0, 5)) @ draw(st.sampled_from(axes)))
    if bounded:
        layout = layout[tuple(slice(draw(st.integers(1, size))) for size in layout.shape)]
    return layout


def same(layout: TileLayout, images: dict[str, np.ndarray]) -> None:
    """`layout` has exactly these images; axes that are 0 everywhere may be missing on either side."""
    own = layout.image()
    for name in own.keys() | images.keys():
        assert np.array_equal(
            np.broadcast_to(own.get(name, 0), layout.shape),
            np.broadcast_to(images.get(name, 0), layout.shape),
        )
    for image in images.values():
        assert image.shape == layout.shape


def has_digits(line: np.ndarray) -> bool:
    """Whether a sequence (n, axes) starting at 0 is sum(digit * stride) for some digits: tries every extent."""
    if len(line) == 1:
        return True
    for extent in range(2, len(line) + 1):
        inner = all((line[i] == i * line[1]).all() for i in range(extent) if i < len(line))
        whole = all((line[i] == line[i - i % extent] + line[i % extent]).all() for i in range(len(line)))
        if inner and whole and has_digits(line[::extent]):
            return True
    return False


def is_layout(images: dict[str, np.ndarray]) -> bool:
    """Whether some layout has these images: the axes are independent and each has digits."""
    stacked = np.stack(list(images.values()), axis=-1)
    stacked = stacked - stacked[(0,) * (stacked.ndim - 1)]
    total = np.zeros_like(stacked)
    for axis in range(stacked.ndim - 1):
        line = stacked[tuple(slice(None) if i == axis else 0 for i in range(stacked.ndim - 1))]
        if not has_digits(line):
            return False
        total = total + np.moveaxis(line[(None,) * (stacked.ndim - 2)], -2, axis)
    return bool((total == stacked).all())


def shapes_of(count: int) -> list[tuple[int, ...]]:
    """Every shape of up to three axes with this many elements."""
    divisors = [d for d in range(1, count + 1) if count % d == 0]
    return [
        s for rank in (1, 2, 3) for s in itertools.product(divisors, repeat=rank) if math.prod(s) == count
    ]


@quick
@given(layouts(), st.data())
def test_view_is_reshape(layout: TileLayout, data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(shapes_of(math.prod(layout.shape))))
    images = {name: image.reshape(shape) for name, image in layout.image().items()}
    try:
        view = layout.view(*shape)
    except ValueError as error:
        assert not is_layout(images), f"refused though there is such a layout: {error}"
        assert str(error).startswith("view: ax")
        return
    same(view, images)
    assert view.view(*layout.shape) == layout


@quick
@given(layouts(), st.data())
def test_index_is_numpys(layout: TileLayout, data: st.DataObject) -> None:
    def entry(size: int) -> Any:
        ends = st.none() | st.integers(-size - 1, size + 1)
        step = st.sampled_from((None, 1, 1, 2, 3, -1))
        return data.draw(st.builds(slice, ends, ends, step) | st.integers(-size, size - 1))

    index: tuple[Any, ...] = tuple(entry(size) for size in layout.shape)
    index = data.draw(st.sampled_from((index, index[:1], (..., index[-1]), (index[0], None, ...))))
    images = {name: image[index] for name, image in layout.image().items()}
    expected = next(iter(images.values())).shape
    if 0 in expected:
        with pytest.raises(ValueError, match="is empty"):
            layout[index]
        return
    try:
        part = layout[index]
    except ValueError as error:
        assert not is_layout(images), f"refused though there is such a layout: {error}"
        assert "crosses a tile's boundary" in str(error)
        return
    same(part, images)


@quick
@given(layouts(bounded=False), st.data())
def test_rearrange_is_reshape_transpose_reshape(layout: TileLayout, data: st.DataObject) -> None:
    names: list[str] = []
    groups, sizes = [], {}
    for axis in layout.axes:
        own = [f"x{len(names) + i}" for i in range(len(axis.digits))]
        names += own
        sizes.update({name: digit.extent for name, digit in zip(own, axis.digits, strict=True)})
        groups.append(f"({' '.join(own)})")
    order = data.draw(st.permutations(names))
    cut = data.draw(st.integers(0, len(names)))
    right = f"{' '.join(order[:cut])} 1 ({' '.join(order[cut:])}) ()"
    out = layout.rearrange(f"{' '.join(groups)} -> {right}", **sizes)
    split = tuple(sizes[name] for name in names)
    merged = (*(sizes[name] for name in order[:cut]), 1, math.prod(sizes[name] for name in order[cut:]), 1)
    images = {
        axis: image.reshape(split).transpose([names.index(name) for name in order]).reshape(merged)
        for axis, image in layout.image().items()
    }
    same(out, images)


@quick
@given(layouts(), layouts())
def test_equal_exactly_if_same_map(one: TileLayout, two: TileLayout) -> None:
    two = two if two.shape == one.shape else one.canonical()
    images = one.image(), two.image()
    maps = [{name: image.tolist() for name, image in image.items() if image.any()} for image in images]
    assert (one == two) == (maps[0] == maps[1])
    if one == two:
        assert hash(one) == hash(two)


@quick
@given(layouts())
def test_canonical(layout: TileLayout) -> None:
    short = layout.canonical()
    same(short, layout.image())
    assert short == layout and hash(short) == hash(layout)
    assert short.canonical().axes == short.axes
    assert all(digit.extent > 1 for axis in short.axes for digit in axis.digits)
    assert all(len(s.digits) <= len(a.digits) for s, a in zip(short.axes, layout.axes, strict=True))


@quick
@given(layouts(), st.data())
def test_one_element_is_the_image_s(layout: TileLayout, data: st.DataObject) -> None:
    coordinate = tuple(data.draw(st.integers(0, size - 1)) for size in layout.shape)
    assert layout(*coordinate) == {name: int(image[coordinate]) for name, image in layout.image().items()}
    assert layout.span() == {name: int(image.max()) + 1 for name, image in layout.image().items()}


@quick
@given(layouts(axes=(Axis("m"),)), layouts())
def test_compose_with_a_layout(inner: TileLayout, outer: TileLayout) -> None:
    size = math.prod(outer.shape)
    index = inner.image()["m"]
    if index.max() >= size:
        with pytest.raises(ValueError, match=r"positions .* leave the"):
            inner.compose(outer)
        return
    images = {name: image.ravel()[index] for name, image in outer.image().items()}
    try:
        out = inner.compose(outer)
    except ValueError:
        assert not is_layout(images)
        return
    same(out, images)


@quick
@given(layouts())
def test_repr_is_the_notation(layout: TileLayout) -> None:
    layout = (
        layout + R[(2, 2) : (64 @ TLane, 16 @ TLane)] + Swizzle(3, 2, 3) if "m" in layout.names else layout
    )
    assert eval(repr(layout)) == layout  # names come from this module's imports


def test_swizzle_is_applied_after_the_offset() -> None:
    layout = Swizzle(3, 3, 3) @ S[(8, 64) : (64, 1)]
    assert layout == S[(8, 64) : (64, 1)].compose(Swizzle(3, 3, 3)) == S[(8, 64) : (64, 1)] + Swizzle(3, 3, 3)
    x = np.arange(512).reshape(8, 64)
    assert (layout.image()["m"] == x ^ ((x >> 3) & 56)).all()
    part = layout[1:3, 8:16]
    assert (part.image()["m"] == layout.image()["m"][1:3, 8:16]).all()
    assert part.origin == {"m": 72}  # before the permutation: what a descriptor starts from
    y = x + 64
    assert ((layout + 64).image()["m"] == y ^ ((y >> 3) & 56)).all()
    assert layout.view(2, 4, 64)(1, 2, 3) == layout(6, 3)
    with pytest.raises(ValueError, match=r"has Swizzle.3, 3, 3. already"):
        layout.compose(Swizzle(3, 2, 3))
    with pytest.raises(ValueError, match="permutes axis 'm', but the layout counts on"):
        S[(8,) : (1 @ TLane,)] + Swizzle(3, 3, 3)
    assert layout.compose(Swizzle(2, 0, 3)) == layout  # permutes nothing


def test_replicas_are_kept_and_compared() -> None:
    layout = TileLayout(S[(32, 4) : (1 @ TLane, 1 @ TCol)] + R[4 : 32 @ TLane] + (8 @ TCol))
    assert [(digit.extent, digit.stride("TLane")) for digit in layout.replicas] == [(4, 32)]
    assert layout(3, 2) == {"TLane": 3, "TCol": 10}  # not enumerated
    assert layout.span() == {"TLane": 128, "TCol": 12}
    assert layout.view(2, 16, 4).replicas == layout.replicas
    assert layout != S[(32, 4) : (1 @ TLane, 1 @ TCol)] + (8 @ TCol)
    twice = S[(32, 4) : (1 @ TLane, 1 @ TCol)] + R[2 : 64 @ TLane] + R[2 : 32 @ TLane] + (8 @ TCol)
    assert twice == layout  # two copies of two copies are four


def test_bounds_travel_with_the_axis() -> None:
    tile = S[((4, 32), 4) : ((4 @ TCol, 1 @ TLane), 1 @ TCol)]
    part = tile[:100]
    assert part.shape == (100, 4) and part(99, 0) == {"TLane": 3, "TCol": 12}
    with pytest.raises(LayoutIndexError, match=r"axis 0 got 100; allowed 0\.\.99"):
        part(100, 0)
    assert part.view(1, 100, 4).shape == (1, 100, 4)
    assert part.view(400)(399) == part(99, 3)  # the outermost axis may be bounded
    halves = part.view(25, 4, 4)  # 4 divides the 32 lanes and the bound
    assert halves(24, 3, 0) == part(99, 0)
    assert part[:64] == tile[:64]  # no longer bounded
    with pytest.raises(
        ValueError, match=r"view: axis 0 \(size 100, stored as tiles of 4 x 32\) cannot split"
    ):
        part.view(10, 10, 4)
    several = S[(3, (4, 32)) : (16 @ TCol, (4 @ TCol, 1 @ TLane))][:, :100]
    with pytest.raises(
        ValueError, match=r"view: axes 0\.\.1 .* axis 1 \(size 100\) is a part of a larger tile"
    ):
        several.view(300)
    assert several.view(3, 25, 4).shape == (3, 25, 4)


def test_slices_across_a_tile_s_boundary() -> None:
    panels = S[(8, (2, 64)) : (64, (512, 1))]  # two panels of 64 columns
    assert panels[:, 32:96].image()["m"].tolist() == panels.image()["m"][:, 32:96].tolist()
    with pytest.raises(
        ValueError, match=r"index: axis 1 \(size 128, stored as tiles of 2 x 64\): 40:128:1 crosses"
    ):
        panels[:, 40:128]
    assert panels[::-1, ::-1].image()["m"].tolist() == panels.image()["m"][::-1, ::-1].tolist()


NOT_LAYOUTS: list[tuple[Any, type[Exception], str]] = [
    (lambda: S[8], TypeError, r"S\[...\]: got 8; expected S\[extents : strides\]"),
    (lambda: S[8:1:2], TypeError, "expected S"),
    (lambda: S[(8, 4) : (1,)], ValueError, "2 extents"),
    (lambda: S[(8, 4) : 1], ValueError, "2 extents"),
    (lambda: S[((2, 4), 4) : (1, 1)], ValueError, r"axis 0: strides 1 do not match extents \(2, 4\)"),
    (lambda: S[0:1], ValueError, "axis 0: extent: got 0; expected a positive integer"),
    (lambda: S[(4, -8) : (1, 1)], ValueError, "axis 1: extent: got -8"),
    (lambda: S[8.0:1], TypeError, r"extent: got 8\.0 \(float\); expected a static integer"),
    (lambda: S[True:1], TypeError, "got True"),
    (lambda: S[8:"m"], TypeError, "stride: got 'm'"),
    (lambda: S[((), 4) : ((), 1)], ValueError, "axis 0: no extents given"),
    (lambda: S[8:1] + 1.5, TypeError, "unsupported operand"),
    (lambda: S[8:1] + S[8:1], TypeError, "unsupported operand"),
    (lambda: 1.5 @ TLane, TypeError, r"... @ TLane: got 1\.5"),
    (lambda: Axis("a b"), ValueError, "Axis: got 'a b'"),
    (lambda: TileLayout((8,)), TypeError, "expected S"),
    (lambda: S[(1 << 40, 1 << 40) : (1, 1)], ValueError, "exceed 2"),
    (lambda: S[2 : 1 << 62], ValueError, "exceed 2"),
    (
        lambda: S[(1 << 20, 1 << 20) : (1, 1)].image(),
        ValueError,
        "image: 1099511627776 elements are too many",
    ),
    (
        lambda: S[((1 << 20, 1 << 20),) : ((1, 1),)][1:],
        ValueError,
        "slice: 1099511627775 elements are too many",
    ),
    (lambda: Swizzle(-1, 1, 3), ValueError, "got p=-1"),
    (lambda: Swizzle(3, 3.0, 3), TypeError, r"Swizzle: s: got 3\.0"),
    (lambda: S[8:1].compose("x"), TypeError, "compose: got 'x'"),
    (lambda: TILE(1), ValueError, r"coordinate: got 1 entries; the layout's shape is \(128, 64\)"),
    (lambda: TILE(128, 0), IndexError, r"coordinate: axis 0 got 128; allowed 0\.\.127"),
    (lambda: TILE(0, -1), ValueError, r"coordinate: axis 1 got -1; allowed 0\.\.63"),
    (lambda: TILE(0, 1.0), TypeError, r"coordinate: axis 1: got 1\.0"),
    (lambda: TILE.view(-1, -1, 16), ValueError, r"got \(-1, -1, 16\); at most one size may be -1"),
    (
        lambda: TILE.view(128, 63),
        ValueError,
        r"view: \(128, 63\) holds 8064 elements, but shape .* holds 8192",
    ),
    (lambda: TILE.view(0, -1), ValueError, "view: axis 0 got size 0"),
    (lambda: TILE.view(-2, 64), ValueError, "view: axis 0 got size -2"),
    (lambda: TILE.view(-1, 60), ValueError, r"view: \(-1, 60\) cannot hold the 8192 elements"),
    (lambda: TILE.view(128.0, 64), TypeError, r"view: axis 0: got 128\.0"),
    (lambda: TILE.permute(0, 0), ValueError, r"permute: got \(0, 0\); expected each of 0\.\.1 once"),
    (lambda: TILE[0:0], ValueError, "is empty"),
    (lambda: TILE[::0], ValueError, "step 0"),
    (lambda: TILE[128], IndexError, r"index: axis 0: got 128; allowed -128\.\.127"),
    (lambda: TILE[0, 0, 0], ValueError, r"index: got \(0, 0, 0\) for shape"),
    (lambda: TILE[..., ...], ValueError, "one ..."),
    (lambda: TILE[[0, 1]], TypeError, r"index: got \[0, 1\]"),
    (lambda: TILE[1.5:], TypeError, r"index: axis 0: got 1\.5"),
    (lambda: TILE.rearrange("m k"), ValueError, "must contain '->'"),
    (lambda: TILE.rearrange("m k j -> j m k"), ValueError, r"has 3 axes, but shape \(128, 64\) has 2"),
    (
        lambda: TILE.rearrange("m k -> m j"),
        ValueError,
        r"axes \['k', 'm'\] on the left and \['j', 'm'\] on the",
    ),
    (lambda: TILE.rearrange("m (a b) -> a m b", b=24), ValueError, r"axis 1 \(size 64\).*by the product 24"),
    (
        lambda: TILE.rearrange("m (a b c) -> a m (b c)", b=16),
        ValueError,
        r"more than one unknown size.*'a', 'c'",
    ),
    (lambda: TILE.rearrange("m k -> k m", k=32), ValueError, r"axis 1 \(size 64\).*should have size 32"),
    (lambda: TILE.rearrange("m k -> k m", j=32), ValueError, r"sizes given for \['j'\]"),
    (lambda: TILE.rearrange("m k -> k m", k=0), ValueError, "size of 'k': got 0"),
    (lambda: TILE.rearrange("m k -> k m", k=2.0), TypeError, r"size of 'k': got 2\.0"),
    (lambda: TILE.rearrange("m (k -> k m"), ValueError, "parentheses"),
    (lambda: TILE.rearrange("m ((k)) -> k m"), ValueError, "parentheses"),
    (lambda: TILE.rearrange("m m -> m m"), ValueError, "twice"),
    (lambda: TILE.rearrange("m k -> k m 2"), ValueError, "unexpected '2'"),
    (lambda: TILE.rearrange("m 1 -> m"), ValueError, r"axis 1 \(size 64\).*should have size 1"),
    (lambda: TILE.rearrange("m ... -> m"), ValueError, "on both sides"),
    (lambda: TILE.rearrange("(m ...) k -> m k ..."), ValueError, "inside parentheses on the left"),
    (lambda: TILE.rearrange("a b c ... -> ... a b c"), ValueError, "names 3 axes"),
    (lambda: TILE.rearrange(3), TypeError, "rearrange: got 3"),
]

TILE = S[(128, 64) : (64, 1)]


@pytest.mark.parametrize(
    ("make", "kind", "message"), NOT_LAYOUTS, ids=[message for _, _, message in NOT_LAYOUTS]
)
def test_refusals_say_what_was_given(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_rearrange_notation() -> None:
    x = np.arange(128 * 64).reshape(128, 64)

    def check(pattern: str, expected: np.ndarray, **sizes: int) -> None:
        out = TILE.rearrange(pattern, **sizes)
        assert out.shape == expected.shape and (out.image()["m"] == expected).all(), pattern

    check("m (kr k) -> kr m k", x.reshape(128, 4, 16).transpose(1, 0, 2), k=16)
    check("m k -> () m 1 k", x.reshape(1, 128, 1, 64))
    check("... k -> k ...", x.T)
    check("(a b) ... -> (b ...) a", x.reshape(32, 4, 64).transpose(1, 2, 0).reshape(256, 32), b=np.int64(4))
    check("m k->(k m)", x.T.ravel())
    check("a b ... -> ... b a", x.T)
    assert TILE.view(1, 128, 64).rearrange("1 m k -> k m").shape == (64, 128)
    assert TILE.view((2, -1)).shape == (2, 4096)


def test_nested_extents_are_one_axis() -> None:
    layout = S[((4, 16), 64) : ((32 @ TLane, 1 @ TLane), 1 @ TCol)]
    assert layout.shape == (64, 64) and layout(37, 5) == {"TLane": 69, "TCol": 5}
    assert layout.storage == "tmem" and S[8:1].storage == "shared"
    assert S[(8, 8) : (1, 1 @ TLane)].storage is None
    assert layout.slice(slice(0, 16)) == S[(16, 64) : (1 @ TLane, 1 @ TCol)]
