"""python -m bench stretches MODEL: each part of a QDQ model between two quantisations, alone: which runtime's codes are
exact.

All parts get the codes that onnxruntime computes before them, without optimisation. If its codes and ours differ, both
are compared with the exact ones, from float64: a rounding of float32 has crossed a tie. Later layers amplify that, so
that whole models differ by more (`python -m bench accuracy`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from bench import models
from kit import zoo

Arrays = dict[str, np.ndarray]


class DequantizeLinear(OpRun):  # type: ignore[misc]
    """Computes in float64, like all nodes between it and QuantizeLinear."""

    op_domain = ""

    def _run(self, x: Any, scale: Any, zero: Any = None, axis: int = 1, **_: Any) -> tuple[np.ndarray]:
        shape = [-1 if n == axis % max(x.ndim, 1) and scale.size > 1 else 1 for n in range(x.ndim)]
        moved = x.astype(np.float64) - (0 if zero is None else zero.astype(np.float64).reshape(shape))
        return (moved * scale.astype(np.float64).reshape(shape),)


class QuantizeLinear(OpRun):  # type: ignore[misc]
    """Quantises by one scale."""

    op_domain = ""

    def _run(self, x: Any, scale: Any, zero: Any, **_: Any) -> tuple[np.ndarray]:
        info = np.iinfo(zero.dtype)
        return (np.clip(np.rint(x / scale.astype(np.float64)) + zero, info.min, info.max).astype(zero.dtype),)


class Stretch(NamedTuple):
    """Return the nodes from codes and feeds to the codes `out`."""

    out: str
    nodes: list[onnx.NodeProto]
    given: list[str]


def stretches(graph: onnx.GraphProto) -> Iterator[Stretch]:
    weights = {w.name for w in graph.initializer}
    makers = {name: (n, node) for n, node in enumerate(graph.node) for name in node.output}
    for last in graph.node:
        if last.op_type != "QuantizeLinear" or last.input[0] in weights:
            continue
        taken: dict[int, onnx.NodeProto] = {}
        given: dict[str, None] = {}
        todo = [last.output[0]]
        while todo:
            name = todo.pop()
            number, node = makers.get(name, (-1, None))
            if node is None or (node.op_type == "QuantizeLinear" and node is not last):
                given |= {name: None} if name and name not in weights else {}
            elif number not in taken:
                taken[number] = node
                todo += node.input
        yield Stretch(last.output[0], [taken[n] for n in sorted(taken)], list(given))


def cut(model: onnx.ModelProto, stretch: Stretch, values: Arrays, weights: Arrays, wide: bool) -> onnx.ModelProto:
    """Return a model of this part alone; wide: float32 weights become float64."""
    own = {name: weights[name] for node in stretch.nodes for name in node.input if name in weights}
    if wide:
        own = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in own.items()}
    described = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(values[n].dtype), values[n].shape)
        for n in (*stretch.given, stretch.out)
    ]
    constants = [numpy_helper.from_array(v, k) for k, v in own.items()]
    graph = helper.make_graph(stretch.nodes, "stretch", described[:-1], described[-1:], constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)


def compared(name: str) -> tuple[int, ...]:
    """Return the numbers of parts, of codes and of differing codes and, among these, how often ours and onnxruntime's
    are exact."""
    from pyruntime import InferenceSession

    model = onnx.load(models.path(name))
    parts = list(stretches(model.graph))
    weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    whole.graph.output.extend([onnx.ValueInfoProto(name=part.out) for part in parts])
    values = models.feeds(name)
    codes = zoo.oracle_session(whole.SerializeToString()).run([part.out for part in parts], values)
    values = values | dict(zip([part.out for part in parts], codes, strict=True))
    found = np.zeros(4, int)
    for part in parts:
        feeds = {key: values[key] for key in part.given}
        (ours,) = InferenceSession(cut(model, part, values, weights, False).SerializeToString()).run(None, feeds)
        apart = ours != values[part.out]
        found += [apart.size, apart.sum(), 0, 0]
        if apart.any():
            exact = _exact(cut(model, part, values, weights, True), feeds)
            found += [0, 0, (ours == exact)[apart].sum(), (values[part.out] == exact)[apart].sum()]
    return len(parts), *map(int, found)


def _exact(model: onnx.ModelProto, feeds: Arrays) -> np.ndarray:
    wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()}
    return np.asarray(ReferenceEvaluator(model, new_ops=[DequantizeLinear, QuantizeLinear]).run(None, wide)[0])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench stretches", description=__doc__)
    parser.add_argument("models", nargs="+", help="of the field, in a scheme of QDQ")
    print(f"{'model':28}{'stretches':>10}{'codes':>12}{'apart':>8}{'ours exact':>12}{'peer exact':>12}")
    for name in parser.parse_args(argv).models:
        parts, codes, apart, ours, theirs = compared(name)
        print(f"{name:28}{parts:10}{codes:12}{apart:8}{ours:12}{theirs:12}", flush=True)
    return 0
