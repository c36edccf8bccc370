"""Indices from data that are out of range end the run with an error that names node, index and extent; nothing outside
the tensor is written, and the session goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper

from kit.gpu import GPU
from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import ExecutionError, ShapeError
from tests.ops.compare import parsed
from tests.ops.node import check_node, floats, ints, node_model, run_node

MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
WILD = [-1, -2, -100, -5000, 7, 100, 5000, 100_000, 10**6, 2**31 - 1, -(2**31), 2**32, 2**32 + 1, 2**40, -(2**40),
        2**63 - 1, -(2**63)]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """args: inputs of the operator (None: absent), of which number `at` holds the indices, at least `low` and at most
    `high`. `constants` are initializers."""

    op: str
    args: list[Any]
    at: int
    low: int
    high: int
    opset: int = 21
    domain: str = ""
    outputs: int = 1
    constants: tuple[int, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)


ROIS = np.array([[0, 0, 3, 3], [1, 1, 4, 4]], np.float32)
CASES = {
    "Gather": Case("Gather", [floats(4, 3), ints(0, 2)], 1, -4, 3, constants=(0,)),
    "Gather of int32": Case("Gather", [floats(4, 3), ints(0, 2, dtype=np.int32)], 1, -4, 3, constants=(0,)),
    "GatherElements": Case("GatherElements", [floats(4, 3), ints(0, 2, 1)[None]], 1, -4, 3),
    "GatherND": Case("GatherND", [floats(4, 3), ints(2)[None]], 1, -4, 3),
    "ScatterElements": Case("ScatterElements", [floats(4, 3), ints(0, 2, 1)[None], floats(1, 3)], 1, -4, 3),
    "ScatterND": Case("ScatterND", [floats(4, 3), ints(2)[None], floats(1, 3)], 1, -4, 3),
    "MaxUnpool": Case(
        "MaxUnpool", [floats(1, 1, 2, 2), ints(0, 3, 8, 10).reshape(1, 1, 2, 2)], 1, 0, 15,
        attrs={"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "ReverseSequence": Case("ReverseSequence", [floats(4, 3, 2), ints(1, 2, 3)], 1, 0, 4),
    "RoiAlign": Case("RoiAlign", [floats(3, 1, 6, 6), ROIS, ints(0, 1)], 2, 0, 2),
    "MaxRoiPool": Case(
        "MaxRoiPool", [floats(3, 1, 6, 6), np.array([[1, 0, 0, 3, 3]], np.float32)], 1, 0, 2,
        attrs={"pooled_shape": [2, 2]},
    ),
    "RotaryEmbedding": Case(
        "RotaryEmbedding", [floats(1, 2, 3, 4), floats(5, 2), floats(5, 2), ints(0, 1, 4)[None]], 3, 0, 4, 23,
        constants=(1, 2),
    ),
    "Microsoft's RotaryEmbedding": Case(
        "RotaryEmbedding", [floats(1, 2, 3, 4), ints(0, 1, 4)[None], floats(5, 2), floats(5, 2)], 1, 0, 4, 17,
        MICROSOFT, constants=(2, 3),
    ),
    "NegativeLogLikelihoodLoss": Case("NegativeLogLikelihoodLoss", [floats(3, 5), ints(0, 4, 2)], 1, 0, 4),
    "ArrayFeatureExtractor": Case("ArrayFeatureExtractor", [floats(3, 5), ints(0, 4, 2)], 1, 0, 4, domain=ML),
    "EmbedLayerNormalization": Case(
        "EmbedLayerNormalization",
        [ints(1, 2, 8, dtype=np.int32)[None], None, floats(9, 4), floats(8, 4), None, floats(4), floats(4)], 0, 0, 8,
        17, MICROSOFT, 2, (2, 3, 5, 6),
    ),
    "its positions": Case(
        "EmbedLayerNormalization",
        [ints(1, 2, 8, dtype=np.int32)[None], None, floats(9, 4), floats(8, 4), None, floats(4), floats(4), None,
         ints(0, 1, 2, dtype=np.int32)[None]], 8, 0, 7, 17, MICROSOFT, 2, (2, 3, 5, 6),
    ),
    "GatherBlockQuantized": Case(
        "GatherBlockQuantized",
        [np.arange(4 * 32, dtype=np.uint8).reshape(4, 32), ints(0, 2), floats(4, 2), np.zeros((4, 1), np.uint8)], 1,
        -4, 3, 21, MICROSOFT, constants=(0, 2, 3), attrs={"bits": 4, "block_size": 32, "quantize_axis": 1},
    ),
    "Attention's lengths": Case(
        "Attention", [floats(2, 1, 2, 4), floats(2, 1, 5, 4), floats(2, 1, 5, 4), None, None, None, ints(3, 5)], 6, 0,
        5, 24, attrs={"is_causal": 1},
    ),
    "LSTM's lengths": Case(
        "LSTM", [floats(4, 3, 3), floats(1, 8, 3), floats(1, 8, 2), None, ints(4, 2, 3, dtype=np.int32)], 4, 0, 4, 21,
        outputs=3, constants=(1, 2), attrs={"hidden_size": 2},
    ),
}  # fmt: skip


class Place(NamedTuple):
    name: str
    threads: int


PLACES = {
    "one thread": Place("wasm", 1),
    "two threads": Place("wasm", 2),
    "webgpu": Place("webgpu", 1),
}


def with_weight(case: Case, place: Place) -> tuple[InferenceSession, dict[str, Any]]:
    """A session that also multiplies by a weight, which writes outside of a tensor would change."""
    m, feeds = node_model(
        case.op, case.args, case.opset, case.outputs, case.domain, constants=case.constants, **case.attrs
    )
    m.graph.node.append(helper.make_node("MatMul", ["beside", "weight"], ["product"]))
    m.graph.input.append(helper.make_tensor_value_info("beside", 1, [2, 64]))
    m.graph.initializer.append(numpy_helper.from_array(floats(64, 64), "weight"))
    m.graph.output.append(helper.make_tensor_value_info("product", 1, [2, 64]))
    options = SessionOptions()
    options.intra_op_num_threads = place.threads
    session = InferenceSession(m.SerializeToString(), options, [GPU, "wasm"] if place.name == "webgpu" else ["wasm"])
    return session, {**feeds, "beside": floats(2, 64)}


def filled(case: Case, good: np.ndarray, value: int) -> np.ndarray:
    """All indices replaced: MaxRoiPool's are the first number of each region."""
    out = good.copy()
    out[(..., 0) if case.op == "MaxRoiPool" else ...] = value
    return out


