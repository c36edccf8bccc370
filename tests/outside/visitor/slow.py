"""A provider in Python, which evaluates kernels element by element."""

from pyruntime.host import host_function
from pyruntime.ir import reference
from pyruntime.ir.kernel import Host, Map

ran = []  # nodes whose kernels ran here


@host_function("visitor.slow")
def evaluate(args, attrs):
    kernel = attrs["kernel"]
    ran.append(kernel.node)
    arrays = {t.uid: array for t, array in zip(kernel.inputs, args, strict=True)}
    return reference.evaluate(kernel, arrays, attrs["shapes"], attrs["symbols"])


class SlowProvider:
    name = "slow"

    def supports(self, kernel):
        return "" if isinstance(kernel, Map) else f"a {type(kernel).__name__} is too slow for Python"

    def step(self, kernel):
        return Host("visitor.slow", kernel.inputs, {"kernel": kernel})


provider = SlowProvider()
