"""A provider with a device of its own: products and elementwise kernels compute in private buffers, which only uploads
and downloads reach."""

import itertools
import math
import threading

import numpy as np

from pyruntime import ArrayProvider
from pyruntime.ir.kernel import Call
from visitor.products import Products
from visitor.segments import Segments


class Device(ArrayProvider):
    """where: the method that fails; after: the number of its calls that succeed before"""

    name = "device"
    options = {"where": "", "after": 0}

    def __init__(self, where="", after=0):
        self.where, self.after = where, after
        self.products, self.maps = Products(), Segments()
        self.buffers = {}
        self.numbers = itertools.count(7)
        self.log = []  # (method, bytes) of each upload and download
        self.calls = 0
        self.lock = threading.Lock()

    def open(self, options, threads):
        return Device(**options)

    def _inner(self, kernel):
        return self.products if isinstance(kernel, Call) else self.maps

    def supports(self, kernel):
        return self._inner(kernel).supports(kernel)

    def reads(self, call, operand, view):
        return True

    def compile(self, part):
        inner = self._inner(part.kernels[0]).compile(part)

        def bind(inputs, outputs, symbols):
            return inner([self.array(x) for x in inputs], [self.array(y) for y in outputs], symbols)

        return bind

    def array(self, x):
        return np.frombuffer(self.buffers[x.handle], np.float32, math.prod(x.shape)).reshape(x.shape)

    def _count(self, method):
        with self.lock:
            self.calls += method == self.where
            if method == self.where and self.calls > self.after:
                raise MemoryError(f"the device cannot {method}")

    def allocate(self, size):
        self._count("allocate")
        handle = next(self.numbers)
        self.buffers[handle] = bytearray(b"\xff" * size)  # NaN
        return handle

    def upload(self, handle, array):
        self._count("upload")
        self.log.append(("upload", array.nbytes))
        self.buffers[handle][: array.nbytes] = array.tobytes()

    def download(self, handle, array):
        self._count("download")
        self.log.append(("download", array.nbytes))
        array[...] = np.frombuffer(self.buffers[handle], array.dtype, array.size).reshape(array.shape)

    def free(self, handle):
        self._count("free")
        del self.buffers[handle]


provider = Device()
