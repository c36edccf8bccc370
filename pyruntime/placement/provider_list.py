"""Providers by name: the engine's two, and those of users and packages (docs/extending.md)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.codegen.array_provider import ArrayProvider
from pyruntime.codegen.provider import CodeProvider, CodeWriter, Provider
from pyruntime.errors import ExecutionError, InvalidInput
from pyruntime.placement.open_providers import OpenProvider, OpenProviders, checked_options
from pyruntime.placement.target import CpuOnly, Target
from pyruntime.providers import ALIASES, BASE, ENGINES, GPU

GROUP = "pyruntime.providers"  # the group of entry points by which packages offer providers
MEMORY = ("allocate", "upload", "download", "free")  # methods of a provider with a memory of its own
AUTO = "auto"  # stands for the engine's own and those of others that take part, whichever is fastest
_registered: dict[str, ArrayProvider] = {}


def register_provider(provider: ArrayProvider) -> None:
    """Make a provider available to sessions under its name. Natively an entry point of the group "pyruntime.providers"
    does the same. Errors: InvalidInput if it is no ArrayProvider with a name, `supports` and `compile`, if it has some
    methods of a memory of its own and not all, or if the name is in use."""
    name, kind = getattr(provider, "name", None), type(provider)
    is_written = isinstance(provider, ArrayProvider) and ArrayProvider.supports is not kind.supports
    if not isinstance(name, str) or not name or not is_written or kind.compile is ArrayProvider.compile:
        hint = "a provider is an object of a subclass of ArrayProvider with a name, supports and compile"
        raise InvalidInput(f"{provider!r} is no provider", hint=hint)
    lacks = [m for m in MEMORY if getattr(kind, m) is getattr(ArrayProvider, m)]
    if 0 < len(lacks) < len(MEMORY):
        hint = f"a memory of its own needs {', '.join(MEMORY)}"
        raise InvalidInput(f'provider "{name}" lacks {", ".join(lacks)}', hint=hint)
    if name in ENGINES or name in ALIASES or _registered.get(name, provider) is not provider:
        raise InvalidInput(f'a provider "{name}" exists already')
    _registered[name] = provider


def registered() -> list[str]:
    """Names of the registered providers, in order of registration."""
    return list(_registered)


def available() -> list[str]:
    """Names of all providers that this process can find; the engine's own are last."""
    from importlib.metadata import entry_points  # imported here because a page does not need it

    found = {e.name for e in entry_points(group=GROUP)} | _registered.keys()
    return [*sorted(found - set(ENGINES)), *reversed(ENGINES)]


def is_available(name: str) -> bool:
    """Whether a provider is available. The engine's own are known without a search of entry points, which takes 3
    ms."""
    if name in ENGINES or name in _registered or name == AUTO:
        return True
    from importlib.metadata import entry_points

    return bool(entry_points(group=GROUP, name=name))


def _found(name: str) -> ArrayProvider | None:
    if name not in _registered:
        from importlib.metadata import entry_points

        for entry in entry_points(group=GROUP, name=name):
            try:
                provider = entry.load()
            except Exception as e:
                raise InvalidInput(f'provider "{name}" cannot be loaded: {type(e).__name__}: {e}') from e
            if getattr(provider, "name", None) != name:
                raise InvalidInput(f'the provider of entry point "{name}" has another name', hint=f"{provider!r}")
            register_provider(provider)
            break
    return _registered.get(name)


def name_and_options(entry: Any) -> tuple[str, Mapping[str, Any]]:
    """The engine's name of a provider, and its options."""
    options: Any = {}
    if isinstance(entry, Mapping):
        entry, options = entry.get("name"), entry
    elif isinstance(entry, tuple) and entry:
        entry, options = entry[0], entry[-1]
    return ALIASES.get(str(entry), str(entry)), options if isinstance(options, Mapping) else {}


