"""Puts the constant numbers that a kernel reads into one tensor, because a GPU binds few tensors in a kernel.

Kernels of quantised models read a scale and a zero point for each quantisation that they compute. Some read 21 tensors,
and adapters allow eight or ten (maxStorageBuffersPerShaderStage), so such kernels would run on the CPU. As literals in
the code, the numbers would make a shader for each of many equal kernels.
"""

from __future__ import annotations

from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.dtype import F32, I8, U8
from pyruntime.ir.expr import Expr, cast, const, dim, index, rewrite, select
from pyruntime.ir.kernel import Block, Map, Reduce, Tensor
from pyruntime.passes.loads import is_stored_constant

LEAST = 3  # numbers: fewer stay tensors of their own
TYPES = (F32, I8, U8)  # float32 represents their numbers exactly


def join_scalars(block: Block, init: Block) -> None:
    """Let the maps and reductions of this block and its inner blocks read such numbers from tensors that the init block
    makes."""
    made = {t.uid for k in init.kernels for t in k.outputs}
    for k in all_kernels(block):
        numbers = [t for t in k.inputs if _is_number(t) and is_stored_constant(t, made)]
        if isinstance(k, (Map, Reduce)) and len(numbers) >= LEAST:
            joined = Map(_listed(numbers)).making((len(numbers),), F32)
            init.kernels.append(joined)
            _read(k, {t.uid: joined.out.at(dim(n)) for n, t in enumerate(numbers)})


def _is_number(t: Tensor) -> bool:
    return t.dtype in TYPES and all(d == 1 for d in t.shape)


def _listed(numbers: list[Tensor]) -> Expr:
    """Element n is the number n."""
    listed = const(0.0, F32)
    for n, t in reversed([*enumerate(numbers)]):
        listed = select(index(0) == n, cast(t.at(*[dim(0)] * t.rank), F32), listed)
    return listed


def _read(k: Map | Reduce, loads: dict[int, Expr]) -> None:
    def visit(e: Expr) -> Expr | None:
        return cast(loads[e.value.uid], e.dtype) if e.op == "at" and e.value.uid in loads else None

    k.expr = rewrite(k.expr, visit)
    if isinstance(k, Reduce) and k.epilogue is not None:
        k.epilogue = rewrite(k.epilogue, visit)
