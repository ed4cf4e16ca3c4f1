"""Writes plans.txt: the attributes of a few valid calls, for the fuzzer to damage. python tests/fuzz/make_plans.py"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from calls import Form, place, random_arrays

FORMS = (
    Form("f16", M=64, N=16, a_swizzle=1, b_swizzle=1, repeats=(1, 2, 2)),
    Form("f8f6f4", M=128, N=32, a_format="float6_e2m3fn", b_format="float4_e2m1fn", group=2, a_swizzle=0),
    Form("i8", M=32, N=64, ws=True, a_swizzle=None, b_swizzle=2, repeats=(1, 1, 2)),
    Form(
        "mxf4nvf4",
        N=24,
        scale="scale_vec::4X",
        scale_format="float8_e4m3fn",
        a_swizzle=3,
        b_swizzle=3,
        repeats=(1, 1, 2),
    ),
    Form("mxf8f6f4", M=256, N=32, group=2, a_format="float8_e5m2", b_format="float6_e3m2fn", a_swizzle=None),
)


def main() -> None:
    lines = ["# Written by make_plans.py. scalars: idesc, shared_bytes, tmem_columns."]
    for form in FORMS:
        attributes = place(form, random_arrays(form)).plan().attributes()
        lines.append(f"opcode {attributes['opcode']}")
        lines.append(
            f"scalars {attributes['idesc']} {attributes['shared_bytes']} {attributes['tmem_columns']}"
        )
        for name, value in attributes.items():
            if isinstance(value, np.ndarray):
                lines.append(" ".join([name, *map(str, value.tolist())]))
    (Path(__file__).parent / "plans.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
