"""Published models, changed: small ones whole; of large ones consecutive nodes with new random weights."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzz import suite
from fuzz.case import Case
from fuzz.draw import Draw
from fuzz.mutate_node import attribute
from fuzz.node import nodes as all_nodes
from fuzz.node import tensor
from kit import light_models, zoo
from kit.models import ROOT

LARGEST = 300_000  # elements of a weight

KINDS = {1: "FLOAT", 2: "INT", 3: "STRING", 6: "FLOATS", 7: "INTS", 8: "STRINGS"}
SWAPS = [
    set("Add Sub Mul Div Pow Max Min".split()),
    set("Relu Sigmoid Tanh Abs Neg Exp Sqrt Floor Erf Softplus Identity".split()),
    set("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2".split()),
    {"MaxPool", "AveragePool"},
    {"Softmax", "LogSoftmax"},
    {"Equal", "Greater", "Less"},
]


@cache
def small() -> list[str]:
    """Names of official cases of several nodes."""
    wanted = ("expanded", "simple", "pytorch-converted", "pytorch-operator")
    return [c.name for c in suite.load().values() if c.category in wanted]


@cache
def skeleton(name: str) -> onnx.ModelProto:
    """A large model with the shapes of its values inferred."""
    path = light_models.light_path(name) if name in light_models.NAMES else zoo.HERE / f"{name}.onnx"
    path = ROOT / "demo" / "digits" / "digits.onnx" if name == "digits" else path
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    kept = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]  # weights of the light models
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def case(draw: Draw) -> Case | None:
    if draw.chance(0.5):
        official = suite.load()[draw.pick(small())]
        name, model, feeds = official.name, onnx.load_from_string(official.model), dict(official.data[0][0])
        for key, x in feeds.items():
            if isinstance(x, np.ndarray) and draw.chance(0.3) and x.dtype.kind == "f":
                feeds[key] = draw.array(x.dtype, x.shape)
    else:
        name = draw.pick([*zoo.names(), *light_models.NAMES, "digits"])
        made = window(draw, skeleton(name))
        if made is None:
            return None
        model, feeds = made
    count = draw.below(3)
    for _ in range(count):
        draw.pick([change_attribute, change_operator, rewire, drop, change_weight, reveal])(draw, model)
    return Case("models", model.SerializeToString(), (feeds,), note=f"{name}, {count} changes")


def window(draw: Draw, whole: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, Any]] | None:
    """Consecutive nodes as a model: values of other nodes become inputs; None if a type is not known."""
    graph = whole.graph
    first, count = draw.below(len(graph.node)), draw.between(2, 14)
    chosen = list(graph.node[first : first + count])
    made = {name for node in chosen for name in node.output if name}
    taken = dict.fromkeys(x for node in chosen for x in node.input if x and x not in made)
    weights = {t.name: t for t in graph.initializer}
    types = {v.name: v.type.tensor_type for v in [*graph.input, *graph.value_info]}
    if any(a.HasField("g") for node in chosen for a in node.attribute):
        return None
    sizes = {name: draw.pick([1, 2, 3, 4, 7]) for name in sorted({p for t in types.values() for p in _names(t)})}
    inputs, fixed, feeds = [], [], {}
    for name in taken:
        if name in weights:
            weight = weights[name]
            if np.prod(weight.dims) > LARGEST:
                return None
            fixed.append(_with_values(draw, weight))
        elif name in types and types[name].HasField("shape"):
            kind = types[name]
            dims = [sizes[d.dim_param] if d.dim_param else d.dim_value or 2 for d in kind.shape.dim]
            if np.prod(dims) > LARGEST:
                return None
            feeds[name] = _small(draw.array(helper.tensor_dtype_to_np_dtype(kind.elem_type), dims, 0.05))
            declared = [d.dim_param or d.dim_value or 2 for d in kind.shape.dim] if draw.chance(0.5) else dims
            inputs.append(helper.make_tensor_value_info(name, kind.elem_type, declared))
        else:
            return None
    used = {x for node in chosen for x in node.input}
    outputs = [onnx.ValueInfoProto(name=y) for node in chosen for y in node.output if y and y not in used]
    small_graph = helper.make_graph(chosen, "window", inputs, outputs, fixed)
    return helper.make_model(small_graph, opset_imports=whole.opset_import, ir_version=10), feeds


def _names(kind: Any) -> list[str]:
    return [d.dim_param for d in kind.shape.dim if d.dim_param]


def _with_values(draw: Draw, weight: onnx.TensorProto) -> onnx.TensorProto:
    """The weight itself, or random values for one without data."""
    try:
        return tensor(onnx.numpy_helper.to_array(weight), weight.name)
    except ValueError:
        dtype = helper.tensor_dtype_to_np_dtype(weight.data_type)
        return tensor(_small(draw.array(dtype, list(weight.dims), 0.0)), weight.name)


def _small(x: np.ndarray) -> np.ndarray:
    """Small non-negative integers, since they may be indices."""
    return np.abs(x % 4) if x.dtype.kind in "iu" and x.dtype.itemsize > 1 else x


# ── changes ──


def change_attribute(draw: Draw, model: onnx.ModelProto) -> None:
    places = [(n, a) for n in all_nodes(model.graph) for a in n.attribute if a.type in KINDS]
    if places:
        node, old = draw.pick(places)
        value = attribute(draw, KINDS[old.type], helper.get_attribute_value(old))
        made = helper.make_attribute(old.name, value, attr_type=old.type)
        old.CopyFrom(made)


def change_operator(draw: Draw, model: onnx.ModelProto) -> None:
    places = [(n, s) for n in all_nodes(model.graph) for s in SWAPS if n.op_type in s]
    if places:
        node, others = draw.pick(places)
        node.op_type = draw.pick(sorted(others))


def rewire(draw: Draw, model: onnx.ModelProto) -> None:
    """A node reads another value that is computed before it."""
    graph = model.graph
    n = draw.below(len(graph.node))
    node = graph.node[n]
    before = [i.name for i in graph.input] + [t.name for t in graph.initializer]
    before += [y for earlier in graph.node[:n] for y in earlier.output if y]
    if node.input and before:
        node.input[draw.below(len(node.input))] = draw.pick(before)


def drop(draw: Draw, model: onnx.ModelProto) -> None:
    """Removes a node: its consumers read its first input."""
    graph = model.graph
    if len(graph.node) < 2:
        return
    n = draw.below(len(graph.node))
    gone = graph.node[n]
    if not gone.input or not gone.input[0]:
        return
    for node in graph.node:
        for k, name in enumerate(node.input):
            if name == gone.output[0]:
                node.input[k] = gone.input[0]
    outputs = {o.name for o in graph.output}
    if not outputs & set(gone.output):
        del graph.node[n]


def change_weight(draw: Draw, model: onnx.ModelProto) -> None:
    """Gives a weight new values, or a dim more or less."""
    graph = model.graph
    if not graph.initializer:
        return
    weight = draw.pick(graph.initializer)
    x = onnx.numpy_helper.to_array(weight)
    if x.dtype.kind in "iu" and x.ndim <= 1 and x.size:
        x = x.copy()
        x.flat[draw.below(x.size)] += draw.pick([-1, 1])
    elif draw.chance(0.3):
        x = x[None] if draw.chance(0.5) or not x.ndim else x[:-1]
    else:
        x = draw.array(x.dtype, x.shape, 0.5)
    weight.CopyFrom(tensor(x, weight.name))


def reveal(draw: Draw, model: onnx.ModelProto) -> None:
    """Makes an inner value an output."""
    inner = [y for node in model.graph.node for y in node.output if y]
    known = {o.name for o in model.graph.output}
    free = [name for name in inner if name not in known]
    if free:
        model.graph.output.append(onnx.ValueInfoProto(name=draw.pick(free)))
