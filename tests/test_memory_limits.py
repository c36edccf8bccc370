"""Limits of the memory that all sessions of a process hold together, and what a process drops without releasing it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import pyruntime
from pyruntime import InferenceSession, InvalidInput, OrtValue, OutOfMemory, SessionOptions, set_memory_limit, stats
from pyruntime.errors import SessionFailed
from pyruntime.session.events import delivered

MIB = 1 << 20
ROWS = 512
STEP = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 20]>
    g (float[1, 2, p, 512] past, float[1, 2, s, 512] x) => (float[1, 2, t, 512] present, float[1, 2, s, t] y) {
      present = Concat <axis = 2> (past, x)
      turned = Transpose <perm = [0, 1, 3, 2]> (present)
      y = MatMul (x, turned)
    }"""
).SerializeToString()


def rows(count: int, value: float = 1) -> np.ndarray:
    return np.full((1, 2, count, 512), value, np.float32)


@pytest.fixture(autouse=True)
def no_limits() -> Iterator[None]:
    yield
    set_memory_limit(None, None)


class Decoders:
    """Sessions whose caches grow. Each run checks its results, and notes what all sessions hold."""

    def __init__(self, count: int) -> None:
        self.sessions = [InferenceSession(STEP) for _ in range(count)]
        self.caches = [OrtValue.ortvalue_from_numpy(rows(0)) for _ in range(count)]
        self.held: list[int] = []

    def step(self, k: int) -> None:
        feeds = {"past": self.caches[k], "x": OrtValue.ortvalue_from_numpy(rows(ROWS, k + 1))}
        before = self.caches[k].shape()[2]
        self.caches[k], y = self.sessions[k].run_with_ort_values(None, feeds)
        assert y.shape() == [1, 2, ROWS, before + ROWS] and (y.numpy() == 512 * (k + 1) ** 2).all()
        self.held.append(stats().arenas)

    def end(self) -> None:
        for k, cache in enumerate(self.caches):
            assert (cache.numpy() == k + 1).all()
        for session in self.sessions:
            session.release()


