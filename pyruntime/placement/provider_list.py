"""The providers that a session asks for by name: the engine's two, and those that others bring (docs/extending.md)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.codegen.provider import CodeProvider, CodeWriter, HostProvider, Provider
from pyruntime.errors import InvalidInput
from pyruntime.placement.target import AtHome, Target

GROUP = "pyruntime.providers"  # of entry points, by which packages offer theirs
BASE = "wasm"  # supports every kernel
ENGINES = (BASE, "webgpu")  # the engine's own, which write code for the executors that sessions open
_ALIASES = {"CPUExecutionProvider": "wasm", "cpu": "wasm", "WebGpuExecutionProvider": "webgpu"}
_registered: dict[str, HostProvider] = {}


def register_provider(provider: HostProvider) -> None:
    """Offer a provider to sessions, under its name. On the desktop an entry point of the group "pyruntime.providers"
    does so, too. Errors: InvalidInput for one without a name, `supports` and `step`, or with the name of another."""
    name = getattr(provider, "name", None)
    if not isinstance(name, str) or not isinstance(provider, HostProvider):
        raise InvalidInput(f"{provider!r} is no provider", hint="it has a name, supports(kernel) and step(kernel)")
    if name in ENGINES or name in _ALIASES or _registered.get(name, provider) is not provider:
        raise InvalidInput(f'there is a provider "{name}" already')
    _registered[name] = provider


def registered() -> list[str]:
    """Names of those that were registered, in order."""
    return list(_registered)


def available() -> list[str]:
    """Names of all providers that this process could find, the engine's last."""
    from importlib.metadata import entry_points  # on the desktop; a start in a page has no use for it

    found = {e.name for e in entry_points(group=GROUP)} | _registered.keys()
    return [*sorted(found - set(ENGINES)), *reversed(ENGINES)]


def is_available(name: str) -> bool:
    """Whether it is one of them: the engine's own without a search, which takes 3 ms."""
    if name in ENGINES or name in _registered:
        return True
    from importlib.metadata import entry_points

    return bool(entry_points(group=GROUP, name=name))


def _found(name: str) -> HostProvider | None:
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


def known(providers: Sequence[Any]) -> list[str]:
    """Names in order of preference; an entry may be a pair with options or {"name": …}, as onnxruntime takes them.

    Providers that are not here are left out with a warning, as onnxruntime does; InvalidInput if no other is asked for.
    """
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise InvalidInput(f"providers are a list of names, not {providers!r}", hint="wasm and webgpu are known")
    given = [p.get("name") if isinstance(p, Mapping) else p[0] if isinstance(p, tuple) and p else p for p in providers]
    names = [_ALIASES.get(str(n), str(n)) for n in given]
    found = [n for n in names if n in ENGINES or _found(n)]
    for n in names:
        if n in found:
            continue
        are = ", ".join([*sorted(_registered), "wasm"]) + " and webgpu are"
        if not found:
            raise InvalidInput(f'provider "{n}" is not known', hint=are)
        warnings.warn(f'provider "{n}" is not known and left out ({are})', stacklevel=3)
    return found


def effective(names: Sequence[str]) -> list[str]:
    """The names that can get kernels: those up to the one that supports every kernel."""
    return list(names[: names.index(BASE) + 1]) if BASE in names else list(names)


def target(names: Sequence[str], engines: Sequence[tuple[CodeProvider, CodeWriter]], at_home: bool = False) -> Target:
    """What to compile for with providers of these names.

    engines: providers that write code here, with their code writers; the first supports every kernel, and takes what no
    other does. Engines that are named but not here are left out. `at_home`: see `AtHome`.
    """
    base = engines[0][0]
    given: dict[str, Provider] = {p.name: p for p, _ in engines}
    asked = [given.get(n) or _registered[n] for n in effective(names) if n in given or n in _registered]
    providers = asked if base in asked else [*asked, base]
    make = AtHome if at_home else Target
    return make(providers, {p.name: writer for p, writer in engines}, len(asked))


__all__ = ["available", "effective", "is_available", "known", "register_provider", "registered", "target"]
