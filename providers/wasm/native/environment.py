"""The machine code of a host's threads: what each thread's calls read, and how the host stops them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi

from ..host_threads import SHORTEST
from ..printer.native_imports import UNUSED, import_of
from .function import BUSY, ENVIRONMENT, MEMORIES, STOP, TABLE
from .pages import NativeCode, NoNativeCode, native_code

_new_unchecked = ffi.dll["wasmtime_func_new_unchecked"]
_new_unchecked.restype = None
_new_unchecked.argtypes = [ctypes.c_void_p] * 6
_WORD = 8  # bytes


class NativeThreads:
    """wanted: as the session option `native_code`; like: those of a host whose machine code to use

    code: the machine code, or None; name: its instruction set, or why there is none"""

    def __init__(self, wanted: bool | str, threads: int, like: NativeThreads | None) -> None:
        self._words = [(ctypes.c_uint64 * (ENVIRONMENT.size // _WORD))() for _ in range(threads)]
        self.code: NativeCode | None = None
        self.name: str
        if like is not None:
            self.code, self.name = like.code, like.name
            return
        try:
            self.code = native_code(wanted)
            self.name = self.code.kind.name
        except NoNativeCode as reason:
            self.name = f"none: {reason}"

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of those that modules may import."""
        return () if self.code is None else tuple(self.code.functions)

    def reset(self) -> None:
        """No thread is inside, and none has to stop: in a forked process."""
        for words in self._words:
            words[BUSY // _WORD] = words[STOP // _WORD] = 0

    def set_memories(self, memories: Sequence[Any]) -> None:
        """The linear memories, as arrays of bytes."""
        for words in self._words:
            for n, memory in enumerate(memories[:MEMORIES]):
                at = (TABLE + 16 * n) // _WORD
                words[at], words[at + 1] = memory.ctypes.data, len(memory)

    def imports(self, module: wasmtime.Module, store: wasmtime.Store, thread: int) -> list[wasmtime.Func]:
        """The functions that a module imports, for the store of a thread; without machine code, functions that leave
        the work to WebAssembly: the module of a file may import them. Their types are not those of the module's
        imports, which may be any. This object has to outlive them."""
        unused = wasmtime.Func(store, wasmtime.FuncType([], []), lambda: None)
        made = []
        for name in [str(i.name) for i in module.imports]:
            if name == UNUSED:
                made.append(unused)
            elif found := import_of(name):
                made.append(self._import(name, len(found.operands), store, thread))
        return made

    def _import(self, name: str, operands: int, store: wasmtime.Store, thread: int) -> wasmtime.Func:
        kind = wasmtime.FuncType([wasmtime.ValType.i32()] * operands, [wasmtime.ValType.i32()])
        if self.code is None or not self.code.has(name):
            return wasmtime.Func(store, kind, lambda *_: 0)
        made = ffi.wasmtime_func_t()
        context, signature = (ctypes.cast(x, ctypes.c_void_p) for x in (store._context(), kind.ptr()))
        words = ctypes.addressof(self._words[thread])
        _new_unchecked(context, signature, self.code.address(name), words, None, ctypes.addressof(made))
        return wasmtime.Func._from_raw(made)

    @contextmanager
    def outside(self, lock: AbstractContextManager[Any]) -> Iterator[None]:
        """A context in which no thread is in machine code, where an inaccessible page would end the process. lock: is
        taken as a barrier between writing `stop` and reading `busy`"""
        try:
            for words in self._words:
                words[STOP // _WORD] = 1
            with lock:
                pass
            while any(words[BUSY // _WORD] for words in self._words):
                time.sleep(SHORTEST)
            yield
        finally:
            for words in self._words:
                words[STOP // _WORD] = 0
