"""Models in the precisions of transformers.js: fp32, q8 as onnxruntime quantises, q4 in blocks of MatMul's weights,
fp16 with caches of half floats."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32  # weights that share a scale


def q8(model: onnx.ModelProto, path: Path) -> None:
    """Writes the model with 8-bit weights and dynamic quantisation of activations."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # its warnings advise preprocessing
    quantize_dynamic(model, path, weight_type=QuantType.QUInt8)


def q4(model: onnx.ModelProto, path: Path) -> None:
    """Writes the model with each constant second operand of a MatMul in blocks of 4-bit codes."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in constants:
            weight = numpy_helper.to_array(constants[node.input[1]])
            tensors = [numpy_helper.from_array(part, f"{node.output[0]}.{i}") for i, part in enumerate(_blocks(weight))]
            model.graph.initializer.extend(tensors)
            (depth, columns), names = weight.shape, [tensor.name for tensor in tensors]
            sizes = {"K": depth, "N": columns, "bits": 4, "block_size": BLOCK}
            inputs, outputs = [node.input[0], *names], list(node.output)
            node.CopyFrom(helper.make_node("MatMulNBits", inputs, outputs, node.name, domain="com.microsoft", **sizes))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(pruned(model), path)


def half_caches(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the casts between its half floats and caches of float32, as exporters for WebGPU write it."""
    graph, renamed = model.graph, {}
    for node in [node for node in graph.node if node.op_type == "Cast"]:
        (source,), (target,) = node.input, node.output
        if source.startswith("past") or target.startswith("present"):
            renamed |= {target: source} if source.startswith("past") else {source: target}
            graph.node.remove(node)
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for value in [*graph.input, *graph.output]:
        if value.name.startswith(("past", "present")):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


def pruned(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without unused nodes and weights."""
    inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
    return onnx.utils.Extractor(model).extract_model(inputs, outputs)


def _blocks(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K, N) as codes uint8 (N, K / BLOCK, BLOCK / 2), even ones in the low four bits, and scales (N * K / BLOCK).

    The value of a code is scale * (code - 8).
    """
    padded = np.pad(weight, [(0, -len(weight) % BLOCK), (0, 0)])
    blocks = np.ascontiguousarray(padded.T, np.float32).reshape(weight.shape[1], -1, BLOCK)
    scales = np.abs(blocks).max(2, keepdims=True) / 7
    codes = np.rint(blocks / scales + 8).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales.ravel().astype(weight.dtype)
