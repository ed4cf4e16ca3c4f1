"""The device kernels without a GPU: they assemble, and their PTX is what it is meant to be.

Sources: ptx_contract sections 1 (grammar), 2 (targets) and 13.4 (ordering).
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ptx_reader
import pytest

from jax_tcgen05.native import KERNELS

ROOT = Path(__file__).resolve().parents[1]


def load_build_kernels() -> Any:
    """The script beside setup.py. Its folder stays out of sys.path, where it would hide the installed package."""
    spec = importlib.util.spec_from_file_location("build_kernels", ROOT / "build_kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


build_kernels = load_build_kernels()

TARGETS = ("sm_100a", "sm_103a", "sm_110a")
SPELLINGS = {
    1: ".block_scale.scale_vec::1X",
    2: ".block_scale.scale_vec::2X",
    4: ".block_scale.scale_vec::4X",
}
USES = ("fill", "use", "lastuse", "discard")

#: Most registers of a thread, and static shared memory in bytes, by kind of kernel. 128 threads of 64 registers
#: let all 16 CTAs that an SM holds be resident.
LIMITS = {"dense": (64, 1024), "ws": (64, 1024), "scaled": (64, 1024)}


@dataclass(frozen=True)
class Variant:
    kind: str
    group: int
    ws: bool
    vec: int
    a: str  # ss: A in shared memory, ts: in TMEM
    masked: bool

    @property
    def entry(self) -> str:
        form, extra = "ws" if self.ws else "dense", "mask" if self.masked else "plain"
        return f"tcgen05_mma_{self.kind}_g{self.group}_{form}_v{self.vec}_{self.a}_{extra}"

    @property
    def limits(self) -> tuple[int, int]:
        return LIMITS["scaled" if self.vec else "ws" if self.ws else "dense"]

    @property
    def targets(self) -> set[str]:
        return {t for t in TARGETS if not (self.kind == "i8" and t == "sm_103a")}

    @property
    def opcodes(self) -> list[str]:
        """The instructions that the kernel can issue: one for each use of each collector buffer."""
        text = f"tcgen05.mma{'.ws' * self.ws}.cta_group::{self.group}.kind::{self.kind}{SPELLINGS.get(self.vec, '')}"
        buffers = [f"b{i}" for i in range(4)] if self.ws else ["a"]
        return sorted(f"{text}.collector::{buffer}::{use}" for buffer in buffers for use in USES)

    @property
    def operands(self) -> str:
        """The operands' form, as a regular expression."""
        a = {"ss": r"%rd\d+", "ts": r"\[%r\d+\]"}[self.a]
        lanes = ", ".join([r"%r\d+"] * 4 * self.group)
        middle = rf"\{{{lanes}\}}, " if self.masked and not self.ws else ""
        middle += r"\[%r\d+\], \[%r\d+\], " if self.vec else ""
        tail = r", %rd\d+" if self.masked and self.ws else ""
        return rf"\[%r\d+\], {a}, %rd\d+, %r\d+, {middle}p{tail}"


def variants() -> Iterator[Variant]:
    """Every form that `mma` offers."""
    for a in ("ss", "ts"):
        for kind in ("f16", "tf32", "f8f6f4", "i8"):
            for masked in (False, True):
                yield Variant(kind, 1, True, 0, a, masked)
                for group in (1, 2):
                    yield Variant(kind, group, False, 0, a, masked)
        for group in (1, 2):
            for kind, vec in (("mxf8f6f4", 1), ("mxf4", 2), ("mxf4nvf4", 2), ("mxf4nvf4", 4)):
                yield Variant(kind, group, False, vec, a, False)


VARIANTS = list(variants())
each_variant = pytest.mark.parametrize(
    "variant", VARIANTS, ids=lambda v: v.entry.removeprefix("tcgen05_mma_")
)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of kernels of the sources beside the tests: the package's if it has these; skips without nvcc."""
    manifest = KERNELS / "manifest.json"
    if manifest.is_file() and json.loads(manifest.read_text())["source_hash"] == build_kernels.source_hash():
        return KERNELS
    folder = tmp_path_factory.mktemp("kernels")
    report = build_kernels.build(folder)
    if report.reason and "no nvcc" in report.reason:
        pytest.skip(report.reason)
    assert report.reason is None
    return folder


