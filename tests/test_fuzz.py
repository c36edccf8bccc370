"""A fixed part of `make fuzz`, and tests of the judge, which must find planted errors."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from fuzz import engine
from fuzz.case import FAILURES, Case
from fuzz.compare import Tolerance, difference, largest_changes
from fuzz.draw import Draw
from fuzz.judge import judge
from fuzz.output_types import output_types
from fuzz.peers import Peers, onnxruntime_session
from fuzz.plain_numbers import with_plain_numbers
from fuzz.pool import Worker
from fuzz.tolerance import tolerance
from fuzz.undefined import open_outputs
from pyruntime.errors import UnsupportedOp
from tests.test_fuzz_rules import PRODUCT, H, parsed

SEED = 7
LOOSE = Tolerance(4)
# Number of cases by target: together a minute of one core.
CASES = {"operators": 60, "rare": 50, "forbidden": 100, "graphs": 60, "sequences": 50, "values": 10, "models": 60,
         "loops": 60, "layers": 12, "feeds": 60, "hostile": 40, "programs": 60, "gradients": 40}  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()


@pytest.mark.parametrize("target", CASES)
def test_cases(worker: Worker, target: str) -> None:
    verdicts = {index: worker.fuzz(target, SEED, index) for index in range(CASES[target])}
    failed = [f"{n}: {v.outcome}: {v.detail}" for n, v in verdicts.items() if v.outcome in FAILURES]
    assert not failed, "\n".join(failed)
    assert sum(v.outcome == "no case" for v in verdicts.values()) < CASES[target] // 3


def test_cases_are_the_same_each_time(worker: Worker) -> None:
    once, again = (worker.make("operators", SEED, 1) for _ in range(2))
    assert once is not None and again is not None
    assert once.model == again.model and once.note == again.note


F, D = np.float32, np.int32


@pytest.mark.parametrize(
    ("got", "want", "seen"),
    [
        (F([1, 2]), F([1, 2.0000002]), False),
        (F([1, 2]), F([1, 2.001]), True),
        (F([1e-30, 1]), F([0, 1]), False),  # far below the largest
        (F([np.nan]), F([np.nan]), False),
        (F([np.nan]), F([1]), True),
        (F([np.inf]), F([3e38]), True),
        (F([3.4e38, 1]), F([np.inf, 1]), False),
        (F([3e38]), F([np.inf]), True),
        (F([-np.inf]), F([np.inf]), True),
        (F([np.inf, 1.1]), F([np.inf, 1]), True),
        (F([3.4e38, 1.1]), F([np.inf, 1]), True),
        (F([1]), F([[1]]), True),
        (F([1]), np.float64([1]), True),
        (D([1, 2]), D([1, 3]), True),
        (np.array(["a"], object), np.array(["b"], object), True),
        (np.array(["inf", "1e-9", "-0"], object), np.array(["INF", "1e-09", "-0.0"], object), False),
        (np.array(["1.5"], object), np.array(["1.25"], object), True),
        ([F([1])], [F([1]), F([2])], True),
        (None, F([1]), True),
    ],
)
def test_differences(got: object, want: object, seen: bool) -> None:
    assert bool(difference(got, want, LOOSE)) is seen


def test_movement_by_last_bits_is_no_difference() -> None:
    base, moved = [F([1.0, 5.0])], [[F([1.0, 5.1])], [F([1.0, 4.9])]]
    noise = largest_changes(moved, base)
    assert difference([F([1.0, 5.2])], base, LOOSE) and not difference([F([1.0, 5.2])], base, LOOSE, noise)
    assert difference([F([1.2, 5.0])], base, LOOSE, noise)
    near_zero = [F([1e5, 1e5])]
    by_zero = largest_changes([[F([-2e5, 1.00001e5])]], near_zero)
    assert not difference([F([np.inf, 1e5])], near_zero, LOOSE, by_zero)
    assert difference([F([1e5, np.inf])], near_zero, LOOSE, by_zero)
    root = [F([np.nan, 1.0])]  # of a rounding error
    assert not difference([F([0.01, 1.0])], root, LOOSE, largest_changes([[F([0.02, 1.0])]], root))
    assert difference([F([0.01, 1.0])], root, LOOSE, largest_changes([root], root))


class ScaledPeer(Peers):
    """Answers like onnxruntime, off by one part in a thousand."""

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        return [[y * F(1.001) for y in onnxruntime_session(model)(feeds)] for feeds in runs]


class OffsetPeer(Peers):
    """Answers like onnxruntime, off by 0.1."""

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        return [[y + F(0.1) for y in onnxruntime_session(model)(feeds)] for feeds in runs]


class OtherTextsPeer(Peers):
    """Answers like onnxruntime, with other texts."""

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        answers = [onnxruntime_session(model)(feeds) for feeds in runs]
        return [[np.full_like(y, "7") if y.dtype == object else y for y in answer] for answer in answers]


SMOOTH = Case(
    "graphs",
    parsed("(float[3] x) => (float[3] y) { z = Exp(x) w = Add(z, x) y = Sqrt(w) }").SerializeToString(),
    ({"x": F([0.5, 1, 2])},),
)


@pytest.mark.parametrize(
    ("node", "code"),
    [
        ("ai.onnx.ml.Scaler(x)", 1), ("ai.onnx.ml.Normalizer(x)", 1), ("Shape(x)", 7), ("Abs(x)", 11),
        ("Dropout(x, x)", 11), ("ai.onnx.ml.Imputer(x)", 11),
    ],
)  # fmt: skip
def test_types_come_from_inference_or_the_schema(node: str, code: int) -> None:
    text = f'<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 1]> g (double[2] x) => (y) {{ y = {node} }}'
    assert output_types(onnx.parser.parse_model(text)) == [code]


def test_strings_of_open_values_are_open() -> None:
    """Codes of NaN, as text, differ between runtimes."""
    text = "(float[2] x) => (y) { q, s, z = DynamicQuantizeLinear(x) y = Cast<to = 8>(q) }"
    case = Case("graphs", parsed(text).SerializeToString(), ({"x": F([np.nan, 1])},))
    assert judge(case, Draw("a"), OtherTextsPeer(), lambda *_: None).outcome == "open"


def test_twins_of_finite_answers_have_no_excuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of halves that could overflow, and does not."""
    x = np.full((1, 64), 60, H) * np.where(np.arange(64) % 2, H(-1), H(1))
    case = Case("operators", parsed(PRODUCT).SerializeToString(), ({"x": x, "w": np.full((64, 1), 60, H)},))
    assert open_outputs(onnx.load_from_string(case.model), case.runs[0], case.runs[0])[0]
    answers = engine.answers

    def lie(model: bytes, runs: Any, twin: Any, options: Any) -> list[Any]:
        got = answers(model, runs, twin, options)
        return [[y + H(30000) for y in run] for run in got] if twin.name == "level basic" else got

    monkeypatch.setattr(engine, "answers", lie)
    twins = [twin for twin in engine.TWINS if twin.name == "level basic"]
    assert judge(case, Draw("a"), Peers(), lambda *_: None, twins).outcome == "wrong"


