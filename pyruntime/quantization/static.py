"""Static quantisation: weights and activations as codes of 8 bits, between QuantizeLinear and DequantizeLinear.

Spec: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F32, I8, DType
from pyruntime.onnx.edit import FileModel, FileNode, Part, initializer, insert, new, new_node, renamed
from pyruntime.onnx.model_file import Open, edited
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.sources import MemorySource
from pyruntime.onnx.write import INITIALIZER, INPUT, OUTPUT, Value, text
from pyruntime.quantization import calibration as ranges
from pyruntime.quantization.folded import Constants, folded, free_prefix
from pyruntime.quantization.layers import Layer, find_layers, without_kept
from pyruntime.quantization.options import StaticOptions
from pyruntime.quantization.quantized import LayerReport, Quantized
from pyruntime.quantization.steps import Measure, Steps, magnitudes, output_errors

_PRODUCTS = ("Conv", "Gemm", "MatMul")
_MOVES = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # of codes
# of codes, if an input is codes already
_JOINS = ("Add", "AveragePool", "Concat", "GlobalAveragePool", "LeakyRelu", "Mul", "Sigmoid")
_LIMITS = ("Clip", "Relu")  # codes of the result saturate as they do
_MOST_BIAS = 2**30  # leaves half of 32 bits for the products
_OPSET = 13  # from which on scales can have an axis


def static(open_model: Open, options: StaticOptions) -> Steps[Quantized]:
    """Yields what the host must run. open_model: opens the model's file anew, because editing changes it"""
    options.check()
    work = _Work(open_model, tuple(options.keep))
    yield Measure(edited(open_model()), "expected")
    yield from work.calibrate(options)
    made = yield from work.written()
    if not options.trainable:
        written = MemorySource(made.read(0, made.size))
        made = yield from folded(lambda: FileModel(written))
    return Quantized(made, work.report(), (yield from output_errors(made)))


