"""Layout values, their algebra, and the constructors for shared memory and TMEM. NumPy only."""

from .digits import Digit, LogicalAxis
from .notation import Axis, R, S, TCol, TLane
from .shared import mma_shared_layout
from .swizzle import SWIZZLE_MODES, Swizzle, SwizzleMode, swizzle_bytes
from .tile import LayoutIndexError, TileLayout
from .tmem import (
    DATAPATHS,
    scale_factor_layout,
    tmem_datapath_layout,
    tmem_mma_operand_layout,
)
from .walk import bit_image, matrix_descriptor, modes_for, unswizzled_bits, walk_bits

__all__ = [
    "DATAPATHS",
    "SWIZZLE_MODES",
    "Axis",
    "Digit",
    "LayoutIndexError",
    "LogicalAxis",
    "R",
    "S",
    "Swizzle",
    "SwizzleMode",
    "TCol",
    "TLane",
    "TileLayout",
    "bit_image",
    "matrix_descriptor",
    "mma_shared_layout",
    "modes_for",
    "scale_factor_layout",
    "swizzle_bytes",
    "tmem_datapath_layout",
    "tmem_mma_operand_layout",
    "unswizzled_bits",
    "walk_bits",
]
