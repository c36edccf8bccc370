"""The providers that users have added of one session in a page or in Pyodide. Twin of the part of
pyruntime/native/sessions/recovery.py for such providers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from pyruntime.errors import ExecutionError
from pyruntime.placement.open_providers import ALL
from pyruntime.placement.provider_list import effective, known, open_providers
from pyruntime.providers import BASE
from pyruntime.runtime.recovery import Move, text_of_moves


class SessionProviders:
    """host: of `PageCompiler`; moves: what has left its provider"""

    def __init__(self, host: Mapping[str, Any]) -> None:
        given = host.get("providerOptions") or {}
        self._names = host.get("executionProviders") or []
        self._may_leave = host.get("fallback", True) and not host.get("training")
        named = [(name, given.get(name, {})) for name in self._names]
        self.opened = open_providers(named, host.get("threads", 1), host.get("fallback", True))
        self.moves: list[Move] = []

    def leave(self, error: ExecutionError) -> bool:
        """From now on the nodes at fault leave the provider that failed, with a warning. Returns whether this changes
        anything, so that the work may be repeated."""
        provider = self.opened.get(error.provider)
        if provider is None or not self._may_leave or not provider.leave(error):
            return False
        names = effective(known(self._names))
        following = next(iter(names[names.index(error.provider) + 1 :]), BASE)
        nodes = {ALL: error.message} if ALL in provider.refused else error.at_fault
        made = [Move(node, why, following) for node, why in nodes.items()]
        self.moves += made
        warnings.warn(text_of_moves(made), stacklevel=2)
        return True

    def leave_nodes(self, provider: str, nodes: str) -> bool:
        """The same after a fault that JavaScript has seen. nodes: JSON, reasons by node"""
        at_fault = json.loads(nodes)
        error = ExecutionError(next(iter(at_fault.values())))
        error.provider, error.at_fault = provider, at_fault
        return self.leave(error)

    @property
    def moved(self) -> str:
        """JSON of `moves`."""
        return json.dumps([{"node": move.node, "reason": move.reason, "to": move.to} for move in self.moves])

    def close(self) -> None:
        self.opened.close()
