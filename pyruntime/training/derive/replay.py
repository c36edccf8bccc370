"""Records the kernels of a block once more, on other inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pyruntime.errors import NotDifferentiable
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.copies import Copies, can_copy_blocks
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Block, Kernel, Read, Tensor


def record_again(t: Tracer, block: Block, replaced: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Record copies of a block's kernels, and return the copies of all their tensors by uid. replaced: what the copies
    read instead of the block's inputs, by uid of these"""
    copies = Copies(dict(replaced))
    for kernel in list(block.kernels):
        if not can_copy_blocks(kernel):
            how = "export the model without it, of PyTorch for example with dynamo=True"
            raise NotDifferentiable(f"{_what(kernel)} inside If or Loop has no gradient: {how}")
        t.block.kernels.append(copies.copy(kernel))
    for old in [o for kernel in all_kernels(block) for o in kernel.outputs]:
        if old.uid in t.still_tensors:
            t.still(copies.tensor(old))
        own = t.own_gradients.get(old.uid)
        if own is not None:
            t.own_gradients[copies.tensor(old).uid] = (own[0], _value(copies, own[1]))
    return copies.of


def _what(kernel: Kernel) -> str:
    if isinstance(kernel, Read):
        return "a dim that a run decides"
    kind = type(kernel).__name__
    return f"{'an' if kind == 'If' else 'a'} {kind} {'with dims that a run decides' if kernel.blocks else 'kernel'}"


def _value(copies: Copies, v: Any) -> Any:
    """An argument of an operator's own gradient, with its tensors replaced."""
    if isinstance(v, (tuple, list)):
        return type(v)([_value(copies, x) for x in v])
    if is_dataclass(v) and not isinstance(v, type):
        return replace(v, **{f.name: _value(copies, getattr(v, f.name)) for f in fields(v)})
    return copies.tensor(v) if isinstance(v, Tensor) else copies.expr(v) if isinstance(v, Expr) else v
