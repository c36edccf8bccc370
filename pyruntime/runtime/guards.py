"""Checks a Program's conditions on shapes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyruntime.errors import ShapeError
from pyruntime.program.dims import Env, compile_dim, symbols
from pyruntime.program.types import Header


@dataclass(eq=False, slots=True)
class Guard:
    """A condition. value: 0 where it fails; symbols: those it depends on; message, node: of the error."""

    value: Callable[[Env], int]
    symbols: set[str]
    message: str
    node: str


class Guards:
    """Of one Program. names: of symbols, for messages."""

    def __init__(self, header: Header) -> None:
        self.names = header["symbols"]
        self.all = [Guard(compile_dim(dim), symbols(dim), message, node) for dim, message, node in header["guards"]]

    def check(self, env: Env, fresh: AbstractSet[str]) -> None:
        """Check the guards whose symbols all have values, some of them new. fresh: symbols with new values. Errors:
        ShapeError."""
        for guard in self.all:
            used = guard.symbols
            if used <= env.keys() and not (used and used.isdisjoint(fresh)) and not guard.value(env):
                raise ShapeError(guard.message, node=guard.node, hint=self._values(guard, env))

    def _values(self, guard: Guard, env: Env) -> str:
        return ", ".join(sorted([f"{self.names.get(name, name)} = {env[name]}" for name in guard.symbols]))
