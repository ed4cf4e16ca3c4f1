"""The public call."""

from __future__ import annotations

from typing import Any

from .contract import make_plan, read_call
from .isa import Opcode
from .operands import PlacedOperand
from .plan import Plan
from .primitive import mma_bind


def mma(
    opcode: str | Opcode,
    d: PlacedOperand,
    a: PlacedOperand,
    b: PlacedOperand,
    sfa: PlacedOperand | None = None,
    sfb: PlacedOperand | None = None,
    *,
    instruction_shape: tuple[int, int, int],
    a_descriptor: tuple[int, int, int] | None = None,
    b_descriptor: tuple[int, int, int] | None = None,
    a_major: str = "k",
    b_major: str = "k",
    a_format: Any = None,
    b_format: Any = None,
    neg_a: bool = False,
    neg_b: bool = False,
    sat_d: bool = False,
    accum: Any = False,
    pred: Any = None,
    disable_output_lane: Any = None,
    zero_column_mask: Any = None,
) -> PlacedOperand:
    """Issues `tcgen05.mma` (PTX ISA 9.7.16.10) once per M, N and K repeat and returns D, placed like `d`.

    Shapes after the prefix (execution group of 2 with ``cta_group::2``, then batch axes), g the CTA group:

    ===== ======================================= ============== =========================================
    d     (m_repeat, n_repeat, M/g, N)            TMEM           float32, float16 or int32
    a     (m_repeat, k_repeat, M/g, K)            shared or TMEM banked in TMEM: (.., 2, 64, K) or (.., 4, 32, K)
    b     (n_repeat, k_repeat, N/g, K)            shared
    sfa   (m_repeat, k_repeat, M/g, scale_vec)    TMEM           float8_e8m0fnu or float8_e4m3fn
    sfb   (n_repeat, k_repeat, N, scale_vec)      TMEM           the same dtype as sfa
    ===== ======================================= ============== =========================================

    Args:
      opcode: the PTX opcode with its modifiers, such as ``"tcgen05.mma.cta_group::1.kind::f16"``.
      d, a, b, sfa, sfb: placed operands; sfa and sfb with ``.block_scale`` only. A batch axis of a, b, sfa, sfb
        may be 1 and broadcasts.
      instruction_shape: (M, N, K) of one instruction, M over the whole CTA group.
      a_descriptor, b_descriptor: (ldo_bytes, sdo_bytes, swizzle 0..4) of an operand in shared memory, checked
        against its layout for every element. None for A in TMEM.
      a_major, b_major: "k" or "mn".
      a_format, b_format: ml_dtypes names, by default the array's dtype; "tf32" for float32; FP6 and FP4 codes in
        uint8 arrays need theirs.
      neg_a, neg_b: negate the elements (not i8). sat_d: clamp to the int32 range (i8 only).
      accum: whether the first K issue of each tile adds D. A bool, static or traced, scalar or of the batch's shape.
      pred: where false, nothing is written. As `accum`; None is true.
      disable_output_lane: dense only; 4g words (ints, or a uint32 array (.., 4g)): bit l % 32 of word l // 32
        keeps TMEM lane l as it was (words 4-7: the odd CTA, OQ9).
      zero_column_mask: `.ws` only; an int, a `ZeroColumnMask`, or a uint32 array (.., 2), low word first.

    Returns:
      A placed operand with the leaf shape and the view of `d`. What the instruction does not write is as it was.

    Differentiable in d, a and b (float formats), in every mode of JAX. Inside `jax.shard_map` each device runs its own
    batch elements; outside, XLA gathers sharded operands on every device, as for any custom call.

    Raises:
      TypeError, ValueError: while tracing, naming the argument, what was given and what is allowed.
      At run time an XLA error with status INVALID_ARGUMENT, for a traced mask that is not offered.
    """
    call, arrays = read_call(
        opcode,
        d,
        a,
        b,
        sfa,
        sfb,
        instruction_shape=instruction_shape,
        a_descriptor=a_descriptor,
        b_descriptor=b_descriptor,
        a_major=a_major,
        b_major=b_major,
        a_format=a_format,
        b_format=b_format,
        neg_a=neg_a,
        neg_b=neg_b,
        sat_d=sat_d,
        accum=accum,
        pred=pred,
        disable_output_lane=disable_output_lane,
        zero_column_mask=zero_column_mask,
    )
    make_plan(call)
    return d.with_leaf(mma_bind(arrays, call))


def plan(*args: Any, **options: Any) -> Plan:
    """The Plan of a call with `mma`'s arguments: encoded descriptors, starts, allocations. Runs nothing.

    ``print(plan(...))`` shows every descriptor in hex and decoded. Raises what `mma` raises while tracing.
    """
    call, _ = read_call(*args, **options)
    return make_plan(call)
