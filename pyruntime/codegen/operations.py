"""How many operations expressions and statements take, as an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.kernel import For, Stmt, When, While
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import expressions

UNKNOWN = 8  # assumed iterations of a loop whose extent is not known
_FREE = frozenset(("const", "index", "dim", "arg", "var"))
_LONG = frozenset("exp log sin cos tan tanh erf pow sinh cosh asin acos atan asinh acosh atanh".split())


def weight(*roots: Expr) -> int:
    """Operations for one element."""
    return 1 + sum(8 if e.op in _LONG else 1 for root in roots for e in walk(root) if e.op not in _FREE)


def statements(body: Sequence[Stmt]) -> AnyDim:
    """Operations of statements; conditions count both branches."""
    total: AnyDim = 0
    for s in body:
        if isinstance(s, For):
            known = s.extent.op in ("dim", "const")
            total = total + statements(s.body) * (s.extent.value if known else UNKNOWN)
        elif isinstance(s, While):
            total = total + statements(s.body) * (UNKNOWN if s.most is None else s.most)
        elif isinstance(s, When):
            total = total + statements((*s.then, *s.orelse))
        else:
            total = total + weight(*expressions(s))
    return total
