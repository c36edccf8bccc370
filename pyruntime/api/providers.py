"""The providers of a session, by onnxruntime's names or this engine's, with options."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.placement.provider_list import available, is_available
from pyruntime.providers import BASE

CPU, WEBGPU = "CPUExecutionProvider", "WebGpuExecutionProvider"
_THEIRS = {"wasm": CPU, "webgpu": WEBGPU}
_OURS = {CPU: "wasm", "cpu": "wasm", WEBGPU: "webgpu"}
_GPU = {
    "allow_software": ("True", "true", "1", "False", "false", "0"),
    "power_preference": ("low-power", "high-performance"),
    "adapter": (),
}
_OPTIONS = {"webgpu": _GPU, "auto": _GPU}  # of the engine's own providers, with the values as texts; (): any text

# All providers that builds of onnxruntime may have, in onnxruntime's order.
ALL = [
    f"{name}ExecutionProvider"
    for name in """NvTensorRTRTX Tensorrt CUDA MIGraphX OpenVINO Dnnl VitisAI QNN Nnapi VSINPU Js CoreML ACL Dml Rknpu
    WebNN WebGpu Xnnpack CANN Azure CPU""".split()
]


def choose(providers: Any, provider_options: Any = None) -> dict[str, dict[str, str]]:
    """The engine's names of providers, in order of preference, and their options, from the two arguments of a session;
    without any, the CPU. Unknown providers are left out with a warning. Errors: InvalidInput unless they are names or
    pairs of a name and options, or if options do not match"""
    given = _pairs(providers, provider_options)
    found: dict[str, dict[str, str]] = {}
    for name, options in given:
        own = _OURS.get(name, name)
        if not is_available(own):
            warnings.warn(f'provider "{name}" is unknown and skipped ({_instead(name)})', stacklevel=3)
        elif own in found:
            warnings.warn(f'provider "{name}" is listed twice', stacklevel=3)
        else:
            found[own] = {str(key): str(value) for key, value in options.items() if value is not None}
            _check_values(own, found[own])
    return found or {BASE: {}}


def _check_values(name: str, options: Mapping[str, str]) -> None:
    for key, value in options.items():
        values = _OPTIONS.get(name, {}).get(key, (value,))
        if values and value not in values:
            raise InvalidInput(f'{key} of "{name}" cannot be {value!r}', hint=f"one of {', '.join(values)}")


def options_without_effect(chosen: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A sentence for each option that its provider, one of the engine's, does not know. Providers of others refuse
    unknown options (`OpenProviders.add`)."""
    own = [name for name in chosen if name in _THEIRS or name in _OPTIONS]
    has = {name: f"it has {', '.join(_OPTIONS[name])}" if name in _OPTIONS else "it has none" for name in own}
    return [
        f'provider "{name}" has no option "{key}", which has no effect ({has[name]})'
        for name in own
        for key in chosen[name]
        if key not in _OPTIONS.get(name, ())
    ]


def _instead(name: str) -> str:
    are = get_available_providers()
    alike = [] if name in ALL else get_close_matches(name, [*are, *_OURS.values(), "auto"], 1)
    return f'did you mean "{alike[0]}"?' if alike else f"available are {', '.join(are)}"


def _pairs(providers: Any, provider_options: Any) -> list[tuple[str, Mapping[Any, Any]]]:
    hint = "names, or pairs of a name and a dict of options"
    if providers is None or isinstance(providers, str):
        providers = [providers] if providers else []
    if not isinstance(providers, Sequence) or isinstance(providers, bytes):
        raise InvalidInput(f"providers must be a list of names, not {providers!r}", hint=hint)
    if provider_options is not None:
        if not isinstance(provider_options, Sequence) or len(provider_options) != len(providers):
            raise InvalidInput("provider_options must be a list of dicts, one for each provider")
        if not all(isinstance(name, str) for name in providers):
            raise InvalidInput("give options in providers or in provider_options, not in both")
        providers = list(zip(providers, provider_options, strict=True))
    found: list[tuple[str, Mapping[Any, Any]]] = []
    for entry in providers:
        pair = (entry, {}) if isinstance(entry, str) else tuple(entry) if isinstance(entry, (tuple, list)) else ()
        if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], Mapping):
            raise InvalidInput(f"{entry!r} is not a provider", hint=hint)
        found.append((pair[0], pair[1]))
    return found


def their_names(names: Sequence[str]) -> list[str]:
    """onnxruntime's names. The CPU is last, because it runs the kernels that no other provider supports."""
    found = [_THEIRS.get(name, name) for name in names]
    return found if CPU in found else [*found, CPU]


def get_available_providers() -> list[str]:
    """Names for `providers`: the CPU, then the GPU if wgpu is installed, then the providers of other packages. The CPU
    is first because many programs pass the whole list to a session, and other providers should only run kernels if a
    program names them. Whether the host has a GPU is only known when a session opens it."""
    others = [_THEIRS.get(name, name) for name in available() if name != "webgpu" or find_spec("wgpu")]
    return [CPU, *(name for name in others if name != CPU)]


def get_all_providers() -> list[str]:
    """The names of all providers of onnxruntime."""
    return list(ALL)


def get_device() -> str:
    """Always "CPU": the device of sessions without `providers`."""
    return "CPU"


__all__ = ["CPU", "WEBGPU", "choose", "get_all_providers", "get_available_providers", "get_device", "their_names"]
