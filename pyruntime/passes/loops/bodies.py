"""The body of a loop as maps, reductions and procedures, in the form that a procedure of all steps needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyruntime.codegen.linear_memory import LOOP_BYTES
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, C64, C128, I32, STRING
from pyruntime.ir.expr import Expr, affine, cast, const, dim, index, rem, rewrite, select, substitute, walk
from pyruntime.ir.kernel import Alias, Block, Call, If, Kernel, Leaf, Loop, Loops, Map, Reduce, Tensor, updates_state
from pyruntime.passes.loads import Joined, in_base
from pyruntime.passes.loops.divided_axes import divided_results
from pyruntime.passes.loops.procedures import changed, with_own_bases, work
from pyruntime.passes.loops.products import is_product
from pyruntime.passes.loops.reductions import plain_reductions

Dense = Map | Reduce  # with an expression for each element
Member = Dense | Loops

MOST_MEMBERS = 96  # a function of more kernels would compile slowly
# Nanoseconds (docs/design/compiler.md#whole-loops). A step costs the executor STEP, and KERNEL for each kernel besides
# its work. Routines have packed panels, so each term of a sum takes less than in loops, by TERM, by WINDOW_TERM in a
# window, or by VECTOR_TERM if a vector is multiplied by a matrix from outside the loop. A sum in loops takes as long as
# SUM terms more.
STEP, KERNEL, TERM, WINDOW_TERM, VECTOR_TERM, SUM = 6500, 450, 0.075, 0.15, 0.027, 32
# If WebAssembly repeats the steps, each costs REPEATED, a kernel REPEATED_KERNEL, and a batch of steps at most BATCH.
REPEATED, REPEATED_KERNEL, BATCH = 200, 150, 100_000
UNKNOWN_STEPS = 64  # of a loop whose limit no dim gives, in estimates
CHEAP = 4  # operations of a value that each of its readers computes again
CHEAP_OPS = frozenset("at const dim index add sub mul cast max min neg select".split())


Conditions = tuple[tuple[Tensor, bool], ...]
Branches = dict[int, Conditions]


class StepByStep(Exception):
    """A loop cannot become one procedure; the text is the reason."""


@dataclass(slots=True)
class Body:
    """The kernels on which the results of a step depend, in order, and those results. Loads name results of kernels,
    never reshapes. Cheap values that depend on the number of the step alone, such as slices of scanned inputs, are
    parts of the expressions that use them. going: the condition, None if it always holds; branches: by uid of a
    member's first result, the branches of Ifs in which it is, as conditions and the values that these have then;
    products: uids of sums of products that machine code computes, each in a nest of its own"""

    members: list[Member]
    results: list[Tensor]
    going: Tensor | None
    branches: Branches
    products: frozenset[int]

    def __post_init__(self) -> None:
        if len(self.members) > MOST_MEMBERS:
            raise StepByStep(f"its body has {len(self.members)} kernels, more than {MOST_MEMBERS}")


def body_of(loop: Loop, most_work: float, may_repeat: bool, products: bool) -> Body:
    """most_work: iterations of a procedure in the body, which runs without threads; may_repeat: whether WebAssembly can
    repeat the steps, if they have no branches; products: see `CodeWriter`. Errors: StepByStep if a kernel cannot be
    part of a procedure, or if the procedure would be slower."""
    block = loop.body
    outputs = block.outputs[1:] if loop.is_counted else block.outputs
    branches: Branches = {}
    members, aliases, lost, calls = _members(block, outputs, branches, products)
    repeats = may_repeat and not any(isinstance(k, If) for k in block.kernels)
    if lost.total() > _saved(loop, calls, repeats):
        raise StepByStep(f'its body calls the routine "{lost.most_common(1)[0][0]}" for large products')
    for m in members:
        if isinstance(m, Loops) and (updates_state(m) or work(m) > most_work):
            raise StepByStep(f'its body has the procedure "{m.name}", which threads run faster')
    results: list[Tensor] = []
    for t in outputs:
        if t.uid in aliases or any(t is other for other in results):  # each result needs memory of its own
            copy = Map(_unaliased(aliases, t.at(*[index(n) for n in range(t.rank)])))
            members.append(copy.making(t.shape, t.dtype))
            t = copy.out
        results.append(t)
    for t in [t for m in members for t in (*m.outputs, *m.inputs)]:
        if t.dtype in (STRING, C64, C128):
            raise StepByStep(f"its body computes with {t.dtype} tensors")
    varying = {t.uid for t in block.inputs[2:]}
    kept = {t.uid for t in results} | {t.uid for m in members if isinstance(m, Loops) for t in m.bases}
    kept |= {t.uid for found in branches.values() for t, _ in found}
    members = _without_cheap(members, varying, kept, branches)
    going = None if loop.is_counted else results.pop(0)
    inside = _inside(block, members) if products else set()
    sums = frozenset(m.out.uid for m in members if products and is_product(m, inside))
    return Body(members, results, going, branches, sums)


def _members(
    block: Block, outputs: Sequence[Tensor], branches: Branches, products: bool
) -> tuple[list[Member], set[int], Counter[str], int]:  # fmt: skip
    """The members that the outputs need, the uids of tensors that are reshapes or views, by how many nanoseconds loops
    take longer than routines, and the number of kernels. branches: see `Body`; is filled. products: see `CodeWriter`"""
    flat = _flat(block.kernels, branches, ())
    inside = _inside(block, flat)
    aliases = {k.out.uid for k in flat if isinstance(k, Alias)}
    views = [(v.tensor, k.operand(n)) for k in flat if isinstance(k, Call) for n, v in k.strided.items()]
    aliases.update(*[_between(*found) for found in views])
    divided = divided_results(flat, outputs, partial(_unaliased, aliases))
    aliases -= {k.out.uid for k in divided.values()}
    needed = {t.uid for t in outputs}
    members: list[Member] = []
    lost = Counter[str]()
    count = 0
    for kernel in reversed(flat):
        if not kernel.outputs:
            raise StepByStep(f"its body has a {type(kernel).__name__} kernel")
        if needed.isdisjoint([t.uid for t in kernel.outputs]):
            continue
        count += not isinstance(kernel, (Alias, Leaf))
        call, loss = kernel, 0
        if isinstance(kernel, Call):
            loss = _lost(kernel, flat)
            kernel = kernel.definition()
        if isinstance(kernel, (Map, Reduce, Loops)):
            member: Member = divided.get(kernel.out.uid, kernel)
            parts: Sequence[Member] = [member]
            if isinstance(member, Loops):
                parts = with_own_bases(member, aliases)
            elif isinstance(member, Reduce):
                parts = plain_reductions(member, products)
            made = [_rebuilt(m, partial(_unaliased, aliases)) for m in reversed(parts)]
            if kernel.out.uid in branches:
                branches.update({m.out.uid: branches[kernel.out.uid] for m in parts})
            members += made
            if isinstance(call, Call) and not (products and any(is_product(m, inside) for m in made)):
                lost[call.routine] += loss
            needed.update(t.uid for m in made for t in m.inputs)
            needed.update(t.uid for t, _ in branches.get(kernel.out.uid, ()))
        elif not isinstance(kernel, (Alias, Leaf)):
            raise StepByStep(f"its body has a {type(kernel).__name__} kernel")
        needed.update(t.uid for t in kernel.inputs)
    return members[::-1], aliases, lost, count


def _inside(block: Block, kernels: Sequence[Kernel]) -> set[int]:
    """The uids of the tensors of a loop's body."""
    return {t.uid for t in (*block.inputs, *[t for k in kernels for t in k.outputs])}


