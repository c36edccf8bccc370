"""Losses as options give them, and those of which an ONNX model is a part: a graph that is the loss, or a teacher."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.onnx.model_file import whole
from pyruntime.training.graph.option_checks import check_names, limit, number
from pyruntime.training.graph.recipe_tables import LOSSES
from pyruntime.training.graph.trace_check import check_trace

WITH_MODEL = ("onnx", "distill")


@dataclass(frozen=True, slots=True)
class Loss:
    """kind: a name of LOSSES, "output" or "onnx"; output: of the model, or of the graph that the loss is; target: name
    of the feed to compare with; scale: a factor of this loss in the sum of all; more: further outputs that it compares;
    lengths: names of further feeds"""

    kind: str
    output: str
    target: str = ""
    scale: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()

    @property
    def feeds(self) -> tuple[str, ...]:
        return (self.target, *self.lengths) if self.target else self.lengths


def function_loss(trace: Any, scale: float) -> Loss:
    """A loss that is a function: its trace."""
    nodes = check_trace(trace, ("output", "label"))
    outputs, labels = ([n[2]["name"] for n in nodes if n[0] == kind] for kind in ("output", "label"))
    if not outputs:
        raise InvalidInput("the function of the loss reads no output of the model", hint="lambda outputs, labels: …")
    label, lengths = (labels[0], tuple(labels[1:])) if labels else ("", ())
    return Loss("function", outputs[0], label, scale, {"nodes": nodes}, tuple(outputs[1:]), lengths)


def graph_of_loss(value: Mapping[str, Any], scale: float) -> Loss:
    """A loss that is an ONNX model: its bytes, its path, or as pages give it, bytes in base64."""
    check_names("setting of onnx", value, ("onnx", "inputs", "output"))
    settings = _model_settings("onnx", value)
    return Loss("onnx", value.get("output", ""), "", scale, settings)


def _model_settings(what: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """An ONNX model and its inputs."""
    data, inputs = value[what], value.get("inputs", {})
    if isinstance(data, Mapping) and data.keys() == {"base64"}:
        data = base64.b64decode(data["base64"])
    if not isinstance(inputs, Mapping) or not all(isinstance(v, str) for v in inputs.values()):
        raise InvalidInput(f"inputs cannot be {inputs!r}", hint='{"input of the loss": "output of the model"}')
    return {"model": base64.b64encode(whole(data)).decode(), "inputs": dict(inputs)}


def distillation(value: Mapping[str, Any], target: str, scale: float) -> list[Loss]:
    """The loss against a teacher, and unless alpha is 1, that against labels."""
    names = ("distill", "teacher", "inputs", "output", "temperature", "alpha", "axis")
    check_names("setting of distill", value, names)
    output, alpha = value["distill"], number("alpha", value.get("alpha", 0.5))
    if not isinstance(output, str) or "teacher" not in value:
        raise InvalidInput("distill needs an output and a teacher", hint='{"distill": "logits", "teacher": model}')
    if not 0 < alpha <= 1:
        raise InvalidInput(f"alpha cannot be {alpha!r}", hint="a number above 0, up to 1")
    temperature, axis = limit("temperature", value.get("temperature", 2.0)), value.get("axis")
    own = {"temperature": temperature, "axis": axis, "output": value.get("output", ""), "reduction": "mean"}
    of_teacher = Loss("distill", output, "", scale * alpha, {**_model_settings("teacher", value), **own})
    of_labels = Loss("cross_entropy", output, target, scale * (1 - alpha), {**LOSSES["cross_entropy"], "axis": axis})
    return [of_teacher, of_labels] if alpha < 1 else [of_teacher]
