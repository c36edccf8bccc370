"""Concurrent runs of one session: each is right, even if others fail, stop or fork."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, OutOfMemory, RunOptions, SessionOptions, Terminated
from pyruntime.errors import ExecutionError
from pyruntime.host import FUNCTIONS
from pyruntime.native.execution.executor import Executor
from pyruntime.native.sessions import compiler, run_queue

MEETING = """g (string[k] s, float[n, 64] x) => (bool[k] matched, float[n, 64] y) {
    a = MatMul (x, w)  matched = RegexFullMatch <pattern: string = "a"> (s)  y = MatMul (a, w) }"""
WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def model(text: str, **weights: np.ndarray) -> bytes:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    made.graph.initializer.extend([onnx.numpy_helper.from_array(value, name) for name, value in weights.items()])
    return made.SerializeToString()


def opened(text: str, threads: int = 1, **weights: np.ndarray) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    return InferenceSession(model(text, **weights), options)


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """The result or the error of each job, on a thread of its own."""
    found: list[Any] = [None] * len(jobs)

    def work(n: int) -> None:
        try:
            found[n] = jobs[n]()
        except BaseException as error:
            found[n] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


@pytest.fixture(autouse=True)
def _cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine with one core."""
    monkeypatch.setattr(run_queue, "cores", lambda: 4)


@contextmanager
def meeting(monkeypatch: pytest.MonkeyPatch, runs: int, seconds: float = 30) -> Iterator[list[int]]:
    """In this context each run of MEETING waits until `runs` of them are at the host step. Yields a list with a number
    for each meeting."""
    met: list[int] = []
    barrier = threading.Barrier(runs, action=lambda: met.append(runs), timeout=seconds)
    real = FUNCTIONS["regex_full_match"]

    def wait(*args: Any) -> Any:
        barrier.wait()
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setitem(FUNCTIONS, "regex_full_match", wait)
        yield met


def feeds(n: int) -> dict[str, Any]:
    x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
    return {"s": np.array(["a", "b"] * n, object), "x": x}


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_of_different_shapes_are_concurrent(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(MEETING, threads, w=WEIGHT)
    sizes = (1, 300, 7, 1000)
    expected = [session.run(None, feeds(n)) for n in sizes]
    for _ in range(5):
        with meeting(monkeypatch, len(sizes)) as met:
            found = at_once(*[lambda n=n: session.run(None, feeds(n)) for n in sizes])
        assert met == [4]
        for got, want in zip(found, expected, strict=True):
            assert all((a == b).all() for a, b in zip(got, want, strict=True))
    assert session.state == "ready"


def test_no_more_runs_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_queue, "cores", lambda: 2)
    session, inside, most = opened(MEETING, w=WEIGHT), [0], [0]
    real, lock = FUNCTIONS["regex_full_match"], threading.Lock()

    def count(*args: Any) -> Any:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.02)
        with lock:
            inside[0] -= 1
        return real(*args)

    monkeypatch.setitem(FUNCTIONS, "regex_full_match", count)
    at_once(*[lambda: session.run(None, feeds(3))] * 6)
    assert most == [2]


def pss() -> int:
    """Bytes of RAM of this process; its share of shared pages."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * int(re.search(r"^Pss: +(\d+)", text, re.M)[1])  # type: ignore[index]


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_concurrent_runs_share_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    big = np.random.default_rng(0).standard_normal((64, 300_000), np.float32)
    text = MEETING.replace("y = MatMul (a, w)", "y = MatMul (a, w)  z = MatMul (a, big)")
    session = opened(text.replace("64] y)", "64] y, float[n, 300000] z)"), w=WEIGHT, big=big)
    session.run(None, feeds(2))
    gc.collect()
    alone, before = session.memory(), pss()
    with meeting(monkeypatch, 4):
        at_once(*[lambda: session.run(None, feeds(2))] * 4)
    assert pss() - before < big.nbytes / 2
    report = session.memory()
    assert report.weights < 1.01 * big.nbytes and report.arena - alone.arena < big.nbytes / 4
    session.trim()
    assert session.memory().arena < report.arena


NUMBERS = np.array([str(n % 7) for n in range(64)], object)
HOLED = """g (string[k] s, float[n, 64] x) => (bool[k] matched, float[n, 64] y) {
    a = MatMul (x, w)  f = Cast <to: int = 1> (numbers)  b = Add (a, f)
    matched = RegexFullMatch <pattern: string = "a"> (s)  y = MatMul (b, w) }"""


def test_gaps_between_weights_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant made of strings comes after the weight that init packs and then frees."""
    session = opened(HOLED, w=WEIGHT, numbers=NUMBERS)
    want, executor = session.run(None, feeds(50)), session._native.latest()
    hole, size = executor.plan.root.place.arena.free[0]
    assert size >= WEIGHT.nbytes
    taken, real = executor.host.memory[hole : hole + size], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *args: (real(*args), taken.fill(7))[0])  # as a concurrent run might
    executor.twin()
    assert (taken == 7).all()
    with meeting(monkeypatch, 2):
        found = at_once(*[lambda: session.run(None, feeds(50))] * 2)
    assert all((y == want[1]).all() for _, y in found)


