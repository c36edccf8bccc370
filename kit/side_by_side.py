"""Probes side by side in one model: each makes its own outputs from its own inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from kit.probes import PROBES, Probe

OPSET = 20


@dataclass(frozen=True)
class Part:
    """One of the probes in a model of several. Names have the prefix. runs: feeds, and expected outputs in order"""

    probe: Probe
    prefix: str
    outputs: list[str]

    def runs(self) -> list[tuple[dict[str, Any], list[Any]]]:
        return [({f"{self.prefix}{n}": x for n, x in feeds.items()}, wanted) for feeds, wanted in self.probe.runs]


def fitting() -> list[Probe]:
    """The probes that can share a model: of one opset, without functions."""
    models = {name: onnx.load_from_string(probe.model) for name, probe in PROBES.items()}
    return [PROBES[name] for name, m in models.items() if m.opset_import[0].version == OPSET and not m.functions]


def side_by_side(probes: Sequence[Probe]) -> tuple[bytes, list[Part]]:
    merged, parts = onnx.GraphProto(name="side by side"), []
    for probe in probes:
        prefix = f"{probe.name}/"
        graph = onnx.compose.add_prefix(onnx.load_from_string(probe.model), prefix).graph
        for value in (*graph.input, *graph.output):
            for dim in value.type.tensor_type.shape.dim:
                dim.dim_param = dim.dim_param and f"{prefix}{dim.dim_param}"
        for field in ("node", "input", "output", "initializer", "sparse_initializer", "value_info"):
            getattr(merged, field).extend(getattr(graph, field))
        parts.append(Part(probe, prefix, [o.name for o in graph.output]))
    opset = onnx.helper.make_opsetid("", OPSET)
    return onnx.helper.make_model(merged, opset_imports=[opset], ir_version=10).SerializeToString(), parts
