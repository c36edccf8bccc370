"""Every version of every ONNX operator that the table knows takes the attributes, of their types, and the inputs of its
schema."""

from __future__ import annotations

import onnx
import pytest

import pyruntime.ops  # noqa: F401
from pyruntime.errors import UnsupportedOp
from pyruntime.frontend import registry

SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in ("", "ai.onnx.ml")]

KINDS = {
    "INT": "int", "FLOAT": "float", "STRING": "str",
    "INTS": "Sequence[int]", "FLOATS": "Sequence[float]", "STRINGS": "Sequence[str]",
}  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.name}-{s.since_version}")
def test_signature(schema: onnx.defs.OpSchema) -> None:
    try:
        found = registry.find(schema.domain, schema.name, schema.since_version).schema
    except UnsupportedOp:
        pytest.skip("not in the table")
    for name, attribute in schema.attributes.items():
        assert name == "consumed_inputs" or set(KINDS.get(attribute.type.name, "").split()) <= set(found.kinds[name])
    assert set(schema.attributes) <= found.attributes | {"consumed_inputs"}
    assert found.min_inputs <= schema.min_input
    assert found.max_inputs is None or found.max_inputs >= schema.max_input
