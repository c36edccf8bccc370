"""Sessions of this process with equal Programs share the memory of the weights (docs/design/sessions.md#shared-models).

Each session compiles its Program, so that only the results have to be compared.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyruntime.errors import OutOfMemory
from pyruntime.native.execution.executor import Executor
from pyruntime.onnx.graph import Source
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.program.format import Program
from pyruntime.runtime.arena import WHOLE

LEAST = 4 << 20  # bytes of weights: smaller ones are not shared
_open: weakref.WeakSet[Executor] = weakref.WeakSet()


def load_executor(
    program: Program, host: Any, sources: Mapping[str, Any], host_call: Any, limit: int, gpu: Any
) -> Executor:  # fmt: skip
    """Load a Program, as `Executor.load` does. If another session has its weights, the host is closed and replaced.
    Sessions on the GPU, with a memory limit, or with weights that runs change, share nothing."""
    if "states" in program.header or gpu is not None or limit < WHOLE:
        return Executor.load(program, host, sources, host_call, limit, gpu)
    for other in list(_open):
        if _is_same(other, program, host, sources):
            with suppress(OutOfMemory):
                sibling = other.sibling(host.threads, host_call)
                host.close()
                return sibling
    made = Executor.load(program, host, sources, host_call, limit, gpu)
    if made.memory_report().weights >= LEAST:
        _open.add(made)
    return made


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