def test_a_crash_of_the_slow_evaluator_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(error: Exception) -> Any:
        def run(model: bytes, feeds: Any) -> list[Any]:
            raise error

        return run

    monkeypatch.setattr(engine, "interpret", crash(ZeroDivisionError("in a formula")))
    verdicts = [judge(SMOOTH, Draw(str(n)), Peers(), lambda *_: None, []) for n in range(16)]
    assert {v.outcome for v in verdicts} == {"right", "untyped"}
    monkeypatch.setattr(engine, "interpret", crash(UnsupportedOp("it does not know it")))
    assert judge(SMOOTH, Draw("0"), Peers(), lambda *_: None, []).outcome == "right"


def test_differences_beyond_noise_are_wrong() -> None:
    case = SMOOTH
    assert judge(case, Draw("a"), Peers(), lambda *_: None).outcome == "right"
    assert judge(case, Draw("a"), ScaledPeer(), lambda *_: None).outcome == "wrong"


@pytest.mark.parametrize(("text", "x", "off", "seen"), [
    ("(float[3] x) => (float[3] y) { y = Gelu(x) }", F([0, -3, -3]), 1e-7, False),  # 1 + erf
    ("(float[3] x) => (float[3] y) { y = Gelu(x) }", F([0, -3, -3]), 1e-5, True),
    ("(int32 x) => (float[1] y) { y = BlackmanWindow(x) }", np.array(1, np.int32), 3e-8, False),  # 0.42 - 0.5 + 0.08
    ("(int32 x) => (float[1] y) { y = BlackmanWindow(x) }", np.array(1, np.int32), 3e-5, True),
])  # fmt: skip
def test_errors_of_numbers_near_one_are_absolute(text: str, x: Any, off: float, seen: bool) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]> g {text}')
    want = onnxruntime_session(model.SerializeToString())({"x": x})
    assert bool(difference([want[0] + F(off)], want, tolerance(model, {}, {"x": x}))) is seen


