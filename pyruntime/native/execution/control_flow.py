"""The `loop` step: runs a body block while its condition holds, and passes buffers from round to round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyruntime.native.execution.values import Values
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.native.memory.planner import Run, Step
from pyruntime.program import types
from pyruntime.runtime.stacking import stacked_dims

LoopStep = Step[types.LoopStep]


def run_loop(values: Values, run_block: Callable[[int, Run], None], step: LoopStep, run: Run) -> None:
    """See `kernel.Loop`. The body owns the carried buffers; afterwards the outputs belong to the caller."""
    json = step.json
    body = values.header["blocks"][json["body"]]
    trips = _scalar(values, json["trip"], run, 1 << 62)
    condition = bool(_scalar(values, json["condition"], run, True))
    carried = len(json["carried"])
    _enter(values, step, run, body)
    shapes = [values.shape(v, run.env) for v in json["carried"]]
    stacks: list[list[np.ndarray]] = [[] for _ in json["outputs"][carried:]]
    n = 0
    while n < trips and condition:
        _begin_round(values, json, body, run, n, condition, shapes)
        run_block(json["body"], run)
        outputs = body["outputs"]
        condition = bool(values.fetch(outputs[0], run).item())
        shapes = [values.shape(v, run.env) for v in outputs[1 : 1 + carried]]
        for stack, v in zip(stacks, outputs[1 + carried :], strict=True):
            stack.append(values.fetch(v, run))
        _pass_on(values, step, body, run, carried)
        n += 1
    _leave(values, step, run, body, shapes, stacks)


def _scalar(values: Values, value: types.Value, run: Run, default: Any) -> Any:
    return default if value is None else values.fetch(value, run).item()


def _enter(values: Values, step: LoopStep, run: Run, body: types.Block) -> None:
    """Buffers for the iteration number and the condition, and copies of the carried values."""
    initial = [np.zeros((), np.int64), np.zeros((), np.bool_), *[values.fetch(v, run) for v in step.json["carried"]]]
    values.make(step, run, [(v["buffer"], a) for v, a in zip(body["inputs"], initial, strict=True)])


def _begin_round(
    values: Values, json: types.LoopStep, body: types.Block, run: Run, n: int, condition: bool,
    shapes: list[tuple[int, ...]],
) -> None:  # fmt: skip
    """Write the iteration number and the condition, and bind the dims of the carried values."""
    values.planner.begin_round(run)
    values.write(run.addresses[body["inputs"][0]["buffer"]], np.array(n, np.int64))
    values.write(run.addresses[body["inputs"][1]["buffer"]], np.array(condition))
    values.bind(run, {name: shapes[position - 2][axis] for position, axis, name in json["enters"]})
    values.free(run, ("unused", json["body"]), body["unused"])


def _pass_on(values: Values, step: LoopStep, body: types.Block, run: Run, carried: int) -> None:
    """Carried outputs of this round become inputs of the next; the other outputs are freed."""
    outputs = body["outputs"]
    values.free(run, ("over", step.uid), [v["buffer"] for v in (outputs[0], *outputs[1 + carried :])])
    buffers = [v["buffer"] for v in outputs[1 : 1 + carried]]
    moved = [(run.addresses.get(b), run.strings.get(b)) for b in buffers]  # all first: a round may swap values
    for (address, strings), target in zip(moved, body["inputs"][2:], strict=True):
        if address is not None:
            run.addresses[target["buffer"]] = address
        else:
            run.strings[target["buffer"]] = strings


def _leave(
    values: Values, step: LoopStep, run: Run, body: types.Block, shapes: list[tuple[int, ...]],
    stacks: list[list[np.ndarray]],
) -> None:  # fmt: skip
    """The carried buffers and the stacked scan values become the outputs."""
    json = step.json
    carried, scanned = json["outputs"][: len(shapes)], json["outputs"][len(shapes) :]
    each = [[x.shape for x in stack] for stack in stacks]
    stacked = [stacked_dims(m, len(v["dims"]), json["node"]) for m, v in zip(each, scanned, strict=True)]
    results = [*shapes, *stacked]
    values.bind(run, {name: results[output][axis] for output, axis, name in json["binds"]})
    for v, source in zip(carried, body["inputs"][2:], strict=True):
        values.pass_on(source["buffer"], v["buffer"], run)
    for v, stack in zip(scanned, stacks, strict=True):
        none = np.zeros(0, object if v["dtype"] == "string" else NUMPY[v["dtype"]])
        values.make(step, run, [(v["buffer"], np.concatenate([none, *[x.reshape(-1) for x in stack]]))])
    values.free(run, ("counters", step.uid), [v["buffer"] for v in body["inputs"][:2]])


__all__ = ["run_loop"]
