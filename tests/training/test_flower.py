"""What a client of Flower takes and gives. Flower itself runs in examples/flower, whose README e2e/test_examples.py
follows; here classes of the same form stand for those of its package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kit.training_networks import batch, dense
from pyruntime import InvalidInput, TrainingSession
from pyruntime.api.flower import Client, arrays_of, flower_app, flower_client, load_arrays

OPTIONS: dict[str, Any] = {"loss": {"cross_entropy": "y"}, "optimizer": "adam"}
NAMES = ("w1", "b1", "w2", "b2")


class ClientApp:
    def __init__(self) -> None:
        self.called: dict[str, Callable[[Any, Any], Any]] = {}

    def _register(self, kind: str) -> Any:
        return lambda function: self.called.setdefault(kind, function)

    def train(self) -> Any:
        return self._register("train")

    def evaluate(self) -> Any:
        return self._register("evaluate")


class Array(SimpleNamespace):
    def __init__(self, x: np.ndarray) -> None:
        super().__init__(numpy=lambda: x)


class RecordDict(dict[str, Any]):
    """array_records: here those of the key "arrays", as in messages of its strategies"""

    array_records = property(lambda self: {k: x for k, x in self.items() if k == "arrays"})
    config_records = property(lambda self: {k: x for k, x in self.items() if k == "config"})


def message(content: RecordDict, reply_to: Any = None) -> Any:
    return SimpleNamespace(content=content, reply_to=reply_to)


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> None:
    app = {"Array": Array, "RecordDict": RecordDict, "Message": message}
    records = dict.fromkeys(("ArrayRecord", "ConfigRecord", "MetricRecord"), dict)
    classes = {".client": {"NumPyClient": object}, ".clientapp": {"ClientApp": ClientApp}}
    for name, content in {"": {}, ".app": app | records, **classes}.items():
        module = ModuleType(f"flwr{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def batches(config: Any) -> list[dict[str, np.ndarray]]:
    return [batch(8, config["server-round"]), batch(4, 1)]


HELD = [batch(8), batch(2, 1)]


def test_a_session_is_a_client_app(flower: None) -> None:
    """Of each message it opens a session, which goes on with the moments of earlier ones."""
    opened: list[TrainingSession] = []

    def open_client(context: Any) -> Client:
        opened.append(TrainingSession(dense(context.node_config["seed"]), **OPTIONS))
        return Client(opened[-1], batches, HELD)

    app, context = flower_app(open_client), SimpleNamespace(state={}, node_config={"seed": 0})
    with TrainingSession(dense(3), **OPTIONS) as server, TrainingSession(dense(), **OPTIONS) as other:
        arrays = arrays_of(server)
        other.set_weights({name: x.numpy() for name, x in arrays.items()})
        for number in (1, 2):
            given = message(RecordDict(arrays=arrays, config={"server-round": number}))
            reply = app.called["train"](given, context)
            losses = [other.step(feeds).loss for feeds in batches({"server-round": number})]
            assert reply.reply_to is given
            assert reply.content["metrics"] == {"loss": pytest.approx(np.mean(losses)), "num-examples": 12}
            arrays = reply.content["arrays"]
            assert tuple(arrays) == NAMES
            for name, x in other.weights().items():
                np.testing.assert_array_equal(arrays[name].numpy(), x)
        given = message(RecordDict(arrays=arrays, config={"server-round": 2}))
        parts = [other.evaluate(feeds)["loss"] for feeds in HELD]
        metrics = app.called["evaluate"](given, context).content["metrics"]
        assert metrics == {"loss": pytest.approx((8 * parts[0] + 2 * parts[1]) / 10), "num-examples": 10}
        load_arrays(server, arrays)
        np.testing.assert_array_equal(server.weights()["w1"], arrays["w1"].numpy())
    assert len(opened) == 3
    wrong = {**arrays, "w1": arrays["w2"]}
    for bad, text in ((wrong, "has shape"), ({"w1": arrays["w1"]}, "sent weights w1, the session trains w1, b1, w2")):
        with pytest.raises(InvalidInput, match=text):
            app.called["evaluate"](message(RecordDict(arrays=bad, config={})), context)
    with pytest.raises(InvalidInput, match="one record of a kind is expected in a message, not 0"):
        app.called["train"](message(RecordDict(arrays=arrays)), context)


def test_a_session_is_a_numpy_client(flower: None) -> None:
    with TrainingSession(dense(), **OPTIONS) as session, TrainingSession(dense(), **OPTIONS) as other:
        client = flower_client(session, batches, HELD)
        start = [x + 1 for x in client.get_parameters({})]
        assert [x.shape for x in start] == [(6, 8), (8,), (8, 3), (3,)]
        new, count, metrics = client.fit(start, {"server-round": 1})
        other.set_weights(dict(zip(NAMES, start, strict=True)))
        losses = [other.step(feeds).loss for feeds in batches({"server-round": 1})]
        assert (count, metrics["loss"]) == (12, np.mean(losses))
        for x, y in zip(new, other.weights().values(), strict=True):
            np.testing.assert_array_equal(x, y)
        loss, count, _ = client.evaluate(new, {})
        parts = [other.evaluate(feeds)["loss"] for feeds in HELD]
        assert count == 10 and loss == pytest.approx((8 * parts[0] + 2 * parts[1]) / 10)
        for bad, text in ((new[:3], "3 arrays"), ([*new[:3], new[3] * np.nan], "not finite"), (new[::-1], "has shape")):
            with pytest.raises(InvalidInput, match=text):
                client.fit(bad, {"server-round": 1})
