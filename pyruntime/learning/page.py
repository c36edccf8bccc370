"""What a training session in a page compiles, and how it writes the model with new weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.learning.adapters.merging import export_pieces
from pyruntime.learning.artifacts import artifact_training
from pyruntime.learning.graph import Training, training_graph
from pyruntime.learning.recipe import from_javascript, recipe_of
from pyruntime.onnx.graph import Graph, Source


def page_training(
    graph: Graph, given: Mapping[str, Any], open_file: Callable[[str], Source]
) -> tuple[Training, Callable[[], str]]:
    """given: the options of the page; open_file: opens a file beside the model, or the model's own by the name ""."""
    options = from_javascript(given)
    if files := options.pop("artifacts", None):
        trained, plan = artifact_training(graph, files, options, open_file)
        return trained, lambda: json.dumps([piece.to_json() for piece in plan()])
    made = training_graph(graph, recipe_of(options))
    return made, lambda: export_pieces(open_file(""), made)
