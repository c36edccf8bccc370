"""onnxruntime's `InferenceSession` for Pyodide: on WebAssembly on one thread, and on the GPU, for which Python waits or
programs await (`pyruntime.pyodide.waiting`)."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pyruntime.browser import PageCompiler
from pyruntime.errors import InvalidInput, our_fault
from pyruntime.frontend.feed_checks import NodeArg, arguments, check_given, check_names, required_inputs
from pyruntime.frontend.maps import classes
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph
from pyruntime.options import PYODIDE, SessionOptions, check_options, own
from pyruntime.placement.provider_list import allows_software, effective, is_auto, known, name_and_options
from pyruntime.pyodide.adapters import PyodideAdapters
from pyruntime.pyodide.programs import Programs, executor
from pyruntime.pyodide.tensors import Tensor, to_output, to_tensor
from pyruntime.pyodide.waiting import Work, can_wait, finish, finished
from pyruntime.runtime.explain import explain
from pyruntime.session.memory_report import MemoryReport, Stats
from pyruntime.session.model_source import check_model
from pyruntime.session.run_options import RunOptions, check_run_options
from pyruntime.session.watch import Watch
from pyruntime.training.adapters.lora_adapter import LoraAdapter

NO_WAIT = "Python cannot wait for the GPU here (`await InferenceSession.create(…)` can)"


class InferenceSession:
    """A model ready to run: its path (in Pyodide's file system) or its bytes.

    Feeds are NumPy's arrays, nested lists, or anything with a buffer (memoryview, array.array); outputs are NumPy's
    arrays if NumPy is installed, else `Tensor`s, with `shape`, `tolist()` and a buffer.
    The provider "webgpu" works where Python can wait for promises, and everywhere for programs that write
    `await InferenceSession.create(…)` and `await session.run_awaitable(…)`.
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault.
    """

    _is_awaited = False  # whether `create` finishes the opening
    _can_have_gpu = True

    def __init__(
        self, path_or_bytes: Any, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None
    ) -> None:
        options = own(sess_options or SessionOptions())
        check_options(options, PYODIDE)
        listed = providers or ["wasm"]
        self._named = ["auto"] if is_auto(listed) else known(listed)
        self.watch = Watch(os.path.basename(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else "")
        check_model(path_or_bytes)
        self._opening = self._open(path_or_bytes, options, listed)
        if not self._is_awaited:
            finish(self._opening)

    @classmethod
    async def create(cls, *args: Any, **kwargs: Any) -> Self:
        """A session, whose arguments are those of the class, for programs that await the GPU."""
        made = cls.__new__(cls)
        made._is_awaited = True
        made.__init__(*args, **kwargs)  # type: ignore[misc]
        await finished(made._opening)
        return made

    def _open(self, path_or_bytes: Any, options: SessionOptions, listed: Sequence[Any]) -> Work[None]:
        js = executor()
        gpu, self._why_not_gpu = yield from self._gpu(js, options, listed)
        given = {**self._providers(listed, gpu is not None), "gpu": gpu}
        with our_fault("opening the model"):
            compiler = PageCompiler(options, {**js.codeFeatures().to_py(), **given})
            self._adapters = PyodideAdapters(self._read(path_or_bytes), options.adapters)
            border = compiler.prepare(self._adapters.graph)
            self._classes = {name: classes(node) for name, node in border.scores.items()}
            self._added = compiler.added
            timeout = options.gpu_timeout if gpu else 0
            self.programs = Programs(border.graph, compiler, js, options.memory_limit, timeout)
            self.programs.prepare()
            yield from self.programs.opened()
        self.watch.name = self.watch.name or border.graph.name
        self.watch.created()

    def _read(self, model: Any) -> Graph:
        return load(model)

    def _gpu(self, js: Any, options: SessionOptions, listed: Sequence[Any]) -> Work[tuple[dict[str, Any] | None, str]]:
        """The adapter as the compiler takes it; or None, and why the session does not use the GPU that it names.
        Errors: NoAdapter if it names no other provider, or has no fallback"""
        names = known(listed)
        if "webgpu" not in effective(names) or not self._can_have_gpu or is_auto(listed):
            return None, ""
        if not self._is_awaited and not can_wait():
            why = NO_WAIT
        else:
            found = json.loads((yield js.describeGpu(options.gpu_timeout)))
            adapter, why = found.get("adapter"), found.get("whyNot")
            if adapter and ("wasm" not in names or not adapter["software"] or allows_software(listed)):
                return adapter, ""
            if "wasm" not in names or not adapter and not options.fallback:
                from pyruntime.providers.webgpu.adapter import NoAdapter

                raise NoAdapter(why, hint="fallback is off" if "wasm" in names else 'add the provider "wasm"')
            if adapter:
                why = f'the WebGPU adapter "{adapter["name"]}" computes on the CPU (allow_software uses it)'
        warnings.warn(f"{why}; the session runs on WebAssembly", stacklevel=4)
        return None, why

    def _providers(self, listed: Sequence[Any], has_gpu: bool = False) -> dict[str, Any]:
        """Those of the session, as `PageCompiler` takes them."""
        names = [name for name in known(listed) if has_gpu or name != "webgpu"] or ["wasm"]
        return {"executionProviders": names, "providerOptions": dict(map(name_and_options, listed))}

    def __del__(self) -> None:
        if hasattr(self, "programs"):
            self.programs.forget()
            self._added.close()

    def get_inputs(self) -> list[NodeArg]:
        """Name, type ("tensor(float)", …) and shape (ints, names, None) of each input."""
        return arguments([v for v in required_inputs(self.programs.graph) if v.name not in self._adapters.inputs])

    def get_outputs(self) -> list[NodeArg]:
        return arguments(self.programs.outputs)

    def get_providers(self) -> list[str]:
        gpu = ["WebGpuExecutionProvider"] if self.programs.on_gpu else []
        return [*self._added.opened, *gpu, "CPUExecutionProvider"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs with these names, or all outputs for None. Errors: InvalidInput names the feed at fault; the
        session stays usable."""
        return finish(self._running(output_names, input_feed, run_options))

    async def run_awaitable(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """As `run`, for programs that await the GPU. Runs of a session take turns."""
        return await finished(self._running(output_names, input_feed, run_options))

    def _running(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any
    ) -> Work[list[Any]]:
        active = _active_adapters(run_options)
        names = [o.name for o in self.get_outputs()]
        for name in output_names or ():
            if name not in names:
                raise InvalidInput(f'output "{name}" does not exist', hint=f"outputs are {names}")
        names = list(output_names or names)
        feeds = self.tensors(input_feed, names, active)
        with our_fault("running the model"):
            results = yield from self._counted(self.programs.run(feeds, names))
        return [self._output(name, result) for name, result in zip(names, results, strict=True)]

    def _counted(self, run: Work[list[Any]]) -> Work[list[Any]]:
        start = time.perf_counter()
        try:
            results = yield from run
        except Exception as error:
            self.watch.failed(start, error)
            raise
        self.watch.succeeded(start)
        return results

    def explain(self) -> dict[str, Any]:
        """Which node runs where, and why (docs/explain.md)."""
        header, figures = self.programs.latest()
        gpu = ["webgpu"] if self.programs.on_gpu else []
        providers = {"named": self._named, "used": [*self._added.opened, *gpu, "wasm"], "why": self._why_not_gpu}
        return {**explain(header, figures["env"], self._added.moves), "providers": providers}

    def metrics(self) -> Mapping[str, Any]:
        """What the session has counted: see docs/watching.md."""
        return self.watch.report(self.programs.engine_counts())

    def memory(self) -> MemoryReport:
        """The memory of the session, and its peak so far."""
        figures = self.programs.latest().figures
        return MemoryReport.of({"wasm": Stats(**figures["memory"])}, figures["arena"])

    def trim(self) -> None:
        """Free the memory of the Programs; the next run compiles what it needs again."""
        self.programs.forget()

    def export(
        self, weights: bool = True, *, providers: Sequence[str] = ("wasm",), assume: Sequence[str] = ()
    ) -> bytes:  # fmt: skip
        """The Program as a file that pages, Node.js and Python on the desktop open without compiling, with its weights.
        providers, assume: as for the desktop's `InferenceSession.export`. Errors: InvalidInput; SessionFailed if the
        model is compiled when it first runs"""
        if not weights:
            raise InvalidInput("in Pyodide a file always has its weights", hint="weights=True")
        if self._classes:
            raise InvalidInput("this model gives maps, which a Program in a file cannot")
        return self.programs.export(providers, assume, self._adapters.in_file())

    def tensors(
        self, given: Mapping[str, Any], names: Sequence[str], active: Sequence[tuple[Any, float]] = ()
    ) -> dict[str, Any]:  # fmt: skip
        """Feeds for these outputs as the executor takes them. active: adapters, with weights. Errors: InvalidInput"""
        if added := self._adapters.feeds(active):
            check_given(given)
        elif not isinstance(given, Mapping):
            raise InvalidInput(f"feeds must be a dict of tensors by name, got {type(given).__name__}")
        given = {**added, **given}
        graph = self.programs.graph
        types = {v.name: v.type for v in graph.inputs}
        given = {name: x for name, x in given.items() if name not in graph.unused}
        required = [v.name for v in required_inputs(graph)]
        if not given.keys() >= set(required):
            uses = self.programs.uses()
            required = [name for name in required if any(name in uses[output] for output in names)]
        check_names(given, types, required)
        return {name: to_tensor(name, x, types[name]) for name, x in given.items()}

    def _output(self, name: str, result: Any) -> Any:
        """Convert an output for the caller: that of a ZipMap becomes a dict for each row, by class."""
        classes = self._classes.get(name)
        if classes is None:
            return [to_output(t) for t in result] if isinstance(result, list) else result and to_output(result)
        scores, columns = result.flat(), len(classes)
        if not result.shape or result.shape[-1] != columns:
            raise InvalidInput(f'output "{name}": {columns} classes do not fit scores of shape {result.shape}')
        rows = [scores[at : at + columns] for at in range(0, len(scores), columns)]
        return [dict(sorted(zip(classes, row, strict=True))) for row in rows]


def _active_adapters(options: Any) -> Sequence[tuple[Any, float]]:
    """Errors: InvalidInput for other options of a run"""
    check_run_options(options)
    if options is None:
        return ()
    if others := options.others():
        raise InvalidInput(f"a run in Pyodide has no option {others[0]}", hint="its options can name adapters only")
    return options.adapters


__all__ = ["InferenceSession", "LoraAdapter", "RunOptions", "SessionOptions", "Tensor"]
