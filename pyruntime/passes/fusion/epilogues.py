"""Turns elementwise work after a routine or reduction into its epilogue: bias, activation, residual sum, transpose.

A map that is the only reader of a result moves into the kernel that makes the result (`Call.epilogue`,
`Reduce.epilogue`), and that kernel takes the map's place in the block. A chain of maps is absorbed one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir.blocks import readers_of
from pyruntime.ir.expr import Expr, cast, rewrite_loads, substitute, walk
from pyruntime.ir.kernel import Block, Call, Map, Reduce, Tensor
from pyruntime.mathlib import depth
from pyruntime.passes.fusion.map_fusion import MAX_DEPTH, MAX_NODES

MAX_WRITTEN_OUT = 4 * MAX_NODES  # keys of functions are hashed node by node, a shared node as often as it is used


def absorb(block: Block, routines: Mapping[str, Routine], outputs: Iterable[Tensor]) -> None:
    """Merge maps into the calls and reductions before them, in this block and its inner blocks."""
    _block(block, routines, readers_of(block, outputs))


def _block(block: Block, routines: Mapping[str, Routine], readers: Counter[int]) -> None:
    absorbed: set[int] = set()
    places = {id(k): n for n, k in enumerate(block.kernels)}
    for kernel in list(block.kernels):
        if isinstance(kernel, Map):
            source = _source(kernel, routines, readers, places)
            if source is not None:
                absorbed.add(places.pop(id(source)))
                place = places.pop(id(kernel))
                block.kernels[place] = source
                places[id(source)] = place
        for inner in kernel.blocks:
            _block(inner, routines, readers)
    block.kernels = [k for n, k in enumerate(block.kernels) if n not in absorbed]


def _source(
    kernel: Map, routines: Mapping[str, Routine], readers: Counter[int], places: dict[int, int]
) -> Call | Reduce | None:
    """The kernel of this block that absorbed the map; None if none can."""
    for t in reversed(kernel.inputs):
        source = t.kernel
        if readers[t.uid] != 1 or id(source) not in places or len(source.outputs) != 1:
            continue
        if isinstance(source, (Call, Reduce)) and _absorb_map(source, t, kernel, routines):
            return source
    return None


def _absorb_map(source: Call | Reduce, t: Tensor, kernel: Map, routines: Mapping[str, Routine]) -> bool:
    loads = {x.key(): x for x in walk(kernel.expr) if x.op == "at" and x.value is t}
    order = _order(kernel, t, loads.values())
    if order is None:
        return False
    (load,) = loads.values()
    own = source.epilogue
    result = Expr("arg", (), t.dtype, 0) if own is None else substitute(own, load.args)
    value = cast(rewrite_loads(kernel.expr, lambda e: result if e.value is t else None), kernel.out.dtype)
    if len(walk(value)) > MAX_NODES or _written_out(value) > MAX_WRITTEN_OUT or depth(value) > MAX_DEPTH:
        return False
    if isinstance(source, Call):
        before = source.order or tuple(range(t.rank))
        order = tuple([before[n] for n in order])
        epilogue = None if value.op == "arg" else value
        if not routines[source.routine].fuses(source, kernel.out, order, value):
            return False
        source.order, source.epilogue = (None if order == tuple(range(t.rank)) else order), epilogue
    else:
        plain = own is not None or t.dtype is source.expr.dtype
        if order != tuple(range(t.rank)) or source.op.startswith("arg") or not plain:
            return False
        source.epilogue = value
    source.outputs = kernel.outputs
    kernel.out.kernel = source
    source.node = kernel.node if not source.node else source.node
    return True


def _written_out(e: Expr) -> int:
    """The number of nodes if each is written wherever it is used."""
    found: dict[int, int] = {}
    for x in walk(e):
        found[id(x)] = 1 + sum([found[id(a)] for a in x.args])
    return found[id(e)]


def _order(kernel: Map, t: Tensor, loads: Collection[Expr]) -> tuple[int, ...] | None:
    """For each axis of the map the axis of t that it follows; None unless the map reads each element of t once."""
    if kernel.out.rank != t.rank or len(loads) != 1:
        return None
    (load,) = loads
    order: dict[int, int] = {}
    for axis, c in enumerate(load.args):
        if c.op == "index" and kernel.out.shape[c.value] == t.shape[axis]:
            order[c.value] = axis
        elif t.shape[axis] != 1:
            return None
    free = [a for a in range(t.rank) if a not in order.values()]
    for n in range(t.rank):
        if n not in order:
            if kernel.out.shape[n] != 1:
                return None
            order[n] = free.pop(0)
    return tuple([order[n] for n in range(t.rank)])
