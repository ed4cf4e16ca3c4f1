"""The virtual SM: runs PTX for NVIDIA Blackwell on the CPU, `tcgen05` instructions with the chip's bits.

    module = vsm.Module(Path("kernel.ptx").read_text())
    result = module.launch("kernel", grid=1, block=128, args=(a, b, out))

Arrays are NumPy arrays, updated in place. What is executed and how it is scheduled: docs/vsm.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ._core import vsm as _vsm

#: PTX text that cannot be loaded: the message names line, opcode and text. A ValueError.
LoadError = _vsm.LoadError
#: Execution was stopped: the message names instruction, line, CTA and thread. A RuntimeError.
ExecutionError = _vsm.ExecutionError

SCHEDULES = ("fair", "late", "eager")
CHECKS = ("normal", "strict")
#: Kernel parameters, at most (PTX ISA 4.1).
PARAMETER_LIMIT = 32764

Dimensions = int | Sequence[int]


@dataclass(frozen=True)
class TensorMap:
    """The arguments of ``cuTensorMapEncodeTiled`` (innermost dimension first).

    `array` holds the tensor, which starts `offset` bytes into it. `dtype` is the name of a CUtensorMapDataType
    without its prefix ("FLOAT16", "UINT8", "16U4_ALIGN8B", ...), `gdim` the sizes in elements, `gstride_bytes` the
    strides of the outer dimensions in bytes, `box` and `estride` the box and its steps, `swizzle` 0 none, 1 32B,
    2 64B, 3 128B, 4 128B with 32-byte atoms, 5 the same with 8-byte halves flipped, 6 128B with 64-byte atoms,
    `oob` what is read outside: 0 zeros, 1 NaN.
    """

    array: np.ndarray
    dtype: str
    gdim: tuple[int, ...]
    gstride_bytes: tuple[int, ...]
    box: tuple[int, ...]
    estride: tuple[int, ...] = ()
    interleave: int = 0
    swizzle: int = 0
    oob: int = 0
    offset: int = 0
    l2promotion: int = 0
    #: im2col maps: (lower corner, upper corner, channels per pixel, pixels per column); None for tiled ones.
    im2col: tuple[tuple[int, ...], tuple[int, ...], int, int] | None = None

    def encode(self, address: int) -> bytes:
        """The 128 bytes that the virtual SM reads, the array being at device address `address`; or ValueError."""
        return _vsm.encode_tensor_map(
            address=address + self.offset,
            dtype=self.dtype,
            gdim=list(self.gdim),
            gstride=list(self.gstride_bytes),
            box=list(self.box),
            estride=list(self.estride or (1,) * len(self.gdim)),
            interleave=self.interleave,
            swizzle=self.swizzle,
            oob=self.oob,
            im2col=self.im2col,
        )


@dataclass(frozen=True)
class Struct:
    """A parameter as raw bytes, with device addresses (array, byte offset) and tensor maps at byte positions."""

    data: bytes
    pointers: Mapping[int, tuple[np.ndarray, int]] = field(default_factory=dict)
    tensormaps: Mapping[int, TensorMap] = field(default_factory=dict)


Argument = np.ndarray | np.generic | int | float | bool | bytes | TensorMap | Struct


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: where it lies in the parameter space, in bytes, and its element type."""

    name: str
    offset: int
    size: int
    type: str
    align: int


@dataclass(frozen=True)
class Result:
    """What a launch did."""

    #: Thread instructions per opcode, as written with all modifiers.
    opcodes: dict[str, int]
    #: Warp instructions and thread instructions.
    instructions: int
    thread_instructions: int
    #: Multiply-accumulates of the tcgen05.mma instructions.
    macs: int
    #: Asynchronous works (copies, mma, commits) that took effect.
    asynchronous: int


def _dimensions(value: Dimensions, what: str) -> tuple[int, int, int]:
    values = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(values) <= 3 or any(int(v) < 1 or int(v) >= 1 << 31 for v in values):
        raise ValueError(f"{what} must be one to three positive integers below 2**31, got {value!r}")
    x, y, z = (*(int(v) for v in values), 1, 1)[:3]
    return x, y, z


class _Addresses:
    """Gives every array of a launch one device address, the same for the same array."""

    def __init__(self) -> None:
        self.memory = _vsm.Memory()
        self._known: dict[tuple[int, int], int] = {}

    def of(self, array: np.ndarray, name: str) -> int:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"argument {name} must be a NumPy array, got {type(array).__name__}")
        if not array.flags.c_contiguous:
            raise ValueError(
                f"argument {name}: the array must be C-contiguous, its strides are {array.strides}"
            )
        key = (array.__array_interface__["data"][0], array.nbytes)
        if key not in self._known:
            # Bytes, because the buffer protocol does not know the ml_dtypes.
            flat = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
            self._known[key] = self.memory.add(flat, bool(array.flags.writeable), name)
        return self._known[key]


def _struct_bytes(value: Struct, addresses: _Addresses, name: str) -> bytes:
    data = bytearray(value.data)
    pieces = {
        at: (addresses.of(array, f"{name}[{at}]") + addend).to_bytes(8, "little")
        for at, (array, addend) in value.pointers.items()
    }
    pieces |= {at: t.encode(addresses.of(t.array, f"{name}[{at}]")) for at, t in value.tensormaps.items()}
    for at, piece in pieces.items():
        if at < 0 or at + len(piece) > len(data):
            raise ValueError(f"argument {name}: {len(piece)} bytes at {at} do not fit into {len(data)} bytes")
        data[at : at + len(piece)] = piece
    return bytes(data)


