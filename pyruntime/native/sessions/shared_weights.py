"""Sessions with equal Programs share the memory of the weights, in this process (docs/design/sessions.md#shared-models)
and with other processes (docs/design/sessions.md#processes).

Each session compiles its Program, so that only the results have to be compared.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

from pyruntime.errors import OutOfMemory
from pyruntime.native.execution.executor import Executor
from pyruntime.native.sessions import weights_of_processes
from pyruntime.onnx.graph import Source
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.program.format import Program
from pyruntime.runtime.arena import WHOLE

LEAST = 4 << 20  # bytes of weights: smaller ones are not shared
_open: weakref.WeakSet[Executor] = weakref.WeakSet()


def load_executor(
    program: Program, host: Any, sources: Mapping[str, Any], host_call: Any, limit: int, gpu: Any,
    with_processes: bool = False,
) -> Executor:  # fmt: skip
    """Load a Program, as `Executor.load` does. If another session has its weights, the host is closed and replaced.
    Sessions on the GPU, with a memory limit, or with weights that runs change, share nothing.

    with_processes: other processes can have the weights from now on; they find those of this one without asking"""
    if "states" in program.header or gpu is not None or limit < WHOLE:
        return Executor.load(program, host, sources, host_call, limit, gpu)
    for other in list(_open):
        if _is_same(other, program, host, sources):
            with suppress(OutOfMemory):
                sibling = other.sibling(host.threads, host_call)
                host.close()
                if with_processes:
                    share_with_processes(sibling)
                return sibling
    made = _load(program, host, sources, host_call, limit, with_processes)
    if made.memory_report().weights >= LEAST:
        _open.add(made)
    return made


def _load(
    program: Program, host: Any, sources: Mapping[str, Any], host_call: Any, limit: int, with_processes: bool
) -> Executor:  # fmt: skip
    """Load a Program with the weights of another process, if one has them."""
    bytes_ = sum(c.get("size", 0) for c in program.header["constants"])
    name = None
    if bytes_ >= LEAST and weights_of_processes.is_supported() and (with_processes or weights_of_processes.has_any()):
        name = weights_of_processes.name_of(program, _features(host), sources)
    if name is None:
        return Executor.load(program, host, sources, host_call, limit)
    with weights_of_processes.alone(name) if with_processes else nullcontext():
        pages = weights_of_processes.find(name)
        try:
            made = Executor.load(program, host, sources, host_call, limit, pages=pages)
        except OutOfMemory:
            if not pages:
                raise
            pages = []  # the system maps no more of them
            made = Executor.load(program, host, sources, host_call, limit)
        if pages or with_processes:
            with suppress(OutOfMemory):
                weights_of_processes.publish(name, made)
    return made


def share_with_processes(executor: Executor) -> None:
    """Let other processes find the weights of an executor that this process has loaded, if they can be shared."""
    shares = weights_of_processes.is_supported() and executor.gpu is None and "states" not in executor.header
    if not shares or executor.is_closed or executor.memory_report().weights < LEAST:
        return
    name = weights_of_processes.name_of(executor.program, _features(executor.host), executor.sources)
    if name is not None:
        with suppress(OutOfMemory):
            weights_of_processes.publish(name, executor)


def _is_same(other: Executor, program: Program, host: Any, sources: Mapping[str, Source]) -> bool:
    if _features(other.host) != _features(host):
        return False
    if other.program.blob != program.blob or other.program.header != program.header:
        return False
    named = {c["source"] for c in program.header["constants"] if "source" in c}
    return all(_same_bytes(sources[name], other.sources[name]) for name in named)


def _features(host: Any) -> tuple[Any, ...]:
    return host.threads, host.relaxed, host.native.name


def _same_bytes(a: Source, b: Source) -> bool:
    return isinstance(a, (FileSource, MemorySource)) and a.is_same(b)
