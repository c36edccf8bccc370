"""Names of symbols in the Program, and dims as JSON."""

from __future__ import annotations

from typing import Any

from pyruntime.ir.kernel import Binds
from pyruntime.ir.shape import AnyDim, Dim, Operation, operations
from pyruntime.ir.symbol import Symbol

LARGEST = 128  # operations and operands that a dim spells out. Larger dims get a name, to which others refer.


class SymbolNames:
    """Names are `s0`, `s1`, … in the order in which the Program mentions its symbols.

    named: dims with names, each of symbols and earlier ones
    """

    def __init__(self) -> None:
        self.names: dict[Symbol, str] = {}
        self.named: list[tuple[str, Any]] = []
        self._dims: dict[Dim, Any] = {}  # cached, because a Program mentions each dim about ten times
        self._operations: dict[Operation, Any] = {}

    def name(self, s: Symbol) -> str:
        return self.names.setdefault(s, f"s{len(self.names)}")

    def dim(self, d: AnyDim) -> Any:
        """int | "name" | [op, operand, …] with op in + * floordiv max min lt le eq select."""
        if isinstance(d, int):
            return d
        found = self._dims.get(d)
        if found is None:
            for operation in operations(d, self._operations):
                operands = [self._polynomial(a) for a in operation.args]
                self._operations[operation] = self._short([operation.op, *operands])
            found = self._polynomial(d)
        return found

    def binds(self, binds: Binds) -> list[Any]:
        return [[position, axis, self.name(s)] for position, axis, s in binds]

    def _polynomial(self, d: AnyDim) -> Any:
        """A dim whose operations are in JSON already."""
        if isinstance(d, int):
            return d
        if d not in self._dims:
            terms = []
            for m, c in d.terms:
                factors = [self._operations[f] if isinstance(f, Operation) else self.name(f) for f in m]
                if c != 1 or not factors:
                    factors.insert(0, c)
                terms.append(factors[0] if len(factors) == 1 else ["*", *factors])
            self._dims[d] = self._short(terms[0] if len(terms) == 1 else ["+", *terms])
        return self._dims[d]

    def _short(self, dim: Any) -> Any:
        """The dim, or the name of a large one."""
        if _size(dim) <= LARGEST:
            return dim
        self.named.append((f"d{len(self.named)}", dim))
        return self.named[-1][0]


def _size(dim: Any) -> int:
    """Operations and operands."""
    return 1 + sum(map(_size, dim[1:])) if isinstance(dim, list) else 1