def test_three_sessions_take_turns_where_two_fit() -> None:
    """One after the other, then on three threads. Caches that sessions keep in their memory stay valid."""
    events: list[Any] = []
    end = pyruntime.on("memory", events.append)
    limit = 48 * MIB
    set_memory_limit(limit)
    decoders = Decoders(3)
    for _ in range(3):
        for k in range(3):
            decoders.step(k)
    parked = [s for s in decoders.sessions if s.memory().arena == 0]
    assert parked and all(s.memory().peak and s.explain()["kernels"] for s in parked)
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for _ in range(3):
                decoders.step(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and max(decoders.held) <= limit
    decoders.end()
    delivered()
    end()
    assert {(e["memory"], e["share"], e["limit"]) for e in events} == {("linear", 0.7, limit), ("linear", 0.9, limit)}
    assert all(e["used"] >= e["share"] * limit for e in events)


def test_the_session_that_is_idle_longest_is_freed_first() -> None:
    decoders = Decoders(3)
    for k in (1, 2, 0):
        decoders.step(k)
    arenas = lambda: [s.memory().arena > 0 for s in decoders.sessions]  # noqa: E731
    set_memory_limit(sum(s.memory().arena for s in decoders.sessions) - 1)
    assert arenas() == [True, False, True]
    decoders.step(2)  # needs more
    assert arenas() == [False, False, True]
    decoders.end()


def test_what_never_fits_is_an_error_and_the_sessions_stay_usable() -> None:
    decoders = Decoders(2)
    set_memory_limit(4 * MIB)
    for _ in range(2):
        with pytest.raises(OutOfMemory, match=r"sessions hold \d+, memory_limit of the process is 4194304"):
            decoders.sessions[0].run(None, {"past": rows(0), "x": rows(2048)})
        decoders.sessions[1].run(None, {"past": rows(0), "x": rows(4)})
    set_memory_limit(None)
    decoders.step(0)
    decoders.end()
    for bad in (0, -1, True, 1.5, "1"):
        with pytest.raises(InvalidInput, match="gpu_memory_limit cannot be"):
            set_memory_limit(gpu_memory_limit=bad)  # type: ignore[arg-type]


def test_sessions_that_are_freed_with_programs_from_files_and_for_feeds() -> None:
    exported = InferenceSession(InferenceSession(STEP).export(weights=True))
    fixed = InferenceSession(STEP, SessionOptions(memory_limit=32 * MIB))
    feeds = {"past": rows(0), "x": rows(4, 3)}
    wanted = fixed.run(["y"], feeds)[0]
    set_memory_limit(1)
    assert [s.memory().arena for s in (exported, fixed)] == [0, 0]
    set_memory_limit(None)
    for session in (exported, fixed):
        np.testing.assert_array_equal(session.run(["y"], feeds)[0], wanted)
        session.trim()
        assert session.profile(feeds) and session.memory().arena


def test_dropped_sessions_are_freed_and_counted() -> None:
    gc.collect()
    before = stats()
    threads = threading.active_count()
    options = SessionOptions(intra_op_num_threads=2)
    kept = []
    for _ in range(20):
        session = InferenceSession(STEP, options)
        kept.append(session.run_with_ort_values(["present"], {
            "past": OrtValue.ortvalue_from_numpy(rows(0)), "x": OrtValue.ortvalue_from_numpy(rows(4, 2)),
        })[0])  # fmt: skip
    del session
    after = stats()
    assert (after.sessions, after.arenas) == (before.sessions, before.arenas)
    assert after.dropped_sessions == before.dropped_sessions + 20
    assert all((value.numpy() == 2).all() for value in kept)  # they outlive their sessions
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and threading.active_count() > threads:
            thread.join(1)
    assert threading.active_count() <= threads
    released = InferenceSession(STEP)
    released.release()
    with pytest.raises(SessionFailed):
        released.run(None, {"past": rows(0), "x": rows(4)})
    del released
    assert stats().dropped_sessions == after.dropped_sessions and stats().sessions == before.sessions


# ── memory that the system refuses ───────────────────────────────────────────────────────────────────────────────────

REFUSED = """
import resource
import sys
import numpy as np
from onnx import parser
import pyruntime

model = parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]> g (float[N, 1024] x) => (float[N, 1024] y) {
  a = Sin (x)  b = Transpose <perm = [1, 0]> (a)  c = Cos (b)  d = Transpose <perm = [1, 0]> (c)  y = Add (d, x)
}''').SerializeToString()
limit = int(sys.argv[1]) or None
pyruntime.set_memory_limit(limit)
a, b = (pyruntime.InferenceSession(model) for _ in range(2))
small, large = np.ones((4, 1024), np.float32), np.ones((10_000, 1024), np.float32)
for session in (a, b):
    session.run(None, {"x": small})
a.run(None, {"x": large})
(used,) = [int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData")]
resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[2]), -1))
expected = np.cos(np.sin(1)) + 1
for session in (b, a, b):
    try:
        (y,) = session.run(None, {"x": large})
        assert max(abs(y.min() - expected), abs(y.max() - expected)) < 1e-5  # takes no memory
        del y
        print("ran")
    except pyruntime.OutOfMemory as error:
        print(error)
print(session.run(None, {"x": small})[0].shape)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot limit a process's memory")
@pytest.mark.parametrize("limit", [0, 1 << 40])
def test_memory_that_the_system_refuses(limit: int) -> None:
    """A run of 90 MB where 40 are left takes the memory of the idle session. Where nothing helps, the error says so,
    and small runs go on."""
    for more, lines in ((40 * MIB, 0), (-20 * MIB, 3)):
        command = [sys.executable, "-c", REFUSED, str(limit), str(more)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        found = done.stdout.splitlines()
        assert found[-1:] == ["(4, 1024)"], done.stderr
        refused = [line for line in found if "system refuses" in line or "more memory than there is" in line]
        assert len(refused) == lines and found.count("ran") == 3 - lines
