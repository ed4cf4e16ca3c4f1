"""Operands in TMEM against the datapath: D, A in TMEM, and the scale factors.

Starts are TMEM addresses, lane << 16 | column (PTX ISA, Tensor Memory addressing).
"""

from __future__ import annotations

import numpy as np

from ..isa import Opcode, datapath, refusal
from ..layouts import TileLayout, tmem_datapath_layout
from ..plan import TMEM_LANES


def _origins(name: str, lanes: np.ndarray, bits: np.ndarray, atom: int) -> tuple[np.ndarray, np.ndarray]:
    """(lane, column) of every repeat's first element; the atom has `atom` axes."""
    lane, bit = (x.reshape(*x.shape[:-atom], -1)[..., 0] for x in (lanes, bits))
    if (bit % 32).any():
        raise ValueError(
            f"{name}: a repeat starts at bit {int(bit.max()) % 32} of a TMEM cell; origins are whole 32-bit cells"
        )
    return lane, bit // 32


def _addresses(lane: np.ndarray, column: np.ndarray) -> tuple[int, ...]:
    return tuple((int(x) << 16) | int(c) for x, c in zip(lane.ravel(), column.ravel(), strict=True))


def _image(view: TileLayout, bits: int, base: int) -> tuple[np.ndarray, np.ndarray]:
    image = view.image()
    shape = view.shape
    lanes = np.broadcast_to(image.get("TLane", 0), shape)
    return lanes, np.broadcast_to(image.get("TCol", 0), shape) * bits + 32 * base


def _compare(name: str, what: str, rule: str, given: np.ndarray, expected: np.ndarray) -> None:
    expected = np.broadcast_to(expected, given.shape)
    if np.array_equal(given, expected):
        return
    where = tuple(int(i[0]) for i in np.nonzero(given != expected))
    raise ValueError(
        f"{name}: the layout disagrees with the datapath: element {where} lies in {what} {int(given[where])}, the "
        f"instruction has it in {what} {int(expected[where])} ({rule})"
    )


def _check_replicas(name: str, view: TileLayout, wanted: tuple[tuple[int, int], ...], rule: str) -> None:
    """Replicas must be exactly `wanted`: (extent, lanes) pairs."""
    given = [(r.extent, r.strides) for r in view.canonical().replicas]
    if given != [(extent, (("TLane", lanes),)) for extent, lanes in wanted]:
        steps = [
            (r.extent, " and ".join(f"{step} along {axis}" for axis, step in r.strides))
            for r in view.replicas
        ]
        shown = ", ".join(f"{extent} at {step}" for extent, step in steps) or "none"
        raise ValueError(f"{name}: got these replicas: {shown}; the instruction wants {rule}")


def d_starts(view: TileLayout, opcode: Opcode, m: int, n: int, bits: int) -> tuple[tuple[int, ...], int]:
    """Addresses of D's tiles, and the columns that D's allocation must have (OQ5: the largest origin + N)."""
    path = datapath(m, opcode.cta_group, opcode.ws)
    rule = f"layout {path.letter}"
    lanes, bit = _image(view, bits, 0)
    lane0, column0 = _origins("d", lanes, bit, 2)
    native = tmem_datapath_layout(path.letter, path.rows, n).image()
    _compare("d", "lane", rule, lanes, lane0[..., None, None] + native["TLane"])
    _compare("d", "bit of the lane", rule, bit, 32 * (column0[..., None, None] + native["TCol"]))
    if not np.isin(lane0, path.base_lanes).all():
        raise refusal("d", f"a tile in lane {int(lane0.max())}", path.base_lanes, f"first lanes of {rule}")
    _check_replicas("d", view, (), "none")
    return _addresses(lane0, column0), int(column0.max()) + n


def a_starts(
    view: TileLayout, opcode: Opcode, m: int, bits: int, base: int, d_addresses: np.ndarray
) -> tuple[int, ...]:
    """Addresses of A's K steps in TMEM; `d_addresses` has the shape (m_repeat, n_repeat)."""
    path = datapath(m, opcode.cta_group, opcode.ws)
    letter = path.letter
    banked = len(view.shape) == 5
    rows, k = view.shape[-2:]
    lanes, bit = _image(view, bits, base)
    lane0, column0 = _origins("a", lanes, bit, 3 if banked else 2)
    row_lane = tmem_datapath_layout("F", rows, 8).image()["TLane"][:, 0] if letter == "F" else np.arange(rows)
    expected = np.broadcast_to(row_lane[:, None], (rows, k))
    if banked:
        expected = path.rows * np.arange(path.fold)[:, None, None] + expected
    atom = (..., *(None,) * expected.ndim)
    rule = f"A in TMEM with layout {letter}" + (", banked" if banked else "")
    _compare("a", "lane", rule, lanes, lane0[atom] + expected)
    _compare(
        "a",
        "bit of the lane",
        "K elements packed by the input format",
        bit,
        32 * column0[atom] + bits * np.arange(k),
    )
    d_lanes = d_addresses >> 16
    if (lane0[:, :, None] != d_lanes[:, None, :]).any():
        raise ValueError(
            f"a: a K step starts in lane {int(lane0.max())}, D's tile in lane {int(d_lanes.max())}; "
            "A in TMEM lies in the lanes of D (OQ3)"
        )
    if letter == "B" and not banked:
        _check_replicas(
            "a", view, ((2, 64),), "a replica of 2 at 64 lanes (layout B reads A in both lane halves)"
        )
    else:
        _check_replicas("a", view, (), "none")
    return _addresses(lane0, column0)


def scale_starts(name: str, view: TileLayout, ids: tuple[int, ...], base: int) -> tuple[int, ...]:
    """Addresses of the scale factors of every repeat, each with its scale-factor id in bits 30-31.

    `view` has the shape (repeat, k_repeat, rows, vec); row r lies in lane r % 32, byte column 4 * (r // 32) + v
    from the origin, in four copies 32 lanes apart (ptx_contract 8.1).
    """
    rows, vec = view.shape[-2:]
    lanes, bit = _image(view, 8, base)
    byte = bit // 8
    lane0, byte0 = lanes[..., 0, 0], byte[..., 0, 0]
    if lane0.any():
        raise ValueError(f"{name}: a repeat starts in lane {int(lane0.max())}; scale factors start in lane 0")
    r, v = np.arange(rows)[:, None], np.arange(vec)
    rule = "row r in lane r % 32, byte column 4 * (r // 32) + v"
    _compare(name, "lane", rule, lanes, r % 32)
    _compare(name, "byte column", rule, byte, byte0[..., None, None] + 4 * (r // 32) + v)
    _check_replicas(name, view, ((4, 32),), "four copies, 32 lanes apart")
    chosen = byte0 % 4
    if not np.isin(chosen, ids).all():
        bad = int(chosen[~np.isin(chosen, ids)][0])
        raise ValueError(
            f"{name}: a repeat starts in byte {bad} of its 32-bit word; with {vec} scale factors per K step the "
            f"scale-factor id may be {', '.join(map(str, ids))}"
        )
    return tuple((int(i) << 30) | int(c) for i, c in zip(chosen.ravel(), (byte0 // 4).ravel(), strict=True))


def check_lanes(name: str, lanes: np.ndarray) -> None:
    """A placement must stay within the 128 lanes."""
    if lanes.min() < 0 or lanes.max() >= TMEM_LANES:
        raise ValueError(
            f"{name}: the layout uses lanes {int(lanes.min())}..{int(lanes.max())}; TMEM has lanes 0..127"
        )
