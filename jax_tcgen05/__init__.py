"""NVIDIA Blackwell's `tcgen05.mma` inside jitted JAX functions, exactly as written at the call site."""

from . import reference
from .descriptors import (
    BlockScaledInstructionDescriptor,
    InstructionDescriptor,
    SharedDescriptor,
    ZeroColumnMask,
)
from .isa import Opcode, instruction_table, legal
from .layouts import Axis as Axis
from .layouts import (
    R,
    S,
    Swizzle,
    TCol,
    TileLayout,
    TLane,
    matrix_descriptor,
    mma_shared_layout,
    scale_factor_layout,
    swizzle_bytes,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
)
from .mma import mma, plan
from .operands import PlacedOperand, shared, tmem, tmem_empty
from .plan import Plan
from .primitive import executor

__version__ = "0.1.0"

__all__ = [
    "Axis",
    "BlockScaledInstructionDescriptor",
    "InstructionDescriptor",
    "Opcode",
    "PlacedOperand",
    "Plan",
    "R",
    "S",
    "SharedDescriptor",
    "Swizzle",
    "TCol",
    "TLane",
    "TileLayout",
    "ZeroColumnMask",
    "executor",
    "instruction_table",
    "legal",
    "matrix_descriptor",
    "mma",
    "mma_shared_layout",
    "plan",
    "reference",
    "scale_factor_layout",
    "shared",
    "swizzle_bytes",
    "tmem",
    "tmem_datapath_layout",
    "tmem_empty",
    "tmem_mma_operand_layout",
]
