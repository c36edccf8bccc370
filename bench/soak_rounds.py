"""Rounds of a soak, the same natively and in pages.

A round creates sessions, runs them, provokes errors, and releases everything; an unexpected result fails the round.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from bench.soak_seats import ADD, TURNS, Seat
from kit import small_models as models
from kit.conformance.compare import assert_equal
from kit.probes import PROBES
from pyruntime import PyRuntimeError, errors

AFFINE, SOFTMAX = (make().SerializeToString() for make in (models.affine, models.softmax))
OPSET = '<ir_version: 10, opset_import: ["" : 20]>'
GATHER, EXPAND = (
    onnx.parser.parse_model(f"{OPSET} g {text}").SerializeToString()
    for text in (
        "(float[N, 4] x, int64[K] i) => (float[K, 4] y) { y = Gather <axis = 0> (x, i) }",
        "(float[N] x, int64[R] dims) => (float[] y) { y = Expand (x, dims) }",
    )
)
BUGS = {"PyRuntimeError", "InternalError", "MemoryFault"}  # stands for any error of ours
REFUSALS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, PyRuntimeError)}
DAMAGED = 12  # files a round
LIMIT = 1 << 24  # bytes
DROPPED = 5  # sessions a round
ALL = 12 << 20  # bytes of all sessions: two of three fit
LONG = 60  # runs, after which threads have joined


def refuses(seat: Seat, wanted: set[str], action: Callable[[], Any]) -> bool:
    """Whether the action ends with an error of ours. Errors: AssertionError for an unexpected error"""
    try:
        action()
    except seat.refused as error:
        assert seat.kind(error) in wanted, error
        return True
    return False


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ models.WEIGHT + models.BIAS, 0)


def changing_shapes(seat: Seat, n: int) -> None:
    for threads, gpu in seat.ways:
        with seat.open(AFFINE, threads, gpu) as session:
            for batch in (1, 5, 0, 1 + n % 50, 300):
                x = np.linspace(-1, 1, 4 * batch, dtype=np.float32).reshape(batch, 4)
                np.testing.assert_allclose(session.run(None, {"x": x})[0], relu(x), rtol=1e-4, atol=1e-5)


def all_kinds_of_steps(seat: Seat, n: int) -> None:
    for probe in list(PROBES.values())[n % 3 :: 3]:
        with seat.open(probe.model) as session:
            for feeds, expected in probe.runs:
                assert_equal(expected, session.run(None, feeds), probe.rtol, probe.atol, probe.name)


def many_runs_on_threads(seat: Seat, n: int) -> None:
    x = np.ones((512, 1024), np.float32)
    for threads in sorted({threads for threads, _ in seat.ways}):
        with seat.open(SOFTMAX, threads) as session:
            seat.repeat(session, {"x": x}, LONG)


def bad_feeds(seat: Seat, n: int) -> None:
    good = np.ones((2, 3), np.float32)
    bad = [{"a": good}, {"a": good, "b": good[0]}, {"a": good, "b": good[:1]}, {"a": good, "b": good.astype(np.int64)}]
    for threads, gpu in seat.ways:
        with seat.open(ADD, threads, gpu) as session:
            for feeds in bad:
                assert refuses(seat, {"InvalidInput"}, lambda feeds=feeds: session.run(None, feeds))
            assert session.run(["c"], {"a": good, "b": good})[0][1, 2] == 2


def indices_out_of_range(seat: Seat, n: int) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for threads, gpu in seat.ways:
        with seat.open(GATHER, threads, gpu) as session:
            for i in (7, -3):
                feeds = {"x": x, "i": np.array([1, i])}
                assert refuses(seat, {"ExecutionError"}, lambda feeds=feeds: session.run(None, feeds))
                np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([1, -2])})[0], x[[1, 0]])


def more_than_there_is(seat: Seat, n: int) -> None:
    x = np.ones(1, np.float32)
    with seat.open(EXPAND) as session:
        for size, kind in ((2**31 - 1, "OutOfMemory"), (2**40, "ShapeError")):
            feeds = {"x": x, "dims": np.array([size])}
            assert refuses(seat, {kind}, lambda feeds=feeds: session.run(None, feeds))
            assert session.run(None, {"x": x, "dims": np.array([3])})[0].tolist() == [1, 1, 1]


def memory_limits(seat: Seat, n: int) -> None:
    x = np.ones(1, np.float32)
    with seat.open(EXPAND, limit=LIMIT) as session:
        assert refuses(seat, {"OutOfMemory"}, lambda: session.run(None, {"x": x, "dims": np.array([LIMIT // 4])}))
        assert session.run(None, {"x": x, "dims": np.array([3])})[0].tolist() == [1, 1, 1]


def dropped_sessions(seat: Seat, n: int) -> None:
    assert seat.drop(AFFINE, {"x": np.ones((2, 4), np.float32)}, DROPPED) == DROPPED


def turns_under_a_limit(seat: Seat, n: int) -> None:
    x = np.random.default_rng(n).normal(size=(512, 1024)).astype(np.float32)
    with seat.open(SOFTMAX) as a, seat.open(SOFTMAX) as b, seat.open(SOFTMAX) as c:
        (wanted,) = a.run(None, {"x": x})
        with seat.limited(ALL):
            for session in (b, c, a, c):
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted)


def stopped_runs(seat: Seat, n: int) -> None:
    for threads in sorted({threads for threads, _ in seat.ways}):
        assert seat.stopped(threads) == "Terminated"


def damaged_models(seat: Seat, n: int) -> None:
    draw = random.Random(n)
    x = np.ones((2, 4), np.float32)
    for _ in range(DAMAGED):
        data = bytearray(AFFINE)
        if draw.random() < 0.3:
            del data[draw.randrange(len(data)) :]
        else:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        refuses(seat, REFUSALS - BUGS, lambda data=data: _once(seat, bytes(data), x))


def _once(seat: Seat, model: bytes, x: np.ndarray) -> None:
    with seat.open(model) as session:
        session.run(None, {"x": x})


def tensors_on_the_gpu(seat: Seat, n: int) -> None:
    if any(gpu for _, gpu in seat.ways):
        assert seat.stay_on_gpu() == 2 + TURNS


def tabs(seat: Seat, n: int) -> None:
    seat.come_and_go()


ROUNDS = [
    changing_shapes, all_kinds_of_steps, many_runs_on_threads, bad_feeds, indices_out_of_range, more_than_there_is,
    memory_limits, dropped_sessions, turns_under_a_limit, stopped_runs, damaged_models, tensors_on_the_gpu, tabs,
]  # fmt: skip
