"""The virtual SM: runs PTX for NVIDIA Blackwell on the CPU, `tcgen05` instructions with the chip's bits.

    module = vsm.Module(Path("kernel.ptx").read_text())
    result = module.launch("kernel", grid=1, block=128, args=(a, b, out))

Arrays are NumPy arrays, updated in place. What is executed and how it is scheduled: docs/vsm.md.
"""

from .case import Case
from .module import (
    CHECKS,
    SCHEDULES,
    ExecutionError,
    LoadError,
    Module,
    Parameter,
    Struct,
    TensorMap,
    instruction_table,
)
from .result import Difference, Instruction, Result, Writer
from .trace import Event, Trace

__all__ = [
    "CHECKS",
    "SCHEDULES",
    "Case",
    "Difference",
    "Event",
    "ExecutionError",
    "Instruction",
    "LoadError",
    "Module",
    "Parameter",
    "Result",
    "Struct",
    "TensorMap",
    "Trace",
    "Writer",
    "instruction_table",
]
