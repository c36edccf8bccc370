"""Threads natively: the same bits as one thread, run after run, whoever comes; traps; small kernels; groups."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from kit import small_models as models
from kit import trapping_kernel
from kit.models import MODELS
from pyruntime import InferenceSession, SessionOptions
from pyruntime.codegen import linear_memory
from pyruntime.errors import ExecutionError
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import const
from pyruntime.ir.kernel import Map, Reduce
from pyruntime.providers.wasm import provider
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.threads import cost, spmd
from pyruntime.providers.wasm.threads import work_claims as claims
from pyruntime.providers.wasm.wasmtime_host import WasmHost

SECONDS = 1.0  # for the repeated runs of a model


def threaded(model: Any, threads: int) -> InferenceSession:
    path = model if isinstance(model, bytes) else str(model)
    return InferenceSession(path, SessionOptions(intra_op_num_threads=threads))


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_model_on_two_threads(name: str) -> None:
    """Right, and the same bits in up to twenty runs."""
    model = MODELS[name]
    session, feeds = threaded(model.path(), 2), model.feeds()
    first = session.run(None, feeds)
    model.check(first)
    end = time.monotonic() + SECONDS
    for n in range(19):
        assert same(first, session.run(None, feeds)), f"run {n + 2} differs"
        if time.monotonic() > end:
            break


SMALL = ["chain", "softmax", "product", "steps"]


def check_bits(name: str, threads: int, runs: int = 20) -> InferenceSession:
    """The same bits as on one thread, run after run."""
    proto = getattr(models, name)()
    one, many = threaded(proto.SerializeToString(), 1), threaded(proto.SerializeToString(), threads)
    rng = np.random.default_rng(0)
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    for n in range(runs):
        feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
        assert same(one.run(None, feeds), many.run(None, feeds)), f"run {n + 1} differs"
    return many


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("name", SMALL)
def test_same_bits_on_any_number_of_threads(name: str, threads: int) -> None:
    check_bits(name, threads)


def never(host: WasmHost, jobs: Any) -> list[BaseException | None]:
    jobs[0]()
    return [None] * len(jobs)


def late(host: WasmHost, jobs: Any) -> list[BaseException | None]:
    for job in jobs:
        job()
    return [None] * len(jobs)


@pytest.mark.parametrize("helpers", [never, late])
@pytest.mark.parametrize("name", SMALL)
def test_the_leader_waits_for_nobody(name: str, helpers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WasmHost, "errors", helpers)
    check_bits(name, 3, runs=3)


@pytest.mark.parametrize("before", [2**31 - 3, -3])
def test_epochs_begin_again(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start = WasmHost.load

    def load(host: WasmHost, wasm: bytes) -> Any:
        host.memory[linear_memory.EPOCH : linear_memory.EPOCH + 4].view("<i4")[0] = before
        return start(host, wasm)

    monkeypatch.setattr(WasmHost, "load", load)
    many = check_bits("steps", 3)
    epoch = int(many._native.executors[()].host.memory[linear_memory.EPOCH : linear_memory.EPOCH + 4].view("<i4")[0])
    assert (epoch - before) % 2**32 > 20


@pytest.fixture
def trap(request: pytest.FixtureRequest) -> Iterator[None]:
    trapping_kernel.install(request.param)
    yield
    trapping_kernel.uninstall()


@pytest.mark.parametrize("trap", [0, 1, 2], indirect=True)
def test_a_trap_stops_all_threads_and_not_the_session(trap: None) -> None:
    session = threaded(models.steps().SerializeToString(), 3)
    x = np.ones((512, 1024), np.float32)
    before = session.run(None, {"x": x})
    for _ in range(3):
        with pytest.raises(ExecutionError, match="out of bounds"):
            session.run(None, {"x": x * np.float32(trapping_kernel.TRIGGER)})
    after = session.run(None, {"x": x})
    assert same(before, after)
    np.testing.assert_allclose(after[1], 1 + np.tanh(1), rtol=1e-5)


def test_a_word_stops_all_threads_within_a_kernel() -> None:
    """As a page sets it while the kernels run: the same bits in portions, then a trap, then all as before."""
    session = threaded(models.model(*products()).SerializeToString(), 2)
    host = session._native.executors[()].host
    word = host.memory[linear_memory.STOP : linear_memory.STOP + 4].view("<i4")  # a shared memory grows where it is
    small, large = (np.full((n, n), 1 / n, np.float32) for n in (300, 2500))
    expected = session.run(None, {"x": small})
    word[0] = 7
    assert same(expected, session.run(None, {"x": small}))
    at: list[float] = []

    def stop() -> None:
        at.append(time.monotonic())
        word[0] = -7

    threading.Timer(0.5, stop).start()
    with pytest.raises(ExecutionError, match="unreachable"):
        session.run(None, {"x": large})
    assert time.monotonic() - at[0] < 2  # the products take three seconds and more
    word[0] = 0
    assert same(expected, session.run(None, {"x": small}))


def products() -> tuple[Any, ...]:
    """y = x @ x, eight times."""
    names = ["x", *[f"t{n}" for n in range(7)], "y"]
    nodes = [onnx.helper.make_node("MatMul", [a, "x"], [b]) for a, b in itertools.pairwise(names)]
    x, y = ((name, onnx.TensorProto.FLOAT, ["n", "n"]) for name in "xy")
    return nodes, [x], [y]


@pytest.mark.parametrize("claimed", [0, 1])
def test_the_leader_does_not_wait_for_a_helper_that_failed(claimed: int, tmp_path: Path) -> None:
    """In a chunk, or before it had claimed any."""
    module = Module(shared=True)
    claims.poison(module)
    module.function("lead").i32(1).i32(0).call(claims.open_group(module))
    help_ = module.function("help", [], ["i32"])
    help_.i32(1).i32(1).i32(2).call(claims.claim(module))
    claims.end_group(module.function("finish", ["i32"]), 0)
    host = WasmHost(2, cache=tmp_path)
    k = host.load(module.to_bytes())
    k["lead"]()
    for _ in range(claimed):
        assert k["help"]() == 1  # the last of two
    k["poison"](1)
    caught: list[BaseException] = []

    def finish() -> None:
        try:
            k["finish"](0)
        except ExecutionError as error:
            caught.append(error)

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive() and "unreachable" in str(caught)


def test_one_thread_has_no_atomics() -> None:
    for threads in (0, 1):
        session = threaded(models.softmax().SerializeToString(), threads)
        executor = session._native.executors[()]
        assert not executor.host.shared
        assert "poison" not in executor.functions
        assert all("fork" not in step for steps in executor.blocks for step, _ in steps)


def test_small_steps_wake_nobody() -> None:
    session = threaded(models.affine().SerializeToString(), 2)
    executor = session._native.executors[()]
    out = executor.run({"x": np.ones((1, 4), np.float32)})
    assert out["y"].shape == (1, 3)
    (entered,) = executor.plan.root.next.values()
    assert not any(found.is_parallel for found in entered.state.next.values())


# ── groups ──


class Recorder:
    """The calls of each segment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.segments: dict[str, list[spmd.Part]] = {}
        run = spmd.run

        def recording(module: Any, name: str, segment: Any, made: set[int]) -> None:
            run(module, name, segment, made)
            self.segments[name] = segment

        monkeypatch.setattr(spmd, "run", recording)