@dataclass(slots=True)
class _Work:
    """codes: values that become codes, each with the value whose scale it has; scales: of these"""

    open_model: Open
    keep: tuple[str, ...]
    layers: list[Layer] = field(default_factory=list)
    codes: dict[str, str] = field(default_factory=dict)
    scales: dict[str, tuple[float, int]] = field(default_factory=dict)
    prefix: str = ""  # of new names

    def __post_init__(self) -> None:
        file = self.open_model()
        if file.opset < _OPSET:
            hint = "onnx.version_converter.convert_version(model, 17)"
            raise InvalidInput(f"the model has opset {file.opset}, static quantisation needs {_OPSET}", hint=hint)
        self.layers, self.prefix = self._layers(file), free_prefix(file)
        if not self.layers:
            text = "no Conv, Gemm or MatMul has a constant weight of float32"
            raise InvalidInput(text, hint="Gemm also needs alpha and beta of 1; `quantize` makes other weights smaller")
        self._choose(file)

    def _layers(self, file: FileModel) -> list[Layer]:
        found = [a for a in find_layers(file, 1) if a.is_top and a.node.op in _PRODUCTS and a.weight.dtype is F32]
        return without_kept([a for a in found if _is_plain(a)], self.keep)

    def _choose(self, file: FileModel) -> None:
        nodes = file.graph.nodes
        constants = {"", *(name for name, _ in file.graph.named(INITIALIZER))}
        for n in nodes:
            if n.op == "Constant" or (n.inputs and constants.issuperset(n.inputs)):
                constants |= {*n.outputs}
        outputs = {name for name, _ in file.graph.named(OUTPUT)}
        readers: dict[str, list[FileNode]] = {}
        for n in nodes:
            for x in n.inputs:
                readers.setdefault(x, []).append(n)

        def limited(name: str) -> str:
            """The value, or that of the limit which is its only reader."""
            found = readers.get(name, [])
            alone = len(found) == 1 and name not in outputs and found[0].op in _LIMITS and found[0].domain == ""
            return found[0].outputs[0] if alone else name

        made = {a.node.outputs[0] for a in self.layers}
        chosen = {a.node.inputs[0] for a in self.layers}
        chosen |= {limited(a.node.outputs[0]) for a in self.layers if a.node.op == "Conv"}
        count = -1
        while count != len(chosen):
            count = len(chosen)
            for n in nodes:
                if n.domain not in ("", "ai.onnx") or n.outputs[0] in made:
                    continue
                if n.op in _MOVES and {n.inputs[0], n.outputs[0]} & chosen:
                    chosen |= {n.inputs[0], n.outputs[0]}
                    self.codes[n.outputs[0]] = n.inputs[0]
                elif n.op in _JOINS and chosen & {*n.inputs} and constants.isdisjoint(n.inputs):
                    chosen |= {*n.inputs, limited(n.outputs[0])}
        order = [*[name for name, _ in file.graph.named(INPUT)], *[y for n in nodes for y in n.outputs]]
        self.codes = {x: self._origin(x) for x in dict.fromkeys(order) if x in chosen - constants}

    def _origin(self, name: str) -> str:
        while name in self.codes and self.codes[name] != name:
            name = self.codes[name]
        return name

    def calibrate(self, options: StaticOptions) -> Steps[None]:
        """Finds the scales of the values on the samples. Errors: InvalidInput for numbers that are not finite"""
        origins = [*dict.fromkeys(self.codes.values())]
        ends: dict[str, tuple[float, float]] = {}
        for numbers in (yield Measure(self._told(origins, "ReduceMin", "ReduceMax"), "numbers")):
            for name in origins:
                low, high = (numbers[f"{self.prefix}{op} {name}"] for op in ("ReduceMin", "ReduceMax"))
                if low == math.inf and high == -math.inf:
                    continue  # an empty tensor
                if not math.isfinite(low + high):
                    text = f'"{name}" has numbers that are not finite on these samples'
                    raise InvalidInput(text, hint="keep its layers")
                least, most = ends.get(name, (0.0, 0.0))
                ends[name] = min(least, low), max(most, high)
        if empty := next((name for name in origins if name not in ends), None):
            raise InvalidInput(f'"{empty}" has no numbers on these samples', hint="give samples of at least one row")
        sizes = {f"{self.prefix}Identity {name}": max(-low, high) for name, (low, high) in ends.items() if low < high}
        counts: dict[str, list[int]] = {}
        if options.calibration != "range" and sizes:
            models = {F32.name: ranges.histogram_model()}
            names = [name for name in origins if f"{self.prefix}Identity {name}" in sizes]
            for sample in (yield Measure(self._told(names, "Identity"), "each", models, sizes)):
                for name, found in sample.items():
                    more = memoryview(found["counts"]).cast("i").tolist()
                    counts[name] = list(map(int.__add__, counts.get(name, [0] * len(more)), more))
        for name, (low, high) in ends.items():
            found = counts.get(f"{self.prefix}Identity {name}", [])
            limits = ranges.range_of(low, high, found, options.calibration, options.percentile)
            self.scales[name] = ranges.scale_of(*limits)

    def _told(self, names: Sequence[str], *ops: str) -> PieceSource:
        """The model with what these operators compute of some values as its outputs."""
        file = self.open_model()
        file.graph.remove([part for _, part in file.graph.named(OUTPUT)])
        attributes: dict[str, Value] = {} if ops == ("Identity",) else {"keepdims": 0}
        found = [(op, x, f"{self.prefix}{op} {x}") for x in names for op in ops]
        file.graph.add_nodes([new_node(op, [x], y, attributes=attributes) for op, x, y in found])
        insert(file.graph.parts, [new(OUTPUT, text(1, y)) for _, _, y in found])
        return edited(file)

    def written(self) -> Steps[PieceSource]:
        """The model, with floats before QuantizeLinear."""
        file = self.open_model()
        layers = self._layers(file)
        made: dict[str, Part] = {}
        for origin, (scale, zero) in self.scales.items():
            made |= _initializer(f"{self.prefix}{origin}.scale", F32, (), scale)
            made |= _initializer(f"{self.prefix}{origin}.zero", I8, (), zero)
        constants = Constants(file.graph)
        weights = {}
        for a in layers:
            weights[a.node] = yield from _weight(a, self.prefix, made, self._least(a, constants))
        graph = file.graph
        outputs = {name for name, _ in graph.named(OUTPUT)}
        can_drop = not any(n.graphs for n in graph.nodes)  # graphs inside may read what Relu returns
        replaced: dict[FileNode, list[FileNode]] = {}
        for n in graph.nodes:
            inputs = {
                k: f"{self.prefix}{x}.real" for k, x in enumerate(n.inputs) if x in self.codes and x not in outputs
            }
            extra, weight = weights.get(n, ([], ""))
            coded = {k: f"{self.prefix}{y}.float" for k, y in enumerate(n.outputs) if y in self.codes and y in outputs}
            node = renamed(file.wire, n, inputs | ({1: weight} if weight else {}), coded)
            is_limit = can_drop and n.op == "Relu" and self._is_positive(n.outputs[0])
            sources = [*node.inputs] if is_limit else node.outputs
            coding = [(x, y) for x, y in zip(sources, n.outputs, strict=False) if y in self.codes]
            pairs = [m for x, y in coding for m in self._pair(x, y, outputs)]
            replaced[n] = [*extra, *[node] * (not is_limit), *pairs]
        made_by_nodes = {y for n in graph.nodes for y in n.outputs}
        first = [m for x in self.codes if x not in made_by_nodes for m in self._pair(x, x, set())]
        replaced[graph.nodes[0]] = [*first, *replaced[graph.nodes[0]]]
        graph.replace_nodes(replaced)
        insert(graph.parts, [*made.values()])
        return edited(file)

    def _least(self, layer: Layer, constants: Constants) -> list[float]:
        """The scales of a weight from which on the codes of its bias, which has the scale of the sums, fit 32 bits."""
        source, _, *biases = layer.node.inputs
        bias = constants.floats(biases[0]) if biases and source in self.codes else []
        return [abs(x) / (self.scales[self.codes[source]][0] * _MOST_BIAS) for x in bias]

    def _is_positive(self, name: str) -> bool:
        """Whether the least code of a value is that of 0, so that codes saturate as Relu does."""
        return name in self.codes and self.scales[self.codes[name]][1] == -128

    def _pair(self, source: str, name: str, outputs: set[str]) -> list[FileNode]:
        """A value as codes, and as their numbers: `….real`, or of an output of the model its own name."""
        own, origin = f"{self.prefix}{name}", f"{self.prefix}{self.codes[name]}"
        scale = [f"{origin}.scale", f"{origin}.zero"]
        codes, after = f"{own}.codes", name if name in outputs else f"{own}.real"
        return [
            new_node("QuantizeLinear", [source, *scale], codes),
            new_node("DequantizeLinear", [codes, *scale], after),
        ]

    def report(self) -> list[LayerReport]:
        """Layers with their new bytes: a code for each weight, a scale and a zero point for each channel."""
        return [
            LayerReport(a.name, a.node.op, a.shape, 8, a.weight.size, a.weight.size // 4 + 5 * a.shape[_axis(a)], None)
            for a in self.layers
        ]


def _is_plain(layer: Layer) -> bool:
    attributes = layer.node.attributes
    factors = all(attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))
    return factors and not layer.is_transposed and not attributes.get("transA", 0)


