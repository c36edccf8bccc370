"""Computes a Program's named dims, and checks its conditions on shapes, when symbols get values."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pyruntime.errors import ShapeError, UnsupportedSizes
from pyruntime.program.dims import Env, compile_dim, symbols
from pyruntime.program.types import Header

MOST_VALUES = 16  # of symbols in the message of an error


@dataclass(eq=False, slots=True)
class NamedDim:
    """A dim that others refer to by name. symbols: those it depends on, and names of earlier dims."""

    name: str
    value: Callable[[Env], int]
    symbols: set[str]


@dataclass(eq=False, slots=True)
class Guard:
    """A condition. value: 0 where it fails; symbols: those it depends on; message, node: of the error; of_program:
    whether a Program for these sizes alone may accept the shapes."""

    value: Callable[[Env], int]
    symbols: set[str]
    message: str
    node: str
    of_program: bool


class Guards:
    """Of one Program. names: of symbols, for messages."""

    def __init__(self, header: Header) -> None:
        self.names = header["symbols"]
        self.dims = [NamedDim(name, compile_dim(dim), symbols(dim)) for name, dim in header.get("dims", [])]
        self.all = [Guard(compile_dim(g[0]), symbols(g[0]), g[1], g[2], len(g) > 3) for g in header["guards"]]

    def bound(self, env: Env, fresh: AbstractSet[str]) -> None:
        """Symbols have new values: compute the named dims that depend on them, and check the guards that do, if all
        their symbols have values. fresh: these symbols. Errors: ShapeError, UnsupportedSizes"""
        changed = self.compute(env, fresh)
        for guard in self.all:
            used = guard.symbols
            if used <= env.keys() and not (used and used.isdisjoint(changed)) and not guard.value(env):
                hint = self._values(guard, env)
                if guard.of_program:
                    raise UnsupportedSizes(guard.message, node=guard.node, hint=hint)
                raise ShapeError(guard.message, node=guard.node, hint=hint)

    def compute(self, env: Env, fresh: AbstractSet[str]) -> set[str]:
        """Set the named dims that depend on fresh symbols, if all their symbols have values. Returns these symbols and
        the names of these dims."""
        changed = set(fresh)
        for dim in self.dims:
            if dim.symbols <= env.keys() and not dim.symbols.isdisjoint(changed):
                env[dim.name] = dim.value(env)
                changed.add(dim.name)
        return changed

    def _values(self, guard: Guard, env: Env) -> str:
        """The values of the symbols that a guard depends on."""
        used = set(guard.symbols)
        for dim in reversed(self.dims):
            if dim.name in used:
                used.discard(dim.name)
                used.update(dim.symbols)
        found = sorted([f"{self.names.get(name, name)} = {env[name]}" for name in used])
        return ", ".join(found[:MOST_VALUES])
