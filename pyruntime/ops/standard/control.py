"""If and Loop. Conditions and trip counts that are constant disappear at compile time; otherwise the executor runs
blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyruntime.errors import InvalidModel, NeedsValue, ShapeError
from pyruntime.frontend.registry import op
from pyruntime.frontend.requirements import EMPTY_AXIS, Guard
from pyruntime.frontend.sequences import tensors_of
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, I64
from pyruntime.ir.expr import cast, const
from pyruntime.ir.kernel import Binds, Block, If, Loop, Tensor, root
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ir.symbol import Symbol
from pyruntime.ops.standard.lists_of_loops import Step, alike, chosen, padded, with_lists

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph

UNROLL = 16  # a loop whose shapes change is unrolled up to this many iterations
UNROLL_VALUES = 4096  # the limit of a loop that must be unrolled, because it carries sequences


# ── If ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@op("If", since=1)
def if_(t: Tracer, cond: Tensor, *, then_branch: Graph, else_branch: Graph) -> Sequence[Any]:
    """The values of one branch. A dim that differs between the branches is known only at run time. If ranks differ, or
    lengths of sequences, the session specialises on the condition.
    Spec: https://onnx.ai/onnx/operators/onnx__If.html"""
    t.require(sh.compare("eq", sh.size(cond.shape), 1), f"the condition must be one element, has shape {[*cond.shape]}")
    known = t.known(cond)
    if known is not None and not isinstance(known[0], Dim):
        return t.subgraph(then_branch if known[0] else else_branch, [])
    taken = None if known is None else known[0]
    mark = len(t.fresh)
    (then, a), (orelse, b) = _branches(t, cond, (then_branch, else_branch), taken)
    inner = set(t.fresh[mark:])
    a, b = ([padded(t, *pair, inner) for pair in zip(x, y, strict=True)] for x, y in ((a, b), (b, a)))
    if not all(alike(x, y) for x, y in zip(a, b, strict=True)):
        t.static(cond)
        raise t.shape_error("the branches give values of different types")
    one, two = ([y for x in values for y in tensors_of(x)] for values in (a, b))
    then.outputs, orelse.outputs = block_outputs(t, then, one), block_outputs(t, orelse, two)
    shapes, binds = _merge(t, [x.shape for x in one], [y.shape for y in two], inner)
    made = iter(t.add(If(cond, then, orelse, binds), [(s, x.dtype) for s, x in zip(shapes, one, strict=True)]))
    return [chosen(t, x, y, made) for x, y in zip(a, b, strict=True)]


def _branches(t: Tracer, cond: Tensor, graphs: Sequence[Graph], taken: AnyDim | None) -> list[tuple[Block, list[Any]]]:
    """Record both branches. If shapes do not fit in one of them, no run may take it. taken: the condition, if known"""
    made: list[tuple[Block, list[Any]]] = []
    refused: list[tuple[int, ShapeError]] = []
    mark = len(t.fresh)
    for n, graph in enumerate(graphs):
        first = len(t.guards)
        try:
            made.append(_branch(t, cond, graph, taken, n == 0))
        except (ShapeError, InvalidModel) as e:
            if not t.depth:
                t.static(cond)
            if not t.depth or isinstance(e, InvalidModel):
                raise
            refused.append((n, e))
            t.guards[first:] = []
    for n, error in refused:
        inner, other = set(t.fresh[mark:]), list[Any](made[0][1] if made else [None])
        if not all(isinstance(x, Tensor) and not any(sh.symbols(d) & inner for d in x.shape) for x in other):
            raise error
        with t.sub_block() as block:
            values = [t.compute(x.shape, lambda *_, x=x: const(0, x.dtype), x.dtype) for x in other]
        made.insert(n, (block, values))
        holds = _read(t, cond) if taken is None else taken
        t.guards.append((sh.select(holds, n, 1 - n), error.message, error.node))
    return made


