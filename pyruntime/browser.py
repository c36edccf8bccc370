"""The interface of the engine to the web worker: bytes in, Programs out. Values cross as JSON; weights do not cross.

A feed is {"dtype", "dims", "data"}, a list of those for a sequence, or null for an empty optional. "data" (a flat list
in storage layout, see `pyruntime.ir.dtype`) is needed only for the feeds that `Model.needs` names.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from pyruntime.codegen.choices import Chosen
from pyruntime.compiler.collection import collect as collect  # the page calls it
from pyruntime.compiler.collection import without_collection
from pyruntime.compiler.compile import Compiled, Stopwatch, compile_graph
from pyruntime.compiler.settings import Settings
from pyruntime.errors import ExecutionError, InvalidInput, NeedsValue, PyRuntimeError, UnsupportedOp, our_fault
from pyruntime.exports import compile_for_file, needs_of, with_types
from pyruntime.frontend.maps import Border, Column, classes, without_maps
from pyruntime.frontend.trace_graph import Spec, TensorSpec
from pyruntime.host import call
from pyruntime.ir.dtype import BY_NAME, STRING, DType
from pyruntime.onnx import load
from pyruntime.onnx.describe import describe
from pyruntime.onnx.graph import Graph, OptionalType, SequenceType, TensorType, Type, Value
from pyruntime.onnx.page_files import Missing, PageFile, PartialFile, Read, opener, path_of
from pyruntime.onnx.weight_values import elements
from pyruntime.options import SessionOptions, from_javascript
from pyruntime.page_providers.parts import Parts
from pyruntime.page_providers.session_providers import SessionProviders
from pyruntime.placement.provider_list import effective, known, registered, target
from pyruntime.placement.target import Target
from pyruntime.session.model_source import about
from pyruntime.session.needs import Given, GivenTensor
from pyruntime.session.specialisation import FOR_ALL, Requirements, Specialiser

if TYPE_CHECKING:
    from pyruntime.quantization.page_quantizer import PageQuantizer

SAFE = 2**53 - 1  # Number.MAX_SAFE_INTEGER of JavaScript
# features that the WebAssembly code may use
TARGET: dict[str, Any] = {"relaxed": False, "shared": False, "threads": 1, "dots": "", "memories": False}


class Compilation:
    """A Program as JSON and bytes, the host functions of its steps, and the milliseconds of each phase as JSON."""

    def __init__(self, compiled: Compiled) -> None:
        watch = Stopwatch()
        self.program = compiled.program
        self.json = json.dumps(compiled.program.header)
        self.blob = compiled.program.blob
        watch.lap("encode")
        self.timings = json.dumps(compiled.timings | watch.timings)
        self._kernels = compiled.host_kernels
        self._symbols = compiled.symbols
        self.parts = Parts(compiled.host_kernels, compiled.symbols)

    def host(self, number: int, inputs: str, env: str = "{}") -> str:
        """Run a Host step. inputs: JSON list of {"dims", "data"} or null; env: JSON of the values that `call` takes."""
        kernel = self._kernels[number]
        pairs = zip(json.loads(inputs), kernel.args, strict=True)
        args = [
            None if a is None or t is None else (tuple(a["dims"]), _from_json(a["data"], t.dtype)) for a, t in pairs
        ]
        results = call(kernel, args, self._symbols, json.loads(env))
        return json.dumps([{"dims": list(shape), "data": _to_json(data)} for shape, data in results])


def _from_json(data: list[Any], dtype: DType) -> list[Any]:
    """Elements from web/common/elements.js. Numbers that JSON cannot represent are text."""
    if dtype is STRING:
        return data
    number = float if dtype.kind == "f" else int
    return [number(x) if isinstance(x, str) else x for x in data]


def _to_json(data: Sequence[Any]) -> list[Any]:
    return [_text(x) if isinstance(x, (float, int)) and not -SAFE <= x <= SAFE else x for x in data]


def _text(x: float) -> float | str:
    """The number as JavaScript writes it."""
    if isinstance(x, int):
        return str(x)
    return "NaN" if x != x else x if isfinite(x) else "Infinity" if x > 0 else "-Infinity"


def _map_of(column: Column) -> dict[str, Any]:
    """The map that the page converts to an input, for web/page/tensors/maps.js."""
    return {"input": column.source, "key": column.kind.key.name, "keys": column.keys, "length": column.length}


def _given(feed: Any, declared: Type | None) -> Given:
    """A feed as `Needs` reads it. Types without an array in JavaScript arrive as raw bits of another type: the element
    type is the one that the model declares."""
    if isinstance(declared, (OptionalType, SequenceType)):
        declared = declared.elem
    if isinstance(feed, list):
        return [_given(item, declared) for item in feed]  # type: ignore[misc]
    dtype = declared.dtype if isinstance(declared, TensorType) else None
    return feed and GivenTensor(dtype or BY_NAME[feed["dtype"]], tuple(feed["dims"]), lambda: feed["data"])


def _load(read: Read, size: int, external: Mapping[str, int], file_class: type[PageFile] = PageFile) -> Graph:
    """The graph of the model that `read` reads. external: sizes of the files beside the model, by path"""
    return load(file_class(read, size), open_external=opener(read, external, file_class))


class PageCompiler:
    """Compiles graphs by the options of a session in a page.

    host: `executionProviders`, `gpu` (its adapter) and features of WebAssembly (see TARGET)
    """

    def __init__(self, options: SessionOptions, host: Mapping[str, Any]) -> None:
        self.settings = Settings(options)
        self.host = dict(host)
        self.refused: dict[str, str] = {}  # by node, why it does not run on the GPU
        self.added = SessionProviders(host)
        self._warned: set[str] = set()

    def prepare(self, graph: Graph) -> Border:
        return without_maps(self.settings.prepare(graph))

    def compile(
        self, graph: Graph, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None,
        all_results: bool = False, cpu_only: bool = False, providers: Sequence[str] | None = None,
    ) -> Compiled:  # fmt: skip
        """all_results: the outputs are the results of all kernels; cpu_only: no kernel runs on the GPU; providers: in
        place of the session's"""
        while True:
            try:
                return self.compile_for(self.target(cpu_only, providers), graph, specs, constants, all_results)
            except ExecutionError as e:
                if not self.added.leave(e):
                    raise

    def target(self, cpu_only: bool = False, providers: Sequence[str] | None = None) -> Target:
        names = known(providers or self.host.get("executionProviders") or ["wasm"])
        engines = self._engines(names, {name: self.host.get(name, default) for name, default in TARGET.items()})
        return target(names, engines, self.added.opened, cpu_only)

    def compile_for(
        self, chosen: Target, graph: Graph, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None,
        all_results: bool = False,
    ) -> Compiled:  # fmt: skip
        compiled = compile_graph(
            graph, specs, elements, chosen, self.settings, constants=constants, all_results=all_results
        )
        for text in compiled.remarks:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, stacklevel=2)
        return compiled

    def compile_elsewhere(
        self, graph: Graph, requirements: Requirements, names: Sequence[str], adapter: Any
    ) -> tuple[Compiled, dict[str, Any] | None]:
        """A Program for one thread of any host, and what it needs of the GPU. adapter: the GPU that is assumed"""
        engines = self._engines(names, TARGET, adapter)
        specs, constants, _ = requirements
        compiled = self.compile_for(target(names, engines, self.added.opened), graph, specs, constants)
        return compiled, needs_of(compiled, engines[-1][1], adapter)

    def _engines(self, names: Sequence[str], features: Mapping[str, Any], assumed: Any = None) -> list[Any]:
        """The providers that write code, as `target` takes them. features: of WebAssembly; assumed: an adapter in place
        of the page's"""
        from pyruntime.providers.wasm import provider

        choices = self.settings.choices
        engines: list[Any] = [(provider, provider.code_writer(**features, choices=choices))]
        if "webgpu" in effective(names) and (assumed or self.host.get("gpu")):
            from pyruntime.providers.webgpu.adapter import Adapter  # 20 ms of a start in a browser
            from pyruntime.providers.webgpu.code_writer import GpuProvider

            gpu = GpuProvider(assumed) if assumed else GpuProvider(Adapter(**self.host["gpu"]), self.refused)
            engines.append((gpu, gpu.code_writer(choices=choices)))
        return engines


