"""The trial of read orders: its choices on simulated machines; results are the same in all orders."""

from __future__ import annotations

import numpy as np
import pytest

from kit.small_models import one_row
from pyruntime import InferenceSession, RunOptions, SessionOptions
from pyruntime.errors import Terminated
from pyruntime.runtime.order_trial import LEAST, ORDERS, RETRY_AFTER, ROUNDS, OrderTrial

SETTLED = 1 + ROUNDS * len(ORDERS)  # runs: the first one has no comparison
PLAIN, TURNS, ASKED = ORDERS


def play(trial: OrderTrial, took: dict[int, float], reads: list[int]) -> list[int]:
    """The orders of runs. took: seconds, by order; reads: KiB of each run."""
    orders = []
    for read in reads:
        orders.append(trial.order)
        trial.took(read, took[trial.order])
    return orders


@pytest.mark.parametrize(
    ("took", "best"),
    [
        ({PLAIN: 1.0, TURNS: 1.4, ASKED: 1.3}, PLAIN),
        ({PLAIN: 1.3, TURNS: 1.0, ASKED: 1.1}, TURNS),
        ({PLAIN: 3.0, TURNS: 2.9, ASKED: 1.0}, ASKED),
        ({PLAIN: 1.0, TURNS: 0.98, ASKED: 0.99}, PLAIN),  # within noise
    ],
)
def test_the_fastest_order_wins(took: dict[int, float], best: int) -> None:
    orders = play(OrderTrial(), took, [LEAST] * (SETTLED + 9))
    assert orders[1:SETTLED] == list(ORDERS) * 4
    assert orders[SETTLED:] == [best] * 9


def test_which_runs_count() -> None:
    took, trial = {PLAIN: 1.0, TURNS: 0.5, ASKED: 1.0}, OrderTrial()
    assert play(trial, took, [0, LEAST - 1] * 40) == [PLAIN] * 80
    assert play(trial, took, [LEAST, 4 * LEAST] * 40) == [PLAIN] * 80  # no two runs in a row are comparable
    assert play(trial, took, [LEAST] * (SETTLED + 1))[-1] == TURNS
    assert play(trial, took, [0, LEAST, LEAST // 8] * 5) == [TURNS] * 15
    assert play(trial, took, [2 * LEAST] * SETTLED)[:3] == [TURNS, PLAIN, TURNS]  # more: a new trial


def test_a_later_trial_corrects_a_wrong_choice() -> None:
    trial = OrderTrial()
    assert play(trial, {PLAIN: 3.0, TURNS: 2.0, ASKED: 3.0}, [LEAST] * (SETTLED + 1))[-1] == TURNS
    later = play(trial, {PLAIN: 1.0, TURNS: 1.4, ASKED: 1.3}, [LEAST] * (RETRY_AFTER + SETTLED))
    assert later[: RETRY_AFTER - 1] == [TURNS] * (RETRY_AFTER - 1)
    assert later[-1] == PLAIN


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["floats", "halves", "codes"])
def test_all_orders_give_the_same_results(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, reads = [], []
    took = OrderTrial.took

    def watched(self: OrderTrial, read: int, seconds: float) -> None:
        tried.append(self.order)
        reads.append(read)
        took(self, read, seconds)

    monkeypatch.setattr(OrderTrial, "took", watched)
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(one_row(kind).SerializeToString(), options)
    x = np.random.default_rng(1).standard_normal((1, 1024)).astype(np.float16 if kind == "halves" else np.float32)
    first, *others = [session.run(None, {"x": x})[0] for _ in range(SETTLED + 2)]
    for other in others:
        np.testing.assert_array_equal(first, other)
    if kind == "floats":
        assert set(reads) == {0}
    elif threads == 1:
        assert set(reads) == {12288}
        assert tried[1:SETTLED] == list(ORDERS) * 4
    else:
        assert set(tried) == set(ORDERS)


def test_a_failed_run_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(OrderTrial, "took", lambda self, read, seconds: reads.append(read))
    session = InferenceSession(one_row("codes").SerializeToString())
    x = np.zeros((1, 1024), np.float32)
    session.run(None, {"x": x})
    options = RunOptions()
    options.terminate = True
    with pytest.raises(Terminated):
        session.run(None, {"x": x}, options)
    session.run(None, {"x": x})
    assert reads == [12288, 12288]
