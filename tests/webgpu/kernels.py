"""Runs one kernel of the vocabulary on the GPU, for comparison with the reference evaluator."""

import struct
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from pyruntime.codegen.schedule import lower
from pyruntime.ir import dtype as dt
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Loops
from pyruntime.providers.webgpu.adapter import fold_groups
from pyruntime.providers.webgpu.printer import storage as layout
from pyruntime.providers.webgpu.printer.loops import print_kernel
from pyruntime.providers.webgpu.wgpu_bindings import SLOT
from pyruntime.providers.webgpu.wgpu_host import Dispatch, GpuHost

NUMPY = {dt.F32: np.float32, dt.F16: np.float16, dt.BOOL: np.uint8, dt.I8: np.int8, dt.U8: np.uint8, dt.I16: np.int16,
         dt.U16: np.uint16, dt.I32: np.int32, dt.U32: np.uint32, dt.I64: np.int32, dt.U64: np.uint32}  # fmt: skip


def to_bytes(values, dtype):
    """Python numbers as they lie in GPU memory."""
    if dtype is dt.BF16:
        bits = np.array(values, np.float32).view(np.uint32)
        return (bits >> 16).astype(np.uint16).tobytes()
    if dtype.size == 1 and dtype.kind == "f":
        return bytes(values)
    kind = NUMPY.get(dtype, np.int8 if dtype.kind == "i" else np.uint8)
    return np.array(values).astype(kind).tobytes() if values else b""


def from_bytes(data, dtype, count):
    if dtype is dt.BF16:
        half = np.frombuffer(data, np.uint16)[:count].astype(np.uint32)
        return (half << 16).view(np.float32).tolist()
    kind = NUMPY.get(dtype, np.int8 if dtype.kind == "i" else np.uint8)
    return np.frombuffer(data, kind)[:count].tolist()


def padded(data):
    return bytes(data) + b"\xa5" * (-len(data) % 4)


class Bench:
    """A bump arena over a host."""

    def __init__(self, host):
        self.host = host
        self.top = 0

    def place(self, size):
        at, self.top = self.top, self.top + -(-max(size, 4) // 256) * 256 + 256
        self.host.grow(self.top)
        return at, max(size, 4)

    def put(self, data):
        at, size = self.place(len(data))
        if data:
            self.host.write(at, padded(data))
        return at, size

    def run(self, kernel, arrays, symbols=None, printer=print_kernel):
        """The outputs of a kernel; `arrays` maps tensor uids to (shape, values)."""
        symbols = symbols or {}
        low = lower(kernel, "gpu")
        shader = printer(low.code, not isinstance(getattr(kernel, "meaning", kernel), Loops), self.host.adapter.f16)
        return self.call(shader, low.tensors, low.params, low.work, kernel.outputs, arrays, symbols)

    def call(self, shader, tensors, params, work, outputs, arrays, symbols):
        self.top = 0
        places, ends = {}, []
        for t in tensors:
            if t.uid in arrays:
                places[t.uid] = self.put(to_bytes(arrays[t.uid][1], t.dtype))
            else:
                count = int(np.prod([sh.evaluate(d, symbols) for d in t.shape]))
                size = count * layout.element_bytes(t.dtype)
                at, size = places[t.uid] = self.place(size)
                self.host.write(at, b"\xa5" * (-(-size // 4) * 4 + 64))
                ends.append((at + -(-size // 4) * 4, 64))
        words = [sh.evaluate(p, symbols) for p in [*params, work]]
        block = struct.pack(f"<{len(words)}i", *words).ljust((len(words) + 3) // 4 * 16, b"\0")
        at = self.host.parameters.reserve(-(-len(block) // SLOT) * SLOT)
        self.host.parameters.write(at, block)
        if words[-1]:
            group = self.host.group(shader, [places[t.uid] for t in tensors], [None] * len(tensors), "")
            x, y = fold_groups(-(-words[-1] // shader.span), self.host.adapter.workgroups)
            self.host.encode([Dispatch(self.host.pipeline(shader), group, at, x, y, "")])
        for at, size in ends:
            assert bytes(self.host.read(at, size)) == b"\xa5" * size, "wrote outside a buffer"
        out = []
        for t in outputs:
            at, size = places[t.uid]
            shape = tuple(sh.evaluate(d, symbols) for d in t.shape)
            out.append((shape, from_bytes(self.host.read(at, size), t.dtype, int(np.prod(shape)))))
        return out


@contextmanager
def gpu_bench(f16):
    """A Bench on the adapter, or on one that would have no half floats."""
    host = GpuHost()
    if not f16:
        host.adapter = replace(host.adapter, f16=False)
    yield Bench(host)
    host.close()