@pytest.fixture(scope="session")
def manifest(kernels: Path) -> dict:
    return json.loads((kernels / "manifest.json").read_text())


@pytest.fixture(scope="session")
def entries(kernels: Path) -> dict[str, ptx_reader.Entry]:
    found = {}
    for path in kernels.glob("*.ptx"):
        found |= ptx_reader.entries(path.read_text())
    return found


def test_every_form_has_a_kernel_and_no_other_is_there(entries):
    assert set(entries) == {variant.entry for variant in VARIANTS}
    assert len(VARIANTS) == 64


@each_variant
def test_assembles_within_limits(variant, manifest):
    rows = [row for row in manifest["kernels"] if row["entry"] == variant.entry]
    assert {row["target"] for row in rows} == variant.targets
    registers, shared = variant.limits
    for row in rows:
        assert row["spill_bytes"] == 0
        assert row["local_bytes"] == 0
        assert 0 < row["registers"] <= registers
        assert 0 < row["shared_bytes"] <= shared


def test_cubins_are_complete_cuda_elf(kernels, manifest):
    cubins = sorted(name for name in manifest["files"] if name.endswith(".cubin"))
    assert len(cubins) == 7 * 3 - 1
    assert "i8.sm_103a.cubin" not in cubins
    for name in cubins:
        data = (kernels / name).read_bytes()
        assert data[:4] == b"\x7fELF"
        assert int.from_bytes(data[18:20], "little") == 190  # EM_CUDA
        names = {row["entry"] for row in manifest["files"][name]["kernels"]}
        assert names == {v.entry for v in VARIANTS if v.kind == name.split(".")[0]}
        assert all(entry.encode() in data for entry in names)


@each_variant
def test_issues_exactly_the_intended_instructions(variant, entries):
    entry = entries[variant.entry]
    group = f"cta_group::{variant.group}"
    commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    assert entry.opcodes("tcgen05") == sorted(
        [
            *variant.opcodes,
            f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32",
            f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned",
            f"tcgen05.dealloc.{group}.sync.aligned.b32",
            "tcgen05.st.sync.aligned.32x32b.x32.b32",
            "tcgen05.wait::st.sync.aligned",
            "tcgen05.ld.sync.aligned.32x32b.x32.b32",
            "tcgen05.wait::ld.sync.aligned",
            f"{commit}.b64" if variant.group == 1 else f"{commit}.multicast::cluster.b64",
            # around the allocation, the issue and the deallocation
            *["tcgen05.fence::before_thread_sync"] * 3,
            *["tcgen05.fence::after_thread_sync"] * 4,
        ]
    )
    for index in entry.find("tcgen05.mma"):
        assert re.fullmatch(variant.operands, entry.instructions[index].operands)


@each_variant
def test_uses_nothing_foreign(variant, entries):
    entry = entries[variant.entry]
    assert ".local" not in entry.body
    used = {instruction.opcode.split(".")[0] for instruction in entry.instructions}
    assert not used & {"call", "trap", "vprintf", "alloca"}
    loads = [entry.instructions[i].opcode for i in entry.find("ld")]
    assert all(opcode.split(".")[1] in ("param", "shared", "global") for opcode in loads)
    # 16-byte accesses on both sides of the copies.
    for opcode in ("ld.global.v4.u32", "st.global.v4.u32", "st.shared.v4.u32", "ld.shared.v4.u32"):
        assert entry.find(opcode), opcode


