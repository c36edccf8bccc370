"""Exports the Programs of a session: compiles them for other hosts and joins them in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyruntime.exports import Half, halves, join, with_types
from pyruntime.native.execution.host_calls import HostCalls
from pyruntime.native.sessions.program_file import beside_model, embed
from pyruntime.native.sessions.programs import Programs
from pyruntime.placement.provider_list import known
from pyruntime.session.model_source import weight_sources


def export(
    programs: Programs, about: Mapping[str, Any], exclusive: Callable[[Callable[[], Half]], Half], model: str,
    weights: bool, relaxed: bool, providers: Sequence[str] | None, assume: Sequence[str],
) -> bytes:  # fmt: skip
    """The bytes of the file. about: what it says of the model besides types; exclusive: calls a function while no run
    is under way; model: path of the model's file. `InferenceSession.export` documents the others. Errors: InvalidInput
    if a step runs in Python"""
    compiler = programs.compiler
    requirements = programs.requirements_for_all()

    def compiled(names: Sequence[str], adapter: Any) -> Half:
        made, needs = compiler.compile_elsewhere(programs.graph, requirements, names, adapter, relaxed)
        return Half(made.program, HostCalls(made.host_kernels, made.symbols).to_json(), needs)

    found = halves(known(providers or compiler.named), assume, lambda *what: exclusive(partial(compiled, *what)))
    sources = weight_sources(programs.graph)
    program = with_types(join(found, compiler.threads), programs.graph, programs.graph.outputs, about)
    return (embed(program, sources) if weights else beside_model(program, sources, model)).to_bytes()
