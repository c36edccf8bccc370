"""Architectures from the onnx wheel with random weights, since their own weights hide nearly all errors.

The wheel's nine light models (onnx/backend/test/data/light) store almost no weights: ConstantOfShape makes every matrix
and filter but one of inception_v1, and most vectors, of one number. All channels are equal then, and each of the nine
outputs has one number a thousand times: swapped channels, rows or filters change nothing. So they are cases of the
official suite only (kit/conformance). Here five of them get random weights of a trained model's magnitudes;
`test_light_models_are_constant` in tests/test_kit.py checks both statements. The other four would add nothing: resnet50
is in the zoo; alexnet, vgg19 and zfnet512 are larger than 200 MB with the same kinds of layers.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from kit import zoo

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = "densenet121 inception_v1 inception_v2 shufflenet squeezenet".split()


def light_path(name: str) -> Path:
    """The wheel's model, `name` without "light_"."""
    return LIGHT / f"light_{name}.onnx"


def constant_weights(model: onnx.ModelProto) -> dict[str, tuple[list[int], float]]:
    """Shape and value of each tensor that a ConstantOfShape makes of a constant shape."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            value = next((float(numpy_helper.to_array(a.t).item()) for a in node.attribute if a.name == "value"), 0.0)
            found[node.output[0]] = (numpy_helper.to_array(stored[node.input[0]]).tolist(), value)
    return found


def materialize(name: str) -> Path:
    """The path of the model with random weights, written on first use."""
    return zoo.cached(zoo.CACHE / f"{name}.onnx", [light_path(name), Path(__file__)], lambda path: _write(name, path))


def inputs(name: str) -> zoo.Feeds:
    """A picture of random noise, the same on every machine."""
    graph = onnx.load(light_path(name)).graph
    stored = {tensor.name for tensor in graph.initializer}
    (info,) = [info for info in graph.input if info.name not in stored]
    shape = [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim]
    return {info.name: _generator(name).standard_normal(shape, dtype=np.float32)}


def _write(name: str, path: Path) -> None:
    """All weights are random, also the few stored ones, since trained statistics do not fit random filters. The input
    of the last softmax is an output as well, since a softmax hides differences."""
    model = onnx.load(light_path(name))
    graph = model.graph
    shapes = {key: shape for key, (shape, _) in constant_weights(model).items()}
    stored = {t.name: list(t.dims) for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    nodes = [node for node in graph.node if node.output[0] not in shapes]
    factors = {key for node in nodes for n, key in enumerate(node.input) if n in FACTORS.get(node.op_type, ())}
    tensors = [t for t in graph.initializer if t.name not in stored]
    for key, shape in (shapes | stored).items():
        tensors.append(numpy_helper.from_array(_weights(f"{name}:{key}", shape, key in factors), key))
    for field, values in ((graph.node, nodes), (graph.initializer, tensors)):
        del field[:]
        field.extend(values)
    graph.output.extend(
        onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
        for node in nodes
        if node.op_type == "Softmax"
    )
    onnx.save(model, path)


# Inputs that scale activations: scale and variance of a normalisation, either operand of Mul
FACTORS = {"BatchNormalization": (1, 4), "Mul": (0, 1)}


def _weights(key: str, shape: list[int], factor: bool) -> np.ndarray:
    """Filters and matrices that keep the magnitude of activations, factors around 1, biases around 0."""
    generator = _generator(key)
    if math.prod(shape) > max(shape, default=0):
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))
    return (float(factor) + generator.uniform(-0.5, 0.5, shape)).astype(np.float32)


def _generator(key: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(zlib.crc32(key.encode())))
