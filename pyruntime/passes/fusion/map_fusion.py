"""Map fusion: inlines the expression of a map where its result is read.

Views (maps that only load) are always inlined. A map that computes is inlined into its only consumer, if that reads
every element once, so that nothing is computed twice. A map that dequantises is inlined into each of its readers, and
on GPUs a product of two numbers, because a dispatch takes longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pyruntime.codegen.provider import Routine
from pyruntime.ir.blocks import all_kernels, readers_of
from pyruntime.ir.dtype import F32, I8, U8
from pyruntime.ir.expr import Expr, cast, is_view, rewrite, rewrite_loads, substitute, walk
from pyruntime.ir.kernel import Block, Call, For, Kernel, Loops, Map, Reduce, Stmt, Store, Tensor, When
from pyruntime.ir.shape import Shape
from pyruntime.ir.statements import nodes, rebuild
from pyruntime.mathlib import depth

SCALAR = frozenset("at cast const mul add sub".split())
MAX_INPUTS = 6  # read by a fused kernel; a GPU binds at least eight buffers, with its result and the faults
MAX_NODES = 96  # nodes of a fused expression; larger ones spill registers and repeat shared work
MAX_DEPTH = 250  # nested operations, with functions written out: printing recurses, and Python has 1,000 frames


def fuse(block: Block, outputs: Iterable[Tensor], routines: Mapping[str, Routine] | None = None) -> None:
    """Inline maps in this block and its inner blocks. The pass dead_code removes the producers that become dead."""
    keep = {t.uid for t in outputs}
    _block(block, readers_of(block, (), _reads), keep, routines or {})


def fuse_scalars(block: Block) -> None:
    """Inline maps that multiply or add two numbers, such as scales, into the maps and epilogues that read these. Then
    `fuse` finds only larger ones."""
    for kernel in all_kernels(block):
        if len(kernel.inputs) >= MAX_INPUTS:
            continue
        if isinstance(kernel, Map):
            kernel.expr = rewrite(kernel.expr, _scalar)
        elif isinstance(kernel, Reduce) and kernel.epilogue is not None:
            kernel.epilogue = rewrite(kernel.epilogue, _scalar)


def _scalar(e: Expr) -> Expr | None:
    if e.op != "at" or not isinstance(e.value.kernel, Map) or any(d != 1 for d in e.value.shape):
        return None
    nodes = walk(e.value.kernel.expr)
    few = sum(x.op == "at" for x in nodes) <= 2 and {x.op for x in nodes} <= SCALAR
    return cast(substitute(e.value.kernel.expr, e.args), e.dtype) if few else None


def _reads(kernel: Kernel) -> Iterable[int]:
    """Uids of the tensors that a kernel reads, once for each distinct load."""
    loads = _loads(kernel)
    return loads.values() if loads is not None else [t.uid for t in kernel.inputs]


def _loads(kernel: Kernel) -> dict[int, int] | None:
    """Distinct `at` nodes of a kernel -> uid of their tensor."""
    if not isinstance(kernel, (Map, Reduce)):
        return None
    more = kernel.epilogue if isinstance(kernel, Reduce) else None
    exprs = [kernel.expr] if more is None else [kernel.expr, more]
    keys = {x.key(): x for e in exprs for x in walk(e) if x.op == "at"}
    return {n: x.value.uid for n, x in enumerate(keys.values())}


def _block(block: Block, uses: Counter[int], keep: set[int], routines: Mapping[str, Routine]) -> None:
    for kernel in block.kernels:
        if isinstance(kernel, Map):
            kernel.expr = cast(_inline(kernel.expr, kernel.out.shape, uses, keep), kernel.out.dtype)
        elif isinstance(kernel, Reduce):
            kernel.expr = _inline(kernel.expr, (*kernel.out.shape, *kernel.extents), uses, keep)
            if kernel.epilogue is not None:
                kernel.epilogue = cast(_inline(kernel.epilogue, kernel.out.shape, uses, keep), kernel.out.dtype)
        elif isinstance(kernel, Call):
            _call(kernel, uses, keep, routines)
        elif isinstance(kernel, Loops):
            _loops(kernel, uses, keep)
        for inner in kernel.blocks:
            _block(inner, uses, keep | {t.uid for t in inner.outputs}, routines)


def _call(kernel: Call, uses: Counter[int], keep: set[int], routines: Mapping[str, Routine]) -> None:
    """Inline into an epilogue, if the routine takes the result."""
    if kernel.epilogue is None:
        return
    e = cast(_inline(kernel.epilogue, kernel.out.shape, uses, keep), kernel.out.dtype)
    order = kernel.order or tuple(range(kernel.out.rank))
    if e is not kernel.epilogue and routines[kernel.routine].fuses(kernel, kernel.out, order, e):
        kernel.epilogue = e


def _inline(e: Expr, extents: Shape, uses: Counter[int], keep: set[int]) -> Expr:
    if not any([isinstance(t.kernel, Map) for t in e.tensors()]):
        return e
    axes = {n for n, d in enumerate(extents) if d != 1}
    budget = [MAX_NODES - len(walk(e))]

    def visit(x: Expr) -> Expr | None:
        producer = x.value.kernel
        if not isinstance(producer, Map):
            return None
        view = is_view(producer.expr)
        if not view:
            alone = uses[x.value.uid] == 1 and x.value.uid not in keep
            if not _reads_once(x, axes) or not (alone or _dequantises(producer.expr)):
                return None
            budget[0] -= len(walk(producer.expr))
            if budget[0] < 0 or depth(e) + depth(producer.expr) > MAX_DEPTH:
                return None
        return substitute(producer.expr, x.args)

    return rewrite_loads(e, visit)


_DEQUANTISING = frozenset("mul sub cast at const index dim add".split())  # additions are in coordinates of views


def _dequantises(e: Expr) -> bool:
    """Whether e is (code - zero point) · scale of an 8-bit code: recomputing it is cheaper than storing float32."""
    nodes = walk(e)
    loads = [x for x in nodes if x.op == "at"]
    codes = [x for x in loads if x.args]
    plain = e.op == "mul" and e.dtype is F32 and {x.op for x in nodes} <= _DEQUANTISING
    return plain and len(codes) == 1 and codes[0].dtype in (I8, U8) and len(loads) <= 3


def _reads_once(at: Expr, axes: set[int]) -> bool:
    """Whether a load in a nest of these axes reads no element twice: each coordinate follows its own axis."""
    found: set[int] = set()
    for c in at.args:
        along = {y.value for y in walk(c) if y.op == "index"}
        if len(along) > 1 or not found.isdisjoint(along):
            return False
        found |= along
    return axes <= found


def _loops(kernel: Loops, uses: Counter[int], keep: set[int]) -> None:
    """Inline views into a procedure, and maps that it alone reads if each of its work units stores one element."""
    changed = False
    budget = MAX_NODES if _appends_elements(kernel) else 0

    def visit(x: Expr) -> Expr | None:
        nonlocal changed, budget
        if not isinstance(x.value.kernel, Map):
            return None
        producer = x.value.kernel.expr
        if not is_view(producer):
            if uses[x.value.uid] != 1 or x.value.uid in keep or len(walk(producer)) > budget:
                return None
            budget -= len(walk(producer))
        changed = True
        return substitute(producer, x.args)

    def inner(body: list[Stmt]) -> list[Stmt]:
        return [rebuild(s, lambda e: rewrite_loads(e, visit), inner) for s in body]

    kernel.body = inner(kernel.body)
    if changed:
        made = {t.uid for t in (*kernel.outputs, *kernel.scratch)}
        found = {x.value.uid: x.value for x in nodes(kernel.body) if x.op == "at" and x.value.uid not in made}
        kept = {t.uid: t for t in kernel.bases}  # the procedure keeps their other elements
        kernel.args = tuple((kept | found).values())


def _appends_elements(kernel: Loops) -> bool:
    """Whether a procedure only stores the element of each work unit in memory that it changes in place."""
    outer = kernel.body[0] if len(kernel.body) == 1 else None
    if not kernel.bases or not isinstance(outer, For) or outer.kind != "parallel" or len(outer.body) != 1:
        return False
    inner = outer.body[0]
    if isinstance(inner, When) and not inner.orelse and len(inner.then) == 1:
        inner = inner.then[0]
    return isinstance(inner, Store)
