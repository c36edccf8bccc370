"""Checks a Program's conditions on shapes. web/run/guards.js is its twin."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyruntime.errors import ShapeError
from pyruntime.program import types
from pyruntime.program.dims import compile_dim, symbols


class Guards:
    """names: of symbols, for messages."""

    def __init__(self, header: types.Header) -> None:
        self.names: Mapping[str, str] = header.get("symbols", {})
        self._all = [(compile_dim(c), symbols(c), *rest) for c, *rest in header["guards"]]

    def check(self, env: Mapping[str, int], fresh: Collection[str]) -> None:
        """Evaluate the guards whose symbols are all bound, some of them `fresh`. Errors: ShapeError for 0."""
        for guard, used, text, node in self._all:
            if used <= env.keys() and (not used or not used.isdisjoint(fresh)) and not guard(env):
                hint = ", ".join(sorted(f"{self.names.get(name, name)} = {env[name]}" for name in used))
                raise ShapeError(text, node=node, hint=hint)


__all__ = ["Guards"]