def orders(group: int) -> list[tuple[str, str, list[str]]]:
    """(first, last, between): what every path from `first` to `last` passes, in this order."""
    everybody = {1: ["bar.sync"], 2: ["barrier.cluster.arrive", "barrier.cluster.wait"]}[group]
    crossing = ["tcgen05.fence::before_thread_sync", *everybody, "tcgen05.fence::after_thread_sync"]
    completed = ["tcgen05.commit", "mbarrier.try_wait", "tcgen05.fence::after_thread_sync"]
    return [
        ("tcgen05.alloc", "tcgen05.st", ["tcgen05.relinquish_alloc_permit", *crossing]),
        ("mbarrier.init", "tcgen05.commit", ["fence.mbarrier_init", *everybody]),
        ("mbarrier.init", "mbarrier.try_wait", ["fence.mbarrier_init", *everybody]),
        # The image: written, read, written again.
        ("st.shared", "tcgen05.st", ["bar.sync"]),
        ("atom.shared", "tcgen05.st", ["bar.sync"]),
        ("tcgen05.st", "st.shared", ["bar.sync"]),
        ("tcgen05.ld", "ld.shared", ["bar.sync"]),
        ("st.global", "st.shared", ["bar.sync"]),
        # Operands, before one elected thread issues.
        ("st.shared", "tcgen05.mma", ["fence.proxy.async", *everybody]),
        ("atom.shared", "tcgen05.mma", ["fence.proxy.async", *everybody]),
        ("tcgen05.st", "tcgen05.mma", ["tcgen05.wait::st", *crossing]),
        ("tcgen05.st", "tcgen05.mma", ["elect.sync"]),
        # Results, and memory that may be used again.
        ("tcgen05.mma", "tcgen05.ld", completed),
        ("tcgen05.mma", "st.shared", completed[:2]),
        ("tcgen05.mma", "tcgen05.dealloc", completed + crossing),
        ("tcgen05.st", "tcgen05.ld", ["tcgen05.wait::st", *crossing, *completed[1:]]),
        ("tcgen05.ld", "tcgen05.st", ["tcgen05.wait::ld"]),
        ("tcgen05.ld", "tcgen05.mma", ["tcgen05.wait::ld", *crossing]),
        ("tcgen05.ld", "tcgen05.dealloc", ["tcgen05.wait::ld", *crossing]),
        ("tcgen05.commit", "tcgen05.commit", ["mbarrier.try_wait"]),
    ]


def violations(entry: ptx_reader.Entry, group: int) -> list[str]:
    found = [entry.bypass(entry.find(first), last, between) for first, last, between in orders(group)]
    # Memory is cleared (by the one store of four equal registers) before anybody ors into it.
    clearing = [
        i
        for i in entry.find("st.shared.v4")
        if re.search(r"\{(%r\d+), \1, \1, \1\}", entry.instructions[i].text)
    ]
    found.append(entry.bypass(clearing, "atom.shared", ["bar.sync"]) if clearing else "nothing is cleared")
    for index in entry.find("tcgen05.ld"):
        if not entry.instructions[index + 1].has("tcgen05.wait::ld"):
            found.append("tcgen05.ld is not followed by its wait")
    return [text for text in found if text is not None]


@each_variant
def test_keeps_the_order_of_the_memory_model(variant, entries):
    entry = entries[variant.entry]
    assert violations(entry, variant.group) == []
    for first, last, between in orders(variant.group):  # the checks above spoke of something
        assert entry.find(first)
        assert entry.find(last)
        assert all(entry.find(name) for name in between)


SYNCHRONISING = (
    "fence.proxy.async",
    "fence.mbarrier_init",
    "tcgen05.fence::before_thread_sync",
    "tcgen05.fence::after_thread_sync",
    "tcgen05.wait::st",
    "tcgen05.wait::ld",
    "tcgen05.relinquish_alloc_permit",
    "tcgen05.commit",
    "mbarrier.try_wait",
    "elect.sync",
    "bar.sync",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
)


@pytest.mark.parametrize("group", [1, 2])
def test_the_order_check_misses_no_removed_instruction(group, entries):
    """Each fence, wait and barrier taken away alone breaks one of the orders above."""
    entry = entries[Variant("f16", group, False, 0, "ss", True).entry]
    indices = [index for opcode in SYNCHRONISING for index in entry.find(opcode)]
    assert len(indices) >= 18
    unmissed = [(i, entry.instructions[i].text) for i in indices if not violations(entry.without(i), group)]
    assert unmissed == []