# ── branches ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _flat(kernels: Sequence[Kernel], branches: Branches, outer: Conditions) -> list[Kernel]:
    """The kernels with both branches of each If, and maps that select their results. outer: the branches around these
    kernels"""
    out: list[Kernel] = []
    for kernel in kernels:
        if not isinstance(kernel, If):
            out.append(kernel)
            if outer and kernel.outputs:
                branches[kernel.outputs[0].uid] = outer
            continue
        if kernel.binds:
            raise StepByStep("the branches of an If give different shapes")
        decides = Map(kernel.condition.at(*[0] * kernel.condition.rank)).making((), BOOL, kernel.node)
        out += _flat([decides], branches, outer)
        for branch, value in ((kernel.then, True), (kernel.orelse, False)):
            inner = outer if all(map(_may_always_run, branch.kernels)) else (*outer, (decides.out, value))
            out += _flat(branch.kernels, branches, inner)
        condition = decides.out.at()
        for t, a, b in zip(kernel.outputs, kernel.then.outputs, kernel.orelse.outputs, strict=True):
            at = [index(n) for n in range(t.rank)]
            chosen = Map(select(condition, a.at(*at), b.at(*at)))
            chosen.replaces(kernel, (t,))
            out += _flat([chosen], branches, outer)
    return out


