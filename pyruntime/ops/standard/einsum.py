"""Einsum. First, each operand is summed over the letters that only this operand has. Then operands are contracted
pairwise, as matrix products if possible. Without any sum, all operands are multiplied in one kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.broadcasting import broadcast_dim
from pyruntime.ir.expr import Expr, cast
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.standard.matmul import product

Letters = list[str]
Operand = tuple[Letters, Tensor]
Extents = Mapping[str, AnyDim]
CANDIDATES = 8  # the cheapest pair is searched for among this many operands
UNKNOWN = 64  # the size that the search assumes for a dynamic dim


@op("Einsum", since=12)
def einsum(t: Tracer, *xs: Tensor, equation: str) -> Tensor:
    """The product of the operands, summed over the letters that the result lacks, as numpy.einsum.
    Spec: https://onnx.ai/onnx/operators/onnx__Einsum.html"""
    terms, result = _parse(t, equation, xs)
    named = {c for term in terms for c in term}
    if not all(c.isalnum() for c in named) or not named.issuperset(result) or len(set(result)) < len(result):
        raise t.shape_error(f'equation "{equation}" has a result that its terms cannot produce')
    extents: dict[str, AnyDim] = {}
    for letters, x in zip(terms, xs, strict=True):
        for letter, d in zip(letters, x.shape, strict=True):
            extents[letter] = broadcast_dim(extents.get(letter, 1), d)
    operands = list(zip(terms, xs, strict=True))
    if len(xs) > 1 and not named.issubset(result):
        operands = _contract_pairs(t, _sum_alone(t, operands, result, extents), result, extents)
    return t.cast(_contract(t, operands, result, extents), xs[0].dtype)


def _sum_alone(t: Tracer, operands: list[Operand], result: Letters, extents: Extents) -> list[Operand]:
    """Operands summed over the letters that only they have, with repeated letters merged."""
    count = Counter(c for letters, _ in operands for c in {*letters})
    remaining = [[c for c in dict.fromkeys(letters) if count[c] > 1 or c in result] for letters, _ in operands]
    return [(k, x if k == letters else _contract(t, [(letters, x)], k, extents))
            for k, (letters, x) in zip(remaining, operands, strict=True)]  # fmt: skip


def _contract_pairs(t: Tracer, operands: list[Operand], result: Letters, extents: Extents) -> list[Operand]:
    """Contract pairs until at most two operands are left."""
    sizes = {c: d if isinstance(d, int) else UNKNOWN for c, d in extents.items()}
    while len(operands) > 2:
        a, b, letters = _cheapest(operands, result, sizes)
        rest = [o for o in operands if o is not a and o is not b]
        operands = [(letters, _contract(t, [a, b], letters, extents)), *rest]
    return operands


def _cheapest(operands: list[Operand], result: Letters, sizes: Mapping[str, int]) -> tuple[Operand, Operand, Letters]:
    """The pair that takes the least work, then has the smallest result; and the letters of that result."""
    count = Counter([*result, *(c for letters, _ in operands for c in letters)])

    def left(a: Letters, b: Letters) -> Letters:
        both = [c for c in a if c in b]  # first, as the batch axes of a matrix product
        return [c for c in dict.fromkeys([*both, *a, *b]) if count[c] > (2 if c in both else 1)]

    def cost(pair: tuple[Operand, Operand]) -> list[int]:
        (a, _), (b, _) = pair
        return [math.prod(sizes[c] for c in letters) for letters in ({*a, *b}, left(a, b))]

    a, b = min(combinations(operands[:CANDIDATES], 2), key=cost)
    return a, b, left(a[0], b[0])


def _parse(t: Tracer, equation: str, xs: tuple[Tensor, ...]) -> tuple[list[Letters], Letters]:
    """Letters of each operand and of the result. The axes of an ellipsis are named 0, 1, …, aligned at their ends."""
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


def _contract(t: Tracer, operands: Sequence[Operand], result: Letters, extents: Extents) -> Tensor:
    """The product of the operands, summed over the letters that are not in the result; half floats give float32."""
    if len(operands) == 2:
        y = _matrix_product(t, operands[0], operands[1], result, extents)
        if y is not None:
            return y
    named = dict.fromkeys(c for letters, _ in operands for c in letters)
    summed = [c for c in named if c not in result]

    def body(*i: Expr) -> Expr:
        place = dict(zip([*result, *summed], i, strict=True))
        out: Expr | None = None
        for letters, x in operands:
            full = tuple(extents[c] for c in letters)
            value = cast(t.aligned(x, full, [place[c] for c in letters]), sum_type(x.dtype))
            out = value if out is None else out * value
        assert out is not None
        return out

    shape = [extents[c] for c in result]
    return t.reduce_compute("sum", shape, [extents[c] for c in summed], body) if summed else t.compute(shape, body)


def _matrix_product(t: Tracer, left: Operand, right: Operand, result: Letters, extents: Extents) -> Tensor | None:
    """The contraction as (batch, m, k) · (batch, k, n); None if a letter repeats, is summed alone or broadcasts."""
    (a, _), (b, _) = left, right
    if left[1].dtype is not right[1].dtype:
        left, right = (a, t.cast(left[1], sum_type(left[1].dtype))), (b, t.cast(right[1], sum_type(right[1].dtype)))
    for letters, x in (left, right):
        if len(set(letters)) < len(letters) or any(extents[c] != d for c, d in zip(letters, x.shape, strict=True)):
            return None
    inner = [c for c in a if c in b and c not in result]
    batch = [c for c in result if c in a and c in b]
    rows = [c for c in result if c in a and c not in b]
    columns = [c for c in result if c in b and c not in a]
    if not inner or {*a} - {*batch, *rows, *inner} or {*b} - {*batch, *columns, *inner}:
        return None

    def matrix(operand: Operand, first: Letters, second: Letters) -> Tensor:
        letters, x = operand
        order = [*batch, *first, *second]
        x = t.transpose(x, [letters.index(c) for c in order])
        sizes = [sh.size([extents[c] for c in part]) for part in (first, second)]
        return t.reshape(x, (*[extents[c] for c in batch], *sizes))

    y = product(t, matrix(left, rows, inner), matrix(right, inner, columns))
    order = [*batch, *rows, *columns]
    y = t.reshape(y, [extents[c] for c in order])
    return t.transpose(y, [order.index(c) for c in result])
