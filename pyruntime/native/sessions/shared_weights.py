"""Executors of Programs that other sessions of this process have: weights are in RAM once
(docs/design/sessions.md#shared-models).

Programs are compiled all the same, so that whatever decides what a Program is has no part in this: those that came out
equal, of the same weights, have the same bytes in memory.
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
from pyruntime.program.footprint import WHOLE
from pyruntime.program.format import Program

LEAST = 4 << 20  # bytes of weights that are worth it
_open: weakref.WeakSet[Executor] = weakref.WeakSet()


def executor(
    program: Program, host: Any, sources: Mapping[str, Any], host_call: Any, limit: int, gpu: Any
) -> Executor:  # fmt: skip
    """See `Executor`; host: an empty one, which is closed if there is another whose weights are the same. With a limit,
    or on the GPU, a session's memory is its own."""
    if gpu is not None or limit < WHOLE:
        return Executor.load(program, host, sources, host_call, limit, gpu)
    for other in list(_open):
        if _is_same(other, program, host, sources):
            with suppress(OutOfMemory):
                found = other.sibling(host.threads, host_call)
                host.close()
                return found
    made = Executor.load(program, host, sources, host_call, limit, gpu)
    if made.memory().weights >= LEAST:
        _open.add(made)
    return made


def _is_same(other: Executor, program: Program, host: Any, sources: Mapping[str, Source]) -> bool:
    if (other.host.threads, other.host.relaxed) != (host.threads, host.relaxed):
        return False
    if other.program.blob != program.blob or other.program.header != program.header:
        return False
    named = {c["source"] for c in program.header["constants"] if "source" in c}
    return all(_same_bytes(sources[name], other.sources[name]) for name in named)


def _same_bytes(a: Source, b: Source) -> bool:
    return isinstance(a, (FileSource, MemorySource)) and a.is_same(b)


__all__ = ["executor"]
