"""Lists that loops carry and that branches give: see docs/adr/0006-sequences.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.errors import ShapeError
from pyruntime.frontend.registry import find
from pyruntime.frontend.sequences import Appended, NotAppended, SequenceValue, items_of
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL
from pyruntime.ir.expr import const
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.symbol import Symbol

Step = Callable[[Tensor, list[Any]], tuple[Any, list[Any], list[Any]]]  # n, carried -> condition, carried, scanned
Iterate = Callable[[Tracer, Tensor | None, Tensor | None, list[Any], Step], list[Any]]


# ── loops ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_lists(
    t: Tracer, iterate: Iterate, trip: Tensor | None, cond: Tensor | None, carried: list[Any], step: Step, times: Any
) -> list[Any] | None:  # fmt: skip
    """The results of a loop that carries sequences: if its steps only append items of one shape, the loop stacks them;
    if they keep the number of items, each item is a carried value. None for other loops. iterate: makes a loop"""
    if isinstance(times, int) and times <= 1 or not all(isinstance(x, (Tensor, SequenceValue)) for x in carried):
        return None
    values: list[Any] = [(x,) if isinstance(x, Tensor) else None for x in carried]  # None: the loop appends items
    entries = [object() for _ in carried]
    guards = len(t.guards)
    while True:
        try:
            return _iterate_lists(t, iterate, trip, cond, carried, step, times, values, entries)
        except NotAppended as e:
            del t.guards[guards:]
            if e.entry is None:
                return None
            if e.entry not in entries:
                raise
            k = entries.index(e.entry)
            values[k] = items_of(t, carried[k])
            if carried[k].rows is not None:
                return None
        except ShapeError:  # with the number of items that the loop begins with, which its steps may change
            if all(isinstance(x, Tensor) or items is None for x, items in zip(carried, values, strict=True)):
                raise
            del t.guards[guards:]
            return None


def _iterate_lists(
    t: Tracer, iterate: Iterate, trip: Tensor | None, cond: Tensor | None, carried: list[Any], step: Step,
    times: Any, values: list[tuple[Tensor, ...] | None], entries: list[object],
) -> list[Any]:  # fmt: skip
    """The results of a loop that carries tensors, sequences with these `values`, and sequences to which it appends.
    Errors: NotAppended, if it does other things with them"""
    found: list[tuple[tuple[Tensor, ...], list[Tensor | None]]] = []
    mark = len(t.fresh)

    def flat(n: Tensor, tensors: list[Any]) -> tuple[Any, list[Any], list[Any]]:
        if t.known(n) is not None:
            raise NotAppended("each step is compiled alone, and may append other items")
        rest = iter(tensors)
        entered = [
            Appended((), x.dtype, entry=entry) if items is None else _like(x, [next(rest) for _ in items])
            for x, items, entry in zip(carried, values, entries, strict=True)
        ]
        condition, results, scanned = step(n, entered)
        inner = set(t.fresh[mark:])
        kept: list[Tensor] = []
        found.clear()
        for x, items, before, after in zip(carried, values, entered, results, strict=True):
            if items is None:
                found.append(_appended(t, x, before, after, inner))
            else:
                kept += _items_alike(before, after)
        return condition, kept, [*scanned, *[x for items, flags in found for x in (*items, *flags) if x is not None]]

    made = iterate(t, trip, cond, [x for items in values for x in items or ()], flat)
    if isinstance(times, int) and any(flag is not None for _, flags in found for flag in flags):
        raise NotAppended("the items of a list that conditions append to may be needed")
    end = len(made) - sum(x is not None for items, flags in found for x in (*items, *flags))
    results, lists, stacks = iter(made[:end]), iter(found), iter(made[end:])
    last = [
        _stacked(t, x, *next(lists), stacks, trip) if items is None else _like(x, [next(results) for _ in items])
        for x, items in zip(carried, values, strict=True)
    ]
    return [*last, *results]


def _like(x: Any, items: Sequence[Tensor]) -> Any:
    """A tensor, or a sequence, in place of x."""
    return SequenceValue(tuple(items), x.dtype) if isinstance(x, SequenceValue) else items[0]


def _items_alike(before: Any, after: Any) -> tuple[Tensor, ...]:
    """A tensor, or the items of a sequence, after a step. Errors: NotAppended if their number changes"""
    if isinstance(before, Tensor):
        return (after,)
    if type(after) is not SequenceValue or after.rows is not None or len(after.items) != len(before.items):
        raise NotAppended("a loop changes the number of items of a sequence")
    return after.items


def _appended(
    t: Tracer, x: SequenceValue, entered: Appended, after: Any, inner: set[Symbol]
) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
    """The items that a step has appended to the sequence x, and flags of those that only some steps append. inner:
    symbols that the body binds. Errors: NotAppended"""
    if not isinstance(after, Appended) or after.entry is not entered.entry:
        raise NotAppended("a loop changes a sequence that it carries", entered.entry)
    items, flags = after.items[::2], [None if t.known(flag) == [True] else flag for flag in after.items[1::2]]
    known = {(y.shape, y.dtype) if isinstance(y, Tensor) else None for y in (*x.items, *items)}
    known |= set() if x.rows is None else {(x.rows.shape[1:], x.rows.dtype)}
    if items and (None in known or len(known) > 1):
        raise NotAppended("a loop appends items of other shapes to a sequence")
    if any(sh.symbols(d) & inner for y in items for d in y.shape):
        raise NotAppended("a loop appends items of several shapes to a sequence")
    return items, flags


def _stacked(
    t: Tracer, before: SequenceValue, items: Sequence[Tensor], flags: Sequence[Tensor | None],
    stacks: Iterator[Tensor], trip: Tensor | None,
) -> SequenceValue:  # fmt: skip
    """The sequence after a loop. items, flags: what its steps append. stacks: items and flags of all steps, in order"""
    if not items:
        return before
    rows = [next(stacks) for _ in items]
    steps = rows[0].shape[:1]
    made = _rows(t, rows)
    if any(flag is not None for flag in flags):
        kept = [t.compute(steps, lambda _: const(True, BOOL), BOOL) if f is None else next(stacks) for f in flags]
        made = find("", "Compress", 11).lower(t, made, _rows(t, kept), axis=0)  # imports its module if it must
    first = [t.unsqueeze(x, [0]) for x in items_of(t, before)] if before.rows is None else [before.rows]
    return SequenceValue((), made.dtype, t.concat([*first, made], 0) if first else made, trip)


def _rows(t: Tracer, stacks: list[Tensor]) -> Tensor:
    """The rows of stacks in the order of their steps."""
    if len(stacks) == 1:
        return stacks[0]
    rows = t.concat([t.unsqueeze(x, [1]) for x in stacks], 1)
    return t.reshape(rows, (rows.shape[0] * len(stacks), *rows.shape[2:]))


# ── branches ──────────────────────────────────────────────────────────────────────────────────────────────────────


def padded(t: Tracer, x: Any, other: Any, inner: set[Symbol]) -> Any:
    """The value x of a branch. What only the other branch appends to the list of a loop, it has with a false flag."""
    if not isinstance(x, Appended) or not isinstance(other, Appended):
        return x
    missing = other.items[len(x.items) :]
    if any(sh.symbols(d) & inner for y in missing for d in y.shape):
        return x
    none = [t.compute(y.shape, lambda *_, y=y: const(0, y.dtype), y.dtype) for y in missing]
    return replace(x, items=(*x.items, *none), dtype=x.dtype or other.dtype)


def chosen(t: Tracer, x: Any, y: Any, made: Iterator[Tensor]) -> Any:
    """The value of an If with the values x and y in its branches. made: its tensors"""
    if isinstance(x, Tensor):
        return next(made)
    items = [next(made) for _ in x.items]
    if isinstance(x, Appended):
        pairs = enumerate(zip(x.items, y.items, strict=True))
        always = {n for n, pair in pairs if n % 2 and all(t.known(flag) == [True] for flag in pair)}
        items = [t.scalar(True, BOOL) if n in always else item for n, item in enumerate(items)]
    return replace(x, items=tuple(items))


def alike(x: Any, y: Any) -> bool:
    """Whether the values of two branches are tensors, or sequences of as many, of the same ranks and types."""
    if isinstance(x, SequenceValue) and isinstance(y, SequenceValue):
        same = replace(x, items=()) == replace(y, items=()) and x.rows is None and len(x.items) == len(y.items)
        return same and all(map(alike, x.items, y.items))
    return isinstance(x, Tensor) and isinstance(y, Tensor) and x.rank == y.rank and x.dtype is y.dtype
