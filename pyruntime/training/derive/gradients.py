"""`gradients`: the gradients of traced values, recorded as kernels after those of the forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.kernel import Alias, Call, If, Loop, Map, Reduce, Tensor
from pyruntime.training.derive import (  # noqa: F401  the rules of operators
    control_rules,
    kernel_rules,
    own_rules,
    pooling_rules,
    procedure_rules,
    recurrence_rules,
)  # fmt: skip
from pyruntime.training.derive.backward_walk import Rule, Walk

_RULES: dict[type, Rule] = {
    Alias: kernel_rules.of_alias, Map: kernel_rules.of_map, Reduce: kernel_rules.of_reduce, Call: kernel_rules.of_call,
    If: control_rules.of_if, Loop: control_rules.of_loop,
}  # fmt: skip


@dataclass(slots=True)
class Gradients:
    """of: the gradient of each wanted tensor, in its shape and type; None if it has no cotangent.
    stopped: for a tensor without gradient, the label of the first node on its way to the outputs that lets nothing
    through (it is piecewise constant), or "" if the outputs do not depend on it; by position in `wanted`."""

    of: list[Tensor | None]
    stopped: dict[int, str]


def gradients(
    t: Tracer, seeds: Mapping[Tensor, Tensor], wanted: Sequence[Tensor], constant: Sequence[Tensor] = ()
) -> Gradients:
    """Record the kernels that compute the gradients of Σ seed · output for the wanted tensors.

    t: the tracer that recorded the outputs; kernels are added to its current block
    seeds: the cotangent of each output: a tensor of the same shape and type (a scalar 1 for a loss)
    wanted: float tensors: leaves, or values between. They count as independent of each other
    constant: values that count as constant, although they may depend on wanted ones

    The result is made of ordinary kernels, so it can be differentiated again.
    Errors: NotDifferentiable, with the node and the wanted tensors that need it"""
    walk = Walk(t, t.block, wanted, _RULES, constant)
    walk.run(seeds.items())
    found = [walk.cotangent_of.get(x.uid) for x in wanted]
    return Gradients(found, {n: _stopped_at(walk, x) for n, x in enumerate(wanted) if found[n] is None})


def _stopped_at(walk: Walk, x: Tensor) -> str:
    reached = {x.uid}
    for kernel in walk.kernels:
        if any(y.uid in reached for y in kernel.inputs):
            if any(o.uid in walk.cotangent_of for o in kernel.outputs):
                return kernel.node
            reached |= {o.uid for o in kernel.outputs}
    return ""
