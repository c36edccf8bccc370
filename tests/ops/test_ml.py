"""ai.onnx.ml against onnxruntime: the official suite has eight cases for all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from kit.interpret import run
from pyruntime import InferenceSession, PyRuntimeError, ShapeError
from tests.ops.compare import by_onnx, by_onnxruntime, by_session, model, same
from tests.ops.node import check_node, node_model

ML = "ai.onnx.ml"
F = (np.arange(12, dtype=np.float32).reshape(4, 3) - 5) / 3
TEXT = np.array(["a", "c", "b", "zz"], dtype=object)
SHORTS = numpy_helper.from_array(np.array([5, 7], np.int16))
NAN = float("nan")

LINEAR3 = {"coefficients": [0.1, -0.4, 0.3, 0.5, 0.2, -0.3, -0.2, 0.1, 0.6], "intercepts": [0.1, 0.2, -0.3]}
LINEAR1 = {"coefficients": [0.1, -0.4, 0.3], "intercepts": [0.1]}
VECTORS = [0.1, 0.2, -0.3, 1.0, -0.5, 0.3, 0.7, 0.2, 0.1, -0.9, 0.3, 0.4, 0.6, -0.6, 0.2]
SVC2 = {
    "support_vectors": VECTORS, "vectors_per_class": [2, 3], "coefficients": [0.5, 1.0, -0.3, -0.7, -0.5],
    "rho": [0.05], "classlabels_ints": [3, 5],
}  # fmt: skip
PROB2 = {**SVC2, "prob_a": [-1.2], "prob_b": [0.3]}
SVC3 = {
    "support_vectors": VECTORS, "vectors_per_class": [2, 1, 2], "rho": [0.05, -0.1, 0.2],
    "coefficients": [0.5, 1.0, -0.3, -0.7, -0.5, 0.2, 0.4, 0.9, -0.8, -0.6], "classlabels_ints": [3, 5, 7],
}  # fmt: skip
PROB3 = {**SVC3, "prob_a": [-1.2, -0.7, -2.0], "prob_b": [0.3, -0.1, 0.2]}


def tree(votes: str, ids: list[int], weights: list[float], **more: Any) -> dict[str, Any]:
    """Two trees: one of five nodes, one of three."""
    modes = ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"]
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2], "nodes_modes": modes,
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0], "nodes_values": [0.5, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0], "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        f"{votes}_treeids": [0, 0, 0, 1, 1], f"{votes}_nodeids": [2, 3, 4, 1, 2],
        f"{votes}_ids": ids, f"{votes}_weights": weights, **more,
    }  # fmt: skip


TARGETS = tree("target", [0, 1, 0, 1, 0], [1.5, -2.0, 0.5, 3.0, 0.25], n_targets=2)
ONE = tree("class", [0] * 5, [0.3, 0.1, 0.2, 0.4, 0.15], classlabels_int64s=[4, 9])
SIGNED = tree("class", [1] * 5, [0.3, -0.1, 0.2, -0.4, 0.15], classlabels_strings=["no", "yes"])
BOTH = tree("class", [0, 1, 0, 1, 0], [0.3, 0.1, 0.2, 0.4, 0.15], classlabels_int64s=[4, 9])
THREE = tree("class", [0, 1, 2, 1, 0], [0.3, 0.1, 0.2, 0.4, 0.15], classlabels_strings=["p", "q", "r"])

CASES: list[tuple[str, int, dict[str, Any], list[Any], int]] = [
    ("LabelEncoder", 1, {"classes_strings": ["a", "b", "c"]}, [TEXT], 1),
    ("LabelEncoder", 1, {"classes_strings": ["a", "b", "c"]}, [np.array([2, 0, 7])], 1),
    ("LabelEncoder", 4, {"keys_strings": ["a", "b"], "values_tensor": SHORTS}, [TEXT], 1),
    ("LabelEncoder", 2, {"keys_strings": ["a", "b"], "values_strings": ["x", "y"]}, [TEXT], 1),
    ("LabelEncoder", 2, {"keys_int64s": [3, 4], "values_floats": [0.5, 1.5]}, [np.array([[4, 3, 9]])], 1),
    ("LabelEncoder", 4, {"keys_floats": [1.0, NAN], "values_strings": ["one", "nan"]},
     [np.array([1.0, NAN, 3.0], np.float32)], 1),
    ("CategoryMapper", 1, {"cats_strings": ["a", "b"], "cats_int64s": [5, 6]}, [TEXT], 1),
    ("CategoryMapper", 1, {"cats_strings": ["a", "b"], "cats_int64s": [5, 6]}, [np.array([6, 1])], 1),
    ("CategoryMapper", 1, {"cats_strings": ["a", "a"], "cats_int64s": [5, 6]}, [TEXT], 1),
    ("CategoryMapper", 1, {"cats_strings": ["a", "b"], "cats_int64s": [6, 6]}, [np.array([6, 1])], 1),
    ("LabelEncoder", 1, {"classes_strings": ["a", "b", "a"]}, [TEXT], 1),
    ("OneHotEncoder", 1, {"cats_strings": ["a", "b", "c"]}, [TEXT], 1),
    ("OneHotEncoder", 1, {"cats_int64s": [2, 4]}, [np.array([[4, 2], [0, 4]])], 1),
    ("Scaler", 1, {"offset": [1.0, 2.0, 3.0], "scale": [0.5, 2.0, 1.0]}, [F], 1),
    ("Scaler", 1, {"offset": [1.0], "scale": [0.5]}, [np.array([[1, 5]])], 1),
    ("Imputer", 1, {"imputed_value_floats": [9.0], "replaced_value_float": NAN},
     [np.array([[1, NAN, 3]], np.float32)], 1),
    ("Imputer", 1, {"imputed_value_int64s": [7, 8, 9], "replaced_value_int64": 2}, [np.array([[2, 1, 2]])], 1),
    ("Binarizer", 1, {"threshold": 0.25}, [F], 1),
    *[("Normalizer", 1, {"norm": norm}, [F], 1) for norm in ("MAX", "L1", "L2")],
    ("ArrayFeatureExtractor", 1, {}, [F, np.array([2, 0])], 1),
    ("ArrayFeatureExtractor", 1, {}, [F[0], np.array([[1]])], 1),
    ("FeatureVectorizer", 1, {"inputdimensions": [3, 2]}, [F, F[:, :2]], 1),
    *[("LinearRegressor", 1, {**LINEAR3, "targets": 3, "post_transform": p}, [F], 1)
      for p in ("NONE", "SOFTMAX", "LOGISTIC")],
    *[("LinearClassifier", 1, {**LINEAR3, "classlabels_strings": ["u", "v", "w"], "post_transform": p}, [F], 2)
      for p in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")],
    *[("LinearClassifier", 1, {**LINEAR1, "classlabels_ints": [3, 8], "post_transform": p}, [F], 2)
      for p in ("NONE", "LOGISTIC")],
    ("LinearClassifier", 1, LINEAR1, [F], 2),
    *[("SVMRegressor", 1, {"support_vectors": VECTORS, "n_supports": 5, "coefficients": [1.0, -0.5, 0.2, 0.4, -0.9],
       "rho": [0.3], "kernel_type": k, "kernel_params": [0.7, 0.2, 2.0]}, [F], 1)
      for k in ("LINEAR", "RBF", "POLY", "SIGMOID")],
    ("SVMRegressor", 1, {"support_vectors": VECTORS, "n_supports": 5, "coefficients": [1.0, -0.5, 0.2, 0.4, -0.9],
     "rho": [0.3], "one_class": 1, "kernel_type": "LINEAR", "kernel_params": [0.7, 0.2, 2.0]}, [F], 1),
    *[("SVMClassifier", 1, {**SVC2, "kernel_type": k, "kernel_params": [0.7, 0.2, 2.0]}, [F], 2)
      for k in ("LINEAR", "RBF")],
    ("SVMClassifier", 1, {**SVC3, "kernel_type": "RBF", "kernel_params": [0.7, 0.2, 2.0]}, [F], 2),
    *[("SVMClassifier", 1, {**p, "kernel_type": "RBF", "kernel_params": [0.7, 0.2, 2.0]}, [F], 2)
      for p in (PROB2, PROB3)],
    *[("TreeEnsembleRegressor", 3, {**TARGETS, "aggregate_function": a}, [F], 1)
      for a in ("SUM", "AVERAGE", "MIN", "MAX")],
    ("TreeEnsembleRegressor", 3, {**TARGETS, "base_values": [0.5, 0.0], "post_transform": "LOGISTIC"}, [F], 1),
    ("TreeEnsembleRegressor", 3, {**TARGETS, "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 1, 0, 0]},
     [np.where(F < 0, np.float32(NAN), F)], 1),
    *[("TreeEnsembleClassifier", 3, {**t, "post_transform": p}, [F], 2)
      for t in (ONE, SIGNED, THREE) for p in ("NONE", "LOGISTIC", "SOFTMAX")],
    ("TreeEnsembleClassifier", 3, {**ONE, "base_values": [0.1]}, [F], 2),
    ("TreeEnsembleClassifier", 3, {**THREE, "class_weights": [-0.3, -0.1, -0.2, -0.4, -0.15]}, [F], 2),
    ("TreeEnsembleClassifier", 3, {**THREE, "class_ids": [1, 2, 1, 2, 1], "class_weights": [-0.5, 0.0, NAN, 0.0, -1.0]},
     [F], 2),
    *[("LinearClassifier", 1, {"coefficients": [0.0] * 9, "intercepts": given, "classlabels_ints": [3, 5, 7]}, [F], 2)
      for given in ([NAN, 1.0, 2.0], [1.0, NAN, 2.0], [1.0, 2.0, NAN])],
    ("TreeEnsembleClassifier", 3, {**THREE, "nodes_truenodeids": [1, 2, 0, 0, 0, 2, 0, 0]}, [F], 2),  # unreached leaves
    ("TreeEnsembleClassifier", 3, {**THREE, "base_values": [0.1, 0.3, 0.2], "post_transform": "SOFTMAX"}, [F], 2),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n][0]}")
def test_as_onnxruntime(case: int) -> None:
    op, version, attrs, inputs, outputs = CASES[case]
    feeds = {f"x{n}": x for n, x in enumerate(inputs)}
    names = [f"y{n}" for n in range(outputs)]
    m = model([helper.make_node(op, list(feeds), names, domain=ML, **attrs)], feeds, names, domains={ML: version})
    want = by_onnxruntime(m, feeds)
    same(run(m.SerializeToString(), feeds), want, 1e-4)
    same(by_session(m, feeds), want, 1e-4)


def forest(trees: int, depth: int, order: str) -> dict[str, Any]:
    """Complete binary trees; the nodes of a tree follow its root in this order, votes are in any order."""
    rng, size = np.random.default_rng(0), 2 ** (depth + 1) - 1
    columns: dict[str, list[Any]] = {}

    def row(kind: str, **values: Any) -> None:
        for name, value in values.items():
            columns.setdefault(f"{kind}_{name}", []).append(value)

    for tree in range(trees):
        ids = rng.permutation(size * 3)[:size]
        for n in [0, *(range(1, size) if order == "parents first" else rng.permutation(np.arange(1, size)))]:
            leaf, value = n >= size // 2, float(np.float32(rng.normal()))
            yes, no = (0, 0) if leaf else ids[2 * n + 1 : 2 * n + 3]
            row("nodes", treeids=tree, nodeids=int(ids[n]), featureids=int(rng.integers(3)), values=value,
                modes="LEAF" if leaf else "BRANCH_LEQ", truenodeids=int(yes), falsenodeids=int(no))  # fmt: skip
        for n in rng.permutation(np.arange(size // 2, size)):
            row("target", treeids=tree, nodeids=int(ids[n]), ids=int(n % 2), weights=float(np.float32(rng.normal())))
    return {**columns, "n_targets": 2}


@pytest.mark.parametrize(("trees", "depth", "order"), [
    (40, 9, "parents first"), (40, 9, "any"), (3, 12, "any"), (700, 1, "any"),
])  # fmt: skip
def test_forests(trees: int, depth: int, order: str) -> None:
    x = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, **forest(trees, depth, order))
    m = model([node], {"x": x}, ["y"], domains={ML: 3})
    same(run(m.SerializeToString(), {"x": x}), by_onnxruntime(m, {"x": x}), 1e-4)


def test_votes_for_both_of_two_classes() -> None:
    """For this case onnxruntime returns a label that the model does not have; onnx.reference takes the larger score."""
    feeds, names = {"x": F}, ["y", "z"]
    node = helper.make_node("TreeEnsembleClassifier", ["x"], names, domain=ML, **BOTH)
    m = model([node], feeds, names, domains={ML: 3})
    same(run(m.SerializeToString(), feeds), by_onnx(m, feeds))


@pytest.mark.parametrize(("op", "attrs", "x", "text"), [
    ("LinearRegressor", {**LINEAR3, "targets": 0}, np.zeros((2, 3)), "9 coefficients and 3 intercepts for 0 results"),
    ("LinearRegressor", {**LINEAR3, "targets": 2}, np.zeros((2, 4)), "9 coefficients"),
    ("SVMRegressor", {"support_vectors": VECTORS, "n_supports": 4}, np.zeros((2, 3)), "15 numbers do not make 4"),
    ("SVMClassifier", {**SVC2, "kernel_type": "RBF"}, np.zeros((2, 9)), "columns and"),
    ("SVMClassifier", {**PROB3, "coefficients": [1.0]}, np.zeros((2, 3)), "coefficients has 1 entries, not 10"),
    ("SVMClassifier", {**SVC3, "rho": [0.1]}, np.zeros((2, 3)), "rho has 1 entries, not 3"),
    ("SVMClassifier", {**PROB3, "prob_a": [1.0], "prob_b": [1.0]}, np.zeros((2, 3)), "prob_a has 1 entries, not 3"),
    ("SVMClassifier", {**SVC3, "vectors_per_class": [6, -1, 0]}, np.zeros((2, 3)), "fit 3 classes"),
    ("SVMClassifier", {**SVC3, "vectors_per_class": [2, 3]}, np.zeros((2, 3)), "vectors_per_class has 2 entries"),
    ("SVMClassifier", {**SVC2, "vectors_per_class": [5], "classlabels_ints": [3]}, np.zeros((2, 3)), "fit 1 classes"),
    ("SVMRegressor", {"support_vectors": VECTORS, "n_supports": 5}, np.zeros((2, 3)), "coefficients has 0 entries"),
    ("SVMRegressor", {"support_vectors": VECTORS, "n_supports": 5}, np.zeros((2, 4)), "columns and"),
    ("FeatureVectorizer", {"inputdimensions": [3, 4]}, np.zeros((2, 3)), "2 inputdimensions for 1"),
    ("OneHotEncoder", {"cats_strings": ["a"]}, np.zeros(2), "needs categories of its type"),
    ("Imputer", {"imputed_value_floats": [1.0], "imputed_value_int64s": [1]}, np.zeros(2), "imputed values of its"),
])  # fmt: skip
def test_refused(op: str, attrs: dict[str, Any], x: Any, text: str) -> None:
    m, feeds = node_model(op, [x.astype(np.float32)], 13, domain=ML, **attrs)
    with pytest.raises(PyRuntimeError, match=text):
        by_session(m, feeds)


INFINITE = np.float32([[np.inf, 1], [-np.inf, 1], [0.1, 0.2]])
ONE_CLASS = {"coefficients": [1.0, 0.5], "one_class": 1, "rho": [0.1], "kernel_params": [1.0, 0.0, 1.0]}
STEP = {"alpha": 0.9, "beta": 0.1, "mode": "standard", "norm_coefficient": 0.01}


@pytest.mark.parametrize(("op", "domain", "args", "attrs", "peer"), [
    ("SVMRegressor", "ai.onnx.ml", [INFINITE], ONE_CLASS, by_onnxruntime),
    ("Momentum", "ai.onnx.preview.training", [np.float32(np.inf), np.int64(0), *np.float32([[-3, 3], [0, 1], [1, 2]])],
     {**STEP, "outputs": 2}, by_onnx),
])  # fmt: skip
def test_constants_do_not_depend_on_infinite_operands(op: str, domain: str, args: Any, attrs: Any, peer: Any) -> None:
    check_node(op, args, 13, peer, domain=domain, **attrs)


@pytest.mark.parametrize(("threshold", "want"), [
    (-0.5, [0, 1, 1]), (0.5, [0, 0, 1]), (NAN, [0, 0, 0]), (1e30, [0, 0, 0]), (-1e30, [1, 1, 1]),
    (float("inf"), [0, 0, 0]), (float("-inf"), [1, 1, 1]),
])  # fmt: skip
def test_binarized_integers(threshold: float, want: list[int]) -> None:
    """onnxruntime supports floats only, and onnx's reference compares with the unconverted attribute."""
    m, feeds = node_model("Binarizer", [np.array([-5, 0, 1 << 40])], 1, domain=ML, threshold=threshold)
    assert by_session(m, feeds)[0].tolist() == want


@pytest.mark.parametrize(("leaf", "child", "text"), [(1, -1, "-1, there are 2 leaves"), (0, 1, "1, there are 1 nodes")])
def test_children_that_do_not_exist(leaf: int, child: int, text: str) -> None:
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain=ML, n_targets=1, tree_roots=[0], nodes_featureids=[0],
        nodes_splits=helper.make_tensor("s", 1, [1], [0.5]), nodes_modes=helper.make_tensor("m", 2, [1], [0]),
        nodes_truenodeids=[child], nodes_trueleafs=[leaf], nodes_falsenodeids=[1], nodes_falseleafs=[1],
        leaf_targetids=[0, 0], leaf_weights=helper.make_tensor("w", 1, [2], [1.0, 2.0]),
    )  # fmt: skip
    values = [helper.make_tensor_value_info(name, 1, None) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(ML, 5)])
    with pytest.raises(ShapeError, match=f"nodes_truenodeids has {text}"):
        InferenceSession(model.SerializeToString()).run(None, {"x": F})
