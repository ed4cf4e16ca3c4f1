"""Runs one PTX instruction (or a few) on the virtual SM, one element of the given arrays per thread."""

from __future__ import annotations

import numpy as np

from jax_tcgen05 import vsm

_BLOCK = 128


def kernel_text(body: str, inputs: int | tuple[int, ...], output: int) -> str:
    """A kernel that loads registers `{0}`, `{1}`, ... of the given sizes in bytes, runs `body`, and stores `{d}`."""
    sizes = inputs if isinstance(inputs, tuple) else (inputs,)
    names = [f"%x{i}" for i in range(len(sizes))]
    registers = "".join(f".reg .b{8 * s} {n};\n" for n, s in zip(names, sizes, strict=True))
    loads = "".join(
        f"ld.param.u64 %base, [p{i}]; mad.wide.u32 %at, %i, {s}, %base; ld.global.b{8 * s} {n}, [%at];\n"
        for i, (n, s) in enumerate(zip(names, sizes, strict=True))
    )
    params = ", ".join(f".param .u64 p{i}" for i in range(len(sizes) + 1))
    return f""".version 9.1
.target sm_100a
.address_size 64
.visible .entry lanes({params}, .param .u32 count) {{
.reg .pred %past; .reg .b32 %i, %block, %size, %n; .reg .b64 %base, %at; .reg .b{8 * output} %d;
{registers}mov.u32 %block, %ctaid.x;
mov.u32 %size, %ntid.x;
mov.u32 %i, %tid.x;
mad.lo.u32 %i, %block, %size, %i;
ld.param.u32 %n, [count];
setp.ge.u32 %past, %i, %n;
@%past bra END;
{loads}{{ {body.format(*names, d="%d")} }}
ld.param.u64 %base, [p{len(sizes)}];
mad.wide.u32 %at, %i, {output}, %base;
st.global.b{8 * output} [%at], %d;
END: ret;
}}
"""


def lanes(body: str, *inputs: np.ndarray, out: type | np.dtype) -> np.ndarray:
    """`body` on every element of the inputs (all of one length; their bits are loaded); `out`: the result's dtype."""
    result = np.zeros(inputs[0].size, np.dtype(out))
    arrays = [np.ascontiguousarray(x).reshape(-1) for x in inputs]
    assert all(a.size == result.size for a in arrays)
    text = kernel_text(body, tuple(a.dtype.itemsize for a in arrays), result.dtype.itemsize)
    blocks = (result.size + _BLOCK - 1) // _BLOCK
    vsm.Module(text).launch(
        "lanes", grid=blocks, block=_BLOCK, args=(*arrays, result, np.uint32(result.size))
    )
    return result


def bits(x: np.ndarray) -> np.ndarray:
    """The elements' bits as unsigned integers."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def refusal(body: str, inputs: tuple[int, ...], output: int) -> str:
    """The message with which `body` is refused at load time."""
    try:
        vsm.Module(kernel_text(body, inputs, output))
    except vsm.LoadError as error:
        return str(error)
    raise AssertionError(f"accepted: {body}")
