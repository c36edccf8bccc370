"""Names of symbols in the Program, and dims as JSON."""

from __future__ import annotations

from typing import Any

from pyruntime.ir.kernel import Binds
from pyruntime.ir.shape import AnyDim, Dim, to_json
from pyruntime.ir.symbol import Symbol


class SymbolNames:
    """Names are `s0`, `s1`, … in the order in which the Program mentions its symbols."""

    def __init__(self) -> None:
        self.names: dict[Symbol, str] = {}
        self._dims: dict[Dim, Any] = {}  # cached, because a Program mentions each dim about ten times

    def name(self, s: Symbol) -> str:
        return self.names.setdefault(s, f"s{len(self.names)}")

    def dim(self, d: AnyDim) -> Any:
        if isinstance(d, int):
            return d
        found = self._dims.get(d)
        if found is None:
            found = self._dims[d] = to_json(d, self.name)
        return found

    def binds(self, binds: Binds) -> list[Any]:
        return [[position, axis, self.name(s)] for position, axis, s in binds]
