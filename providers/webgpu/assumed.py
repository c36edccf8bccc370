"""The adapter that exported Programs are written for, and what their shaders need of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce

from .adapter import Adapter
from .code_writer import WgslCodeWriter
from .limits import iterations
from .printer.loops import HALVES, SUBGROUPS

FEATURES = ("f16", "subgroups", "dot4", "software")
LIMITS = ("storage_buffers", "binding_bytes", "shared_bytes")


def assumed_adapter(assumptions: Iterable[str]) -> Adapter:
    """An adapter with what every WebGPU adapter has, and these features and limits: "f16", "subgroups",
    "dot4", "binding_bytes=1073741824". "software" excludes no adapter, but chooses the schedules for those that compute
    on the CPU, as in tests. Errors: InvalidInput"""
    found: dict[str, Any] = {}
    for text in assumptions:
        name, _, value = text.partition("=")
        if name in FEATURES and not value:
            found[name] = True
        elif name in LIMITS and value.isdigit() and int(value) >= getattr(Adapter(), name):
            found[name] = int(value)
        else:
            least = ", ".join(f"{limit}=N (N is at least {getattr(Adapter(), limit)})" for limit in LIMITS)
            raise InvalidInput(f'a Program cannot assume "{text}"', hint=f"{', '.join(FEATURES)}, {least}")
    buffers = max(Adapter().buffer_bytes, found.get("binding_bytes", 0))
    return Adapter(**found, buffer_bytes=buffers)


def needs_of(header: Mapping[str, Any], writer: WgslCodeWriter, adapter: Adapter) -> dict[str, Any]:
    """What a Program needs of an adapter (`Needs` of pyruntime/program/schema.json). writer: of its shaders; adapter:
    the one that it was compiled for"""
    sources = [shader.source for shader in writer.shaders]
    buffers = [b["size"] for b in header["buffers"] if b.get("memory") == "webgpu"]
    longest = [_iterations(kernel, adapter) for kernel in writer.kernels]
    known = [count for count in longest if count is not None]
    return {
        "f16": any(HALVES in source for source in sources),
        "subgroups": any(SUBGROUPS in source for source in sources),
        "storage_buffers": max(shader.buffers for shader in writer.shaders),
        "binding_bytes": max((size for size in buffers if isinstance(size, int)), default=0),
        **({"dot4": True} if any("dot4I8Packed" in source for source in sources) else {}),
        "shared_bytes": adapter.shared_bytes if any("var<workgroup>" in source for source in sources) else 0,
        **({"iterations": max(known)} if len(known) == len(longest) else {}),
    }


def _iterations(kernel: Kernel, adapter: Adapter) -> int | None:
    """Loop iterations of one invocation, at most; None if that depends on feeds."""
    kernel = kernel.definition() if isinstance(kernel, Call) else kernel
    assert isinstance(kernel, (Map, Reduce, Loops))
    count = iterations.at_most(kernel, adapter)
    return count if isinstance(count, int) else None