@pytest.mark.parametrize("room", [1 << 20, 1])
def test_partial_writes_to_the_shared_file(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing can be written any more, runs queue."""
    session, real, left = opened(MEETING, w=WEIGHT), os.pwrite, [room]
    want = session.run(None, feeds(50))

    def write(file: int, data: Any, at: int) -> int:
        size = min(1000, left[0], len(data))
        left[0] -= size
        return real(file, bytes(data)[:size], at)

    monkeypatch.setattr(os, "pwrite", write)
    if room == 1:
        with pytest.raises(OutOfMemory):
            session._native.latest().twin()
    with meeting(monkeypatch, 1 if room == 1 else 3):
        found = at_once(*[lambda: session.run(None, feeds(50))] * 3)
    assert all((y == want[1]).all() for _, y in found)
    assert left[0] < room and bool(session._native.latest().twins) == (room > 1)


def test_one_run_fails_and_others_continue() -> None:
    text = "g (float[n, 64] x, int64[k] i) => (float[k, 64] y) { a = MatMul (x, w)  y = Gather (a, i) }"
    session, x = opened(text, 2, w=WEIGHT), feeds(200)["x"]
    good, bad = np.arange(100), np.array([0, 200])
    (want,) = session.run(None, {"x": x, "i": good})

    def many(i: np.ndarray) -> list[Any]:
        found: list[Any] = []
        for _ in range(20):
            try:
                found.append(session.run(None, {"x": x, "i": i})[0])
            except ExecutionError as error:
                found.append(error)
        return found

    rights, wrongs, more = at_once(lambda: many(good), lambda: many(bad), lambda: many(good))
    assert all((y == want).all() for y in (*rights, *more))
    assert all("200" in str(error) for error in wrongs)


def test_random_numbers_do_not_depend_on_other_runs() -> None:
    session = opened("g (float[n] x) => (float[n] y) { r = RandomNormalLike (x)  y = Add (x, r) }")
    x = np.zeros(1000, np.float32)
    (want,) = session.run(None, {"x": x})
    for found in at_once(*[lambda: [session.run(None, {"x": x})[0] for _ in range(10)]] * 4):
        assert all((y == want).all() for y in found)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_run_is_stopped_and_others_continue(threads: int) -> None:
    session = opened("g (float[n, n] x) => (float[n, n] y) { a = MatMul (x, x)  y = MatMul (a, x) }", threads)
    small = np.full((4, 4), 0.25, np.float32)
    endless, options = np.full((5000, 5000), 1 / 5000, np.float32), RunOptions()

    def others() -> bool:
        time.sleep(0.2)  # the endless run is under way
        before = [session.run(None, {"x": small})[0] for _ in range(50)]
        options.terminate = True
        return all((y == small).all() for y in [*before, *[session.run(None, {"x": small})[0] for _ in range(50)]])

    stopped, right = at_once(lambda: session.run(None, {"x": endless}, options), others)
    assert isinstance(stopped, Terminated) and right is True
    session.trim()
    assert (session.run(None, {"x": small})[0] == small).all()


def test_changes_of_a_session_wait_for_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(MEETING, w=WEIGHT)
    want = session.run(None, feeds(50))

    def runs() -> bool:
        found = [session.run(None, feeds(50)) for _ in range(20)]
        return all((a == b).all() for results in found for a, b in zip(results, want, strict=True))

    def changes() -> None:
        for _ in range(5):
            session.trim()
            session.profile(feeds(3))
            session.set_providers(["CPUExecutionProvider"])

    assert at_once(runs, changes, runs) == [True, None, True]


def test_runs_queue_with_a_memory_limit() -> None:
    options = SessionOptions()
    options.memory_limit = 8 << 20
    text = "g (float[n] x) => (float[n] y) { a = CumSum (x, zero)  y = CumSum (a, zero) }"
    session = InferenceSession(model(text, zero=np.array(0)), options)
    x = np.ones(500_000, np.float32)
    (want,) = session.run(None, {"x": x})
    for found in at_once(*[lambda: session.run(None, {"x": x})[0]] * 4):
        assert (found == want).all()
    assert session.memory().arena <= options.memory_limit


def test_runs_queue_without_memory_for_another_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(executor: Executor) -> Executor:
        raise OutOfMemory("none left")

    monkeypatch.setattr(Executor, "twin", full)
    session = opened(MEETING, w=WEIGHT)
    want = session.run(None, feeds(50))
    for found in at_once(*[lambda: session.run(None, feeds(50))] * 4):
        assert all((a == b).all() for a, b in zip(found, want, strict=True))


def test_a_child_forked_during_a_run_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(MEETING, w=WEIGHT)
    want = session.run(None, feeds(2))
    codes: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                monkeypatch.undo()
                results = at_once(*[lambda: session.run(None, feeds(2))] * 3)
                code = 0 if all((r[1] == want[1]).all() for r in results) else 2
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    real = FUNCTIONS["regex_full_match"]
    monkeypatch.setitem(FUNCTIONS, "regex_full_match", lambda *args: (fork(), real(*args))[1])
    assert (session.run(None, feeds(2))[1] == want[1]).all()
    assert codes == [0]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_child_forked_while_threads_are_in_kernels_can_run(runs: int) -> None:
    session, options = (
        opened("g (float[n, n] x) => (float[n, n] y) { a = MatMul (x, x)  y = MatMul (a, x) }"),
        RunOptions(),
    )
    small = np.full((4, 4), 0.25, np.float32)
    endless = np.full((5000, 5000), 1 / 5000, np.float32)
    code: list[int] = []

    def fork() -> None:
        time.sleep(0.5)  # the other threads are in kernels
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            good = False
            try:
                found = at_once(*[lambda: [session.run(None, {"x": small})[0] for _ in range(5)]] * 3)
                good = all((y == small).all() for results in found for y in results) and session.state == "ready"
                session.trim()
            finally:
                os._exit(0 if good else 1)
        code.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        options.terminate = True

    *stopped, error = at_once(*[lambda: session.run(None, {"x": endless}, options)] * runs, fork)
    assert error is None and code == [0] and all(isinstance(e, Terminated) for e in stopped)
    assert (session.run(None, {"x": small})[0] == small).all()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ctrl-C in a destructor
def test_ctrl_c_anywhere_leaves_the_session_ready() -> None:
    """The test stores the errors, as a prompt does with the last one: their tracebacks hold the interrupted frames."""
    session, x, armed = opened("g (float[n] x) => (float[n] y) { y = Sin (x) }"), np.ones(4, np.float32), [False]
    (want,) = session.run(None, {"x": x})

    def interrupt(*_: Any) -> None:
        if armed[0]:
            raise KeyboardInterrupt

    before, random, kept = signal.signal(signal.SIGALRM, interrupt), np.random.default_rng(0), list[BaseException]()
    gc.collect()
    gc.disable()
    try:
        while len(kept) < 200:
            try:
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-4))
                for _ in range(50):
                    session.run(None, {"x": x})
            except KeyboardInterrupt as error:
                kept.append(error)
            armed[0] = False
            assert session.state == "ready"
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert at_once(session.trim) == [None]
    assert (session.run(None, {"x": x})[0] == want).all()


def test_run_async_gives_each_callback_its_results() -> None:
    session = opened(MEETING, w=WEIGHT)
    told: dict[int, Any] = {}
    done = threading.Semaphore(0)

    def callback(results: list[Any], n: int, error: str) -> None:
        told[n] = (results, error)
        done.release()

    for n in (1, 2, 3, 4, 5):
        session.run_async(["y"], feeds(n), callback, n)
    assert all(done.acquire(timeout=30) for _ in range(5))
    for n, (results, error) in told.items():
        assert not error and (results[0] == session.run(["y"], feeds(n))[0]).all()


@pytest.mark.parametrize(("preset", "threads", "beside"), [
    (None, 1, True), ("latency", 4, True), ("throughput", 1, True), ("power", 1, False),
])  # fmt: skip
def test_presets(preset: str | None, threads: int, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "cores", lambda: 4)
    options = SessionOptions(preset=preset)
    session = InferenceSession(model(MEETING, w=WEIGHT), options)
    assert session._native.latest().host.threads == threads
    want = session.run(None, feeds(50))
    for found in at_once(*[lambda: session.run(None, feeds(50))] * 3):
        assert (found[1] == want[1]).all()
    with meeting(monkeypatch, 2, seconds=0.5) as met:
        at_once(*[lambda: session.run(None, feeds(50))] * 2)
    assert bool(met) == beside
    options.intra_op_num_threads = 2  # overrides the preset
    assert InferenceSession(model(MEETING, w=WEIGHT), options)._native.latest().host.threads == 2
