"""What onnxruntime's `InferenceSession` has besides: made of its other methods, or without effect. The session in
Pyodide has it, too, so this needs no NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.api.devices import CPU_MEMORY, OrtEpDevice, OrtMemoryInfo, get_ep_devices
from pyruntime.api.model_metadata import ModelMetadata
from pyruntime.api.providers import CPU
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, NotSupported
from pyruntime.frontend.feed_checks import NodeArg


@checks_arguments()
class SessionRest:
    """For subclasses with `get_inputs`, `get_outputs`, `get_modelmeta` and `run_with_ort_values`."""

    get_inputs: Any
    get_outputs: Any
    get_modelmeta: Any
    run_with_ort_values: Any

    @property
    def metadata(self) -> ModelMetadata:
        """`get_modelmeta()`, under the name that it has in JavaScript."""
        return self.get_modelmeta()

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where inputs are expected: in the process's memory."""
        return [CPU_MEMORY for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        return [CPU_MEMORY for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        (cpu,) = [device for device in get_ep_devices() if device.ep_name == CPU]
        return [cpu for _ in self.get_inputs()]

    def run_with_ortvaluevector(
        self, run_options: Any, feed_names: Sequence[str], feeds: Sequence[Any],
        fetch_names: Sequence[str], fetches: list[Any], fetch_devices: Sequence[Any],
    ) -> None:  # fmt: skip
        """Run on values in the order of their names; `fetches` becomes the list of results."""
        if len(feed_names) != len(feeds):
            raise InvalidInput(f"{len(feed_names)} names do not fit {len(feeds)} values")
        given = dict(zip(feed_names, feeds, strict=True))
        fetches[:] = self.run_with_ort_values(list(fetch_names), given, run_options)

    # ── private names of onnxruntime's that published programs read ──────────────────────────────────────────────

    @property
    def _sess(self) -> Any:
        return self

    @property
    def _inputs_meta(self) -> list[NodeArg]:
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> list[NodeArg]:
        return self.get_outputs()

    # ── without effect ─────────────────────────────────────────────────────────────────────────────────

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing: no graph is captured."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        raise NotSupported("providers have no options that change while a session lives")

    def get_tuning_results(self) -> list[Any]:
        """Always empty: tuning results are `tune(…).choices`."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        if results:
            raise NotSupported("kernels are not tuned by results of another runtime")
