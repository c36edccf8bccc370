"""Exports the Programs of a session: compiles them for other hosts and joins them in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.native.execution.host_calls import HostCalls
from pyruntime.native.sessions.program_file import Half, beside_model, embed, join, with_types
from pyruntime.native.sessions.programs import Programs
from pyruntime.placement.provider_list import BASE, effective, known
from pyruntime.session.model_source import weight_sources

GPU = "webgpu"


def export(
    programs: Programs, exclusive: Callable[[Callable[[], Half]], Half], model: str, weights: bool, relaxed: bool,
    providers: Sequence[str] | None, assume: Sequence[str],
) -> bytes:  # fmt: skip
    """The bytes of the file. exclusive: calls a function while no run is under way; model: path of the model's file.
    `InferenceSession.export` documents the others. Errors: InvalidInput if a step runs in Python"""
    compiler = programs.compiler
    named = known(providers or compiler.named)
    wants_gpu = GPU in effective(named)
    if assume and not wants_gpu:
        raise InvalidInput("only a Program for the GPU can assume anything of it", hint='providers=["webgpu", "wasm"]')
    adapters: list[Any] = [None] if not wants_gpu or BASE in named else []
    if wants_gpu:
        from pyruntime.providers.webgpu.assumed import assumed_adapter

        adapters.insert(0, assumed_adapter(assume))
    requirements = programs.requirements_for_all()

    def compiled(adapter: Any) -> Half:
        names = named if adapter else [name for name in named if name != GPU]
        made, needs = compiler.compile_elsewhere(programs.graph, requirements, names, adapter, relaxed)
        return Half(made.program, HostCalls(made.host_kernels, made.symbols).to_json(), needs)

    halves = [exclusive(partial(compiled, adapter)) for adapter in adapters]
    if halves[0].needs is None:
        halves = halves[-1:]  # no kernel runs on the GPU
    sources = weight_sources(programs.graph)
    program = with_types(join(halves, compiler.threads), programs.graph, programs.about())
    return (embed(program, sources) if weights else beside_model(program, sources, model)).to_bytes()
