"""The custom call's target with forged attributes and buffers: INVALID_ARGUMENT, never a crash or a hang.

An exported artifact can carry any attribute, so handlers trust none. The forgeries run in processes of their own
(`forged_calls`), so that a crash is a failed test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("forged_calls.py")
ATTRIBUTES = (
    *("opcode", "idesc", "repeats", "shared_bytes", "tmem_columns", "executor"),
    *(f"{name}_{what}" for name in ("d", "a", "b", "sfa", "sfb") for what in ("starts", "place")),
)


def outcomes(*arguments: str) -> dict[str, tuple[str, str]]:
    """Outcomes by name of the forgery; fails when the process did."""
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert run.returncode == 0, f"the process ended with {run.returncode}: {run.stderr[-2000:]}"
    return {name: (status, text) for name, (status, text) in json.loads(run.stdout).items()}


@pytest.fixture(scope="module")
def forged() -> dict[str, tuple[str, str]]:
    return outcomes("cases")


def test_calls_before_and_after_the_forgeries_work(forged):
    assert forged["genuine"] == ("ok", "") and forged["genuine again"] == ("ok", "")
    assert len(forged) > 100


def test_every_forgery_is_an_invalid_argument(forged):
    wrong = {n: o for n, o in forged.items() if o[0] != "INVALID_ARGUMENT" and not n.startswith("genuine")}
    assert not wrong


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_missing_or_of_another_type(forged, name):
    found = [text for forgery, (_, text) in forged.items() if forgery.startswith(f"{name} ")]
    assert len(found) >= 3
    for forgery in ("missing", "as a float", "of another type"):
        _, text = forged[f"{name} {forgery}"]
        assert f'attribute "{name}": missing, or not' in text


@pytest.mark.parametrize("name", [name for name in ATTRIBUTES if name.endswith(("starts", "place"))])
def test_an_attribute_of_another_length(forged, name):
    lengths = [f"{name} {what}" for what in ("too long", "too short", "empty") if f"{name} {what}" in forged]
    assert lengths
    for forgery in lengths:
        # Both places are judged as one fact: scales without block scale.
        assert any(f"plan attribute {n}:" in forged[forgery][1] for n in (name, name.replace("sfb", "sfa")))


WORDS = {
    "opcode ": ("opcode ''", "tcgen05.mma"),
    "opcode wgmma.mma_async": ("'wgmma.mma_async'", "tcgen05.mma"),
    "opcode tcgen05.mma.cta_group::1.kind::f16.sp": (".sp is not offered",),
    "opcode tcgen05.mma.cta_group::1.kind::f16.ashift": (".ashift is not offered",),
    "opcode tcgen05.mma.cta_group::3.kind::f16": ("cta_group", "allowed: 1, 2"),
    "executor gpu": ('"executor": got "gpu"', "model, vsm"),
    "repeats 0": ("repeats: 0", "allowed: 1 to"),
    "repeats -1": ("repeats: -1", "allowed: 1 to"),
    "repeats whose product overflows": ("d_starts", "2 entries"),
    "a_starts at the end": ("a descriptor", "reads shared bytes", "of 10240"),
    "a_starts with a far stride": ("a descriptor", "reads shared bytes", "of 10240"),
    "a_starts with swizzle code 7": ("a descriptor", "swizzle code 7", "0, 1, 2, 4, 6"),
    "a_starts with a base offset": ("a descriptor", "base offset"),
    "d_starts in lane 1": ("d address: lane 1", "allowed for this layout: 0"),
    "d_starts past TMEM": ("d address", "columns 511 to 526", "512"),
    "idesc 0": ("instruction descriptor", "M = 0", "64, 128"),
    "idesc of all ones": ("instruction descriptor 0xffffffff", "reserved bits"),
    "no arguments": ("got 0 arguments", "d, a, b, accum, pred[, mask]"),
    "without pred": ("got 4 arguments", "expected 5 or 6"),
    "an argument more": ("got 7 arguments", "expected 5 or 6"),
    "mask of 3 words": ("mask: got a buffer of shape (3)", "(4)"),
    "mask of bytes": ("mask:", "1-byte items", "expected 4-byte"),
    "a with an axis more": ("a: got a buffer of shape (1, 128, 32)", "2 own axes"),
    "a with an axis less": ("a: got a buffer of shape (32)", "2 own axes"),
    "a shorter": ("a: got a buffer of shape (64, 32)", "(128, 32)"),
    "b empty": ("b: got a buffer of shape (0, 32)", "(32, 32)"),
    "b of float32": ("b:", "4-byte items", "expected 2-byte"),
    "d of float16": ("d:", "2-byte items", "expected 4-byte"),
    "d with a batch": ("a:", "1 batch"),
    "d scalar": ("d: got a buffer of shape ()", "too few axes"),
    "accum of int32": ("accum:", "4-byte items", "expected 1-byte"),
    "pred of a batch": ("pred: got a buffer of shape (2)", "0 batch"),
    "result of another shape": ("result: got a buffer of shape (1, 2, 64, 16)", "(1, 2, 128, 16)"),
    "result of another dtype": ("result:", "2-byte items", "expected 4-byte"),
    "two results": ("got 2 results", "expected one"),
    "packed codes": ("argument 1", "sub-byte", "uint8"),
    "scales left out": ("got 5 arguments", "d, a, b, sfa, sfb, accum, pred"),
    "scale ids of a dense call": ("sfa_starts", "2 entries"),
    "scale places of a dense call": ("sfa_place", "not block scaled"),
    "sfa_starts with id 1": ("SFA id 1", "multiples of 2"),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_message_names_what_is_wrong(forged, name):
    _, text = forged[name]
    assert [word for word in WORDS[name] if word not in text] == [], text


@pytest.mark.parametrize("base", ["scaled", "pair"])
def test_every_number_of_every_attribute(base):
    """Another number is refused by a message that names what is wrong, or is another legal call; never a crash."""
    found = outcomes("mutate", base)
    assert found.pop("genuine again") == ("ok", "")
    assert {status for status, _ in found.values()} <= {"ok", "INVALID_ARGUMENT"}
    refused = {name: text for name, (status, text) in found.items() if status != "ok"}
    assert len(refused) > 0.7 * len(found)
    subjects = (
        *("plan attribute ", "descriptor", " address", "d: got", "a: got", "b: got", "sfa: got", "sfb: got"),
    )
    assert [text for text in refused.values() if not any(subject in text for subject in subjects)] == []
    # Numbers that no call can have.
    accepted = {name for name, (status, _) in found.items() if status == "ok"}
    impossible = (str((1 << 63) - 1), str(-(1 << 63)))
    starts = {name for name in accepted if name.split("[")[0] in ("a_starts", "b_starts")}
    assert not {name for name in accepted - starts if name.endswith(impossible)}
