"""`inspect`: describes a model, and whether it fits into memory, before it is downloaded or loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyruntime.arguments import checked
from pyruntime.compiler.inspection import Report, constants, inspection
from pyruntime.errors import our_fault
from pyruntime.frontend.feed_checks import required_inputs
from pyruntime.frontend.maps import without_maps
from pyruntime.frontend.trace_graph import declared_specs
from pyruntime.native.gpu.device import warn
from pyruntime.native.sessions.compiler import Compiler
from pyruntime.native.sessions.program_file import Exported, is_program
from pyruntime.native.tools.url_source import UrlSource, is_url
from pyruntime.native.tools.url_source import beside as url_beside
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Source
from pyruntime.onnx.sources import FileSource, MemorySource, OpenExternal, beside
from pyruntime.options import NATIVE, SessionOptions, check_options
from pyruntime.placement.provider_list import known
from pyruntime.runtime.arena import WHOLE
from pyruntime.session.model_source import check_model


@checked
@our_fault("inspecting the model")
def inspect(
    model: Any,
    sess_options: SessionOptions | None = None,
    providers: Sequence[Any] | None = None,
) -> Report:
    """Describe a model, its unsupported operators, and the memory that it needs (docs/api/python.md lists the entries).

    model: a path, bytes, or a URL (http, https), of which only parts are fetched, by range requests. Errors:
    InvalidModel, ModelNotFound, LimitExceeded, InvalidInput.
    """
    options = sess_options or SessionOptions()
    check_options(options, NATIVE)
    if not is_url(model):
        check_model(model)
        if is_program(model):
            return _of_program(model, options)
    files: list[Source] = []

    def opened(file: Source) -> Source:
        files.append(file)
        return file

    if isinstance(model, str) and is_url(model):
        first: Source = UrlSource(model)
        external: OpenExternal = partial(url_beside, model)
    elif isinstance(model, (str, os.PathLike)):
        first, external = FileSource(model), beside(model)
    else:
        first = MemorySource(model, "") if isinstance(model, (bytes, bytearray, memoryview)) else model
        external = beside("")
    graph = load(opened(first), open_external=lambda location: opened(external(location)))
    report = inspection(graph, lambda: _header(graph, options, providers))
    size, fetched = (sum(getattr(file, key, 0) for file in files) for key in ("size", "fetched"))
    return {**report, "size": size, "fetched": fetched, "fits": _fits(report, options)}


def _of_program(model: Any, options: SessionOptions) -> Report:
    found = Exported(model)
    header = found.program.header
    report = {**inspection(found.graph, lambda: header), "weights": constants(header)}
    size = Path(model).stat().st_size if isinstance(model, (str, os.PathLike)) else memoryview(model).nbytes
    return {**report, "size": size, "fetched": 0, "fits": _fits(report, options)}


def _header(graph: Graph, options: SessionOptions, providers: Sequence[Any] | None) -> Any:
    """The header of the Program for all feeds, which is compiled and not loaded; None if there is no such Program."""
    compiler = Compiler(options, known(providers or ["wasm"]), warn)
    prepared = compiler.settings.prepare(graph)
    compiler.choose_providers(providers or ["wasm"])
    graph = without_maps(prepared).graph
    specs = declared_specs(required_inputs(graph))
    return None if specs is None else compiler.compile_only(graph, specs, None)[0].program.header


def _fits(report: Report, options: SessionOptions) -> Report:
    """Whether this machine has the memory: {"here": bool or None, "why": a sentence}."""
    if report["memory"] is None:
        return {"here": None, "why": "its memory is known when it is compiled for feeds"}
    needed, free = report["memory"]["linear"], available_memory()  # no API reports how much a GPU has
    most = options.memory_limit if options.memory_limit < WHOLE else WHOLE + report["memory"]["further"]
    limit, text = most, f"it takes {needed} bytes of linear memory"
    if needed > limit:
        return {"here": False, "why": f"{text}, a session has {limit} at most"}
    if free is not None and needed > free:
        return {"here": False, "why": f"{text}, {free} are free"}
    return {"here": True, "why": f"{text} of {limit}" + ("" if free is None else f", {free} are free")}


def available_memory() -> int | None:
    """Bytes that processes may still allocate without swapping. None if the system does not report it."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
