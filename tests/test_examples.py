"""The examples run: the README's main command, and every notebook."""

import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_the_readmes_example_reports_equal_bits() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "tensor_mma.py")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "issues: 4 = 1 M x 1 N x 4 K" in done.stdout
    assert "0x4000404000010000" in done.stdout
    assert re.search(
        r"document +max \|mma - jax.numpy\| = 0.00e\+00 +bits equal to the exact model: True", done.stdout
    )
    assert re.search(r"Hilbert x cosines .*bits equal to the exact model: True", done.stdout)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    where = {
        "metadata": {"path": str(EXAMPLES)}
    }  # not the clone's root, where the source folder would be imported
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
