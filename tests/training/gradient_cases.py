"""Cases for the table of gradients: the official suite's and these tests' nodes in double, several nodes in one model,
so that few sessions check all operators.

Each node has a loss of its own, the sum of its float outputs times random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kit.conformance.cases import load
from kit.gradients import CONSTANT, TRAINING, gradient_node, in_double, loss_of
from tests.ops import seed_nodes
from tests.training import microsoft_cases, recurrence_cases

OPSETS = {"": 28, "com.microsoft": 1, "ai.onnx.ml": 5, "ai.onnx.preview": 1, TRAINING: 1}


@dataclass(slots=True)
class Case:
    """A node with inputs whose gradients are checked, and others that are constant."""

    name: str
    node: onnx.NodeProto
    feeds: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    outputs: list[str] = field(default_factory=list)

    @property
    def operator(self) -> tuple[str, str]:
        return self.node.domain, self.node.op_type


def cases() -> dict[tuple[str, str], list[Case]]:
    """The cases of each operator, by domain and name, without those that have no float inputs."""
    found: dict[tuple[str, str], list[Case]] = {}
    for name, node, values in (*_official(), *_seeds(), *_more(), *recurrence_cases.nodes(), *microsoft_cases.nodes()):
        if "opset19" in name or "float_edge" in name:  # another opset; quotients that are not finite
            continue
        if any(a.name == "k_quant_type" for a in node.attribute):  # it rounds
            continue
        case = _case(name, node, values)
        if case.feeds and all(x.size and np.isfinite(x).all() for x in case.feeds.values()):
            found.setdefault(case.operator, []).append(case)
    return found


def _official() -> Iterator[tuple[str, onnx.NodeProto, dict[str, np.ndarray]]]:
    for name, case in load().items():
        if case.category != "node":
            continue
        inputs = case.data[0][0]
        nodes = onnx.load_from_string(case.model).graph.node
        if len(nodes) == 1 and all(isinstance(x, (np.ndarray, np.generic)) for x in inputs.values()):
            yield name, nodes[0], {key: np.asarray(x) for key, x in inputs.items()}


def _seeds() -> Iterator[tuple[str, onnx.NodeProto, dict[str, np.ndarray]]]:
    for number, seed in enumerate(seed_nodes.nodes()):
        if seed.domain == "" and seed.opset < 10:
            continue
        names = ["" if x is None else f"x{n}" for n, x in enumerate(seed.inputs)]
        outputs = [f"y{n}" if wanted else "" for n, wanted in enumerate(seed.wanted)]
        node = helper.make_node(seed.op, names, outputs, domain=seed.domain, **seed.attributes)
        values = {name: x for name, x in zip(names, seed.inputs, strict=True) if x is not None}
        yield f"seed {number}", node, values


# Operators that have no other case with floats: domain, attributes, inputs (shapes, or constants).
_ROIS = np.array([[0, 0, 0, 4, 4], [0, 1, 1, 5, 3]], np.float64)
_MORE: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "Trilu": ("", {}, [(3, 4)]),
    "MaxRoiPool": ("", {"pooled_shape": [2, 2]}, [(1, 2, 6, 6), _ROIS]),
    "Affine": ("", {"alpha": 2.0, "beta": 0.5}, [(3,)]),
    "ScaledTanh": ("", {"alpha": 0.5, "beta": 2.0}, [(3,)]),
    "ParametricSoftplus": ("", {"alpha": 0.5, "beta": 2.0}, [(3,)]),
    "ImageScaler": ("", {"scale": 2.0, "bias": [0.5, 1.0]}, [(1, 2, 3, 3)]),
    "Scale": ("", {"scale": 2.0}, [(3,)]),
    "Crop": ("", {"border": [1, 1, 1, 1]}, [(1, 2, 4, 4)]),
    "BiasGelu": ("com.microsoft", {}, [(2, 4), (4,)]),
    "FastGelu": ("com.microsoft", {}, [(2, 4), (4,)]),
    "Gelu": ("com.microsoft", {}, [(2, 4)]),
    "QuickGelu": ("com.microsoft", {}, [(2, 4)]),
    "FusedMatMul": ("com.microsoft", {"transB": 1, "alpha": 0.5}, [(2, 3), (4, 3)]),
    "ComplexMul": ("com.microsoft", {}, [(3, 2), (3, 2)]),
    "ComplexMulConj": ("com.microsoft", {}, [(3, 2), (3, 2)]),
    "SimplifiedLayerNormalization": ("com.microsoft", {}, [(2, 4), (4,)]),
}


def _more() -> Iterator[tuple[str, onnx.NodeProto, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(3)
    for op, (domain, attributes, inputs) in _MORE.items():
        values = {f"x{n}": rng.normal(size=x) if isinstance(x, tuple) else x for n, x in enumerate(inputs)}
        yield op, helper.make_node(op, list(values), ["y"], domain=domain, **attributes), values


def _case(name: str, node: onnx.NodeProto, values: dict[str, np.ndarray]) -> Case:
    rng = np.random.default_rng(len(name))
    feeds, constants = {}, {}
    for n, key in enumerate(node.input):
        x = values.get(key)
        if x is None:
            continue
        if x.dtype.kind != "f" or n in CONSTANT.get(node.op_type, ()):
            constants[key] = x.astype(np.float64) if x.dtype.kind == "f" else x
        elif key not in feeds:  # not at ties and kinks
            away = rng.uniform(0.5, 1.5, x.shape) * 1e-3 * rng.choice([-1, 1], x.shape)
            feeds[key] = np.asarray(x + away, np.float64)
    return Case(name, in_double(node), feeds, constants)


# ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Group:
    """A model of several cases. Names of a case begin with its number in the group."""

    cases: Sequence[Case]
    feeds: dict[str, np.ndarray]
    nodes: list[onnx.NodeProto]
    constants: dict[str, np.ndarray]

    def names(self, n: int) -> list[str]:
        return [f"{n}/{name}" for name in self.cases[n].feeds]

    def model(self, outputs: Sequence[str], more: Sequence[onnx.NodeProto] = ()) -> bytes:
        inputs = [helper.make_tensor_value_info(k, TensorProto.DOUBLE, x.shape) for k, x in self.feeds.items()]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        weights = [numpy_helper.from_array(np.asarray(x), k) for k, x in self.constants.items()]
        graph = helper.make_graph([*self.nodes, *more], "g", inputs, results, weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def grouped(cases: Sequence[Case]) -> Group:
    group = Group(cases, {}, [], {})
    for n, case in enumerate(cases):
        node = onnx.NodeProto()
        node.CopyFrom(case.node)
        for side in (node.input, node.output):
            side[:] = [f"{n}/{name}" if name else "" for name in side]
        group.nodes.append(node)
        group.feeds |= {f"{n}/{name}": x for name, x in case.feeds.items()}
        group.constants |= {f"{n}/{name}": x for name, x in case.constants.items()}
    return group


def with_losses(group: Group, results: dict[str, Any]) -> tuple[list[onnx.NodeProto], list[bool]]:
    """The nodes that make the loss "n/the.loss" and the gradients "n/name/gradient" of each case, and whether the case
    has a float output. results: of the group's nodes"""
    rng, nodes, some = np.random.default_rng(5), [], []
    for n, node in enumerate(group.nodes):
        loss, constants = loss_of({name: results.get(name) for name in node.output}, f"{n}/the.loss", rng)
        group.constants |= constants
        some.append(bool(loss))
        if loss:
            nodes += [*loss, gradient_node(group.names(n), f"{n}/the.loss", f"{n}")]
    return nodes, some
