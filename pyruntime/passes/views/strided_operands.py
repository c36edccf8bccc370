"""Makes routines read their operands through strides, so that transposes, slices and reshapes before them cost no
copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.codegen.addressing import split
from pyruntime.codegen.provider import Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, index
from pyruntime.ir.kernel import Block, Call, Tensor, View
from pyruntime.passes.loads import sources


def read_through(block: Block, routines: Mapping[str, Routine]) -> None:
    """Replace operands of calls, also in inner blocks, by the tensors they are views of, if the routine takes these
    strides."""
    for kernel in block.kernels:
        if isinstance(kernel, Call) and kernel.routine in routines:
            for n, operand in enumerate(kernel.args):
                if operand is not None and n not in kernel.strided:
                    _operand(kernel, n, operand, routines[kernel.routine])
        for inner in kernel.blocks:
            read_through(inner, routines)


def _operand(call: Call, n: int, operand: Tensor, routine: Routine) -> None:
    view = None
    for load in sources(operand.at(*[index(n) for n in range(operand.rank)])):
        offset, coefficients, opaque = split(load.value, load.args)
        if _merge_split_indices(coefficients, opaque):
            strides = tuple([coefficients.get(("index", i), 0) for i in range(operand.rank)])
            view = load.value, View(operand, offset, strides)
    if view is not None and routine.reads(call, n, view[1]):
        call.args = (*call.args[:n], view[0], *call.args[n + 1 :])
        call.strided[n] = view[1]


def _merge_split_indices(coefficients: dict[Any, sh.AnyDim], opaque: list[tuple[Expr, sh.AnyDim]]) -> bool:
    """Turns pairs of i / k and i % k into a stride along i where their strides allow it: rows that follow each other in
    memory. Adds these strides to `coefficients`; returns False if any other term remains."""
    rest = {(x.op, x.args[0].key(), x.args[1].key()): (x, stride) for x, stride in opaque if x.op in ("div", "rem")}
    if len(rest) != len(opaque):
        return False
    while rest:
        (op, *operands), (x, stride) = rest.popitem()
        other = rest.pop(("rem" if op == "div" else "div", *operands), None)
        low, high = (stride, other and other[1]) if op == "rem" else (other and other[1], stride)
        axis = ("index", x.args[0].value)
        if x.args[0].op != "index" or low is None or high != low * x.args[1].value:
            return False
        coefficients[axis] = coefficients.get(axis, 0) + low
    return True