def _axis(layer: Layer) -> int:
    """Of a weight's output channels."""
    return 1 if layer.node.op != "Conv" and layer.has_columns else 0


def _weight(
    layer: Layer, prefix: str, made: dict[str, Part], least: list[float]
) -> Steps[tuple[list[FileNode], str]]:  # fmt: skip
    """Nodes that round a weight to codes with a scale for each channel, from `least` on, and what they compute. Weights
    of several layers are rounded once for each."""
    axis = _axis(layer)
    channels = layer.shape[axis]
    dims = math.prod(layer.shape[:axis]), channels, math.prod(layer.shape[axis + 1 :])
    most = yield from magnitudes(F32, dims, layer.weight.read())
    if math.inf in most:
        raise InvalidInput(f'layer "{layer.name}" has weights that are not finite', hint=f'keep=["{layer.name}"]')
    name = f"{prefix}{layer.node.outputs[0]}.weight"
    bounds = least if len(least) == channels else [max(least, default=0.0)] * channels
    scales = [max(x / 127 if x else 1.0, bound) for x, bound in zip(most, bounds, strict=True)]
    made |= _initializer(f"{name}.scale", F32, (channels,), *scales)
    made |= _initializer(f"{name}.zero", I8, (channels,), *[0] * channels)
    scale, attributes = [f"{name}.scale", f"{name}.zero"], {"axis": axis}
    nodes = [
        new_node("QuantizeLinear", [layer.weight_name, *scale], f"{name}.codes", attributes=attributes),
        new_node("DequantizeLinear", [f"{name}.codes", *scale], name, attributes=attributes),
    ]
    return nodes, name


def _initializer(name: str, dtype: DType, shape: tuple[int, ...], *values: float) -> dict[str, Part]:
    data = struct.pack(f"<{len(values)}{'f' if dtype is F32 else 'b'}", *values)
    return {name: initializer(name, dtype, shape, data)}
