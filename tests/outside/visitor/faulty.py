"""A provider of products that fails in one of its methods, or returns nonsense there."""

from pyruntime import ArrayProvider
from visitor.products import Products

METHODS = ("supports", "reads", "fuses", "packs", "compile", "run_start", "run_end", "close")


class Faulty(ArrayProvider):
    """where: a method, "open", "bind" or "job"; answers: whether it returns 5 there instead of an exception; after: the
    number of calls that succeed before the first fault"""

    name = "faulty"
    options = {"where": "job", "answers": False, "after": 0}

    def __init__(self, where="", answers=False, after=0):
        self.where, self.answers, self.after = where, answers, after
        self.inner = Products(0.0, True)
        self.calls = 0

    def open(self, options, threads):
        return Faulty(**options).call("open", lambda: Faulty(**options))

    def call(self, where, method, *args):
        if where == self.where:
            self.calls += 1
            if self.calls > self.after:
                if self.answers:
                    return 5
                raise RuntimeError(f"no device for {where}")
        return method(*args)

    def compile(self, part):
        def bind(*arrays):
            job = self.call("bind", inner, *arrays)
            return (lambda: self.call("job", job)) if callable(job) else job

        inner = self.call("compile", self.inner.compile, part)
        return bind if callable(inner) else inner


def _method(name):
    return lambda self, *args: self.call(name, getattr(self.inner, name), *args)


for _name in METHODS:
    if _name != "compile":
        setattr(Faulty, _name, _method(_name))
provider = Faulty()
