"""The native host: wasmtime runs the same bytes as a browser, with a memory that NumPy reads without a copy.

    host = WasmHost(threads=2)
    kernels = host.load(module.to_bytes())
    host.grow(1 << 20)
    host.memory[0:4] = 7
    kernels["k"](args, begin, end, 0)     # on this thread
    kernels["run_1_0"].spmd(table)        # run(table, tid, threads, epoch) on every thread at once

With more than one thread the memory is shared, and each thread has its own store and instances, because a store belongs
to one thread. Compiled code is cached in the user's cache directory.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import wasmtime
from wasmtime import _ffi as ffi

from pyruntime.codegen.linear_memory import EPOCH, FAULT, FAULT_BYTES, POISON
from pyruntime.errors import ExecutionError, OutOfMemory

from . import huge_pages
from .host_threads import SHORTEST, TICK, HostThread, inaccessible_pages, stop
from .native.environment import NativeThreads
from .printer.assembler import Module
from .shared_pages import SharedPages

PAGE = 65536
_DIGEST = 32

# Untyped, unlike the bindings' prototype, which checks pointer types and takes longer than the call
_call_unchecked = ffi.dll["wasmtime_func_call_unchecked"]
_call_unchecked.restype = ctypes.c_void_p
_call_unchecked.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]

_SLOT = {"i32": "I12x", "i64": "Q8x", "f32": "f12x", "f64": "d8x"}  # one wasmtime_val_raw_t
_RESULT = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}


class _SharedMemory(wasmtime.SharedMemory):
    """wasmtime 50.0.1 passes one pointer too many when a shared memory is imported."""

    def _as_extern(self) -> ffi.wasmtime_extern_t:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


def cache_directory() -> Path:
    """The cache of compiled modules and Programs: `$XDG_CACHE_HOME/pyruntime`, by default `~/.cache/pyruntime`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyruntime"


def _engine(relaxed: bool) -> wasmtime.Engine:
    config = wasmtime.Config()
    config.wasm_relaxed_simd = relaxed
    config.shared_memory = True
    config.parallel_compilation = not _in_fork  # its threads do not exist in a forked process
    return wasmtime.Engine(config)


def _is_valid(module: Module, relaxed: bool) -> bool:
    try:
        wasmtime.Module.validate(_engine(relaxed), module.to_bytes())
    except wasmtime.WasmtimeError:
        return False
    return True


def _has_relaxed_simd() -> bool:
    probe = Module()
    f = probe.function("f", ["v128"], ["v128"])
    f.emit(0, 0, 0, "f32x4.relaxed_madd")
    return _is_valid(probe, True)


def _has_memories() -> bool:
    """Whether a module may have several."""
    probe = Module()
    probe.memories = 2
    return _is_valid(probe, False)


def _fail(name: str, error: int | None, trap: Any) -> None:
    """Raise the error or trap of a call. The message of a trap has the reason, without the stack of WebAssembly
    frames."""
    if error:
        raise ExecutionError(f"{name}: {wasmtime.WasmtimeError._from_ptr(ctypes.cast(error, _ERROR))}")
    message = wasmtime.Trap._from_ptr(ctypes.cast(trap, _TRAP)).message
    reason = message.rpartition("wasm trap: ")[2] or message
    raise ExecutionError(f"{name}: {reason.strip()}")


_FAULT = struct.Struct("<iiq")
_ERROR = ctypes.POINTER(ffi.wasmtime_error_t)
_TRAP = ctypes.POINTER(ffi.wasm_trap_t)


def _bind(name: str, store: wasmtime.Store, func: wasmtime.Func) -> Callable[..., Any]:
    """Return a Python function that calls `func`, for one thread at a time, in about 0.5 us.

    Integers may be signed or unsigned. Errors: ExecutionError on a trap.
    """
    kind = func.type(store)
    params = [str(p) for p in kind.params]
    results = [str(r) for r in kind.results]
    slots = max(len(params), len(results), 1)
    buffer = ctypes.create_string_buffer(16 * (slots + 1))
    start = -ctypes.addressof(buffer) % 16
    view = memoryview(buffer)[start : start + 16 * slots]
    address = ctypes.addressof(buffer) + start
    layout = struct.Struct("<" + "".join(_SLOT[p] for p in params))
    masks = [{"i32": 0xFFFFFFFF, "i64": 0xFFFFFFFFFFFFFFFF}.get(p) for p in params]
    trap = ctypes.c_void_p()
    trap_address = ctypes.addressof(trap)
    context = ctypes.cast(store._context(), ctypes.c_void_p).value
    target = ctypes.addressof(func._func)
    pack, unpack = layout.pack_into, struct.Struct(_RESULT[results[0]]).unpack_from if results else None

    def call(*args: Any) -> Any:
        try:
            pack(view, 0, *args)
        except struct.error:
            if len(args) != len(params):
                raise TypeError(f"{name} takes {len(params)} arguments, {len(args)} given") from None
            pack(view, 0, *(a if m is None else a & m for a, m in zip(args, masks, strict=True)))
        error = _call_unchecked(context, target, address, slots, trap_address)
        if error or trap.value:
            caught, trap.value = trap.value, None
            _fail(name, error, caught)
        return unpack(view)[0] if unpack else None

    call.keep = (store, func, buffer, trap)  # type: ignore[attr-defined]
    return call