def attention_inputs() -> bytes:
    """Three projections of one input, then a product of two of them."""
    from onnx import TensorProto, helper

    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((64, 64)).astype(np.float32) for name in "qkv"}
    nodes = [helper.make_node("MatMul", ["x", name], [name + "x"], name=name) for name in "qkv"]
    nodes.append(helper.make_node("MatMul", ["qx", "kx"], ["y"], name="product"))
    shape = (TensorProto.FLOAT, [64, 64])
    made: onnx.ModelProto = models.model(nodes, [("x", *shape)], [("y", *shape), ("vx", *shape)], weights)
    return made.SerializeToString()


def test_sizes_with_more_factors_than_a_dim_may_have() -> None:
    """Whether a call pays is decided by two comparisons, which have the factors of its sizes."""
    dims = [sh.symbol(f"d{n}") for n in range(2 * sh.MOST_FACTORS // 3)]
    for kernel in (Map(const(1.0)), Reduce("sum", tuple(dims), const(1.0))):
        assert isinstance(cost.pays(kernel.making(dims, F32), sh.size(dims)), sh.Dim)


def test_projections_of_one_input_share_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    session = threaded(attention_inputs(), 2)
    parts = recorder.segments["run_1_0"]
    assert [p.first for p in parts] == [False, False, False, True]
    x = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    assert same(session.run(None, {"x": x}), threaded(attention_inputs(), 1).run(None, {"x": x}))


def test_a_call_that_could_get_freed_memory_starts_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    threaded(models.chain().SerializeToString(), 2)
    parts = recorder.segments["run_1_0"]
    assert all(p.first for p in parts[1:])


def test_builder_for_one_thread_is_plain() -> None:
    assert provider.code_writer(relaxed=False, shared=False).threads == 1
