"""Machine code in tests of schedules: set-ups of both instruction sets, on one and two threads."""

from __future__ import annotations

import sys
import zlib

import pytest

from pyruntime.providers.wasm.native import pages
from pyruntime.providers.wasm.native.kinds import KINDS
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.printer.native_imports import import_into
from pyruntime.providers.wasm.wasmtime_host import WasmHost

# name -> relaxed SIMD, threads
SETUPS = dict.fromkeys(KINDS, (True, 1)) | {f"{name} on threads": (True, 2) for name in KINDS}


def usable() -> list[str]:
    """Names of the instruction sets that this machine has."""
    try:
        return [kind.name for kind in pages.available()]
    except pages.NoNativeCode:
        return []


def host(setup: str, threads: int, relaxed: bool) -> WasmHost:
    """A host of this set-up; the test is skipped if the machine lacks its instruction set."""
    kind = setup.split(" ")[0]
    if kind in KINDS and kind not in usable():
        pytest.skip(f"the processor has no {kind}")
    return WasmHost(threads=threads, relaxed=relaxed, native=kind if kind in KINDS else False)


@pytest.fixture(autouse=True)
def some_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions have one of the instruction sets, or none, chosen by the test's name. For modules with many cases, which
    import this fixture."""
    choices = [*usable(), "off"]
    monkeypatch.setenv(pages.VARIABLE, choices[zlib.crc32(request.node.name.encode()) % len(choices)])


def add_imports(module: Module, host: WasmHost) -> None:
    """Let the module use the host's machine code, if it has any."""
    if host.native.code is not None:
        import_into(module, host.native.functions)


needs_code = pytest.mark.skipif(not usable(), reason="the processor has no AVX2")
system_v = pytest.mark.skipif(sys.platform == "win32", reason="calls by System V's convention")