class Kernel:
    """An exported function. A call runs it on thread 0; `calls[t]` is a plain function that runs it on thread t."""

    def __init__(self, host: WasmHost, calls: Sequence[Callable[..., Any]], poison: Kernel | None = None) -> None:
        self._host = host
        self._poison = poison
        self.calls = calls

    def __call__(self, *args: Any) -> Any:
        return self.calls[0](*args)

    def spmd(self, *args: Any, threads: int = 0) -> None:
        """Run `f(*args, tid, threads, epoch)` on all threads, or on `threads` of them; returns when all are done.

        Errors: that of the thread that trapped first (see spmd.py).
        """
        n = threads or len(self.calls)
        words = self._host.memory[: EPOCH + 4].view("<i4")
        with self._host.memory_lock:
            words[POISON // 4] = 0
            epoch = int(words[EPOCH // 4]) + 1
        errors = self._host.errors([partial(self._share, t, (*args, t, n, epoch)) for t in range(n)])
        with self._host.memory_lock:
            first = int(words[POISON // 4]) - 1
        for error in filter(None, [errors[max(first, 0)], *errors]):
            raise error

    def _share(self, t: int, args: tuple[Any, ...]) -> None:
        try:
            self.calls[t](*args)
        except BaseException:
            if self._poison is not None:
                self._fail(self._poison.calls[t], t)
            raise

    def _fail(self, poison: Callable[..., Any], t: int) -> None:
        """Call `poison` for the other threads; repeat if the memory was inaccessible (`watched`)."""
        while True:
            try:
                return poison(t)
            except ExecutionError:
                if not self._host.stopping:
                    raise
                time.sleep(SHORTEST)


_in_fork = False
_hosts: weakref.WeakValueDictionary[int, WasmHost] = weakref.WeakValueDictionary()  # by id


def held_bytes() -> int:
    """Bytes of the memories of all hosts. Pages that hosts share count once."""
    hosts = [ref() for ref in _hosts.valuerefs()]  # at once: other threads open hosts
    return sum(host.size - host.shared_bytes for host in hosts if host is not None)


def _after_fork() -> None:
    """In the child process: restart the threads."""
    global _in_fork
    _in_fork = True
    for host in _hosts.values():
        host.restart_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class WasmHost:
    """wasmtime with a linear memory, and further ones for weights that do not fit into it (`add_memories`).

    threads:   number of Python threads of `errors` and `Kernel.spmd`; above 1 the memory is shared, and modules must
               be assembled with shared=True
    max_pages: the memory's limit in 64 KiB pages; modules must declare at least as many
    relaxed: allow relaxed SIMD; None: if the engine supports it
    cache:     directory of compiled modules or None
    native:    whether modules may use machine code (native/), or with which instruction set
    like:      a host whose engine, kind of memory, compiled modules and machine code to share
    """

    def __init__(
        self,
        threads: int = 1,
        max_pages: int = 65536,
        relaxed: bool | None = None,
        cache: Path | None | str = "default",
        native: bool | str = False,
        like: WasmHost | None = None,
    ) -> None:
        self.threads = threads
        self.shared: bool = threads > 1 if like is None else like.shared
        self.relaxed = _has_relaxed_simd() if relaxed is None else relaxed
        self.max_pages = max_pages
        self._cache = cache_directory() if cache == "default" else Path(cache) if cache else None
        self._engine: wasmtime.Engine = _engine(self.relaxed) if like is None else like._engine
        self._modules: dict[str, wasmtime.Module] = {} if like is None else like._modules  # by a hash of their bytes
        self._pages: list[SharedPages] = []
        self.shared_bytes = 0  # of pages that it has from another host
        self._stores = [wasmtime.Store(self._engine) for _ in range(threads)]
        self.memories: bool = _has_memories() if like is None else like.memories
        self._memory = self._new_memory(1)
        self._others: list[Any] = []
        self.further: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self.native: NativeThreads = NativeThreads(native, threads, None if like is None else like.native)
        self.restart_threads()
        self._instances: list[wasmtime.Instance] = []
        self._view()
        _hosts[id(self)] = self

    def restart_threads(self) -> None:
        self.stopping = False
        self.native.reset()
        self.memory_lock = threading.Lock()  # guards accesses by Python while kernels run
        self._watched: HostThread | None = None
        self._workers = [HostThread() for _ in range(self.threads - 1)]
        self._end = weakref.finalize(self, _stop, self._workers)

    def _new_memory(self, pages: int) -> Any:
        limits = wasmtime.MemoryType(wasmtime.Limits(pages, self.max_pages), shared=self.shared)
        try:
            return _SharedMemory(self._engine, limits) if self.shared else wasmtime.Memory(self._stores[0], limits)
        except wasmtime.WasmtimeError as error:
            raise _refused(f"there is no memory of {pages * PAGE} bytes: {error}") from None

    def add_memories(self, sizes: Sequence[int]) -> None:
        """Make further memories of these sizes in bytes, which do not grow, for `load` of a module that imports them.
        Errors: OutOfMemory."""
        self._others = [self._new_memory(-(-size // PAGE)) for size in sizes]
        self.further = [self._bytes(memory) for memory in self._others]
        for memory in self.further:
            huge_pages.request(memory, 0)
        self._view()

    @property
    def target(self) -> dict[str, Any]:
        """Options of the code writer for this host."""
        features = {key: getattr(self, key) for key in ("relaxed", "shared", "threads", "memories")}
        return features | {"cranelift": True, "native": self.native.functions}

    @property
    def size(self) -> int:
        """Bytes of all memories."""
        return len(self.memory) + sum(map(len, self.further))

    def _view(self) -> None:
        self.memory = self._bytes(self._memory)
        self.native.set_memories([self.memory, *self.further])

    def _bytes(self, memory: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
        args = () if self.shared else (self._stores[0],)
        size, data = memory.data_len(*args), memory.data_ptr(*args)
        return np.ctypeslib.as_array(data, shape=(size,))

    def twin(self, pages: Sequence[SharedPages], threads: int = 1) -> WasmHost:
        """Return a host that shares with this one the engine, code, and the pages that `share` returned. Kernels may
        run here meanwhile. Errors: OutOfMemory."""
        other = WasmHost(threads, self.max_pages, self.relaxed, self._cache, like=self)
        other.add_memories([len(memory) for memory in self.further])
        other.adopt(pages)
        return other

    def share(self, spans: Sequence[tuple[int, int]]) -> list[SharedPages]:
        """The pages of these spans (begin, end) of the memory, which are constant from now on, and of all further
        memories. Kernels may run here meanwhile. Errors: OutOfMemory, also if this host is closed."""
        with self.memory_lock:
            if not self._stores:
                raise OutOfMemory("this memory is closed")
            if not self._pages:
                self._pages = [SharedPages.of_memory(self.memory, spans)]
                self._pages += [SharedPages.of_memory(memory, [(0, len(memory))]) for memory in self.further]
            return self._pages

    def adopt(self, pages: Sequence[SharedPages]) -> None:
        """Map the pages that `share` of a host of an equal Program returned. Errors: OutOfMemory."""
        self.grow(max((end for _, end in pages[0].spans), default=0))
        for one, memory in zip(pages, [self.memory, *self.further], strict=True):
            one.map_into(memory)
            self.shared_bytes += sum(end - begin for begin, end in one.spans)
        self._pages = list(pages)

    def grow(self, size: int) -> None:
        """Make the memory at least `size` bytes long. `memory` is a new view afterwards.

        Errors: OutOfMemory above `max_pages`, or if the system has no memory left.
        """
        before = len(self.memory)
        pages = -(-size // PAGE) - before // PAGE
        if pages <= 0:
            return
        try:
            if self.shared:
                self._memory.grow(pages)
            else:
                self._memory.grow(self._stores[0], pages)
        except wasmtime.WasmtimeError as error:
            limit = self.max_pages * PAGE
            if size > limit:
                raise OutOfMemory(f"memory cannot grow to {size} bytes (limit {limit})") from None
            raise _refused(f"memory cannot grow to {size} bytes: {error}") from None
        self._view()
        huge_pages.request(self.memory, before)

    def load(self, wasm: bytes) -> dict[str, Kernel]:
        """Compile (or take from the cache) and instantiate a module; its exported functions by name.

        Errors: ExecutionError if the engine rejects the bytes.
        """
        try:
            module = self._compile(wasm)
            memories = [self._memory, *self._others]
            instances = [
                wasmtime.Instance(store, module, memories + self.native.imports(module, store, thread))
                for thread, store in enumerate(self._stores)
            ]
        except wasmtime.WasmtimeError as error:
            raise ExecutionError(f"the module does not load: {error}") from None
        self._instances += instances
        names = [e.name for e in module.exports]
        exports = [i.exports(s) for i, s in zip(instances, self._stores, strict=True)]
        calls = {
            name: [_bind(name, s, cast(wasmtime.Func, e[name])) for s, e in zip(self._stores, exports, strict=True)]
            for name in names
        }
        poison = Kernel(self, calls["poison"]) if "poison" in calls else None
        return {name: Kernel(self, calls[name], poison) for name in names}

    def _compile(self, wasm: bytes) -> wasmtime.Module:
        config = f"{version('wasmtime')} relaxed={self.relaxed} {ffi.machine}".encode()
        name = hashlib.sha256(config + wasm).hexdigest()
        if name not in self._modules:
            self._modules[name] = self._cached(wasm, name)
        return self._modules[name]

    def _cached(self, wasm: bytes, name: str) -> wasmtime.Module:
        """Return the module from the cache, or compile it and add it to the cache."""
        if self._cache is None:
            return wasmtime.Module(self._engine, wasm)
        path = self._cache / f"{name}.cwasm"
        try:
            data = path.read_bytes()
            if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
                return wasmtime.Module.deserialize(self._engine, data[_DIGEST:])
        except (OSError, wasmtime.WasmtimeError):
            pass
        module = wasmtime.Module(self._engine, wasm)
        code = bytes(module.serialize())
        write_in_one_step(path, hashlib.sha256(code).digest() + code)
        return module

    def errors(self, jobs: Sequence[Callable[[], object]]) -> list[BaseException | None]:
        """Run job t on thread t (job 0 on this one), wait for all, and return each job's error. There may be fewer jobs
        than threads.

        A job must only use `calls[t]` of kernels. Calls into WebAssembly release the GIL.
        """
        for worker, job in zip(self._workers, jobs[1:], strict=False):
            worker.start(job)
        mine: BaseException | None = None
        try:
            jobs[0]()
        except BaseException as error:
            mine = error
        return [mine, *[worker.wait() for worker in self._workers[: len(jobs) - 1]]]

    def watched(self, job: Callable[[], object], stopped: Callable[[], bool]) -> bool:
        """Run a long job that only calls kernels on its own thread. Ctrl-C, or `stopped`, which is called every TICK
        seconds, ends it inside of a kernel; returns False if `stopped` did. The memory stays usable.

        Errors: the job's.
        """
        if self._watched is None:
            self._watched = HostThread()
            weakref.finalize(self, _stop, [self._watched])
        thread = self._watched
        try:
            thread.start(job)
            while not thread.has_ended(TICK):
                if stopped():
                    self._stop(thread)
                    return False
        except BaseException:
            self._stop(thread)
            raise
        error = thread.wait()
        if error is not None:
            raise error
        return True

    def _stop(self, thread: HostThread) -> None:
        self.stopping = True
        stop(thread, self._inaccessible)
        self.stopping = False

    @contextmanager
    def _inaccessible(self) -> Iterator[None]:
        first = (
            mmap.PAGESIZE
        )  # a thread may be in `memory.atomic.wait32`, where wasmtime's own code reads a word below it
        pages = inaccessible_pages(self.memory.ctypes.data + first, len(self.memory) - first)
        with self.native.outside(self.memory_lock), self.memory_lock, pages:
            yield

    def take_fault(self) -> tuple[int, int, int] | None:
        """Return the record of a fault (number of a node, extent, index) and clear it; None if there was no fault."""
        node, extent, index = _FAULT.unpack_from(cast(Any, self.memory), FAULT)
        if node == 0:
            return None
        self.memory[FAULT : FAULT + FAULT_BYTES] = 0
        return node, extent, index

    def close(self) -> None:
        """End the threads and free the memory. Kernels and views must not be used afterwards."""
        self._end()
        with self.memory_lock:
            self._workers = []
            self._instances = []
            self._modules = {}
            self._pages = []
            self.memory = np.zeros(0, np.uint8)
            self.shared_bytes = 0
            self._memory = None
            self._others = self.further = []
            for store in self._stores:
                store.close()
            self._stores = []


def _refused(text: str) -> OutOfMemory:
    error = OutOfMemory(text, hint="the system refuses more; release sessions, or use smaller inputs")
    error.of_system = True
    return error


def _stop(workers: list[HostThread]) -> None:
    for worker in workers:
        worker.start(None)


def write_in_one_step(path: Path, data: bytes) -> None:
    """Write a file of the cache atomically; a cache that cannot be written is not an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    except OSError:
        pass
