"""Launch descriptions: a kernel, its sizes, buffers and parameters as JSON beside the PTX."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .module import Argument, LoadError, Module, Parameter, Struct, TensorMap
from .result import Result

#: Triton's spellings of dtypes.
_DTYPES: dict[str, Any] = {
    "i1": np.bool_,
    "bf16": ml_dtypes.bfloat16,
    "fp8e4nv": ml_dtypes.float8_e4m3fn,
    "fp8e5": ml_dtypes.float8_e5m2,
    **{f"fp{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
#: Kinds of parameters that are numbers.
_SCALARS = {f"{letter}{bits}" for letter in "iu" for bits in (8, 16, 32, 64)} | {"f16", "f32", "f64"}


def _dtype(name: str) -> np.dtype:
    return np.dtype(_DTYPES[name] if name in _DTYPES else getattr(ml_dtypes, name, name))


@contextlib.contextmanager
def _described(where: str) -> Iterator[None]:
    """Turns what goes wrong with a field of the wrong kind into a ValueError that says where."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, MemoryError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, LoadError):
            raise
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"launch description, {where}: {what}") from error


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
        if not isinstance(description, dict):
            raise ValueError(f"{path.name} is no launch description: it is no JSON object")
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
        with _described("buffers"):
            return {name: self._zeros(buffer) for name, buffer in self.description["buffers"].items()}

    @staticmethod
    def _zeros(buffer: Mapping[str, Any]) -> np.ndarray:
        shape = tuple(buffer.get("shape", (buffer.get("bytes", 0),)))
        dtype = buffer.get("dtype", "uint8")
        if dtype == "float4_e2m1fn":
            shape, dtype = (*shape[:-1], shape[-1] // 2), "uint8"
        return np.zeros(shape, _dtype(dtype))

    def launch(
        self, buffers: Mapping[str, np.ndarray], module: Module | None = None, **options: Any
    ) -> Result:
        """Runs the kernel on `buffers` (in place); `options` as for `Module.launch`.

        ValueError if the description is wrong, `LoadError` and `ExecutionError` as for `Module`.
        """
        d = self.description
        module = module or Module(self.text())
        with _described("tensormaps"):
            maps = [self._tensormap(t, buffers) for t in d.get("tensormaps", ())]
        with _described("params"):
            args = [self._argument(p, buffers, maps) for p in d["params"]]
            parameters = module.parameters(d["entry"])
            if any("kind" not in p for p in d["params"]):
                args = self._by_offset(parameters, d["params"], args)
        with _described("launch"):
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
        if kind in _SCALARS:
            value, bits = p["value"], int(kind[1:])
            if kind[0] == "f":
                return np.dtype(f"f{bits // 8}").type(value).tobytes()
            return int(value).to_bytes(bits // 8, "little", signed=int(value) < 0)
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
