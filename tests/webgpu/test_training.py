"""Training on the GPU: the curves of WebAssembly, weights that stay in its memory, and what faults leave."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from kit import half_training
from kit.faults import TABLE, WAITING, Fault, feed, model
from kit.training_networks import batch, convolutional, dense, digits, node, transformer
from pyruntime import PyRuntimeError, SessionFailed, SessionOptions, TrainingSession

pytest.importorskip("wgpu")

from tests.training.test_row_gradients import batches, embedding
from tests.webgpu.test_recovery import BOTH, Injector, hardware

CLASSES = {"loss": {"cross_entropy": "y"}}
IMAGES, LABELS, _, _ = digits()
IDS = np.random.default_rng(0).integers(0, 50, (4, 16))
DROPPED = dense(extra=[node("Tanh", "a", "t"), node("Dropout", "t", "b")])
NETS: dict[str, tuple[bytes, dict[str, Any], dict[str, Any]]] = {
    "digits": (
        convolutional(), {"image": IMAGES[:64], "target": LABELS[:64]},
        {"loss": {"cross_entropy": "logits"}, "optimizer": {"adam": {"rate": 0.01}}, "clip": 1.0},
    ),
    "transformer": (
        transformer(), {"ids": IDS, "target": np.roll(IDS, -1, 1)}, {"loss": {"cross_entropy": "logits"}}
    ),
    "dropout": (DROPPED, batch(8), {**CLASSES, "seed": 3, "optimizer": "nesterov"}),
    "sums": (dense(), batch(8), {**CLASSES, "accumulate": True, "optimizer": "adagrad"}),
    "rows": (embedding(), batches(2)[0], {"loss": {"mse": "y"}, "optimizer": {"adam": {"rate": 0.01}}}),
    "lion": (dense(), batch(8), {**CLASSES, "optimizer": "lion", "proximal": 0.1, "clip": {"value": 0.01}}),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_curves(name: str) -> None:
    """Those of WebAssembly but for rounding, and bit by bit the same again."""
    net, feeds, options = NETS[name]
    curves, weights = [], []
    for provider in ("wasm", "webgpu", "webgpu"):
        with TrainingSession(net, providers=[provider], **options) as session:
            curves.append([session.step(feeds).loss for _ in range(5)])
            weights.append(session.weights())
            placed = session.explain()["placement"]
        assert provider == "wasm" or placed["webgpu"] > 10 * placed.get("wasm", 0)
    np.testing.assert_allclose(curves[1], curves[0], atol=2e-6)
    assert curves[1] == curves[2]
    for key, x in weights[0].items():
        np.testing.assert_allclose(weights[1][key], x, atol=2e-4)


def test_losses_of_half_floats_are_scaled() -> None:
    """The curve of double precision; gradients that overflow change nothing and halve the scale."""
    feeds = half_training.feeds()
    with TrainingSession(half_training.network(), providers=["webgpu"], **half_training.OPTIONS) as session:
        session.load(half_training.checkpoint())
        found = [(session.loss_scale, session.step(feeds[name])) for name in half_training.STEPS]
        state = session.state()
        assert session.explain()["placement"].keys() == {"webgpu"}
    assert [scale for scale, _ in found] == half_training.SCALES
    assert [step.applied for _, step in found] == half_training.APPLIED
    losses, _ = half_training.in_double([*half_training.STEPS, "good"])
    np.testing.assert_allclose([step.loss for _, step in found], losses[:-1], rtol=0.01)
    with TrainingSession(half_training.network(), **half_training.OPTIONS) as session:
        session.load(state)
        assert session.loss_scale == half_training.SCALES[-1]
        assert session.step(feeds["good"]).loss == pytest.approx(losses[-1], rel=0.01)


def test_weights_stay_on_the_gpu() -> None:
    """A step copies feeds to it, and loss and outputs from it."""
    net, feeds, options = NETS["digits"]
    with TrainingSession(net, providers=["webgpu"], **options) as session:
        session.step(feeds)
        executor = session._session.programs.state_values.holder
        assert executor is not None
        header, plan = executor.header, executor.plan
        states = {v["buffer"] for v in header["states"].values()}
        assert len(states) == 18 and all(plan.is_on_gpu(buffer) for buffer in states)
        copies = [pair for s in header["blocks"][1]["steps"] if s["op"] == "copy" for pair in s["pairs"]]
        assert copies and all(states.isdisjoint((a["buffer"], b["buffer"])) for a, b in copies)


def test_an_index_out_of_range_changes_nothing() -> None:
    """The run ends with the error only after all its kernels, so those that change weights look themselves."""
    wrong = {"dropout": ("target", 3), "sums": ("target", -1), "transformer": ("ids", 50)}
    for name, (feed_name, value) in wrong.items():
        net, feeds, options = NETS[name]
        bad = {**feeds, feed_name: np.full_like(feeds[feed_name], value)}
        with TrainingSession(net, providers=["webgpu"], **options) as session:
            session.step(feeds)
            before = session.state()
            with pytest.raises(PyRuntimeError, match=rf"index {value} is out of range"):
                session.step(bad)
            assert session.state() == before
            assert session.step(feeds).step == 2


@pytest.mark.parametrize("fault", TABLE, ids=str)
def test_faults(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session goes on with the right curve, or refuses work until it has loaded a checkpoint."""
    hardware(monkeypatch)
    timeout = 1.5 if fault.kind in WAITING else 60.0
    feeds = {"x": feed(64), "target": np.zeros((64, 128), np.float32)}
    options: dict[str, Any] = {"loss": {"mse": "y"}, "optimizer": {"adam": {"rate": 1e-3}}}
    with TrainingSession(model(), **options) as session:
        right = [session.step(feeds).loss for _ in range(5)]
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        injector = Injector(fault, patch)
        if fault.when == "creation":
            injector.start()
        session = TrainingSession(model(), sess_options=SessionOptions(gpu_timeout=timeout), providers=BOTH, **options)
        losses = [session.step(feeds).loss for _ in range(2)]
        checkpoint = session.state()
        if fault.when != "creation":
            assert session.explain()["placement"].get("webgpu", 0) > 5
            injector.start()
        for _ in range(3):
            try:
                losses.append(session.step(feeds).loss)
            except SessionFailed:
                with pytest.raises(SessionFailed, match="load a checkpoint"):
                    session.step(feeds)
                session.load(checkpoint)
                losses.append(session.step(feeds).loss)
        np.testing.assert_allclose(losses, right, rtol=1e-4)
        session.release()


@pytest.mark.parametrize(
    "fault", [f for f in TABLE if f.when in ("run", "between") and f.kind not in ("hang", "silent adapter")], ids=str
)
def test_faults_while_gradients_accumulate(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first of two batches: their sum is right, or lost until a checkpoint is loaded, which has the first."""
    hardware(monkeypatch)
    feeds = {"x": feed(64), "target": np.zeros((64, 128), np.float32)}
    options: dict[str, Any] = {"loss": {"mse": "y"}, "optimizer": {"adam": {"rate": 1e-3}}, "accumulate": True}

    def end(session: TrainingSession) -> list[float]:
        session.accumulate(feeds)
        return [session.apply().norm, session.step(feeds).loss]

    with TrainingSession(model(), **options) as session:
        session.step(feeds)
        session.accumulate(feeds)
        right = end(session)
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = TrainingSession(model(), providers=BOTH, **options)
        session.step(feeds)
        session.accumulate(feeds)
        checkpoint = session.state()
        Injector(fault, patch).start()
        try:
            found = end(session)
        except SessionFailed:
            session.load(checkpoint)
            found = end(session)
        np.testing.assert_allclose(found, right, rtol=1e-4)
        session.release()