def test_large_terms_that_cancel_are_moved_apart() -> None:
    """Beside 2^24 and -2^24 a sum has no decimals; without them it has."""
    for seed in range(8):
        large = F(np.random.default_rng(seed).permutation([2.0**24, -(2.0**24), 0.7, 0.3]).reshape(1, 1, 4))
        text = "(float[1, 1, 4] x) => (float[1, 1, 1] y) { y = GlobalAveragePool(x) }"
        case = Case("operators", parsed(text).SerializeToString(), ({"x": large},))
        for x, outcome in ((large, "open"), (np.clip(large, -1, 1), "wrong")):
            assert (
                judge(replace(case, runs=({"x": x},)), Draw("a"), OffsetPeer(), lambda *_: None, ()).outcome == outcome
            )


class LonePeer(Peers):
    """Only onnxruntime answers, with twice the numbers if a feed exceeds a limit."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        if peer != "onnxruntime":
            return ["Refused: it does not know it"] * len(runs)
        far = [any(np.abs(x).max() > self.limit for x in feeds.values()) for feeds in runs]
        answers = super().ask(peer, model, runs)
        return [[2 * y for y in answer] if f else answer for f, answer in zip(far, answers, strict=True)]


@pytest.mark.parametrize(("limit", "outcome"), [(1e20, "open"), (0.1, "wrong")])
def test_one_peer_alone_must_disagree_on_plain_numbers(limit: float, outcome: str) -> None:
    model = parsed("(float[3] x) => (float[3] y) { y = Abs(x) }").SerializeToString()
    case = Case("operators", model, ({"x": F([0.5, 1e30, 2])},))
    assert judge(case, Draw("a"), LonePeer(limit), lambda *_: None).outcome == outcome


class TwoPeers(Peers):
    """If a feed exceeds a limit, onnxruntime answers twice the numbers, and the reference a multiple of its own."""

    def __init__(self, limit: float, factor: float) -> None:
        super().__init__()
        self.limit, self.factor = limit, factor

    def ask(self, peer: str, model: bytes, runs: Any) -> list[Any]:
        factor = 2 if peer == "onnxruntime" else self.factor
        far = [any(np.abs(x).max() > self.limit for x in feeds.values()) for feeds in runs]
        answers = super().ask(peer, model, runs)
        return [[F(factor) * y for y in a] if f else a for f, a in zip(far, answers, strict=True)]


@pytest.mark.parametrize(
    ("limit", "factor", "outcome"), [(1e20, 2, "wrong"), (1e20, 3, "open"), (0.1, 2, "wrong"), (0.1, 3, "wrong")]
)
def test_two_peers_that_do_not_agree_must_disagree_on_plain_numbers(limit: float, factor: float, outcome: str) -> None:
    model = parsed("(float[3] x) => (float[3] y) { y = Abs(x) }").SerializeToString()
    case = Case("operators", model, ({"x": F([0.5, 1e30, 2])},))
    assert judge(case, Draw("a"), TwoPeers(limit, factor), lambda *_: None).outcome == outcome


def test_pairs_of_plain_bytes_stay_in_16_bits() -> None:
    """Without VNNI onnxruntime adds two products of a uint8 and an int8 in 16 bits."""
    codes = {"x": np.array([[255, 255]], np.uint8), "w": np.array([[127], [127]], np.int8)}
    text = "(uint8[1, 2] x, int8[2, 1] w) => (int32[1, 1] y) { y = MatMulInteger(x, w) }"
    plain = with_plain_numbers(Case("operators", parsed(text).SerializeToString(), (codes,)))
    assert plain is not None
    exact = plain.runs[0]["x"].astype(int) @ plain.runs[0]["w"].astype(int)
    assert exact.item() == onnxruntime_session(plain.model)(plain.runs[0])[0].item() > 30000


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint16"])
def test_plain_numbers_are_left_alone(kind: str) -> None:
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else np.dtype(kind)
    x = np.array([0, 1, 2e4, 6e4], dtype)
    case = Case("operators", parsed("(float[4] x) => (y) { y = Abs(x) }").SerializeToString(), ({"x": x},))
    plain = with_plain_numbers(case)
    assert plain is not None and plain.runs[0]["x"].dtype == x.dtype and with_plain_numbers(plain) is None


@pytest.mark.parametrize(("liar", "first", "seen"), [
    ("WebGPU", 1.0, True), ("WebGPU", np.inf, False), ("level basic", np.inf, True), ("slow evaluator", 1.0, True),
])  # fmt: skip
def test_a_twin_that_differs_is_wrong(liar: str, first: float, seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one part in a thousand. WebGPU may assume that all numbers are finite."""
    case = replace(SMOOTH, runs=({"x": F([first, 1, 2])},))
    answers, evaluated = engine.answers, engine.evaluated

    def lie(model: bytes, runs: Any, twin: Any, options: Any) -> list[Any]:
        got = answers(model, runs, twin, options)
        return [[y * F(1.001) for y in run] for run in got] if twin.name == liar else got

    monkeypatch.setattr(engine, "answers", lie)
    if liar == "slow evaluator":
        monkeypatch.setattr(engine, "evaluated", lambda *a: [y * F(1.001) for y in evaluated(*a)])
    twins = [twin for twin in engine.TWINS if twin.name == liar]
    found = [judge(case, Draw(str(n)), Peers(), lambda *_: None, twins).kind for n in range(8 - 7 * len(twins))]
    assert any(kind.startswith(liar) for kind in found) is seen


