"""Opens the native GPU, or falls back to WebAssembly."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

from pyruntime.errors import DeviceLost, PyRuntimeError
from pyruntime.placement.provider_list import effective
from pyruntime.runtime.arena import GPU


def open_gpu(low_power: bool = False) -> Any:
    """Memory and pipelines on the process's device, for one Program. Errors: DeviceLost if there is no device:
    `no_adapter` found one before."""
    from pyruntime.providers.webgpu.adapter import NoAdapter
    from pyruntime.providers.webgpu.wgpu_host import GpuHost
    from pyruntime.providers.webgpu.wgpu_runner import GpuRunner

    try:
        return GpuRunner(GpuHost(low_power), GPU)
    except NoAdapter as e:
        raise DeviceLost(f"the GPU could not be opened: {e.message}") from None


def gpu_engine(gpu: Any, choices: Any) -> tuple[Any, Any]:
    """Return the provider of this device, and its code writer."""
    from pyruntime.providers.webgpu.code_writer import GpuProvider

    provider = GpuProvider(gpu.host.adapter)
    return provider, provider.code_writer(choices=choices)


def no_adapter(providers: Sequence[str], low_power: bool = False) -> list[str]:
    """The providers, without "webgpu" if the host has no adapter; warns once per process. Errors: NoAdapter if "webgpu"
    is the only one."""
    from pyruntime.providers.webgpu.adapter import NoAdapter

    if "webgpu" not in effective(providers):
        return list(providers)
    found: PyRuntimeError
    try:
        from pyruntime.providers.webgpu.wgpu_host import GpuHost

        GpuHost(low_power)
        return list(providers)
    except ImportError as e:
        missing = 'wgpu is not installed (pip install "pyruntime[native]")'
        found = NoAdapter(f"no WebGPU: {missing if e.name == 'wgpu' else e}")
    except NoAdapter as e:
        found = e
    if "wasm" not in providers:
        raise NoAdapter(found.message, hint='add the provider "wasm"')
    warn_once(f"{found.message}; sessions run on WebAssembly")
    return [p for p in providers if p != "webgpu"]


def warn(text: str) -> None:
    warnings.warn(f"pyruntime: {text}", RuntimeWarning, stacklevel=2)


warn_once = cache(warn)