def gpu_options(providers: Sequence[Any]) -> dict[str, str]:
    """The options of the GPU and of "auto", as texts."""
    given = [options for name, options in map(name_and_options, providers) if name in (GPU, AUTO)]
    return {key: str(value) for options in given for key, value in options.items() if value is not None}


def allows_software(providers: Sequence[Any]) -> bool:
    """Whether the GPU or "auto" has the option `allow_software`: its kernels may run on an adapter that computes on
    the CPU, although the session names WebAssembly, too."""
    return gpu_options(providers).get("allow_software") in ("True", "true", "1")


def is_auto(providers: Sequence[Any]) -> bool:
    """Whether the session is to use the provider that is fastest in its runs."""
    return any(name == AUTO for name, _ in map(name_and_options, providers))


def in_auto(providers: Sequence[Any]) -> list[str]:
    """The registered providers that "auto" times, without those that the session names itself."""
    named = {name for name, _ in map(name_and_options, providers)}
    return [name for name, provider in _registered.items() if provider.in_auto and name not in named]


def known(providers: Sequence[Any]) -> list[str]:
    """Names in order of preference; for "auto" the engine's own, the GPU first. An entry may also be a pair of name and
    options or {"name": …}, as in onnxruntime. Unknown providers are skipped with a warning, as onnxruntime does.
    Errors: InvalidInput if no known one remains."""
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        hint = f"{' and '.join(ENGINES)} are known"
        raise InvalidInput(f"providers must be a list of names, not {providers!r}", hint=hint)
    named = [name for name, _ in map(name_and_options, providers)]
    names = list(dict.fromkeys(n for name in named for n in (reversed(ENGINES) if name == AUTO else [name])))
    found = [n for n in names if n in ENGINES or _found(n)]
    for n in names:
        if n in found:
            continue
        are = ", ".join([*sorted(_registered), BASE]) + f" and {GPU} are"
        if not found:
            raise InvalidInput(f'provider "{n}" is unknown', hint=are)
        warnings.warn(f'provider "{n}" is unknown and skipped ({are})', stacklevel=3)
    return found


def effective(names: Sequence[str]) -> list[str]:
    """The names that can get kernels: those up to the first provider that supports every kernel."""
    return list(names[: names.index(BASE) + 1]) if BASE in names else list(names)


def options_of(name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """All options of a provider that others have added. Errors: InvalidInput; also if there is no such provider"""
    provider = _found(name)
    if provider is None:
        raise InvalidInput(f'provider "{name}" is unknown')
    return checked_options(provider, given)


def open_providers(providers: Sequence[Any], threads: int, has_fallback: bool = True) -> OpenProviders:
    """Those of these providers that work on arrays, opened with their options. Errors: InvalidInput for options that
    one refuses; ExecutionError if one cannot be opened, without fallback"""
    made = OpenProviders()
    for name, options in map(name_and_options, providers):
        provider = None if name in (*ENGINES, AUTO) else _found(name)
        if provider is None or name in made:
            continue
        try:
            made.add(provider, {key: value for key, value in options.items() if key != "name"}, threads)
        except ExecutionError as e:
            if not has_fallback:
                raise
            warnings.warn(f"{e.message}; the session runs without it", RuntimeWarning, stacklevel=3)
    return made


def target(
    names: Sequence[str], engines: Sequence[tuple[CodeProvider, CodeWriter]], added: Mapping[str, OpenProvider],
    cpu_only: bool = False,
) -> Target:  # fmt: skip
    """The compilation target for providers of these names.

    engines: the available providers that write code, with their code writers; the first one supports every kernel, and
        runs kernels that no other supports; names of engines that are not in this list are ignored
    added: the session's providers on arrays, by name; cpu_only: see `CpuOnly`
    """
    base = engines[0][0]
    by_name: dict[str, Provider] = {**added, **{p.name: p for p, _ in engines}}
    chosen = [by_name[n] for n in effective(names) if n in by_name]
    providers = chosen if base in chosen else [*chosen, base]
    make = CpuOnly if cpu_only else Target
    return make(providers, {p.name: writer for p, writer in engines}, len(chosen))
