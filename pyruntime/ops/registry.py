"""The operator table: (domain, name, since) → lowering. The lowering's signature is the operator's schema.

Positional parameters are the inputs (a default of None makes one optional, *xs makes them variadic); keyword-only
parameters are the attributes, under their ONNX names, required where they have no default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyruntime.errors import UnsupportedOp
from pyruntime.expr import Expr, walk

Lowering = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Schema:
    """What a lowering's signature says."""

    attributes: frozenset[str]
    required: frozenset[str]
    min_inputs: int
    max_inputs: int | None  # None: variadic


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    domain: str
    since: int
    lower: Lowering

    @property
    def schema(self) -> Schema:
        return _schema(self.lower)


_TABLE: dict[tuple[str, str], list[Operator]] = {}


def op(name: str, *, since: int = 1, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Register a lowering as the meaning of an operator from opset `since` on.

    It is called as lowering(t, *inputs, **attributes) with a Tracer and Tensors (None for an absent optional input)
    and returns a Tensor, or a tuple of them (None for an output that is not wanted)."""

    def register(fn: Lowering) -> Lowering:
        _add(Operator(name, domain, since, fn))
        return fn

    return register


def _add(operator: Operator) -> None:
    versions = _TABLE.setdefault((operator.domain, operator.name), [])
    versions[:] = sorted([v for v in versions if v.since != operator.since] + [operator], key=lambda v: v.since)


@cache
def _schema(fn: Lowering) -> Schema:
    """Read when an operator is first met: for all 320 it would be some 40 ms of a start in a browser."""
    parameters = list(inspect.signature(fn).parameters.values())[1:]
    inputs = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    attributes = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return Schema(
        frozenset(p.name for p in attributes),
        frozenset(p.name for p in attributes if p.default is p.empty),
        sum(p.default is p.empty for p in inputs),
        None if variadic else len(inputs),
    )


def elementwise(name: str, *, since: int = 1, domain: str = "", expr: Expr) -> None:
    """An operator that is one broadcasting expression of X, Y, Z, W."""
    arity = 1 + max(e.value for e in walk(expr) if e.op == "arg")
    names = ("x", "y", "z", "w")[:arity]

    def lower(t: Any, *xs: Any) -> Any:
        return t.map(expr, *xs)

    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("t", *names)]
    lower.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    lower.__name__ = name
    _add(Operator(name, domain, since, lower))


def find(domain: str, name: str, opset: int, node: str = "") -> Operator:
    """The meaning in force at an opset. An opset newer than the last change of an operator falls through to it;
    those that are newer than all we know were refused by the reader (`NEWEST_OPSETS`)."""
    domain = "" if domain == "ai.onnx" else domain
    versions = _TABLE.get((domain, name))
    where = f"{domain}.{name}" if domain else name
    if not versions:
        raise UnsupportedOp(f"operator {where} is not known", node=node, hint="add it with pyruntime.op")
    found = [v for v in versions if v.since <= opset]
    if not found:
        raise UnsupportedOp(f"operator {where} exists from opset {versions[0].since} on", node=node)
    return found[-1]


def check(operator: Operator, inputs: int, attrs: Mapping[str, object], node: str) -> None:
    """Refuse attributes and inputs that the schema does not have."""
    schema = operator.schema
    unknown = sorted(set(attrs) - schema.attributes)
    if unknown:
        raise UnsupportedOp(f"attribute {unknown[0]} is not supported", node=node)
    missing = sorted(schema.required - set(attrs))
    if missing:
        raise UnsupportedOp(f"attribute {missing[0]} is required", node=node)
    if inputs < schema.min_inputs or schema.max_inputs is not None and inputs > schema.max_inputs:
        raise UnsupportedOp(f"takes {schema.min_inputs} to {schema.max_inputs} inputs, has {inputs}", node=node)


def table() -> Mapping[tuple[str, str], list[Operator]]:
    return _TABLE
