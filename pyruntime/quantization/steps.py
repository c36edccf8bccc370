"""Quantisation as a generator: it decides, and asks its host for the runs that compute codes and measure errors. So
native sessions, Pyodide and pages share it, and large weights stay with the host."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F16, F32, F64
from pyruntime.onnx.write import Piece
from pyruntime.quantization.codes import Span, coding_model, comparison, range_model, spans
from pyruntime.quantization.layers import Layer, find_layers, without_kept
from pyruntime.quantization.model import Form, NewModel, Open, with_codes, with_errors
from pyruntime.quantization.rewrite import KEPT, PARTS, Made, Writer

BITS = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class Compute:
    """Run a small model with each span, of type `dtype`, as its input "w". keep: names under which the host keeps the
    bytes of outputs, one run's after another's. The answer: of each span the other outputs, numbers by name"""

    model: bytes
    dtype: str
    spans: list[Span]
    keep: dict[str, str]


@dataclass(frozen=True, slots=True)
class Measure:
    """Run a model with each sample. The answer, by output and for each sample: its number; nothing if `is_expected`,
    for outputs that the host keeps; else the results of the model in `comparisons` for its type of floats, [error,
    size], with the kept output and this one, null if their shapes differ; none for other types."""

    pieces: list[Piece]
    how: str  # numbers, expected, compared
    comparisons: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerReport:
    """What became of a layer. bits: of its weight; before, after: bytes of the weight; error: of the layer's result on
    the samples, relative to its size (None without samples, and for layers in branches and loops)"""

    name: str
    op: str
    shape: tuple[int, ...]
    bits: int
    before: int
    after: int
    error: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    pieces: list[Piece]
    layers: list[LayerReport]
    errors: dict[str, float]


@dataclass(frozen=True, slots=True)
class Options:
    """As of `quantize`; has_samples: whether the host has any"""

    bits: int = 4
    max_error: float | None = None
    keep: Sequence[str] = ()
    smallest: int = 16384
    block_size: int = 32
    accuracy_level: int = 0
    has_samples: bool = False

    def check(self) -> None:
        if self.bits not in BITS:
            raise InvalidInput(f"bits is {self.bits}", hint=f"it can be {', '.join(map(str, BITS))}")
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            raise InvalidInput(f"block_size is {self.block_size}", hint="it must be a power of 2 from 16 on")
        if self.max_error is not None and not self.has_samples:
            raise InvalidInput("max_error needs samples", hint="give inputs on which the error is measured")


Steps = Generator[Compute | Measure, Any, Any]


def quantised(open_model: Open, options: Options) -> Generator[Compute | Measure, Any, Outcome]:
    """Yields what the host must run, and returns the pieces of the new file."""
    options.check()
    form = Form(options.smallest, options.block_size, options.accuracy_level)
    layers = find_layers(open_model(), options.smallest)
    if not layers:
        raise InvalidInput(f"no layer has a weight of {options.smallest} floats or more", hint="lower `smallest`")
    task = _Task(open_model, form, layers, options.has_samples)
    yield from task.start()
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
    return Outcome(coded.pieces, report, (yield from task.errors(coded)))


@dataclass(slots=True)
class _Task:
    """A model whose layers get codes. ranges: the largest magnitudes of weights, by place"""

    open_model: Open
    form: Form
    layers: Sequence[Layer]
    has_samples: bool
    _ranges: dict[int, float] = field(default_factory=dict)
    _computed: set[str] = field(default_factory=set)

    def start(self) -> Steps:
        if self.has_samples:
            yield Measure([], "expected")

    def possible(self, plan: Sequence[int]) -> Steps:
        """What the layers can have: at least these bits."""
        writer = Writer(self.open_model(), self.layers, self.form.block)
        found = []
        for layer, bits in zip(self.layers, plan, strict=True):
            largest = 0.0 if bits == KEPT else (yield from self._largest(layer))
            found.append(writer.possible(layer, bits, largest))
        return found

    def _largest(self, layer: Layer) -> Steps:
        if layer.place not in self._ranges:
            model = range_model(layer.weight.dtype)
            found = yield Compute(model, layer.weight.dtype.name, list(spans(layer.weight)), {})
            is_finite = not any(part["faults"] for part in found)
            self._ranges[layer.place] = max(part["largest"] for part in found) if is_finite else math.inf
        return self._ranges[layer.place]

    def coded(self, plan: Sequence[int]) -> Steps:
        """The model with codes, after the host has computed them."""
        found = with_codes(self.open_model, plan, self.form)
        yield from self._compute(found.made)
        return found

    def _compute(self, made: Mapping[str, Made]) -> Steps:
        """Codes that are not computed yet. Those of one weight and its scales and zero points are of one run."""
        missing = {name: one for name, one in made.items() if one.coding and name not in self._computed}
        groups: dict[tuple[Any, ...], dict[str, str]] = {}
        sources = {}
        for name, one in missing.items():
            part = next((p for p in PARTS if name.endswith(p)), PARTS[0])
            key = (one.weight.offset, one.weight.name, id(one.weight.source), one.coding)  # type: ignore[union-attr]
            groups.setdefault(key, {})[part] = name
            sources[key] = one
        for key, keep in groups.items():
            weight, coding = sources[key].weight, sources[key].coding
            assert weight and coding
            yield Compute(coding_model(weight, coding), weight.dtype.name, list(spans(weight, coding)), keep)
            self._computed |= set(keep.values())

    def layer_errors(self, plan: Sequence[int]) -> Steps:
        """Of each layer: the root of its squared error over that of its result."""
        if not self.has_samples or (found := with_errors(self.open_model, plan, self.form)) is None:
            return {}
        yield from self._compute(found.made)
        sums: dict[str, float] = {}
        for numbers in (yield Measure(found.pieces, "numbers")):
            for name, value in numbers.items():
                sums[name] = sums.get(name, 0.0) + value
        return {
            int(name.removeprefix("error ")): relative(value, sums[name.replace("error", "size")])
            for name, value in sums.items()
            if name.startswith("error ")
        }

    def errors(self, coded: NewModel) -> Steps:
        """Of each output of floats: the root of its squared error over that of the expected values, over all
        samples."""
        if not self.has_samples:
            return {}
        comparisons = {dtype.name: comparison(dtype) for dtype in (F16, F32, F64)}
        samples = yield Measure(coded.pieces, "compared", comparisons)
        pairs: dict[str, list[Any]] = {}
        for name, pair in (item for sample in samples for item in sample.items()):
            pairs.setdefault(name, []).append(pair)
        return {  # other shapes are, for example, another number of boxes
            name: math.inf if None in found else relative(*(sum(part) for part in zip(*found, strict=True)))
            for name, found in pairs.items()
        }

    def is_within(self, plan: Sequence[int], bound: float) -> Steps:
        errors = yield from self.errors((yield from self.coded(plan)))
        return all(error <= bound for error in errors.values())


def relative(error: float, size: float) -> float:
    if error == 0:
        return 0.0
    return math.inf if size == 0 else math.sqrt(error / size)


def _within(task: _Task, plan: list[int], bound: float) -> Steps:
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
