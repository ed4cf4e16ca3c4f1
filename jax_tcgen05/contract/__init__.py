"""One call checked and turned into a Plan."""

from .call import Call, OperandSpec, read_call
from .planning import make_plan

__all__ = ["Call", "OperandSpec", "make_plan", "read_call"]
