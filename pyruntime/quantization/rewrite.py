"""Nodes that compute with codes in place of a layer's node, and the model with such nodes.

Products become MatMulNBits and lookups GatherBlockQuantized
(https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md), which any opset can have; weights of
convolutions come from DequantizeLinear (https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html). Weights of 16 bits
come from Cast.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from pyruntime.ir.dtype import F16, F32, I64, U4, U8, DType
from pyruntime.onnx.edit import FileModel, FileNode, new_node, renamed
from pyruntime.onnx.graph import Weight
from pyruntime.onnx.write import Piece, Value, literal, tensor
from pyruntime.quantization.codes import Coding
from pyruntime.quantization.layers import Layer
from pyruntime.quantization.options import Options

KEPT = 0  # "bits" of a layer that stays as it is
MICROSOFT = "com.microsoft"
_CHANNELS = 16  # a convolution with fewer input channels has too few weights for a scale of their own
_HALVES = 2**-14, 65504.0  # the range in which half floats have all of their bits
# The range of scales. Half floats below 2**-20 have less than five bits: a scale that is rounded up to them can be
# 1/16 too large.
_SCALES = {F16: (2**-20, 65504.0), F32: (2**-126, 3.4e38)}


@dataclass(frozen=True, slots=True)
class Made:
    """A new initializer. weight, coding: what its values are computed from; part: which output of the coding they are;
    data: the values if they are known"""

    dtype: DType
    shape: tuple[int, ...]
    weight: Weight | None = None
    coding: Coding | None = None
    part: str = "codes"
    data: bytes = b""

    @property
    def size(self) -> int:
        return (prod(self.shape) * self.dtype.bits + 7) // 8

    def pieces(self, name: str) -> list[Piece]:
        return tensor(name, self.dtype, self.shape, literal(self.data) if self.data else None)


@dataclass(slots=True)
class Writer:
    """Writes nodes for layers of a model. New initializers are collected in `made`; equal ones are shared."""

    model: FileModel
    layers: Sequence[Layer]
    options: Options
    made: dict[str, Made] = field(default_factory=dict)

    @property
    def block(self) -> int:
        return self.options.block_size

    def possible(self, layer: Layer, bits: int, largest: float) -> int:
        """`bits`, or what the layer can have instead: more bits, or KEPT, also if the weight's type cannot hold the
        scales. largest: the largest magnitude of the weight, infinite if a number is not finite"""
        half = layer.weight.dtype is F16
        opset = self.model.opset
        is_convolution = layer.node.op in ("Conv", "ConvTranspose")
        if is_convolution and bits < 8 and (opset < 21 or layer.shape[1] < _CHANNELS):
            bits = 8
        if is_convolution and bits == 8 and opset < (19 if half else 13):
            bits = 16
        if layer.node.op == "Gather" and layer.shape[1] * bits % 8:
            bits = 8
        largest = largest or 1.0  # scales of zeros are 1
        if bits == 16:
            return KEPT if half or not _HALVES[0] <= largest <= _HALVES[1] else bits
        least, most = _SCALES[layer.weight.dtype]
        alpha = layer.node.attributes.get("alpha", 1.0) if layer.node.op == "Gemm" else 1.0
        return bits if bits != KEPT and least <= 2 * largest * abs(alpha) / (2**bits - 1) <= most else KEPT

    def nodes(self, layer: Layer, bits: int, output: str) -> list[FileNode]:
        """Nodes that compute the layer's output under this name."""
        if bits == 16:
            return self._from_half(layer, output)
        match layer.node.op:
            case "MatMul":
                return [self._product(layer, bits, output)]
            case "Gemm":
                return self._gemm(layer, bits, output)
            case "Gather":
                return self._lookup(layer, bits, output)
            case _:
                return self._convolution(layer, bits, output)

    def size(self, node: FileNode) -> int:
        """Bytes of the new initializers that a node reads."""
        return sum(self.made[name].size for name in node.inputs if name in self.made)

    def _prefix(self, layer: Layer, bits: int) -> str:
        """Of the names of the codes. Branches may have different weights of the same name."""
        places = list(dict.fromkeys(a.place for a in self.layers if a.weight_name == layer.weight_name))
        at = places.index(layer.place)
        return f"{layer.weight_name}{f'.{at}' if at else ''}.{bits}bits"

    def _product(self, layer: Layer, bits: int, output: str, alpha: float = 1.0) -> FileNode:
        n, k = layer.shape[::-1] if layer.has_columns else layer.shape
        names = self._matrix(layer, bits, layer.has_columns, alpha)
        sizes: dict[str, Value] = {"K": k, "N": n, "bits": bits, "block_size": self.block}
        if level := self.options.accuracy_level:
            sizes["accuracy_level"] = level
        return new_node("MatMulNBits", [layer.node.inputs[0], *names], output, layer.name, MICROSOFT, sizes)

    def _matrix(self, layer: Layer, bits: int, has_columns: bool, factor: float = 1.0) -> list[str]:
        """The names of codes, scales and zero points of a matrix or its transpose, in MatMulNBits' layout."""
        turned = "turned." if has_columns else ""
        prefix = f"{self._prefix(layer, bits)}.{turned}{factor if factor != 1 else ''}"
        rows, columns = layer.shape[::-1] if has_columns else layer.shape
        blocks = -(-columns // self.block)
        coding = Coding(bits, self.block, "columns" if has_columns else "rows", factor=factor)
        shapes = (rows, blocks, self.block * bits // 8), (rows, blocks), (rows, -(-blocks * bits // 8))
        return self._add_coded(prefix, layer, coding, (U8, layer.weight.dtype, U8), shapes)

    def _gemm(self, layer: Layer, bits: int, output: str) -> list[FileNode]:
        """alpha belongs to the scales; beta · C is added after the product."""
        node = layer.node
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        beta = node.attributes.get("beta", 1.0)
        product = f"{output}.product" if bias else output
        nodes = [self._product(layer, bits, product, node.attributes.get("alpha", 1.0))]
        if bias and beta != 1:
            dtype = layer.weight.dtype
            data = struct.pack("<e" if dtype is F16 else "<f", beta)
            factor = self._add(f"{output}.beta", Made(dtype, (1,), data=data))
            nodes.append(new_node("Mul", [bias, factor], bias := f"{output}.bias", f"{layer.name}.beta"))
        return [*nodes, new_node("Add", [product, bias], output, f"{layer.name}.bias")] if bias else nodes

    def _lookup(self, layer: Layer, bits: int, output: str) -> list[FileNode]:
        """A product by the same matrix, as at the end of most decoders, shares the codes."""
        codes, scales, zeros = self._matrix(layer, bits, False)
        rows, width = layer.shape
        nodes = []
        if width % self.block:
            coding = Coding(bits, self.block, codes_in_row=width)
            codes = self._add(f"{codes}.rows", Made(U8, (rows, width * bits // 8), layer.weight, coding))
        else:
            data = struct.pack("<2q", rows, width * bits // 8)
            shape = self._add(f"{codes}.shape", Made(I64, (2,), data=data))
            reshaped = f"{output}.codes"
            nodes.append(new_node("Reshape", [codes, shape], reshaped, f"{layer.name}.codes"))
            codes = reshaped
        options: dict[str, Value] = {"bits": bits, "block_size": self.block, "gather_axis": 0, "quantize_axis": 1}
        inputs = [codes, layer.node.inputs[1], scales, zeros]
        return [*nodes, new_node("GatherBlockQuantized", inputs, output, layer.name, MICROSOFT, options)]

    def _convolution(self, layer: Layer, bits: int, output: str) -> list[FileNode]:
        """8 bits: a scale for each entry of the first axis. Fewer: blocks of input channels, for each place of the
        kernel."""
        filters, channels, *places = layer.shape
        dtype = layer.weight.dtype
        if bits == 8:
            coding = Coding(8, prod(layer.shape[1:]))
            options: dict[str, Value] = {"axis": 0}
            shapes: tuple[tuple[int, ...], ...] = (layer.shape, (filters,), (filters,))
            dtypes = (U8, dtype, U8)
        else:
            coding = Coding(bits, self.block, "channels")
            options = {"axis": 1, "block_size": self.block}
            scales = (filters, -(-channels // self.block), *places)
            shapes, dtypes = (layer.shape, scales, scales), (U4, dtype, U4)
        names = self._add_coded(f"{self._prefix(layer, bits)}.", layer, coding, dtypes, shapes)
        return self._with_weight(layer, "DequantizeLinear", names, output, options)

    def _from_half(self, layer: Layer, output: str) -> list[FileNode]:
        name = self._add(self._prefix(layer, 16), Made(F16, layer.shape, layer.weight, Coding(16, 0)))
        return self._with_weight(layer, "Cast", [name], output, {"to": F32.code})

    def _with_weight(
        self, layer: Layer, op: str, inputs: list[str], output: str, options: dict[str, Value]
    ) -> list[FileNode]:  # fmt: skip
        """The layer's node, reading its weight from a node `op`."""
        weight = f"{output}.weight"
        nodes = [new_node(op, inputs, weight, f"{layer.name}.weight", attributes=options)]
        if layer.is_transposed:
            nodes.append(new_node("Transpose", [weight], weight := f"{weight}.turned", attributes={"perm": [1, 0]}))
        at = 0 if layer.node.op == "Gather" else 1
        return [*nodes, renamed(self.model.wire, layer.node, {at: weight}, {0: output})]

    def _add_coded(
        self, prefix: str, layer: Layer, coding: Coding, dtypes: Sequence[DType], shapes: Sequence[tuple[int, ...]]
    ) -> list[str]:  # fmt: skip
        """The names of codes, scales and zero points."""
        return [
            self._add(f"{prefix}{part}", Made(dtype, shape, layer.weight, coding, part))
            for part, dtype, shape in zip(("codes", "scales", "zeros"), dtypes, shapes, strict=True)
        ]

    def _add(self, name: str, made: Made) -> str:
        self.made.setdefault(name, made)
        return name