def test_reader_on_a_small_text():
    text = """
.visible .entry k(
 .param .u32 k_0
)
{
 .reg .pred %p<2>;
 ld.param.u32 %r1, [k_0]; // comment; with a semicolon
 @%p1 bra $L_2;
$L_1:
 fence.proxy.async;
$L_2:
 { .reg .pred p; setp.ne.b32 p, %r1, 0; tcgen05.mma.x [%r1], p; }
 @!%p1 bra $L_1;
 ret;
}
"""
    entry = ptx_reader.entries(text)["k"]
    assert [i.opcode for i in entry.instructions] == [
        "ld.param.u32", "bra", "fence.proxy.async", "setp.ne.b32", "tcgen05.mma.x", "bra", "ret",
    ]  # fmt: skip
    assert entry.successors == [(1,), (3, 2), (3,), (4,), (5,), (2, 6), ()]
    assert entry.instructions[4].operands == "[%r1], p"
    assert "without fence.proxy.async" in str(entry.bypass([0], "tcgen05.mma", ["fence.proxy.async"]))
    assert entry.bypass([4], "tcgen05.mma", ["fence.proxy.async"]) is None
    assert entry.find("tcgen05.m") == []


# The build.


@pytest.mark.parametrize(
    ("version", "targets"),
    [
        ((12, 8, 93), ("sm_100a",)),
        ((12, 9, 41), ("sm_100a", "sm_103a")),
        ((13, 0, 88), TARGETS),
        ((13, 5, 37), TARGETS),
        ((14, 0, 1), TARGETS),
    ],
)
def test_targets_by_toolkit(version, targets):
    assert build_kernels.targets_for(version) == targets


def test_targets_of_a_toolkit_without_tcgen05():
    with pytest.raises(
        ValueError, match=r"CUDA 12\.6 knows no tcgen05 target; sm_100a needs 12\.8, the kernels 13\.0"
    ):
        build_kernels.targets_for((12, 6))


FAKE_NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release {0}, V{1}"; exit; fi
echo nvcc "$@" >> "{2}"
{3}
for last; do :; done
cat "$(dirname "$0")/../csrc/kernels/tcgen05_mma.cu" | sed 's:^://:' > "$last"
echo ".target sm_100a" >> "$last"
"""
FAKE_PTXAS = """#!/bin/sh
echo ptxas "$@" >> "{2}"
for last; do :; done
echo cubin > "$last"
cat >&2 <<LOG
ptxas info    : Function properties for tcgen05_mma_f16_g2_dense_v0_ts_mask
    0 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 45 registers, used 1 barriers, 1024 bytes smem