def _scalar_bytes(value: Any, parameter: Parameter) -> bytes:
    kind, bits = parameter.type[0], parameter.size * 8
    if isinstance(value, np.generic):
        data = value.tobytes()
        if len(data) == parameter.size:
            return data
        value = value.item()
    name = f"argument for parameter {parameter.name} (.{parameter.type})"
    if kind == "f":
        if isinstance(value, (bool, int, float)):
            dtype = np.dtype(f"f{parameter.size}")
            return np.array(value, dtype).tobytes()
    elif isinstance(value, (bool, int)):
        number = int(value)
        if -(1 << (bits - 1)) <= number < 1 << bits:
            return (number % (1 << bits)).to_bytes(parameter.size, "little")
        raise ValueError(f"{name}: {number} does not fit into {bits} bits")
    elif isinstance(value, float) and bits in (32, 64):
        return (np.float32 if bits == 32 else np.float64)(value).tobytes()
    raise TypeError(f"{name}: cannot be given as {type(value).__name__}")


def _argument_bytes(value: Argument, parameter: Parameter, addresses: _Addresses) -> bytes:
    if isinstance(value, np.ndarray):
        data = addresses.of(value, parameter.name).to_bytes(8, "little")
    elif isinstance(value, TensorMap):
        data = value.encode(addresses.of(value.array, parameter.name))
    elif isinstance(value, Struct):
        data = _struct_bytes(value, addresses, parameter.name)
    elif isinstance(value, (bytes, bytearray)):
        data = bytes(value)
    else:
        data = _scalar_bytes(value, parameter)
    if len(data) != parameter.size:
        raise ValueError(
            f"parameter {parameter.name} has {parameter.size} bytes, the argument gives {len(data)}"
        )
    return data


class Module:
    """A PTX module, parsed and decoded; `LoadError` for what is not PTX and for instructions that are not executed."""

    def __init__(self, ptx: str | bytes) -> None:
        if isinstance(ptx, bytes):
            ptx = ptx.decode("utf-8", "replace")
        if not isinstance(ptx, str):
            raise TypeError(f"ptx must be the text of a module, got {type(ptx).__name__}")
        self._module = _vsm.Module(ptx)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in the order of the text."""
        return tuple(self._module.kernels())

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        """The parameters of a kernel."""
        return tuple(Parameter(*row) for row in self._module.parameters(name))

    def launch(
        self,
        name: str,
        *,
        grid: Dimensions,
        block: Dimensions,
        cluster: Dimensions = 1,
        shared_bytes: int = 0,
        args: Sequence[Argument] = (),
        check: str = "normal",
        schedule: str = "fair",
        step_limit: int = 1 << 32,
        threads: int | None = None,
    ) -> Result:
        """Runs a kernel to its end. `grid` counts CTAs, `block` threads, `cluster` CTAs, each (x, y, z) or shorter.

        `args`: per parameter an array (its address is passed; the array is read and written in place), a number, raw
        bytes, a `TensorMap` or a `Struct`. `check="strict"` reports what hardware would not. `schedule`: when
        asynchronous work takes effect: "fair" after a while, "late" as late as possible, "eager" at issue.
        `step_limit` in warp instructions. `threads`: of the host, for clusters side by side; default: all cores.
        Raises `ExecutionError` for everything the kernel does wrong, deadlocks included.
        """
        for what, choice, allowed in (("check", check, CHECKS), ("schedule", schedule, SCHEDULES)):
            if choice not in allowed:
                raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, got {choice!r}")
        if not 0 <= int(shared_bytes) < 1 << 31:
            raise ValueError(f"shared_bytes must be a number of bytes, got {shared_bytes!r}")
        parameters = self.parameters(name)
        if len(args) != len(parameters):
            raise TypeError(f"kernel {name!r} has {len(parameters)} parameters, got {len(args)} arguments")
        addresses = _Addresses()
        data = bytearray(max((p.offset + p.size for p in parameters), default=0))
        for parameter, value in zip(parameters, args, strict=True):
            data[parameter.offset : parameter.offset + parameter.size] = _argument_bytes(
                value, parameter, addresses
            )
        result = self._module.launch(
            name,
            _dimensions(grid, "grid"),
            _dimensions(block, "block"),
            _dimensions(cluster, "cluster"),
            int(shared_bytes),
            bytes(data),
            addresses.memory,
            schedule,
            check == "strict",
            int(step_limit),
            threads or os.cpu_count() or 1,
        )
        return Result(**result)


def instruction_table() -> list[tuple[str, str, bool, str]]:
    """(family, opcode, executed, forms or the reason for refusing) of every instruction that is known."""
    return list(_vsm.instruction_table())


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
        path = self.path.parent / self.description["ptx"]
        if not path.exists() and path.with_name(path.name + ".gz").exists():
            import gzip

            return gzip.decompress(path.with_name(path.name + ".gz").read_bytes()).decode()
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
