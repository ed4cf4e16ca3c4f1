"""Compiles the device kernels: PTX text once for each kind, cubins of it for each target, and a manifest.

Used by setup.py, or as a script: ``python build_kernels.py jax_tcgen05/kernels_data``. Standard library only.
Needs nvcc 13.0 or newer: on PATH, under CUDA_HOME or CUDA_PATH, or from PyPI's nvidia-cuda-nvcc. Without it nothing
fails: the directory then holds ``unavailable.txt``, the reason that the launcher will give.

Every target gets the same PTX text but for its ``.target`` line, so what the virtual SM executes is what runs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "csrc" / "kernels" / "tcgen05_mma.cu"
MINIMUM = (13, 0)

#: Compilation units: one for each kind (csrc/launch/variants.h).
KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
#: Targets by the first toolkit that knows them; sm_110a was called sm_101a before 13.0. The kernels spell
#: `.scale_vec::nX`, which only a-targets take.
TARGETS = {"sm_100a": (12, 8), "sm_103a": (12, 9), "sm_110a": (13, 0)}
#: Kinds that a target lacks (PTX ISA 9.7.16.10, target notes).
LACKS = {"sm_103a": ("i8",)}
#: The target that PTX text names.
PTX_TARGET = "sm_100a"

COMPILE_FLAGS = ("-std=c++17", "-O3", "-ptx", f"-arch={PTX_TARGET.replace('sm', 'compute')}")

_REMEDY = (
    "install CUDA 13.0 or newer, or `pip install 'nvidia-cuda-nvcc>=13'`, and build jax_tcgen05 again "
    "(pip install --no-build-isolation, so that the build sees it)"
)


class Unavailable(Exception):
    """The kernels cannot be built here; the text says why and what to do."""


@dataclass(frozen=True)
class Report:
    """What a build did: files written, files that were still right, or the reason why there are none."""

    built: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reason: str | None = None

    def __str__(self) -> str:
        return (
            f"none: {self.reason}" if self.reason else f"{len(self.built)} files built, {len(self.kept)} kept"
        )


@dataclass(frozen=True)
class Toolkit:
    nvcc: Path
    ptxas: Path
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))


def targets_for(version: tuple[int, ...]) -> tuple[str, ...]:
    """Targets that a CUDA toolkit of this version can assemble; ValueError when it knows no tcgen05."""
    known = tuple(target for target, since in TARGETS.items() if version[:2] >= since)
    if not known:
        given = ".".join(map(str, version))
        raise ValueError(f"CUDA {given} knows no tcgen05 target; sm_100a needs 12.8, the kernels 13.0")
    return known


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("nvcc", path=environment.get("PATH"))
    if on_path:
        yield Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(variable):
            yield Path(environment[variable]) / "bin" / "nvcc"
    spec = importlib.util.find_spec("nvidia")  # PyPI's packages share this namespace
    for folder in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True)


def find_toolkit(environment: Mapping[str, str] = os.environ) -> Toolkit:
    """The first nvcc that is new enough; Unavailable names those that are too old."""
    old = []
    for nvcc in _candidates(environment):
        if not nvcc.is_file():
            continue
        text = _run([str(nvcc), "--version"])
        found = re.search(r"release \d+\.\d+, V(\d+)\.(\d+)\.(\d+)", text)
        if not found:
            continue
        version = (int(found[1]), int(found[2]), int(found[3]))
        if version[:2] < MINIMUM:
            old.append(f"nvcc {'.'.join(map(str, version))} is too old")
            continue
        ptxas = nvcc.resolve().with_name("ptxas")
        return Toolkit(nvcc, ptxas if ptxas.is_file() else nvcc.with_name("ptxas"), version)
    raise Unavailable(f"{'; '.join(old) or 'no nvcc was found when the package was built'}: {_REMEDY}")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shown = "\n".join((done.stderr or done.stdout).strip().splitlines()[:20])
        if "Unsupported .version" in shown:  # PyPI's nvidia-cuda-nvcc does not pin nvidia-nvvm
            shown += "; its ptxas is older than its compiler: install nvidia-cuda-nvcc and nvidia-nvvm of one release"
        raise Unavailable(f"{Path(command[0]).name} failed when the package was built: {shown}")
    return done.stdout + done.stderr


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _sources() -> list[Path]:
    """Every file that a unit includes, found by following the includes from its source."""
    seen: list[Path] = []
    todo = [SOURCE]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.append(path)
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            todo.append(ROOT / "csrc" / name)
    return sorted(seen)


def source_hash() -> str:
    """A digest of all that the kernels are compiled from; the manifest has that of its own build."""
    return _digest(*(str(path.relative_to(ROOT)).encode() + path.read_bytes() for path in _sources()))


def targets_of(kind: str) -> list[str]:
    """The targets that kernels of this kind are built for."""
    return [target for target in TARGETS if kind not in LACKS.get(target, ())]


_ENTRY = re.compile(
    r"Function properties for (?P<entry>\w+)\s+"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\s+"
    r"ptxas info\s+: Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)
_NAME = re.compile(
    r"tcgen05_mma_(?P<kind>[a-z0-9]+)_g(?P<cta_group>[12])_(?P<form>dense|ws)_v(?P<scale_vec>[0124])"
    r"_(?P<a>ss|ts)_(?P<extra>plain|mask)"
)


def _properties(log: str, target: str) -> list[dict[str, Any]]:
    """Rows of the manifest from what ``ptxas -v`` prints."""
    rows = []
    for found in _ENTRY.finditer(log):
        name = _NAME.fullmatch(found["entry"])
        if name is None:
            raise Unavailable(f"ptxas reported an entry of unknown form: {found['entry']}")
        shared = re.search(r"(\d+) bytes smem", found["rest"])
        rows.append(
            {
                "entry": found["entry"],
                "target": target,
                "variant": {**name.groupdict(), **{k: int(name[k]) for k in ("cta_group", "scale_vec")}},
                "registers": int(found["registers"]),
                "shared_bytes": int(shared[1])
                if shared
                else 0,  # static, padded to the dynamic part's alignment
                "local_bytes": int(found["stack"]),
                "spill_bytes": int(found["stores"]) + int(found["loads"]),
            }
        )
    return sorted(rows, key=lambda row: row["entry"])


@dataclass
class _Builder:
    toolkit: Toolkit
    out: Path
    old: dict[str, Any]  # files of the previous manifest: {name: {"hash", "kernels"}}
    sources: str

    def file(self, name: str, key: str) -> dict[str, Any] | None:
        """The previous record of a file, if it still stands for `key`."""
        record = self.old.get(name)
        return record if record and record["hash"] == key and (self.out / name).is_file() else None

    def unit(self, kind: str) -> dict[str, dict[str, Any]]:
        """Builds what is out of date of one kind; records by file, with "built" added."""
        ptx_name = f"{kind}.ptx"
        key = _digest(self.sources, self.toolkit.name, kind, *COMPILE_FLAGS)
        record = self.file(ptx_name, key)
        if record is None:
            defines = [f"-DTCGEN05_UNIT={kind}", f"-I{ROOT / 'csrc'}"]
            self._write(ptx_name, [str(self.toolkit.nvcc), *COMPILE_FLAGS, *defines, str(SOURCE)])
            record = {"hash": key, "built": True}
        records = {ptx_name: record}
        text = (self.out / ptx_name).read_text()
        for target in targets_of(kind):
            name = f"{kind}.{target}.cubin"
            key = _digest(text, self.toolkit.name, target)
            records[name] = self.file(name, key) or self._assemble(name, key, text, target)
        return records

    def _assemble(self, name: str, key: str, text: str, target: str) -> dict[str, Any]:
        retargeted, lines = re.subn(
            rf"^\.target {PTX_TARGET}$", f".target {target}", text, flags=re.MULTILINE
        )
        if lines != 1:
            raise Unavailable(f"the PTX for {name} has {lines} .target lines")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "unit.ptx"
            source.write_text(retargeted)
            log = self._write(name, [str(self.toolkit.ptxas), "-v", f"-arch={target}", str(source)])
        return {"hash": key, "kernels": _properties(log, target), "built": True}

    def _write(self, name: str, command: list[str]) -> str:
        """Runs a compiler whose output takes its final name only when complete."""
        partial = self.out / f"{name}.partial"
        log = _run([*command, "-o", str(partial)])
        partial.replace(self.out / name)
        return log


def _remove(out: Path, keep: tuple[str, ...]) -> None:
    """Removes what an earlier build wrote, and nothing else."""
    for pattern in ("*.ptx", "*.cubin", "*.partial", "manifest.json", "unavailable.txt"):
        for path in out.glob(pattern):
            if path.name not in keep:
                path.unlink()


def build(out: Path, jobs: int | None = None, environment: Mapping[str, str] = os.environ) -> Report:
    """Brings the kernels in `out` up to date, rebuilding only what sources, flags or toolkit have changed.

    Writes <kind>.ptx, <kind>.<target>.cubin and manifest.json, or unavailable.txt. Never raises for a missing or
    failing compiler: the report has the reason.
    """
    out.mkdir(parents=True, exist_ok=True)
    manifest, refusal = out / "manifest.json", out / "unavailable.txt"
    try:
        old = json.loads(manifest.read_text())["files"] if manifest.is_file() else {}
    except (ValueError, KeyError):
        old = {}
    try:
        toolkit = find_toolkit(environment)
        sources = source_hash()
        builder = _Builder(toolkit, out, old, sources)
        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            files = {name: record for unit in pool.map(builder.unit, KINDS) for name, record in unit.items()}
    except Unavailable as error:
        _remove(out, keep=())
        refusal.write_text(f"{error}\n")
        return Report(reason=str(error))
    built = tuple(name for name, record in files.items() if record.pop("built", False))
    _remove(out, keep=(*files, manifest.name))
    kernels = [row for record in files.values() for row in record.get("kernels", ())]
    manifest.write_text(
        json.dumps(
            {"nvcc": toolkit.name, "source_hash": sources, "kernels": kernels, "files": files}, indent=1
        )
    )
    return Report(built, tuple(name for name in files if name not in built))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for PTX, cubins and manifest")
    parser.add_argument("-j", "--jobs", type=int, help="compilers at a time (default: one for each core)")
    given = parser.parse_args(arguments)
    report = build(given.out, given.jobs)
    print(f"device kernels: {report}")
    return 1 if report.reason else 0


if __name__ == "__main__":
    sys.exit(main())
