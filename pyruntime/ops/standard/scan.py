"""Scan: a Loop whose body reads one slice of each scan input per iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32, I64
from pyruntime.ir.expr import Expr, as_expr, cast, dim, guard
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.standard.control import iterate

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph


@op("Scan", since=9)
def scan(
    t: Tracer, *inputs: Tensor, body: Graph, num_scan_inputs: int, scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (), scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> list[Tensor]:  # fmt: skip
    """*state, *outs = body(*state, *[x[n] for x in scan inputs]) for each n; the outs are stacked.

    A direction of 1 scans (or stacks) backwards. The axes are the scanned axes of the inputs and the stacked axes of
    the outputs.
    Spec: https://onnx.ai/onnx/operators/onnx__Scan.html"""
    states, scans = list(inputs[: len(inputs) - num_scan_inputs]), list(inputs[len(inputs) - num_scan_inputs :])
    axes = [t.axis(a, x.rank) for a, x in zip(_each(t, "scan_input_axes", scan_input_axes, scans), scans, strict=True)]
    count = _length(t, scans, axes)
    back = _each(t, "scan_input_directions", scan_input_directions, scans)

    def step(n: Tensor, state: list[Any]) -> tuple[None, list[Any], list[Any]]:
        parts = [_at(t, x, a, n, dim(count) if r else None) for x, a, r in zip(scans, axes, back, strict=True)]
        out = t.subgraph(body, [*state, *parts])
        return None, out[: len(states)], out[len(states) :]

    results = iterate(t, None, None, states, step, count)
    outs = results[len(states) :]
    out_axes = _each(t, "scan_output_axes", scan_output_axes, outs)
    out_back = _each(t, "scan_output_directions", scan_output_directions, outs)
    stacked = [_placed(t, x, a, r) for x, a, r in zip(outs, out_axes, out_back, strict=True)]
    return [*results[: len(states)], *stacked]


def _each(t: Tracer, name: str, entries: Sequence[int], values: Sequence[Tensor]) -> Sequence[int]:
    """An attribute with an entry per value; zeros if it is absent."""
    if entries and len(entries) != len(values):
        raise t.shape_error(f"{name} has {len(entries)} entries, not {len(values)}")
    if name.endswith("directions") and not set(entries) <= {0, 1}:
        raise t.shape_error(f"{name} is {list(entries)}, must be 0 or 1 each")
    return entries or [0] * len(values)


def _length(t: Tracer, scans: Sequence[Tensor], axes: Sequence[int]) -> AnyDim:
    if not scans:
        raise t.shape_error("Scan needs at least one scan input")
    count = scans[0].shape[axes[0]]
    for x, a in zip(scans, axes, strict=True):
        t.require_equal(x.shape[a], count, "lengths of the scan inputs differ")
    return count


def _at(t: Tracer, x: Tensor, axis: int, n: Tensor, end: Expr | None = None) -> Tensor:
    """Slice n along an axis; with `end`, slice end - 1 - n."""
    at = cast(n.at(), I32)
    place = at if end is None else end - 1 - at
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return t.compute(shape, lambda *i: x.at(*i[:axis], place, *i[axis:]))


def _placed(t: Tracer, x: Tensor, axis: int, reverse: int) -> Tensor:
    if reverse:
        x = t.slice(x, 0, x.shape[0] - 1, x.shape[0], -1)
    axis = t.axis(axis, x.rank)
    perm = list(range(1, x.rank))
    return t.transpose(x, [*perm[:axis], 0, *perm[axis:]])


@op("Scan", since=8)
def scan_batched(
    t: Tracer, sequence_lens: Tensor | None, *inputs: Tensor, body: Graph, num_scan_inputs: int,
    directions: Sequence[int] = (),
) -> list[Tensor]:  # fmt: skip
    """Scan of opset 8: every input has a batch axis first, the scan inputs have (batch, sequence, …). Each batch item
    scans its own number of steps; its outputs are 0 beyond that.
    Spec: https://onnx.ai/onnx/operators/onnx__Scan.html#scan-8"""
    states, scans = list(inputs[: len(inputs) - num_scan_inputs]), list(inputs[len(inputs) - num_scan_inputs :])
    for x, axes in [*((x, 1) for x in states), *((x, 2) for x in scans)]:
        if x.rank < axes:
            raise t.shape_error(f"an input of rank {x.rank} has no {'batch' if axes == 1 else 'sequence'} axis")
        t.require_equal(x.shape[0], inputs[0].shape[0], "batches of the inputs differ")
    length = _length(t, scans, [1] * len(scans))
    batch = inputs[0].shape[0]
    t.require_shape("sequence_lens", sequence_lens, (batch,))
    lens = None
    if sequence_lens is not None:
        lens = t.compute((batch,), lambda b: cast(t.checked_index(sequence_lens.at(b), length + 1), I64))
    back = _each(t, "directions", directions, scans)

    def one_batch(b: Tensor, _: list[Any]) -> tuple[None, list[Any], list[Any]]:
        mine = [_at(t, x, 0, b) for x in scans]
        steps = None if lens is None else _at(t, lens, 0, b)
        end = dim(length) if steps is None else cast(steps.at(), I32)

        def step(n: Tensor, state: list[Any]) -> tuple[None, list[Any], list[Any]]:
            parts = [_at(t, x, 0, n, end if r else None) for x, r in zip(mine, back, strict=True)]
            out = t.subgraph(body, [*state, *parts])
            return None, out[: len(states)], out[len(states) :]

        first = [_at(t, x, 0, b) for x in states]
        results = iterate(t, steps, None, first, step, length if steps is None else None)
        outs = [_padded(t, x, length) for x in results[len(states) :]]
        return None, [], [*results[: len(states)], *outs]

    return iterate(t, None, None, [], one_batch, batch)


def _padded(t: Tracer, x: Tensor, length: AnyDim) -> Tensor:
    if x.shape[0] == length:
        return x
    zero = as_expr(0, x.dtype)
    return t.compute((length, *x.shape[1:]), lambda *i: guard(i[0] < dim(x.shape[0]), x.at(*i), zero), x.dtype)
