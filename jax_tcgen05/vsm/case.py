"""Launch descriptions: a kernel, its sizes, buffers and parameters as JSON beside the PTX."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .module import Argument, Module, Parameter, Struct, TensorMap
from .result import Result

#: Spellings of dtypes in launch descriptions that NumPy does not know.
_DTYPES: dict[str, Any] = {
    "fp16": np.float16,
    "fp32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
}


def _dtype(name: str) -> np.dtype:
    return np.dtype(_DTYPES.get(name) or getattr(ml_dtypes, name, name))


@dataclass(frozen=True)
class Case:
    """A launch description ``case.launch.json`` beside its PTX: kernel, sizes, buffers and parameters."""

    path: Path
    description: dict[str, Any]

    @classmethod
    def load(cls, path: str | Path) -> Case:
        """Reads a launch description; ValueError when it is none."""
        path = Path(path)
        description = json.loads(path.read_text())
        missing = {"ptx", "entry", "grid", "block", "buffers", "params"} - set(description)
        if missing:
            raise ValueError(f"{path.name} is no launch description: it lacks {', '.join(sorted(missing))}")
        return cls(path, description)

    def text(self) -> str:
        """The PTX text; a compressed file ``<ptx>.gz`` will do."""
        return self.read_text(self.path.parent / self.description["ptx"])

    @staticmethod
    def read_text(path: Path) -> str:
        """A text file, or what is in ``<path>.gz`` if only that exists, or in `path` if it ends in ``.gz``."""
        packed = path if path.suffix == ".gz" else path.with_name(path.name + ".gz")
        if packed == path or (not path.exists() and packed.exists()):
            return gzip.decompress(packed.read_bytes()).decode()
        return path.read_text()

    def zeros(self) -> dict[str, np.ndarray]:
        """Buffers of the described dtypes and shapes, all zero. FP4 buffers are bytes of two codes each."""
        out = {}
        for name, buffer in self.description["buffers"].items():
            shape = tuple(buffer.get("shape", (buffer.get("bytes", 0),)))
            dtype = buffer.get("dtype", "uint8")
            if dtype == "float4_e2m1fn":
                shape, dtype = (*shape[:-1], shape[-1] // 2), "uint8"
            out[name] = np.zeros(shape, _dtype(dtype))
        return out

    def launch(
        self, buffers: Mapping[str, np.ndarray], module: Module | None = None, **options: Any
    ) -> Result:
        """Runs the kernel on `buffers` (in place); `options` as for `Module.launch`."""
        d = self.description
        maps = [self._tensormap(t, buffers) for t in d.get("tensormaps", ())]
        module = module or Module(self.text())
        args = [self._argument(p, buffers, maps) for p in d["params"]]
        parameters = module.parameters(d["entry"])
        if any("kind" not in p for p in d["params"]):
            args = self._by_offset(parameters, d["params"], args)
        return module.launch(
            d["entry"],
            grid=d["grid"],
            block=d["block"],
            cluster=d.get("cluster", 1),
            shared_bytes=d.get("dyn_smem", 0),
            args=args[: len(parameters)],
            **options,
        )

    @staticmethod
    def _tensormap(t: Mapping[str, Any], buffers: Mapping[str, np.ndarray]) -> TensorMap:
        im2col = None
        if t.get("kind") == "im2col":
            im2col = (tuple(t["lower"]), tuple(t["upper"]), t["channels"], t["pixels"])
        return TensorMap(
            array=buffers[t["buffer"]],
            dtype=t["dtype"],
            gdim=tuple(t["gdim"]),
            gstride_bytes=tuple(t["gstride_bytes"]),
            box=tuple(t.get("box", ())),
            estride=tuple(t.get("estride", ())),
            interleave=t.get("interleave", 0),
            swizzle=t.get("swizzle", 0),
            oob=t.get("oob", 0),
            offset=t.get("offset", 0),
            im2col=im2col,
        )

    @staticmethod
    def _argument(
        p: Mapping[str, Any], buffers: Mapping[str, np.ndarray], maps: Sequence[TensorMap]
    ) -> Argument:
        kind = p.get("kind", "raw")
        if kind == "ptr":
            array = buffers[p["buffer"]] if p.get("buffer") is not None else None
            return bytes(8) if array is None else Struct(bytes(8), {0: (array, p.get("addend", 0))})
        if kind == "tensormap":
            return maps[p["tensormap"]]
        if kind in ("i32", "i64"):
            return int(p["value"]).to_bytes(p["size"], "little", signed=int(p["value"]) < 0)
        if kind == "f32":
            return np.float32(p["value"]).tobytes()
        if kind != "raw":
            raise ValueError(f"unknown kind of parameter: {kind!r}")
        return Struct(
            bytes.fromhex(p["hex"]).ljust(p["size"], b"\0"),
            {r["at"]: (buffers[r["buffer"]], r.get("addend", 0)) for r in p.get("reloc", ())},
            {r["at"]: maps[r["tensormap"]] for r in p.get("tmap", ())},
        )

    @staticmethod
    def _by_offset(
        parameters: Sequence[Parameter], given: Sequence[Mapping[str, Any]], args: Sequence[Argument]
    ) -> list[Argument]:
        """Recorded parameters, matched by their offsets; what the record leaves out is zero."""
        by_offset = {p["off"]: a for p, a in zip(given, args, strict=True)}
        return [by_offset.get(p.offset, bytes(p.size)) for p in parameters]
