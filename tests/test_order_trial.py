"""The trial of read orders in sessions: results are the same in all orders. tests/vectors has its choices."""

from __future__ import annotations

import numpy as np
import pytest

from kit.small_models import one_row
from pyruntime import InferenceSession, RunOptions, SessionOptions
from pyruntime.errors import Terminated
from pyruntime.runtime.order_trial import ORDERS, ROUNDS, OrderTrial

SETTLED = 1 + ROUNDS * len(ORDERS)  # runs: the first one has no comparison


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
    options = SessionOptions(intra_op_num_threads=threads, native_code=False)  # whose reads of codes have one order
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
    session = InferenceSession(one_row("codes").SerializeToString(), SessionOptions(native_code=False))
    x = np.zeros((1, 1024), np.float32)
    session.run(None, {"x": x})
    options = RunOptions()
    options.terminate = True
    with pytest.raises(Terminated):
        session.run(None, {"x": x}, options)
    session.run(None, {"x": x})
    assert reads == [12288, 12288]
