"""Which weights a session trains: those that the options name, or else the model's parameters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import isfinite

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import BF16, F16, F32, F64
from pyruntime.onnx.graph import Graph, uses
from pyruntime.onnx.weight_values import numbers_of
from pyruntime.training.graph.parameter_evidence import Evidence, Finding
from pyruntime.training.graph.recipe import Recipe, matches

NAMED = "is named in the option trainable"


def trained_weights(graph: Graph, recipe: Recipe) -> dict[str, str]:
    """Names of the weights that a step changes, in the model's order, each with the reason: the patterns of the
    options, or else evidence. Warns once where that is thin. Errors: InvalidInput"""
    used = {name for node in graph.nodes for name in uses(node)}
    floats = [n for n, w in graph.weights.items() if w.dtype in (F16, BF16, F32, F64) and n in used]
    known = ", ".join(floats[:8]) + (", …" if len(floats) > 8 else "")
    _check_patterns(graph, recipe, used, floats, known)
    evidence = Evidence(graph)
    if recipe.trainable is None:
        findings = {n: evidence.finding(n) for n in floats}
        found = {n: f.reason for n, f in findings.items() if f.is_trained and not matches(n, recipe.frozen)}
        _warn_of_doubts(findings, recipe)
    else:
        named = [n for n in floats if matches(n, recipe.trainable) and not matches(n, recipe.frozen)]
        found = {n: NAMED for n in named if _may_change(graph, n, recipe, evidence)}
    if not found:
        raise InvalidInput("the model has no weight to train", hint=f"weights are {known or 'none'}")
    return found


def _check_patterns(graph: Graph, recipe: Recipe, used: set[str], floats: list[str], known: str) -> None:
    for pattern in (*(recipe.trainable or ()), *recipe.frozen):
        found = [n for n in graph.weights if matches(n, (pattern,))]
        if not found:
            raise InvalidInput(f'no weight has a name like "{pattern}"', hint=f"weights are {known or 'none'}")
        if pattern in recipe.frozen or any(n in floats for n in found):
            continue
        w = graph.weights[found[0]]
        text = f'"{w.name}" is {w.dtype}: it cannot be trained' if found[0] in used else f'nothing reads "{found[0]}"'
        raise InvalidInput(text, hint="train adapters beside it with the option lora")


def _may_change(graph: Graph, name: str, recipe: Recipe, evidence: Evidence) -> bool:
    """Whether a weight that patterns choose is finite. Errors: InvalidInput for one that is named itself"""
    roles = evidence.uses.get(name)
    if roles is None or roles.weights or isfinite(sum(numbers_of(graph.weights[name]))):
        return True
    if name in (recipe.trainable or ()):
        raise InvalidInput(f'"{name}" has numbers that are not finite: it cannot be trained', hint="it is a mask")
    return False


def _warn_of_doubts(findings: Mapping[str, Finding], recipe: Recipe) -> None:
    doubts = {n: f for n, f in findings.items() if f.is_doubtful and not matches(n, recipe.frozen)}
    if doubts:
        each = [f'"{n}" is {"" if f.is_trained else "not "}trained: it {f.reason}' for n, f in doubts.items()]
        more = f"; and {len(each) - 4} more" if len(each) > 4 else ""
        text = f"pyruntime: not certain which constants are parameters: {'; '.join(each[:4])}{more}"
        warnings.warn(f"{text} (trainable and frozen decide)", RuntimeWarning, stacklevel=2)
