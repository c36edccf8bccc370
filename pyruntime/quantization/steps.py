"""Quantisation as a generator: it decides and holds the codes, and asks its host for runs. So native sessions, Pyodide
and pages, whose runs are asynchronous, share it."""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F16, F32, F64, DType
from pyruntime.onnx.model_file import Open, inlined
from pyruntime.onnx.piece_source import PieceSource
from pyruntime.onnx.write import Piece
from pyruntime.quantization.codes import Coding, coding_model, comparison, range_model, spans
from pyruntime.quantization.layers import Layer, find_layers, without_kept
from pyruntime.quantization.model import NewModel, with_codes, with_errors
from pyruntime.quantization.options import Options
from pyruntime.quantization.quantized import LayerReport, Quantized
from pyruntime.quantization.rewrite import KEPT, Made, Writer


@dataclass(frozen=True, slots=True)
class Run:
    """Run a small model with inputs of these types, dims and bytes. The answer: bytes of its outputs by name"""

    model: bytes
    feeds: Mapping[str, tuple[str, tuple[int, ...], bytes]]


@dataclass(frozen=True, slots=True)
class Measure:
    """Run a model with each sample. The answer for each sample, by output: if `how` is "numbers", its number; after
    "expected" it is not read, and the host keeps the outputs; if "each", bytes of the outputs of the small model in
    `models` for the type of the output, which reads it as "found", and as "most" its number, or without such numbers as
    "expected" the kept output, None if that has another shape. Outputs of other types are left out."""

    file: PieceSource
    how: str
    models: dict[str, bytes] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)


T = TypeVar("T")
Steps = Generator[Run | Measure, Any, T]


def quantised(open_model: Open, options: Options) -> Steps[Quantized]:
    """Yields what the host must run. open_model: opens the model's file anew, because editing changes it"""
    options.check()
    layers = find_layers(open_model(), options.smallest)
    if not layers:
        text = f"no layer has a weight of {options.smallest} floats or more"
        raise InvalidInput(text, hint="lower `smallest`; weights of products with more than two axes stay floats")
    task = _Task(open_model, options, layers)
    if options.has_samples:
        yield Measure(task.file(inlined(open_model())), "expected")
    left = {id(layer) for layer in without_kept(layers, tuple(options.keep))}
    names = {layer.name for layer in layers if id(layer) not in left}
    plan = yield from task.possible([KEPT if layer.name in names else options.bits for layer in layers])
    if options.max_error is not None:
        plan = yield from _within(task, plan, options.max_error)
    coded = yield from task.coded(plan)
    errors = yield from task.layer_errors(plan)
    report = [
        LayerReport(a.name, a.node.op, a.shape, n or a.weight.dtype.bits, a.weight.size, size, errors.get(i))
        for i, (a, n, size) in enumerate(zip(layers, plan, coded.sizes, strict=True))
    ]
    return Quantized(task.file(coded.pieces), report, (yield from task.errors(coded)))


