"""Finds attention among the kernels of a segment: a product, a softmax of its rows and a product of the result, whose
intermediate results nothing else reads.

The softmax is a procedure over rows (passes/fusion/row_fusion.py), with masks, soft caps and scales in it or in the
epilogue of the first product. It is matched by what it computes: the expressions of its statements are put together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pyruntime.ir.blocks import unreshaped
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, binary, const, dim, rewrite, walk
from pyruntime.ir.kernel import Accum, For, Kernel, Let, Loops, Map, Reduce, Stmt, Store, Tensor, tensors_in
from pyruntime.ir.shape import AnyDim

SCORE = Expr("arg", (), F32, 0)  # the result of the first product


@dataclass(slots=True)
class Softmax:
    """Element j of row u of the result is exp(logit - shift) / divisor. Its NaNs become `otherwise`, if that is given.

    unit, place: the variables u and j; largest, total: the variables of the row's largest logit, and of the sum of its
        exponentials
    logit: an expression of u, j and SCORE; shift, divisor: of u, `largest` and `total`
    """

    unit: Expr
    place: Expr
    largest: Expr
    total: Expr
    logit: Expr
    shift: Expr
    divisor: Expr
    otherwise: Expr | None


@dataclass(slots=True)
class Chain:
    """scores, rows, last: the three kernels. The scores have the shape [..., rows, keys].

    queries, keys: the factors of the scores; queries do not depend on the number of the key, nor keys on the row's
    values: the factor of the last product that is not the softmax; it does not depend on the number of the row
    axes: for each axis of the scores but the last, the axis of the result; None if the extent is 1
    wide: the axis of the result along the values, if there is one
    between: a map between the scores and the rows, if any
    """

    scores: Reduce
    rows: Loops
    last: Reduce
    softmax: Softmax
    queries: Expr
    keys: Expr
    values: Expr
    axes: list[int | None]
    wide: int | None
    between: Map | None = None

    @property
    def kernels(self) -> list[Kernel]:
        return [k for k in (self.scores, self.between, self.rows, self.last) if k is not None]

    @property
    def size(self) -> int:
        """Elements of a query."""
        return int(self.scores.extents[0])

    @property
    def width(self) -> int:
        """Elements of a value."""
        return 1 if self.wide is None else int(self.last.out.shape[self.wide])

    @property
    def length(self) -> AnyDim:
        """The number of keys."""
        return self.scores.out.shape[-1]

    @property
    def read_first(self) -> tuple[Tensor, ...]:
        """The tensors that sums of values depend on."""
        own = [self.queries, self.keys, self.values, self.softmax.logit, self.scores.epilogue]
        return tensors_in(*[e for e in own if e is not None])

    @property
    def read_last(self) -> tuple[Tensor, ...]:
        """The tensors that results depend on besides these sums."""
        softmax = self.softmax
        values = None if softmax.otherwise is None else self.values
        own = [softmax.shift, softmax.divisor, softmax.otherwise, self.last.epilogue, values]
        return tensors_in(*[e for e in own if e is not None])

    @property
    def read(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys([*self.read_first, *self.read_last]))


def find(kernels: Sequence[Kernel], private: Collection[int]) -> list[Chain]:
    """The chains among the kernels of a segment. private: see `provider.CodeWriter.segment`."""
    makers = {t.uid: k for k in kernels for t in k.outputs if t.uid in private}
    return [chain for k in kernels if _is_product(k) for chain in _ending(k, makers)]


def _is_product(k: Kernel) -> bool:
    return (
        isinstance(k, Reduce) and k.op == "sum" and len(k.extents) == 1 and k.expr.op == "mul" and k.expr.dtype.is_float
    )


def _ending(last: Kernel, makers: dict[int, Kernel]) -> Iterator[Chain]:
    """Yield the chain that ends with this product, if any."""
    assert isinstance(last, Reduce)
    for n in range(2):
        weights, values = _stripped(last.expr.args[n]), last.expr.args[1 - n]
        rows = makers.get(unreshaped(weights.value).uid) if weights.op == "at" else None
        if not isinstance(rows, Loops) or not rows.unit_is_row:
            continue
        for t in rows.args:
            between = makers.get(unreshaped(t).uid)
            sources = [t]
            if isinstance(between, Map) and between.out is t:
                sources = [x.value for x in walk(between.expr) if x.op == "at" and _is_own(x, t)]
            for source in sources:
                scores = makers.get(unreshaped(source).uid)
                if scores is not None and _is_product(scores):
                    assert isinstance(scores, Reduce)
                    chain = _chain(scores, rows, last, t, weights, values)
                    chain = _through(chain, between, source) if chain and source is not t else chain
                    if chain is not None:
                        yield chain
                        return


def _is_own(at: Expr, t: Tensor) -> bool:
    """Whether a load of a map that computes t has the coordinates of the computed element, in a tensor of t's shape."""
    return at.value.shape == t.shape and all(c.op == "index" and c.value == n for n, c in enumerate(at.args))


