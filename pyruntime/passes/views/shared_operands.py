"""Products of keys and values read them where they lie: once for all heads that share them, and unscaled.

Exporters write attention out: keys and values are repeated for the heads that share them (Unsqueeze, Expand, Reshape),
and keys are scaled before the product, as queries are. Both were copies of the whole cache in each run. Rows of such
heads become rows of one product, and the few queries are scaled by both. For the CPU; see `reshaped_views`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir.expr import Expr, binary, const, index, is_view, rewrite, walk
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Leaf, Map, Reduce, Tensor
from pyruntime.ir.shape import Shape
from pyruntime.passes.fusion.map_fusion import substitute
from pyruntime.passes.views.reshaped_views import Joined, in_base


@dataclass(slots=True)
class _Source:
    """What a right operand is: load · factor. The load's coordinates are of the operand's indices, but for the last
    batch axis, of which it has one element for each `share`."""

    load: Expr
    factor: Expr | None
    share: int


def share_operands(block: Block) -> None:
    """In this block and its inner blocks."""
    for kernel in list(block.kernels):
        if isinstance(kernel, Call) and kernel.routine == "matmul":
            at = block.kernels.index(kernel)
            block.kernels[at : at + 1] = _product(kernel)
        for inner in kernel.blocks:
            share_operands(inner)


def _product(call: Call) -> list[Kernel]:
    a, b = call.args
    assert a is not None and b is not None
    if a is b or call.strided or not call.out.dtype.is_float or not a.rank == b.rank >= 3:
        return [call]
    found = _source(b)
    alike = a.shape[:-2] == b.shape[:-2] == call.out.shape[:-2]
    if found is None or (found.factor is None and found.share == 1) or not (alike or found.share == 1):
        return [call]
    return _rewritten(call, a, b, found)


# ── what an operand is ────────────────────────────────────────────────────────────────────────────────────────────


def _source(b: Tensor) -> _Source | None:
    """None of what never changes: that is made once."""
    load, factor, joined = b.at(*[index(n) for n in range(b.rank)]), None, Joined()
    while True:
        t, kernel = load.value, load.value.kernel
        if isinstance(kernel, Alias):
            place = in_base(load, joined)
            if place is None:
                break
            load = place
        elif isinstance(kernel, Map):
            inner, scale = _scaled(kernel.expr, t)
            if inner is None or (scale is not None and factor is not None):
                break
            load, factor = substitute(inner, load.args), scale if factor is None else factor
        else:
            break
    if isinstance(kernel, Leaf) and kernel.kind != "feed":
        return None
    share = _share(load, b)
    load = rewrite(load, lambda x: x.args[0] if _is_head(x, b.rank - 3) else None) if share > 1 else load
    return _Source(load, factor, share) if is_view(load) else None


def _scaled(e: Expr, t: Tensor) -> tuple[Expr | None, Expr | None]:
    """The load, and the number by which all that is loaded is multiplied, if an expression of t's elements is that."""
    if e.op in ("mul", "div") and e.dtype is t.dtype:
        (x, s) = e.args if e.op == "div" or _is_number(e.args[1]) else e.args[::-1]
        if is_view(x) and x.op == "at" and x.dtype is t.dtype and _is_number(s):
            return x, s if e.op == "mul" else binary("div", const(1.0, s.dtype), s)
        return None, None
    return (e, None) if e.op == "at" and is_view(e) else (None, None)


def _is_number(e: Expr) -> bool:
    return is_view(e) and not any(x.op == "index" for x in walk(e))


def _is_head(x: Expr, axis: int) -> bool:
    """Whether it is index / share along an axis."""
    return x.op == "div" and x.args[0].op == "index" and x.args[0].value == axis and x.args[1].op in ("const", "dim")


def _share(load: Expr, b: Tensor) -> int:
    """How many neighbours along the last batch axis load the same: all if its index is not used, else the number by
    which it is divided wherever it is."""
    axis = b.rank - 3
    found = {x.args[1].value for x in walk(load) if _is_head(x, axis)}
    bare = rewrite(load, lambda x: const(0, x.dtype) if _is_head(x, axis) else None)
    if any(x.op == "index" and x.value == axis for x in walk(bare)):
        return 1
    share = next(iter(found or {b.shape[axis]}))
    return share if isinstance(share, int) and len(found) <= 1 else 1


# ── what becomes of it ────────────────────────────────────────────────────────────────────────────────────────────


def _rewritten(call: Call, a: Tensor, b: Tensor, found: _Source) -> list[Kernel]:
    share, out, made = found.share, call.out, list[Kernel]()
    lead = (*b.shape[:-3], b.shape[-3] // share)

    def add(kernel: Kernel, shape: Shape, like: Tensor) -> Tensor:
        kernel.node, kernel.outputs = call.node, (Tensor(shape, like.dtype, kernel, 0, like.name),)
        made.append(kernel)
        return kernel.out

    left, right = a, add(Map(found.load), (*lead, *b.shape[-2:]), b)
    if found.factor is not None:
        left = add(Map(a.at(*[index(n) for n in range(a.rank)]) * found.factor), a.shape, a)
    if share > 1:
        left = add(Alias(left), (*lead, a.shape[-2] * share, a.shape[-1]), a)
    meaning = _meaning(call, {a.uid: left, b.uid: right})
    whole = add(meaning, (*lead, left.shape[-2], out.shape[-1]) if share > 1 else out.shape, out)
    made[-1] = whole.kernel = Call(call.routine, (left, right), call.attrs, meaning)
    made[-1].node, made[-1].outputs = call.node, (whole,)
    if share > 1:
        add(Alias(whole), out.shape, out)
    made[-1].outputs, out.kernel = (out,), made[-1]
    return made


def _meaning(call: Call, other: dict[int, Tensor]) -> Reduce:
    """The same product of other operands."""
    meaning = call.meaning
    assert isinstance(meaning, Reduce)
    expr = rewrite(meaning.expr, lambda e: other[e.value.uid].at(*e.args) if e.op == "at" else None)
    return Reduce(meaning.op, meaning.extents, expr)


__all__ = ["share_operands"]
