"""Procedures whose loops a workgroup shares, against NumPy, at the edges of the workgroup."""

import numpy as np
import pytest

from pyruntime.codegen.schedule import lower
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import dtype as dt
from pyruntime.ir.expr import cast, select
from pyruntime.ir.kernel import Accum
from pyruntime.providers.webgpu.code_writer import GpuProvider, one_binding_each
from pyruntime.providers.webgpu.schedules import workgroup_procedure

SIZES = [16, 63, 64, 65, 130]


class Steps:
    """A recurrence over `steps` of n numbers: what a step reads, another invocation wrote."""

    def __init__(self, units, n, steps):
        t = self.t = Tracer(lambda w: [])
        self.x = t.leaf("feed", (units, n), dt.F32)
        self.count = t.leaf("feed", (units,), dt.I32)
        self.shape = units, n, steps

    def body(self, k, y, last, state, other):
        units, n, _ = self.shape
        with k.parallel(units) as u:
            with k.loop(n, "vector") as i:
                k.store(state, (u, i), self.x[u, i])
            with k.loop(self.count[u]):  # a bound that is read: uniform only through workgroup memory
                with k.loop(n, "vector") as i:
                    k.store(other, (u, i), state[u, select(i + 1 < n, i + 1, 0)])
                with k.when(other[u, 0] > 0.0):  # rotated
                    with k.parallel((n + 3) // 4) as block, k.loop(4, "vector") as lane:
                        i = k.let(block * 4 + lane)
                        with k.when(i < n):
                            k.store(state, (u, i), other[u, i] * 2.0)
                with k.otherwise():
                    with k.loop(n, "vector") as i:
                        k.store(state, (u, i), other[u, i] + 1.0)
            total = k.var(0.0, dt.F32)
            with k.loop(n, "vector") as i:
                k.emit(Accum(total.get.value, "sum", state[u, i]))
            k.store(last, (u,), total.get)
            turn = k.var(0, dt.I32)
            with k.while_((turn.get < 3) & (last[u] < 1e6)):  # halves, one invocation's store each turn
                k.store(last, (u,), last[u] * 0.5)
                turn.set(turn.get + 1)
            with k.loop(n, "vector") as i:
                k.store(y, (u, i), state[u, i] + cast(turn.get, dt.F32))

    def kernel(self):
        units, n, _ = self.shape
        made = [((units, n), dt.F32), ((units,), dt.F32)]
        return self.t.loops("steps", [self.x, self.count], made, self.body, [((units, n), dt.F32)] * 2)[0].kernel

    def expected(self, x, count):
        y, last = x.copy(), np.zeros(len(x), np.float32)
        for u, state in enumerate(y):
            for _ in range(count[u]):
                turned = np.roll(state, -1)
                state[:] = turned * 2 if turned[0] > 0 else turned + 1
            last[u] = state.sum() / 8
            state += 3
        return y, last


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("n", SIZES)
def test_steps(bench, n, units):
    made = Steps(units, n, 5)
    kernel = made.kernel()
    assert workgroup_procedure.cooperates(kernel)
    low = one_binding_each(lower(kernel, "gpu"))
    shader = workgroup_procedure.print_procedure(low.code, bench.host.adapter.f16)
    x = np.random.default_rng(n).integers(-3, 4, (units, n)).astype(np.float32)
    count = np.arange(5, 5 + units, dtype=np.int32)
    arrays = {made.x.uid: (x.shape, x.ravel().tolist()), made.count.uid: (count.shape, count.tolist())}
    found = bench.call(shader, low.tensors, low.params, low.work, kernel.outputs, arrays, {})
    for (shape, values), want in zip(found, made.expected(x, count), strict=True):
        np.testing.assert_array_equal(np.array(values).reshape(shape), want)


def plain(units, n, kind="vector"):
    t = Tracer(lambda w: [])
    x = t.leaf("feed", (units, n), dt.F32)

    def body(k, y):
        with k.parallel(units) as u, k.loop(n, kind) as i:
            k.store(y, (u, i), x[u, i] + 1.0)

    return t.loops("plain", [x], [((units, n), dt.F32)], body)[0].kernel


def test_which_procedures_are_shared():
    assert workgroup_procedure.cooperates(plain(1, workgroup_procedure.LONG))
    assert workgroup_procedure.cooperates(plain(workgroup_procedure.FEW, 1000, "parallel"))
    assert not workgroup_procedure.cooperates(plain(1, workgroup_procedure.LONG - 1))
    assert not workgroup_procedure.cooperates(plain(workgroup_procedure.FEW + 1, 1000))
    assert not workgroup_procedure.cooperates(plain(1, 1000, "serial"))


def test_the_builder_shares_them():
    writer = GpuProvider().code_writer()
    writer.segment("run", [plain(1, 100), plain(1, 100, "serial")], (), lambda node: None)
    assert ["i32(lane); v" in s.source for s in writer.shaders] == [True, False]
