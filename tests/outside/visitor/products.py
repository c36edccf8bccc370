"""A provider that gives large matrix products to NumPy's BLAS: it reads transposes in place, keeps one weight in a
layout of its own, and applies epilogues."""

import numpy as np

from pyruntime import ArrayProvider
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import index
from pyruntime.ir.kernel import Call, Map
from visitor import expressions


class Products(ArrayProvider):
    name = "products"
    options = {"least": 1e6, "packs": False}  # operations from which a product pays; whether weights are transposed

    def __init__(self, least=0.0, packs=False, threads=1):
        self.least, self.has_packs, self.threads = least, packs, threads

    def open(self, options, threads):
        return Products(options["least"], options["packs"], threads)

    def supports(self, kernel):
        if not isinstance(kernel, Call) or kernel.routine != "matmul":
            return "only matrix products"
        if any(t.dtype is not F32 for t in (*kernel.inputs, *kernel.outputs)):
            return "only float32"
        work = 2 * sh.estimate(sh.size(kernel.out.shape)) * sh.estimate(kernel.operand(0).shape[-1])
        return "" if work >= self.least else f"a product of less than {self.least:.0f} operations"

    def reads(self, call, operand, view):
        return True

    def fuses(self, call, out, order, epilogue):
        return out.dtype is F32 and not expressions.refused(epilogue)

    def packs(self, call, operand):
        weight = call.operand(operand)
        if not self.has_packs or operand != 1 or weight.rank != 2 or operand in call.strided:
            return None
        return Map(weight.at(index(1), index(0))).making(weight.shape[::-1], weight.dtype)

    def compile(self, part):
        (call,) = part.kernels

        def bind(inputs, outputs, symbols):
            values = {t.uid: x for t, x in zip(part.inputs, inputs, strict=True)}
            a, b = (operand(call, n, values, symbols) for n in (0, 1))
            (out,) = outputs

            def job():
                product = np.matmul(a, b)
                if call.order is not None:
                    product = product.transpose(call.order)
                if call.epilogue is not None:
                    product = expressions.evaluate(
                        call.epilogue, expressions.axes_of(out.shape), values, symbols, product
                    )
                out[...] = product

            return job

        return bind


def operand(call, n, values, symbols):
    array = values[call.operand(n).uid]
    if n in call.packed:
        return array.T
    if n not in call.strided:
        return array
    view = call.strided[n]
    shape, strides = ([sh.evaluate(d, symbols) for d in dims] for dims in (view.tensor.shape, view.strides))
    first = array.reshape(-1)[sh.evaluate(view.offset, symbols) :]
    return np.lib.stride_tricks.as_strided(first, shape, [array.itemsize * s for s in strides])


provider = Products()
