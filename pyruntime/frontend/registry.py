"""The operator table: (domain, name, since) → lowering. The lowering's signature is the operator's schema.

Positional parameters are the inputs (a default of None makes one optional, *xs makes them variadic); keyword-only
parameters are the attributes, under their ONNX names, required where they have no default, and of the type of their
annotation or else of their default: a node that gives another one is refused, as the standard has it.
"""

from __future__ import annotations

import inspect
import reprlib
import sys
from _thread import RLock  # `threading` would be one more module of a page's start
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

from pyruntime.errors import InvalidInput, InvalidModel, UnsupportedOp
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, walk
from pyruntime.ir.reference import round_float
from pyruntime.onnx.graph import Graph, Weight

Lowering = Callable[..., Any]

# What signatures say of attributes, as the reader gives them, and as errors call them.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "an int"),
    "float": ((float,), "a float"),
    "str": ((str, bytes), "a string"),  # bytes where it is not UTF-8
    "Sequence[int]": ((int,), "ints"),
    "Sequence[float]": ((float,), "floats"),
    "Sequence[str]": ((str, bytes), "strings"),
    "Weight": ((Weight,), "a tensor"),
    "Graph": ((Graph,), "a graph"),
}


@dataclass(frozen=True, slots=True)
class Schema:
    """What a lowering's signature says."""

    attributes: frozenset[str]
    required: frozenset[str]
    min_inputs: int
    named_inputs: int  # those before a variadic list
    max_inputs: int | None  # None: variadic
    kinds: Mapping[str, tuple[str, ...]]  # of attributes: of _KINDS; () is any
    floats: Mapping[str, float]  # defaults as ONNX has them, in 32 bits: it shows where doubles are computed with


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    domain: str
    since: int
    lower: Lowering

    @property
    def schema(self) -> Schema:
        return _schema(self.lower)


_HOW = (
    'add it with ort.python: docs/api.md, "Operators of your own"'
    if sys.platform == "emscripten"
    else 'add it with pyruntime.op: CONTRIBUTING.md, "Add an operator in 15 lines"'
)

_TABLE: dict[tuple[str, str], list[Operator]] = {}
_LATER: list[str] = []
_OURS: set[Operator] = set()
_LOCK = RLock()  # held while families are imported: none sees the half of an operator's versions


def later(module: str) -> None:
    """A module that registers operators of its own, imported when one is asked for that is not known. The engine's that
    are not in such a module are registered."""
    _LATER.append(module)
    _OURS.update(_all())


def is_extended() -> bool:
    """Whether there are operators that are not the engine's."""
    return not _OURS.issuperset(_all())


def _all() -> set[Operator]:
    return {version for versions in _TABLE.values() for version in versions}


def complete() -> None:
    """Import what was put off; all of it or, where that fails or is interrupted, nothing."""
    with _LOCK:
        for module in _LATER:
            _import(module)
        _LATER.clear()


def _import(module: str) -> None:
    before, modules = dict(_TABLE), set(sys.modules)
    try:
        ours = not is_extended()
        import_module(module)
        if ours:
            _OURS.update(_all())
    except BaseException:
        _TABLE.clear()
        _TABLE.update(before)
        package = module.rpartition(".")[0]
        for name in [n for n in sys.modules.keys() - modules if n.startswith(f"{package}.")]:
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(child, None)
        raise


def op(name: str, *, since: int = 1, domain: str = "", replaces: bool = False) -> Callable[[Lowering], Lowering]:
    """Register a lowering as the meaning of an operator from opset `since` on.

    It is called as lowering(t, *inputs, **attributes) with a Tracer and Tensors (None for an absent optional input)
    and returns a Tensor, or a tuple of them (None for an output that is not wanted).
    `replaces`: it takes the place of the meaning that is registered from this very opset on.
    Errors: InvalidInput for a second meaning that does not say so, and for one that says so and is the first."""

    def register(fn: Lowering) -> Lowering:
        _add(Operator(name, domain, since, fn), replaces)
        return fn

    return register


