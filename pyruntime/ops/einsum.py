"""Einsum: two operands become one matrix product, any other number one reduction."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BF16, F16, F32
from pyruntime.ir.expr import Expr, cast
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.matmul import product

Letters = list[str]


@op("Einsum", since=12)
def einsum(t: Tracer, *xs: Tensor, equation: str) -> Tensor:
    """Σ over the letters that the result lacks of the operands' product, as numpy.einsum.
    Spec: https://onnx.ai/onnx/operators/onnx__Einsum.html"""
    terms, result = _parse(t, equation, xs)
    named = {c for term in terms for c in term}
    if not all(c.isalnum() for c in named) or not named.issuperset(result) or len(set(result)) < len(result):
        raise t.shape_error(f'equation "{equation}" has a result that its terms do not give')
    extents: dict[str, AnyDim] = {}
    for letters, x in zip(terms, xs, strict=True):
        for letter, d in zip(letters, x.shape, strict=True):
            extents[letter] = sh.broadcast_dim(extents.get(letter, 1), d)
    if len(xs) == 2 and xs[0].dtype is xs[1].dtype:
        contracted = _contracted(t, xs, terms, result, extents)
        if contracted is not None:
            return t.cast(contracted, xs[0].dtype)
    return t.cast(_reduced(t, xs, terms, result, extents), xs[0].dtype)


def _parse(t: Tracer, equation: str, xs: tuple[Tensor, ...]) -> tuple[list[Letters], Letters]:
    """Letters of each operand and of the result; axes of an ellipsis are named 0, 1, …, aligned at its end."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(xs):
        raise t.shape_error(f'equation "{equation}" has {len(parts)} terms for {len(xs)} inputs')
    ranks = [x.rank - len(p.replace("...", "")) for p, x in zip(parts, xs, strict=True) if "..." in p]
    wide = max(ranks, default=0)

    def letters(part: str, rank: int) -> Letters:
        head, dots, tail = part.partition("...")
        named = [str(n) for n in range(wide - rank, wide)] if dots else []
        return [*head, *named, *tail]

    terms = [letters(p, x.rank - len(p.replace("...", ""))) for p, x in zip(parts, xs, strict=True)]
    for letters_, x in zip(terms, xs, strict=True):
        if len(letters_) != x.rank:
            raise t.shape_error(f'equation "{equation}" does not fit an input of rank {x.rank}')
    if arrow:
        return terms, letters(right, wide)
    every = [c for term in terms for c in term]
    once = sorted(c for c in set(every) if every.count(c) == 1 and c.isalpha())
    return terms, [*map(str, range(wide)), *once]


def _reduced(
    t: Tracer, xs: tuple[Tensor, ...], terms: list[Letters], result: Letters, extents: dict[str, AnyDim]
) -> Tensor:
    gone = [c for c in extents if c not in result]
    dtype = F32 if xs[0].dtype in (F16, BF16) else xs[0].dtype

    def body(*i: Expr) -> Expr:
        place = dict(zip([*result, *gone], i, strict=True))
        out: Expr | None = None
        for letters, x in zip(terms, xs, strict=True):
            full = tuple(extents[c] for c in letters)
            value = cast(t.aligned(x, full, [place[c] for c in letters]), dtype)
            out = value if out is None else out * value
        assert out is not None
        return out

    shape = [extents[c] for c in result]
    return t.reduce_compute("sum", shape, [extents[c] for c in gone], body) if gone else t.compute(shape, body)


def _contracted(
    t: Tracer, xs: tuple[Tensor, ...], terms: list[Letters], result: Letters, extents: dict[str, AnyDim]
) -> Tensor | None:
    """As a product of (batch, m, k) and (batch, k, n); None where a letter repeats, stands alone or broadcasts."""
    a, b = terms
    for letters, x in zip(terms, xs, strict=True):
        if len(set(letters)) < len(letters) or any(extents[c] != d for c, d in zip(letters, x.shape, strict=True)):
            return None
    inner = [c for c in a if c in b and c not in result]
    batch = [c for c in result if c in a and c in b]
    rows = [c for c in result if c in a and c not in b]
    columns = [c for c in result if c in b and c not in a]
    if not inner or {*a} - {*batch, *rows, *inner} or {*b} - {*batch, *columns, *inner}:
        return None

    def matrix(x: Tensor, letters: Letters, first: Letters, second: Letters) -> Tensor:
        order = [*batch, *first, *second]
        x = t.transpose(x, [letters.index(c) for c in order])
        sizes = [sh.size([extents[c] for c in part]) for part in (first, second)]
        return t.reshape(x, (*[extents[c] for c in batch], *sizes))

    y = product(t, matrix(xs[0], a, rows, inner), matrix(xs[1], b, inner, columns))
    order = [*batch, *rows, *columns]
    y = t.reshape(y, [extents[c] for c in order])
    return t.transpose(y, [order.index(c) for c in result])


__all__ = ["einsum"]
