"""What one code of eight bits decides becomes a table: SiLU between quantised tensors is one lookup.

The table holds the same expression for each of the 256 codes, computed in the init block, so that results are the same
to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.ir.dtype import F32, I8, I32, U8, bounds
from pyruntime.ir.expr import Expr, cast, index, rebuild, rewrite, walk
from pyruntime.ir.kernel import Block, Call, Leaf, Map, Reduce, Tensor

CODES = (I8, U8)
# Operations that a lookup must replace: one takes about as long as twelve, a function of mathlib as sixteen or more.
WORTH = 14
COSTLY = frozenset("exp log sin cos tan tanh sinh cosh erf pow atan asinh acosh atanh".split())


def tabulate(block: Block, init: Block) -> None:
    """In this block and its inner blocks; the tables' kernels are put at the end of `init`."""
    _Tables(init).block(block)


class _Tables:
    def __init__(self, init: Block) -> None:
        self.init = init
        self.constants = {t.uid for k in init.kernels for t in k.outputs}
        self.made: dict[object, Tensor] = {}

    def block(self, block: Block) -> None:
        for kernel in block.kernels:
            if isinstance(kernel, (Map, Reduce)):
                kernel.expr = _Rewriting(self, kernel.node).all_tabulated(kernel.expr)
            if isinstance(kernel, (Call, Reduce)) and kernel.epilogue is not None:
                kernel.epilogue = _Rewriting(self, kernel.node).all_tabulated(kernel.epilogue)
            for inner in kernel.blocks:
                self.block(inner)

    def is_constant(self, t: Tensor) -> bool:
        return t.uid in self.constants or (isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant"))

    def table(self, e: Expr, code: Expr, node: str) -> Tensor:
        """(256,): e for each code, the lowest first, as float32 or int32."""
        place = index(0) + bounds(code.dtype)[0]
        value = rewrite(e, lambda x: cast(place, code.dtype) if x.key() == code.key() else None)
        value = value if value.dtype is F32 else cast(value, I32)
        found = self.made.get(value.key())
        if found is None:
            kernel = Map(value)
            kernel.node = node
            found = self.made[value.key()] = Tensor((256,), value.dtype, kernel)
            kernel.outputs = (found,)
            self.init.kernels.append(kernel)
        return found


class _Rewriting:
    """Of one expression. Nodes are told apart by identity; `sources` says what decides the value of each."""

    def __init__(self, tables: _Tables, node: str) -> None:
        self.tables = tables
        self.node = node
        self.sources: dict[int, tuple[Expr, ...]] = {}
        self.done: dict[int, Expr] = {}

    def all_tabulated(self, e: Expr) -> Expr:
        return self.tabulated(e) if any(x.dtype in CODES for x in walk(e)) else e

    def tabulated(self, e: Expr) -> Expr:
        if id(e) not in self.done:
            code = self._code(e)
            if code is not None and e.dtype in (F32, I32, *CODES) and _cost(e, code) >= WORTH:
                table = self.tables.table(e, code, self.node)
                made = cast(table.at(cast(self.tabulated(code), I32) - bounds(code.dtype)[0]), e.dtype)
            else:
                args = [self.tabulated(a) for a in e.args]
                made = e if all(a is b for a, b in zip(args, e.args, strict=True)) else rebuild(e, args)
            self.done[id(e)] = made
        return self.done[id(e)]

    def _code(self, e: Expr) -> Expr | None:
        """The code that alone decides e, if there is one and it is not e."""
        found = self._sources(e)
        return found[0] if len(found) == 1 and found[0].dtype in CODES and found[0] is not e else None

    def _sources(self, e: Expr) -> tuple[Expr, ...]:
        """What e varies with: at most two things, codes or others; a code is one thing, whatever it is made of."""
        if id(e) not in self.sources:
            self.sources[id(e)] = self._found(e)
        return self.sources[id(e)]

    def _found(self, e: Expr) -> tuple[Expr, ...]:
        if e.op == "const":
            return ()
        if e.op == "at":
            scalar = self.tables.is_constant(e.value) and all(a.op == "const" for a in e.args)
            return () if scalar else (e,)
        if not e.args:
            return (e,)
        inner = _distinct(s for a in e.args for s in self._sources(a))
        if e.dtype in CODES and not (len(inner) == 1 and inner[0].dtype in CODES) and inner:
            return (e,)
        return inner


def _distinct(sources: Iterable[Expr]) -> tuple[Expr, ...]:
    """The first two that differ."""
    return tuple({s.key(): s for s in sources}.values())[:2]


def _cost(e: Expr, code: Expr) -> int:
    seen: set[int] = set()
    walk(code, seen)
    return sum(16 if x.op in COSTLY else 1 for x in walk(e, seen) if x.args and x.op != "at")


__all__ = ["tabulate"]
