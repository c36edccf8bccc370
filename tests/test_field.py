"""Networks of kit/field in their schemes of quantisation, in their small forms, on WebAssembly."""

from __future__ import annotations

import onnx
import pytest

from bench import models
from kit import field
from kit.models import assert_close
from tests.conftest import Open

# Every family in float32 and in one quantised scheme; one family in every scheme.
CHOSEN = [
    name
    for name in field.names()
    for family, scheme, batch in [field.parts(name)]
    if family == "residual" or (scheme in ("f32", "dynamic", "qdq") and batch == 1)
]


@pytest.mark.parametrize("name", CHOSEN)
def test_small_form(name: str, open_session: Open) -> None:
    session = open_session(field.materialize(name, small=True))
    outputs = session.run(None, field.inputs(name, small=True))
    assert_close(field.expected(name, small=True), outputs, field.tolerance(name, small=True))


def test_schemes_have_their_operators_and_the_same_weights() -> None:
    """Each scheme puts its own operators into the graph, and the weights are those of float32."""
    wanted = {"qdq": "DequantizeLinear", "qop": "QLinearConv", "f16": "Conv"}
    for scheme, operator in wanted.items():
        model = onnx.load(field.materialize(f"residual.{scheme}", small=True))
        assert operator in {node.op_type for node in model.graph.node}
    plain, quantised = (field.expected(f"residual.{scheme}", small=True)[0] for scheme in ("f32", "qdq"))
    assert abs(plain - quantised).max() < 0.1 * abs(plain).max()


def test_the_field_is_wide() -> None:
    assert len(field.names()) >= 60
    assert {field.parts(name)[0] for name in field.names()} == field.FAMILIES.keys()
    assert not set(field.names()) & set(models.names())
