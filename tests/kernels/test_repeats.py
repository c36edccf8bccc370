"""Kernels that differ from earlier ones only in their tensors reuse their code; any other difference prevents that."""

from dataclasses import replace

import pytest

from pyruntime.codegen.repeats import Repeats
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import cast, checked, const, dim, guard, index
from pyruntime.ir.form import Form
from pyruntime.ir.kernel import Call, Leaf, Map, Tensor
from pyruntime.ir.symbol import ROOM, Symbol
from pyruntime.providers.wasm import provider


def leaf(*shape, dtype=F32):
    kernel = Leaf("feed")
    kernel.outputs = (Tensor(shape, dtype, kernel),)
    return kernel.out


def made(shape, e, node=""):
    kernel = Map(e)
    kernel.node = node
    kernel.outputs = (Tensor(shape, e.dtype, kernel),)
    return kernel


def layer(x, y, added=0.0):
    return made(x.shape, x[index(0)] * y[index(0)] + added, f"layer {x.uid}")


def key(kernel):
    return Form([kernel]).key()


def room(name):
    return sh.dim_of(Symbol(ROOM, name, (0,)))


def _checks(one, other):
    return X[checked(index(0), 4, one)] + X[checked(index(0) + 1, 4, other)]


def _appended(one, other):
    return leaf(room(one), 4)[index(0), 1] + leaf(room(other), 4)[index(0), 1]


X, Y = leaf(4), leaf(4)
SHARED = X[index(0)]


def test_a_repeated_layer_is_called_with_its_own_tensors():
    a, b, out = leaf(8), leaf(8), []
    kernels = [layer(a, b), layer(b, leaf(8)), layer(a, a), layer(leaf(9), leaf(9))]
    writer = provider.code_writer(relaxed=False, shared=False)
    calls = writer.segment("run", kernels, set(), out.append)
    assert [(c.node, c.tensors) for c in calls] == [(k.node, [k.out, *k.inputs]) for k in kernels]
    assert [c.params for c in calls[:2]] == [calls[0].params] * 2
    assert len(writer.repeats.written) == 3  # the second equals the first
    assert out == [k.node for k in kernels]


@pytest.mark.parametrize("name", ["a", "b"])
def test_names_of_nodes_and_capacities_are_a_calls_own(name):
    """The second of two equal layers has the parameters of one that is written alone."""

    def layer(name):
        rows, x = sh.maximum(room(name) * 3, 5), leaf(room(name), 4)
        return made((rows, 4), x[checked(index(0), room(name) + 1, name), index(1)] + cast(dim(rows // 2), F32), name)

    both, alone = (provider.code_writer(relaxed=False, shared=False) for _ in range(2))
    kernels = [layer("other"), layer(name)]
    found = both.segment("run", kernels, set(), str)[1]
    (expected,) = alone.segment("run", kernels[1:], set(), str)
    assert len(both.repeats.written) == 1
    assert (found.params, found.work, found.tensors) == (expected.params, expected.work, expected.tensors)


def test_functions_tell_zeros_apart():
    writer = provider.code_writer(relaxed=False, shared=False)
    calls = writer.segment("run", [layer(X, Y, zero) for zero in (0.0, -0.0, 0.0)], set(), str)
    assert calls[0].function == calls[2].function != calls[1].function


def test_scratch_is_each_calls_own():
    repeats, kernels = Repeats(), [layer(leaf(4), leaf(4)) for _ in range(2)]
    writer = provider.code_writer(relaxed=False, shared=False)

    def write():
        (call,) = writer.segment("run", kernels[:1], set(), str)
        return [replace(call, tensors=[*call.tensors, own := leaf(4)], scratch=[own])]

    (first,), (second,) = (repeats.calls([kernel], write) for kernel in kernels)
    assert [*first.tensors[:-1]] == [kernels[0].out, *kernels[0].inputs]
    assert [*second.tensors[:-1]] == [kernels[1].out, *kernels[1].inputs]
    assert second.scratch == [second.tensors[-1]] != first.scratch


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (X[index(0)] + 0.0, X[index(0)] + -0.0),
        (X[index(0)] + const(1, F32), X[index(0)] + const(2, F32)),
        (SHARED * SHARED, X[index(0)] * X[index(0)]),
        (X[index(0)] * X[index(0)], X[index(0)] * Y[index(0)]),
        (X[index(0)], leaf(5)[index(0)]),
        (guard(index(0) < 2, X[index(0)], 0.0), guard(index(0) < 3, X[index(0)], 0.0)),
        (X[checked(index(0), 4, "one")], X[checked(index(0), 3, "one")]),
        (_checks("one", "one"), _checks("one", "other")),
        (_appended("one", "one"), _appended("one", "other")),
    ],
)
def test_what_differs_has_another_form(one, other):
    assert key(made((4,), one)) != key(made((4,), other))
    assert key(made((4,), one)) == key(made((4,), one, "labels of another node"))
    assert key(made((4,), one)) != key(made((1, 4), one))


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, True), (1, 1.0), ((2, 0.0), (2, -0.0))])
def test_what_a_routine_is_told_is_told_apart(one, other):
    def told(value):
        meaning = made((4,), SHARED)
        kernel = Call("own", (X,), {"value": value}, meaning)
        kernel.outputs = meaning.outputs
        return kernel

    assert key(told(one)) == key(told(one)) != key(told(other))


def test_types_are_part_of_the_form():
    assert key(made((4,), X[index(0)])) != key(made((4,), leaf(4, dtype=I32)[index(0)]))