def _may_always_run(k: Kernel) -> bool:
    """Whether a kernel of a branch may run although the branch is not taken: it takes little time, and reads nothing
    out of bounds."""
    if isinstance(k, If):
        return all(_may_always_run(inner) for block in k.blocks for inner in block.kernels)
    if isinstance(k, (Alias, Leaf)):
        return True
    if not isinstance(k, Map) or any(x.op == "checked" for x in walk(k.expr)):
        return False
    loads = [x for x in walk(k.expr) if x.op == "at"]
    return all(_is_inside(c, k, d) for x in loads for c, d in zip(x.args, x.value.shape, strict=True))


def _is_inside(coordinate: Expr, k: Map, extent: sh.AnyDim) -> bool:
    """Whether a coordinate is surely in [0, extent)."""
    if coordinate.op == "index":
        return k.out.shape[coordinate.value] == extent
    form = affine(coordinate)
    if form is None or not isinstance(form[0], int) or not isinstance(extent, int):
        return False
    low = high = form[0]
    for (kind, axis), step in form[1].items():
        size = k.out.shape[axis] if kind == "index" else None
        if not isinstance(step, int) or not isinstance(size, int):
            return False
        low, high = low + min(step * (size - 1), 0), high + max(step * (size - 1), 0)
    return 0 <= low and high < extent


# ── routines ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lost(call: Call, body: Sequence[Kernel]) -> int:
    """By how many nanoseconds loops take longer than the call. body: the kernels of the loop. Errors: StepByStep for a
    routine that is no sum, or has packed operands"""
    meaning = call.meaning
    if call.packed or not isinstance(meaning, Reduce):
        raise StepByStep(f'its body calls the routine "{call.routine}"')
    sums, terms = _size(meaning.out.shape), _size(meaning.extents)
    once = [t for t in (meaning.out, *meaning.inputs) if sums * terms < 2 * _size(t.shape)]
    if any(isinstance(t.kernel, Leaf) and t.kernel.kind == "block" or t.kernel in body for t in once):
        return 0  # each element of what the loop computes is used once: memory is the limit
    is_window = sum(d != 1 for d in meaning.extents) > 1
    return int(sums * (terms + SUM) * (VECTOR_TERM if once else WINDOW_TERM if is_window else TERM))


