"""Random feeds of the field's models: normal floats, token numbers, and extents for symbolic dims."""

from __future__ import annotations

import numpy as np
import onnx

from kit.field.builder import generator

Feeds = dict[str, np.ndarray]
EXTENTS = {"batch": 2, "height": 48, "width": 320}
SMALL = {"batch": 2, "height": 16, "width": 24}


def feeds_of(model: onnx.ModelProto, small: bool) -> Feeds:
    """Feeds that are the same on every machine."""
    random = generator(f"{model.graph.name}:feeds")
    feeds = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        known = SMALL if small else EXTENTS
        shape = [d.dim_value or known[d.dim_param] for d in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.INT64:
            feeds[value.name] = random.integers(0, 100, shape)
        else:
            feeds[value.name] = random.standard_normal(shape, dtype=np.float32)
    return feeds
