"""The operator Gradient of ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.kernel import Block, Kernel, Tensor
from pyruntime.training.derive.gradients import gradients
from pyruntime.training.derive.replay import record_again


@op("Gradient", since=1, domain="ai.onnx.preview.training")
def gradient(t: Tracer, *inputs: Tensor, xs: Sequence[str], y: str, zs: Sequence[str] = ()) -> list[Tensor]:
    """The derivatives of the sum of the value named y with respect to the values named xs; those named zs are constant.
    They are computed where the values named xs and zs are the inputs, in this order; 0 where y does not depend on x.
    Spec: https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Gradient.html"""
    named = [t.named(name) for name in (*xs, *zs)]
    for name, x, fed in zip((*xs, *zs), named, t.entries("the inputs", inputs, len(named)), strict=True):
        t.require_shape(f'the input for "{name}"', fed, x.shape)
        if fed.dtype is not x.dtype:
            raise t.shape_error(f'the input for "{name}" is {fed.dtype}, must be {x.dtype}')
    for name, x in zip(xs, named, strict=False):
        if not x.dtype.is_float:
            raise t.unsupported(f'there are no derivatives with respect to "{name}", it is {x.dtype}')
    target = t.named(y)
    if not target.dtype.is_float:
        raise t.unsupported(f'"{y}" has no derivatives, it is {target.dtype}')
    changed = {x.uid: fed for x, fed in zip(named, inputs, strict=True) if x is not fed}
    if changed:
        block = Block((), _depending(t.block, changed.keys(), named))
        target = record_again(t, block, changed).get(target.uid, target)
        named = list(inputs)
    count = len(xs)
    found = gradients(t, {target: t.fill(target.shape, 1.0, target.dtype)}, named[:count], constant=named[count:])
    return [g or t.fill(x.shape, 0.0, x.dtype) for g, x in zip(found.of, named, strict=False)]


def _depending(block: Block, uids: Iterable[int], independent: Sequence[Tensor]) -> list[Kernel]:
    """The kernels that depend on these tensors, without those that make independent ones."""
    reached, fixed = set(uids), {x.uid for x in independent}
    found = []
    for kernel in block.kernels:
        made = {o.uid for o in kernel.outputs}
        if any(x.uid in reached for x in kernel.inputs) and not made & fixed:
            found.append(kernel)
            reached |= made
    return found
