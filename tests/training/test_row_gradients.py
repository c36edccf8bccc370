"""Embeddings, of which a batch reads few rows: their steps are those of whole gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kit.training_networks import T, model, node, random
from pyruntime import TrainingSession

ROWS, WIDTH = 4100, 16
SETTINGS: list[dict[str, Any]] = [
    {"sgd": {"rate": 0.5}}, {"sgd": {"rate": 0.5, "decay": 0.1}}, {"sgd": {"rate": 0.5, "momentum": 0.9}},
    {"nesterov": {"rate": 0.5}}, {"nesterov": {"rate": 0.5, "decay": 0.1}}, {"adam": {"rate": 0.1}},
    {"adam": {"rate": 0.1, "decay": 0.1}}, {"adamw": {"rate": 0.1}}, {"adamw": {"transformers": True}},
    {"adagrad": {"rate": 0.1}}, {"lion": {"rate": 0.1, "decay": 0.1}},
]  # fmt: skip


def embedding() -> bytes:
    nodes = [node("Gather", "table ids", "e"), node("Tanh", "e", "y")]
    return model(nodes, {"ids": (T.INT64, ["N", "L"])}, {"y": (T.FLOAT, ["N", "L", WIDTH])},
                 random(0, table=(ROWS, WIDTH)))  # fmt: skip


def batches(count: int) -> list[dict[str, Any]]:
    """Rows that come back after some steps, twice in a batch, from the end, and in batches of several sizes."""
    rng = np.random.default_rng(1)
    ids = [np.array([[0, 7, 7], [-1, 4095, 4096]]), np.array([[7, 11]]), np.array([[ROWS - 1]]), np.array([[4096, 9]])]
    ids = (ids * count)[:count]
    return [{"ids": x, "target": rng.normal(size=(*x.shape, WIDTH)).astype(np.float32)} for x in ids]


def steps(session: TrainingSession, first: int, last: int) -> list[float]:
    """The norms of the gradients."""
    found = []
    for n, batch in list(enumerate(batches(9)))[first:last]:
        session.freeze("table") if n in (3, 4) else session.unfreeze()
        found.append(session.step(batch).norm)
    return found


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("more", [{}, {"clip": 0.01}, {"loss_scale": 8.0, "clip": {"value": 0.001}}], ids=str)
def test_steps_are_those_of_whole_gradients(settings: dict[str, Any], more: dict[str, Any]) -> None:
    """A session that accumulates has whole gradients. In the middle, where two steps change nothing because the weight
    is frozen, the other one starts again from a checkpoint."""
    options: dict[str, Any] = {"loss": {"mse": "y"}, "optimizer": settings, **more}
    with TrainingSession(embedding(), accumulate=True, **options) as whole:
        norms = [*steps(whole, 0, 5), *steps(whole, 5, 9)]
        wanted = whole.weights()["table"]
    with TrainingSession(embedding(), **options) as session:
        found = steps(session, 0, 5)
        file = session.state()
    assert file[: file.index(b"}}")].count(b"idle") == 0
    with TrainingSession(embedding(), **options) as session:
        session.load(file)
        found += steps(session, 5, 9)
        np.testing.assert_allclose(found, norms, rtol=1e-5)
        np.testing.assert_allclose(session.weights()["table"], wanted, rtol=1e-6, atol=1e-7)
        before = session.weights()["table"]
        bad = {**batches(1)[0], "target": np.full((2, 3, WIDTH), np.nan, np.float32)}
        with pytest.warns(RuntimeWarning, match="changed no weight"):
            assert not session.step(bad).applied
        np.testing.assert_array_equal(session.weights()["table"], before)


def test_only_rows_that_were_read_change() -> None:
    with TrainingSession(embedding(), loss={"mse": "y"}, optimizer="adam") as session:
        before = session.weights()["table"]
        for batch in batches(2):
            session.step(batch)
        changed = np.flatnonzero((session.weights()["table"] != before).any(1))
        assert changed.tolist() == [0, 7, 11, 4095, 4096, ROWS - 1]
        executor = session._session.programs.state_values.holder
        assert executor is not None
        sizes = [b["size"] for b in executor.header["buffers"]]
        assert sizes.count(ROWS * WIDTH * 4) == 3  # weight and moments: no gradient of this size
