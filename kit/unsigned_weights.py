"""Makes integer products equal on every processor: on AVX2 without VNNI, onnxruntime adds pairs of uint8 × int8
products in 16 bits, with saturation; uint8 × uint8 is exact everywhere. It has no int8 × uint8, so products of int8
activations are left alone: their weights should have seven bits."""

from __future__ import annotations

import onnx
from onnx import numpy_helper

# operator -> positions of the weights and of their zero point
PRODUCTS = {"MatMulInteger": (1, 3), "ConvInteger": (1, 3), "QLinearConv": (3, 5), "QLinearMatMul": (3, 5)}
SIGN = 128


def unsigned_weights(data: bytes) -> bytes:
    """The model with the int8 weights of products, and their zero points, as uint8 with 128 added."""
    if b"Integer" not in data and b"QLinear" not in data:
        return data
    model = onnx.load_from_string(data)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    moved: set[str] = set()
    for node in model.graph.node:
        weight, zero = PRODUCTS.get(node.op_type, (0, 0))
        tensor = weights.get(node.input[weight]) if weight else None
        if tensor is None or (tensor.name not in moved and tensor.data_type != onnx.TensorProto.INT8):
            continue
        own = weights.get(node.input[2]) if len(node.input) > 2 else None  # the zero point of the activations
        if own is not None and own.data_type == onnx.TensorProto.INT8:
            continue
        if len(node.input) <= zero or not node.input[zero]:
            name = f"{tensor.name}.zero"
            if name not in weights:
                weights[name] = model.graph.initializer.add(name=name, data_type=onnx.TensorProto.INT8, raw_data=b"\0")
            node.input.extend([""] * (zero + 1 - len(node.input)))
            node.input[zero] = name
        for name in {tensor.name, node.input[zero]} - moved:
            values = numpy_helper.to_array(weights[name])
            weights[name].CopyFrom(numpy_helper.from_array(values.view("uint8") ^ SIGN, name))
            moved.add(name)
    return model.SerializeToString()
