"""Tiles of a warp: threads that execute one instruction together and name different member masks."""

from __future__ import annotations

import numpy as np
import pytest

from jax_tcgen05 import vsm

TEXT = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 target) {
  .reg .b32 %lane, %x, %y, %members, %shift, %tile; .reg .b64 %p, %at; .reg .pred %q, %late;
  mov.u32 %lane, %laneid;
  ld.param.u64 %p, [source]; mad.wide.u32 %at, %lane, 4, %p; ld.global.u32 %x, [%at];
  shr.u32 %tile, %lane, TILE;
  mov.u32 %members, MEMBERS;
  shl.b32 %shift, %tile, TILE;
  shl.b32 %members, %members, %shift;
  mov.u32 %y, 0;
  WAYS
  BODY
  ld.param.u64 %p, [target]; mad.wide.u32 %at, %lane, 4, %p; st.global.u32 [%at], %y;
  ret;
}
"""
#: Half of each tile comes by another way, so that tiles are complete one after the other.
WAYS = {
    "together": "",
    "apart": "and.b32 %shift, %lane, 2; setp.ne.u32 %late, %shift, 0; @%late bra LATE; add.u32 %y, %y, 0; bra MEET;\n"
    "LATE: add.u32 %y, %y, 0; add.u32 %y, %y, 0; MEET:",
    "some tiles late": "and.b32 %shift, %tile, 1; setp.ne.u32 %late, %shift, 0; @!%late bra MEET;\n"
    "and.b32 %shift, %lane, 2; setp.ne.u32 %late, %shift, 0; @%late bra MEET;\n"
    "add.u32 %y, %y, 0; nanosleep.u32 1; add.u32 %y, %y, 0; MEET:",
}


def ballot(bits: np.ndarray) -> int:
    return sum(1 << int(i) for i in np.flatnonzero(bits))


BODIES = {
    "redux.sync.add.s32 %y, %x, %members;": lambda x, lanes: [x[lanes].sum()] * len(lanes),
    "setp.gt.s32 %q, %x, 0; vote.sync.ballot.b32 %y, %q, %members;": lambda x, lanes: (
        [ballot(np.isin(np.arange(32), lanes) & (x > 0))] * len(lanes)
    ),
    "shfl.sync.bfly.b32 %y, %x, 1, 0x1f, %members;": lambda x, lanes: x[lanes ^ 1],
    "match.any.sync.b32 %y, %x, %members;": lambda x, lanes: [
        ballot(np.isin(np.arange(32), lanes) & (x == x[i])) for i in lanes
    ],
    "elect.sync %y|%q, %members;": lambda x, lanes: [lanes[0]] * len(lanes),
    "bar.warp.sync %members; mov.u32 %y, %x;": lambda x, lanes: x[lanes],
}


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("check", ["normal", "strict"])
@pytest.mark.parametrize("tile", [2, 3, 4])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.split()[-3 if "bar" in body else 0])
def test_tiles(body: str, tile: int, check: str, ways: str) -> None:
    x = np.random.default_rng(5).integers(-3, 4, 32).astype(np.int32)
    y = np.zeros(32, np.int32)
    text = TEXT.replace("MEMBERS", str((1 << (1 << tile)) - 1)).replace("TILE", str(tile))
    module = vsm.Module(text.replace("WAYS", WAYS[ways]).replace("BODY", body))
    module.launch("k", grid=1, block=32, args=(x, y), check=check)
    groups = np.arange(32).reshape(-1, 1 << tile)
    want = np.concatenate([np.array(BODIES[body](x, lanes)) for lanes in groups])
    assert y.tolist() == want.astype(np.uint32).view(np.int32).tolist()


def test_a_lane_outside_its_own_mask() -> None:
    text = TEXT.replace("MEMBERS", "1").replace("TILE", "4").replace("WAYS", "")
    module = vsm.Module(text.replace("BODY", "redux.sync.add.s32 %y, %x, %members;"))
    with pytest.raises(vsm.ExecutionError, match="lane is not in the member mask"):
        module.launch("k", grid=1, block=32, args=(np.zeros(32, np.int32), np.zeros(32, np.int32)))


def test_a_member_that_never_comes() -> None:
    ways = "setp.eq.u32 %late, %lane, 16; @%late bra STAY; bra GO; STAY: bra STAY; GO:"
    text = TEXT.replace("MEMBERS", "65535").replace("TILE", "4").replace("WAYS", ways)
    module = vsm.Module(text.replace("BODY", "redux.sync.add.s32 %y, %x, %members;"))
    with pytest.raises(vsm.ExecutionError, match="step limit"):
        module.launch(
            "k", grid=1, block=32, args=(np.zeros(32, np.int32), np.zeros(32, np.int32)), step_limit=5000
        )