def _saved(loop: Loop, kernels: int, repeats: bool) -> float:
    """How many nanoseconds a step costs besides its work, if the loop stays. repeats: whether by WebAssembly"""
    saved = STEP + KERNEL * kernels
    if not repeats:
        return saved
    rows = loop.body.outputs[1 + len(loop.carried) :]
    row = sum(sh.estimate(sh.size(t.shape)) * t.dtype.size for t in rows)
    steps = UNKNOWN_STEPS if loop.limit is None else sh.estimate(loop.limit)
    batch = max(min(steps, LOOP_BYTES // max(row, 1)), 1)
    return min(saved, REPEATED + REPEATED_KERNEL * kernels + BATCH / batch)


def _size(shape: Sequence[sh.AnyDim]) -> int:
    """The number of elements. An extent that is not known is likely a batch, so it counts as 2."""
    size = sh.size(shape)
    return sh.evaluate(size, dict.fromkeys(sh.symbols(size), 2))


def _between(t: Tensor, base: Tensor) -> set[int]:
    """The views and reshapes between a tensor and the one that a routine reads in its place."""
    found: set[int] = set()
    while t is not base and isinstance(t.kernel, (Map, Alias)):
        found.add(t.uid)
        t = t.kernel.inputs[0]
    return found


# ── expressions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def work_of(m: Member) -> float:
    """The estimated number of iterations of its loops."""
    return work(m) if isinstance(m, Loops) else float(sh.estimate(sh.size(extents(m))))


def extents(m: Dense) -> tuple[sh.AnyDim, ...]:
    """Those of its result's axes, then those of its reduction axes."""
    return (*m.out.shape, *(m.extents if isinstance(m, Reduce) else ()))


def _rebuilt(m: Member, change: Callable[[Expr], Expr]) -> Member:
    """The member with other expressions, for the same result."""
    if isinstance(m, Loops):
        return changed(m, change)
    if isinstance(m, Map):
        made: Member = Map(change(m.expr))
    else:
        made = Reduce(m.op, m.extents, change(m.expr), None if m.epilogue is None else change(m.epilogue))
    made.replaces(m, m.outputs)
    return made


def _unaliased(aliases: set[int], e: Expr, joined: Joined | None = None) -> Expr:
    """The expression with loads of the tensors of which views and reshapes are made. joined: see `in_base`"""

    def visit(x: Expr) -> Expr | None:
        if x.op != "at" or x.value.uid not in aliases:
            return None
        while x.value.uid in aliases:
            if isinstance(x.value.kernel, Map):
                return _unaliased(aliases, substitute(x.value.kernel.expr, x.args), joined)
            base = in_base(x, {} if joined is None else joined)
            x = _by_offset(x) if base is None else base
        return x

    return rewrite(e, visit)


def _by_offset(load: Expr) -> Expr:
    """The load of a reshape as a load of its base, by the element's row-major number."""
    base: Tensor = load.value.kernel.base
    rest = const(0, I32)
    for c, stride in zip(load.args, sh.strides(load.value.shape), strict=True):
        rest = rest + c * dim(stride)
    coords: list[Expr] = []
    for d in reversed(base.shape[1:]):
        coords.insert(0, rem(rest, dim(d)))
        rest = rest / dim(d)
    return base.at(*([rest, *coords] if base.rank else []))


def _without_cheap(
    members: list[Member], carried: set[int], kept: set[int], branches: Branches
) -> list[Member]:  # fmt: skip
    """The members without cheap maps that depend on no carried value: their readers compute them. Those in branches
    stay, because their readers may be elsewhere. Other members that depend on no carried value come first, so that
    they do not part those that can share loops. carried: uids; kept: uids of results that are stored in any case"""
    inlined: dict[int, Expr] = {}
    varying = set(carried)
    first: list[Member] = []
    out: list[Member] = []

    def visit(x: Expr) -> Expr | None:
        if x.op != "at" or x.value.uid not in inlined:
            return None
        return cast(substitute(inlined[x.value.uid], x.args), x.dtype)

    for old in members:
        m = _rebuilt(old, lambda e: rewrite(e, visit))
        is_free = varying.isdisjoint([t.uid for t in m.inputs])
        is_free = is_free and m.out.uid not in branches
        if is_free and isinstance(m, Map) and m.out.dtype is m.expr.dtype and _is_cheap(m.expr):
            inlined[m.out.uid] = m.expr
            if m.out.uid not in kept:
                continue
        if is_free:
            first.append(m)
        else:
            varying.update(t.uid for t in m.outputs)
            out.append(m)
    return [*first, *out]


def _is_cheap(e: Expr) -> bool:
    nodes = walk(e)
    operations = sum(1 for x in nodes if x.args and x.op != "at" and x.dtype is not I32)
    return e.op == "at" or (operations <= CHEAP and all(x.op in CHEAP_OPS or x.dtype is I32 for x in nodes))
