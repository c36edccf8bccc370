"""The walk over recorded kernels, the last one first, that adds up what flows into each tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyruntime.errors import NotDifferentiable
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.expr import Expr, X, Y
from pyruntime.ir.kernel import Block, Kernel, Loops, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.training.derive.transpose import transposed

Flows = Sequence[Tensor | None]  # what flows into each output of a kernel
Given = list[tuple[Tensor, Tensor]]  # an operand, and what flows into it
Rule = Callable[["Walk", Any, Flows], Given]


class Walk:
    """Differentiates the kernels of one block.

    wanted: the tensors whose gradients are asked for; something flows only into them and into what depends on them
    constant: tensors that nothing flows through
    rules: by class of kernel
    own: the rules of operators by name, see `Tracer.own_gradient`
    flow: by uid, what flows into each tensor
    """

    def __init__(
        self, t: Tracer, block: Block, wanted: Iterable[Tensor], rules: Mapping[type, Rule], own: Mapping[str, Any],
        constant: Iterable[Tensor] = (),
    ) -> None:  # fmt: skip
        self.t, self.rules, self.own = t, rules, own
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
        self.flow: dict[int, Tensor] = {}

    def _is_rounded(self, kernel: Kernel) -> bool:
        """Whether it makes codes through which gradients flow."""
        own = self.t.own_gradients.get(kernel.outputs[0].uid)
        return own is not None and own[0] == "rounded"

    def inner(self, block: Block, wanted: Iterable[Tensor]) -> Walk:
        """A walk over another block by the same rules."""
        return Walk(self.t, block, wanted, self.rules, self.own)

    def is_active(self, x: Tensor) -> bool:
        return x.uid in self.active

    def run(self, seeds: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Fill `flow`. seeds: tensors, and what flows into them."""
        for x, g in seeds:
            self._give(x, g)
        for kernel in reversed(self.kernels):
            flows = [None if o.uid in self.wanted else self.flow.get(o.uid) for o in kernel.outputs]
            if all(f is None for f in flows) or not any(self.is_active(x) for x in kernel.inputs):
                continue
            self.t.node = f"gradient of {kernel.node}"
            for operand, part in self._given(kernel, flows):
                if self.is_active(operand):
                    self._give(operand, part)

    def _give(self, x: Tensor, part: Tensor) -> None:
        before = self.flow.get(x.uid)
        self.flow[x.uid] = part if before is None else self.t.map(X + Y, before, part)

    def _given(self, kernel: Kernel, flows: Flows) -> Given:
        try:
            own = self.t.own_gradients.get(kernel.outputs[0].uid)
            if own is None:
                return self.by_kernel(kernel, flows)
            rule, args = own
            rule = self.own[rule] if isinstance(rule, str) else rule
            return rule(self, flows[0] if len(flows) == 1 else flows, *args)
        except NotDifferentiable as e:
            e.hint = e.hint or self._who_needs(kernel)
            raise e.at(kernel.node) from e.__cause__

    def by_kernel(self, kernel: Kernel, flows: Flows) -> Given:
        rule = self.rules.get(type(kernel))
        if rule is None:
            what = f"the procedure {kernel.name}" if isinstance(kernel, Loops) else f"a {type(kernel).__name__} kernel"
            raise NotDifferentiable(f"{what} has no gradient")
        return rule(self, kernel, flows)

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

    def into_loads(self, parts: Iterable[tuple[Expr, Expr]], extents: Sequence[AnyDim]) -> Given:
        """The flows into tensors from the flows into their loads in a nest of these extents."""
        return [(load.value, self.like(load.value, transposed(self.t, load, value, extents))) for load, value in parts]

    def like(self, x: Tensor, flow: Tensor) -> Tensor:
        """A flow in the type of x; what flows into codes remains a float."""
        return self.t.cast(flow, x.dtype) if x.dtype.is_float else flow
