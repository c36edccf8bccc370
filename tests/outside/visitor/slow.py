"""A provider that evaluates kernels element by element, without NumPy."""

from pyruntime import ArrayProvider
from pyruntime.ir import reference
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Map

ran = []  # nodes whose kernels ran here


def flat(array):
    return elements(array).tolist()


def elements(array):
    """A view of one axis. Those without elements cannot be cast."""
    view = memoryview(array)
    return view.cast("B").cast(view.format) if view.nbytes else memoryview(b"").cast(view.format)


class SlowProvider(ArrayProvider):
    name = "slow"

    def supports(self, kernel):
        return "" if isinstance(kernel, Map) else f"a {type(kernel).__name__} is too slow for Python"

    def compile(self, part):
        (kernel,) = part.kernels

        def bind(inputs, outputs, symbols):
            shapes = [tuple(sh.evaluate(d, symbols) for d in t.shape) for t in kernel.outputs]

            def job():
                ran.append(kernel.node)
                arrays = {t.uid: (x.shape, flat(x)) for t, x in zip(part.inputs, inputs, strict=True)}
                made = self.evaluate(kernel, arrays, shapes, symbols)
                by_uid = {t.uid: data for t, (_, data) in zip(kernel.outputs, made, strict=True)}
                for t, array in zip(part.outputs, outputs, strict=True):
                    data = by_uid[t.uid]
                    view = elements(array)
                    for n, x in enumerate(data):
                        view[n] = x

            return job

        return bind

    def evaluate(self, kernel, arrays, shapes, symbols):
        return reference.evaluate(kernel, arrays, shapes, symbols)


provider = SlowProvider()
