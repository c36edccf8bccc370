"""The feeds of losses: their names and types, by what the model declares of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyruntime.errors import InvalidInput, NotDifferentiable
from pyruntime.ir.dtype import F32, F64, I64
from pyruntime.onnx.graph import TensorType
from pyruntime.training.graph.loss_models import Loss
from pyruntime.training.graph.trace_replay import label_ranks

Sizes = tuple[int | None, ...]


def feeds_of(loss: Loss, types: Mapping[str, TensorType | None]) -> dict[str, TensorType]:
    """The feeds that a loss needs, by name. types: of the model's outputs. Names of dims do not count, because some
    exporters name them wrongly: the loss compares the feed with the output itself. Errors: InvalidInput"""
    for name in (loss.output, *loss.more):
        if name not in types:
            raise InvalidInput(f'output "{name}" does not exist', hint=f"outputs are {', '.join(types)}")
    if loss.kind == "function":
        return _of_function(loss, types)
    if not loss.feeds:
        return {}
    output = types[loss.output]
    if output is None or output.shape is None:
        raise NotDifferentiable(f'the model does not declare the shape of output "{loss.output}"')
    first = _TARGETS.get(loss.kind, _as_output)(loss, output)
    return dict(zip(loss.feeds, [first, TensorType(I64, (None,)), TensorType(I64, (None,))], strict=False))


def _sizes(output: TensorType) -> Sizes:
    return tuple(d if isinstance(d, int) else None for d in output.shape or ())


def _as_output(loss: Loss, output: TensorType) -> TensorType:
    return TensorType(F64 if output.dtype is F64 else F32, _sizes(output))


def _of_classes(loss: Loss, output: TensorType) -> TensorType:
    """The dims of classes may be axis 1 or the last, so those of labels are known only for two axes, or if the options
    have the axis."""
    sizes = _sizes(output)
    if len(sizes) < 2:
        raise InvalidInput(f'output "{loss.output}" cannot be logits: it has {len(sizes)} axes, needs 2 or more')
    if loss.settings.get("soft"):
        return _as_output(loss, output)
    axis = 1 if len(sizes) == 2 else None
    axis = loss.settings["axis"] if loss.settings["axis"] is not None else axis
    if axis is not None and -len(sizes) <= axis < len(sizes):
        return TensorType(I64, tuple(d for n, d in enumerate(sizes) if n != axis % len(sizes)))
    return TensorType(I64, (sizes[0], *[None] * (len(sizes) - 2)))


def _of_function(loss: Loss, types: Mapping[str, TensorType | None]) -> dict[str, TensorType]:
    """Labels of a function: their ranks follow from what it combines them with."""
    known = {}
    for name in (loss.output, *loss.more):
        if (output := types[name]) is None or output.shape is None:
            raise NotDifferentiable(f'the model does not declare the shape of "{name}"')
        known[name] = len(output.shape)
    ranks = label_ranks(loss.settings["nodes"], known)
    return {n: TensorType(I64 if is_whole else F32, (None,) * rank) for n, (rank, is_whole) in ranks.items()}


def _of_pairs(loss: Loss, output: TensorType) -> TensorType:
    """1 or -1 for each pair of vectors, or a vector to compare with."""
    whole = _as_output(loss, output)
    return TensorType(whole.dtype, _sizes(output)[:-1]) if loss.more else whole


def _of_sequences(loss: Loss, output: TensorType) -> TensorType:
    if len(output.shape or ()) != 3:
        raise InvalidInput(f'output "{loss.output}" has {len(output.shape or ())} axes, CTC needs 3')
    return TensorType(I64, (None, None))


_TARGETS: dict[str, Callable[[Loss, TensorType], TensorType]] = {
    "cross_entropy": _of_classes, "nll": _of_classes, "cosine": _of_pairs, "ctc": _of_sequences,
}  # fmt: skip
