"""`quantize_static`: weights and activations as codes of 8 bits, between QuantizeLinear and DequantizeLinear.

Spec: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.arguments import checked
from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F32, I8, DType
from pyruntime.native.sessions.session import Session
from pyruntime.native.smaller import calibration as ranges
from pyruntime.native.smaller.folded_codes import Constants, folded, free_prefix
from pyruntime.onnx.edit import FileModel, FileNode, Part, insert, new, new_node, renamed
from pyruntime.onnx.model_file import Open, inlined, opener
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.write import INITIALIZER, INPUT, OUTPUT, literal, tensor, text
from pyruntime.quantization.layers import Layer, find_layers, without_kept
from pyruntime.quantization.quantized import LayerReport, Quantized
from pyruntime.quantization.steps import relative

if TYPE_CHECKING:
    from onnx import ModelProto

_PRODUCTS = ("Conv", "Gemm", "MatMul")
_MOVES = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # of codes
_JOINS = (
    "Add",
    "AveragePool",
    "Concat",
    "GlobalAveragePool",
    "LeakyRelu",
    "Mul",
    "Sigmoid",
)  # of codes, if an input is codes already
_LIMITS = ("Clip", "Relu")  # codes of the result saturate as they do
_MOST_BIAS = 2**30  # leaves half of 32 bits for the products
_OPSET = 13  # from which on scales can have an axis


@checked
def quantize_static(
    model: str | os.PathLike[str] | bytes | ModelProto,
    samples: Iterable[Mapping[str, Any]],
    *,
    calibration: str = "range",
    percentile: float = 99.99,
    keep: Sequence[str] = (),
    trainable: bool = False,
) -> Quantized:
    """A model whose Conv, Gemm and MatMul with constant weights, and what lies between them, compute with codes of 8
    bits: weights with a scale for each output channel, activations with one scale and a zero point each.

    samples: inputs by name, from which the ranges of activations follow, and the errors of the report
    calibration: "range" of all numbers; "percentile": without so many of the outermost; "entropy": the range whose
        codes have the histogram that is nearest to that of the numbers
    keep: patterns of names of layers that stay floats
    trainable: weights stay floats before QuantizeLinear, so that a training session with `scales="lsq"` trains them
    Errors: InvalidInput for a model without such a layer or below opset 13, or samples without numbers.
    """
    given = list(samples)
    ranges.check(calibration, percentile)
    if not given:
        raise InvalidInput("static quantisation needs samples", hint="inputs by name, of your own data")
    open_model = opener(model)
    work = _Work(open_model, tuple(keep))
    expected = work.calibrate(given, lambda h: h.range(calibration, percentile))
    data = work.written()
    data = data if trainable else folded(data)
    session = Session(data)
    outputs = [o.name for o in session.get_outputs()]
    found = [session.run(outputs, feeds) for feeds in given]
    return Quantized(_source(data), work.report(), _errors(outputs, expected, found))


def _source(data: bytes) -> PieceSource:
    return PieceSource([literal(data)], lambda _: None, {})  # type: ignore[arg-type, return-value]


def _errors(names: list[str], expected: list[dict[str, Any]], found: list[list[Any]]) -> dict[str, float]:
    """Of each output of floats, relative to its size."""
    sums: dict[str, list[float]] = {}
    for wanted, values in zip(expected, found, strict=True):
        for name, y in zip(names, values, strict=True):
            x = np.asarray(wanted[name])
            if x.dtype.kind == "f":
                both = sums.setdefault(name, [0.0, 0.0])
                is_same = x.shape == y.shape
                both[0] += float(np.square(np.subtract(y, x, dtype=np.float64)).sum()) if is_same else np.inf
                both[1] += float(np.square(x, dtype=np.float64).sum())
    return {name: relative(*both) for name, both in sums.items()}


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
        opset = max((v for domain, v in file.opsets().items() if domain in ("", "ai.onnx")), default=1)
        if opset < _OPSET:
            hint = "onnx.version_converter.convert_version(model, 17)"
            raise InvalidInput(f"the model has opset {opset}, static quantisation needs {_OPSET}", hint=hint)
        self.layers, self.prefix = self._layers(file), free_prefix(file)
        if not self.layers:
            raise InvalidInput("no Conv, Gemm or MatMul has a constant weight of float32", hint="see `inspect`")
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

    def calibrate(self, samples: list[Mapping[str, Any]], range_of: Any) -> list[dict[str, Any]]:
        """Runs the samples. Returns the outputs of the model."""
        file = self.open_model()
        own = [name for name, _ in file.graph.named(OUTPUT)]
        inputs = {x for n in file.graph.nodes for x in n.outputs}
        wanted = sorted({*self.codes.values()} - {*own})
        insert(file.graph.parts, [new(OUTPUT, text(1, x)) for x in wanted if x in inputs])
        session = Session(PieceSource(inlined(file), self.open_model().opened, {}))
        names = [o.name for o in session.get_outputs()]
        seen: dict[str, ranges.Histogram | None] = {x: ranges.Histogram() for x in self.codes.values()}
        results = []
        for feeds in samples:
            made = session.run(names, feeds)
            found = {**feeds, **dict(zip(names, made, strict=True))}
            for name, histogram in seen.items():
                x = np.asarray(found[name])
                if histogram is None or x.dtype != np.float32:
                    seen[name] = None
                else:
                    histogram.add(name, x)
            results.append({name: found[name] for name in own})
        session.release()
        self.scales = {x: ranges.scale_of(*range_of(h)) for x, h in seen.items() if h is not None}
        self.codes = {x: origin for x, origin in self.codes.items() if origin in self.scales}
        return results

    def written(self) -> bytes:
        """The model, with floats before QuantizeLinear."""
        file = self.open_model()
        layers = self._layers(file)
        made: dict[str, Part] = {}
        for origin, (scale, zero) in self.scales.items():
            made |= _initializer(f"{self.prefix}{origin}.scale", F32, np.float32(scale))
            made |= _initializer(f"{self.prefix}{origin}.zero", I8, np.int8(zero))
        constants = Constants(file.graph)
        weights = {a.node: _weight(a, self.prefix, made, self._least(a, constants)) for a in layers}
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
        source = PieceSource(inlined(file), self.open_model().opened, {})
        return source.read(0, source.size)

    def _least(self, layer: Layer, constants: Constants) -> Any:
        """The scales of a weight from which on the codes of its bias, which has the scale of the sums, fit 32 bits."""
        source, _, *biases = layer.node.inputs
        bias = constants.get(biases[0]) if biases and source in self.codes else None
        if bias is None or bias.ndim != 1:
            return 0
        return np.abs(bias.astype(np.float64)) / (self.scales[self.codes[source]][0] * _MOST_BIAS)

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


def _weight(layer: Layer, prefix: str, made: dict[str, Part], least: Any) -> tuple[list[FileNode], str]:
    """Nodes that round a weight to codes with a scale for each channel, from `least` on, and what they compute. Weights
    of several layers are rounded once for each."""
    w = np.frombuffer(layer.weight.read(), "<f4").reshape(layer.shape)
    axis = _axis(layer)
    most = np.abs(w).max(axis=tuple(n for n in range(w.ndim) if n != axis))
    if not np.isfinite(most).all():
        raise InvalidInput(f'layer "{layer.name}" has weights that are not finite', hint=f'keep=["{layer.name}"]')
    name = f"{prefix}{layer.node.outputs[0]}.weight"
    made |= _initializer(f"{name}.scale", F32, np.maximum(np.where(most > 0, most / 127, 1), least).astype(np.float32))
    made |= _initializer(f"{name}.zero", I8, np.zeros(len(most), np.int8))
    scale, attributes = [f"{name}.scale", f"{name}.zero"], {"axis": axis}
    nodes = [
        new_node("QuantizeLinear", [layer.weight_name, *scale], f"{name}.codes", attributes=attributes),
        new_node("DequantizeLinear", [f"{name}.codes", *scale], name, attributes=attributes),
    ]
    return nodes, name


def _initializer(name: str, dtype: DType, values: Any) -> dict[str, Part]:
    pieces = tensor(name, dtype, np.shape(values), literal(np.asarray(values).tobytes()))
    return {name: Part(INITIALIZER, pieces=pieces)}
