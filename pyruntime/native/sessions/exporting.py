"""Exports the Programs of a session: compiles them for other hosts and joins them in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyruntime.compiler.compile import Compiled
from pyruntime.exports import compile_for_file, embed, with_types
from pyruntime.native.sessions.program_file import beside_model
from pyruntime.native.sessions.programs import Programs
from pyruntime.session.model_source import weight_sources

Elsewhere = tuple[Compiled, dict[str, Any] | None]


def export(
    programs: Programs, about: Mapping[str, Any], exclusive: Callable[[Callable[[], Elsewhere]], Elsewhere], model: str,
    weights: bool, relaxed: bool, providers: Sequence[str] | None, assume: Sequence[str],
) -> bytes:  # fmt: skip
    """The bytes of the file. about: what it says of the model besides types; exclusive: calls a function while no run
    is under way; model: path of the model's file. `InferenceSession.export` documents the others. Errors: InvalidInput
    if a step runs in Python"""
    compiler, graph = programs.compiler, programs.graph
    compiled = partial(compiler.compile_elsewhere, graph, programs.requirements_for_all(), relaxed=relaxed)
    made = compile_for_file(
        providers or compiler.named, assume, compiler.threads, lambda *what: exclusive(partial(compiled, *what))
    )
    sources = weight_sources(graph)
    program = with_types(made.program, graph, graph.outputs, about)
    return (embed(program, sources) if weights else beside_model(program, sources, model)).to_bytes()
