"""Calls of the kernels of gemm.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyruntime.codegen.block_epilogue import Groups
from pyruntime.codegen.provider import Invocation
from pyruntime.ir.kernel import Call, Tensor
from pyruntime.ir.shape import AnyDim

from ..schedules import gemm
from ..schedules.layouts import Layout
from ..schedules.right_operand import rows_in_place
from .base import arithmetic, fused_epilogue, scratch, sum_type


def product_call(
    writer: Any, call: Call, layout: Layout, groups: Groups, operands: Sequence[Tensor], params: gemm.Params[AnyDim],
    label: str = "", left: bool = False,
) -> Invocation:  # fmt: skip
    """Return a call of gemm.py; operands: A, B, and with quantised weights their steps; left: whether A is
    transposed"""
    a, b, *steps = operands
    fused = fused_epilogue(writer, call, groups, gemm.arguments_of(layout), sum_type(call))
    more = gemm.left_bytes(params.mc) if left else 0
    params = params._replace(own=gemm.scratch_bytes(layout, params, rows_in_place(writer.module, layout)) + more)
    own = [scratch(params.own * writer.threads)] if params.own != 0 else []
    c, sums = fused.out, arithmetic(writer, call)
    kernel = partial(gemm.matmul, layout=layout, arithmetic=sums, left=left)
    buffers = (*gemm.Buffers(a, b, c, fused.bias or c, own[0] if own else c), *steps)
    units, label = (
        gemm.units(params.m, params.n, params.batch, params.mc, params.nc),
        label or f"matmul_{'left_' * left}{layout.name}",
    )
    return fused.invocation(kernel, ("matmul", layout, sums, left), buffers, params, units, own, label)


def pack_call(
    writer: Any, call: Call, transposed: bool, buffers: gemm.PackBuffers[Tensor], params: gemm.PackParams[AnyDim],
    own: Sequence[Tensor] = (),
) -> Invocation:  # fmt: skip
    """Return a call of `gemm.pack_b`; own: tensors that live for this call only."""
    key = ("pack_b", transposed)
    f = writer.function(key, lambda name: gemm.pack_b(writer.module, name, transposed), "pack_b")
    units = gemm.pack_units(params.n, params.batch)
    return Invocation(f.name, list(buffers), list(params), units, call.node, list(own))
