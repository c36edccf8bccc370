"""Compile-time values that are not tensors: sequences and empty optionals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyruntime.errors import UnsupportedOp
from pyruntime.ir.dtype import DType
from pyruntime.ir.kernel import Tensor

if TYPE_CHECKING:
    from pyruntime.frontend.tracer import Tracer


@dataclass(frozen=True, slots=True)
class SequenceValue:
    """A sequence of values. An optional is represented by its item, or by `NOTHING`.

    rows: a tensor whose rows are the items, if their number may be known only in a run; then `items` is empty
    count: their number, if a loop made them"""

    items: tuple[Any, ...]
    dtype: DType | None = None
    rows: Tensor | None = None
    count: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Appended(SequenceValue):
    """A sequence that a loop carries, in its body: the items that this step has appended, each before a flag whether it
    has. entry: says to which one"""

    entry: object = None


class NotAppended(UnsupportedOp):
    """A step does more with a carried sequence than to append items. entry: of this sequence, if it is one"""

    def __init__(self, message: str, entry: object = None) -> None:
        super().__init__(message)
        self.entry = entry


def items_of(t: Tracer, x: SequenceValue, name: str = "a sequence") -> tuple[Any, ...]:
    """The items. name: in messages. Errors: NotAppended; NeedsValue if feeds decide their number; UnsupportedOp if a
    condition does"""
    if isinstance(x, Appended):
        raise NotAppended("a loop reads a sequence that it carries", x.entry)
    if x.rows is None:
        return x.items
    count, rows = x.rows.shape[0], x.rows
    if not isinstance(count, int):
        t.settle((count,))
        if x.count is not None:
            t.static(x.count)
        raise t.unsupported(f"the length of {name} is known only when a loop has ended", "join its items")
    return tuple([t.squeeze(t.slice(rows, 0, n, 1), [0]) for n in range(count)])


class Nothing:
    """An empty optional."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in a value, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, SequenceValue) and value.rows is not None:
        return [value.rows]
    return [t for i in value.items for t in tensors_of(i)] if isinstance(value, SequenceValue) else []
