"""The types that the operators' schemas give the outputs of a model."""

from __future__ import annotations

import onnx

from fuzz.mutate_node import dtype_named
from fuzz.node import code_of_dtype
from fuzz.signatures import Parameter, Signature, find


def output_types(model: onnx.ModelProto) -> list[int]:
    """Element types of the outputs; 0 if inference finds none and the schema allows several."""
    try:
        outputs = onnx.shape_inference.infer_shapes(model).graph.output
    except onnx.shape_inference.InferenceError:
        outputs = model.graph.output
    return [value.type.tensor_type.elem_type or _only_type(model, value.name) for value in outputs]


def _only_type(model: onnx.ModelProto, name: str) -> int:
    """The only type that a schema allows for the output of this name, by itself or as an input's type; else 0."""
    opsets = {i.domain: i.version for i in model.opset_import}
    for node in model.graph.node:
        signature = find(node.domain, node.op_type, opsets.get(node.domain, 1))
        if name in node.output and signature:
            of = signature.outputs[min([*node.output].index(name), len(signature.outputs) - 1)]
            allowed = signature.allowed(of)
            dtype = dtype_named(allowed[0]) if len(allowed) == 1 else None
            return code_of_dtype(dtype) if dtype is not None else _type_of_input(model, node, signature, of)
    return 0


def _type_of_input(model: onnx.ModelProto, node: onnx.NodeProto, signature: Signature, of: Parameter) -> int:
    """The type of the first input with the output's type variable, if it is fed or a weight; else 0."""
    if of.option == "Variadic":
        return 0  # each output may have its own type
    known_types = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
    known_types |= {w.name: w.data_type for w in model.graph.initializer}
    alike = [x for n, x in enumerate(node.input) if (p := signature.parameter(n)) and p.kind == of.kind]
    return known_types.get(alike[0], 0) if alike else 0
