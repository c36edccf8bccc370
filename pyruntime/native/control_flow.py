"""The `loop` step: runs a body block while its condition holds, passing buffers from round to round."""

from __future__ import annotations

from typing import Any

import numpy as np


def run_loop(executor: Any, step: Any, run: Any) -> None:
    """See `kernel.Loop`. Carried buffers are owned by the body; the outputs belong to the caller afterwards."""
    json = step.json
    body = executor.header["blocks"][json["body"]]
    trips = _scalar(executor, json["trip"], run, 1 << 62)
    going = bool(_scalar(executor, json["condition"], run, True))
    carried = len(json["carried"])
    _enter(executor, step, run, body)
    shapes = [executor.shape(v, run.env) for v in json["carried"]]
    stacks: list[list[Any]] = [[] for _ in json["outputs"][carried:]]
    inner: list[tuple[int, ...]] = [() for _ in stacks]
    n = 0
    while n < trips and going:
        _round(executor, json, body, run, n, going, shapes)
        executor.run_block(json["body"], run)
        outputs = body["outputs"]
        going = bool(executor.fetch(outputs[0], run).item())
        shapes = [executor.shape(v, run.env) for v in outputs[1 : 1 + carried]]
        for k, v in enumerate(outputs[1 + carried :]):
            inner[k] = executor.shape(v, run.env)
            made = executor.fetch(v, run)
            stacks[k].append(made if made.dtype == object else (run.addresses[v["buffer"]], made.nbytes))
        _pass_on(executor, step, body, run, carried)
        n += 1
    _leave(executor, step, run, body, shapes, stacks, inner)


def _scalar(executor: Any, value: Any, run: Any, default: Any) -> Any:
    return default if value is None else executor.fetch(value, run).item()


def _enter(executor: Any, step: Any, run: Any, body: dict[str, Any]) -> None:
    """Buffers for the iteration number and the condition, and copies of the carried values."""
    initial = [executor.fetch(v, run) for v in step.json["carried"]]
    values = [np.zeros((), np.int64), np.zeros((), np.bool_), *initial]
    executor.make(step, run, [(v["buffer"], a) for v, a in zip(body["inputs"], values, strict=True)])


def _round(executor: Any, json: Any, body: Any, run: Any, n: int, going: bool, shapes: list[tuple[int, ...]]) -> None:
    """Start an iteration: its number, its condition, the dims of what it carries."""
    executor.write(run.addresses[body["inputs"][0]["buffer"]], np.array(n, np.int64))
    executor.write(run.addresses[body["inputs"][1]["buffer"]], np.array(going))
    for position, axis, name in json["enters"]:
        run.env[name] = shapes[position - 2][axis]
    executor.guards.check(run.env, {name for _, _, name in json["enters"]})
    if body["unused"]:
        _free(executor, run, ("unused", json["body"]), [run.addresses[b] for b in body["unused"] if b in run.addresses])


def _free(executor: Any, run: Any, key: Any, addresses: list[int]) -> None:
    def work(made: dict[int, int]) -> int:
        for a in addresses:
            executor.planner.free(a)
        return 0

    if addresses:
        executor.planner.advance(run, (*key, *addresses), work)


def _pass_on(executor: Any, step: Any, body: Any, run: Any, carried: int) -> None:
    """Outputs of this round become inputs of the next; the condition's buffer goes back."""
    outputs = body["outputs"]
    _free(executor, run, ("condition", step.uid), [run.addresses[outputs[0]["buffer"]]])
    moved = []
    for v in outputs[1 : 1 + carried]:
        b = v["buffer"]
        moved.append((run.addresses.get(b), run.host.get(b)))
    for (address, strings), target in zip(moved, body["inputs"][2:], strict=True):
        if address is not None:
            run.addresses[target["buffer"]] = address
        else:
            run.host[target["buffer"]] = strings


def _leave(executor: Any, step: Any, run: Any, body: Any, shapes: Any, stacks: Any, inner: Any) -> None:
    """The carried buffers and the stacked scan values become the outputs."""
    json = step.json
    carried = len(json["carried"])
    rounds = len(stacks[0]) if stacks else 0
    results = [*shapes, *[(rounds, *s) for s in inner]]
    for output, axis, name in json["binds"]:
        empty = output >= carried and not rounds  # never ran: dims that only a round would tell are 0
        run.env[name] = 0 if empty else results[output][axis]
    executor.guards.check(run.env, {name for _, _, name in json["binds"]})
    for v, source in zip(json["outputs"][:carried], body["inputs"][2:], strict=True):
        b = source["buffer"]
        if b in run.addresses:
            run.addresses[v["buffer"]] = run.addresses[b]
        else:
            run.host[v["buffer"]] = run.host[b]
    for v, parts in zip(json["outputs"][carried:], stacks, strict=True):
        _stack(executor, step, run, v["buffer"], parts)
    owned = [body["inputs"][0]["buffer"], body["inputs"][1]["buffer"]]
    _free(executor, run, ("counters", step.uid), [run.addresses[b] for b in owned])


def _stack(executor: Any, step: Any, run: Any, buffer: int, parts: list[Any]) -> None:
    """One after the other: strings, or spans of memory, which are freed."""
    if executor.header["buffers"][buffer].get("host"):
        run.host[buffer] = np.concatenate([np.zeros(0, object), *[part.reshape(-1) for part in parts]])
        return
    memory = executor.host.memory
    data = np.concatenate([memory[a : a + n] for a, n in parts]) if parts else np.zeros(0, np.uint8)
    _free(executor, run, ("parts", step.uid, buffer), [a for a, _ in parts])
    executor.make(step, run, [(buffer, data)])


__all__ = ["run_loop"]
