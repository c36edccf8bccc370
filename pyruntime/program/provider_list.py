"""The providers a session asks for, and the builder that places kernels on them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.ir.kernel import Block, Kernel
from pyruntime.program.placement import Placed
from pyruntime.program.residency import HOME

_ALIASES = {"CPUExecutionProvider": "wasm", "cpu": "wasm", "WebGpuExecutionProvider": "webgpu"}


def known(providers: Sequence[Any]) -> list[str]:
    """Names in order of preference; an entry may be a pair with options or {"name": …}, as onnxruntime takes them.

    Providers that are not here are left out with a warning, as onnxruntime does; InvalidInput if no other is asked for.
    """
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise InvalidInput(f"providers are a list of names, not {providers!r}", hint="wasm and webgpu are known")
    names = [p.get("name") if isinstance(p, Mapping) else p[0] if isinstance(p, tuple) and p else p for p in providers]
    names = [_ALIASES.get(str(n), str(n)) for n in names]
    kept = [n for n in names if n in ("wasm", "webgpu")]
    for n in names:
        if n in kept:
            continue
        if not kept:
            raise InvalidInput(f'provider "{n}" is not known', hint="wasm and webgpu are")
        warnings.warn(f'provider "{n}" is not known and left out (wasm and webgpu are)', stacklevel=3)
    return kept


def placed(home: Any, builder: Any, adapter: Any, providers: Sequence[str], at_home: bool = False) -> Placed:
    """A builder that places kernels on the GPU of this adapter too. With "webgpu" alone, all that can be is there.
    `at_home`: see AtHome."""
    from pyruntime.providers.webgpu.builder import GpuProvider

    away: Any = GpuProvider(adapter)
    builders = {home.name: builder, away.name: away.builder()}
    make = AtHome if at_home else Placed
    return make([away, home], builders, only=list(providers) == ["webgpu"])


class AtHome(Placed):
    """Compiles the very kernels that another builder would have placed, all of them at home: what `verify` compares
    with."""

    def place(self, main: Block) -> None:
        pass

    def where(self, kernel: Kernel) -> str:
        return HOME


__all__ = ["AtHome", "known", "placed"]