LOG
"""


@dataclass
class FakeTree:
    root: Path
    log: Path

    def toolkit(self, version: str = "13.0.88", also: str = "") -> None:
        for name, text in (("nvcc", FAKE_NVCC), ("ptxas", FAKE_PTXAS)):
            path = self.root / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(version.rpartition(".")[0], version, self.log, also))
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def build(self) -> Any:
        self.log.write_text("")
        return build_kernels.build(self.root / "out", 1, {"PATH": "", "CUDA_HOME": str(self.root)})

    @property
    def commands(self) -> list[str]:
        return [line.split()[0] for line in self.log.read_text().splitlines()]


@pytest.fixture
def tree(tmp_path, monkeypatch) -> FakeTree:
    """A copy of the sources with a toolkit that only copies text; no other toolkit is visible."""
    csrc = ROOT / "csrc"
    shutil.copytree(csrc, tmp_path / "csrc")
    monkeypatch.setattr(build_kernels, "ROOT", tmp_path)
    monkeypatch.setattr(build_kernels, "SOURCE", tmp_path / "csrc" / "kernels" / "tcgen05_mma.cu")
    monkeypatch.setattr(build_kernels.importlib.util, "find_spec", lambda name: None)
    fake = FakeTree(tmp_path, tmp_path / "log")
    fake.toolkit()
    return fake


def test_builds_everything_once(tree):
    first = tree.build()
    assert (len(first.built), first.kept, first.reason) == (27, (), None)
    assert str(first) == "27 files built, 0 kept"
    assert sorted(tree.commands) == ["nvcc"] * 7 + ["ptxas"] * 20
    second = tree.build()
    assert (second.built, len(second.kept)) == ((), 27)
    assert tree.commands == []


def test_manifest_rows(tree):
    tree.build()
    manifest = json.loads((tree.root / "out" / "manifest.json").read_text())
    assert manifest["nvcc"] == "13.0.88"
    assert manifest["source_hash"] == build_kernels.source_hash()
    assert manifest["kernels"][0] == {
        "entry": "tcgen05_mma_f16_g2_dense_v0_ts_mask",
        "target": "sm_100a",
        "variant": {
            "kind": "f16",
            "cta_group": 2,
            "form": "dense",
            "scale_vec": 0,
            "a": "ts",
            "extra": "mask",
        },
        "registers": 45,
        "shared_bytes": 1024,
        "local_bytes": 0,
        "spill_bytes": 24,
    }


def test_rebuilds_only_what_it_must(tree):
    tree.build()
    out = tree.root / "out"

    (tree.root / "csrc" / "launch" / "pack.cc").write_text("changed")  # no kernel includes it
    assert tree.build().built == ()

    (out / "mxf4.sm_103a.cubin").unlink()
    assert tree.build().built == ("mxf4.sm_103a.cubin",)
    assert tree.commands == ["ptxas"]

    header = tree.root / "csrc" / "kernels" / "stage.cuh"  # in every unit, but the fake's PTX stays the same
    header.write_text(header.read_text() + "// more\n")
    assert len(tree.build().built) == 7
    assert tree.commands == ["nvcc"] * 7

    source = tree.root / "csrc" / "kernels" / "tcgen05_mma.cu"
    source.write_text(source.read_text() + "// more\n")
    assert len(tree.build().built) == 27

    tree.toolkit("13.5.37")
    assert len(tree.build().built) == 27


def test_leaves_other_files_alone(tree):
    out = tree.root / "out"
    out.mkdir()
    (out / "notes.md").write_text("mine")
    (out / "old.sm_90a.cubin").write_text("stale")
    tree.build()
    assert (out / "notes.md").read_text() == "mine"
    assert not (out / "old.sm_90a.cubin").exists()


def test_without_nvcc_the_reason_is_kept(tree):
    tree.build()
    (tree.root / "bin" / "nvcc").unlink()
    report = tree.build()
    assert report.reason is not None
    assert report.reason.startswith(
        "no nvcc was found when the package was built: install CUDA 13.0 or newer"
    )
    assert "pip install 'nvidia-cuda-nvcc>=13'" in report.reason
    assert str(report) == f"none: {report.reason}"
    assert [path.name for path in (tree.root / "out").iterdir()] == ["unavailable.txt"]
    assert (tree.root / "out" / "unavailable.txt").read_text() == report.reason + "\n"


def test_old_nvcc_is_named(tree):
    tree.toolkit("12.9.41")
    reason = tree.build().reason
    assert reason is not None
    assert reason.startswith("nvcc 12.9.41 is too old: install CUDA 13.0 or newer")


def test_failing_nvcc_is_quoted(tree):
    tree.toolkit(also="echo 'fatal: no headers' >&2; exit 2")
    reason = tree.build().reason
    assert reason == "nvcc failed when the package was built: fatal: no headers"


def test_a_later_toolkit_is_found_behind_an_old_one(tree, tmp_path):
    old = tmp_path / "old"
    (old / "bin").mkdir(parents=True)
    tree.toolkit("12.6.20")
    shutil.copy(tree.root / "bin" / "nvcc", old / "bin" / "nvcc")
    tree.toolkit("13.1.5")
    found = build_kernels.find_toolkit({"PATH": str(old / "bin"), "CUDA_PATH": str(tree.root)})
    assert found.version == (13, 1, 5)
    assert found.nvcc == tree.root / "bin" / "nvcc"


def test_pypi_toolkit_is_found(tree, monkeypatch, tmp_path):
    site = tmp_path / "site" / "nvidia"
    (site / "cu13").mkdir(parents=True)
    shutil.copytree(tree.root / "bin", site / "cu13" / "bin")

    class Spec:
        submodule_search_locations = (str(site),)

    monkeypatch.setattr(build_kernels.importlib.util, "find_spec", lambda name: Spec)
    assert build_kernels.find_toolkit({"PATH": ""}).nvcc == site / "cu13" / "bin" / "nvcc"


def test_script(tree, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", str(tree.root))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert build_kernels.main([str(tree.root / "out"), "-j", "2"]) == 0
    assert "device kernels: 27 files built, 0 kept" in capsys.readouterr().out
    (tree.root / "bin" / "nvcc").unlink()
    assert build_kernels.main([str(tree.root / "out")]) == 1
    assert "device kernels: none: no nvcc was found" in capsys.readouterr().out
