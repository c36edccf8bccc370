"""Dims and inputs of a model may be called what the engine, or JavaScript, calls its own."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from kit.chromium import Engine
from kit.small_models import model

FLOAT = TensorProto.FLOAT
INPUTS = ["x", "constructor", "toString", "u1"]
DIMS = ["u1", "x.0", "s0", "", "batch+1", '["+", "s0", 1]', "constructor", "n" * 10_000]


@pytest.mark.parametrize("dim", DIMS, ids=[d[:14] for d in DIMS])
def test_dims_of_any_name(dim: str, engine: Engine) -> None:
    """NonZero finds a size in each run, of which Neg beside it must know nothing."""
    nodes = [helper.make_node("NonZero", ["x"], ["found"]), helper.make_node("Neg", ["x"], ["y"])]
    made = model(nodes, [("x", FLOAT, [dim])], [("found", TensorProto.INT64, None), ("y", FLOAT, None)])
    session = engine.open(made.SerializeToString())
    for values in ([0, 1, 0, 2], [3], [0, 0], [0, 1, 0, 2]):
        x = np.array(values, np.float32)
        found, y = session.run(None, {"x": x})
        np.testing.assert_array_equal(found, np.array(np.nonzero(x)))
        np.testing.assert_array_equal(y, -x)
    session.release()


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_and_outputs_of_any_name(name: str, engine: Engine) -> None:
    """A sequence, inputs called like its items, and outputs called like members of every object."""
    nodes = [
        helper.make_node("ConcatFromSequence", [name], ["joined"], axis=0),
        helper.make_node("Neg", [f"{name}[0]"], ["valueOf"]),
        helper.make_node("Neg", [f"{name}[1]"], ["hasOwnProperty"]),
    ]
    outputs = ["joined", "valueOf", "hasOwnProperty"]
    made = model(
        nodes, [(f"{name}[{n}]", FLOAT, [f"{name}[{n}].0"]) for n in range(2)], [(o, FLOAT, None) for o in outputs]
    )
    made.graph.input.insert(0, helper.make_tensor_sequence_value_info(name, FLOAT, [None]))
    session = engine.open(made.SerializeToString())
    for sizes in ((1, 2, 3, 4), (4, 1, 2, 2)):
        items = [np.full(n, k, np.float32) for k, n in enumerate(sizes)]
        feeds = {name: items[:2], f"{name}[0]": items[2], f"{name}[1]": items[3]}
        want = [np.concatenate(items[:2]), -items[2], -items[3]]
        for ours, theirs in zip(session.run(None, feeds), want, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        (only,) = session.run(["joined"], feeds)
        np.testing.assert_array_equal(only, want[0])
    session.release()