def _branch(t: Tracer, cond: Tensor, graph: Graph, taken: AnyDim | None, side: bool) -> tuple[Block, list[Any]]:
    """Record one branch. Its requirements on shapes hold only if it is taken. If the condition depends on shapes too,
    they become conditional, else the session specialises on the condition. In a step of a loop it is read if it must
    be. taken: the condition, if known; side: its value for this branch"""
    before, mark = len(t.guards), len(t.fresh)
    with t.sub_block() as block:
        values = t.subgraph(graph, [])
    own = set(t.fresh[mark:])  # bound only if the branch is taken, so their requirements are checked only then
    required = [g for g in t.guards[before:] if not _are_own(g, own)]
    t.guards[before:] = [g for g in t.guards[before:] if _are_own(g, own)]
    if taken is None and t.depth:
        # Kernels check indices, too. For sizes that do not fit, the session compiles a Program that reads conditions
        fixed = [g for g in required if all(s.is_extent for s in sh.symbols(g[0]))]
        t.guards += [(*g[:3], "") for g in fixed if g[1] != EMPTY_AXIS]
        required = [g for g in required if g not in fixed and g[1] != EMPTY_AXIS]
    if required and taken is None:
        taken = _read(t, cond) if t.depth else int(t.static(cond)[0])
    if taken is not None:
        holds = taken if side else 1 - taken
        t.guards += [(sh.select(holds, condition, 1), *rest) for condition, *rest in required]  # type: ignore[misc]
    return block, values


def _are_own(guard: Guard, own: set[Symbol]) -> bool:
    """Whether a requirement depends on these symbols alone."""
    return isinstance(guard[0], Dim) and sh.symbols(guard[0]) <= own


def _read(t: Tracer, x: Tensor) -> AnyDim:
    """The value of a condition, 0 or 1, in a run."""
    return t.ints(t.compute((), lambda: cast(t.reshape(x, ()).at(), I64), I64))[0]


def _merge(t: Tracer, first: list[Any], second: list[Any], inner: set[Symbol]) -> tuple[list[list[AnyDim]], Binds]:
    """Keeps dims that are equal and defined outside the block; others become symbols, bound when the values exist."""
    binds: list[tuple[int, int, Symbol]] = []
    shapes: list[list[AnyDim]] = []
    for n, (one, two) in enumerate(zip(first, second, strict=True)):
        shapes.append([])
        for axis, (a, b) in enumerate(zip(one, two, strict=True)):
            if a != b or sh.symbols(a) & inner:
                binds.append((n, axis, t.symbol()))
                a = sh.dim_of(binds[-1][2])
            shapes[-1].append(a)
    return shapes, tuple(binds)


