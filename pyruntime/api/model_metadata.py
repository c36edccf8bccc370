"""onnxruntime's `ModelMetadata`."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyruntime.onnx.graph import Graph

NO_VERSION = (1 << 63) - 1  # onnxruntime's value for a model without a version


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata from the author of a model; absent texts are "". The last three are not in onnxruntime's class."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = NO_VERSION
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    producer_version: str = ""
    ir_version: int = 0
    opset_imports: dict[str, int] = field(default_factory=dict)


def metadata_of(graph: Graph) -> ModelMetadata:
    found = graph.metadata
    names = ("producer_name", "producer_version", "domain", "description", "graph_description")
    texts = {key: found.get(key, "") for key in names}
    version = int(found.get("model_version", NO_VERSION))
    return ModelMetadata(
        graph_name=graph.name, version=version, custom_metadata_map=dict(graph.props),
        ir_version=int(found.get("ir_version", 0)), opset_imports=dict(graph.opsets), **texts,
    )  # fmt: skip
