"""Nodes that compute with codes in place of a layer's node, and the model with such nodes.

Products become MatMulNBits and lookups GatherBlockQuantized
(https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md), which any opset can have; weights of
convolutions come from DequantizeLinear (https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html). Weights of 16 bits
come from Cast.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from pyruntime.quantization.codes import Array, encode, pack
from pyruntime.quantization.layers import Layer, attribute

KEPT = 0  # "bits" of a layer that stays as it is
MICROSOFT = "com.microsoft"
_CHANNELS = 16  # a convolution with fewer input channels has too few weights for a scale of their own


@dataclass(slots=True)
class Writer:
    """Writes nodes for layers of a model. New initializers are collected in `made`; equal ones are shared."""

    model: ModelProto
    block: int
    accuracy_level: int = 0
    made: dict[str, TensorProto] = field(default_factory=dict)
    _weights: dict[str, list[TensorProto]] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        return max((o.version for o in self.model.opset_import if o.domain in ("", "ai.onnx")), default=1)

    def possible(self, layer: Layer, bits: int) -> int:
        """`bits`, or what the layer can have instead: more bits, or KEPT."""
        half = layer.weight.data_type == TensorProto.FLOAT16
        is_convolution = layer.node.op_type in ("Conv", "ConvTranspose")
        if is_convolution and bits < 8 and (self.opset < 21 or layer.shape[1] < _CHANNELS):
            bits = 8
        if is_convolution and bits == 8 and self.opset < (19 if half else 13):
            bits = 16
        if layer.node.op_type == "Gather" and layer.shape[1] * bits % 8:
            bits = 8
        values = layer.values()
        if bits == KEPT or not np.isfinite(values).all():
            return KEPT
        return KEPT if bits == 16 and (half or np.abs(values).max() > np.finfo(np.float16).max) else bits

    def nodes(self, layer: Layer, bits: int, output: str) -> list[NodeProto]:
        """Nodes that compute the layer's output under this name."""
        if bits == 16:
            return self._from_half(layer, output)
        match layer.node.op_type:
            case "MatMul":
                return [self._product(layer, bits, output)]
            case "Gemm":
                return self._gemm(layer, bits, output)
            case "Gather":
                return self._lookup(layer, bits, output)
            case _:
                return self._convolution(layer, bits, output)

    def _prefix(self, layer: Layer, bits: int) -> str:
        """Of the names of the codes. Branches may have different weights of the same name."""
        same = self._weights.setdefault(layer.weight_name, [])
        if not any(weight is layer.weight for weight in same):
            same.append(layer.weight)
        at = next(n for n, weight in enumerate(same) if weight is layer.weight)
        return f"{layer.weight_name}{f'.{at}' if at else ''}.{bits}bits"

    def size(self, node: NodeProto) -> int:
        """Bytes of the new initializers that a node reads."""
        return sum(len(self.made[name].raw_data) for name in node.input if name in self.made)

    def _product(self, layer: Layer, bits: int, output: str, alpha: float = 1.0) -> NodeProto:
        n, k = layer.shape[::-1] if layer.has_columns else layer.shape
        names = self._matrix(layer, bits, layer.has_columns, alpha)
        sizes: dict[str, Any] = {"K": k, "N": n, "bits": bits, "block_size": self.block}
        if self.accuracy_level:
            sizes["accuracy_level"] = self.accuracy_level
        inputs = [layer.node.input[0], *names]
        return helper.make_node("MatMulNBits", inputs, [output], layer.name, domain=MICROSOFT, **sizes)

    def _matrix(self, layer: Layer, bits: int, has_columns: bool, factor: float = 1.0) -> list[str]:
        """The names of codes, scales and zero points of a matrix or its transpose, in MatMulNBits' layout."""
        turned = "turned." if has_columns else ""
        prefix = f"{self._prefix(layer, bits)}.{turned}{factor if factor != 1 else ''}"
        names = [f"{prefix}{part}" for part in ("codes", "scales", "zeros")]
        if names[0] not in self.made:
            values = layer.values().T if has_columns else layer.values()
            codes = encode(values, bits, self.block)
            self._add(names[0], pack(codes.codes, bits).reshape(*codes.scales.shape, -1))
            self._add(names[1], (factor * codes.scales).astype(values.dtype))
            self._add(names[2], pack(codes.zeros, bits))
        return names

    def _gemm(self, layer: Layer, bits: int, output: str) -> list[NodeProto]:
        """alpha belongs to the scales; beta · C is added after the product."""
        node = layer.node
        bias = node.input[2] if len(node.input) > 2 else ""
        beta = attribute(node, "beta", 1.0)
        product = f"{output}.product" if bias else output
        alpha = attribute(node, "alpha", 1.0)
        nodes = [self._product(layer, bits, product, alpha)]
        if bias and beta != 1:
            factor = self._add(f"{output}.beta", np.asarray(beta, layer.values().dtype))
            nodes.append(helper.make_node("Mul", [bias, factor], [bias := f"{output}.bias"], f"{layer.name}.beta"))
        return [*nodes, helper.make_node("Add", [product, bias], [output], f"{layer.name}.bias")] if bias else nodes

    def _lookup(self, layer: Layer, bits: int, output: str) -> list[NodeProto]:
        """A product by the same matrix, as at the end of most decoders, shares the codes."""
        codes, scales, zeros = self._matrix(layer, bits, False)
        rows, width = layer.shape
        nodes = []
        if width % self.block:
            codes = self._add(f"{codes}.rows", pack(encode(layer.values(), bits, self.block).codes[:, :width], bits))
        else:
            shape = self._add(f"{codes}.shape", np.array([rows, width * bits // 8]))
            reshaped = f"{output}.codes"
            nodes.append(helper.make_node("Reshape", [codes, shape], [reshaped], f"{layer.name}.codes"))
            codes = reshaped
        options: dict[str, Any] = {"bits": bits, "block_size": self.block, "gather_axis": 0, "quantize_axis": 1}
        inputs = [codes, layer.node.input[1], scales, zeros]
        node = helper.make_node("GatherBlockQuantized", inputs, [output], layer.name, domain=MICROSOFT, **options)
        return [*nodes, node]

    def _convolution(self, layer: Layer, bits: int, output: str) -> list[NodeProto]:
        prefix = f"{self._prefix(layer, bits)}."
        options: dict[str, Any] = {"axis": 0} if bits == 8 else {"axis": 1, "block_size": self.block}
        if f"{prefix}codes" not in self.made:
            self._add_filters(prefix, layer, bits)
        return self._with_weight(
            layer, "DequantizeLinear", [f"{prefix}codes", f"{prefix}scales", f"{prefix}zeros"], output, options
        )

    def _add_filters(self, prefix: str, layer: Layer, bits: int) -> None:
        """8 bits: a scale for each entry of the first axis. Fewer: blocks of input channels, for each place of the
        kernel."""
        values = layer.values()
        if bits == 8:
            codes = encode(values.reshape(len(values), -1), bits, prod(values.shape[1:]))
            self._add(f"{prefix}codes", codes.codes.reshape(values.shape))
            self._add(f"{prefix}scales", codes.scales[:, 0].astype(values.dtype))
            self._add(f"{prefix}zeros", codes.zeros[:, 0])
            return
        last = np.moveaxis(values, 1, -1)
        codes = encode(last.reshape(-1, last.shape[-1]), bits, self.block)
        for part, array in {
            "codes": codes.codes[:, : last.shape[-1]],
            "scales": codes.scales,
            "zeros": codes.zeros,
        }.items():
            placed = np.moveaxis(array.reshape(*last.shape[:-1], -1), -1, 1)
            if part == "scales":
                self._add(f"{prefix}{part}", placed.astype(values.dtype))
            else:
                self._add_narrow(f"{prefix}{part}", placed)

    def _from_half(self, layer: Layer, output: str) -> list[NodeProto]:
        name = self._prefix(layer, 16)
        if name not in self.made:
            self._add(name, layer.values().astype(np.float16))
        return self._with_weight(layer, "Cast", [name], output, {"to": TensorProto.FLOAT})

    def _with_weight(
        self, layer: Layer, op: str, inputs: list[str], output: str, options: dict[str, Any]
    ) -> list[NodeProto]:  # fmt: skip
        """The layer's node, reading its weight from a node `op`."""
        node = NodeProto()
        node.CopyFrom(layer.node)
        node.output[0] = output
        at = 0 if node.op_type == "Gather" else 1
        weight = f"{output}.weight"
        nodes = [helper.make_node(op, inputs, [weight], f"{layer.name}.weight", **options)]
        if layer.is_transposed:
            nodes.append(helper.make_node("Transpose", [weight], [weight := f"{weight}.turned"], perm=[1, 0]))
        node.input[at] = weight
        return [*nodes, node]

    def _add(self, name: str, array: Array) -> str:
        self.made[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def _add_narrow(self, name: str, codes: Array) -> None:
        packed = pack(codes.reshape(1, -1), 4).tobytes()
        self.made[name] = helper.make_tensor(name, TensorProto.UINT4, codes.shape, packed, raw=True)
