"""onnxruntime's `InferenceSession`, on a native session."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from pyruntime.api import logs
from pyruntime.api.initializers import with_initializers
from pyruntime.api.io_binding import IOBinding
from pyruntime.api.messages import SessionMessages
from pyruntime.api.model_metadata import ModelMetadata, metadata_of
from pyruntime.api.options import SessionOptions, check, paths_of, travelling
from pyruntime.api.ort_value import OrtValue
from pyruntime.api.providers import choose, options_without_effect, their_names
from pyruntime.api.session_rest import SessionRest
from pyruntime.api.trace import TraceFile
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, NotSupported, PyRuntimeError, SessionFailed
from pyruntime.native.execution.timing import Timing
from pyruntime.native.execution.verify import RangeVerdict, Verdict
from pyruntime.native.sessions.session import Session
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, operator_of
from pyruntime.onnx.sources import MemorySource, beside
from pyruntime.options import absolute, own, without_effect
from pyruntime.placement.provider_list import effective
from pyruntime.session.memory_report import MemoryReport
from pyruntime.session.run_options import RunOptions, check_run_options
from pyruntime.session.states import SessionState

if TYPE_CHECKING:
    from pyruntime.frontend.feed_checks import NodeArg
    from pyruntime.native.tools.tuning import Tuned

_NOTHING = nullcontext()


@checks_arguments("__init__", "run", "run_with_iobinding", "run_with_ort_values")
class InferenceSession(SessionRest):
    """A model ready to run.

    path_or_bytes: an ONNX model (or anything `pyruntime.onnx.load` takes), or a Program that `export` wrote
    providers: names in order of preference, onnxruntime's or ours ("webgpu", "wasm"), or pairs of a name and options;
        unknown ones are left out with a warning; without any the model runs on the CPU
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault; InvalidInput, NotSupported name the
    argument.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(sess_options, (SessionOptions, type(None))):
            raise InvalidInput(f"sess_options cannot be of type {type(sess_options).__name__}", hint="SessionOptions")
        options = self.options = self._sess_options = own(sess_options or SessionOptions())
        check(options)
        has_fallback = bool(options.fallback) and bool(int(kwargs.pop("enable_fallback", 1)))
        disabled = kwargs.pop("disabled_optimizers", None) or ()
        kwargs.pop("read_config_from_model", None)  # models contain no options for this engine
        if kwargs:
            raise InvalidInput(f"InferenceSession has no argument {', '.join(map(repr, kwargs))}")
        if disabled:
            raise NotSupported(f"passes {sorted(disabled)} are not known here", hint="SessionOptions.disabled_passes")
        self._trace = TraceFile(options.profile_file_prefix) if options.enable_profiling else None
        self._messages = SessionMessages(options)
        for text in without_effect(options):
            self._messages.warn_once(text)
        if providers is None and options.has_providers():
            providers = options.providers
        self._names_providers = bool(providers)
        self._provider_options = choose(providers, provider_options)
        for text in options_without_effect(self._provider_options):
            self._messages.warn_once(text)
        named = self._named_providers  # a Program in a file may prefer the GPU
        start = time.perf_counter()
        with self._event("session_initialization"):
            self._native = Session(
                path_or_bytes, options, named, read=partial(_read, options),
                warn=self._messages.warn, on_kernels=None if self._trace is None else self._trace.kernels,
                has_fallback=has_fallback, name=options.logid,
            )  # fmt: skip
        self._model, self._paths = absolute(path_or_bytes), paths_of(options)
        self._has_fallback = has_fallback
        # onnxruntime's attribute, which programs read and set.
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None
        took, on = f"{1e3 * (time.perf_counter() - start):.0f} ms", ", ".join(self.get_providers())
        self._messages.log(logs.INFO, f'session for "{self._native.graph.name}" on {on}, made in {took}')
        if options.optimized_model_filepath:
            from pyruntime.native.tools.optimized_model import save_optimized

            save_optimized(path_or_bytes, options.optimized_model_filepath)

    # ── description ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> str:
        """One of the states that docs/design/sessions.md draws: "ready", "running", "recovering", "failed"."""
        return self._native.state

    @property
    def id(self) -> int:
        """Its number in events (`pyruntime.on`)."""
        return self._native.watch.id

    def get_session_options(self) -> SessionOptions:
        return self.options

    def get_inputs(self) -> list[NodeArg]:
        """Name, type ("tensor(float)", …) and shape (ints, names, None) of each input."""
        return self._native.get_inputs()

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs that have a default. A run that feeds one has a Program of its own."""
        return self._native.get_overridable_initializers()

    def get_outputs(self) -> list[NodeArg]:
        """Name, type and shape of each output."""
        return self._native.get_outputs()

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata that the author of the model stored in it."""
        return metadata_of(self._native.graph)

    def get_providers(self) -> list[str]:
        """The providers, by onnxruntime's names. The CPU is last, because it runs the kernels that no other provider
        supports."""
        return their_names(effective(self._native.get_providers()))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options that were given for each provider."""
        given = dict(zip(their_names([*self._provider_options]), self._provider_options.values(), strict=False))
        return {name: given.get(name, {}) for name in self.get_providers()}

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which nodes have kernels on which provider; `explain` says more."""
        found: dict[str, list[OrtEpAssignedNode]] = {}
        for node in self.explain()["nodes"]:
            if node["place"]:
                domain, _, op = operator_of(node["node"]).rpartition(".")
                name = node["node"].partition('"')[2].rpartition('"')[0]
                found.setdefault(node["place"], []).append(OrtEpAssignedNode(name, domain, op))
        return [OrtEpAssignedSubgraph(their_names([place])[0], nodes) for place, nodes in found.items()]

    def memory(self) -> MemoryReport:
        """Weights, peak, reuse and fragmentation, in all and by provider, and the memory of GPU tensors."""
        return self._native.memory()

    def metrics(self) -> Mapping[str, Any]:
        """What the session has counted since it was created (docs/watching.md): a dict of "runs", "failed", "stopped",
        "recovered", "waiting", "milliseconds", "compiled", "plans" and "bytes"."""
        return self._native.metrics()

    def explain(self) -> dict[str, Any]:
        """For each node of the model: its provider, its kernels, the nodes fused with it (docs/explain.md)."""
        return self._native.explain()

    def listing(self, input_feed: Mapping[str, Any] | None = None, node: str = "", code: bool = False) -> str:
        """The kernels of the model as text: what they compute, their loops, with `code` also their WebAssembly or WGSL
        (docs/schedules.md). node: selects kernels by a node's name, operator or label; input_feed: for a model that is
        compiled for feeds."""
        return self._native.listing(input_feed, node, code)

    def profile(self, input_feed: Mapping[str, Any], *, repeat: int = 1) -> list[Timing]:
        """Run once, each kernel on its own. Returns their times in the order they ran. repeat: how often each kernel on
        the GPU runs, one after the other; its time is the mean. Errors: InvalidInput for a `repeat` below 1"""
        return self._native.profile(input_feed, repeat)

    def advise(self, input_feed: Mapping[str, Any]) -> list[str]:
        """Measure some runs and this machine's limits, and say in sentences what is far from these limits, what left
        the GPU and why, and what to change (docs/watching.md#advice). Errors: InvalidInput for a Program that was
        compiled before."""
        from pyruntime.native.tools.advising import advise  # few sessions ask

        return advise(self._native, input_feed)

    @overload
    def verify(
        self, input_feed: Mapping[str, Any], tolerance: float = ..., *, ranges: Literal[False] = ...
    ) -> Verdict: ...
    @overload
    def verify(
        self, input_feed: Mapping[str, Any], tolerance: float = ..., *, ranges: Literal[True]
    ) -> RangeVerdict: ...
    def verify(
        self, input_feed: Mapping[str, Any], tolerance: float = 1e-3, *, ranges: bool = False
    ) -> Verdict | RangeVerdict:
        """Run the model on the GPU and on WebAssembly and name the first kernel whose results differ by more than
        `tolerance`, a share of the tensor's largest value, and the first that is not finite on the GPU alone.

        ranges: instead, run a half-float model in float32 on WebAssembly and name the first node whose magnitudes pass
        65504, the largest half float
        Errors: InvalidInput for a session without the GPU, or for `ranges` without half floats
        """
        return self._native.check_ranges(input_feed) if ranges else self._native.verify(input_feed, tolerance)

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Compile the model again for these providers. Errors: InvalidInput for a Program that was compiled before."""
        given = choose(providers, provider_options)
        self._native.set_providers(list(given.items()))
        self._provider_options, self._names_providers = given, True
        for text in options_without_effect(given):
            self._messages.warn_once(text)

    def disable_fallback(self) -> None:
        """Let work fail if the GPU fails. Otherwise the session repeats it, if need be on the next provider, for the
        nodes at fault or for all (docs/design/sessions.md#recovery)."""
        self._has_fallback = False
        self._native.set_fallback(False)

    def enable_fallback(self) -> None:
        self._has_fallback = True
        self._native.set_fallback(True)

    def tune(self, input_feed: Mapping[str, Any], seconds: float = 2.0) -> Tuned:
        """Measure other schedules of the kernels for these feeds, for `seconds` each, and continue with the fastest;
        other runs wait meanwhile. `SessionOptions(choices=….choices)` gives later sessions of the model, and the
        Programs that they export, the same schedules. Errors: InvalidInput for a Program that was compiled before."""
        from pyruntime.native.tools.tuning import tune  # few sessions are tuned

        return tune(self._native, input_feed, seconds)

    def export(
        self, weights: bool = False, *, relaxed: bool = False, providers: Sequence[str] | None = None,
        assume: Sequence[str] = (),
    ) -> bytes:  # fmt: skip
        """The Program as a file that `InferenceSession` opens without compiling, on any host.

        weights: put the weights into it, too; otherwise it reads them from the model's file in the same folder
        relaxed: let kernels use relaxed SIMD, which is faster, but which Node.js 20 and some browsers lack
        providers: by default the session's. With "webgpu", the file has shaders for the GPU; with "wasm" as well, it
            also has a Program for hosts whose GPU lacks what the shaders need. This host needs no GPU
        assume: what shaders may use beyond what every WebGPU adapter has: "f16", "subgroups", "dot4" (WGSL's
            packed_4x8_integer_dot_product), "storage_buffers=N", "binding_bytes=N", "shared_bytes=N"; and "software",
            for adapters that compute on the CPU
        """
        return self._native.export(weights, relaxed, providers, assume)

    def prepare(self, dims: Mapping[str, int | Sequence[int]]) -> None:
        """Run once on zeros of these sizes, the largest that will occur: later runs of these and smaller sizes find
        memory and addresses, until `trim`. dims: sizes by the name of a dim, or of all dims by the name of an input.
        Errors: InvalidInput for a dim without a size"""
        self._native.prepare(dims)

    def trim(self) -> None:
        """Free memory that larger runs took. A memory cannot shrink in place, so each Program whose memory has grown
        gets a new memory with its constants."""
        self._native.trim()

    def release(self) -> None:
        """Free all memory now, after the runs under way. Later work raises SessionFailed. Garbage collection frees it,
        too."""
        self._native.release()

    # ── copies in this and other processes (docs/use/processes.md) ───────────────────────────────────────────────

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: what the session was opened with, and attributes that others have set. Processes of
        this machine map its weights from now on. Errors: SessionFailed for a session that is released"""
        if self.state == SessionState.RELEASED:
            raise SessionFailed("this session is released", hint="create another")
        self._native.share_weights()
        others = {name: x for name, x in self.__dict__.items() if name not in _OWN}
        return {
            "model": bytes(self._model) if isinstance(self._model, (bytearray, memoryview)) else self._model,
            "options": travelling(self.options, self._paths), "providers": self._named_providers,
            "fallback": self._has_fallback, "attributes": others,
        }  # fmt: skip

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        InferenceSession.__init__(
            self, state["model"], state["options"], state["providers"], enable_fallback=state["fallback"]
        )
        self.__dict__.update(state["attributes"])

    @property
    def _named_providers(self) -> list[Any] | None:
        return [*self._provider_options.items()] if self._names_providers else None

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None, *, preferred_output_location: str | Mapping[str, str] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The outputs (all if `output_names` is None) as NumPy arrays, lists for sequences, dicts for maps, None for
        empty optionals, GpuTensors where the preferred location (here or in the options) is "gpu-buffer" and the
        session has a GPU.

        Feeds are arrays, lists of numbers, OrtValues or GpuTensors. Thread-safe; runs on the CPU execute concurrently.
        Errors: InvalidInput for a feed with a wrong name, type, rank or dim, before anything runs; Terminated if
        `run_options` request it. The session stays usable."""
        return self._run(output_names, input_feed, run_options, preferred_output_location)

    def _run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None,
        location: str | Mapping[str, str] | None = None, resident: Collection[str] = (),
    ) -> list[Any]:  # fmt: skip
        check_run_options(run_options)
        feeds: Any = input_feed
        if isinstance(feeds, Mapping):
            feeds = {name: x.value if isinstance(x, OrtValue) else x for name, x in feeds.items()}
        start = time.perf_counter()
        messages = self._messages
        try:
            with self._event("model_run"):
                results = self._native.run(
                    output_names, feeds, run_options, preferred_output_location=location, resident=resident
                )
        except PyRuntimeError as error:
            messages.log(logs.ERROR if not isinstance(error, InvalidInput) else logs.INFO, str(error), run_options)
            raise
        if run_options is not None:
            for text in run_options.without_effect():
                messages.warn_once(text, run_options)
            if run_options.shrinks:
                self.trim()
        if messages.least(run_options) == logs.VERBOSE:
            messages.log(logs.VERBOSE, f"run in {1e3 * (time.perf_counter() - start):.3f} ms", run_options)
        return results

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:  # fmt: skip
        """`run` with OrtValues in and out. Outputs that later runs can extend in place, such as the KV caches of a
        decoder, are copied only when the program reads them, or before a run overwrites them."""
        resident = self._native.feeds.output_names
        results = self._run(output_names, input_dict_ort_values, run_options, resident=resident)
        return [OrtValue(result) for result in results]

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on the bound inputs; `iobinding.get_outputs()` has the results."""
        if not isinstance(iobinding, IOBinding) or iobinding.session is not self:
            raise InvalidInput("this binding belongs to another session", hint="session.io_binding() makes one")
        places = iobinding.locations
        if not places:
            raise InvalidInput("no output is bound", hint="bind_output(name)")
        with iobinding.replacing():
            results = self._run([*places], iobinding.inputs, run_options, places, iobinding.unbound)
        iobinding.store([OrtValue(result) for result in results])

    def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any], user_data: Any = None, run_options: RunOptions | None = None,
    ) -> None:  # fmt: skip
        """Run on another thread, which then calls `callback(results, user_data, error)`. Either the results or the text
        of the error are empty."""
        if not callable(callback):
            raise InvalidInput(f"the callback is no function: {callback!r}")

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except PyRuntimeError as e:
                results, error = [], str(e)
            callback(results, user_data, error)

        threading.Thread(target=work, name="pyruntime run_async", daemon=True).start()

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # ── profiling ────────────────────────────────────────────────────────────────────────────────────────────────

    def end_profiling(self) -> str:
        """Write the trace. Returns its path, or "" if `enable_profiling` is not set or the trace is already written."""
        trace, self._trace, self._native.on_kernels = self._trace, None, None
        return trace.write() if trace is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """The start of the trace, by `time.monotonic_ns()`; 0 without a trace."""
        return self._trace.start_ns if self._trace is not None else 0

    def _event(self, name: str) -> AbstractContextManager[None]:
        return self._trace.event(name) if self._trace is not None else _NOTHING


_OWN = {
    "options", "_sess_options", "_trace", "_messages", "_names_providers", "_provider_options", "_native", "_model",
    "_has_fallback", "_model_path", "_paths",
}  # fmt: skip


def _read(options: SessionOptions, model: Any) -> Graph:
    """The graph of a model file. The options may replace external data, dims by their meaning, and initializers."""
    external = beside(Path(options.external_folder) / "model") if options.external_folder else None
    if options.initializer_files:
        files = options.initializer_files
        folder = beside(model) if isinstance(model, (str, os.PathLike)) else None
        other = external or folder

        def open_external(name: str) -> Any:
            return MemorySource(files[name], name) if name in files or other is None else other(name)

        external = open_external
    graph = load(model, open_external=external).with_meanings(options.denoted_dimensions)
    return with_initializers(graph, options.initializers)


@dataclass(frozen=True)
class OrtEpAssignedNode:
    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    ep_name: str
    nodes: list[OrtEpAssignedNode]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        return self.nodes
