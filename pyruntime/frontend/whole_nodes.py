"""Whole nodes as calls, for providers that run them: in place of the kernels that tracing has recorded for a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.blocks import WHOLE_NODE
from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Leaf, Loops, Map, Reduce, Tensor, free
from pyruntime.onnx.graph import Node

TakesNode = Callable[[Call], bool]  # whether a provider runs the call


def whole_node(
    t: Tracer, first: int, node: Node, args: Sequence[Any], results: Sequence[Any], takes_node: TakesNode
) -> Sequence[Any]:
    """The results of a node: those of one call in place of its kernels, if a provider takes that. first: the number of
    the first kernel that the node has recorded into the current block"""
    block = Block((), t.block.kernels[first:], tuple([r for r in results if isinstance(r, Tensor)]))
    if not _is_closed(block, args) or any(t.known(r) is not None for r in block.outputs):
        return results
    attrs = {name: tuple(v) if isinstance(v, list) else v for name, v in node.attrs.items()}
    call = Call(WHOLE_NODE + f"{node.domain}.{node.op}".lstrip("."), tuple(args), attrs, block)
    call.node = t.node
    call.outputs = tuple([Tensor(r.shape, r.dtype, call, n) for n, r in enumerate(block.outputs)])
    if not takes_node(call):
        return results
    t.block.kernels[first:] = [call]
    made = iter(call.outputs)
    return [next(made) if isinstance(r, Tensor) else r for r in results]


def _is_closed(block: Block, args: Sequence[Any]) -> bool:
    """Whether kernels compute, from the tensors in `args` and constants alone, all outputs of the block, have no other
    effect, and do more than to reshape."""
    made = {x.uid for k in block.kernels for x in k.outputs}
    given = [a for a in args if a is not None]
    read = [x for x in free(block) if not isinstance(x.kernel, Leaf) or x.kernel.kind not in ("weight", "constant")]
    if not all(isinstance(a, Tensor) for a in given) or not {x.uid for x in read} <= {a.uid for a in given}:
        return False
    return (
        not all(isinstance(k, Alias) for k in block.kernels)
        and all(map(_computes, block.kernels))
        and all(x.uid in made for x in block.outputs)
        and all(x.dtype is not STRING and x.dtype.bits >= 8 for x in (*given, *block.outputs))
    )


def _computes(kernel: Kernel) -> bool:
    return isinstance(kernel, (Map, Reduce, Alias, Call)) or isinstance(kernel, Loops) and not kernel.bases