def test_the_twin_on_the_gpu_runs_there() -> None:
    session = engine.TwinSession(SMOOTH.model, engine.WEBGPU, {}).session
    assert set(session.explain()["placement"]) == {"webgpu"}


def test_no_finalizer_swallows_the_alarm() -> None:
    """An exception raised in a finalizer is lost."""
    slept: list[None] = []

    class Slow:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            if not slept:
                slept.append(None)
                time.sleep(0.2)

    end = time.monotonic() + 2
    with pytest.raises(engine.TooSlow), engine.alarm(0.1):
        while time.monotonic() < end:
            Slow()
    gc.collect()
    assert gc.isenabled()


@pytest.mark.parametrize(("asked", "outcome"), [(("fuzz", "operators", 0, 0), "no case"),
                                                   (("judge", Case("operators", b""), "x"), "crash")])  # fmt: skip
def test_a_death_while_a_case_is_made_is_no_finding(worker: Worker, asked: Any, outcome: str) -> None:
    """onnx's shape inference aborts the process on some models."""
    worker.make("operators", 0, 0)
    os.kill(worker.process.pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (worker.process.pid, signal.SIGKILL)).start()
    assert worker._ask(asked).outcome == outcome


STARTS = """
import sys, time
from fuzz.pool import Worker
worker = Worker()
worker.make("operators", 0, 0)
print(worker.process.pid, flush=True)
time.sleep(60)
"""


def test_workers_end_with_their_parent() -> None:
    """Also a stopped worker, which reads nothing, like one in an endless kernel."""
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        os.kill(pid, signal.SIGSTOP)
        parent.kill()
    for _ in range(100):
        if not alive(pid):
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("a worker outlives its parent")


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False
