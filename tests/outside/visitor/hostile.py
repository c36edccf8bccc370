"""Providers of products with one fault each, and `pooled` with none. tests/test_provider_check.py checks what
pyruntime.provider_check says."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from pyruntime.ir.dtype import F32
from pyruntime.ir.kernel import Call
from visitor.device import Device
from visitor.products import Products

ended = threading.Event()  # ends what `Endless` waits for, after its test


class Hostile(Products):
    name = "hostile"
    options = {}

    def open(self, options, threads):
        return type(self)()

    def compile(self, part):
        inner = super().compile(part)

        def bind(inputs, outputs, symbols):
            job = inner(inputs, outputs, symbols)
            return lambda: self.job(job, inputs, outputs)

        return bind

    def job(self, job, inputs, outputs):
        job()


class Wrong(Hostile):
    def job(self, job, inputs, outputs):
        job()
        outputs[0][...] += 1


class Unwritten(Hostile):
    def job(self, job, inputs, outputs):
        kept = outputs[0].reshape(-1)[:1].copy()
        job()
        outputs[0].reshape(-1)[:1] = kept


class Adds(Hostile):
    def job(self, job, inputs, outputs):
        before = outputs[0].copy()
        job()
        outputs[0][...] += before


class ChangesInputs(Hostile):
    def job(self, job, inputs, outputs):
        job()
        inputs[0][...] *= 2


class Counts(Hostile):
    runs = 0

    def job(self, job, inputs, outputs):
        job()
        self.runs += 1
        outputs[0][...] *= self.runs


class Shares(Hostile):
    def job(self, job, inputs, outputs):
        job()
        self.product = outputs[0].copy()
        time.sleep(0.02)
        rows = min(map(len, (self.product, outputs[0])))
        outputs[0][:rows] = self.product[:rows]


class SharesInSessions(Shares):
    """Runs of one session wait for each other, those of others do not."""

    concurrent = False
    state = type("State", (), {})()

    def job(self, job, inputs, outputs):
        Shares.job(self.state, job, inputs, outputs)


class Keeps(Hostile):
    def compile(self, part):
        inner = Products.compile(self, part)
        kept = {}

        def bind(inputs, outputs, symbols):
            arrays = [kept.setdefault(n, x.copy()) if x.shape == (64, 96) else x for n, x in enumerate(inputs)]
            return inner(arrays, outputs, symbols)

        return bind


class Truncates(Device):
    name, options = "truncates", {}

    def open(self, options, threads):
        return Truncates()

    def upload(self, handle, array):
        super().upload(handle, array)
        self.buffers[handle][array.nbytes - 1] = 0


class Wavers(Hostile):
    asked = 0

    def supports(self, kernel):
        why = super().supports(kernel)
        self.asked += not why
        return why or ("" if self.asked % 2 else "not now")


class Untyped(Hostile):
    options = {"device": None}


class OneForAll(Hostile):
    is_closed = False

    def open(self, options, threads):
        self.is_closed = False
        return self

    def job(self, job, inputs, outputs):
        if self.is_closed:
            raise RuntimeError("the device is closed")
        job()

    def close(self):
        self.is_closed = True

    def run_start(self):
        pass

    def run_end(self, error):
        pass


class Endless(Hostile):
    def job(self, job, inputs, outputs):
        ended.wait(60)
        job()


class Exits(Hostile):
    def job(self, job, inputs, outputs):
        raise SystemExit("no device")


class Quits(Hostile):
    def open(self, options, threads):
        raise SystemExit("no device")


class Fails(Hostile):
    def compile(self, part):
        raise MemoryError("no device memory")


class RaisesAgain(Hostile):
    def run_end(self, error):
        if error is not None:
            raise error


class HalfFramed(Hostile):
    def run_start(self):
        pass


class LeavesThreads(Hostile):
    def open(self, options, threads):
        threading.Thread(target=ended.wait, args=(60,), name="device", daemon=True).start()
        return LeavesThreads()


class Idle(Hostile):
    def supports(self, kernel):
        is_large = isinstance(kernel, Call) and kernel.out.dtype is F32 and kernel.out.shape[0] == 1_000_000
        return "" if is_large else "only a million rows"


class Pooled(Hostile):
    """No fault: all sessions share a thread."""

    pool = ThreadPoolExecutor(1)

    def job(self, job, inputs, outputs):
        self.pool.submit(job).result()


wrong, pooled = Wrong(), Pooled()
