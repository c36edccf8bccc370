"""Loop-invariant code motion over the loop form.

Neither V8 nor Cranelift moves enough code out of loops: without this, address arithmetic dominates simple kernels.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from pyruntime.ir.dtype import BOOL, I32
from pyruntime.ir.expr import Expr, with_args
from pyruntime.ir.kernel import For, Let, Stmt, When, While
from pyruntime.ir.statements import children, rebuild, statements

_LOADS = ("load", "load4", "word")
_NEVER = frozenset((-1,))  # marks, in a set of dependences, an expression that is never invariant


def hoist_invariants(body: list[Stmt], variables: int, written: Collection[int | str]) -> tuple[list[Stmt], int]:
    """The statements with invariants moved out of every loop except the outermost (its body is one work unit), and the
    new number of variables. written: buffers that the kernel stores to; loads from them are not moved. Checks of
    indices stay in loops of steps, which perhaps have none."""
    mutable = {s.var for s in statements(body) if isinstance(s, Let) and s.mutable}
    state = _Hoisting(variables, written, mutable)
    return state.block(body, set(), top=True), state.variables


class _Hoisting:
    def __init__(self, variables: int, written: Collection[int | str], mutable: set[int]) -> None:
        self.variables = variables
        self.written = written
        self.mutable = mutable
        self.lanes: set[int] = set()  # variables of vector loops
        self.deps: dict[int, tuple[Expr, frozenset[int], bool, bool]] = {}

    def block(self, body: list[Stmt], known: set[int], top: bool = False) -> list[Stmt]:
        """Hoist in a list of statements. known: the immutable variables in scope."""
        known = set(known)
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, (For, While)) and not top:
                lets: dict[Any, Let] = {}
                checks = isinstance(s, For) and s.kind != "steps"
                s = _Move(self, known, lets, checks).statement(s, conditional=False, root=True)
                out += lets.values()
                known.update(let.var for let in lets.values())
            if isinstance(s, For) and s.kind == "vector":
                self.lanes.add(s.var)
            if isinstance(s, Let) and not s.mutable:
                known.add(s.var)
            inside = known | {s.var} if isinstance(s, For) else known
            s = rebuild(s, lambda e: e, partial(self.block, known=inside)) if children(s) else s
            out.append(s)
        return out

    def dependences(self, e: Expr) -> tuple[frozenset[int], bool, bool]:
        """The variables that an expression reads, and whether it has a load or a check, or a check, outside of
        guards."""
        found = self.deps.get(id(e))
        if found is not None:
            return found[1:]
        names: frozenset[int] = frozenset()
        checks = e.op == "checked"
        loads = checks or e.op in _LOADS
        for n, a in enumerate(e.args):
            inner, loading, checking = self.dependences(a)
            names = names | inner if names else inner
            if e.op != "guard" or n == 0:
                loads, checks = loads or loading, checks or checking
        if e.op == "var":
            names = _NEVER if e.value in self.mutable else frozenset((e.value,))
        elif e.op in _LOADS and e.value in self.written:
            names |= _NEVER
        self.deps[id(e)] = e, names, loads, checks  # keeps e alive, because its id is the key
        return names, loads, checks


class _Move:
    """Rewrites one loop. `lets` receives the largest invariant expressions as variables. checks: also those that check
    indices"""

    def __init__(self, state: _Hoisting, known: set[int], lets: dict[Any, Let], checks: bool) -> None:
        self.state = state
        self.known = known
        self.lets = lets
        self.checks = checks
        self.memo: dict[tuple[int, bool], Expr] = {}

    def statement(self, s: Stmt, conditional: bool, root: bool = False) -> Stmt:
        def e(x: Expr) -> Expr:
            return self.expression(x, conditional)

        if isinstance(s, For):
            extent = s.extent if root else e(s.extent)
            return For(s.var, extent, self.all(s.body, conditional), s.kind)
        if isinstance(s, While):
            return While(e(s.condition), self.all(s.body, conditional or not root), s.most)
        return rebuild(s, e, lambda body: self.all(body, conditional or isinstance(s, When)))

    def all(self, body: list[Stmt], conditional: bool) -> list[Stmt]:
        return [self.statement(s, conditional) for s in body]

    def expression(self, e: Expr, conditional: bool) -> Expr:
        if not e.args:
            return e
        key = (id(e), conditional)
        if key not in self.memo:
            self.memo[key] = self._moved(e, conditional)
        return self.memo[key]

    def _moved(self, e: Expr, conditional: bool) -> Expr:
        names, loads, checks = self.state.dependences(e)
        # addresses and conditions of lanes stay where they are used: printers derive from them whether lanes are
        # contiguous
        of_lanes = e.dtype in (I32, BOOL) and not loads and not names.isdisjoint(self.state.lanes)
        stays = loads and conditional or checks and not self.checks
        if names <= self.known and not stays and not of_lanes:
            return self._named(e)
        args = [self.expression(a, conditional or (e.op == "guard" and n > 0)) for n, a in enumerate(e.args)]
        return with_args(e, args, e.dtype)

    def _named(self, e: Expr) -> Expr:
        let = self.lets.get(e.key())
        if let is None:
            let = self.lets[e.key()] = Let(self.state.variables, e)
            self.state.variables += 1
        return Expr("var", (), e.dtype, let.var)