def _through(chain: Chain, between: Kernel | None, source: Tensor) -> Chain | None:
    """The chain with a map of the scores, such as a soft cap, in its softmax."""
    assert isinstance(between, Map)
    softmax = chain.softmax
    place = [*_coordinates(between.out, softmax.unit), softmax.place]

    def visit(x: Expr) -> Expr | None:
        if x.op == "index":
            return place[x.value]
        is_own = x.op == "at" and x.value is source and [c.key() for c in x.args] == keys
        return SCORE if is_own else None

    keys = [c.key() for c in place]
    score = rewrite(between.expr, visit)
    if any(x.op == "at" and unreshaped(x.value).uid == unreshaped(source).uid for x in walk(score)):
        return None
    chain.softmax = replace(softmax, logit=rewrite(softmax.logit, lambda x: score if x.op == "arg" else None))
    chain.between = between
    return chain


def _chain(scores: Reduce, rows: Loops, last: Reduce, t: Tensor, weights: Expr, values: Expr) -> Chain | None:
    shape, places = scores.out.shape, len(last.out.shape)
    if len(shape) < 2 or weights.value.shape != shape or scores.out.dtype is not F32 or last.extents != shape[-1:]:
        return None
    if rows.out.shape[-1] != shape[-1] or t.shape != rows.out.shape or not isinstance(scores.extents[0], int):
        return None
    *coords, place = weights.args
    axes = [c.value if c.op == "index" else None for c in coords]
    known = [n for n in axes if n is not None]
    if place.key() != Expr("index", (), I32, places).key() or len({*known}) < len(known):
        return None
    if any(n is None and d != 1 for n, d in zip(axes, shape, strict=False)):
        return None
    wide = [n for n, d in enumerate(last.out.shape) if d != 1 and n not in known]
    if len(wide) > 1 or not all(isinstance(last.out.shape[n], int) for n in wide):
        return None
    if last.epilogue is not None and any(unreshaped(x).uid == rows.out.uid for x in last.epilogue.tensors()):
        return None
    row, key = len(shape) - 2, len(shape) - 1
    a, b = scores.expr.args
    queries, keys = (a, b) if key in _indices(b) else (b, a)
    shares = row not in _indices(keys) and key not in _indices(queries) and axes[row] not in _indices(values)
    softmax = softmax_of(rows, t) if shares else None
    if softmax is None:
        return None
    return Chain(scores, rows, last, softmax, queries, keys, values, axes, wide[0] if wide else None)


def _indices(e: Expr) -> set[int]:
    return {x.value for x in walk(e) if x.op == "index"}


def _stripped(e: Expr) -> Expr:
    """The expression without conversions between types of floats."""
    while e.op == "cast" and e.dtype.is_float and e.args[0].dtype.is_float:
        e = e.args[0]
    return e


# ── the procedure ─────────────────────────────────────────────────────────────────────────────────────────────────


