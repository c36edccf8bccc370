"""Native runs that are stopped inside a kernel, by Ctrl-C and by RunOptions.terminate; sessions after os.fork()."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from kit.docs import ROOT
from pyruntime import InferenceSession, RunOptions, SessionOptions, Terminated

SOON = 5.0  # seconds: 0.03 on a quiet machine, 3 on a busy one; the kernels take over ten
ENDLESS = np.full((5000, 5000), 1 / 5000, np.float32)  # three products of 250 GFLOP
MODELS = {
    "a product": (
        "g (float[n, n] x) => (float[n, n] y) { a = MatMul (x, x)  b = MatMul (a, x)  y = MatMul (b, x) }",
        ENDLESS,
    ),
    "a procedure on one thread": (
        "g (float[n, n] x) => (float[n, n] y) { i = CumSum (x, axis)  y, k = TopK <axis = 0> (i, count) }",
        ENDLESS,
    ),
    "a loop without an end": (
        """g (float[n, n] x) => (float[n, n] y) {
             y = Loop (, true, x) <body = b (int64 i, bool c, float[n, n] v) => (bool d, float[n, n] w) {
               d = Identity (c)  z = NonZero (v)  k = Size (z)  f = Cast <to = 1> (k)  w = Div (v, f) }>
           }""",
        np.ones((64, 64), np.float32),
    ),
    "a loop that data end": (
        """g (float[n, n] x) => (float[n, n] y, int64[k] z) {
             most = Constant <value = int64 {2000000000}> ()  half = Constant <value = int64 {1000000000}> ()
             y, z = Loop (most, true, x) <body = b (int64 i, bool c, float[n, n] v)
                 => (bool d, float[n, n] w, int64 j) { d = Less (i, half)  w = Sin (v)  j = Identity (i) }>
           }""",
        np.ones((64, 64), np.float32),
    ),
    "a loop of many steps": (
        """g (float[n, n] x) => (float[n, n] y) {
             most = Constant <value = int64 {2000000000}> ()
             y = Loop (most, , x) <body = b (int64 i, bool c, float[n, n] v) => (bool d, float[n, n] w) {
               d = Identity (c)  w = Sin (v) }>
           }""",
        np.ones((64, 64), np.float32),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Background jobs of a shell ignore SIGINT, and so does Python in one. Garbage of other tests is collected first:
    errors in finalizers are lost, see https://docs.python.org/3/reference/datamodel.html#object.__del__"""
    gc.collect()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def parsed(text: str) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    for value in (np.array(True), np.array(0), np.array([4000])):
        names = {"bool": "true", "int64": "count" if value.ndim else "axis"}
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, names[value.dtype.name]))
    return model.SerializeToString()


def opened(name: str, threads: int) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    return InferenceSession(parsed(MODELS[name][0]), options)


def seconds_to_stop(
    session: InferenceSession, x: np.ndarray, stop: Callable[[], Any], error: Any, *args: Any, after: float = 0.5
) -> float:  # fmt: skip
    at: list[float] = []

    def stopping() -> None:
        at.append(time.monotonic())
        stop()

    timer = threading.Timer(after, stopping)
    timer.start()
    try:
        with pytest.raises(error):
            session.run(None, {"x": x}, *args)
    finally:
        timer.cancel()  # a late signal would end the process that tests
    return time.monotonic() - at[0]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_ctrl_c_and_terminate(name: str, threads: int) -> None:
    session, (_, x) = opened(name, threads), MODELS[name]
    options = RunOptions()
    ways: list[tuple[Callable[[], Any], Any]] = [
        (lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt),
        (lambda: setattr(options, "terminate", True), Terminated),
    ]
    for _ in range(2):  # a stopped session can be stopped again
        for stop, error in ways:
            options.terminate = False
            assert seconds_to_stop(session, x, stop, error, options) < SOON
    assert session.state == "ready"


MILLION_STEPS = {  # bodies of a Loop: how their steps run, and w, from v (8, 64)
    "written as one procedure": "t = Mul (v, half)  w = Sin (t)",
    "a product": "t = MatMul (v, r)  w = Tanh (t)",
    "runs step by step, inside WebAssembly":
        "a = Unsqueeze (v, axis)  t = Conv <pads = [1, 1]> (a, f)  w = Squeeze (t, axis)",
    "runs step by step": "z = NonZero (v)  k = Size (z)  t = Cast <to = 1> (k)  w = Div (v, t)",
}  # fmt: skip


