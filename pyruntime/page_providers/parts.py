"""The parts of a Program that providers have taken, for the executor in JavaScript."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.errors import ExecutionError
from pyruntime.host import ARRAYS, values_of_symbols
from pyruntime.host.arrays import CopiedArrays
from pyruntime.ir.kernel import Host
from pyruntime.ir.shape import evaluate
from pyruntime.ir.symbol import Symbol
from pyruntime.placement.open_providers import CompiledPart, OpenProvider
from pyruntime.placement.own_memory import OwnMemory


class Parts:
    """steps: the Program's Host steps; symbols: its symbols by name"""

    def __init__(self, steps: Sequence[Host], symbols: Mapping[str, Symbol]) -> None:
        self._symbols = symbols
        self._steps = {n: step for n, step in enumerate(steps) if step.fn == ARRAYS}
        self._own_memory = OwnMemory()
        providers = [self._part(n).provider for n in self._steps]
        self.providers: dict[str, OpenProvider] = {p.name: p for p in providers}

    def _part(self, number: int) -> CompiledPart:
        return self._steps[number].attrs["part"]

    def described(self) -> str:
        """JSON, by number of the step. number, names: of a part in JavaScript, and the names by which it knows the
        Program's symbols"""
        return json.dumps({n: self._described(self._part(n)) for n in self._steps})

    def _described(self, part: CompiledPart) -> dict[str, Any]:
        about = {"provider": part.provider.name, "nodes": list(part.nodes), "number": None}
        made: Any = part.compiled  # BoundInJavaScript, or a function in Python
        if (form := getattr(made, "form", None)) is None:
            return about
        known = form.names.names
        names = {name: known[symbol] for name, symbol in self._symbols.items() if symbol in known}
        return {**about, "number": made.number, "names": names}

    def bind(self, number: int, dims: str, env: str) -> CopiedArrays:
        """The arrays of a part in Python. dims: JSON, of its inputs; env: JSON, values of symbols by name"""
        values = values_of_symbols(self._symbols, json.loads(env))
        outputs = [[evaluate(d, values) for d in t.shape] for t in self._steps[number].outputs]
        return CopiedArrays(self._part(number), [*json.loads(dims), *outputs], values, self._own_memory)

    def run_start(self, provider: str) -> None:
        self.providers[provider].run_start()

    def run_end(self, provider: str, error: str) -> None:
        """error: of the run; "" without one"""
        failed = ExecutionError(error) if error else None
        self.providers[provider].run_end(None, failed, None)
