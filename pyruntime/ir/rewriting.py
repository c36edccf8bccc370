"""Rewriting kernel by kernel: a rule looks at one kernel and may give others in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyruntime.errors import InvalidModel
from pyruntime.ir.blocks import own_inputs
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import Block, Call, Kernel, Leaf, Loops, Map, Reduce

Rule = Callable[[Kernel], "Kernel | Sequence[Kernel] | None"]


def rewrite_kernels(block: Block, rule: Rule) -> None:
    """Apply a rule to each kernel of the block and its inner blocks, inner ones first. None leaves the kernel; what
    else it gives takes the kernel's place, the last of them its outputs and its node."""
    kernels: list[Kernel] = []
    for kernel in block.kernels:
        for inner in kernel.blocks:
            rewrite_kernels(inner, rule)
        given = rule(kernel)
        found = [kernel] if given is None else [given] if isinstance(given, Kernel) else list(given)
        take_over(found[-1], kernel)
        kernels += found
    block.kernels = kernels


def take_over(new: Kernel, old: Kernel) -> None:
    """`new` makes the outputs of `old` from now on."""
    if new is old:
        return
    new.outputs, new.node = old.outputs, old.node
    for t in new.outputs:
        t.kernel = new


def computing(rule: Rule) -> Rule:
    """The rule, for kernels that compute alone: what moves or controls them is not for rewriting."""
    return lambda kernel: rule(kernel) if isinstance(kernel, (Map, Reduce, Loops, Call)) else None


def check_kernels(block: Block, made: Iterable[int] = ()) -> None:
    """Errors: InvalidModel if a kernel reads what none before it makes, or has an index that its output lacks an axis
    for. `made`: uids of tensors made outside."""
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
    """The expressions of a kernel, each with the number of its axes."""
    if isinstance(kernel, Map):
        return [(kernel.expr, kernel.out.rank)]
    if isinstance(kernel, Reduce):
        epilogue = [] if kernel.epilogue is None else [(kernel.epilogue, kernel.out.rank)]
        return [(kernel.expr, kernel.out.rank + len(kernel.extents)), *epilogue]
    return []


__all__ = ["Rule", "check_kernels", "computing", "rewrite_kernels", "take_over"]
