"""Warns of files of torch.onnx that cannot be trained as the module that they were made from, and of models whose
outputs are not what a loss expects."""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Sequence

from pyruntime.onnx.graph import Graph, Weight
from pyruntime.onnx.weight_values import numbers_of
from pyruntime.training.graph.loss_models import Loss
from pyruntime.training.graph.torch_notes import PARAMETER, TorchNotes

_SHOWN = 6
_DYNAMO = "model.train(), then torch.onnx.export(model, …, dynamo=True, optimize=False)"
_SCRIPT = "torch.onnx.export(…, training=TrainingMode.TRAINING, do_constant_folding=False)"
_SCORES = "it trains badly: export the model with the scores before it as an output, and name these"
_COMPUTES = {"cross_entropy": "Softmax", "distill": "Softmax"}
_PRODUCTS = ("Conv", "ConvTranspose", "FusedMatMul", "Gemm", "MatMul")
# names of values that the exporter computed, such as the exponential of a temperature
_COMPUTED = re.compile(
    r"(abs|add|clamp|cos|div|elu|exp|log|max|min|mul|neg|norm|pow|reciprocal|relu|rsqrt|sigmoid|silu|sin|softmax|softplus"
    r"|sqrt|square|sub|sum|tanh)(_\d+)?"
)


def warn_of_changes(graph: Graph) -> None:
    """Warns if the exporter folded parameters into others, joined them or left them out."""
    notes = TorchNotes(graph)
    if lost := _lost(graph, notes):
        _warn(f"parameters of the PyTorch module that are no weights of the file: {_shown(lost)}", _DYNAMO)
    elif twice := _twice(graph, notes):
        _warn(f"parameters of which it also computed other weights: {_shown(twice)}", _DYNAMO)
    elif folded := _folded(graph, notes):
        _warn(f"filters that the exporter computed, from BatchNormalization for example: {_shown(folded)}", _SCRIPT)


def warn_of_probabilities(graph: Graph, losses: Sequence[Loss]) -> None:
    """Warns if a loss that computes a Softmax or a Sigmoid gets the result of one, as of a model for inference."""
    makers = {name: n.op for n in graph.nodes for name in n.outputs}
    for loss in losses:
        computes = "Sigmoid" if loss.kind == "bce" and loss.settings.get("logits") else _COMPUTES.get(loss.kind)
        if computes is not None and makers.get(loss.output) == computes:
            text = f'the loss {loss.kind} computes a {computes}, and "{loss.output}" is the result of one already'
            warnings.warn(f"pyruntime: {text} ({_SCORES})", RuntimeWarning, stacklevel=2)


def warn_of_padding(graph: Graph, trained: Container[str]) -> None:
    """Warns of tables whose first, second or last row is zero, as padding_idx of PyTorch keeps it. No file tells."""
    if not TorchNotes(graph).is_torch:
        return
    for name in dict.fromkeys(n.inputs[0] for n in graph.nodes if n.op == "Gather"):
        w = graph.weights.get(name)
        if name not in trained or w is None or w.source is None or len(w.shape) != 2 or not w.size:
            continue
        size = w.size // w.shape[0]
        rows = {0, 1, w.shape[0] - 1} & {*range(w.shape[0])}
        padding = [k for k in rows if not any(w.source.read(w.offset + k * size, size))]
        if len(padding) == 1 < len(rows):
            text = f'row {padding[0]} of "{name}" is zero, as padding_idx of PyTorch keeps it. Here it learns'
            warnings.warn(f'pyruntime: {text} (zeros="keep" keeps it)', RuntimeWarning, stacklevel=2)


def _warn(what: str, how: str) -> None:
    text = f"pyruntime: this file trains otherwise than its module: torch.onnx folded, joined or left out {what}"
    warnings.warn(f"{text} (export it for training: {how})", RuntimeWarning, stacklevel=2)


def _lost(graph: Graph, notes: TorchNotes) -> list[str]:
    """Parameters that the file lists but does not have: not transposed, under another name, or as one of two that a
    module shares on purpose."""
    missing = [n for n, kind in notes.kinds.items() if kind == PARAMETER and n not in graph.weights]
    kept = [n for n in graph.weights if missing and not any(map(_COMPUTED.fullmatch, (n, *notes.sources(n))))]
    moved = {notes.sources(n)[0]: n for n in kept if len(notes.sources(n)) == 1}
    products = {n.inputs[1] for n in graph.nodes if n.op in _PRODUCTS and len(n.inputs) > 1}
    chosen = [([s for s in notes.sources(n) if s in notes.kinds], graph.weights[n]) for n in kept]
    whole = {names[0] for names, w in chosen if len(names) == 1 and _is_whole(w)}
    return [n for n in missing if moved.get(n) not in products and n not in whole and not _is_shared(n, graph, notes)]


def _twice(graph: Graph, notes: TorchNotes) -> list[str]:
    """Parameters that the file has beside another weight that the exporter computed of them: each trains apart."""
    sources = dict.fromkeys(s for n in graph.weights for s in notes.sources(n) if s != n and s in graph.weights)
    return [s for s in sources if notes.kinds.get(s) == PARAMETER]


def _is_whole(w: Weight) -> bool:
    """Whether no number of a weight occurs twice: rows of a table that were chosen, each once."""
    return w.dtype.is_float and len(set(numbers := numbers_of(w))) == len(numbers)


def _is_shared(name: str, graph: Graph, notes: TorchNotes) -> bool:
    """Whether the module of a parameter reads the same parameter of another module, by another operator, or in a file
    in which nothing was optimised."""
    module, _, last = name.rpartition(".")
    own = [(n.op, x) for n in graph.nodes if notes.module(n) == module for x in n.inputs if x in graph.weights]
    for op, other in own:
        others = {n.op for n in graph.nodes if notes.module(n) != module and other in n.inputs}
        if others and other.rpartition(".")[2] == last and (op not in others or not graph.notes.keys() - {""}):
            return True
    return False


def _folded(graph: Graph, notes: TorchNotes) -> list[str]:
    if notes.kinds or not notes.is_torch:
        return []
    filters = {n.inputs[1] for n in graph.nodes if n.op in ("Conv", "ConvTranspose")}
    return [name for name in graph.weights if name in filters and name.startswith("onnx::")]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f'"{n}"' for n in names[:_SHOWN]) + more
