"""Recurrences written as ONNX Loop and Scan: nodes, and models whose loop is one recurrence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 21
Feeds = dict[str, np.ndarray]
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Nodes:
    """Records nodes; a call returns the name of the node's result. axes and the like are constants of the graph."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.nodes, self.weights = prefix, list[NodeProto](), list[TensorProto]()
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def __call__(self, op: str, *inputs: str, out: str | Sequence[str] = "", **attributes: Any) -> Any:
        outs = [out or self.name()] if isinstance(out, str) else list(out)
        self.nodes.append(helper.make_node(op, list(inputs), outs, **attributes))
        return outs[0] if len(outs) == 1 else outs

    def wide(self, x: str, axis: int) -> str:
        """x with a new axis."""
        return str(self("Unsqueeze", x, self.constant([axis])))

    def narrow(self, x: str, axis: int) -> str:
        """x without an axis of length 1."""
        return str(self("Squeeze", x, self.constant([axis])))

    def total(self, x: str, axis: int) -> str:
        return str(self("ReduceSum", x, self.constant([axis]), keepdims=0))

    def number(self, x: float) -> str:
        return self.constant(x, np.float32)

    def shaped(self, x: str, *shape: int) -> str:
        return str(self("Reshape", x, self.constant(shape)))

    def part(self, x: str, start: int, end: int, axis: int) -> str:
        return str(self("Slice", x, self.constant([start]), self.constant([end]), self.constant([axis])))

    def parts(self, x: str, sizes: Sequence[int], axis: int = -1) -> list[str]:
        made = self("Split", x, self.constant(sizes), out=[self.name() for _ in sizes], axis=axis)
        return list(made)

    def silu(self, x: str) -> str:
        return str(self("Mul", x, self("Sigmoid", x)))


def value(name: str, shape: Sequence[Any] | None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


Step = Callable[[Nodes, dict[str, str], dict[str, str]], tuple[dict[str, str], dict[str, str]]]


def recurrence(
    name: str, form: str, steps: int, scans: Feeds, states: Feeds, weights: Feeds, step: Step, dynamic: bool = True,
    integers: Sequence[str] = (),
) -> tuple[ModelProto, Feeds]:  # fmt: skip
    """A model whose `step(nodes, slices, states)` returns new states and outputs. scans: (T, ...); form: "scan" or
    "loop", which gathers the slices and runs T times; integers: outputs of int64"""
    n = Nodes("b_")
    if form == "loop":
        slices = {s: n("Gather", s, "turn", axis=0) for s in scans}
    else:
        slices = {s: f"{s}_t" for s in scans}
    new, made = step(n, slices, {s: f"{s}_in" for s in states})
    results = [n("Identity", v, out=f"{s}_next") for s, v in new.items()]
    stacked = [n("Identity", v, out=f"{s}_t_out") for s, v in made.items()]
    kinds = {s: helper.np_dtype_to_tensor_dtype(x.dtype) for s, x in {**scans, **states}.items()}
    kinds |= {s: INT64 if s in integers else FLOAT for s in made}
    inputs = [value(f"{s}_in", x.shape, kinds[s]) for s, x in states.items()]
    outputs = [value(x, None, kinds[s]) for x, s in zip([*results, *stacked], [*new, *made], strict=True)]
    final = [f"{s}_out" for s in states]
    if form == "loop":
        body = helper.make_graph(
            [helper.make_node("Identity", ["going"], ["going_on"]), *n.nodes],
            "body",
            [value("turn", [], INT64), value("going", [], BOOL), *inputs],
            [value("going_on", [], BOOL), *outputs],
            n.weights,
        )
        trip = Nodes("m_")
        count = trip("Squeeze", trip("Slice", trip("Shape", next(iter(scans))), trip.constant([0]), trip.constant([1])))
        node = helper.make_node("Loop", [count, "", *states], [*final, *made], body=body)
        nodes, more = [*trip.nodes, node], trip.weights
    else:
        body = helper.make_graph(
            n.nodes,
            "body",
            [*inputs, *[value(f"{s}_t", x.shape[1:], kinds[s]) for s, x in scans.items()]],
            outputs,
            n.weights,
        )
        node = helper.make_node("Scan", [*states, *scans], [*final, *made], body=body, num_scan_inputs=len(scans))
        nodes, more = [node], []
    length: Any = "T" if dynamic else steps
    graph = helper.make_graph(
        nodes,
        name,
        [value(s, [length, *x.shape[1:]], kinds[s]) for s, x in scans.items()]
        + [value(s, x.shape, kinds[s]) for s, x in states.items()],
        [value(f"{s}_out", None, kinds[s]) for s in states] + [value(s, None, kinds[s]) for s in made],
        [*[numpy_helper.from_array(w, s) for s, w in weights.items()], *more],
    )
    return finished(graph), {**scans, **states}


def finished(graph: Any) -> ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


Generate = Callable[[Nodes, dict[str, str]], tuple[str, dict[str, str], dict[str, str]]]


def generation(
    name: str, most: int, states: Feeds, weights: Feeds, step: Generate, integers: Sequence[str] = (),
    memory: Feeds | None = None,
) -> tuple[ModelProto, Feeds]:  # fmt: skip
    """A model whose `step(nodes, states)` returns whether to go on, new states and outputs; it has at most `most`
    steps. memory: feeds that all steps read; integers: outputs of int64"""
    n, memory = Nodes("b_"), memory or {}
    going, new, made = step(n, {s: f"{s}_in" for s in states})
    n("Identity", going, out="going_on")
    results = [n("Identity", v, out=f"{s}_next") for s, v in {**new, **made}.items()]
    kinds = {s: helper.np_dtype_to_tensor_dtype(x.dtype) for s, x in {**states, **memory}.items()}
    kinds |= {s: INT64 if s in integers else FLOAT for s in made}
    body = helper.make_graph(
        n.nodes,
        "body",
        [value("turn", [], INT64), value("going", [], BOOL)]
        + [value(f"{s}_in", x.shape, kinds[s]) for s, x in states.items()],
        [value("going_on", [], BOOL), *[value(x, None, kinds[s]) for x, s in zip(results, [*new, *made], strict=True)]],
        n.weights,
    )
    final = [f"{s}_out" for s in states]
    node = helper.make_node("Loop", ["most", "", *states], [*final, *made], body=body)
    graph = helper.make_graph(
        [node],
        name,
        [value(s, x.shape, kinds[s]) for s, x in {**states, **memory}.items()],
        [value(x, None, kinds[s]) for x, s in zip([*final, *made], [*states, *made], strict=True)],
        [numpy_helper.from_array(np.asarray(w), s) for s, w in {**weights, "most": np.int64(most)}.items()],
    )
    return finished(graph), {**states, **memory}