def block_outputs(t: Tracer, block: Block, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs of a block. Each must be computed in the block and have its own memory; other values are copied."""
    made = {id(k) for k in block.kernels}
    seen: set[int] = set()
    out: list[Tensor] = []
    outer, t.block = t.block, block
    try:
        for x in values:
            owner = root(x)
            if id(x.kernel) not in made or id(owner.kernel) not in made or owner.uid in seen:
                x = owner = t.compute(x.shape, lambda *i, x=x: x.at(*i), x.dtype)
            seen.add(owner.uid)
            out.append(x)
    finally:
        t.block = outer
    return tuple(out)


# ── Loop ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@op("Loop", since=1)
def loop(t: Tracer, trip: Tensor | None, cond: Tensor | None = None, *carried: Any, body: Graph) -> Sequence[Any]:
    """for n in range(trip): if not cond: break; cond, *carried, *scanned = body(n, cond, *carried). The scanned values
    of all iterations are stacked along a new first axis.
    Spec: https://onnx.ai/onnx/operators/onnx__Loop.html"""
    if len(body.outputs) == 1 + len(carried) and (_known(t, trip) == 0 or _known(t, cond) is False):
        return carried
    first = body.inputs[0].type if body.inputs else None
    rank = len(getattr(first, "shape", None) or ())

    def step(n: Tensor, values: list[Any]) -> tuple[Any, list[Any], list[Any]]:
        n = t.reshape(n, (1,) * rank)
        condition, *results = t.subgraph(body, [n, t.scalar(True, BOOL), *values])  # true whenever the body runs
        return condition, results[: len(carried)], results[len(carried) :]

    return iterate(t, trip, cond, list(carried), step)


def iterate(
    t: Tracer, trip: Tensor | None, cond: Tensor | None, carried: list[Any], step: Step, count: AnyDim | None = None
) -> list[Any]:
    """Carried and stacked values of a loop. `count` is the number of iterations if it is a dim (then trip and cond are
    None)."""
    times = _known(t, trip) if count is None else count
    start = True if cond is None else _known(t, cond)
    if start is False:
        times = 0
    if not all(isinstance(x, Tensor) for x in carried):
        if (found := with_lists(t, iterate, trip, cond, carried, step, times)) is not None:
            return found
        times = t.static(trip)[0] if trip is not None and times != 0 else times
        return unroll(t, times if isinstance(times, int) else None, cond, carried, step)
    if isinstance(times, int) and times <= 1:
        return unroll(t, times, cond, carried, step)
    if count is not None:
        trip = t.reshape(t.dims([count]), ())
    guards, mark = len(t.guards), len(t.fresh)
    try:
        body, enters, endless = _body(t, carried, step, guards)
    except NeedsValue as e:
        if e.name or e.symbols:
            raise
        body, enters, endless = None, (), False  # the body needs a constant that depends on the iteration
    if body is None or (enters and endless and start is True and isinstance(times, int) and times <= UNROLL):
        del t.guards[guards:]
        return unroll(t, t.static(trip)[0] if trip is not None else None, cond, carried, step)
    inner = set(t.fresh[mark:])
    has_stacks = len(body.outputs) > 1 + len(carried)  # without them a loop may take more steps than kernels can count
    if times is None and trip is not None and endless and start is True and not enters and not t.depth and has_stacks:
        times = t.ints(trip)[0]
    kernel = Loop(trip, None if start is True else cond, tuple(carried), body, enters, (), times)
    _require_if_it_runs(t, kernel, guards, inner)
    kernel.is_counted = endless and start is True
    return _record(t, kernel, inner)


def _require_if_it_runs(t: Tracer, kernel: Loop, first: int, own: set[Symbol]) -> None:
    """Make the guards from number `first` on, which a loop's body has added, hold for runs that enter the body. own:
    symbols that the body binds, so that guards with these alone are checked only then"""
    trip, times = kernel.trip, kernel.limit
    runs: list[AnyDim] = [] if times is None else [sh.compare("lt", 0, times)]
    if t.depth and (times is None or kernel.condition is not None):  # kernels check indices, too
        t.guards[first:] = [g for g in t.guards[first:] if g[1] != EMPTY_AXIS]
    required = [n for n, g in enumerate(t.guards) if n >= first and not _are_own(g, own)]
    if required and not t.depth:
        if times is None and trip is not None:
            runs.append(_read(t, t.compute((), lambda: const(0, I64) < t.reshape(trip, ()).at(), BOOL)))
        if kernel.condition is not None:
            runs.append(_read(t, kernel.condition))
    for n in required if runs else ():
        condition, *rest = t.guards[n]
        for holds in runs:
            condition = sh.select(holds, condition, 1)
        t.guards[n] = (condition, *rest)  # type: ignore[assignment]


def _known(t: Tracer, x: Tensor | None) -> Any:
    values = None if x is None else t.known(x)
    return values[0] if values else None


def _body(t: Tracer, carried: list[Tensor], step: Step, guards: int) -> tuple[Block | None, Binds, bool]:
    """Trace the body until the shapes at its entry equal those at its exit: a dim that changes becomes a symbol that
    is bound at entry. Returns the block (None if a rank changes), those symbols, and whether the condition is always
    true."""
    shapes = [list(x.shape) for x in carried]
    enters: list[tuple[int, int, Symbol]] = []
    while True:
        del t.guards[guards:]
        with t.sub_block() as block:
            n, going = t.leaf("block", (), I64), t.leaf("block", (), BOOL)
            inputs = [t.leaf("block", s, x.dtype) for s, x in zip(shapes, carried, strict=True)]
            condition, results, scanned = step(n, list(inputs))
            endless = condition is None or (t.known(condition) or [0])[0] is True
            condition = t.scalar(True, BOOL) if condition is None else t.reshape(condition, ())
        if not all(isinstance(x, Tensor) for x in [*results, *scanned]):
            return None, (), False
        if any(a.rank != b.rank for a, b in zip(results, inputs, strict=True)):
            return None, (), False
        changed = False
        for k, (x, before) in enumerate(zip(results, inputs, strict=True)):
            if x.dtype is not before.dtype:
                raise t.shape_error(
                    f"carried value {k} has the type {before.dtype}, but the body returns {x.dtype} for it"
                )
            for axis, (a, b) in enumerate(zip(x.shape, before.shape, strict=True)):
                if a != b and not any(e[:2] == (k + 2, axis) for e in enters):
                    enters.append((k + 2, axis, t.symbol()))
                    shapes[k][axis] = sh.dim_of(enters[-1][2])
                    changed = True
        if not changed:
            block.inputs = (n, going, *inputs)
            block.outputs = block_outputs(t, block, [condition, *results, *scanned])
            return block, tuple(enters), endless


def _record(t: Tracer, kernel: Loop, inner: set[Symbol]) -> list[Any]:
    """Add the Loop kernel. Dims that the body defines are undefined outside it, so the results bind new symbols."""
    results, carried = kernel.body.outputs[1:], kernel.carried
    count = kernel.limit if kernel.is_counted else None
    first = [list(x.shape) for x in carried]
    last = [list(x.shape) for x in results[: len(carried)]]
    for position, axis, _ in kernel.enters:
        last[position - 2][axis] = -1  # differs from any dim, so that _merge makes a symbol
    stacked = [[-1 if count is None else sh.maximum(count, 0), *x.shape] for x in results[len(carried) :]]
    second = [[-2 if count is None else s[0], *s[1:]] for s in stacked]
    shapes, kernel.binds = _merge(t, first + stacked, last + second, inner)
    kernel.trip = None if kernel.trip is None else t.reshape(kernel.trip, ())
    kernel.condition = None if kernel.condition is None else t.reshape(kernel.condition, ())
    return list(t.add(kernel, [(s, x.dtype) for s, x in zip(shapes, results, strict=True)]))


def unroll(t: Tracer, times: int | None, cond: Tensor | None, carried: list[Any], step: Step) -> list[Any]:
    """Traces the iterations one by one. Before each, the condition must be known at compile time."""
    going = bool(t.static(cond)[0]) if cond is not None and times != 0 else True
    stacks: list[list[Tensor]] = []
    n = 0
    while going and (times is None or n < times):
        if n >= UNROLL_VALUES:
            raise t.unsupported(f"a loop over sequences has more than {UNROLL_VALUES} iterations")
        condition, carried, scanned = step(t.scalar(n, I64), carried)
        stacks = stacks or [[] for _ in scanned]
        for stack, x in zip(stacks, scanned, strict=True):
            stack.append(x)
        n += 1
        more = times is None or n < times
        if more and condition is not None:
            going = _decided(t, condition)
    if n == 0:
        return [*carried, *_empty(t, carried, step)]
    return [*carried, *[t.concat([t.unsqueeze(x, [0]) for x in stack], 0) for stack in stacks]]


def _decided(t: Tracer, condition: Tensor) -> bool:
    try:
        return bool(t.static(condition)[0])
    except NeedsValue:
        text = "the condition of a loop that must be written out is known only at run time"
        raise t.unsupported(text, "keep shapes and ranks of carried values, and carry no sequences") from None


def _empty(t: Tracer, carried: list[Any], step: Step) -> list[Tensor]:
    """Empty stacks, for a loop without iterations; the body is traced for its shapes only."""
    guards, mark = len(t.guards), len(t.fresh)
    with t.sub_block():
        _, _, scanned = step(t.leaf("block", (), I64), carried)
    del t.guards[guards:]
    inner = set(t.fresh[mark:])
    return [t.constant([], x.dtype, (0, *[0 if sh.symbols(d) & inner else d for d in x.shape])) for x in scanned]
