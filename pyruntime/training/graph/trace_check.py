"""Checks traces, which pages send as JSON (pyruntime/runtime/traced_vocabulary.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any
from zlib import crc32

from pyruntime.errors import InvalidInput
from pyruntime.runtime.traced_vocabulary import ELEMENTWISE, SHAPED
from pyruntime.training.graph.option_checks import not_negative


def check_trace(nodes: Any, leaves: Sequence[str]) -> list[Any]:
    """The trace. leaves: kinds of nodes without operands. Errors: InvalidInput"""
    try:
        for place, (name, operands, settings) in enumerate(nodes):
            is_end = place == len(nodes) - 1
            known = name == "return" if is_end else name in ELEMENTWISE or name in SHAPED or name in leaves
            assert known and isinstance(settings, dict) and bool(operands) != (name in leaves), name
            assert is_end or operands or isinstance(settings["name"], str), name
            for x in operands:
                assert _is_operand(x, place), x
        assert nodes
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput("this is no trace of a function", hint="give the function itself") from error
    return list(nodes)


def function_optimizer(own: Any) -> tuple[str, dict[str, float], tuple[Any, ...]]:
    """An optimiser that is a function: a name that differs for others, its settings, and its trace for each rank of a
    weight. own: the traces as `update`, and numbers, of which it reads `rate` and others. Errors: InvalidInput"""
    if not isinstance(own, Mapping) or not isinstance(own.get("update"), (list, tuple)):
        raise InvalidInput("the optimizer has no function", hint='{"function": {"update": function, "rate": 0.01}}')
    traces = [check_trace(nodes, ("weight", "gradient", "state", "number")) for nodes in own["update"]]
    given = {k: not_negative(f"function.{k}", v) for k, v in own.items() if k != "update" and v is not None}
    settings = {"rate": 1e-3, **given}
    if "number" in given:
        raise InvalidInput("function.number cannot be set", hint="step.number is the number of the step")
    for nodes in traces:
        read = {(kind, of["name"]) for kind, operands, of in nodes if not operands}
        if wrong := [name for name in nodes[-1][2]["names"][1:] if not name or "/" in name]:
            raise InvalidInput(f'a state cannot have the name "{wrong[0]}"', hint="a text without a slash")
        for kind, name in sorted(read):
            if kind == "state" and name not in nodes[-1][2]["names"]:
                raise InvalidInput(f"the optimizer reads state.{name} and never sets it", hint="it would always be 0")
            if kind == "number" and name not in ("number", *settings):
                raise InvalidInput(f"the optimizer has no step.{name}", hint=f"known: number, {', '.join(settings)}")
    return f"function {crc32(json.dumps(traces).encode()):08x}", settings, tuple(traces)


def _is_operand(x: Any, place: int) -> bool:
    numbers = x if isinstance(x, (list, tuple)) else [x]
    return 0 <= int(x) < place if isinstance(x, str) else all(isfinite(n) for n in numbers)
