"""Executable pages, and what the processor has. Pages are written first and then made executable, never both."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from ..printer.native_words import LANES
from ..schedules.arithmetic import Arithmetic
from .block_function import BlockFunction
from .codes_function import CodesFunction
from .depthwise_function import DepthwiseFunction
from .function import Function
from .kinds import AVX2, AVX512, KINDS, Kind
from .lanes_function import LanesFunction
from .windows_function import WindowsFunction
from .x86 import R8, RAX, RBX, RCX, RDX, Assembler, Memory

VARIABLE = "PYRUNTIME_NATIVE_CODE"  # an environment variable: what `native_code=True` means
WINDOWS = sys.platform == "win32"

_READ_EXECUTE = 5  # PROT_* of mmap(2)
_COMMIT, _PAGE_READ_WRITE, _PAGE_EXECUTE_READ = 0x3000, 0x04, 0x20  # of VirtualAlloc
_Write = Callable[[Kind, bool], Function]
_OF_BYTES: dict[str, _Write] = {
    "block_int8": partial(BlockFunction, arithmetic=Arithmetic.INT8),
    "block_int8_rows": partial(BlockFunction, arithmetic=Arithmetic.INT8_ROWS),
}
_OF_INTEGERS: dict[str, _Write] = {
    "block_int16": partial(BlockFunction, arithmetic=Arithmetic.INT16),
    **{f"codes{n}x{digits}": partial(CodesFunction, bits=n, digits=digits) for n in (4, 8) for digits in (1, 2)},
    **_OF_BYTES,
}
_WRITERS: dict[str, _Write] = {
    "block": BlockFunction, "depthwise": DepthwiseFunction, "windows": WindowsFunction, **_OF_INTEGERS,
}  # fmt: skip
_pages: list[Any] = []  # memory of code, which stays for the life of the process


class NoNativeCode(Exception):
    """Why there is no machine code."""


class NativeCode(NamedTuple):
    """Functions in machine code for an instruction set. vnni: whether the processor has AVX-512 VNNI; otherwise AVX2
    multiplies integers, and there are no functions of bytes"""

    kind: Kind
    vnni: bool

    @property
    def functions(self) -> list[str]:
        """Names of imports."""
        return [name for name in _WRITERS if self.vnni or name not in _OF_BYTES]

    def has(self, name: str) -> bool:
        """Whether there is a function of this name, which may be that of an elementwise loop."""
        return name.startswith(LANES) or name in self.functions

    def address(self, name: str) -> int:
        """The address of a function, which is written for the first call. Errors: NoNativeCode"""
        if name.startswith(LANES):
            return _written(name, AVX2)
        return _written(name, self.kind if self.vnni or name not in _OF_INTEGERS else AVX2)


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
    code = NativeCode(kinds[0], kinds[0] is AVX512 and has_vnni())
    code.address("block")  # whether the system refuses executable memory
    return code


@cache
def available() -> tuple[Kind, ...]:
    """Instruction sets that processor and system have, the best one first. Errors: NoNativeCode"""
    registers = _identify()
    saves = 1 << 27 | 1 << 28 | 1 << 12  # OSXSAVE, AVX, FMA
    if registers(0)[0] < 7 or registers(1)[2] & saves != saves:
        return ()
    state, features = registers(_STATE)[0], registers(7)[1]
    has_avx2 = state & 6 == 6 and features & (1 << 5 | 1 << 8) == 1 << 5 | 1 << 8  # AVX2, BMI2
    has_avx512 = has_avx2 and state & 0xE6 == 0xE6 and bool(features & 1 << 16)
    return (AVX512,) * has_avx512 + (AVX2,) * has_avx2


def has_vnni() -> bool:
    """Whether a processor that has AVX-512 has its dot products of bytes, too."""
    return bool(_identify()(7)[2] & 1 << 11)


@cache
def _identify() -> Callable[[int], list[int]]:
    """A function of a leaf that returns the registers of cpuid. Errors: NoNativeCode"""
    if platform.machine().lower() not in ("x86_64", "amd64") or sys.maxsize < 1 << 32:
        raise NoNativeCode(f"there is none for {platform.machine() or 'this machine'}")
    ask = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(executable(_feature_code(WINDOWS)))

    def registers(leaf: int) -> list[int]:
        words = (ctypes.c_uint32 * 4)(leaf)
        ask(None, None, ctypes.addressof(words))
        return list(words)

    return registers


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
def _written(name: str, kind: Kind) -> int:
    write = partial(LanesFunction, name) if name.startswith(LANES) else _WRITERS[name]
    return executable(write(kind, WINDOWS).write())


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
