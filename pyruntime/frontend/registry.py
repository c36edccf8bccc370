"""The operator table: (domain, name, since) → lowering. The lowering's signature is the operator's schema.

Positional parameters are the inputs (a default of None makes one optional, *xs makes them variadic). Keyword-only
parameters are the attributes under their ONNX names; those without a default are required. An attribute must have the
type of its annotation, or else of its default, as the standard demands. `attributes_of` adds those of another function.
"""

from __future__ import annotations

import inspect
import reprlib
import sys
from _thread import RLock  # instead of `threading`, which would be one more module to load at a page's start
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
from pyruntime.onnx.parse_graph import normal_domain

Lowering = Callable[..., Any]

# The Python types that the reader returns for an attribute, and the type's name in errors, by annotation.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "an int"),
    "float": ((float,), "a float"),
    "str": ((str, bytes), "a string"),  # bytes if it is not UTF-8
    "Sequence[int]": ((int,), "ints"),
    "Sequence[float]": ((float,), "floats"),
    "Sequence[str]": ((str, bytes), "strings"),
    "Weight": ((Weight,), "a tensor"),
    "Graph": ((Graph,), "a graph"),
}


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema that follows from a lowering's signature."""

    attributes: frozenset[str]
    required: frozenset[str]
    min_inputs: int
    named_inputs: int  # inputs before the variadic ones
    max_inputs: int | None  # None: variadic
    kinds: Mapping[str, tuple[str, ...]]  # by attribute, the keys of _KINDS that its value may have; () allows all
    # defaults of attributes, rounded to 32 bits as in ONNX: float64 arithmetic would show the difference
    floats: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    domain: str
    since: int
    lower: Lowering

    @property
    def schema(self) -> Schema:
        return _schema(self.lower)


_HOW = f"{'ort.python' if sys.platform == 'emscripten' else 'pyruntime.op'} can add it"

INTERNAL = "pyruntime.training"  # domain of the operators that the engine adds to graphs: models have none of them

_TABLE: dict[tuple[str, str], list[Operator]] = {}
_INTERNAL_TABLE: dict[tuple[str, str], list[Operator]] = {}
_LAZY: dict[tuple[str, str], str] = {}  # the modules of operators that are imported when a model has one
_BUILT_IN: set[Operator] = set()
_LOCK = RLock()  # held during imports, so that no thread sees only some of an operator's versions


def register_lazily(operators: Mapping[tuple[str, str], str]) -> None:
    """Register operators whose modules are imported when they are looked up. Call this after all modules that are not
    lazy are imported: all of these operators count as built in.

    operators: the name of the module by domain and name"""
    _LAZY.update(operators)
    _BUILT_IN.update(_all())


def is_extended() -> bool:
    """Whether users have registered operators."""
    return not _BUILT_IN.issuperset(_all())


def _all() -> set[Operator]:
    return {version for versions in _TABLE.values() for version in versions}


def complete() -> None:
    """Import all lazy modules. If an import fails or is interrupted, a later call imports the rest."""
    with _LOCK:
        for module in dict.fromkeys(_LAZY.values()):
            _import(module)
        _LAZY.clear()


def _import(module: str) -> None:
    before, modules = dict(_TABLE), set(sys.modules)
    try:
        import_module(module)
    except BaseException:
        _TABLE.clear()
        _TABLE.update(before)
        package = ".".join(module.split(".")[:2])
        for name in [n for n in sys.modules.keys() - modules if n.startswith(f"{package}.")]:
            del sys.modules[name]
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(child, None)
        raise


def op(name: str, *, since: int = 1, domain: str = "", replaces: bool = False) -> Callable[[Lowering], Lowering]:
    """Register a lowering as the definition of an operator from opset `since` on.

    The compiler calls lowering(t, *inputs, **attributes) with a Tracer and Tensors (None for an absent optional input).
    It returns a Tensor, or a tuple of Tensors (None for an output that the graph does not use).
    replaces: replace the definition that is registered with the same `since`
    Errors: InvalidInput for a second definition without `replaces`, or for `replaces` without a first one."""

    def register(fn: Lowering) -> Lowering:
        if not callable(fn):
            raise InvalidInput(f'the definition of "{name}" is no function: {fn!r}', hint=f'@op("{name}") above a def')
        _add(Operator(name, domain, since, fn), replaces)
        return fn

    return register


def _table_of(domain: str) -> dict[tuple[str, str], list[Operator]]:
    return _INTERNAL_TABLE if domain == INTERNAL else _TABLE


