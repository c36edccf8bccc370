"""What a client of Flower takes and gives. Flower itself runs in examples/flower, whose README e2e/test_examples.py
follows; here a class of the same form stands for `NumPyClient`."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from kit.training_networks import batch, dense
from pyruntime import InvalidInput, TrainingSession
from pyruntime.api.flower import flower_client


def test_a_session_is_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    flower = ModuleType("flwr.client")
    flower.NumPyClient = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flwr", ModuleType("flwr"))
    monkeypatch.setitem(sys.modules, "flwr.client", flower)
    options = {"loss": {"cross_entropy": "y"}, "optimizer": "sgd"}
    with TrainingSession(dense(), **options) as session, TrainingSession(dense(), **options) as other:
        given: list[object] = []

        def batches(config: object) -> list[dict[str, np.ndarray]]:
            given.append(config)
            return [batch(8), batch(4, 1)]

        client = flower_client(session, batches, [batch(8), batch(2, 1)])
        start = [x + 1 for x in client.get_parameters({})]
        assert [x.shape for x in start] == [(6, 8), (8,), (8, 3), (3,)]
        new, count, metrics = client.fit(start, {"round": 1})
        other.set_weights(dict(zip(("w1", "b1", "w2", "b2"), start, strict=True)))
        losses = [other.step(feeds).loss for feeds in batches({})]
        assert (count, metrics["loss"], given[0]) == (12, np.mean(losses), {"round": 1})
        for x, y in zip(new, other.weights().values(), strict=True):
            np.testing.assert_array_equal(x, y)
        loss, count, _ = client.evaluate(new, {})
        parts = [other.evaluate(feeds)["loss"] for feeds in (batch(8), batch(2, 1))]
        assert count == 10 and loss == pytest.approx((8 * parts[0] + 2 * parts[1]) / 10)
        for bad, text in ((new[:3], "3 arrays"), ([*new[:3], new[3] * np.nan], "not finite"), (new[::-1], "has shape")):
            with pytest.raises(InvalidInput, match=text):
                client.fit(bad, {})
