"""The `loop` step: runs a body block while its condition holds, passing buffers from round to round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.errors import ExecutionError
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.native.memory.planner import Run, Step
from pyruntime.program import types

if TYPE_CHECKING:
    from pyruntime.native.execution.executor import Executor

LoopStep = Step[types.LoopStep]


def run_loop(executor: Executor, step: LoopStep, run: Run) -> None:
    """See `kernel.Loop`. Carried buffers are owned by the body; the outputs belong to the caller afterwards."""
    json = step.json
    body = executor.header["blocks"][json["body"]]
    trips = _scalar(executor, json["trip"], run, 1 << 62)
    going = bool(_scalar(executor, json["condition"], run, True))
    carried = len(json["carried"])
    _enter(executor, step, run, body)
    shapes = [executor.shape(v, run.env) for v in json["carried"]]
    stacks: list[list[np.ndarray]] = [[] for _ in json["outputs"][carried:]]
    n = 0
    while n < trips and going:
        _round(executor, json, body, run, n, going, shapes)
        executor.run_block(json["body"], run)
        outputs = body["outputs"]
        going = bool(executor.fetch(outputs[0], run).item())
        shapes = [executor.shape(v, run.env) for v in outputs[1 : 1 + carried]]
        for stack, v in zip(stacks, outputs[1 + carried :], strict=True):
            stack.append(executor.fetch(v, run))
        _pass_on(executor, step, body, run, carried)
        n += 1
    _leave(executor, step, run, body, shapes, stacks)


def _scalar(executor: Executor, value: types.Value, run: Run, default: Any) -> Any:
    return default if value is None else executor.fetch(value, run).item()


def _enter(executor: Executor, step: LoopStep, run: Run, body: types.Block) -> None:
    """Buffers for the iteration number and the condition, and copies of the carried values."""
    initial = [executor.fetch(v, run) for v in step.json["carried"]]
    values = [np.zeros((), np.int64), np.zeros((), np.bool_), *initial]
    executor.make(step, run, [(v["buffer"], a) for v, a in zip(body["inputs"], values, strict=True)])


def _round(
    executor: Executor, json: types.LoopStep, body: types.Block, run: Run, n: int, going: bool,
    shapes: list[tuple[int, ...]],
) -> None:  # fmt: skip
    """Start an iteration: its number, its condition, the dims of what it carries."""
    executor.planner.come_round(run)
    executor.write(run.addresses[body["inputs"][0]["buffer"]], np.array(n, np.int64))
    executor.write(run.addresses[body["inputs"][1]["buffer"]], np.array(going))
    for position, axis, name in json["enters"]:
        run.env[name] = shapes[position - 2][axis]
    executor.guards.check(run.env, {name for _, _, name in json["enters"]})
    if body["unused"]:
        _free(executor, run, ("unused", json["body"]), [run.addresses[b] for b in body["unused"] if b in run.addresses])


def _free(executor: Executor, run: Run, key: tuple[Any, ...], addresses: list[int]) -> None:
    if addresses:
        executor.planner.give_back(run, key, addresses)


def _pass_on(executor: Executor, step: LoopStep, body: types.Block, run: Run, carried: int) -> None:
    """Outputs of this round become inputs of the next; buffers of the condition and of what is stacked go back."""
    outputs = body["outputs"]
    over = [v["buffer"] for v in (outputs[0], *outputs[1 + carried :])]
    _free(executor, run, ("over", step.uid), [run.addresses[b] for b in over if b in run.addresses])
    moved = []
    for v in outputs[1 : 1 + carried]:
        b = v["buffer"]
        moved.append((run.addresses.get(b), run.host.get(b)))
    for (address, strings), target in zip(moved, body["inputs"][2:], strict=True):
        if address is not None:
            run.addresses[target["buffer"]] = address
        else:
            run.host[target["buffer"]] = strings


def _leave(
    executor: Executor, step: LoopStep, run: Run, body: types.Block, shapes: list[tuple[int, ...]],
    stacks: list[list[np.ndarray]],
) -> None:  # fmt: skip
    """The carried buffers and the stacked scan values become the outputs."""
    json = step.json
    carried = len(json["carried"])
    values = json["outputs"][carried:]
    made = [[x.shape for x in stack] for stack in stacks]
    results = [*shapes, *[stacked(m, len(v["dims"]), json["node"]) for m, v in zip(made, values, strict=True)]]
    for output, axis, name in json["binds"]:
        run.env[name] = results[output][axis]
    executor.guards.check(run.env, {name for _, _, name in json["binds"]})
    for v, source in zip(json["outputs"][:carried], body["inputs"][2:], strict=True):
        b = source["buffer"]
        if b in run.addresses:
            run.addresses[v["buffer"]] = run.addresses[b]
        else:
            run.host[v["buffer"]] = run.host[b]
    for v, stack in zip(values, stacks, strict=True):
        none = np.zeros(0, object if v["dtype"] == "string" else NUMPY[v["dtype"]])
        executor.make(step, run, [(v["buffer"], np.concatenate([none, *[x.reshape(-1) for x in stack]]))])
    owned = [body["inputs"][0]["buffer"], body["inputs"][1]["buffer"]]
    _free(executor, run, ("counters", step.uid), [run.addresses[b] for b in owned])


def stacked(shapes: Sequence[tuple[int, ...]], rank: int, node: str = "") -> tuple[int, ...]:
    """The shape of values of these shapes on top of each other, of rank `rank`. Dims that only an iteration would tell
    are 0 without one. Errors: ExecutionError if the shapes differ."""
    for n, shape in enumerate(shapes):
        if shape != shapes[0]:
            first, other = (", ".join(map(str, s)) for s in (shapes[0], shape))
            raise ExecutionError(
                f"values of shapes [{first}] and [{other}] (iteration {n}) cannot be stacked", node=node
            )
    return (len(shapes), *(shapes[0] if shapes else (0,) * (rank - 1)))


__all__ = ["run_loop", "stacked"]
