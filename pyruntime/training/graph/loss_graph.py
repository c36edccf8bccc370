"""A loss of which an ONNX model is a part: its inputs are values of the trained model, or feeds, and its output is the
loss, or what a teacher says."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace

from pyruntime.errors import InvalidInput
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Node, TensorType, Weight
from pyruntime.onnx.sources import MemorySource
from pyruntime.training.graph.graph_names import COPY, DOMAIN
from pyruntime.training.graph.inference_mode import in_inference
from pyruntime.training.graph.loss_models import Loss
from pyruntime.training.graph.training_mode import renamed_node


class LossGraph:
    """One such loss. graph: the trained model; number: of the loss"""

    def __init__(self, graph: Graph, loss: Loss, number: int) -> None:
        self._model = in_inference(load(base64.b64decode(loss.settings["model"])))
        self._prefix = f"{COPY}loss{number}/"
        self._student = loss if loss.kind == "distill" else None
        wanted = loss.settings["output"] if self._student else loss.output
        self._output = wanted or self._model.outputs[0].name
        outputs = [v.name for v in self._model.outputs]
        if self._output not in outputs or not wanted and len(outputs) != 1:
            hint = f'name it by "output": {", ".join(outputs)}'
            raise InvalidInput("the graph of a loss needs one output", hint=hint)
        if self._student and loss.output not in {v.name for v in graph.outputs}:
            hint = f"outputs are {', '.join(v.name for v in graph.outputs)}"
            raise InvalidInput(f'output "{loss.output}" does not exist', hint=hint)
        known = {v.name for v in (*graph.outputs, *graph.inputs)}
        wiring: Mapping[str, str] = loss.settings["inputs"]
        own = [v for v in self._model.inputs if v.name not in self._model.weights]
        for name, value in wiring.items():
            if name not in {v.name for v in own}:
                raise InvalidInput(f'the graph of the loss has no input "{name}"')
            if value not in known:
                text = f'the model has no output "{value}", which the loss needs'
                raise InvalidInput(text, hint=f"outputs are {', '.join(v.name for v in graph.outputs)}")
        self._wired = {v.name: wiring.get(v.name, v.name) for v in own if wiring.get(v.name, v.name) in known}
        self.feeds = [v for v in own if v.name not in self._wired]
        if not self._student and not {v.name for v in graph.outputs} & set(self._wired.values()):
            inner, outer = (", ".join(v.name for v in values) for values in (own, graph.outputs))
            text = f"no input of the graph of the loss ({inner}) is an output of the model ({outer})"
            raise InvalidInput(text, hint='"inputs": {"input of the loss": "output of the model"}')
        for v in self.feeds:
            if not isinstance(v.type, TensorType):
                raise InvalidInput(f'input "{v.name}" of the graph of the loss is no tensor')

    def nodes(self, result: str, renamed: Mapping[str, str]) -> list[Node]:
        """The nodes that compute the loss as the value `result`. renamed: of the model's values"""
        names: dict[str, str] = {v.name: v.name for v in self.feeds}
        names |= {name: renamed.get(value, value) for name, value in self._wired.items()}
        names |= {name: self._prefix + name for name in self._model.weights}
        for node in self._model.nodes:
            names |= {name: f"{result}/{name}" for name in node.outputs if name}
        made = [replace(renamed_node(n, names), name=self._prefix + n.shown) for n in self._model.nodes]
        operands: tuple[str, ...] = (names[self._output],)
        attrs = {"kind": "output", "settings": "{}"}
        if self._student:
            settings = {k: self._student.settings[k] for k in ("temperature", "axis", "reduction")}
            operands = (renamed.get(self._student.output, self._student.output), *operands)
            attrs = {"kind": "distill", "settings": json.dumps(settings)}
        return [*made, Node("Loss", DOMAIN, 1, result, operands, (result,), attrs)]

    def added_to(self, graph: Graph) -> Graph:
        """The graph with the weights and functions of the loss."""
        weights = {self._prefix + n: _in_memory(w, self._prefix + n) for n, w in self._model.weights.items()}
        opsets = {**self._model.opsets, **graph.opsets}
        functions = {**self._model.functions, **graph.functions}
        return replace(graph, weights={**graph.weights, **weights}, functions=functions, opsets=opsets)


def _in_memory(w: Weight, name: str) -> Weight:
    """The weight under this name; its bytes are not those of the trained model's file."""
    if w.source is None:
        return replace(w, name=name)
    data = w.read()
    return replace(w, name=name, source=MemorySource(data), offset=0, size=len(data))
