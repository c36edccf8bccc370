"""Where the names of onnxruntime's modules are."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

BY_MODULE = {
    "adapters": "AdapterFormat",
    "devices": "OrtArenaCfg OrtDevice OrtEpDevice OrtHardwareDevice OrtMemoryInfo get_ep_devices",
    "enums": """ExecutionMode ExecutionOrder GraphOptimizationLevel OrtAllocatorType OrtCompileApiFlags
        OrtDeviceMemoryType OrtDeviceVendorId OrtExecutionProviderDevicePolicy OrtHardwareDeviceType OrtMemType
        OrtMemoryInfoDeviceType OrtSparseFormat""",
    "io_binding": "IOBinding SessionIOBinding",
    "logs": "set_default_logger_severity set_default_logger_verbosity",
    "model_metadata": "ModelMetadata",
    "options": "SessionOptions",
    "ort_value": "OrtValue OrtValueVector copy_tensors",
    "process": """create_and_register_allocator create_and_register_allocator_v2 disable_telemetry_events
        enable_telemetry_events get_build_info get_default_session_options get_version_string has_collective_ops
        preload_dlls print_debug_info set_global_thread_pool_sizes set_seed""",
    "providers": "get_all_providers get_available_providers get_device",
    "sparse_tensor": "SparseTensor",
    "session": "InferenceSession OrtEpAssignedNode OrtEpAssignedSubgraph",
}


def named(modules: Iterable[str]) -> dict[str, Any]:
    """The names of these modules of `pyruntime.api`, which are imported."""
    return {
        name: getattr(import_module(f"pyruntime.api.{module}"), name)
        for module in modules
        for name in BY_MODULE[module].split()
    }
