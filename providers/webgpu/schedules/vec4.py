"""Maps and reductions with vec4: a work unit computes four neighbouring elements, or a loop step reads four.

An access along the innermost axis loads a vec4; an access that does not depend on that axis loads once. Arithmetic is
printed four times for single elements.
"""

from __future__ import annotations

from pyruntime.codegen.addressing import Lowering, split
from pyruntime.codegen.loop_ir import Lowered
from pyruntime.codegen.schedule import Group, Nest, accumulator
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, binary, cast, const, index, rewrite, uses_index, walk
from pyruntime.ir.kernel import Accum, Map, Reduce, Stmt, Store
from pyruntime.ir.reference import COMBINE, NEUTRAL

from ..adapter import Adapter
from ..printer.storage import is_packed
from .vec4_access import WIDTH, aligned, lane, load4_of

LONG = 48  # nodes; larger expressions are not printed four times


def vectorized(kernel: Map | Reduce, adapter: Adapter) -> Lowered | None:
    """The loop form with vec4; None if it does not apply."""
    nest = Nest(Lowering(kernel), kernel, "gpu")
    nodes = walk(nest.expr)
    if len(nodes) > LONG or any(x.op == "guard" for x in nodes):
        return None
    made = _Vectorized(nest, kernel, adapter.f16)
    return made.mapped(kernel) if isinstance(kernel, Map) else made.reduced(kernel)


class _Vectorized:
    def __init__(self, nest: Nest, kernel: Map | Reduce, f16: bool) -> None:
        self.nest = nest
        self.work = nest.work
        self.kernel = kernel
        self.f16 = f16

    def mapped(self, kernel: Map) -> Lowered | None:
        nest, work, out = self.nest, self.work, kernel.out
        if not nest.outer or is_packed(out.dtype, self.f16):
            return None
        inner = nest.outer[-1]
        own = out.at(*[index(n) for n in range(nest.rank)])
        if not aligned(own, nest.outer, inner.axis, self.f16) or not self._along(inner, len(walk(nest.expr)) == 1):
            return None
        unit = work.new()
        blocks = [*nest.outer[:-1], Group(sh.ceildiv(inner.extent, WIDTH), inner.axis)]
        body = nest.decode(blocks, unit)
        first = work.let(binary("mul", nest.index_of[inner.axis][0], const(WIDTH, I32)), body)
        values = [cast(v, out.dtype) for v in self._values(inner, first, body)]
        nest.index_of[inner.axis] = [first]
        at = nest.address(out, [index(n) for n in range(nest.rank)])
        body.append(Store(0, (at,), Expr("vec", tuple(values), out.dtype)))
        return nest.parallel(unit, blocks, body)

    def reduced(self, kernel: Reduce) -> Lowered | None:
        nest, work = self.nest, self.work
        if kernel.op.startswith("arg") or not nest.inner or not self._along(nest.inner[-1], False):
            return None
        dtype, inner = accumulator(kernel.expr.dtype, kernel.op), nest.inner[-1]
        unit = work.new()
        body = nest.decode(nest.outer, unit)
        total = work.let(const(NEUTRAL[kernel.op](dtype), dtype), body, mutable=True)
        loops = nest.loops()
        step: list[Stmt] = []
        first = work.let(binary("mul", loops[-1], const(WIDTH, I32)), step)
        a, b, c, d = (cast(v, dtype) for v in self._values(inner, first, step))
        op = COMBINE[kernel.op]
        step.append(Accum(total.value, kernel.op, binary(op, binary(op, a, b), binary(op, c, d))))
        body += [*nest.nested(loops, step, width=WIDTH), nest.finish(kernel, total)]
        return nest.parallel(unit, nest.outer, body)

    def _along(self, inner: Group, copies: bool) -> bool:
        """Whether some access loads a vec4, or `copies`."""
        return copies or any(x.op == "at" and self._aligned(x, inner) for x in walk(self.nest.expr))

    def _aligned(self, at: Expr, inner: Group) -> bool:
        return aligned(at, [*self.nest.outer, *self.nest.inner], inner.axis, self.f16)

    def _values(self, inner: Group, first: Expr, body: list[Stmt]) -> list[Expr]:
        """The expression at four neighbouring indices. Loads that they share are added to the body."""
        nest = self.nest
        nest.index_of[inner.axis] = [first]
        vectors: dict[int, Expr] = {}
        single: dict[int, Expr] = {}
        for x in walk(nest.expr):
            if x.op != "at":
                continue
            if self._aligned(x, inner):
                vectors[id(x)] = self.work.let(load4_of(nest.load(x)), body)
            elif _constant_along(x, inner):
                single[id(x)] = self.work.let(nest.load(x), body)
        out = []
        for n in range(WIDTH):
            nest.index_of[inner.axis] = [first, const(n, I32)] if n else [first]
            replacements = {i: lane(v, n) for i, v in vectors.items()} | single
            out.append(nest.load(rewrite(nest.expr, lambda _: None, replacements)))
        return out


def _constant_along(at: Expr, inner: Group) -> bool:
    _, coefficients, opaque = split(at.value, at.args)
    return ("index", inner.axis) not in coefficients and not any(uses_index(e, inner.axis) for e, _ in opaque)
