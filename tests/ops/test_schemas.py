"""Every version of every registered ONNX operator accepts the attributes, with their types, and the inputs of its
schema."""

from __future__ import annotations

import onnx
import pytest

import pyruntime.ops  # noqa: F401
from pyruntime import InferenceSession, InvalidModel
from pyruntime.errors import ShapeError, UnsupportedOp
from pyruntime.frontend import operator_types, registry
from pyruntime.frontend.signatures import signature
from scripts import operator_types as generator

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


def test_the_table_of_types_is_that_of_the_standard() -> None:
    assert generator.TARGET.read_text() == generator.render(), "run python -m scripts.operator_types"
    assert generator.TARGET.stat().st_size < 40_000  # a browser downloads it
    assert "SETS" in vars(operator_types)


def test_versions_and_what_is_not_the_standards() -> None:
    softmax = signature("", "Softmax", 12)
    assert softmax is not None and softmax.parameters[0].types == "AJK"
    assert (later := signature("", "Softmax", 22)) is not None and later.parameters[0].types == "AJKP"
    assert signature("my.ops", "Softmax", 1) is None and signature("", "Gelu", 19) is None


@pytest.mark.parametrize(("inputs", "node", "text"), [
    ("int64[3] x", "y = Softmax (x)", 'input "x" is int64, allowed is float32, float16, float64, bfloat16'),
    ("float[3] x, int64[3] z", "y = Add (x, z)", '"x" and "z" must have the same type, but are float32 and int64'),
    ("float[3] x, double[3] z", "y = Sum (x, x, z)", 'inputs "x" and "z" must have the same type'),
    ("float[3] x", "y = Add (x)", "takes 2 inputs, has 1"),
    ("float[3] x", "y = Relu (x, x)", "takes 1 inputs, has 2"),
    ("float[3] x", "y = Conv (, x)", "input 0 is required"),
    ("float[3] x", "y, z, w = TopK (x, x)", "has at most 2 outputs, the node names 3"),
    ("string[3] x", "y = Neg (x)", 'input "x" is string'),
    ("float[3] x, float[1] k", "y, z = TopK (x, k)", 'input "k" is float32, allowed is int64'),
    ("complex64[3] x", "y = Relu (x)", "complex64"),
    ("complex64[3] x", "y = Identity (x)", "complex64"),
    ("float[3] x", "y = SequenceLength (x)", 'input "x" is float32, allowed is a sequence'),
    ("float[3, 3] x", "y = EyeLike<dtype=8> (x)", "cannot give string, allowed is float32, uint8, int8"),
    ("int64 x", "y = HannWindow<output_datatype=8> (x)", "cannot give string"),
    ("float[3] x", "y = RandomNormalLike<dtype=7> (x)", "cannot give int64, allowed is float32, float16, float64"),
    ("float[3, 3] x", "y = Multinomial<dtype=1> (x)", "cannot give float32, allowed is int32, int64"),
])  # fmt: skip
def test_types_that_the_standard_does_not_allow(inputs: str, node: str, text: str) -> None:
    model = f'<ir_version: 10, opset_import: ["" : 22]> g ({inputs}) => (float y) {{ {node} }}'
    data = onnx.parser.parse_model(model).SerializeToString()
    with pytest.raises((InvalidModel, ShapeError, UnsupportedOp), match=text):
        InferenceSession(data)
