"""Makes attention products read keys and values from the cache: once for all heads that share them, and unscaled.

Exporters write attention as separate nodes: they repeat keys and values for the heads that share them (Unsqueeze,
Expand, Reshape), and scale keys before the product, as they scale queries. Both would copy the whole cache in each run.
This pass joins the rows of heads that share keys into one product, and moves the scale of keys to the few queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir.expr import Expr, binary, const, index, is_view, rewrite, substitute, walk
from pyruntime.ir.kernel import Alias, Block, Call, Kernel, Leaf, Map, Reduce, Tensor
from pyruntime.ir.shape import Shape
from pyruntime.passes.loads import Joined, in_base


@dataclass(slots=True)
class _Source:
    """A right operand as load · factor. `share` neighbours along the last batch axis have the same elements; the load's
    coordinate along that axis counts groups of `share`."""

    load: Expr
    factor: Expr | None
    share: int


def share_operands(block: Block) -> None:
    """Rewrite products in this block and its inner blocks."""
    for kernel in list(block.kernels):
        if isinstance(kernel, Call) and kernel.routine == "matmul":
            at = block.kernels.index(kernel)
            block.kernels[at : at + 1] = _product(kernel)
        for inner in kernel.blocks:
            share_operands(inner)


def _product(call: Call) -> list[Kernel]:
    """The kernels that replace a product; the product itself if it shares and scales nothing."""
    a, b = call.args
    assert a is not None and b is not None
    if a is b or call.strided or not call.out.dtype.is_float or not a.rank == b.rank >= 3:
        return [call]
    source = _source(b)
    same_batch = a.shape[:-2] == b.shape[:-2] == call.out.shape[:-2]
    if source is None or (source.factor is None and source.share == 1) or not (same_batch or source.share == 1):
        return [call]
    return _rewritten(call, a, b, source)


# ── recognising the operand ───────────────────────────────────────────────────────────────────────────────────────


def _source(b: Tensor) -> _Source | None:
    """None for constants: the init block scales and repeats them once."""
    load, factor, joined = b.at(*[index(n) for n in range(b.rank)]), None, Joined()
    while True:
        t, kernel = load.value, load.value.kernel
        if isinstance(kernel, Alias):
            inner = in_base(load, joined)
            if inner is None:
                break
            load = inner
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
    load = rewrite(load, lambda x: x.args[0] if _divides_head(x, b.rank - 3) else None) if share > 1 else load
    return _Source(load, factor, share) if is_view(load) else None


def _scaled(e: Expr, t: Tensor) -> tuple[Expr | None, Expr | None]:
    """The load and the factor (None: 1) if `e`, an element of t, is a load times a scalar; else (None, None)."""
    if e.op in ("mul", "div") and e.dtype is t.dtype:
        (x, s) = e.args if e.op == "div" or _is_scalar(e.args[1]) else e.args[::-1]
        if is_view(x) and x.op == "at" and x.dtype is t.dtype and _is_scalar(s):
            return x, s if e.op == "mul" else binary("div", const(1.0, s.dtype), s)
        return None, None
    return (e, None) if e.op == "at" and is_view(e) else (None, None)


def _is_scalar(e: Expr) -> bool:
    return is_view(e) and not any(x.op == "index" for x in walk(e))


def _divides_head(x: Expr, axis: int) -> bool:
    """Whether x is index(axis) divided by a number."""
    return x.op == "div" and x.args[0].op == "index" and x.args[0].value == axis and x.args[1].op in ("const", "dim")


def _share(load: Expr, b: Tensor) -> int:
    """How many neighbours along the last batch axis load the same elements: all of them if the load does not use the
    axis's index, else the number by which the load divides that index everywhere."""
    axis = b.rank - 3
    divisors = {x.args[1].value for x in walk(load) if _divides_head(x, axis)}
    without = rewrite(load, lambda x: const(0, x.dtype) if _divides_head(x, axis) else None)
    if any(x.op == "index" and x.value == axis for x in walk(without)):
        return 1
    share = next(iter(divisors or {b.shape[axis]}))
    return share if isinstance(share, int) and len(divisors) <= 1 else 1


# ── rewriting the product ─────────────────────────────────────────────────────────────────────────────────────────


def _rewritten(call: Call, a: Tensor, b: Tensor, source: _Source) -> list[Kernel]:
    share, out, kernels = source.share, call.out, list[Kernel]()
    lead = (*b.shape[:-3], b.shape[-3] // share)

    def add(kernel: Kernel, shape: Shape, like: Tensor) -> Tensor:
        kernel.replaces(call, (Tensor(shape, like.dtype, kernel, 0, like.name),))
        kernels.append(kernel)
        return kernel.out

    left, right = a, add(Map(source.load), (*lead, *b.shape[-2:]), b)
    if source.factor is not None:
        left = add(Map(a.at(*[index(n) for n in range(a.rank)]) * source.factor), a.shape, a)
    if share > 1:
        left = add(Alias(left), (*lead, a.shape[-2] * share, a.shape[-1]), a)
    meaning = _meaning(call, {a.uid: left, b.uid: right})
    whole = add(meaning, (*lead, left.shape[-2], out.shape[-1]) if share > 1 else out.shape, out)
    kernels[-1] = whole.kernel = Call(call.routine, (left, right), call.attrs, meaning)
    kernels[-1].replaces(call, (whole,))
    if share > 1:
        add(Alias(whole), out.shape, out)
    kernels[-1].outputs, out.kernel = (out,), kernels[-1]
    return kernels


def _meaning(call: Call, other: dict[int, Tensor]) -> Reduce:
    """The definition of the same product with other operands (by uid of the old ones)."""
    meaning = call.meaning
    assert isinstance(meaning, Reduce)
    expr = rewrite(meaning.expr, lambda e: other[e.value.uid].at(*e.args) if e.op == "at" else None)
    return Reduce(meaning.op, meaning.extents, expr)
