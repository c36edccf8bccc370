"""`quantize`: weights of fewer bits for a model, chosen so that its outputs stay within a bound."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from pyruntime.errors import InvalidInput
from pyruntime.quantization import measure
from pyruntime.quantization.layers import find_layers, without_kept
from pyruntime.quantization.measure import Feeds
from pyruntime.quantization.model import Form, with_codes, with_errors
from pyruntime.quantization.rewrite import KEPT, Writer

BITS = (4, 8, 16)


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
class Quantized:
    """model: the ONNX model with codes; errors: of each output of floats on the samples, relative to its size"""

    model: ModelProto
    layers: list[LayerReport]
    errors: dict[str, float]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model. From 1 GiB on, its weights are in a second file, PATH.data."""
        measure.save(self.model, Path(path))


def quantize(
    model: str | os.PathLike[str] | bytes | ModelProto,
    bits: int = 4,
    *,
    samples: Sequence[Feeds] = (),
    max_error: float | None = None,
    keep: Sequence[str] = (),
    smallest: int = 16384,
    block_size: int = 32,
    accuracy_level: int = 0,
) -> Quantized:
    """A model whose constant weights of MatMul, Gemm, Gather, Conv and ConvTranspose have fewer bits.

    bits: 4, 8 or 16 (half floats). Layers that cannot have so few get more, for example convolutions of 4 bits below
        opset 21
    samples: inputs by name, for the errors of the report
    max_error: bound of the error of each output on the samples, relative to its size. Layers whose own error is largest
        get more bits until the bound holds
    keep: patterns of names of layers that stay as they are, for example "lm_head" or "*/attn/*"; a node without a name
        has that of its first output
    smallest: weights with fewer elements stay as they are
    block_size: codes that share a scale; a power of 2 from 16 on
    accuracy_level: of MatMulNBits; 4 lets runtimes compute with 8-bit activations
    Errors: InvalidInput for options that do not fit; those of a session if the model cannot run on the samples.
    """
    _check(bits, samples, max_error, block_size)
    source = model if isinstance(model, ModelProto) else _load(model)
    task = _Task(source, Form(smallest, block_size, accuracy_level), list(samples))
    layers = find_layers(source, smallest)
    if not layers:
        raise InvalidInput(f"no layer has a weight of {smallest} floats or more", hint="lower `smallest`")
    kept = {layer.name for layer in layers} - {layer.name for layer in without_kept(layers, tuple(keep))}
    plan = task.possible([KEPT if layer.name in kept else bits for layer in layers])
    if max_error is not None:
        plan = _within(task, plan, max_error)
    coded, sizes = with_codes(source, plan, task.form)
    errors = task.layer_errors(plan)
    report = [
        LayerReport(a.name, a.node.op_type, a.shape, n or 8 * a.values().itemsize, a.size, size, errors.get(i))
        for i, (a, n, size) in enumerate(zip(layers, plan, sizes, strict=True))
    ]
    return Quantized(coded, report, task.errors(coded))


def _check(bits: int, samples: Sequence[Feeds], max_error: float | None, block_size: int) -> None:
    if bits not in BITS:
        raise InvalidInput(f"bits is {bits}", hint=f"it can be {', '.join(map(str, BITS))}")
    if block_size < 16 or block_size & (block_size - 1):
        raise InvalidInput(f"block_size is {block_size}", hint="it must be a power of 2 from 16 on")
    if max_error is not None and not samples:
        raise InvalidInput("max_error needs samples", hint="give inputs on which the error is measured")


def _load(model: str | os.PathLike[str] | bytes) -> ModelProto:
    try:
        return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(os.fspath(model))
    except Exception as e:  # protobuf's errors have no common base
        raise InvalidInput(f"the model cannot be read: {e}", hint="an .onnx file is expected") from e


@dataclass(slots=True)
class _Task:
    """The model and its samples. expected: the results of the model as it is"""

    model: ModelProto
    form: Form
    samples: Sequence[Feeds]
    expected: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.expected = measure.outputs(self.model, self.samples) if self.samples else []

    def possible(self, plan: Sequence[int]) -> list[int]:
        """What the layers can have: at least these bits."""
        writer = Writer(self.model, self.form.block)
        layers = find_layers(self.model, self.form.smallest)
        return [writer.possible(layer, bits) for layer, bits in zip(layers, plan, strict=True)]

    def layer_errors(self, plan: Sequence[int]) -> dict[int, float]:
        return measure.layer_errors(with_errors(self.model, plan, self.form), self.samples) if self.samples else {}

    def errors(self, coded: ModelProto) -> dict[str, float]:
        return measure.output_errors(self.expected, measure.outputs(coded, self.samples)) if self.samples else {}

    def is_within(self, plan: Sequence[int], bound: float) -> bool:
        return all(error <= bound for error in self.errors(with_codes(self.model, plan, self.form)[0]).values())


def _within(task: _Task, plan: list[int], bound: float) -> list[int]:
    """The plan with more bits for the layers with the largest errors: for as few layers as the bound needs, found by
    bisection."""
    for more in (8, 16, KEPT):
        if task.is_within(plan, bound):
            break
        errors = task.layer_errors(plan)
        order = sorted((n for n, bits in enumerate(plan) if bits != KEPT), key=lambda n: -errors.get(n, math.inf))
        raised = task.possible([more if KEPT != bits and (more == KEPT or bits < more) else bits for bits in plan])
        few, enough = 0, len(order)
        while enough - few > 1:
            middle = (few + enough) // 2
            if task.is_within(_mixed(plan, raised, order[:middle]), bound):
                enough = middle
            else:
                few = middle
        plan = _mixed(plan, raised, order[:enough])
    return plan


def _mixed(plan: list[int], raised: list[int], chosen: list[int]) -> list[int]:
    more = set(chosen)
    return [raised[n] if n in more else bits for n, bits in enumerate(plan)]
