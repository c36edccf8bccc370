"""Runs parts of providers on arrays (`ArrayProvider`), which work in linear memory itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pyruntime.program import types
from pyruntime.runtime.planner import buffers_of
from pyruntime.runtime.states import State


class BoundJob(NamedTuple):
    """What a part runs in one plan. memory: of which its arrays are views; after: the state after it"""

    memory: Any
    job: Callable[[], object]
    after: State


def run_part(executor: Any, step: types.HostStep, state: State, key: str) -> State:
    """The state after the part. Its job is kept with the plan, and bound again when linear memory has grown."""
    found = state.next.get(key)
    bound: BoundJob | None = None if found is None else found.prepared
    if bound is None or bound.memory is not executor.host.memory:
        bound = _bind(executor, step, state, key)
    start = time.thread_time()
    bound.job()
    if executor.timings is not None:
        provider = executor.host_call.kernels[step["id"]].provider
        executor.timings.append((f"{step['node']} {provider}", time.thread_time() - start, provider))
    return bound.after


def _bind(executor: Any, step: types.HostStep, state: State, key: str) -> BoundJob:
    plan = executor.plan

    made = plan.advance(state, key, lambda change: plan.take(change, buffers_of(step["outputs"])))
    after = plan.advance(made, f"{key}:free", lambda change: change.drop(step["free"]))
    inputs, outputs = ([_array(executor, v, made) for v in step[side]] for side in ("inputs", "outputs"))
    job = executor.host_call.bind(step["id"], inputs, outputs, state.env, executor.own_memory)
    bound = state.next[key].prepared = BoundJob(executor.host.memory, job, after)
    return bound


def _array(executor: Any, value: Any, state: State) -> Any:
    """A view of the tensor; None if it is in the provider's own memory."""
    return None if "host" in executor.header["buffers"][value["buffer"]] else executor.values.new_view(value, state)
