"""What type an output has by the operators' schemas, whoever computes it."""

from __future__ import annotations

import onnx

from fuzz.mutate_node import dtype_named
from fuzz.node import code_of_dtype
from fuzz.signatures import find


def output_types(model: onnx.ModelProto) -> list[int]:
    """Element types of the outputs, 0 where inference finds none and a schema leaves more than one."""
    try:
        outputs = onnx.shape_inference.infer_shapes(model).graph.output
    except onnx.shape_inference.InferenceError:
        outputs = model.graph.output
    return [value.type.tensor_type.elem_type or _only_type(model, value.name) for value in outputs]


def _only_type(model: onnx.ModelProto, name: str) -> int:
    """Of what a node gives under a name, if its schema allows one type only."""
    opsets = {i.domain: i.version for i in model.opset_import}
    for node in model.graph.node:
        signature = find(node.domain, node.op_type, opsets.get(node.domain, 1))
        if name in node.output and signature:
            places = signature.outputs[list(node.output).index(name) :][:1]
            allowed = [kind for parameter in places for kind in signature.allowed(parameter)]
            dtype = dtype_named(allowed[0]) if len(allowed) == 1 else None
            return 0 if dtype is None else code_of_dtype(dtype)
    return 0
