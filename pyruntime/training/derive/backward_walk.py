"""The walk over recorded kernels, the last one first, that adds up the cotangent of each tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyruntime.errors import NotDifferentiable
from pyruntime.frontend.own_gradients import ROUNDED, Cotangents
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import Expr, X, Y
from pyruntime.ir.kernel import Block, Kernel, Loops, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.training.derive.transpose import transposed

OutputCotangents = Sequence[Tensor | None]  # of each output of a kernel; None is zero
Rule = Callable[["Walk", Any, OutputCotangents], Cotangents]


class Walk:
    """Differentiates the kernels of one block.

    wanted: the tensors whose gradients are asked for; only they and what depends on them have cotangents (are active)
    constant: tensors without a cotangent
    rules: by class of kernel
    cotangent_of: the cotangent of each tensor that has one, by uid
    """

    def __init__(
        self, t: Tracer, block: Block, wanted: Iterable[Tensor], rules: Mapping[type, Rule],
        constant: Iterable[Tensor] = (),
    ) -> None:  # fmt: skip
        self.t, self.rules = t, rules
        self.wanted = {x.uid: x for x in wanted}
        self.kernels = list(block.kernels)
        self.active = set(self.wanted)
        fixed = t.still_tensors | {x.uid for x in constant}
        for kernel in self.kernels:
            read = [x for x in kernel.inputs if x.uid in self.active]
            if read:
                codes = self._is_rounded(kernel) or any(x.dtype.is_int for x in read)
                self.active |= {
                    o.uid for o in kernel.outputs
                    if o.uid not in fixed and (o.dtype.is_float or (codes and o.dtype.is_int))
                }  # fmt: skip
        self.cotangent_of: dict[int, Tensor] = {}

    def _is_rounded(self, kernel: Kernel) -> bool:
        """Whether it makes codes through which gradients pass."""
        own = self.t.own_gradients.get(kernel.outputs[0].uid)
        return own is not None and own[0] is ROUNDED

    def inner(self, block: Block, wanted: Iterable[Tensor]) -> Walk:
        """A walk over another block by the same rules."""
        return Walk(self.t, block, wanted, self.rules)

    def is_active(self, x: Tensor) -> bool:
        return x.uid in self.active

    def run(self, seeds: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fill `cotangent_of`. seeds: tensors, and cotangents that are known."""
        for x, g in seeds:
            self._add(x, g)
        for kernel in reversed(self.kernels):
            gs = [None if o.uid in self.wanted else self.cotangent_of.get(o.uid) for o in kernel.outputs]
            if all(g is None for g in gs) or not any(self.is_active(x) for x in kernel.inputs):
                continue
            with self.t.backward_pass(f"gradient of {kernel.node}"):
                for operand, part in self._cotangents(kernel, gs):
                    if self.is_active(operand):
                        self._add(operand, part)

    def _add(self, x: Tensor, part: Tensor) -> None:
        before = self.cotangent_of.get(x.uid)
        self.cotangent_of[x.uid] = part if before is None else self.t.map(X + Y, before, part)

    def _cotangents(self, kernel: Kernel, gs: OutputCotangents) -> Cotangents:
        """The cotangents of a kernel's operands, from those of its outputs."""
        try:
            own = self.t.own_gradients.get(kernel.outputs[0].uid)
            if own is None:
                return self._by_kernel(kernel, gs)
            rule, args = own
            found: Cotangents = rule(self, gs[0] if len(gs) == 1 else gs, *args)
            return found
        except NotDifferentiable as e:
            e.hint = e.hint or self._who_needs(kernel)
            raise e.at(kernel.node) from e.__cause__

    def _by_kernel(self, kernel: Kernel, gs: OutputCotangents) -> Cotangents:
        rule = self.rules.get(type(kernel))
        if rule is None:
            what = f"the procedure {kernel.name}" if isinstance(kernel, Loops) else f"a {type(kernel).__name__} kernel"
            raise NotDifferentiable(f"{what} has no gradient")
        return rule(self, kernel, gs)

    def _who_needs(self, kernel: Kernel) -> str:
        """The wanted tensors whose gradient passes through a kernel, for messages."""
        found, todo = set(), [x for x in kernel.inputs if self.is_active(x)]
        seen = {x.uid for x in todo}
        while todo:
            x = todo.pop()
            if x.uid in self.wanted:
                found.add(x.name or str(x))
            new = [y for y in x.kernel.inputs if self.is_active(y) and y.uid not in seen]
            seen.update(y.uid for y in new)
            todo += new
        names = sorted(found)
        text = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        return f"the gradient of {text} passes through it" if names else ""

    def into_loads(self, parts: Iterable[tuple[Expr, Expr]], extents: Sequence[AnyDim]) -> Cotangents:
        """The cotangents of tensors from those of their loads in a nest of these extents."""
        return [(load.value, self.like(load.value, transposed(self.t, load, value, extents))) for load, value in parts]

    def like(self, x: Tensor, g: Tensor) -> Tensor:
        """The cotangent g of x in the type of x; that of codes remains a float."""
        return self.t.cast(g, x.dtype) if x.dtype.is_float else g
