"""onnxruntime's `InferenceSession` on a native session."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyruntime.api import logs
from pyruntime.api.devices import CPU_MEMORY, OrtEpDevice, OrtMemoryInfo, get_ep_devices
from pyruntime.api.initializers import with_initializers
from pyruntime.api.io_binding import IOBinding
from pyruntime.api.model_metadata import ModelMetadata, metadata_of
from pyruntime.api.options import SessionOptions, check
from pyruntime.api.ort_value import OrtValue
from pyruntime.api.providers import CPU, asked, their_names
from pyruntime.api.trace import Trace
from pyruntime.errors import InvalidInput, NotSupported, PyRuntimeError
from pyruntime.native.execution.timing import timed, timings
from pyruntime.native.sessions.options import RunOptions
from pyruntime.native.sessions.session import Session
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, operator_of
from pyruntime.onnx.sources import MemorySource, beside
from pyruntime.placement.provider_list import effective

if TYPE_CHECKING:
    from pyruntime.frontend.feed_checks import NodeArg
    from pyruntime.native.tools.tuning import Tuned

T = TypeVar("T")

_NOTHING = nullcontext()


class InferenceSession(Session):
    """A model ready to run.

    path_or_bytes: an ONNX model (or anything `pyruntime.onnx.load` takes), or a Program that `export` wrote
    providers: names in order of preference, onnxruntime's or ours ("webgpu", "wasm"), or pairs of a name and options;
        those that are not here are left out with a warning; without any the model runs on the CPU
    Errors: InvalidModel, UnsupportedOp, ShapeError name the node at fault; InvalidInput, NotSupported the argument.
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
        options = sess_options or SessionOptions()
        check(options)
        self._fallback = bool(int(kwargs.pop("enable_fallback", 1)))
        left_out = kwargs.pop("disabled_optimizers", None) or ()
        kwargs.pop("read_config_from_model", None)  # no model brings options here
        if kwargs:
            raise InvalidInput(f"InferenceSession has no argument {', '.join(map(repr, kwargs))}")
        if left_out:
            raise NotSupported(f"passes {sorted(left_out)} are not known here", hint="SessionOptions.disabled_passes")
        self._trace = Trace(options.profile_file_prefix) if options.enable_profiling else None
        if providers is None and options.has_providers():
            providers = options.providers
        names, self._provider_options = asked(providers, provider_options)
        start = time.perf_counter()
        with self._event("session_initialization"):
            super().__init__(path_or_bytes, options, names)
        self._model_path = self._model or None  # programs read it, and set it
        took = f"{1e3 * (time.perf_counter() - start):.0f} ms"
        self._log(logs.INFO, f'session for "{self._graph.name}" on {", ".join(self.get_providers())}, made in {took}')

    def _read(self, model: Any) -> Graph:
        options = self.get_session_options()
        external = beside(Path(options.external_folder) / "model") if options.external_folder else None
        if options.initializer_files:
            files = options.initializer_files
            folder = beside(model) if isinstance(model, (str, os.PathLike)) else None
            other = external or folder

            def open_external(name: str) -> Any:
                return MemorySource(files[name], name) if name in files or other is None else other(name)

            external = open_external
        graph = load(model, open_external=external).with_meanings(options.denoted_dimensions)
        return with_initializers(self._as_asked(graph), options.initializers)

    # ── description ──────────────────────────────────────────────────────────────────────────────────────────────

    def get_modelmeta(self) -> ModelMetadata:
        """Who made the model, and what they wrote into it."""
        return metadata_of(self._graph)

    def get_providers(self) -> list[str]:
        """In onnxruntime's names; the CPU is last, as it takes what no other does."""
        return their_names(effective(self._providers))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """What was given for each provider. Options have no effect."""
        given = dict(zip(their_names([*self._provider_options]), self._provider_options.values(), strict=False))
        return {name: given.get(name, {}) for name in self.get_providers()}

    def get_session_options(self) -> SessionOptions:
        assert isinstance(self.options, SessionOptions)  # as __init__ has checked
        return self.options

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where inputs are expected: feeds lie in the process's memory."""
        return [CPU_MEMORY for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        return [CPU_MEMORY for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        (cpu,) = [device for device in get_ep_devices() if device.ep_name == CPU]
        return [cpu for _ in self.get_inputs()]

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which nodes have kernels on which provider; `explain` tells more."""
        found: dict[str, list[OrtEpAssignedNode]] = {}
        for node in self.explain()["nodes"]:
            if node["place"]:
                domain, _, op = operator_of(node["node"]).rpartition(".")
                name = node["node"].partition('"')[2].rpartition('"')[0]
                found.setdefault(node["place"], []).append(OrtEpAssignedNode(name, domain, op))
        return [OrtEpAssignedSubgraph(their_names([place])[0], nodes) for place, nodes in found.items()]

    # ── providers ────────────────────────────────────────────────────────────────────────────────────────────────

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Compile the model again for these. Errors: InvalidInput for a Program that was compiled before."""
        names, given = asked(providers, provider_options)
        self._turns.alone(lambda: self._change_providers(names))
        self._provider_options = given

    def disable_fallback(self) -> None:
        """Let runs fail where the GPU does; otherwise the session tries again, at last on WebAssembly."""
        self._fallback = False

    def enable_fallback(self) -> None:
        self._fallback = True

    def _surviving(self, work: Callable[[], T], feeds: Mapping[str, Any] | None = None) -> T:
        return super()._surviving(work, feeds) if self._fallback else work()

    # ── tuning ───────────────────────────────────────────────────────────────────────────────────────────────────

    def tune(self, input_feed: Mapping[str, Any], seconds: float = 2.0) -> Tuned:
        """Measure other schedules of the kernels for these feeds, some `seconds` each, and go on with the fastest;
        meanwhile no other run is under way. `SessionOptions(choices=….choices)` makes later sessions of the model so,
        and Programs that they export. Errors: InvalidInput for a Program that was compiled before."""
        from pyruntime.native.tools.tuning import tune  # few sessions are

        return tune(self, input_feed, seconds)

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None, *, preferred_output_location: str | Mapping[str, str] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The outputs (all if `output_names` is None) as NumPy arrays, lists for sequences, dicts for maps, None for
        empty optionals, GpuTensors where the preferred location (here or in the options) is "gpu-buffer" and the
        session has a GPU.

        Feeds are arrays, lists of numbers, OrtValues or GpuTensors. Thread-safe, and side by side on the CPU. Errors:
        InvalidInput for a feed with a wrong name, type, rank or dim, before anything runs; Terminated if `run_options`
        say so. The session stays usable."""
        return self._results(output_names, input_feed, run_options, preferred_output_location)

    def _results(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None,
        location: str | Mapping[str, str] | None = None, hold: Collection[str] = (),
    ) -> list[Any]:  # fmt: skip
        feeds: Any = input_feed
        if isinstance(feeds, Mapping):
            feeds = {name: x.value if isinstance(x, OrtValue) else x for name, x in feeds.items()}
        start = time.perf_counter()
        try:
            with self._event("model_run"):
                results = super()._results(output_names, feeds, run_options, location, hold)
        except PyRuntimeError as error:
            self._log(logs.ERROR if not isinstance(error, InvalidInput) else logs.INFO, str(error), run_options)
            raise
        if self._least(run_options) == logs.VERBOSE:
            self._log(logs.VERBOSE, f"run in {1e3 * (time.perf_counter() - start):.3f} ms", run_options)
        return results

    @property
    def _side_by_side(self) -> bool:
        return self._trace is None and super()._side_by_side

    def _attempt(self, feeds: Mapping[str, Any], *asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if self._trace is None:
            return super()._attempt(feeds, *asked)
        with timed(self._program(feeds)) as found:
            results = super()._attempt(feeds, *asked)
        self._trace.kernels(timings(found), self.get_providers()[0])
        return results

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:  # fmt: skip
        """The same with OrtValues in and out. Those that later runs may be fed to make them longer, as the caches of a
        decoder, are only copied if somebody looks at them, or a run is about to write over them."""
        hold = self._feeds.output_names
        results = self._results(output_names, input_dict_ort_values, run_options, hold=hold)
        return [OrtValue(result) for result in results]

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run on what is bound; `iobinding.get_outputs()` has the results."""
        if not isinstance(iobinding, IOBinding) or iobinding.session is not self:
            raise InvalidInput("this binding is of another session", hint="session.io_binding() makes one")
        places = iobinding.locations
        if not places:
            raise InvalidInput("no output is bound", hint="bind_output(name)")
        with iobinding.replacing():
            results = self._results([*places], iobinding.inputs, run_options, places, iobinding.unbound)
        iobinding.keep([OrtValue(result) for result in results])

    def run_with_ortvaluevector(
        self, run_options: RunOptions | None, feed_names: Sequence[str], feeds: Sequence[OrtValue],
        fetch_names: Sequence[str], fetches: list[OrtValue], fetch_devices: Sequence[Any],
    ) -> None:  # fmt: skip
        """Run on values in the order of their names; `fetches` becomes the list of results."""
        if len(feed_names) != len(feeds):
            raise InvalidInput(f"{len(feed_names)} names do not fit {len(feeds)} values")
        given = dict(zip(feed_names, feeds, strict=True))
        fetches[:] = self.run_with_ort_values(list(fetch_names), given, run_options)

    def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any], user_data: Any = None, run_options: RunOptions | None = None,
    ) -> None:  # fmt: skip
        """Run on another thread, which then calls `callback(results, user_data, error)`: of results and error's text
        one is empty."""
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

    # ── profiling, messages ──────────────────────────────────────────────────────────────────────────────────────

    def end_profiling(self) -> str:
        """Write the trace; its path, or "" if `enable_profiling` was not set or the trace is written already."""
        trace, self._trace = self._trace, None
        return trace.write() if trace is not None else ""

    def get_profiling_start_time_ns(self) -> int:
        """When the trace begins, by `time.monotonic_ns()`; 0 without one."""
        return self._trace.start_ns if self._trace is not None else 0

    def _event(self, name: str) -> Any:
        return self._trace.event(name) if self._trace is not None else _NOTHING

    def _log(self, severity: int, message: str, run: RunOptions | None = None) -> None:
        logid = run.logid if run is not None and run.logid else self.get_session_options().logid
        logs.log(severity, message, least=self._least(run), logid=logid)

    def _least(self, run: RunOptions | None) -> int:
        """The least severity of messages that are told."""
        own = self.get_session_options().log_severity_level
        return logs.least(own if run is None or run.log_severity_level < 0 else run.log_severity_level)

    def _remark(self, text: str) -> None:
        self._log(logs.WARNING, text)

    # ── private names of onnxruntime's that published programs read ──────────────────────────────────────────────

    @property
    def _sess(self) -> InferenceSession:
        return self

    @property
    def _inputs_meta(self) -> list[NodeArg]:
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> list[NodeArg]:
        return self.get_outputs()

    # ── what has no meaning here ─────────────────────────────────────────────────────────────────────────────────

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing: no graph is captured."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        raise NotSupported("providers have no options that change while a session lives")

    def get_tuning_results(self) -> list[Any]:
        """Always empty: nothing is tuned."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        if results:
            raise NotSupported("kernels are not tuned by results of another runtime")


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


__all__ = ["InferenceSession", "OrtEpAssignedNode", "OrtEpAssignedSubgraph"]
