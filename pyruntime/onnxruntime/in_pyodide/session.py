"""onnxruntime's `InferenceSession` on the session for Pyodide."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyruntime import options as own_options
from pyruntime.api import logs
from pyruntime.api.model_metadata import ModelMetadata, metadata_of
from pyruntime.api.options import SessionOptions, check
from pyruntime.api.providers import choose, options_without_effect, their_names
from pyruntime.api.session_rest import SessionRest
from pyruntime.errors import InvalidInput, NotSupported, PyRuntimeError, Terminated
from pyruntime.frontend.feed_checks import NodeArg, arguments
from pyruntime.onnxruntime.in_pyodide.values import IOBinding, OrtValue
from pyruntime.options import PYODIDE, declared, without_effect
from pyruntime.pyodide import session
from pyruntime.session.run_options import RunOptions, check_run_options


class InferenceSession(SessionRest, session.InferenceSession):
    """A model ready to run, with onnxruntime's methods.

    Options that only the desktop has (threads, profiling) have no effect, and give a warning.
    Feeds may be OrtValues, too; outputs are NumPy's arrays if NumPy is installed."""

    def __init__(
        self, path_or_bytes: Any, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        self._sess_options = given = own_options.own(sess_options or SessionOptions())
        check(given)
        if given.initializers or given.initializer_files:
            raise NotSupported("in Pyodide initializers cannot be replaced", hint="replace them in the model")
        self._provider_options = choose(providers, provider_options)
        for text in (*without_effect(given), *options_without_effect(self._provider_options)):
            _warn(given, text)
        super().__init__(path_or_bytes, _for_pyodide(given), [*self._provider_options.items()] if providers else None)
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None

    # ── description ──────────────────────────────────────────────────────────────────────────────────────────────

    def get_session_options(self) -> SessionOptions:
        return self._sess_options

    def get_overridable_initializers(self) -> list[NodeArg]:
        graph = self.programs.graph
        return arguments([v for v in graph.inputs if v.name in graph.weights])

    def get_modelmeta(self) -> ModelMetadata:
        return metadata_of(self.programs.graph)

    def get_providers(self) -> list[str]:
        return their_names([name for name in super().get_providers() if name != "CPUExecutionProvider"])

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        given = dict(zip(their_names([*self._provider_options]), self._provider_options.values(), strict=False))
        return {name: given.get(name, {}) for name in self.get_providers()}

    # ── without effect ───────────────────────────────────────────────────────────────────────────────────────────

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """The session goes on as it is. Errors: InvalidInput unless they are names"""
        self._provider_options = choose(providers, provider_options)

    def disable_fallback(self) -> None:
        """Does nothing: there is no provider to leave."""

    enable_fallback = disable_fallback

    def end_profiling(self) -> str:
        """Always "": no trace is written."""
        return ""

    def get_profiling_start_time_ns(self) -> int:
        return 0

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        feeds: Any = input_feed
        if isinstance(feeds, Mapping):
            feeds = {name: x.value if isinstance(x, OrtValue) else x for name, x in feeds.items()}
        results = super().run(output_names, feeds, _adapters_alone(run_options))
        if run_options is not None and run_options.shrinks:
            self.trim()
        return results

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: Any = None
    ) -> list[OrtValue]:
        return [OrtValue(x) for x in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        if not isinstance(iobinding, IOBinding) or iobinding.session is not self:
            raise InvalidInput("this binding belongs to another session", hint="session.io_binding() makes one")
        if not iobinding.outputs:
            raise InvalidInput("no output is bound", hint="bind_output(name)")
        iobinding.store(self.run_with_ort_values([*iobinding.outputs], iobinding.inputs, run_options))

    def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any], user_data: Any = None, run_options: Any = None,
    ) -> None:  # fmt: skip
        """Run now, because Pyodide has no threads, then call `callback(results, user_data, error)`."""
        results, error = [], ""
        try:
            results = self.run(output_names, input_feed, run_options)
        except PyRuntimeError as e:
            error = str(e)
        callback(results, user_data, error)


def _adapters_alone(given: RunOptions | None) -> RunOptions | None:
    """Other options have no effect in Pyodide. Errors: Terminated if they end the run"""
    check_run_options(given)
    if given is None:
        return None
    if given.terminate:
        raise Terminated("the run was stopped", hint="RunOptions.terminate is set")
    found = RunOptions()
    for adapter, weight in given.adapters:
        found.add_active_adapter(adapter, weight)
    return found


def _warn(options: SessionOptions, text: str) -> None:
    logs.warn_once(text, least=logs.least(options.log_severity_level), logid=options.logid)


def _for_pyodide(given: SessionOptions) -> own_options.SessionOptions:
    """The options that Pyodide has, with a warning for each other one that is set."""
    defaults, found = own_options.SessionOptions(), own_options.SessionOptions()
    for name, option in declared(own_options.SessionOptions).items():
        value, default = getattr(given, name), getattr(defaults, name)
        if PYODIDE in option.places:
            setattr(found, name, str(value) if option.kind.values and value is not None else value)
        elif value != default:
            _warn(given, f'the session option "{name}" has no effect in Pyodide')
    return found