@pytest.mark.parametrize("how", MILLION_STEPS)
def test_a_million_steps_stop_at_once(how: str) -> None:
    """Within 100 ms of the processor's time, however busy the machine is."""
    rng = np.random.default_rng(0)
    weights = {"steps": np.array(10**6), "axis": np.array([0]), "half": np.float32(0.5)}
    weights |= {"r": rng.standard_normal((64, 64)).astype(np.float32), "f": np.ones((8, 8, 3), np.float32)}
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[8, 64] x) => (float[8, 64] y) {{
            y = Loop (steps, , x) <body = b (int64 i, bool c, float[8, 64] v) => (bool d, float[8, 64] w) {{
                d = Identity (c)  {MILLION_STEPS[how]} }}> }}""")
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    session, options = InferenceSession(model.SerializeToString(), providers=["wasm"]), RunOptions()
    found = "".join(node["loop"] for node in session.explain()["nodes"])
    assert how in found or how == "a product"  # which depends on machine code
    ways: list[tuple[Callable[[], Any], Any]] = [
        (lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt),
        (lambda: setattr(options, "terminate", True), Terminated),
    ]
    for stop, error in ways:
        options.terminate = False
        used: list[float] = []

        def stopping(stop: Callable[[], Any] = stop, used: list[float] = used) -> None:
            used.append(time.process_time())
            stop()

        x = np.ones((8, 64), np.float32)
        assert seconds_to_stop(session, x, stopping, error, options, after=0.1) < SOON
        assert time.process_time() - used[0] < 0.1
    assert session.state == "ready"


def test_the_session_continues() -> None:
    session = opened("a product", 2)
    small = np.full((4, 4), 0.25, np.float32)
    before = session.memory().peak
    seconds_to_stop(session, ENDLESS, lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt)
    np.testing.assert_allclose(session.run(None, {"x": small})[0], small)
    options = RunOptions()
    options.terminate = True
    with pytest.raises(Terminated):
        session.run(None, {"x": small}, options)
    options.terminate = False
    np.testing.assert_allclose(session.run(None, {"x": small}, options)[0], small)
    assert session.memory().peak >= before


CHAIN = "".join(f"t{i + 1} = MatMul (t{i}, x)  " for i in range(400))
ON_GPU = {
    "a loop": MODELS["a loop without an end"][0].replace("w = Div (v, f)", "w = MatMul (v, v)"),
    "a loop that data end": MODELS["a loop that data end"][0]
    .replace("j = Identity (i)", "j = Identity (one)")
    .replace("half = ", "one = Constant <value = int64 {1}> ()  half = "),
    "a loop of many steps": MODELS["a loop of many steps"][0].replace("2000000000", "1000000"),
    "a step": "g (float[n, n] x) => (float[n, n] y) { t0 = Sin (x) " + CHAIN + "y = Cos (t400) }",
}


@pytest.mark.parametrize("name", ON_GPU)
def test_runs_on_the_gpu(name: str) -> None:
    """They stop between steps, and between the submissions of one. GPU and session continue."""
    session, options = InferenceSession(parsed(ON_GPU[name]), providers=["webgpu"]), RunOptions()
    assert session.explain()["placement"]["webgpu"] > 0
    x = np.full((512, 512), 1 / 512, np.float32)
    small = np.full((4, 4), 0.25, np.float32)
    if name == "a step":
        session.run(None, {"x": small})
    ways: list[tuple[Callable[[], Any], Any]] = [
        (lambda: setattr(options, "terminate", True), Terminated),
        (lambda: os.kill(os.getpid(), signal.SIGINT), KeyboardInterrupt),
    ]
    for stop, error in ways * 2:
        options.terminate = False
        assert seconds_to_stop(session, x, stop, error, options) < SOON
    assert session.explain()["placement"]["webgpu"] > 0  # the GPU is still in use
    if name == "a step":
        assert session.run(None, {"x": small})[0].shape == (4, 4)


def test_a_forked_child_has_threads_of_its_own() -> None:
    x = np.ones(3_000_000, np.float32)
    text = "g (float[n] x) => (float[n] y) { y = Relu (x) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}').SerializeToString()
    options = SessionOptions()
    options.intra_op_num_threads = 2
    session = InferenceSession(model, options)
    session.run(None, {"x": x})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            first = session.run(None, {"x": x})[0]
            second = InferenceSession(model.replace(b"Relu", b"Asin"), options).run(None, {"x": x})[0]
            code = 0 if first[0] == 1 and abs(second[0] - np.pi / 2) < 1e-6 else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@pytest.mark.parametrize("work", ["prepare", "profile", "advise", "listing", "run"])
def test_a_stopped_run_does_not_stop_what_follows(work: str) -> None:
    """Whether a run is to end is asked for that run alone."""
    session = InferenceSession(ROOT / "demo/digits/digits.onnx")
    options, feeds = RunOptions(), {"image": np.zeros((1, 1, 28, 28), np.float32)}
    options.terminate = True
    with pytest.raises(Terminated):
        session.run(None, feeds, options)
    calls = {"prepare": {"dims": {"N": 2}}, "run": {"output_names": None, "input_feed": feeds}}
    getattr(session, work)(**calls.get(work, {"input_feed": feeds}))
