"""What the adapter's limits rule out, and the reason reported."""

import json
import re
from dataclasses import replace

import pytest

from kit import field
from pyruntime import InferenceSession
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import dtype as dt
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import X, Y, maximum
from pyruntime.providers.webgpu.adapter import Adapter, fold_groups
from pyruntime.providers.webgpu.code_writer import GpuProvider
from pyruntime.providers.webgpu.limits.support import reason

ADAPTER = Adapter()


def total(count, shape=(4,)):
    """The kernel that adds this many tensors."""
    t = Tracer(lambda w: [])
    tensors = [t.leaf("feed", shape, dt.F32) for _ in range(count)]
    return t.compute(shape, lambda i: sum((x[i] for x in tensors[1:]), start=tensors[0][i]), dt.F32).kernel


def largest(shape, dtype):
    """Of x and x: fits whatever x is."""
    t = Tracer(lambda w: [])
    x = t.leaf("feed", shape, dtype)
    return t.map(maximum(X, Y), x, x).kernel


@pytest.mark.parametrize("inputs,why", [(7, ""), (8, "9 tensors in one kernel, the GPU allows 8")])
def test_number_of_bindings(inputs, why):
    assert reason(total(inputs), ADAPTER) == why


@pytest.mark.parametrize("name", ["detector.qop", "encoder.qdq", "conformer.qdq"])
def test_quantised_models_bind_few_tensors(monkeypatch, name):
    """Their kernels read up to 21 tensors, scales and zero points among them; all run on GPUs that bind few."""
    device = pytest.importorskip("pyruntime.providers.webgpu.wgpu_device").shared_device()
    monkeypatch.setattr(device, "adapter", replace(device.adapter, storage_buffers=8))
    session = InferenceSession(field.materialize(name, small=True), providers=["webgpu"])
    assert {n["place"] for n in session.explain()["nodes"]} <= {"webgpu", "fused", "view", "plan", "init"}
    found = session.run(None, field.inputs(name, small=True))
    for got, want in zip(found, field.expected(name, small=True), strict=True):
        assert abs(got.astype("f8") - want).max() <= field.tolerance(name, small=True) * abs(want).max()


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("dtype,size", [(dt.F32, 4), (dt.I8, 1), (dt.I64, 4)], ids=str)
def test_size_of_a_binding(dtype, size, over):
    count = ADAPTER.binding_bytes // size + over
    why = f"a tensor of {count * size} bytes, the GPU allows {ADAPTER.binding_bytes}" if over else ""
    assert reason(largest((count,), dtype), ADAPTER) == why


@pytest.mark.parametrize("over", [0, 1])
def test_iterations(over):
    """A workgroup shares the sum, so its invocations do a 64th of it each, of rows of whole quads a 256th."""
    t = Tracer(lambda w: [])
    x = t.leaf("feed", (2, 256 * (65535 + over)), dt.F32)
    kernel = t.reduce_compute("sum", (2,), x.shape[1:], lambda i, r: x.at(i, r)).kernel
    why = "65536 loop iterations in one invocation, the GPU stops after 65535" if over else ""
    assert reason(kernel, replace(ADAPTER, iterations=65535)) == why
    assert reason(kernel, ADAPTER) == ""


@pytest.mark.parametrize("iterations", [0, 65535])
def test_parameters_that_a_driver_cannot_take_for_constants(iterations):
    """In every printer of a shader; on other adapters their places are constants."""
    writer = GpuProvider(replace(ADAPTER, software=True, iterations=iterations)).code_writer()
    t = Tracer(lambda w: [])
    n = sh.dim_of(t.symbol())
    x, halves = t.leaf("feed", (n, n), dt.F32), t.leaf("feed", (n, 3), dt.F16)
    product = t.reduce_compute("sum", (n, n), (n,), lambda i, j, r: x.at(i, r) * x.at(r, j))
    most = t.reduce_compute("max", (), (n, n), lambda i, j: x.at(i, j))
    outs = (t.map(X * 2.0, x), t.map(X * 2.0, halves), most, product)
    writer.segment("run", [out.kernel for out in outs], (), lambda node: None)
    for shader in json.loads(writer.finish()):
        places = re.findall(r"params\.words\[(.*?)\d\]", shader["source"])
        assert set(places) == {"at.z + " if iterations else ""}


@pytest.mark.parametrize("groups", [1, 65534, 65535, 65536, 65537, 131070, 131071, 65535 * 65535])
def test_groups_fold_into_two_dimensions(groups):
    x, y = fold_groups(groups, 65535)
    assert 1 <= x <= 65535 and 1 <= y <= 65535
    assert groups <= x * y < groups + y
