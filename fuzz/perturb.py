"""Variants of a model: with every inner value as an output, and with every inner value moved by a little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from fuzz.compare import nudge
from fuzz.draw import FLOATS, HALVES
from fuzz.node import full_name, operators, tensor
from fuzz.operator_groups import SUMS

UNITS = 4  # of the largest term, which the result of a sum may be off
# The error of these is not that of small results, but of numbers near 1 inside.
NEAR_ONE = operators("Sigmoid ParametricSoftplus")
# The input with coordinates: 1 or an index is added to them before all else, which leaves those near 0 fewer digits.
COORDINATES = {"GridSample": 1, "com.microsoft.GridSample": 1, "RoiAlign": 1, "DeformConv": 2}


def with_inner_outputs(model: onnx.ModelProto) -> tuple[bytes, list[str]]:
    """The model with every inner value as an output, and the names of the outputs."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    known = {o.name for o in made.graph.output}
    inner = dict.fromkeys(y for node in made.graph.node for y in node.output if y and y not in known)
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    return made.SerializeToString(), [o.name for o in made.graph.output]


def perturbed(model: onnx.ModelProto, values: Mapping[str, Any], rng: np.random.Generator, ulps: float) -> bytes:
    """The model with each float that a node gives another moved by some units in its last place; after sums by units of
    the largest element, and coordinates by units of 1. values: of each name, for types, shapes and magnitudes."""
    made = with_moved_bodies(model, rng, ulps)
    nodes, moved = list(made.graph.node), dict[str, str]()
    del made.graph.node[:]

    def move(name: str, x: np.ndarray, units_of: float | None) -> str:
        factor, by = nudge(np.ones_like(x), rng, ulps), f"{name}/{len(made.graph.node)}"
        made.graph.initializer.append(tensor(factor if units_of is None else (factor - 1) * units_of, by))
        op = "Mul" if units_of is None else "Add"
        made.graph.node.append(onnx.helper.make_node(op, [name, by], [f"{by}/moved"]))
        return f"{by}/moved"

    for node in nodes:
        place = COORDINATES.get(full_name(node), -1)
        grid = _floats(values.get(node.input[place])) if -1 < place < len(node.input) else None
        for k, name in enumerate(node.input):
            node.input[k] = moved.get(name, name)
        if grid is not None:
            node.input[place] = move(node.input[place], grid, 1.0)
        made.graph.node.append(node)
        for name in node.output:
            if (x := _floats(values.get(name))) is not None:
                largest = float(np.abs(x[np.isfinite(x)]).max(initial=0))
                # The sums of halves are computed in float32: what is left is the rounding of the result.
                sums = full_name(node) in SUMS and x.dtype not in HALVES
                units_of = UNITS * largest if sums else 1.0 if full_name(node) in NEAR_ONE else None
                moved[name] = move(name, x, units_of)
    return made.SerializeToString()


def with_moved_bodies(model: onnx.ModelProto, rng: np.random.Generator, ulps: float) -> onnx.ModelProto:
    """A copy in which nodes of loops and branches have their floats moved, all elements of one by the same factor: the
    values of the steps are not known here, and a recurrence may amplify the last bits of each."""
    has_body = any(a.HasField("g") for node in model.graph.node for a in node.attribute)
    if not has_body:
        return onnx.ModelProto.FromString(model.SerializeToString())
    made = onnx.shape_inference.infer_shapes(model)
    bodies = [a.g for node in made.graph.node for a in node.attribute if a.HasField("g")]
    for body in bodies:
        types = {v.name: v.type.tensor_type.elem_type for v in (*body.value_info, *body.output)}
        nodes = list(body.node)
        del body.node[:]
        for node in nodes:
            body.node.append(node)
            own = body.node[-1]
            bodies += [a.g for a in own.attribute if a.HasField("g")]
            for n, name in enumerate(node.output):
                dtype = onnx.helper.tensor_dtype_to_np_dtype(types.get(name) or onnx.TensorProto.BOOL)
                if name and dtype in FLOATS:
                    factor = tensor(nudge(np.ones((), dtype), rng, ulps), f"{name}/factor")
                    body.initializer.append(factor)
                    own.output[n] = f"{name}/still"
                    body.node.append(onnx.helper.make_node("Mul", [f"{name}/still", factor.name], [name]))
    return made


def _floats(x: Any) -> np.ndarray | None:
    return x if isinstance(x, np.ndarray) and x.dtype in FLOATS else None
