"""Whether the system is asked for huge pages: it says so for each range of addresses (proc_pid_smaps(5))."""

import sys

import numpy as np
import pytest

from pyruntime.providers.wasm import huge_pages
from pyruntime.providers.wasm.wasmtime_host import PAGE, WasmHost

LINUX = sys.platform == "linux"


def asked(memory: np.ndarray, at: int) -> bool:
    """Whether huge pages are wanted where a memory has this byte."""
    address, here = memory.ctypes.data + at, False
    with open("/proc/self/smaps") as ranges:
        for line in ranges:
            first, *flags = line.split()
            if "-" in first and len(flags) >= 4:
                begin, end = (int(part, 16) for part in first.split("-"))
                here = begin <= address < end
            elif here and first == "VmFlags:":
                return "hg" in flags
    raise AssertionError("no range of addresses has this byte")


@pytest.mark.skipif(not LINUX, reason="other systems have no such call: the next test")
@pytest.mark.parametrize("threads", [1, 2])
def test_large_memories_ask(threads):
    host = WasmHost(threads)
    host.grow(huge_pages.LARGE - PAGE)
    assert not asked(host.memory, 0)
    host.grow(huge_pages.LARGE + PAGE)
    assert not asked(host.memory, 0) and asked(host.memory, huge_pages.LARGE)
    host.grow(4 * huge_pages.LARGE)
    assert asked(host.memory, 4 * huge_pages.LARGE - 1)


@pytest.mark.skipif(not LINUX, reason="other systems have no such call: the next test")
def test_further_memories_ask():
    host = WasmHost()
    host.add_memories([PAGE, huge_pages.LARGE])
    small, large = host.further
    assert not asked(small, 0) and asked(large, 0) and asked(large, huge_pages.LARGE - 1)


def test_elsewhere_memories_grow_as_ever(monkeypatch):
    monkeypatch.setattr(huge_pages, "_madvise", None)
    host = WasmHost()
    host.grow(2 * huge_pages.LARGE)
    host.memory[-1] = 7
    assert host.memory[-1] == 7 and len(host.memory) == 2 * huge_pages.LARGE