@dataclass(slots=True)
class _Task:
    """A model whose layers get codes. values: bytes of new weights, by name; ranges: the largest magnitudes of weights,
    by place"""

    open_model: Open
    options: Options
    layers: Sequence[Layer]
    values: dict[str, bytes] = field(default_factory=dict)
    _ranges: dict[int, float] = field(default_factory=dict)

    def file(self, pieces: Sequence[Piece]) -> PieceSource:
        """The file that pieces describe, without a copy of its weights."""
        return PieceSource(pieces, self.open_model().opened, self.values)

    def possible(self, plan: Sequence[int]) -> Steps[list[int]]:
        """What the layers can have: at least these bits."""
        writer = Writer(self.open_model(), self.layers, self.options)
        found = []
        for layer, bits in zip(self.layers, plan, strict=True):
            largest = 0.0 if bits == KEPT else (yield from self._largest(layer))
            found.append(writer.possible(layer, bits, largest))
        return found

    def _largest(self, layer: Layer) -> Steps[float]:
        if layer.place not in self._ranges:
            weight, largest = layer.weight, 0.0
            for span in spans(weight):
                found = yield from magnitudes(weight.dtype, (1, 1, prod(span.dims)), span.read(weight))
                largest = max(largest, *found)
            self._ranges[layer.place] = largest
        return self._ranges[layer.place]

    def coded(self, plan: Sequence[int]) -> Steps[NewModel]:
        """The model with codes, after they are computed."""
        found = with_codes(self.open_model, plan, self.options)
        yield from self._compute(found.made)
        return found

    def _compute(self, made: Mapping[str, Made]) -> Steps[None]:
        """Codes that are not computed yet. Those of one weight and its scales and zero points are of one run."""
        groups: dict[tuple[int, Coding], dict[str, Made]] = {}
        for name, one in made.items():
            if one.coding and name not in self.values:
                groups.setdefault((id(one.weight), one.coding), {})[name] = one
        for (_, coding), group in groups.items():
            weight = next(iter(group.values())).weight
            assert weight
            model = coding_model(weight, coding)
            parts: dict[str, list[bytes]] = {name: [] for name in group}
            for span in spans(weight, coding):
                found = yield Run(model, {"w": (weight.dtype.name, span.dims, span.read(weight))})
                for name, one in group.items():
                    parts[name].append(found[one.part])
            self.values |= {name: b"".join(found) for name, found in parts.items()}

    def layer_errors(self, plan: Sequence[int]) -> Steps[dict[int, float]]:
        """Of each layer: the root of its squared error over that of its result."""
        options = self.options
        if not options.has_samples or (found := with_errors(self.open_model, plan, options)) is None:
            return {}
        yield from self._compute(found.made)
        sums: dict[str, float] = {}
        for numbers in (yield Measure(self.file(found.pieces), "numbers")):
            for name, value in numbers.items():
                sums[name] = sums.get(name, 0.0) + value
        return {
            int(name.removeprefix("error ")): relative(value, sums[name.replace("error", "size")])
            for name, value in sums.items()
            if name.startswith("error ")
        }

    def errors(self, coded: NewModel) -> Steps[dict[str, float]]:
        return (yield from output_errors(self.file(coded.pieces))) if self.options.has_samples else {}

    def is_within(self, plan: Sequence[int], bound: float) -> Steps[bool]:
        errors = yield from self.errors((yield from self.coded(plan)))
        return all(error <= bound for error in errors.values())


def output_errors(file: PieceSource) -> Steps[dict[str, float]]:
    """Of each output of floats: the root of its squared error over that of the expected values, over all samples."""
    samples = yield Measure(file, "each", {dtype.name: comparison(dtype) for dtype in (F16, F32, F64)})
    pairs: dict[str, list[Any]] = {}
    for name, sums in (item for sample in samples for item in sample.items()):
        pair = sums and [struct.unpack("<d", sums[x])[0] for x in ("error", "size")]
        pairs.setdefault(name, []).append(pair)
    return {  # other shapes are, for example, another number of boxes
        name: math.inf if None in found else relative(*(sum(part) for part in zip(*found, strict=True)))
        for name, found in pairs.items()
    }


def magnitudes(dtype: DType, dims: tuple[int, int, int], data: bytes) -> Steps[list[float]]:
    """The largest magnitude for each entry of the middle axis of a weight; infinite if a number is not finite."""
    found = yield Run(range_model(dtype), {"w": (dtype.name, dims, data)})
    values = memoryview(found["largest"]).cast("f").tolist()
    return [x if math.isfinite(x) else math.inf for x in values]


def relative(error: float, size: float) -> float:
    if error == 0:
        return 0.0
    return math.inf if size == 0 else math.sqrt(error / size)


def _within(task: _Task, plan: list[int], bound: float) -> Steps[list[int]]:
    """The plan with more bits for the layers with the largest errors: for as few layers as the bound needs, found by
    bisection."""
    for more in (8, 16, KEPT):
        if (yield from task.is_within(plan, bound)):
            break
        errors = yield from task.layer_errors(plan)
        order = sorted((n for n, bits in enumerate(plan) if bits != KEPT), key=lambda n: -errors.get(n, math.inf))
        wanted = [more if KEPT != bits and (more == KEPT or bits < more) else bits for bits in plan]
        raised = yield from task.possible(wanted)
        few, enough = 0, len(order)
        while enough - few > 1:
            middle = (few + enough) // 2
            if (yield from task.is_within(_mixed(plan, raised, order[:middle]), bound)):
                enough = middle
            else:
                few = middle
        plan = _mixed(plan, raised, order[:enough])
    return plan


def _mixed(plan: list[int], raised: list[int], chosen: list[int]) -> list[int]:
    more = set(chosen)
    return [raised[n] if n in more else bits for n, bits in enumerate(plan)]
