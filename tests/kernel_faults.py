"""The device kernels' PTX run on the virtual SM straight from text, whole or with one instruction taken out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from calls import Arguments, Form, place, random_arrays

from jax_tcgen05 import ZeroColumnMask
from jax_tcgen05 import _core as core
from jax_tcgen05.plan import Plan

NAME = re.compile(
    r"tcgen05_mma_(?P<kind>[a-z0-9]+)_g(?P<group>[12])_(?P<form>dense|ws)_v(?P<vec>[0124])"
    r"_(?P<a>ss|ts)_(?P<extra>plain|mask)"
)
#: What orders something, or brings something into being that others rely on.
SITE = re.compile(
    r"(?:tcgen05\.(?:alloc|dealloc|relinquish_alloc_permit|commit|fence|wait)"
    r"|\b(?:bar|barrier|fence)\.|\bmbarrier\.(?:init|try_wait))[\w.:]*"
)
WAITED = re.compile(r"selp\.b32\s+(%r\d+), 1, 0, p;")
DATA = resources.files("jax_tcgen05").joinpath("kernels_data")
BATCH = 2  # elements, one after the other in one CTA (pair): what the first leaves behind meets the second


@lru_cache
def texts() -> Mapping[str, str]:
    """Each kernel's own module, by name; empty without built kernels."""
    out: dict[str, str] = {}
    for path in sorted(DATA.iterdir(), key=lambda p: p.name):
        if not path.name.endswith(".ptx"):
            continue
        head, *entries = re.split(r"(?m)^(?=\.visible \.entry)", path.read_text())
        out |= {NAME.search(entry)[0]: head + entry for entry in entries}  # type: ignore[index]
    return out


def form_of(name: str) -> Form:
    """A small call that the kernel serves: several columns of D, two K steps, a batch."""
    v = NAME.fullmatch(name)
    assert v is not None
    group, ws, scaled = int(v["group"]), v["form"] == "ws", v["vec"] != "0"
    return Form(
        v["kind"],
        M=128 * group if scaled else 64 * group,
        N=128 if ws else 64,
        group=group,
        ws=ws,
        a_swizzle=None if v["a"] == "ts" else 0,
        repeats=(1, 1, 2),
        scale=f"scale_vec::{v['vec']}X" if scaled else "",
        batch=(BATCH,),
    )


@dataclass
class Launch:
    """One kernel's representative launch: its memory, its parameter bytes, and the bits that must come out."""

    name: str
    arguments: Arguments
    inputs: list[np.ndarray]
    result: np.ndarray
    memory: Any
    params: bytes
    shared_bytes: int
    want: np.ndarray

    def run(self, text: str, *, strict: bool = True) -> bool:
        """Launches the kernel of a module's text; whether D has the right bits. Raises what the launch raises."""
        self.result[...] = 0xA5
        group = self.arguments.form.group
        module = core.vsm.Module(text)
        dimensions = ((group, 1, 1), (128, 1, 1), (group, 1, 1))
        module.launch(
            self.name, *dimensions, self.shared_bytes, self.params, self.memory, "fair", strict, 1 << 22, 1
        )
        return np.array_equal(self.result, self.want)


def _given(memory: Any, array: np.ndarray, writable: bool, name: str) -> tuple[int, int, tuple[int, ...]]:
    flat = array.reshape(-1).view(np.uint8)
    return memory.add(flat, writable, name), array.itemsize, array.shape


def _record(plan: Plan, masked: bool, given: list[Any], result: Any) -> Any:
    """What the launcher makes of the call."""
    driver = core.RecordingDriver()
    launcher = core.Launcher(driver, str(DATA))
    launcher.prepare(plan.attributes(), masked, 0)
    launcher.execute(plan.attributes(), given, result, 0)
    (launch,) = driver.launches
    return launch


def prepare(name: str) -> Launch:
    """The kernel's launch, as the launcher would do it on a GPU."""
    form = form_of(name)
    masked = name.endswith("mask")
    arguments = place(form, random_arrays(form, seed=len(name)), accum=True)
    mask = "zero_column_mask" if form.ws else "disable_output_lane"
    words = np.array([0x00F0FF01] * (4 * form.group), np.uint32)
    if form.ws:
        words = np.array([int(ZeroColumnMask(skip_span=3, use_span=5))], "<u8").view(np.uint32)
    options = {mask: words} if masked else {}
    inputs = [*arguments.leaves.values(), np.ones(BATCH, np.bool_), np.ones(BATCH, np.bool_)]
    if masked:
        inputs.append(np.broadcast_to(words, (BATCH, words.size)).copy())
    memory = core.vsm.Memory()
    given = [_given(memory, np.ascontiguousarray(x), False, f"argument {i}") for i, x in enumerate(inputs)]
    want = np.ascontiguousarray(np.asarray(arguments.mma(**options).leaf))
    result = np.zeros_like(want)
    record = _record(arguments.plan(), masked, given, _given(memory, result, True, "result"))
    assert record["entry"] == name
    offsets = core.launch_params_offsets()
    params = bytearray(record["params"])
    # Windows of 32 columns, so that tensor memory is staged and read back in several.
    params[offsets["Params.pitch"] - 4 : offsets["Params.pitch"] + 4] = np.array([32, 144], "<u4").tobytes()
    flat = result.reshape(-1).view(np.uint8)
    return Launch(
        name,
        arguments,
        inputs,
        flat,
        memory,
        bytes(params),
        record["shared_bytes"],
        want.reshape(-1).view(np.uint8),
    )


def without_each(text: str) -> Iterator[tuple[str, str]]:
    """(opcode, the text without it) of every synchronising instruction, in the text's order.

    A cluster barrier's arrive and wait, on one line, go together; a wait that is taken out returns at once.
    """
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = SITE.search(line)
        if found is None:
            continue
        waited = WAITED.search(line) if "try_wait" in line else None
        instead = f"\tmov.b32 {waited[1]}, 1;" if waited else ""
        yield found[0], "\n".join([*lines[:at], instead, *lines[at + 1 :]])