def _add(operator: Operator, replaces: bool) -> None:
    operator = replace(operator, domain=_plain(operator.domain))
    versions = _TABLE.get((operator.domain, operator.name), [])
    others = [v for v in versions if v.since != operator.since]
    what = f"operator {_spelled(operator.domain, operator.name)} from opset {operator.since} on"
    if len(others) < len(versions) and not replaces:
        raise InvalidInput(f"{what} is defined already", hint="say replaces=True to put this meaning in its place")
    if len(others) == len(versions) and replaces:
        raise InvalidInput(f"{what} is not defined, so nothing is replaced", hint="say since= as the first one does")
    _TABLE[operator.domain, operator.name] = sorted([*others, operator], key=lambda v: v.since)


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _spelled(domain: str, name: str) -> str:
    return f"{domain}.{name}" if domain else name


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
        len(inputs),
        None if variadic else len(inputs),
        {p.name: _kinds(p) for p in attributes},
        {p.name: round_float(p.default, F32) for p in attributes if isinstance(p.default, float)},
    )


def _kinds(attribute: inspect.Parameter) -> tuple[str, ...]:
    """What an attribute may be; nothing where the signature does not say."""
    said = attribute.annotation
    if said is attribute.empty:
        said = type(attribute.default)
    kinds = (said if isinstance(said, str) else getattr(said, "__name__", "")).removesuffix(" | None").split(" | ")
    return tuple(kinds) if all(kind in _KINDS for kind in kinds) else ()


def _fits(value: object, kind: str) -> bool:
    types = _KINDS[kind][0]
    if kind.startswith("Sequence"):
        return isinstance(value, tuple) and all(issubclass(t, types) for t in set(map(type, value)))
    return isinstance(value, types)


def elementwise(name: str, *, since: int = 1, domain: str = "", expr: Expr, replaces: bool = False) -> None:
    """An operator that is one broadcasting expression of X, Y, Z, W; otherwise as `op`."""
    arity = 1 + max(e.value for e in walk(expr) if e.op == "arg")
    names = ("x", "y", "z", "w")[:arity]

    def lower(t: Any, *xs: Any) -> Any:
        return t.map(expr, *xs)

    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("t", *names)]
    lower.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    lower.__name__ = name
    _add(Operator(name, domain, since, lower), replaces)


def find(domain: str, name: str, opset: int, node: str = "") -> Operator:
    """The meaning in force at an opset. An opset newer than the last change of an operator falls through to it;
    those that are newer than all we know were refused by the reader (`NEWEST_OPSETS`)."""
    domain = _plain(domain)
    with _LOCK:
        if (domain, name) not in _TABLE:
            complete()
        versions = _TABLE.get((domain, name))
    where = _spelled(domain, name)
    if not versions:
        raise UnsupportedOp(f"operator {where} is not known", node=node, hint=_HOW)
    found = [v for v in versions if v.since <= opset]
    if not found:
        raise UnsupportedOp(f"operator {where} exists from opset {versions[0].since} on", node=node)
    return found[-1]


def check(operator: Operator, args: Sequence[object], attrs: Mapping[str, object], node: str) -> None:
    """Refuse attributes and inputs that the schema does not have. args: None where absent."""
    schema = operator.schema
    names, count = attrs.keys(), len(args)
    if not names <= schema.attributes:
        raise UnsupportedOp(f"attribute {min(names - schema.attributes)} is not supported", node=node)
    if not names >= schema.required:
        raise UnsupportedOp(f"attribute {min(schema.required - names)} is required", node=node)
    if count < schema.min_inputs or schema.max_inputs is not None and count > schema.max_inputs:
        raise UnsupportedOp(f"takes {schema.min_inputs} to {schema.max_inputs} inputs, has {count}", node=node)
    if any(x is None for x in args[schema.named_inputs :]):
        raise InvalidModel("an input in the midst of a list of them is absent", node=node)


def check_kinds(operator: Operator, attrs: Mapping[str, object], node: str) -> None:
    """Refuse attributes of another type than the signature says: a float where it has an int would be cut off."""
    allowed = operator.schema.kinds
    for name, value in attrs.items():
        kinds = allowed[name]
        if kinds and not any(_fits(value, kind) for kind in kinds):
            wanted = " or ".join(_KINDS[kind][1] for kind in kinds)
            raise InvalidModel(f"attribute {name} must be {wanted}, is {reprlib.repr(value)}", node=node)


def table() -> Mapping[tuple[str, str], list[Operator]]:
    """All of them."""
    complete()
    return _TABLE