@pytest.mark.parametrize("providers", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wild_index_is_refused(case: Case, providers: Place) -> None:
    session, feeds = with_weight(case, providers)
    name, good = f"x{case.at}", feeds[f"x{case.at}"]
    before = session.run(None, feeds)
    for wild in [case.low - 1, case.high + 1, *WILD]:
        limits = np.iinfo(good.dtype) if good.dtype.kind == "i" else None
        if case.low <= wild <= case.high or (limits and not limits.min <= wild <= limits.max):
            continue
        bad = {**feeds, name: filled(case, good, wild)}
        if providers.name == "webgpu" and not -(2**31) <= wild < 2**31:
            with pytest.raises(ExecutionError):  # does not fit the integers there
                session.run(None, bad)
            continue
        number = "-?[0-9]+" if good.dtype.kind == "f" else str(wild)
        with pytest.raises(
            ExecutionError, match=f"index {number} is out of range for {case.high + 1} element"
        ) as error:
            session.run(None, bad)
        assert f'{case.op} "' in error.value.node
        for a, b in zip(session.run(None, feeds), before, strict=True):
            np.testing.assert_array_equal(a, b, str(wild))


def test_an_axis_without_elements_has_no_index() -> None:
    empty = np.zeros((0, 3), np.float32)
    check_node("Gather", [empty, np.zeros(0, np.int64)], 13)
    for op, rest in (("Gather", []), ("ScatterElements", [floats(1, 3)])):
        indices = ints(0) if op == "Gather" else np.zeros((1, 3), np.int64)
        with pytest.raises(ShapeError, match="empty axis"):
            run_node(op, [empty, indices, *rest], 18)
    m = parsed("g (float[n, 3] x, int64[k] i) => (float[k, 3] y) { y = Gather (x, i) }")
    session = InferenceSession(m.SerializeToString())
    assert session.run(None, {"x": empty, "i": ints()})[0].shape == (0, 3)
    with pytest.raises(ShapeError, match="empty axis"):
        session.run(None, {"x": empty, "i": ints(0)})
    assert session.run(None, {"x": floats(2, 3), "i": ints(0)})[0].shape == (1, 3)


TREE: dict[str, Any] = {
    "n_targets": 1, "nodes_falsenodeids": [2, 0, 0], "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_nodeids": [0, 1, 2], "nodes_treeids": [0, 0, 0],
    "nodes_truenodeids": [1, 0, 0], "nodes_values": [0.0, 0.0, 0.0], "target_ids": [0, 0], "target_nodeids": [1, 2],
    "target_treeids": [0, 0], "target_weights": [1.0, 2.0],
}  # fmt: skip
BAD_TREES = {
    "feature 7 is out of range": {"nodes_featureids": [7, 0, 0]},
    "feature -1": {"nodes_featureids": [-1, 0, 0]},
    "target 5 is out of range": {"target_ids": [0, 5]},
    "form a cycle": {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], "nodes_falsenodeids": [2, 2, 0]},
}


@pytest.mark.parametrize("message", BAD_TREES)
def test_trees_stay_in_their_tables(message: str) -> None:
    m, feeds = node_model("TreeEnsembleRegressor", [floats(3, 2)], 21, domain=ML, **TREE)
    assert InferenceSession(m.SerializeToString()).run(None, feeds)[0].shape == (3, 1)
    m, _ = node_model("TreeEnsembleRegressor", [floats(3, 2)], 21, domain=ML, **{**TREE, **BAD_TREES[message]})
    with pytest.raises(ShapeError, match=message):
        InferenceSession(m.SerializeToString())
