"""Sequences and optionals. They exist at compile time only: a sequence is a tuple of values, an optional is its value
or `NOTHING`. Lengths and positions are therefore compile-time constants.

Spec: https://onnx.ai/onnx/operators/ (Sequence*, SplitToSequence, ConcatFromSequence, Optional*)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.sequences import NOTHING, SequenceValue
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import BOOL, F32, I64
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.standard.cast import dtype_of

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph


def _items(t: Tracer, x: Any) -> tuple[Any, ...]:
    if not isinstance(x, SequenceValue):
        raise t.shape_error(f"the input must be a sequence, is {'nothing' if x is NOTHING else x}")
    return x.items


def _position(t: Tracer, position: Tensor, count: int, ends: int) -> int:
    """A position in [-count, ends), made positive."""
    at = t.static(position)[0]
    if not -count <= at < ends:
        raise t.shape_error(f"position {at} is out of range for a sequence of {count}")
    return at + count if at < 0 else at


@op("SequenceConstruct", since=11)
def sequence_construct(t: Tracer, *inputs: Tensor) -> SequenceValue:
    return SequenceValue(inputs, inputs[0].dtype if inputs else None)


@op("SequenceEmpty", since=11)
def sequence_empty(t: Tracer, *, dtype: int = F32.code) -> SequenceValue:
    return SequenceValue((), dtype_of(t, dtype))


@op("SequenceAt", since=11)
def sequence_at(t: Tracer, sequence: Any, position: Tensor) -> Any:
    items = _items(t, sequence)
    return items[_position(t, position, len(items), len(items))]


@op("SequenceInsert", since=11)
def sequence_insert(t: Tracer, sequence: Any, tensor: Tensor, position: Tensor | None = None) -> SequenceValue:
    items = _items(t, sequence)
    at = len(items) if position is None else _position(t, position, len(items), len(items) + 1)
    return SequenceValue((*items[:at], tensor, *items[at:]), tensor.dtype)


@op("SequenceErase", since=11)
def sequence_erase(t: Tracer, sequence: Any, position: Tensor | None = None) -> SequenceValue:
    items = _items(t, sequence)
    if not items:
        raise t.shape_error("an empty sequence has nothing to erase")
    at = len(items) - 1 if position is None else _position(t, position, len(items), len(items))
    return SequenceValue((*items[:at], *items[at + 1 :]), sequence.dtype)


@op("SequenceLength", since=11)
def sequence_length(t: Tracer, sequence: Any) -> Tensor:
    return t.scalar(len(_items(t, sequence)), I64)


@op("SplitToSequence", since=11)
def split_to_sequence(
    t: Tracer, x: Tensor, split: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> SequenceValue:
    """Parts along an axis. A 1-D `split` lists their sizes; a scalar `split` is the size of all but the last, which may
    be smaller. Without `split` the parts have one element, and keepdims 0 removes the axis."""
    axis = t.axis(axis, x.rank)
    if split is not None and split.rank == 1:
        sizes = t.ints(split, lower=0)
        t.require_equal(sum(sizes), x.shape[axis], f"sizes of the parts do not add up to axis {axis}")
    else:
        sizes = _chunks(t, x, axis, 1 if split is None else t.static(split)[0])
    parts: list[Tensor] = []
    start: AnyDim = 0
    for size in sizes:
        parts.append(t.slice(x, axis, start, size))
        start = start + size
    if split is None and not keepdims:
        parts = [t.squeeze(p, [axis]) for p in parts]
    return SequenceValue(tuple(parts), x.dtype)


def _chunks(t: Tracer, x: Tensor, axis: int, size: int) -> list[int]:
    total = x.shape[axis]
    if not isinstance(total, int):
        raise t.needs(x)
    if size <= 0:
        raise t.shape_error(f"split {size} must be at least 1")
    return [min(size, total - start) for start in range(0, total, size)]


@op("ConcatFromSequence", since=11)
def concat_from_sequence(t: Tracer, sequence: Any, *, axis: int, new_axis: int = 0) -> Tensor:
    items: Sequence[Tensor] = _items(t, sequence)
    if not items:
        raise t.shape_error("an empty sequence has nothing to join")
    if new_axis:
        axis = t.axis(axis, items[0].rank + 1)
        items = [t.unsqueeze(x, [axis]) for x in items]
    return t.concat(items, axis)


@op("SequenceMap", since=17)
def sequence_map(t: Tracer, sequence: Any, *others: Any, body: Graph) -> list[SequenceValue]:
    """The body applied to each item. Other sequences are read item by item; tensors are the same for all items."""
    items = _items(t, sequence)
    for other in others:
        if isinstance(other, SequenceValue) and len(other.items) != len(items):
            raise t.shape_error(f"sequences have {len(items)} and {len(other.items)} items")
    results = [
        t.subgraph(body, [item, *[o.items[n] if isinstance(o, SequenceValue) else o for o in others]])
        for n, item in enumerate(items)
    ]
    if not results:
        return [SequenceValue((), getattr(v.type, "dtype", None)) for v in body.outputs]
    return [SequenceValue(column, column[0].dtype) for column in zip(*results, strict=True)]


@op("Optional", since=15)
def optional(t: Tracer, x: Any = None, *, type: Any = None) -> Any:
    return NOTHING if x is None else x


@op("OptionalGetElement", since=15)
def optional_get_element(t: Tracer, x: Any) -> Any:
    if x is NOTHING:
        raise t.shape_error("an empty optional has no element")
    return x


@op("OptionalHasElement", since=15)
def optional_has_element(t: Tracer, x: Any = None) -> Tensor:
    return t.scalar(x is not None and x is not NOTHING, BOOL)
