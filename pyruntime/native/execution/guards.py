"""Conditions on shapes that a Program states. web/run/guards.js is its mirror."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyruntime.errors import ShapeError
from pyruntime.program import types
from pyruntime.program.dims import compile_dim, symbols


class Guards:
    """Of one Program, by its header. `shown`: what messages call the symbols."""

    def __init__(self, header: types.Header) -> None:
        self.shown: Mapping[str, str] = header.get("symbols", {})
        self._all = [(compile_dim(c), symbols(c), *told) for c, *told in header["guards"]]

    def check(self, env: Mapping[str, int], fresh: Collection[str]) -> None:
        """Look at those all of whose symbols have values, one of them just now. Errors: ShapeError if one is 0."""
        for guard, names, text, node in self._all:
            if names <= env.keys() and (not names or not names.isdisjoint(fresh)) and not guard(env):
                hint = ", ".join(sorted(f"{self.shown.get(name, name)} = {env[name]}" for name in names))
                raise ShapeError(text, node=node, hint=hint)


__all__ = ["Guards"]
