"""What tests ask about machine code: which instruction sets the processor has, and which functions modules call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from pyruntime.providers.wasm.native import pages
from pyruntime.providers.wasm.printer import native_imports
from pyruntime.providers.wasm.printer.assembler import Function, Module


def usable() -> list[str]:
    """Names of the instruction sets that this machine has."""
    try:
        return [kind.name for kind in pages.available()]
    except pages.NoNativeCode:
        return []


@contextmanager
def machine_code_calls() -> Iterator[list[str]]:
    """The names of functions in machine code, one for each call in the modules that are written meanwhile."""
    calls: list[str] = []
    real = native_imports.function

    def counted(module: Module, name: str) -> Function:
        calls.append(name)
        return real(module, name)

    with patch.object(native_imports, "function", counted):
        yield calls
