"""Sequences and optionals. They exist at compile time only: a sequence is a tuple of values, or a tensor whose rows are
its items; an optional is its value or `NOTHING`. Lengths of tuples, and positions in them, are compile-time constants.

Spec: https://onnx.ai/onnx/operators/ (Sequence*, SplitToSequence, ConcatFromSequence, Optional*)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.sequences import NOTHING, Appended, SequenceValue, items_of
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32, I64
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ops.standard.cast import dtype_of
from pyruntime.ops.standard.control import UNROLL

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph


def _items(t: Tracer, x: Any) -> tuple[Any, ...]:
    if not isinstance(x, SequenceValue):
        raise t.shape_error(f"the input must be a sequence, is {'nothing' if x is NOTHING else x}")
    return items_of(t, x)


def _rows(x: Any) -> Tensor | None:
    """The tensor whose rows are the items, if there is one."""
    return x.rows if isinstance(x, SequenceValue) else None


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
    if (rows := _rows(sequence)) is not None:
        at = t.checked_index(t.reshape(position, ()).at(), rows.shape[0], from_end=True)
        return t.compute(rows.shape[1:], lambda *i: rows.at(at, *i), rows.dtype)
    items = _items(t, sequence)
    return items[_position(t, position, len(items), len(items))]


@op("SequenceInsert", since=11)
def sequence_insert(t: Tracer, sequence: Any, tensor: Tensor, position: Tensor | None = None) -> SequenceValue:
    if isinstance(sequence, Appended) and position is None:
        return replace(sequence, items=(*sequence.items, tensor, t.scalar(True, BOOL)), dtype=tensor.dtype)
    rows = _rows(sequence)
    if rows is not None and position is None and rows.shape[1:] == tensor.shape:
        return replace(sequence, rows=t.concat([rows, t.unsqueeze(tensor, [0])], 0))
    items = _items(t, sequence)
    at = len(items) if position is None else _position(t, position, len(items), len(items) + 1)
    return SequenceValue((*items[:at], tensor, *items[at:]), tensor.dtype)


@op("SequenceErase", since=11)
def sequence_erase(t: Tracer, sequence: Any, position: Tensor | None = None) -> SequenceValue:
    rows, at = _rows(sequence), -1 if position is None else (t.known(position) or [None])[0]
    if rows is not None and at in (0, -1):
        t.require(sh.compare("lt", 0, rows.shape[0]), "an empty sequence has nothing to erase")
        return replace(sequence, rows=t.slice(rows, 0, 1 + at, rows.shape[0] - 1))
    items = _items(t, sequence)
    if not items:
        raise t.shape_error("an empty sequence has nothing to erase")
    at = len(items) - 1 if position is None else _position(t, position, len(items), len(items))
    return SequenceValue((*items[:at], *items[at + 1 :]), sequence.dtype)


@op("SequenceLength", since=11)
def sequence_length(t: Tracer, sequence: Any) -> Tensor:
    if (rows := _rows(sequence)) is not None:
        return t.reshape(t.dims(rows.shape[:1]), ())
    return t.scalar(len(_items(t, sequence)), I64)


@op("SplitToSequence", since=11)
def split_to_sequence(
    t: Tracer, x: Tensor, split: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> SequenceValue:
    """Parts along an axis. A 1-D `split` lists their sizes; a scalar `split` is the size of all but the last, which may
    be smaller. Without `split` the parts have one element, and keepdims 0 removes the axis."""
    axis = t.axis(axis, x.rank)
    if split is None and _may_be_many(x.shape[axis]):
        rows = t.transpose(x, [axis, *[a for a in range(x.rank) if a != axis]])
        return SequenceValue((), x.dtype, t.unsqueeze(rows, [axis + 1]) if keepdims else rows)
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


def _may_be_many(count: AnyDim) -> bool:
    """Whether a loop may read so many items by their numbers."""
    return all(s.is_extent for s in sh.symbols(count)) if isinstance(count, Dim) else count > UNROLL


def _chunks(t: Tracer, x: Tensor, axis: int, size: int) -> list[int]:
    total = x.shape[axis]
    if not isinstance(total, int):
        raise t.needs(x)
    if size <= 0:
        raise t.shape_error(f"split {size} must be at least 1")
    return [min(size, total - start) for start in range(0, total, size)]


@op("ConcatFromSequence", since=11)
def concat_from_sequence(t: Tracer, sequence: Any, *, axis: int, new_axis: int = 0) -> Tensor:
    if (rows := _rows(sequence)) is not None:
        count, *shape = rows.shape
        t.require(sh.compare("lt", 0, count), "an empty sequence has nothing to join")
        axis = t.axis(axis, rows.rank if new_axis else rows.rank - 1)
        joined = t.transpose(rows, [*range(1, axis + 1), 0, *range(axis + 1, rows.rank)])
        return joined if new_axis else t.reshape(joined, [*shape[:axis], count * shape[axis], *shape[axis + 1 :]])
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
    sources = [items_of(t, o) if isinstance(o, SequenceValue) else o for o in others]
    for other in sources:
        if isinstance(other, tuple) and len(other) != len(items):
            raise t.shape_error(f"sequences have {len(items)} and {len(other)} items")
    results = [
        t.subgraph(body, [item, *[o[n] if isinstance(o, tuple) else o for o in sources]])
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
