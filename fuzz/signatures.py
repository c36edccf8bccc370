"""Signatures of operators: the schemas of onnx, and of onnxruntime for Microsoft's operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx

import pyruntime.ops  # noqa: F401  fills the registry
from pyruntime.frontend import registry

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Parameter:
    """kind: a key of `Signature.types`, or a type such as "tensor(int64)". option: Single, Optional or Variadic."""

    name: str
    kind: str
    option: str


@dataclass(frozen=True)
class Signature:
    """One version of an operator; attributes: name -> (INT, FLOATS, …; required; default or None)."""

    name: str
    domain: str
    since: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    min_inputs: int
    max_inputs: int
    types: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, tuple[str, bool, Any]]

    def parameter(self, index: int) -> Parameter | None:
        """The parameter of an input; the last one of a variadic list stands for all further ones."""
        if index < len(self.inputs):
            return self.inputs[index]
        return self.inputs[-1] if self.inputs and self.inputs[-1].option == "Variadic" else None

    def allowed(self, parameter: Parameter) -> tuple[str, ...]:
        return self.types.get(parameter.kind, (parameter.kind,))


@cache
def signatures() -> Mapping[tuple[str, str], tuple[Signature, ...]]:
    """(domain, name) -> versions in ascending order, of every operator that our registry knows."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found: dict[tuple[str, str], dict[int, Signature]] = {}
    theirs = [s for s in get_all_operator_schema() if s.domain == MICROSOFT]
    for schema in [*onnx.defs.get_all_schemas_with_history(), *theirs]:
        key = (schema.domain, schema.name)
        if key in registry.table() and not getattr(schema, "deprecated", False):
            found.setdefault(key, {})[schema.since_version] = _read(schema)
    return {key: tuple(found[key][v] for v in sorted(found[key])) for key in sorted(found)}


def find(domain: str, name: str, opset: int) -> Signature | None:
    """The version in force at an opset."""
    versions = [s for s in signatures().get((domain, name), ()) if s.since <= opset]
    return versions[-1] if versions else None


def _read(schema: Any) -> Signature:
    def parameters(formal: Any) -> tuple[Parameter, ...]:
        kind = "type_str" if hasattr(schema, "doc") and isinstance(schema, onnx.defs.OpSchema) else "typeStr"
        return tuple(Parameter(p.name, getattr(p, kind), str(p.option).rpartition(".")[2]) for p in formal)

    types = {c.type_param_str: tuple(sorted(c.allowed_type_strs)) for c in schema.type_constraints}
    attributes = {
        name: (str(a.type).rpartition(".")[2], bool(a.required), _default(a)) for name, a in schema.attributes.items()
    }
    return Signature(
        schema.name, schema.domain, schema.since_version, parameters(schema.inputs), parameters(schema.outputs),
        schema.min_input, min(schema.max_input, 1 << 16), types, dict(sorted(attributes.items())),
    )  # fmt: skip


def _default(attribute: Any) -> Any:
    value = getattr(attribute, "default_value", None)
    if value is None:
        value = onnx.AttributeProto.FromString(attribute._default_value)  # onnxruntime gives bytes
    return onnx.helper.get_attribute_value(value) if value.type else None
