"""NVIDIA Blackwell's `tcgen05.mma` inside jitted JAX functions, exactly as written at the call site."""

from . import native as native  # first: it says what is wrong with an installation
from . import reference, vsm
from .descriptors import (
    BlockScaledInstructionDescriptor,
    InstructionDescriptor,
    SharedDescriptor,
    ZeroColumnMask,
)
from .isa import Opcode, instruction_table, legal
from .layouts import (
    Axis,
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
from .quantize import (
    dequantize,
    pack_scale_blocks,
    quantize_mx,
    quantize_nv,
    scale_matrix,
    scale_operand,
    unpack_scale_blocks,
)

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
    "dequantize",
    "executor",
    "instruction_table",
    "legal",
    "matrix_descriptor",
    "mma",
    "mma_shared_layout",
    "pack_scale_blocks",
    "plan",
    "quantize_mx",
    "quantize_nv",
    "reference",
    "scale_factor_layout",
    "scale_matrix",
    "scale_operand",
    "shared",
    "swizzle_bytes",
    "tmem",
    "tmem_datapath_layout",
    "tmem_empty",
    "tmem_mma_operand_layout",
    "unpack_scale_blocks",
    "vsm",
]
