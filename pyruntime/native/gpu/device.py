"""Opens the native GPU, or falls back to WebAssembly."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from pyruntime.errors import DeviceLost, InvalidInput
from pyruntime.native.memory.budgets import growth
from pyruntime.placement.provider_list import effective, gpu_options
from pyruntime.runtime.arena import GPU

HINT = 'use it with providers=["webgpu"] or ("webgpu", {"allow_software": True})'


def adapter_choice(providers: Sequence[Any], saves_power: bool) -> Any:
    """The AdapterChoice of a session with these providers. saves_power: its preset prefers the adapter that saves
    power, if no device is open. Errors: InvalidInput if options contradict each other"""
    from pyruntime.providers.webgpu.adapter import AdapterChoice

    options = gpu_options(providers)
    name, power = options.get("adapter", ""), options.get("power_preference", "")
    if name and power:
        raise InvalidInput("adapter names a GPU, so power_preference cannot choose one", hint="give one of them")
    usual = "low-power" if saves_power else "high-performance"
    return AdapterChoice(name, power or usual, not (name or power))


def open_gpu(choice: Any, timeout: float) -> Any:
    """Memory and pipelines on the process's device of this AdapterChoice, for one Program. timeout: seconds to wait for
    the device. Errors: DeviceLost if there is no device: `usable` found one before."""
    from pyruntime.providers.webgpu.adapter import NoAdapter
    from pyruntime.providers.webgpu.wgpu_host import GpuHost
    from pyruntime.providers.webgpu.wgpu_runner import GpuRunner

    try:
        host = GpuHost(choice, timeout)
        host.own.growth = partial(growth, "gpu")
        return GpuRunner(host, GPU)
    except (NoAdapter, InvalidInput) as e:
        raise DeviceLost(f"the GPU could not be opened: {e.message}") from None


def gpu_engine(gpu: Any, choices: Any, refused: Mapping[str, str]) -> tuple[Any, Any]:
    """Return the provider of this device, and its code writer. refused: by node, why it does not run there"""
    from pyruntime.providers.webgpu.code_writer import GpuProvider

    provider = GpuProvider(gpu.host.adapter, refused)
    return provider, provider.code_writer(choices=choices)


def adapter_of(choice: Any, timeout: float) -> Any:
    """The adapter of the process's device of this AdapterChoice. timeout: seconds to wait for the device. Errors:
    NoAdapter, InvalidInput if no adapter has the name"""
    from pyruntime.providers.webgpu.wgpu_host import GpuHost

    return GpuHost(choice, timeout).adapter


class Usable(NamedTuple):
    """names: the providers that a session uses, of those that it names; why_not_gpu: empty if it uses the GPU, or does
    not name it."""

    names: list[str]
    why_not_gpu: str = ""


def usable(
    providers: Sequence[str], timeout: float, choice: Any = None, allows_software: bool = False,
    has_fallback: bool = True, warns: bool = True,
) -> Usable:  # fmt: skip
    """The providers, without "webgpu" if the host has no adapter, or if its adapter computes on the CPU, unless the
    session allows that or does not name "wasm"; warns once per process, if at all. timeout: seconds to wait for the
    device; choice: an AdapterChoice. Errors: NoAdapter if there is none and "webgpu" is the only provider, or the
    session has no fallback; InvalidInput if no adapter has the name."""
    from pyruntime.providers.webgpu.adapter import NoAdapter

    if "webgpu" not in effective(providers):
        return Usable(list(providers))
    has_wasm = "wasm" in providers
    hint, is_absent = "", True
    try:
        adapter = adapter_of(choice, timeout)
        if not adapter.software or not has_wasm or allows_software:
            return Usable(list(providers))
        is_absent = False
        why = f'the WebGPU adapter "{adapter.name}" computes on the CPU'
        hint = f" ({HINT})"
    except ImportError as e:
        missing = 'wgpu is not installed (pip install "pyruntime-onnx[native]")'
        why = f"no WebGPU: {missing if e.name == 'wgpu' else e}"
    except NoAdapter as e:
        why = e.message
    if not has_wasm or is_absent and not has_fallback:
        raise NoAdapter(why, hint="fallback is off" if has_wasm else 'add the provider "wasm"')
    if warns:
        warn_once(f"{why}; sessions run on WebAssembly{hint}")
    return Usable([p for p in providers if p != "webgpu"], why)


def warn(text: str) -> None:
    warnings.warn(f"pyruntime: {text}", RuntimeWarning, stacklevel=2)


warn_once = cache(warn)
