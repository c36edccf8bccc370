"""Rewriting kernel by kernel: a rule maps one kernel to the kernels that replace it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyruntime.errors import InvalidModel
from pyruntime.ir.blocks import own_inputs
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Block, Call, Kernel, Leaf, Loops, Map, Reduce

Rule = Callable[[Kernel], "Kernel | Sequence[Kernel] | None"]


def rewrite_kernels(block: Block, rule: Rule) -> None:
    """Apply a rule to each kernel of the block and its inner blocks, inner ones first. A rule returns None to
    leave a kernel, or the kernels that replace it; the last of them takes over its outputs and node."""
    kernels: list[Kernel] = []
    for kernel in block.kernels:
        for inner in kernel.blocks:
            rewrite_kernels(inner, rule)
        result = rule(kernel)
        new = [kernel] if result is None else [result] if isinstance(result, Kernel) else list(result)
        take_over(new[-1], kernel)
        kernels += new
    block.kernels = kernels


def take_over(new: Kernel, old: Kernel) -> None:
    """Make `new` the kernel that makes the outputs of `old`."""
    if new is old:
        return
    new.replaces(old, old.outputs)
    for t in new.outputs:
        t.kernel = new


def computing(rule: Rule) -> Rule:
    """The rule restricted to kernels that compute."""
    return lambda kernel: rule(kernel) if isinstance(kernel, (Map, Reduce, Loops, Call)) else None


def check_kernels(block: Block, made: Iterable[int] = ()) -> None:
    """Check the order and axes of kernels. made: uids of tensors from outside the block. Errors: InvalidModel if a
    kernel reads a tensor that no kernel before it makes, or uses an index beyond the axes of its output."""
    known = {*made, *[t.uid for t in block.inputs]}
    for kernel in block.kernels:
        unmade = [t for t in own_inputs(kernel) if t.uid not in known and not isinstance(t.kernel, Leaf)]
        if unmade:
            text = f"a {type(kernel).__name__} reads {unmade[0]}, which is not made before it"
            raise InvalidModel(text, node=kernel.node)
        _check_axes(kernel)
        for inner in kernel.blocks:
            check_kernels(inner, known)
        known.update(t.uid for t in kernel.outputs)


def _check_axes(kernel: Kernel) -> None:
    for e, axes in _spaces(kernel):
        beyond = max((x.value for x in walk(e) if x.op == "index"), default=-1)
        if beyond >= axes:
            raise InvalidModel(f"index({beyond}) in a {type(kernel).__name__} of {axes} axes", node=kernel.node)


def _spaces(kernel: Kernel) -> list[tuple[Expr, int]]:
    """The expressions of a kernel, each with the number of axes over which it is evaluated."""
    if isinstance(kernel, Map):
        return [(kernel.expr, kernel.out.rank)]
    if isinstance(kernel, Reduce):
        epilogue = [] if kernel.epilogue is None else [(kernel.epilogue, kernel.out.rank)]
        return [(kernel.expr, kernel.out.rank + len(kernel.extents)), *epilogue]
    return []
