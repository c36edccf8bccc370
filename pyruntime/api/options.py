"""`SessionOptions` with every field and method of onnxruntime's. docs/compatibility.md lists those without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyruntime import options
from pyruntime.api.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtExecutionProviderDevicePolicy,
)
from pyruntime.api.providers import CPU, WEBGPU
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, NotSupported
from pyruntime.onnx.sources import flat
from pyruntime.options import SESSION_ENTRIES, absolute, instance, option, own

if TYPE_CHECKING:
    from pyruntime.api.ort_value import OrtValue

_FOLDER = "session.model_external_initializers_file_folder_path"

PLANNED = "each session plans its memory"
FLAG = instance(int, "True or False")
NUMBER = instance(int, "an integer")
TEXT = instance(str, "a text")


def _is_off(value: Any) -> bool:
    return not value


@checks_arguments("__init__")
@dataclass(slots=True)
class SessionOptions(options.SessionOptions):
    """Options of a session. Setting an attribute of another name is an error. Values are checked when a session is
    created with them."""

    graph_optimization_level: str = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = option(
        ExecutionMode.ORT_SEQUENTIAL, instance(ExecutionMode, "an ExecutionMode"),
        no_effect="kernels run one after the other, each on all threads",
        warns=lambda mode: mode is ExecutionMode.ORT_PARALLEL,
    )  # fmt: skip
    execution_order: ExecutionOrder = option(
        ExecutionOrder.DEFAULT, instance(ExecutionOrder, "an ExecutionOrder"),
        no_effect="nodes run in the order of the file, which is sorted if a node comes before its inputs",
        warns=lambda order: order is not ExecutionOrder.DEFAULT,
    )  # fmt: skip
    inter_op_num_threads: int = option(
        0, NUMBER, no_effect="kernels run one after the other, each on all threads", warns=lambda threads: threads > 1
    )  # fmt: skip
    enable_cpu_mem_arena: bool = option(True, FLAG, no_effect=PLANNED, warns=_is_off)
    enable_mem_pattern: bool = option(True, FLAG, no_effect=PLANNED, warns=_is_off)
    enable_mem_reuse: bool = option(True, FLAG, no_effect=PLANNED, warns=_is_off)
    use_deterministic_compute: bool = option(
        False, FLAG, no_effect="runs always give the same bits", warns=lambda value: False
    )  # fmt: skip
    use_per_session_threads: bool = option(
        True, FLAG, no_effect="each session has threads of its own", warns=_is_off
    )  # fmt: skip
    enable_profiling: bool = option(False, FLAG)
    profile_file_prefix: str = option("onnxruntime_profile_", TEXT)
    optimized_model_filepath: str = option("", TEXT)
    logid: str = option("", TEXT)
    log_severity_level: int = option(-1, NUMBER)
    log_verbosity_level: int = option(0, NUMBER, no_effect="verbose messages have no levels")
    denoted_dimensions: dict[str, int] = field(default_factory=dict)
    initializers: dict[str, OrtValue] = field(default_factory=dict)
    initializer_files: dict[str, Any] = field(default_factory=dict)
    providers: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    # ── dims ──

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Set the size of input dims that have this meaning in the model ("DATA_BATCH", …)."""
        self.denoted_dimensions[denotation] = size

    # ── entries ──

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Errors: InvalidInput for a key or value that is not a text, NotSupported for an entry of another engine."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(f"key and value of an entry must be texts, not {key!r} and {value!r}")
        refused = SESSION_ENTRIES[key].refused if key in SESSION_ENTRIES else ""
        if refused and value not in ("", "0"):
            raise NotSupported(f'the entry "{key}" is not supported', hint=refused)
        self.extra[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Errors: InvalidInput for a key that was not added."""
        if key not in self.extra:
            raise InvalidInput(f'SessionOptions has no config entry "{key}"')
        return str(self.extra[key])

    @property
    def external_folder(self) -> str:
        """The folder of the external data of models that are bytes; "" if there is no such entry."""
        return str(self.extra.get(_FOLDER, ""))

    @external_folder.setter
    def external_folder(self, folder: str) -> None:
        self.add_session_config_entry(_FOLDER, folder)

    # ── weights ──

    def add_initializer(self, name: str, ort_value: Any) -> None:
        """Replace the elements of an initializer. Errors: InvalidInput for a value that is not a tensor."""
        is_tensor = hasattr(ort_value, "is_tensor") and ort_value.is_tensor()
        if not is_tensor or ort_value.data_type() == "tensor(string)":
            raise InvalidInput(f'initializer "{name}" must be an OrtValue with a tensor of numbers')
        self.initializers[str(name)] = ort_value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Replace the elements of initializers that the model stores in files beside it."""
        if len(names) != len(values):
            raise InvalidInput(f"{len(names)} names do not fit {len(values)} values")
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """The contents of files in which the model stores initializers, by their names in the model."""
        if not len(names) == len(buffers) == len(lengths):
            raise InvalidInput(f"{len(names)} names, {len(buffers)} buffers and {len(lengths)} lengths do not fit")
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            self.initializer_files[str(name)] = flat(buffer)[:length]

    # ── providers ──

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Add a provider for sessions whose constructor gets no providers."""
        self.providers.append((name, {str(key): str(value) for key, value in options.items()}))

    def add_provider_for_devices(self, ep_devices: Sequence[Any], options: Mapping[str, str]) -> None:
        for name in dict.fromkeys(device.ep_name for device in ep_devices):
            self.add_provider(name, options)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Use the GPU and the CPU for PREFER_GPU and MAX_PERFORMANCE, else only the CPU."""
        kind = OrtExecutionProviderDevicePolicy
        names = [WEBGPU, CPU] if policy in (kind.PREFER_GPU, kind.MAX_PERFORMANCE) else [CPU]
        self.providers[:] = [(name, {}) for name in names]

    def has_providers(self) -> bool:
        return bool(self.providers)

    # ── not supported ──

    def register_custom_ops_library(self, path: str) -> None:
        hint = "write them in Python: pyruntime.op, pyruntime.elementwise"
        raise NotSupported(f'a library of operators ("{path}") is machine code for another runtime', hint=hint)

    def set_provider_selection_policy_delegate(self, delegate: Any) -> None:
        raise NotSupported("no function chooses providers here", hint="name them: add_provider, or providers=")

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        if cancel:
            raise NotSupported("a flag cannot cancel the opening of a session", hint="Ctrl-C does")

    def set_ep_context_data_read_func(self, function: Any) -> None:
        raise NotSupported("providers have no contexts in models", hint="session.export() writes Programs")

    def clear_ep_context_data_read_func(self) -> None:
        """Does nothing: there is no such function."""


def check(options: SessionOptions) -> None:
    """Errors: NotSupported for an option that this engine cannot honour. The session checks the values."""
    if options.optimized_model_filepath and (options.initializers or options.initializer_files):
        raise NotSupported("the option optimized_model_filepath does not write initializers that are replaced")


def paths_of(options: SessionOptions) -> dict[str, Any]:
    """The options with paths, from the root: the current folder of a process may change."""
    folder = options.external_folder
    adapters = {name: absolute(x) for name, x in options.adapters.items()}
    return {"adapters": adapters, **({"external_folder": absolute(folder)} if folder else {})}


def travelling(options: SessionOptions, paths: Mapping[str, Any]) -> SessionOptions:
    """The options for another process. It writes no optimised model again. paths: from `paths_of` when the session was
    opened"""
    found = own(options)
    found.optimized_model_filepath = ""
    found.initializer_files = {name: bytes(x) for name, x in options.initializer_files.items()}
    for name, value in paths.items():
        setattr(found, name, value)
    return found