class PagePrograms(Specialiser[Compilation]):
    """Programs for the JavaScript executor. The page keeps those that `Model.specialise` returns."""

    def __init__(self, graph: Graph, compiler: PageCompiler) -> None:
        super().__init__(graph)
        self.compiler = compiler

    def compile(self, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None) -> Compilation:
        compiled = self.compiler.compile(self.graph, specs, constants)
        if constants is None:
            self.outputs = compiled.outputs
        return Compilation(compiled)

    def part(self, names: Sequence[str]) -> Specialiser[Compilation]:
        return self.share_needs(PagePrograms(self.graph_for(names), self.compiler))

    def describe(self, feeds: Mapping[str, Any]) -> dict[str, Given]:
        types = {v.name: v.type for v in self.graph.inputs}
        return {name: _given(feed, types[name]) for name, feed in feeds.items()}


class Model:
    """A model and the Programs made from it."""

    @without_collection(until_idle=True)  # reading the graph makes many objects, too
    def __init__(self, read: Read, size: int, options: dict[str, Any], graph: Graph | None = None) -> None:
        """graph: the model's graph, if it is already read"""
        watch = Stopwatch()
        graph = graph or _load(read, size, options.get("external", {}))
        self._changed: Any = None
        if options.get("training") or options.get("adapting"):
            sizes = {**options.get("external", {}), "": size}
            from pyruntime.training.graph.page_graph import changed  # few pages need it

            self._changed, self._plan = changed(graph, options, lambda path: PageFile(read, sizes[path], path))
            graph = self._changed.graph
        self.compiler = PageCompiler(from_javascript(options), options)
        border = self.compiler.prepare(graph)
        self.columns = border.columns
        self.classes = {name: classes(node) for name, node in border.scores.items()}
        _check_map_keys([*self.classes.values(), *(c.keys or () for c in self.columns.values())])
        watch.lap("read")
        self.timings = json.dumps(watch.timings)
        self.programs = PagePrograms(border.graph, self.compiler)
        self.programs.prepare()

    @property
    def main(self) -> Compilation | None:
        """The Program for all feeds, if there is one."""
        return self.programs.table.get(FOR_ALL)

    def split_dims(self, dims: str) -> None:
        """Compile again; dims of one of these names (a JSON list) may have different sizes from now on."""
        self.programs.split_dims(json.loads(dims))
        self.programs.prepare()

    @property
    def added(self) -> SessionProviders:
        return self.compiler.added

    def recompile(self) -> None:
        """Compile again, after nodes have left a provider."""
        self.programs.forget()
        self.programs.prepare()

    def leave_gpu(self, nodes: str) -> None:
        """Compile again, without the GPU, or without it for these nodes. nodes: JSON, reasons by node"""
        refused = json.loads(nodes)
        self.compiler.refused |= refused
        if not refused:
            self.compiler.host["gpu"] = None
        self.recompile()

    @property
    def info(self) -> str:
        """JSON: name, type (as `describe` gives it) and default of "inputs" and "outputs", and what `about` tells."""
        return json.dumps({
            "inputs": [{"name": v.name, **self._input(v)} for v in self.programs.graph.inputs],
            "outputs": [{"name": v.name, **self._output(v)} for v in self.programs.outputs],
            **about(self.programs.graph),
            **({} if self._changed is None else {self._changed.kind: self._changed.report()}),
        })  # fmt: skip

    def export_plan(self) -> str:
        """JSON: the pieces of the model's file with new weights (pyruntime/onnx/write.py)."""
        return self._plan()

    def _input(self, value: Value) -> dict[str, Any]:
        column = self.columns.get(value.name)
        made = {} if column is None else {"map": _map_of(column)}
        return {"default": value.name in self.programs.graph.weights, **describe(value.type), **made}

    def _output(self, value: Value) -> dict[str, Any]:
        found = self.classes.get(value.name)
        return describe(value.type) if found is None else {"kind": "maps", "classes": found}

    @property
    def needs(self) -> str:
        """JSON {"values", "dims", "defaults"}: names of inputs. A Program is compiled for the values of the inputs in
        "values" and the dims of those in "dims"; of others only the rank counts. `main` runs all feeds that omit the
        inputs in "defaults" (null: there is no `main`)."""
        graph, needs = self.programs.graph, self.programs.needs
        names = [v.name for v in graph.inputs]
        values = [n for n in names if needs.inner or n in needs.inputs]
        defaults = None if self.main is None else [n for n in names if n in graph.weights]
        return json.dumps({"values": values, "dims": names if needs.dims else [], "defaults": defaults})

    def specialise(self, feeds: str, outputs: str = "") -> Compilation | None:
        """The Program for these feeds (JSON by name), or None if compilation needs more values or dims. `needs` then
        names them. outputs: a JSON list of names if the feeds suffice for these outputs alone"""
        given = json.loads(feeds)
        programs = self.programs.part(json.loads(outputs)) if outputs else self.programs
        known = {v.name for v in programs.graph.inputs}
        try:
            with our_fault("compiling for these feeds"):
                return programs.compile(*programs.requirements({n: x for n, x in given.items() if n in known})[:2])
        except NeedsValue as e:
            programs.needs.add(programs.graph, e)
            return None

    def for_sizes(self, feeds: str) -> Compilation | None:
        """The Program for the dims of these feeds alone, which the others refused; None if it is one of these, or if
        `needs` has grown."""
        try:
            with our_fault("compiling for these sizes"):
                found = self.programs.requirements_of_sizes(json.loads(feeds))
                return found and self.programs.compile(*found[:2])
        except NeedsValue as e:
            self.programs.needs.add(self.programs.graph, e)
            return None

    def with_all_results(self, feeds: str, cpu_only: bool) -> Compilation:
        """A Program whose outputs include the results of all kernels, for feeds that were compiled before. cpu_only:
        the same kernels, none of them on the GPU."""
        specs, constants, _ = self.programs.requirements(json.loads(feeds))
        return Compilation(self.compiler.compile(self.programs.graph, specs, constants, True, cpu_only))

    def half_ranges(self, feeds: str) -> Compilation:
        """A Program that measures the half floats of the model (pyruntime/compiler/half_ranges.py), for feeds that were
        compiled before. Its header has the entries as `ranges`."""
        from pyruntime.compiler.half_ranges import HalfRanges  # few sessions check them

        specs, constants, _ = self.programs.requirements(json.loads(feeds))
        ranges = HalfRanges(self.programs.graph, specs, constants)
        compiled = self.compiler.compile(ranges.graph, specs, ranges.constants, providers=["wasm"])
        header: Any = compiled.program.header
        header["ranges"] = ranges.entries
        return Compilation(compiled)

    def listing(self, feeds: str, node: str, code: bool) -> str:
        """The text of pyruntime/compiler/listing.py. feeds: JSON of feeds that were compiled before, or "" for all"""
        from pyruntime.compiler.listing import listing  # few sessions are listed

        programs, chosen = self.programs, self.compiler.target()
        specs, constants, _ = programs.requirements(json.loads(feeds)) if feeds else programs.requirements_for_all()
        return listing(self.compiler.compile_for(chosen, programs.graph, specs, constants), chosen, node, code)

    def portable(self, providers: str = '["wasm"]', assume: str = "[]") -> Compilation:
        """The Programs for all feeds as a file has them (pyruntime/native/sessions/program_file.py): one thread of any
        host runs them. Errors: InvalidInput if no Program is for all feeds, or for maps

        providers, assume: JSON of names, and of what shaders may use (pyruntime/exports.py)"""
        if self.main is None:
            text = "this model is compiled for some feeds when it runs, so there is no Program for all"
            dims = ", ".join(sorted(map(str, self.programs.needs.dims)))
            raise InvalidInput(text, hint=dims and f"fix these dims by freeDimensionOverrides: {dims}")
        if self.columns or self.classes:
            raise InvalidInput("this model takes or gives maps, which a Program in a file cannot")
        graph = self.programs.graph
        requirements = self.programs.requirements_for_all()
        compiled = partial(self.compiler.compile_elsewhere, graph, requirements)
        made = compile_for_file(json.loads(providers), json.loads(assume), 1, compiled)
        changed = {} if self._changed is None else self._changed.in_file()
        program = with_types(made.program, graph, self.programs.outputs, {**about(graph), **changed})
        return Compilation(replace(made, program=program))

    def tuning(self, feeds: str) -> Tuning:
        """Tunes the kernels of the Program for these feeds, which was compiled before."""
        return Tuning(self.programs, *self.programs.requirements(json.loads(feeds))[:2])


