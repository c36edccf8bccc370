"""The memory of a step of training: its peak, and the activations that the backward pass reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.training_nets import Net
from pyruntime import SessionOptions, TrainingSession
from pyruntime.compiler.user_passes import remove_pass, rewrite_rule
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Kernel, root

GRADIENT = "gradient of "  # labels of the kernels of a backward pass begin with it


class MemoryUse(NamedTuple):
    """Bytes. peak: most in use at once besides states; kept: activations that the forward pass makes and the backward
    pass reads; states: weights, and moments of the optimiser"""

    peak: int
    kept: int
    states: int


def memory_use(net: Net) -> MemoryUse:
    kernels: list[Kernel] = []
    name = "bench.training_memory"
    rewrite_rule(name, after="unread_values")(lambda kernel: kernels.append(kernel))
    try:
        feeds = net.feeds(0)
        options = SessionOptions()
        options.add_free_dimension_override_by_name("N", len(feeds["target"]))
        with TrainingSession(
            net.model(), loss={"cross_entropy": "logits", "axis": -1}, optimizer="adam", sess_options=options
        ) as session:  # fmt: skip
            session.step(feeds)
            report = session.memory()
    finally:
        remove_pass(name)
    return MemoryUse(report.peak, _kept(kernels), report.weights)


def _kept(kernels: Sequence[Kernel]) -> int:
    is_backward = {k: k.node.startswith(GRADIENT) for k in kernels}
    read = {root(t).uid for k in kernels if is_backward[k] for t in k.inputs}
    made = {root(t).uid: root(t) for k in kernels if not is_backward[k] for t in k.outputs}
    return sum(sh.size(t.shape) * t.dtype.size for uid, t in made.items() if uid in read)
