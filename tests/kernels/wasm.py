"""Runs one kernel of the vocabulary on the WASM provider, with guard bytes around every buffer it may write."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.codegen.schedule import lower
from pyruntime.ir import dtype as dt
from pyruntime.ir import shape as sh
from pyruntime.ir.storage import encode
from pyruntime.native.memory.arrays import NUMPY
from pyruntime.onnx.weight_values import decode
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.printer.loops import print_kernel
from pyruntime.providers.wasm.wasmtime_host import WasmHost

GUARD = 64
FILL = 0xA5


class WasmBench:
    """One host; every kernel gets a module of its own."""

    def __init__(self) -> None:
        self.host = WasmHost(cache=None)

    def run(self, kernel: Any, arrays: Any, symbols: Any = None, printer: Any = None) -> list[Any]:
        """The outputs, as (shape, values), of a kernel; `arrays` maps tensor uids to (shape, values)."""
        symbols = symbols or {}
        low = lower(kernel)
        module = Module()
        print_kernel(module, "kernel", low.code)
        call = self.host.load(module.to_bytes())["kernel"]
        self.top = 1024
        places = {t.uid: self._place(t, arrays, symbols) for t in low.tensors}
        words = [places[t.uid][0] for t in low.tensors] + [sh.evaluate(p, symbols) for p in low.params]
        self.host.memory[256 : 256 + 4 * len(words)] = np.array(words, np.int64).astype(np.int32).view(np.uint8)
        call(256, 0, sh.evaluate(low.work, symbols), 0)
        for start, size in places.values():
            for guard in (start - GUARD, start + size):
                assert (self.host.memory[guard : guard + GUARD] == FILL).all(), "wrote outside a buffer"
        return [self._read(t, places[t.uid], symbols) for t in kernel.outputs]

    def _place(self, t: Any, arrays: Any, symbols: Any) -> tuple[int, int]:
        shape = [sh.evaluate(d, symbols) for d in t.shape]
        data = (
            encode(arrays[t.uid][1], t.dtype)
            if t.uid in arrays
            else bytes([FILL]) * (int(np.prod(shape)) * t.dtype.size)
        )
        start = -(-self.top // 64) * 64 + GUARD
        self.top = start + len(data) + GUARD
        self.host.grow(self.top + GUARD)
        self.host.memory[start - GUARD : self.top] = FILL
        self.host.memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return start, len(data)

    def _read(self, t: Any, place: tuple[int, int], symbols: Any) -> Any:
        raw = self.host.memory[place[0] : place[0] + place[1]]
        shape = tuple(sh.evaluate(d, symbols) for d in t.shape)
        if t.dtype is dt.BF16:
            return shape, decode(raw.tobytes(), t.dtype)
        return shape, raw.view(NUMPY[t.dtype.name]).tolist()