def _add(operator: Operator, replaces: bool) -> None:
    operator = replace(operator, domain=normal_domain(operator.domain))
    table = _table_of(operator.domain)
    versions = table.get((operator.domain, operator.name), [])
    others = [v for v in versions if v.since != operator.since]
    what = f"operator {_spelled(operator.domain, operator.name)} from opset {operator.since} on"
    if len(others) < len(versions) and not replaces:
        raise InvalidInput(f"{what} is defined already", hint="pass replaces=True to replace this definition")
    if len(others) == len(versions) and replaces:
        raise InvalidInput(f"{what} is not defined, so nothing is replaced", hint="pass its since=")
    table[operator.domain, operator.name] = sorted([*others, operator], key=lambda v: v.since)
    if (operator.domain, operator.name) in _LAZY:
        _BUILT_IN.add(operator)


def attributes_of(other: Callable[..., Any]) -> Callable[[Lowering], Lowering]:
    """Let a lowering's `**attributes` stand for the keyword-only parameters of `other`, to which it passes them."""

    def mark(fn: Lowering) -> Lowering:
        fn.attributes_of = other  # type: ignore[attr-defined]
        return fn

    return mark


def _spelled(domain: str, name: str) -> str:
    return f"{domain}.{name}" if domain else name


@cache
def _schema(fn: Lowering) -> Schema:
    """The schema of a lowering, computed when its operator is first used: for all 320 operators it would add 40 ms to a
    start in a browser."""
    parameters = list(inspect.signature(fn).parameters.values())[1:]
    inputs = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    attributes = _attributes(fn)
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


def _attributes(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    own = [p for p in inspect.signature(fn).parameters.values() if p.kind is p.KEYWORD_ONLY]
    other = getattr(fn, "attributes_of", None)
    return own if other is None else own + _attributes(other)


def _kinds(attribute: inspect.Parameter) -> tuple[str, ...]:
    """Keys of _KINDS for an attribute; () if the signature does not tell its type."""
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
    """Register an operator that is one broadcasting expression of X, Y, Z, W. Otherwise like `op`."""
    arity = 1 + max(e.value for e in walk(expr) if e.op == "arg")
    names = ("x", "y", "z", "w")[:arity]

    def lower(t: Any, *xs: Any) -> Any:
        return t.map(expr, *xs)

    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("t", *names)]
    lower.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    lower.__name__ = name
    _add(Operator(name, domain, since, lower), replaces)


def find(domain: str, name: str, opset: int, node: str = "") -> Operator:
    """The definition of an operator at an opset: the newest one that is not newer than the opset. The reader has
    refused opsets beyond `NEWEST_OPSETS`."""
    domain = normal_domain(domain)
    table = _table_of(domain)
    with _LOCK:
        if (domain, name) not in table and (domain, name) in _LAZY:
            _import(_LAZY[domain, name])
        versions = table.get((domain, name))
    where = _spelled(domain, name)
    if not versions:
        raise UnsupportedOp(f"operator {where} is unknown", node=node, hint=_HOW)
    found = [v for v in versions if v.since <= opset]
    if not found:
        raise UnsupportedOp(f"operator {where} exists from opset {versions[0].since} on", node=node)
    return found[-1]


def check(operator: Operator, args: Sequence[object], attrs: Mapping[str, object], node: str) -> None:
    """Check a node's attributes and inputs (None if absent) against the schema. Errors: UnsupportedOp, InvalidModel."""
    schema = operator.schema
    names, count = attrs.keys(), len(args)
    if not names <= schema.attributes:
        raise UnsupportedOp(f"attribute {min(names - schema.attributes)} is not supported", node=node)
    if not names >= schema.required:
        raise UnsupportedOp(f"attribute {min(schema.required - names)} is required", node=node)
    if count < schema.min_inputs or schema.max_inputs is not None and count > schema.max_inputs:
        raise UnsupportedOp(f"takes {schema.min_inputs} to {schema.max_inputs} inputs, has {count}", node=node)
    if any(x is None for x in args[schema.named_inputs :]):
        raise InvalidModel("an input inside a variadic list is absent", node=node)


def check_kinds(operator: Operator, attrs: Mapping[str, object], node: str) -> None:
    """Check the types of attributes: an int parameter would truncate a float. Errors: InvalidModel."""
    allowed = operator.schema.kinds
    for name, value in attrs.items():
        kinds = allowed[name]
        if kinds and not any(_fits(value, kind) for kind in kinds):
            wanted = " or ".join(_KINDS[kind][1] for kind in kinds)
            raise InvalidModel(f"attribute {name} must be {wanted}, is {reprlib.repr(value)}", node=node)


def table() -> Mapping[tuple[str, str], list[Operator]]:
    """The definitions of all operators that models may have, by (domain, name)."""
    complete()
    return _TABLE
