"""A provider of whole segments: consecutive elementwise kernels run as one function. Tensors between them never exist
in the session's memory."""

from pyruntime import ArrayProvider
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.kernel import Alias, Map
from visitor import expressions


class Segments(ArrayProvider):
    name = "segments"
    takes_parts = True

    def __init__(self):
        self.log = []  # for tests: what was called

    def open(self, options, threads):
        return Segments()

    def supports(self, kernel):
        if not isinstance(kernel, Map) or kernel.out.dtype is not F32:
            return "only elementwise float32 kernels"
        return expressions.refused(kernel.expr)

    def compile(self, part):
        self.log.append([k.node for k in part.kernels if isinstance(k, Map)])

        def bind(inputs, outputs, symbols):
            def job():
                values = {t.uid: x for t, x in zip(part.inputs, inputs, strict=True)}
                for kernel in part.kernels:
                    shape = [sh.evaluate(d, symbols) for d in kernel.out.shape]
                    if isinstance(kernel, Alias):
                        values[kernel.out.uid] = values[kernel.base.uid].reshape(shape)
                    else:
                        values[kernel.out.uid] = self.evaluate(kernel, shape, values, symbols)
                for t, array in zip(part.outputs, outputs, strict=True):
                    array[...] = values[t.uid]

            return job

        return bind

    def evaluate(self, kernel, shape, values, symbols):
        return expressions.evaluate(kernel.expr, expressions.axes_of(shape), values, symbols)

    def run_start(self):
        self.log.append("start")

    def run_end(self, error):
        self.log.append("end" if error is None else type(error).__name__)

    def close(self):
        self.log.append("close")


provider = Segments()