def _check_map_keys(keys: Iterable[Sequence[Any]]) -> None:
    """Errors: UnsupportedOp for an integer that JavaScript's numbers cannot represent."""
    if any(isinstance(key, int) and abs(key) > SAFE for found in keys for key in found):
        raise UnsupportedOp("a map has a key that JavaScript's numbers cannot represent")


class Tuning:
    """Compiles Programs with other schedules, which web/session/tune.js measures (pyruntime/compiler/tuning.py)."""

    def __init__(
        self, programs: PagePrograms, specs: Mapping[str, Spec], constants: Mapping[str, TensorSpec] | None
    ) -> None:
        from pyruntime.compiler.tuning import Search  # few sessions are tuned

        self._programs, self._for = programs, (specs, constants)
        self.default = self._compile({})
        gpu = ["webgpu"] if programs.compiler.host.get("gpu") else []
        self._search = Search(self.default.program, [*gpu, "wasm"])

    def _compile(self, chosen: Chosen) -> Compilation:
        compiler = self._programs.compiler
        settings = compiler.settings
        compiler.settings = settings.with_choices(chosen)
        try:
            return self._programs.compile(*self._for)
        finally:
            compiler.settings = settings

    def next(self) -> Compilation | None:
        """The next Program to measure against `default`."""
        while (chosen := self._search.next()) is not None:
            compilation = self._compile(chosen)
            if self._search.worth(compilation.program):
                return compilation
        return None

    def measured(self, times: str) -> None:
        """times: JSON of two {"run", "kernels"}, in milliseconds: of `default`, and of the Program that `next` returned
        last"""
        from pyruntime.runtime.turns import Times

        self._search.measured(*[Times(t["run"], t["kernels"]) for t in json.loads(times)])

    @property
    def result(self) -> str:
        """JSON of a `Tuned` (web/common/protocol.js), without the time that tuning took."""
        found = self._search
        kernels = [{"nodes": k.nodes, "chosen": k.chosen, "before": k.before, "after": k.after} for k in found.kernels]
        before, after = (t if isfinite(t) else None for t in (found.before, found.after))
        return json.dumps({"choices": found.choices, "before": before, "after": after, "kernels": kernels})


