"""`InferenceSession.advise`: measures a run and the machine's limits for `pyruntime.session.advice`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

from pyruntime.compiler.compile import Compiled
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce
from pyruntime.native.execution.executor import Executor
from pyruntime.native.execution.timing import Timing
from pyruntime.native.sessions.session import Session
from pyruntime.native.tools.peak import module as multiply_adds
from pyruntime.native.tools.peak import reader
from pyruntime.onnx.graph import operator_of
from pyruntime.runtime.explain import evaluate
from pyruntime.session.advice import Machine, NodeUse, advice

RUNS = 5  # the best time of each call counts
PICKS = ("Gather", "Slice", "Split")  # operators that read a part of their input, as large as their result
READ = 1 << 27  # bytes, more than caches hold


def advise(session: Session, input_feed: Mapping[str, Any]) -> list[str]:
    """Errors: InvalidInput for a Program that was compiled before"""
    session.programs.require_model("advise on", hint="open the model")
    runs, whole = [], float("inf")
    for _ in range(RUNS):
        runs.append(session.profile(input_feed))
        start = time.thread_time()
        session.run(None, input_feed)
        whole = min(whole, time.thread_time() - start)
    specs, constants, _ = session.programs.requirements_of(session.check_feeds(input_feed))
    compiled, _ = session.compiler.compile_only(session.graph, specs, constants)
    uses = _uses(best(runs), compiled, session.programs.program(session.check_feeds(input_feed)), session.explain())
    return advice(uses, machine(), session.explain(), whole)


def best(runs: list[list[Timing]]) -> list[Timing]:
    """The best time of each call, over the runs with the same calls as the last run: If and Loop may run others."""
    names = [(c.node, c.kernel) for c in runs[-1]]
    same = [run for run in runs if [(c.node, c.kernel) for c in run] == names]
    return [min(calls, key=lambda c: c.seconds) for calls in zip(*same, strict=True)]


def _uses(calls: list[Timing], compiled: Compiled, executor: Executor, report: Mapping[str, Any]) -> list[NodeUse]:
    env = {symbol: executor.env[name] for name, symbol in compiled.symbols.items() if name in executor.env}
    kernels: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in all_kernels(compiled.main):
        if isinstance(kernel, (Map, Reduce, Loops, Call)):
            kernels[kernel.node].append(kernel)
    rows = {row["node"]: row for row in report["nodes"]}
    sizes = [evaluate(buffer["size"], executor.env) or 0 for buffer in executor.header["buffers"]]
    steps = [step for block in executor.header["blocks"][1:] for step in block["steps"]]
    bytes_of: dict[tuple[str, str], int] = {}
    for step in steps:
        if step["op"] == "wasm" or step["op"] == "gpu":
            for call in step["calls"]:
                picks = operator_of(call["node"]).startswith(PICKS)
                buffers = [*call["alloc"], *call["alloc"]] if picks else set(call["buffers"])
                bytes_of[call["node"], call["kernel"]] = sum(sizes[b] for b in buffers)
    found: dict[str, list[Timing]] = defaultdict(list)
    for timing in calls:
        found[timing.node].append(timing)
    uses = []
    for node, own in found.items():
        rounds = len(own) / max(1, rows.get(node, {}).get("calls", len(own)))
        operations = rounds * sum(_operations(kernel, env) for kernel in kernels[node])
        size = sum(bytes_of.get((c.node, c.kernel), 0) for c in own)
        place = "webgpu" if rows.get(node, {}).get("place") == "webgpu" else "wasm"
        is_whole = bool(rows.get(node, {}).get("loop"))  # a loop in one procedure has vectors
        is_scalar = not is_whole and bool(kernels[node]) and all(isinstance(k, Loops) for k in kernels[node])
        uses.append(NodeUse(node, place, sum(c.seconds for c in own), operations, size, len(own), is_scalar))
    return uses


def _operations(kernel: Kernel, env: Mapping[Any, int]) -> float:
    """Two for each multiply-add of a product. Of other kernels only bytes count, which understates their needs."""
    from pyruntime.providers.wasm.threads.cost import TILE, amount

    operations, speed = amount(kernel)
    if speed != TILE or not sh.symbols(operations) <= env.keys():
        return 0
    return 2 * sh.evaluate(operations, env)


@cache
def machine() -> Machine:
    """Measured once in a process."""
    return Machine(peak(), bandwidth())


def bandwidth() -> float:
    """Bytes a second that generated code reads."""
    exports, store, memory = _opened(reader())
    memory.grow(store, (READ >> 16) + 1)
    pages = memory.get_buffer_ptr(store, size=READ)
    pages[::4096] = b"\1" * (READ >> 12)  # not zeros, which may all be one page
    best = 0.0
    for _ in range(8):
        start = time.thread_time()
        exports["read"](store, READ)
        best = max(best, READ / max(time.thread_time() - start, 1e-9))
    return best


def peak() -> float:
    """Floating-point operations a second of generated code."""
    code, loops = multiply_adds()
    exports, store, _ = _opened(code)
    turns, best = 1 << 17, 0.0
    for name, operations in loops.items():
        for _ in range(5):
            start = time.thread_time()
            exports[name](store, turns)
            best = max(best, turns * operations / max(time.thread_time() - start, 1e-9))
    return best


def _opened(code: bytes) -> tuple[Any, Any, Any]:
    """Exports, store and memory of a module that imports its memory."""
    import wasmtime

    store = wasmtime.Store()
    module = wasmtime.Module(store.engine, code)
    kinds = [i.type for i in module.imports if isinstance(i.type, wasmtime.MemoryType)]
    memory = wasmtime.Memory(store, kinds[0])
    return wasmtime.Instance(store, module, [memory]).exports(store), store, memory


__all__ = ["advise", "bandwidth", "machine", "peak"]
