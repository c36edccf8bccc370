"""Reductions and procedures on the GPU against the reference evaluator."""

import itertools
import math
import random

import pytest

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import dtype as dt
from pyruntime.ir.expr import X, cast

from .test_expressions import check, operand

MIXED = [1.0, -3.5, 2.25, 0.0, 100.0, -0.5]


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin", "argmax_last", "argmin_last"])
@pytest.mark.parametrize("dtype", [dt.F32, dt.F16, dt.I32, dt.U8, dt.I8, dt.I64], ids=str)
def test_reduce(bench, op, dtype):
    t = Tracer(lambda w: [])
    x = t.leaf("feed", (3, 4, 5), dtype)
    rng = random.Random(3)
    data = [
        float(rng.randint(-3, 3)) if dtype.is_float else rng.randint(0 if dtype.kind == "u" else -3, 3)
        for _ in range(60)
    ]
    for axes in ([2], [1], [0, 2], [0, 1, 2]):
        check(bench, t.reduce(op, x, axes, keepdims=False), {x.uid: ((3, 4, 5), data)})


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin", "argmax_last", "argmin_last"])
@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_special_values(bench, op, special):
    t, arrays = Tracer(lambda w: []), {}
    x = operand(t, dt.F32, [1.0, special, -2.0, special, 0.0], arrays)
    check(bench, t.reduce(op, x, [0], keepdims=False), arrays)


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [dt.F32, dt.I32, dt.U8], ids=str)
def test_nothing_to_reduce(bench, op, dtype):
    t = Tracer(lambda w: [])
    x = t.leaf("feed", (2, 0), dtype)
    check(bench, t.reduce(op, x, [1], keepdims=False), {x.uid: ((2, 0), [])})


def test_any_all(bench):
    t = Tracer(lambda w: [])
    x = t.leaf("feed", (3, 2), dt.BOOL)
    arrays = {x.uid: ((3, 2), [True, False, False, False, True, True])}
    for op in ("any", "all"):
        check(bench, t.reduce(op, x, [1], keepdims=False), arrays)


@pytest.mark.parametrize("dtype", [dt.F32, dt.U8, dt.F16, dt.I64], ids=str)
def test_cumulative_sum(bench, dtype):
    t = Tracer(lambda w: [])
    x = t.leaf("feed", (3, 5), dtype)

    def body(k, out):
        with k.parallel(3) as i:
            total = k.var(0, dt.F32 if dtype.is_float else dtype)
            with k.loop(5) as j:
                total.set(total.get + cast(x[i, j], total.get.dtype))
                k.store(out, (i, j), cast(total.get, dtype))

    (out,) = t.loops("cumsum", [x], [((3, 5), dtype)], body)
    check(bench, out, {x.uid: ((3, 5), [k % 4 for k in range(15)])})


@pytest.mark.parametrize("dtype", [dt.F32, dt.U8], ids=str)
def test_insertion_sort(bench, dtype):
    """While, When, Let, Set, loads of stored elements, one work unit."""
    t = Tracer(lambda w: [])
    n = 9
    x = t.leaf("feed", (n,), dtype)

    def body(k, out, steps):
        count = k.var(0, dt.I32)
        with k.loop(n) as i:
            v = k.let(x[i])
            j = k.var(i, dt.I32)
            going = k.var(True, dt.BOOL)
            with k.while_(going.get & (j.get > 0)):
                with k.when(out[j.get - 1] > v):
                    k.store(out, (j.get,), out[j.get - 1])
                    j.set(j.get - 1)
                    count.set(count.get + 1)
                with k.otherwise():
                    going.set(False)
            k.store(out, (j.get,), v)
        k.store(steps, (0,), count.get)

    out, _ = t.loops("sort", [x], [((n,), dtype), ((1,), dt.I32)], body)
    check(bench, out, {x.uid: ((n,), [5, 2, 9, 1, 7, 7, 3, 0, 4])})


def test_scratch(bench):
    t, arrays = Tracer(lambda w: []), {}
    x = operand(t, dt.I32, [3, 1, 2], arrays)

    def body(k, out, scratch):
        with k.loop(3) as i:
            k.store(scratch, (i,), x[i] * 2)
        with k.loop(3) as i:
            k.store(out, (i,), scratch[2 - i])

    (out,) = t.loops("reverse", [x], [((3,), dt.I32)], body, scratch=[((3,), dt.I32)])
    check(bench, out, arrays)


def test_epilogue(bench):
    t = Tracer(lambda w: [])
    x = t.leaf("feed", (2, 6), dt.F32)
    out = t.reduce("sum", x, [1], keepdims=False)
    out.kernel.epilogue = X * 0.5 + 1.0
    check(bench, out, {x.uid: ((2, 6), MIXED * 2)})


REDUCTIONS = [("any", dt.BOOL), ("all", dt.BOOL)]
REDUCTIONS += itertools.product(["sum", "prod", "max", "min"], [dt.F32, dt.I32, dt.U8])


@pytest.mark.parametrize("subgroups", [False, True])
@pytest.mark.parametrize("op,dtype", REDUCTIONS, ids=str)
@pytest.mark.parametrize(
    "shape,axes", [((2, 2), [1]), ((2, 63), [1]), ((2, 5000), [1]), ((130, 3, 41), [0, 2]), ((3, 0), [1])], ids=str
)
def test_a_workgroup_reduces(bench, op, dtype, shape, axes, subgroups):
    from pyruntime.providers.webgpu.adapter import Adapter
    from pyruntime.providers.webgpu.schedules.workgroup_reduction import print_reduction

    t = Tracer(lambda w: [])
    x = t.leaf("feed", shape, dtype)
    rng = random.Random(4)
    some = {dt.BOOL: [False, True], dt.U8: [3, 1, 1, 251], dt.I32: [1, 3, -5], dt.F32: [1.0, 1.0, -1.0]}[dtype]
    data = rng.choices(some, k=math.prod(shape))
    if op in ("max", "min") and data and dtype is dt.F32:
        data[math.prod(shape) // 2] = math.nan
    out = t.reduce(op, x, axes, keepdims=False)

    def printer(code, _, f16):
        return print_reduction(code, Adapter(f16=f16, subgroups=subgroups))

    check(bench, out, {x.uid: (shape, data)}, printer=printer)