def providers() -> str:
    """JSON list of the names of registered providers."""
    return json.dumps(registered())


def create(read: Read, size: int, options: str) -> Model:
    """Read a model and compile it if its input types suffice (else `Model.main` is None until `specialise`)."""
    with our_fault("opening the model"):
        return Model(read, size, json.loads(options))


def missing(read: Read, size: int, external: str) -> str:
    """JSON: locations of a model's external data that are not in `external` (sizes by path), as far as the model can be
    read."""
    sizes, missing_files = json.loads(external), dict[str, None]()

    def open_external(location: str) -> PageFile:
        path = path_of(location, sizes)
        if path is not None:
            return PageFile(read, sizes[path], path)
        missing_files[location] = None
        return PageFile(lambda offset, size, name: bytes(size), 1 << 62, location)

    with suppress(PyRuntimeError), our_fault("reading the model"):
        load(PageFile(read, size), open_external=open_external)
    return json.dumps([*missing_files])


def quantizer(read: Read, size: int, external: str, options: str) -> PageQuantizer:
    """A quantisation of a model. external: as in `missing`; options: JSON of pyruntime/quantization/options.py"""
    from pyruntime.quantization.page_quantizer import PageQuantizer  # few pages quantise

    return PageQuantizer(PageFile(read, size), opener(read, json.loads(external)), json.loads(options))


def inspect(read: Read, size: int, options: str) -> str:
    """JSON of the report of pyruntime/compiler/inspection.py. `read` returns None for a part that the page has not
    fetched; then the result is {"missing": …}, and the page calls again when it has that part."""
    from pyruntime.compiler.inspection import inspection

    settings = json.loads(options)

    def header() -> Any:
        main = Model(read, size, settings, graph).main
        return main and json.loads(main.json)

    try:
        with our_fault("inspecting the model"):
            graph = _load(read, size, settings["external"], PartialFile)
            return json.dumps(inspection(graph, header))
    except Missing as missing:
        return json.dumps({"missing": missing.args[0]})