def softmax_of(rows: Loops, scores: Tensor) -> Softmax | None:
    """The softmax that a procedure over rows computes of each row of the scores; None if it computes anything else."""
    (loop,) = rows.body
    if not isinstance(loop, For):
        return None
    found = _Procedure(rows, scores, Expr("var", (), I32, loop.var))
    if not all(found.takes(s) for s in loop.body) or [op for _, op, _ in found.sums] != ["max", "sum"]:
        return None
    (largest, _, logit), (total, _, power) = found.sums
    power, weight, otherwise = _stripped(power), _stripped(found.stored), None
    if weight.op == "select" and weight.args[0].op == "isnan":
        test, otherwise, kept = _stripped(weight.args[0].args[0]), weight.args[1], _stripped(weight.args[2])
        if test.key() != kept.key():
            return None
        weight = kept
    difference = _stripped(power.args[0]) if power.op == "exp" else power
    if difference.op != "sub" or weight.op != "div":
        return None
    whole, shift = difference.args
    divisor = weight.args[1]
    fixed = [shift, divisor, *([] if otherwise is None else [otherwise])]
    same = _stripped(whole).key() == _stripped(logit).key() and _stripped(weight.args[0]).key() == power.key()
    if not same or any(found.varies(e) for e in fixed) or found.rest(logit):
        return None
    return Softmax(found.unit, found.place, largest, total, logit, shift, divisor, otherwise)


class _Procedure:
    """Puts together the expressions of a procedure over rows. stored: of the elements of the result; sums: variable,
    operation and expression of each reduction."""

    def __init__(self, rows: Loops, scores: Tensor, unit: Expr) -> None:
        self.rows, self.scores, self.unit = rows, scores, unit
        self.place = Expr("var", (), I32, -1)
        self.stored = SCORE
        self.sums: list[tuple[Expr, str, Expr]] = []
        self.named: dict[int, Expr] = {}
        self.row = [x.key() for x in _coordinates(scores, unit)]

    def takes(self, s: Stmt) -> bool:
        """Add a statement; False if it is not understood."""
        if isinstance(s, Let):
            if not s.mutable:
                self.named[s.var] = self.resolved(s.value)
            return True
        if not isinstance(s, For):
            return False
        self.named[s.var] = self.place
        return all(self._takes_inner(b) for b in s.body)

    def _takes_inner(self, s: Stmt) -> bool:
        if isinstance(s, Let) and not s.mutable:
            self.named[s.var] = self.resolved(s.value)
        elif isinstance(s, Store):
            self.stored = self.resolved(s.value)
        elif isinstance(s, Accum):
            self.sums.append((Expr("var", (), s.value.dtype, s.var), s.op, self.resolved(s.value)))
        else:
            return False
        return True

    def resolved(self, e: Expr) -> Expr:
        def visit(x: Expr) -> Expr | None:
            if x.op == "var":
                return self.named.get(x.value)
            if x.op != "at" or x.value is not self.rows.out and x.value is not self.scores:
                return None
            own = [self.resolved(c).key() for c in x.args] == [*self.row, self.place.key()]
            return (self.stored if x.value is self.rows.out else SCORE) if own else None

        return rewrite(e, visit)

    def varies(self, e: Expr) -> bool:
        """Whether an expression differs between the elements of a row."""
        return any(x.op == "arg" or x.op == "var" and x.value == self.place.value for x in walk(e))

    def rest(self, e: Expr) -> bool:
        """Whether an expression reads other elements of the scores or of the result."""
        return any(x.op == "at" and (x.value is self.scores or x.value is self.rows.out) for x in walk(e))


def _coordinates(t: Tensor, unit: Expr) -> list[Expr]:
    """The coordinates of a row of this number, without the last, as `row_fusion` writes them."""
    long = [n for n, d in enumerate(t.shape[:-1]) if d != 1]
    place = [const(0, I32)] * (t.rank - 1)
    for n in reversed(long[1:]):
        extent = dim(t.shape[n])
        place[n], unit = binary("rem", unit, extent), binary("div", unit, extent)
    if long:
        place[long[0]] = unit
    return place
