"""Sessions on the GPU: placement, crossings, symbolic shapes, control flow, 32-bit integers."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h

from kit.gpu import GPU
from pyruntime.errors import ExecutionError
from pyruntime.native.sessions.session import Session
from pyruntime.options import SessionOptions
from pyruntime.runtime import planner

pytest.importorskip("wgpu")

import wgpu

from pyruntime.providers.webgpu import wgpu_bindings, wgpu_device
from pyruntime.providers.webgpu.wgpu_host import GpuHost


def model(nodes, inputs, outputs, weights=(), opset=17):
    def info(items):
        return [h.make_tensor_value_info(n, t, s) for n, t, s in items]

    tensors = [onnx.numpy_helper.from_array(v, n) for n, v in weights]
    graph = h.make_graph(nodes, "g", info(inputs), info(outputs), tensors)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9).SerializeToString()


def steps(session):
    (*_, executor) = session.executors.values()
    return [s["op"] for b in executor.header["blocks"][1:] for s in b["steps"]]


def both(data, feeds, providers=("webgpu",)):
    """Outputs on the GPU, checked against those of WebAssembly, and the session."""
    want = Session(data, providers=["wasm"]).run(None, feeds)
    session = Session(data, providers=list(providers))
    for _ in range(2):  # the second run replays
        got = session.run(None, feeds)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return session


NETWORK = model(
    [
        h.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        h.make_node("Relu", ["c"], ["r"]),
        h.make_node("GlobalAveragePool", ["r"], ["p"]),
        h.make_node("Flatten", ["p"], ["f"]),
        h.make_node("Gemm", ["f", "g"], ["o"]),
        h.make_node("Softmax", ["o"], ["s"]),
        h.make_node("ArgMax", ["s"], ["i"], axis=1),
    ],
    [("x", T.FLOAT, ["N", 3, "H", "W"])],
    [("s", T.FLOAT, ["N", 5]), ("i", T.INT64, ["N", 1])],
    [
        (n, np.random.default_rng(0).standard_normal(s).astype(np.float32))
        for n, s in (("w", (8, 3, 3, 3)), ("b", (8,)), ("g", (8, 5)))
    ],
)


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 3, 20, 9), (0, 3, 4, 4)], ids=str)
def test_everything_on_the_gpu(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    assert set(steps(both(NETWORK, {"x": x}))) == {"copy", "gpu"}


def test_shapes_may_change_between_runs():
    gpu, cpu = (Session(NETWORK, providers=[p]) for p in ("webgpu", "wasm"))
    for n, size in ((1, 4), (3, 9), (1, 4), (2, 40)):
        x = np.random.default_rng(n).standard_normal((n, 3, size, size)).astype(np.float32)
        np.testing.assert_allclose(gpu.run(None, {"x": x})[0], cpu.run(None, {"x": x})[0], rtol=1e-5)


@pytest.mark.parametrize("queries", [2, 4, 4096])
def test_profile_takes_more_kernels_than_a_query_set(queries, monkeypatch):
    monkeypatch.setattr("pyruntime.providers.webgpu.wgpu_host.QUERIES", queries)
    session = Session(NETWORK, providers=["webgpu"])
    found = session.profile({"x": np.ones((2, 3, 8, 8), np.float32)})
    calls = [c for s in session.latest().header["blocks"][1]["steps"] if s["op"] == "gpu" for c in s["calls"]]
    assert len(calls) > 4
    assert [(t.node, t.kernel) for t in found if t.node] == [(c["node"], c["kernel"]) for c in calls]


def test_so_many_pipelines_are_kept(monkeypatch):
    monkeypatch.setattr("pyruntime.providers.webgpu.wgpu_host.PIPELINES", 2)
    own = GpuHost().own
    monkeypatch.setattr(own, "pipelines", {})
    both(NETWORK, {"x": np.ones((2, 3, 8, 8), np.float32)})
    assert len(own.pipelines) == 2


def test_what_the_gpu_cannot_do_runs_at_home():
    data = model(
        [
            h.make_node("Exp", ["x"], ["e"]),
            h.make_node("Cast", ["e"], ["d"], to=T.DOUBLE),
            h.make_node("Sqrt", ["d"], ["q"]),
            h.make_node("Cast", ["q"], ["f"], to=T.FLOAT),
            h.make_node("MatMul", ["f", "x"], ["y"]),
        ],
        [("x", T.FLOAT, [40, 40])],
        [("y", T.FLOAT, [40, 40])],
    )
    x = np.random.default_rng(2).standard_normal((40, 40)).astype(np.float32)
    assert "wasm" in steps(both(data, {"x": x}))


def test_small_work_stays_at_home():
    data = model([h.make_node("Add", ["x", "x"], ["y"])], [("x", T.FLOAT, [100])], [("y", T.FLOAT, [100])])
    x = np.arange(100, dtype=np.float32)
    assert steps(both(data, {"x": x}, (GPU, "wasm"))) == ["wasm"]
    assert "gpu" in steps(both(data, {"x": x}))


def test_branches_and_loops():
    def branch(op):
        out = h.make_tensor_value_info("b", T.FLOAT, ["n"])
        return h.make_graph([h.make_node(op, ["x", "x"], ["b"])], op, [], [out])

    data = model(
        [
            h.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
            h.make_node("Greater", ["s", "zero"], ["c"]),
            h.make_node("If", ["c"], ["y"], then_branch=branch("Add"), else_branch=branch("Mul")),
            h.make_node("Exp", ["y"], ["z"]),
        ],
        [("x", T.FLOAT, ["n"])],
        [("z", T.FLOAT, ["n"])],
        [("zero", np.float32(0))],
    )
    for sign in (1, -1):
        both(data, {"x": sign * np.linspace(0.1, 1, 7, dtype=np.float32)})


def test_integers_of_64_bits():
    """Sums, which may need more bits than operands that fit, are made at home; what only moves is refused."""
    data = model([h.make_node("Add", ["x", "x"], ["y"])], [("x", T.INT64, [3])], [("y", T.INT64, [3])])
    both(data, {"x": np.array([5, -7, 2**40])})
    data = model([h.make_node("Transpose", ["x"], ["y"])], [("x", T.INT64, [3, 1])], [("y", T.INT64, [1, 3])])
    both(data, {"x": np.array([[5], [-7], [2**31 - 1]])})
    session = Session(data, providers=["webgpu"])
    with pytest.raises(ExecutionError, match="32-bit"):
        session.run(None, {"x": np.array([[2**40], [0], [0]])})
    assert session.run(None, {"x": np.array([[1], [2], [3]])})[0].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint8, np.bool_, np.int16], ids=str)
def test_narrow_types_cross(dtype):
    kind = h.np_dtype_to_tensor_dtype(np.dtype(dtype))
    data = model(
        [h.make_node("Transpose", ["x"], ["t"]), h.make_node("Concat", ["t", "t"], ["y"], axis=0)],
        [("x", kind, [3, 7])],
        [("y", kind, [14, 3])],
    )
    both(data, {"x": np.random.default_rng(3).integers(0, 2, (3, 7)).astype(dtype)})


def test_parameters_of_new_shapes_do_not_pile_up(monkeypatch):
    """Each shape's plan has a block of 256 bytes a call on the GPU."""
    limit = 4096
    monkeypatch.setattr(planner, "PARAMETERS", limit)
    data = model([h.make_node("Relu", ["x"], ["y"])], [("x", T.FLOAT, ["N"])], [("y", T.FLOAT, ["N"])])
    session = Session(data, providers=["webgpu"])
    (executor,) = session.executors.values()
    for n in range(1, 60):
        x = np.linspace(-1, 1, n, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
        assert executor.gpu.parameter_bytes <= limit + 256


def test_parameters_of_kept_plans_stay_as_memory_grows(monkeypatch):
    """Shapes come again after larger ones, for which the arena and the buffer of parameter blocks grew."""
    monkeypatch.setattr(wgpu_bindings, "LEAST", 512)
    data = model([h.make_node("Relu", ["x"], ["y"])], [("x", T.FLOAT, ["N"])], [("y", T.FLOAT, ["N"])])
    session = Session(data, providers=["webgpu"])
    (executor,) = session.executors.values()
    used, generations = [], []
    for n in (10, 5000, 10, 90000, 5000, 10):
        x = np.linspace(-1, 1, n, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))
        used.append(executor.gpu.parameter_bytes // 256)
        generations.append(executor.gpu.host.generation)
    assert used == [1, 2, 2, 3, 3, 3] and executor.gpu.host.parameters.buffer.size > 512
    assert generations[0] < generations[1] < generations[3]


def test_bind_groups_stay_as_tensors_grow(monkeypatch):
    """Two copies to the GPU one behind the other: the second begins from a new state whenever the first is laid out
    anew. The buffer of parameter blocks grows under way."""
    monkeypatch.setattr(wgpu_bindings, "LEAST", 1024)
    nodes = [
        h.make_node("Concat", ["a", "b"], ["c"], axis=0),
        h.make_node("CumSum", ["c", "zero"], ["d"]),
        h.make_node("ReduceMax", ["d"], ["most"], keepdims=0),
        h.make_node("Div", ["d", "most"], ["y"]),
    ]
    feeds, outputs = [("a", T.FLOAT, ["N"]), ("b", T.FLOAT, ["M"])], [("y", T.FLOAT, None), ("c", T.FLOAT, None)]
    data = model(nodes, feeds, outputs, [("zero", np.array(0))])
    session = Session(data, providers=["webgpu"])
    (executor,) = session.executors.values()
    made, real = [], executor.gpu.host._group
    monkeypatch.setattr(executor.gpu.host, "_group", lambda *args: made.append(1) or real(*args))
    steps, run = [], executor.gpu.run
    monkeypatch.setattr(executor.gpu, "run", lambda step, check: steps.append(step) or run(step, check))
    dispatched = 0
    for n in range(300, 360):
        a, b = np.linspace(0, 1, n, dtype=np.float32), np.linspace(0, 2, n // 2 + 1, dtype=np.float32)
        y, c = session.run(None, {"a": a, "b": b})
        sums = np.cumsum(np.concatenate([a, b]), dtype=np.float64)
        np.testing.assert_array_equal(c, np.concatenate([a, b]))
        np.testing.assert_allclose(y, sums / sums.max(), rtol=1e-5, atol=1e-6)
        dispatched += len(steps[-1].dispatches)
    assert executor.gpu.host.parameters.buffer.size > 1024
    assert len(made) < dispatched / 4


@pytest.mark.parametrize(("preset", "preference"), [(None, "high-performance"), ("power", "low-power")])
def test_a_preset_chooses_the_adapter(preset, preference, monkeypatch):
    asked, real = [], wgpu.gpu.request_adapter_sync

    def request(**options):
        asked.append(options["power_preference"])
        return real(**options)

    monkeypatch.setattr(wgpu_device, "_devices", {})
    monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", request)
    data = model([h.make_node("Sin", ["x"], ["y"])], [("x", T.FLOAT, [4])], [("y", T.FLOAT, None)])
    session = Session(data, SessionOptions(preset=preset), providers=["webgpu"])
    assert asked == [preference] and session.run(None, {"x": np.zeros(4, np.float32)})[0].shape == (4,)
