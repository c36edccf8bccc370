"""Machine code in tests of schedules: set-ups of both instruction sets, on one and two threads."""

from __future__ import annotations

import ctypes
import mmap
import sys
import zlib

import numpy as np
import pytest

from kit.machine_code import usable
from pyruntime.providers.wasm.native import function, pages
from pyruntime.providers.wasm.native.kinds import KINDS
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.printer.native_imports import import_into, import_of
from pyruntime.providers.wasm.wasmtime_host import WasmHost

# name -> relaxed SIMD, threads
SETUPS = dict.fromkeys(KINDS, (True, 1)) | {f"{name} on threads": (True, 2) for name in KINDS}


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
each_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(n, marks=pytest.mark.skipif(n not in usable(), reason=f"the processor has no {n}")) for n in KINDS],
)

SIZE = 1 << 14  # bytes of the memory below
EDGES = (-(2**31), -65536, -1, 0, 1, 4, 2**31 - 1, SIZE, SIZE - 4, SIZE - 1, 2**20, 2**20 + 1)


class Direct:
    """Calls a function without WebAssembly, on a memory between pages that nobody may read or write."""

    def __init__(self, kind: str, name: str = "block", address: int | None = None) -> None:
        found = import_of(name)
        assert found is not None
        self.names = found.operands
        self.code = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 3, ctypes.c_size_t)(
            address or pages.native_code(kind).address(name)
        )
        self.pages = np.frombuffer(mmap.mmap(-1, 3 * SIZE), np.uint8)
        self.memory = self.pages[SIZE : 2 * SIZE]
        self.memory[:] = 0xA5
        for at in (0, 2 * SIZE):
            address = self.pages.ctypes.data + at
            assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(SIZE), 0)
        self.environment = (ctypes.c_uint64 * (function.ENVIRONMENT.size // 8))()
        self.environment[2:4] = self.memory.ctypes.data, SIZE

    def __call__(self, **operands: int) -> int:
        values = np.full((len(self.names), 4), 0x5A5A5A5A, np.uint32)
        values[:, 0] = [operands.get(name, 0) & 0xFFFFFFFF for name in self.names]
        assert self.code(ctypes.addressof(self.environment), None, values.ctypes.data, len(self.names)) is None
        assert self.environment[0] == 0
        return int(values[0, 0])
