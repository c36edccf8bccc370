"""Lookup tables for functions of one eight-bit code: SiLU between quantised tensors becomes one lookup.

The init block computes the expression for each of the 256 codes, so results are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.ir.dtype import F32, I8, I32, U8, bounds
from pyruntime.ir.expr import Expr, cast, index, rebuild, rewrite, walk
from pyruntime.ir.kernel import Block, Call, Map, Reduce, Tensor
from pyruntime.passes.loads import is_stored_constant

CODES = (I8, U8)
# A table pays from this many operations on: a lookup takes as long as about 12, a mathlib function as 16 or more.
LEAST_COST = 14
COSTLY = frozenset("exp log sin cos tan tanh sinh cosh erf pow atan asinh acosh atanh".split())


def tabulate(block: Block, init: Block) -> None:
    """Rewrite expressions of this block and its inner blocks; append the kernels that fill the tables to `init`."""
    _Tables(init).block(block)


class _Tables:
    def __init__(self, init: Block) -> None:
        self.init = init
        self.made_in_init = {t.uid for k in init.kernels for t in k.outputs}
        self.by_expression: dict[object, Tensor] = {}

    def block(self, block: Block) -> None:
        for kernel in block.kernels:
            if isinstance(kernel, (Map, Reduce)):
                kernel.expr = _Rewriting(self, kernel.node).rewrite(kernel.expr)
            if isinstance(kernel, (Call, Reduce)) and kernel.epilogue is not None:
                kernel.epilogue = _Rewriting(self, kernel.node).rewrite(kernel.epilogue)
            for inner in kernel.blocks:
                self.block(inner)

    def table(self, e: Expr, code: Expr, node: str) -> Tensor:
        """(256,): the value of e for each code, the lowest code first, as float32 or int32."""
        own_code = cast(index(0) + bounds(code.dtype)[0], code.dtype)
        value = rewrite(e, lambda x: own_code if x.key() == code.key() else None)
        value = value if value.dtype is F32 else cast(value, I32)
        table = self.by_expression.get(value.key())
        if table is None:
            kernel = Map(value)
            kernel.node = node
            table = self.by_expression[value.key()] = Tensor((256,), value.dtype, kernel)
            kernel.outputs = (table,)
            self.init.kernels.append(kernel)
        return table


class _Rewriting:
    """Rewrites one expression. `sources`: by id of a node, the loads and codes that its value depends on."""

    def __init__(self, tables: _Tables, node: str) -> None:
        self.tables = tables
        self.node = node
        self.sources: dict[int, tuple[Expr, ...]] = {}
        self.rewritten: dict[int, Expr] = {}

    def rewrite(self, e: Expr) -> Expr:
        return self.node_rewritten(e) if any(x.dtype in CODES for x in walk(e)) else e

    def node_rewritten(self, e: Expr) -> Expr:
        if id(e) not in self.rewritten:
            code = self._only_code(e)
            cost = 0 if code is None else _cost(e, code)
            if code is not None and cost < LEAST_COST and self.node_rewritten(code) is code:
                made = e  # its operands cost no more
            elif code is not None and cost >= LEAST_COST and e.dtype in (F32, I32, *CODES):
                table = self.tables.table(e, code, self.node)
                made = cast(table.at(cast(self.node_rewritten(code), I32) - bounds(code.dtype)[0]), e.dtype)
            else:
                args = [self.node_rewritten(a) for a in e.args]
                made = e if all(a is b for a, b in zip(args, e.args, strict=True)) else rebuild(e, args)
            self.rewritten[id(e)] = made
        return self.rewritten[id(e)]

    def _only_code(self, e: Expr) -> Expr | None:
        """Return the only code on which e depends; None if e depends on anything else, or is the code itself."""
        sources = self._sources(e)
        return sources[0] if len(sources) == 1 and sources[0].dtype in CODES and sources[0] is not e else None

    def _sources(self, e: Expr) -> tuple[Expr, ...]:
        """The first two nodes that e depends on. A code counts as one node, whatever it is computed from."""
        if id(e) not in self.sources:
            self.sources[id(e)] = self._find_sources(e)
        return self.sources[id(e)]

    def _find_sources(self, e: Expr) -> tuple[Expr, ...]:
        if e.op == "const":
            return ()
        if e.op == "at":
            is_constant = is_stored_constant(e.value, self.tables.made_in_init) and all(a.op == "const" for a in e.args)
            return () if is_constant else (e,)
        if not e.args:
            return (e,)
        inner = _distinct(s for a in e.args for s in self._sources(a))
        if e.dtype in CODES and not (len(inner) == 1 and inner[0].dtype in CODES) and inner:
            return (e,)
        return inner


def _distinct(sources: Iterable[Expr]) -> tuple[Expr, ...]:
    """The first two distinct nodes."""
    return tuple({s.key(): s for s in sources}.values())[:2]


def _cost(e: Expr, code: Expr) -> int:
    seen: set[int] = set()
    walk(code, seen)
    return sum(16 if x.op in COSTLY else 1 for x in walk(e, seen) if x.args and x.op != "at")
