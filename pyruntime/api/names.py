"""All names of onnxruntime's modules: those that work, those that are refused, and the exceptions."""

from __future__ import annotations

from typing import Any

from pyruntime import ort_errors
from pyruntime.api import (
    adapters,
    devices,
    enums,
    io_binding,
    logs,
    model_metadata,
    options,
    ort_value,
    process,
    providers,
    refused,
    session,
    sparse_tensor,
)  # fmt: skip
from pyruntime.frontend.feed_checks import NodeArg
from pyruntime.session.run_options import RunOptions
from pyruntime.training.adapters.lora_adapter import LoraAdapter

_BY_MODULE: dict[Any, str] = {
    adapters: "AdapterFormat",
    devices: "OrtArenaCfg OrtDevice OrtEpDevice OrtHardwareDevice OrtMemoryInfo get_ep_devices",
    enums: """ExecutionMode ExecutionOrder GraphOptimizationLevel OrtAllocatorType OrtCompileApiFlags
        OrtDeviceMemoryType OrtDeviceVendorId OrtExecutionProviderDevicePolicy OrtHardwareDeviceType OrtMemType
        OrtMemoryInfoDeviceType OrtSparseFormat""",
    io_binding: "IOBinding SessionIOBinding",
    logs: "set_default_logger_severity set_default_logger_verbosity",
    model_metadata: "ModelMetadata",
    options: "SessionOptions",
    ort_value: "OrtValue OrtValueVector copy_tensors",
    process: """create_and_register_allocator create_and_register_allocator_v2 disable_telemetry_events
        enable_telemetry_events get_build_info get_default_session_options get_version_string has_collective_ops
        preload_dlls print_debug_info set_global_thread_pool_sizes set_seed""",
    providers: "get_all_providers get_available_providers get_device",
    sparse_tensor: "SparseTensor",
    session: "InferenceSession OrtEpAssignedNode OrtEpAssignedSubgraph",
}

NAMES: dict[str, Any] = {name: getattr(module, name) for module, names in _BY_MODULE.items() for name in names.split()}
NAMES |= {"NodeArg": NodeArg, "LoraAdapter": LoraAdapter, "RunOptions": RunOptions, **refused.NAMES}
ERRORS: dict[str, Any] = {name: getattr(ort_errors, name) for name in ort_errors.__all__}

__all__ = ["ERRORS", "NAMES"]  # the documentation site reads it
