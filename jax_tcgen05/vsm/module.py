"""Modules and their launches: arguments to parameter bytes and device addresses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._core import vsm as _vsm
from .result import Instruction, Result, Watched, array_key
from .trace import Trace

#: PTX text that cannot be loaded: the message names line, opcode and text. A ValueError.
LoadError = _vsm.LoadError
#: Execution was stopped: the message names instruction, line, CTA and thread. A RuntimeError.
ExecutionError = _vsm.ExecutionError

SCHEDULES = ("fair", "late", "eager")
CHECKS = ("normal", "strict")
#: Events of a trace, at most, unless the caller says otherwise.
TRACE_LIMIT = 1_000_000

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

    def __post_init__(self) -> None:
        for name in ("gdim", "gstride_bytes", "box", "estride"):
            values = getattr(self, name)
            if any(isinstance(v, bool) or not isinstance(v, (int, np.integer)) or v < 0 for v in values):
                raise ValueError(f"tensor map: {name} must hold integers that are not negative, got {values}")

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
        self.watched: dict[tuple[int, int], int] = {}

    def of(self, array: np.ndarray, name: str) -> int:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"argument {name} must be a NumPy array, got {type(array).__name__}")
        if not array.flags.c_contiguous:
            raise ValueError(
                f"argument {name}: the array must be C-contiguous, its strides are {array.strides}"
            )
        key = array_key(array)
        if key not in self._known:
            # Bytes, because the buffer protocol does not know the ml_dtypes.
            flat = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
            self._known[key] = self.memory.add(flat, bool(array.flags.writeable), name)
        return self._known[key]

    def watch(self, array: np.ndarray) -> None:
        """Records who writes the array, which must be an argument."""
        key = array_key(array) if isinstance(array, np.ndarray) else None
        if key is None or key not in self._known:
            raise ValueError("watch must hold arrays that are among the arguments")
        self.watched[key] = self._known[key]
        self.memory.watch(self._known[key])


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
        trace: bool | int = False,
        watch: Sequence[np.ndarray] = (),
        progress: Callable[[int, int, int], object] | None = None,
    ) -> Result:
        """Runs a kernel to its end. `grid` counts CTAs, `block` threads, `cluster` CTAs, each (x, y, z) or shorter.

        `args`: per parameter an array (its address is passed; the array is read and written in place), a number, raw
        bytes, a `TensorMap` or a `Struct`. `check="strict"` reports what hardware would not. `schedule`: when
        asynchronous work takes effect: "fair" after a while, "late" as late as possible, "eager" at issue.
        `step_limit` in warp instructions. `threads`: of the host, for clusters side by side; default: all cores.
        `trace`: record events of tensor memory, barriers and asynchronous copies into `Result.trace`, at most a
        million or the number given. `watch`: arrays of `args` for which `Result.first_difference` will name the
        instruction that wrote an element (on one host thread). `progress` is called now and then with the number of
        finished clusters, of clusters, and of warp instructions so far.
        Raises `ExecutionError` for everything the kernel does wrong, deadlocks included; its attribute `trace` is
        the trace up to there.
        """
        for what, choice, allowed in (("check", check, CHECKS), ("schedule", schedule, SCHEDULES)):
            if choice not in allowed:
                raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, got {choice!r}")
        numbers = ("shared_bytes", shared_bytes, 0), ("step_limit", step_limit, 0), ("trace", trace, 0)
        for what, number, least in (*numbers, ("threads", 1 if threads is None else threads, 1)):
            if not least <= int(number) < (1 << 31 if what == "shared_bytes" else 1 << 63):
                raise ValueError(f"{what} must be an integer from {least}, got {number!r}")
        parameters = self.parameters(name)
        if len(args) != len(parameters):
            raise TypeError(f"kernel {name!r} has {len(parameters)} parameters, got {len(args)} arguments")
        addresses = _Addresses()
        data = bytearray(max((p.offset + p.size for p in parameters), default=0))
        for parameter, value in zip(parameters, args, strict=True):
            data[parameter.offset : parameter.offset + parameter.size] = _argument_bytes(
                value, parameter, addresses
            )
        for array in watch:
            addresses.watch(array)
        instructions = (
            [Instruction(*row) for row in self._module.instructions(name)] if trace or watch else []
        )
        sink = _vsm.TraceSink(TRACE_LIMIT if trace is True else int(trace)) if trace else None
        arguments = (
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
            min(int(threads or os.cpu_count() or 1), 1024),
            sink,
            progress,
        )
        try:
            counts = self._module.launch(*arguments)
        except ExecutionError as error:
            error.trace = Trace.of(sink, instructions) if sink else None
            raise
        return Result(
            **counts,
            trace=Trace.of(sink, instructions) if sink else None,
            watched=Watched(addresses.memory, addresses.watched, instructions) if watch else None,
        )


def instruction_table() -> list[tuple[str, str, bool, str]]:
    """(family, opcode, executed, forms or the reason for refusing) of every instruction that is known."""
    return list(_vsm.instruction_table())
