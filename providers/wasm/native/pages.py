"""Executable pages, and what the processor has. Pages are written first and then made executable, never both."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from .block_function import BlockFunction
from .depthwise_function import DepthwiseFunction
from .kinds import AVX2, AVX512, KINDS, Kind
from .x86 import R8, RAX, RBX, RCX, RDX, Assembler, Memory

VARIABLE = "PYRUNTIME_NATIVE_CODE"  # an environment variable: what `native_code=True` means
WINDOWS = sys.platform == "win32"

_READ_EXECUTE = 5  # PROT_* of mmap(2)
_COMMIT, _PAGE_READ_WRITE, _PAGE_EXECUTE_READ = 0x3000, 0x04, 0x20  # of VirtualAlloc
_FUNCTIONS = (BlockFunction, DepthwiseFunction)
_pages: list[Any] = []  # memory of code, which stays for the life of the process


class NoNativeCode(Exception):
    """Why there is no machine code."""


class NativeCode(NamedTuple):
    """name: of the instruction set; functions: their addresses, by the names of imports"""

    name: str
    functions: Mapping[str, int]


def native_code(wanted: bool | str = True) -> NativeCode:
    """Machine code for this processor. wanted: as the session option `native_code`. Errors: NoNativeCode"""
    name = os.environ.get(VARIABLE, "") if wanted is True else wanted or "off"
    if name == "off":
        raise NoNativeCode("the option native_code is False" if wanted is not True else f"{VARIABLE} is off")
    if name and name not in KINDS:
        raise NoNativeCode(f"{VARIABLE} is {name!r}, and not off, {' or '.join(KINDS)}")
    usable = available()
    kinds = [kind for kind in usable if name in ("", kind.name)]
    if not kinds:
        raise NoNativeCode(f"the processor has no {'AVX2' if not usable else name}")
    return _made(kinds[0])


@cache
def available() -> tuple[Kind, ...]:
    """Instruction sets that processor and system have, the best one first. Errors: NoNativeCode"""
    if platform.machine().lower() not in ("x86_64", "amd64") or sys.maxsize < 1 << 32:
        raise NoNativeCode(f"there is none for {platform.machine() or 'this machine'}")
    ask = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(executable(_feature_code(WINDOWS)))

    def registers(leaf: int) -> list[int]:
        words = (ctypes.c_uint32 * 4)(leaf)
        ask(None, None, ctypes.addressof(words))
        return list(words)

    saves = 1 << 27 | 1 << 28 | 1 << 12  # OSXSAVE, AVX, FMA
    if registers(0)[0] < 7 or registers(1)[2] & saves != saves:
        return ()
    state, features = registers(_STATE)[0], registers(7)[1]
    has_avx2 = state & 6 == 6 and features & (1 << 5 | 1 << 8) == 1 << 5 | 1 << 8  # AVX2, BMI2
    has_avx512 = has_avx2 and state & 0xE6 == 0xE6 and bool(features & 1 << 16)
    return (AVX512,) * has_avx512 + (AVX2,) * has_avx2


_STATE = 0xFFFFFFFF  # in place of a leaf: the state that the system saves, by xgetbv


def _feature_code(windows: bool) -> bytes:
    """A function of the address of four words, its third argument: the first becomes eax of cpuid, all its result."""
    code = Assembler()
    words, leaf, done = R8, code.label(), code.label()
    code.push(RBX)
    if not windows:
        code.op("mov", R8, RDX)
    code.op("mov", RAX, Memory(words), wide=False)
    code.constant("mov", RCX, 0, wide=False)
    code.constant("cmp", RAX, -1, wide=False)
    code.jump(leaf, "ne")
    code.xgetbv()
    code.jump(done)
    code.place(leaf)
    code.cpuid()
    code.place(done)
    for n, register in enumerate((RAX, RBX, RCX, RDX)):
        code.op("store", register, Memory(words, 4 * n), wide=False)
    code.pop(RBX)
    code.ret()
    return code.to_bytes()


@cache
def _made(kind: Kind) -> NativeCode:
    return NativeCode(kind.name, {each.name: executable(each(kind, WINDOWS).write()) for each in _FUNCTIONS})


def executable(code: bytes) -> int:
    """The address of code in memory of its own. Errors: NoNativeCode if the system refuses executable memory."""
    return (_on_windows if WINDOWS else _on_unix)(code)


def _on_unix(code: bytes) -> int:
    try:
        pages = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise NoNativeCode(f"the system has no memory for it: {error}") from None
    pages[: len(code)] = code
    first = ctypes.c_char.from_buffer(pages)
    address = ctypes.addressof(first)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(address, len(code), _READ_EXECUTE):
        raise NoNativeCode(f"the system refuses executable memory: {os.strerror(ctypes.get_errno())}")
    _pages.append((pages, first))
    return address


def _on_windows(code: bytes) -> int:
    system: Any = getattr(ctypes, "WinDLL")("kernel32", use_last_error=True)  # noqa: B009  (other systems lack it)
    system.VirtualAlloc.restype = ctypes.c_void_p
    system.VirtualAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32]
    system.VirtualProtect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_void_p]
    address = system.VirtualAlloc(None, len(code), _COMMIT, _PAGE_READ_WRITE)
    if not address:
        raise NoNativeCode("the system has no memory for it")
    ctypes.memmove(address, code, len(code))
    if not system.VirtualProtect(address, len(code), _PAGE_EXECUTE_READ, ctypes.byref(ctypes.c_uint32())):
        raise NoNativeCode("the system refuses executable memory")
    return int(address)
