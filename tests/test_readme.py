"""README's table of kinds says what `instruction_table` says, and each row runs."""

import re
from pathlib import Path

import numpy as np
import pytest
from calls import Form, place, random_arrays

import jax_tcgen05 as tc

README = Path(__file__).resolve().parents[1] / "README.md"
SHORT = {
    "float8_e4m3fn": "e4m3fn",
    "float8_e5m2": "e5m2",
    "float6_e3m2fn": "e3m2fn",
    "float6_e2m3fn": "e2m3fn",
    "float4_e2m1fn": "e2m1fn",
    "float8_e8m0fnu": "UE8M0",
    "tf32": 'float32 as "tf32"',
}


def table() -> dict[str, list[str]]:
    """Cells of the table of kinds, by kind."""
    rows = [line.strip("|\n ").split("|") for line in README.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    start = next(i for i, row in enumerate(cells) if row[0] == "kind")
    return {row[0]: row[1:] for row in cells[start + 2 : start + 9]}


def rows_of(kind: str) -> list[tc.isa.InstructionRow]:
    return [
        row for row in tc.instruction_table() if row.opcode.kind == kind and not row.opcode.sp and row.K != 96
    ]


def test_every_kind_has_a_row() -> None:
    assert list(table()) == list(tc.isa.KINDS)


@pytest.mark.parametrize("kind", tc.isa.KINDS)
def test_row_says_what_the_instruction_table_says(kind: str) -> None:
    formats, d, m, n, k, forms, evidence = table()[kind]
    rows = rows_of(kind)
    said = formats.replace("as f8f6f4", table()["f8f6f4"][0])
    for name in {row.a_format for row in rows} | {row.b_format for row in rows}:
        assert SHORT.get(name, name) in said
    assert set(d.split(", ")) == {row.d_format for row in rows}
    groups = [{row.M for row in rows if row.opcode.cta_group == g and not row.opcode.ws} for g in (1, 2)]
    assert [set(map(int, part.split())) for part in m.split(", ")] == groups
    sizes = {size for row in rows for size in row.N}
    assert n == f"{min(sizes)}..{max(sizes)}"
    assert {int(k)} == {row.K for row in rows}
    if any(row.opcode.block_scale for row in rows):
        blocks = {row.opcode.scale_block for row in rows}
        assert set(map(int, re.findall(r"\b(?:16|32)\b", formats.split("e2m1fn,")[-1]))) == blocks
        vectors = {f"{row.opcode.scales_per_step(row.K)}X" for row in rows}
        assert set(forms.removeprefix("block scale ").split(", ")) == vectors
    else:
        assert forms == "dense, .ws"
        assert {row.opcode.ws for row in rows} == {False, True}
    assert evidence


def test_ws_shapes() -> None:
    rows = [row for row in tc.instruction_table() if row.opcode.ws and not row.opcode.sp]
    assert "`.ws`: M 32, 64, 128 and N 64, 128, 256." in README.read_text()
    assert {row.M for row in rows} == {32, 64, 128}
    assert {size for row in rows for size in row.N} == {64, 128, 256}


FORMS = {
    "f16": Form("f16"),
    "tf32": Form("tf32", N=8, M=64),
    "f8f6f4": Form("f8f6f4", N=256, a_format="float6_e3m2fn", b_format="float4_e2m1fn"),
    "i8": Form("i8", N=8),
    "mxf8f6f4": Form("mxf8f6f4", N=8),
    "mxf4": Form("mxf4", N=256),
    "mxf4nvf4": Form("mxf4nvf4", scale="scale_vec::4X", scale_format="float8_e4m3fn"),
}


@pytest.mark.parametrize("kind", tc.isa.KINDS)
def test_row_runs_and_equals_the_reference_on_exact_data(kind: str) -> None:
    form = FORMS[kind]
    arguments = place(form, random_arrays(form, style="small"), accum=True)
    result = np.asarray(arguments.mma().leaf)
    np.testing.assert_array_equal(result, np.asarray(arguments.reference().leaf))
    assert result.any()
