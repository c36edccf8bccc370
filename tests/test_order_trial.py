"""In which order weights are read: what is chosen on machines made up, and that results are the same on this one."""

from __future__ import annotations

import numpy as np
import pytest

from kit.small_models import one_row
from pyruntime import InferenceSession, SessionOptions
from pyruntime.native.order_trial import LEAST, ORDER, ORDERS, ROUNDS, OrderTrial
from pyruntime.providers.wasm.schedules import streams

TRIED = 1 + ROUNDS * len(ORDERS)  # runs until it is settled: of the first nothing is known
PLAIN, TURNS, ASKED, FLOATS = ORDERS


def play(trial: OrderTrial, memory: np.ndarray, took: dict[int, float], reads: list[int]) -> list[int]:
    """The orders of runs that take so long by order, and read so many KiB."""
    words, orders = memory[ORDER : ORDER + 8].view("<i4"), []
    for read in reads:
        orders.append(int(words[0]))
        words[1] = read
        trial.took(memory, took[orders[-1]])
        assert words[1] == 0 or read < LEAST
    return orders


@pytest.mark.parametrize(
    ("took", "best"),
    [
        ({PLAIN: 1.0, TURNS: 1.4, ASKED: 1.3, FLOATS: 1.0}, PLAIN),
        ({PLAIN: 1.3, TURNS: 1.0, ASKED: 1.1, FLOATS: 1.3}, TURNS),
        ({PLAIN: 3.0, TURNS: 2.9, ASKED: 1.0, FLOATS: 3.0}, ASKED),
        ({PLAIN: 1.0, TURNS: 1.1, ASKED: 1.1, FLOATS: 0.9}, FLOATS),
        ({PLAIN: 1.0, TURNS: 0.98, ASKED: 0.99, FLOATS: 1.0}, PLAIN),  # within noise
    ],
)
def test_the_fastest_stays(took: dict[int, float], best: int) -> None:
    orders = play(OrderTrial(), np.zeros(1024, np.uint8), took, [LEAST] * (TRIED + 9))
    assert orders[1:TRIED] == list(ORDERS) * ROUNDS
    assert orders[TRIED:] == [best] * 9


def test_which_runs_count() -> None:
    took = {PLAIN: 1.0, TURNS: 0.5, ASKED: 1.0, FLOATS: 1.0}
    trial, memory = OrderTrial(), np.zeros(1024, np.uint8)
    assert play(trial, memory, took, [0, LEAST - 1] * 40) == [PLAIN] * 80
    mixed = play(trial, memory, took, [LEAST, 4 * LEAST] * 40)  # none as the one before
    assert mixed == [PLAIN] * 80
    assert play(trial, memory, took, [LEAST] * (TRIED + 1))[-1] == TURNS
    assert play(trial, memory, took, [0, LEAST, LEAST // 8] * 5) == [TURNS] * 15
    assert play(trial, memory, took, [2 * LEAST] * TRIED)[:3] == [TURNS, PLAIN, TURNS]  # more: tried anew


def test_the_same_words() -> None:
    assert (ORDER, ORDER + 4) == (streams.ORDER, streams.READ)
    assert ORDERS == (0, streams.CODES_IN_TURNS, streams.ASK, streams.FLOATS_IN_ONE)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["floats", "codes"])
def test_all_orders_give_the_same(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    took = OrderTrial.took

    def watched(self: OrderTrial, memory: np.ndarray, seconds: float) -> None:
        tried.append(int(memory[ORDER]))
        took(self, memory, seconds)

    monkeypatch.setattr(OrderTrial, "took", watched)
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(one_row(kind).SerializeToString(), options)
    x = np.random.default_rng(1).standard_normal((1, 1024)).astype(np.float32)
    first, *others = [session.run(None, {"x": x})[0] for _ in range(TRIED + 2)]
    for other in others:
        np.testing.assert_array_equal(first, other)
    assert set(tried) == set(ORDERS)
    if threads == 1:
        assert tried[1:TRIED] == list(ORDERS) * ROUNDS
