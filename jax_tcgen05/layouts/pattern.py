"""The einops notation of `rearrange`: a pattern and a shape give a split, a permutation and a merge."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .digits import as_size

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z]\w*)|(?P<one>1)(?!\w)|(?P<mark>\.\.\.|[()])|(?P<bad>\S+?))")

Group = list[str]  # the names that one axis holds; [] is an axis of size 1


class Rearrangement(NamedTuple):
    """View as `split`, take the axes in `order`, view as `merge`."""

    split: tuple[int, ...]
    order: tuple[int, ...]
    merge: tuple[int, ...]


def parse(pattern: str, shape: tuple[int, ...], sizes: Mapping[str, Any]) -> Rearrangement:
    """What `pattern` asks of an operand of `shape`; ValueError for what einops refuses too."""
    if not isinstance(pattern, str):
        raise TypeError(f"rearrange: got {pattern!r}; expected a pattern such as 'm (kr k) -> kr m k'")
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: pattern {pattern!r} must contain '->' exactly once")
    left, right = (_groups(side, pattern) for side in sides)
    left_dots, right_dots = (sum(group.count("...") for group in side) for side in (left, right))
    if ["..."] not in left and left_dots:
        raise ValueError(f"rearrange: '...' may not be inside parentheses on the left of {pattern!r}")
    if left_dots != right_dots:
        raise ValueError(f"rearrange: '...' must be on both sides of {pattern!r} or on none")
    if left_dots:
        extra = len(shape) - (len(left) - 1)
        if extra < 0:
            raise ValueError(
                f"rearrange: {pattern!r} names {len(left) - 1} axes, but shape {shape} has {len(shape)}"
            )
        dots = [f"...{number}" for number in range(extra)]
        at = left.index(["..."])
        left[at : at + 1] = [[name] for name in dots]
        expanded: list[Group] = []
        for group in right:
            if group == ["..."]:
                expanded += [[name] for name in dots]
            else:
                expanded.append([n for name in group for n in (dots if name == "..." else [name])])
        right = expanded
    if len(left) != len(shape):
        raise ValueError(
            f"rearrange: the left of {pattern!r} has {len(left)} axes, but shape {shape} has {len(shape)}"
        )
    known = _sizes(left, right, shape, sizes, pattern)
    names = [name for group in left for name in group]
    return Rearrangement(
        split=tuple(known[name] for name in names),
        order=tuple(names.index(name) for group in right for name in group),
        merge=tuple(math.prod(known[name] for name in group) for group in right),
    )


def _groups(side: str, pattern: str) -> list[Group]:
    groups: list[Group] = []
    names: list[str] = []
    inside = False
    side = side.rstrip()
    at = 0
    while at < len(side):
        match = _TOKEN.match(side, at)
        assert match is not None  # `bad` matches anything
        at = match.end()
        mark, name = match["mark"], match["name"]
        if match["bad"]:
            raise ValueError(
                f"rearrange: unexpected {match['bad']!r} in {pattern!r}; names, 1, (), ... are allowed"
            )
        if mark in ("(", ")"):
            if inside == (mark == "("):
                raise ValueError(f"rearrange: unbalanced or nested parentheses in {pattern!r}")
            inside = mark == "("
            if inside:
                groups.append([])
            continue
        if name or mark:
            if (name or mark) in names:
                raise ValueError(f"rearrange: {name or mark!r} is there twice on one side of {pattern!r}")
            names.append(name or mark)
        entry = [name or mark] if name or mark else []
        if inside:
            groups[-1] += entry
        else:
            groups.append(entry)
    if inside:
        raise ValueError(f"rearrange: unbalanced or nested parentheses in {pattern!r}")
    return groups


def _sizes(
    left: list[Group], right: list[Group], shape: tuple[int, ...], sizes: Mapping[str, Any], pattern: str
) -> dict[str, int]:
    """The size of every named axis."""
    given = {name: as_size(size, f"rearrange: size of {name!r}") for name, size in sizes.items()}
    names = [name for group in left for name in group]
    others = [name for group in right for name in group]
    if set(names) != set(others):
        raise ValueError(
            f"rearrange: {pattern!r} has axes {sorted(names)} on the left and {sorted(others)} on the right; "
            "they must be the same"
        )
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(f"rearrange: sizes given for {unknown}, which are not in {pattern!r}")
    out: dict[str, int] = {}
    for number, (group, size) in enumerate(zip(left, shape, strict=True)):
        where = f"rearrange: axis {number} (size {size}), '({' '.join(group)})' in {pattern!r},"
        free = [name for name in group if name not in given]
        product = math.prod(given[name] for name in group if name in given)
        if len(free) > 1:
            raise ValueError(f"{where} has more than one unknown size: give all but one of {free}")
        if size % product:
            raise ValueError(f"{where} is not divisible by the product {product} of the sizes given")
        if not free and size != product:
            raise ValueError(f"{where} should have size {product}")
        out.update({name: given.get(name, size // product) for name in group})
    return out
