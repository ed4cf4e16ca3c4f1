"""``python -m jax_tcgen05 info``."""

import json

import jax
import pytest

from jax_tcgen05 import __main__ as cli
from jax_tcgen05 import native


def report(capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["info"]) == 0
    return capsys.readouterr().out


def test_it_names_versions_and_executors(capsys: pytest.CaptureFixture[str]) -> None:
    text = report(capsys)
    assert f"jax {jax.__version__}" in text
    assert f"jaxlib {native.BUILT_WITH}" in text
    assert "functional model (cpu): works" in text
    assert "virtual SM (cpu): " in text
    assert "device kernels (cuda): " in text


def test_without_kernels_it_gives_the_builders_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(native, "KERNELS", tmp_path)
    assert "manifest.json is missing" in report(capsys)
    (tmp_path / "unavailable.txt").write_text("no nvcc: install it\n")
    assert "virtual SM (cpu): no nvcc: install it" in report(capsys)


def test_with_kernels_it_counts_entries_and_targets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(native, "KERNELS", tmp_path)
    kernels = [{"entry": "x", "target": "sm_100a"}, {"entry": "x", "target": "sm_103a"}]
    (tmp_path / "manifest.json").write_text(json.dumps({"nvcc": "13.0.88", "kernels": kernels}))
    assert "1 kernels for sm_100a, sm_103a and as PTX, by nvcc 13.0.88" in report(capsys)


@pytest.mark.parametrize(
    ("built", "running", "fits"),
    [
        ("0.9.0", "0.9.0", True),
        ("0.9.0", "0.10.2", True),
        ("0.9.2", "0.9.1", False),
        ("0.10.0", "0.9.9", False),
    ],
)
def test_headers_are_compatible_forwards_only(built: str, running: str, fits: bool) -> None:
    if fits:
        native.check_jaxlib(built, running)
        return
    with pytest.raises(ImportError, match=f"jaxlib {built}.*jaxlib {running} is installed") as error:
        native.check_jaxlib(built, running)
    assert "\n" not in str(error.value)
