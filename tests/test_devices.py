"""Several devices of one host, sharded arrays and `shard_map`: eight CPU devices in a process of its own (B69, B71)."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("on_eight_devices.py")


def checks() -> list[str]:
    """The names in the script's CHECKS."""
    for statement in ast.parse(SCRIPT.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "CHECKS":
            return ast.unparse(statement.value).strip("()").split(", ")
    raise AssertionError("no CHECKS")


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, f"the process ended with {run.returncode}: {run.stderr[-2000:]}"
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", checks())
def test_on_eight_devices(results, name):
    assert results[name] == "", results[name]
