"""Training sessions natively: curves, optimisers against their formulas, and what changes weights."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import pyruntime
from kit import half_training
from kit.docs import ROOT
from kit.training_networks import T, batch, convolutional, dense, digits, model, node, random, transformer
from pyruntime import (
    InvalidInput,
    OutOfMemory,
    RunOptions,
    SessionFailed,
    SessionOptions,
    Terminated,
    TrainingSession,
)
from pyruntime.session.events import delivered

CLASSES = {"loss": {"cross_entropy": "y"}}
CLASSES_OF_TOKENS: dict[str, Any] = {"loss": {"cross_entropy": "logits"}}


def test_digits_from_random_weights() -> None:
    """97 % of held-out digits, and the same curve again with the same seed."""
    images, labels, held, held_labels = digits()
    curves = []
    for epochs in (14, 1):
        rng, curve = np.random.default_rng(1), []
        with TrainingSession(
            convolutional(), loss={"cross_entropy": "logits"}, optimizer={"adam": {"rate": 0.01}},
            schedule={"cosine": {"steps": 14 * 22, "end": 1e-4}},
        ) as session:  # fmt: skip
            for _ in range(epochs):
                order = rng.permutation(len(images))
                for n in range(0, len(order) - 63, 64):
                    rows = order[n : n + 64]
                    curve.append(session.step({"image": images[rows], "target": labels[rows]}).loss)
            found = session.evaluate({"image": held, "target": held_labels}, ["logits"])
        curves.append(curve)
        if epochs > 1:
            assert (found["logits"].argmax(1) == held_labels).mean() >= 0.97
            assert found["loss"] < 0.2
    assert curves[0][:22] == curves[1]


# ── optimisers, against their formulas in double precision ──────────────────────────────────────────────────────────


def linear(seed: int) -> bytes:
    return model([node("MatMul", "x w", "y")], {"x": (T.FLOAT, ["N", 5])}, {"y": (T.FLOAT, ["N", 3])},
                 random(seed, w=(5, 3)))  # fmt: skip


class Formula:
    """The steps of an optimiser. kept: its moments"""

    def __init__(self, kind: str, rate: float, decay: float = 0.0, **more: float) -> None:
        self.kind, self.rate, self.decay, self.more = kind, rate, decay, more
        self.m = self.v = np.zeros(())
        self.steps = 0

    def step(self, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        self.steps += 1
        rate, decay, mu = self.rate, self.decay, self.more.get("momentum", 0.0)
        if self.kind == "sgd":
            g = g + decay * w
            self.v = mu * self.v + g
            return w - rate * (g + mu * self.v if self.more.get("nesterov") else self.v)
        if self.kind == "adagrad":
            g = g + decay * w
            self.v = self.v + g * g
            return w - rate * g / (np.sqrt(self.v) + 1e-10)
        if self.kind == "lion":
            new = w - rate * (np.sign(0.9 * self.m + 0.1 * g) + decay * w)
            self.m = 0.99 * self.m + 0.01 * g
            return new
        g = g + decay * w if self.kind == "adam" else g
        shrunk = w * (1 - rate * decay) if self.kind == "adamw" else w
        self.m, self.v = 0.9 * self.m + 0.1 * g, 0.999 * self.v + 0.001 * g * g
        m, v = self.m / (1 - 0.9**self.steps), self.v / (1 - 0.999**self.steps)
        return shrunk - rate * m / (np.sqrt(v) + 1e-8)


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"rate": 0.1}), ("sgd", {"rate": 0.1, "momentum": 0.9, "decay": 0.1}),
    ("sgd", {"rate": 0.05, "momentum": 0.9, "nesterov": True}), ("adam", {"rate": 0.02, "decay": 0.1}),
    ("adamw", {"rate": 0.02, "decay": 0.1}), ("adagrad", {"rate": 0.3, "decay": 0.01}),
    ("lion", {"rate": 0.01, "decay": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS, ids=lambda x: x if isinstance(x, str) else None)
@pytest.mark.parametrize("clip", [None, 0.5, {"value": 0.1}], ids=str)
def test_optimisers(kind: str, settings: dict[str, Any], clip: Any) -> None:
    rng = np.random.default_rng(3)
    w, formula = random(0, w=(5, 3))["w"].astype(np.float64), Formula(kind, **settings)
    with TrainingSession(linear(0), loss={"mse": "y"}, optimizer={kind: settings}, clip=clip) as session:
        for _ in range(12):
            x, y = rng.normal(size=(7, 5)).astype(np.float32), rng.normal(size=(7, 3)).astype(np.float32)
            g = 2 * x.T.astype(np.float64) @ (x @ w - y) / y.size
            norm = np.linalg.norm(g)
            result = session.step({"x": x, "target": y})
            assert result.loss == pytest.approx(((x @ w - y) ** 2).mean(), rel=1e-4)
            assert result.norm == pytest.approx(norm, rel=1e-4)
            g = np.clip(g, -0.1, 0.1) if isinstance(clip, dict) else g * min(1, clip / norm) if clip else g
            w = formula.step(w, g)
        np.testing.assert_allclose(session.weights()["w"], w, rtol=2e-4, atol=2e-5)


def test_schedules_and_rates() -> None:
    feeds = batch(4)
    expected = {
        "constant": [0.4, 0.4, 0.4, 0.4], "linear": [0.4, 0.3, 0.2, 0.1],
        "cosine": [0.2 * (1 + math.cos(math.pi * n / 4)) for n in range(4)], "exponential": [0.4, 0.4, 0.2, 0.2],
    }  # fmt: skip
    own = {"linear": {"steps": 4}, "cosine": {"steps": 4}, "exponential": {"every": 2, "factor": 0.5}, "constant": {}}
    for kind, rates in expected.items():
        with TrainingSession(dense(), **CLASSES, optimizer={"sgd": {"rate": 0.4}}, schedule={kind: own[kind]}) as s:
            assert [s.step(feeds).rate for _ in range(4)] == pytest.approx(rates)
    with TrainingSession(dense(), **CLASSES, optimizer="sgd", schedule={"constant": {"warmup": 2}}) as s:
        assert [s.step(feeds).rate for _ in range(3)] == pytest.approx([0.005, 0.01, 0.01])
        assert s.step(feeds, rate=0.5).rate == 0.5


GRAPHS = {
    "twice": """twice (float[N, 3] y, int64[N] labels) => (float loss) <float two = {2.0}> {
        l = SoftmaxCrossEntropyLoss (y, labels)  loss = Mul (l, two) }""",
    "own": """own (float[N, 6] x, float[N, K] scores, int64[N] labels) => (float loss, float[N, 6] b)
        <float[3] w = {1, 2, 3}> {
        b = Identity (x)  p = LogSoftmax (scores)  loss = NegativeLogLikelihoodLoss (p, labels, w) }""",
}


def graph_of_loss(name: str) -> bytes:
    import onnx

    parsed = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {GRAPHS[name]}')
    return bytes(parsed.SerializeToString())


@pytest.mark.parametrize(
    ("name", "options", "same"),
    [
        ("twice", {}, {"scale": 2.0}),
        ("own", {"inputs": {"scores": "y"}, "output": "loss"}, {"weights": [1, 2, 3]}),
    ],
)  # fmt: skip
def test_an_onnx_model_is_the_loss(name: str, options: Any, same: Any, tmp_path: Any) -> None:
    path = tmp_path / "loss.onnx"
    path.write_bytes(graph_of_loss(name))
    feeds = batch(8)
    given = {"x": feeds["x"], "labels": feeds["target"]}
    net = dense(extra=[node("Tanh", "a", "t"), node("Dropout", "t", "b")])  # losses of training and of evaluation
    for model_of_loss in (path, path.read_bytes()):
        with (
            TrainingSession(net, loss={"onnx": model_of_loss, **options}) as a,
            TrainingSession(net, loss={"cross_entropy": "y", **same}) as b,
        ):
            losses = [[s.step(f).loss for _ in range(4)] for s, f in ((a, given), (b, feeds))]
            np.testing.assert_allclose(*losses, rtol=1e-6)
            assert a.evaluate(given)["loss"] == pytest.approx(b.evaluate(feeds)["loss"], rel=1e-6)
            assert [p.name for p in a.parameters()] == [p.name for p in b.parameters()]


# ── batches, modes, states ──────────────────────────────────────────────────────────────────────────────────────────


def test_two_half_batches_are_one_step() -> None:
    feeds = batch(8)
    halves = [{k: v[n : n + 4] for k, v in feeds.items()} for n in (0, 4)]
    with TrainingSession(dense(), **CLASSES) as whole, TrainingSession(dense(), **CLASSES, accumulate=True) as parts:
        for _ in range(3):
            whole.step(feeds)
            before = parts.weights()
            for half in halves:
                parts.accumulate(half)
            assert all(np.array_equal(x, before[n]) for n, x in parts.weights().items())
            parts.apply()
            for name, x in whole.weights().items():
                np.testing.assert_allclose(parts.weights()[name], x, rtol=1e-4, atol=1e-6)
        with pytest.raises(InvalidInput, match="no gradients wait"):
            parts.apply()
        with pytest.raises(InvalidInput, match="option accumulate"):
            whole.accumulate(feeds)


def test_dropout_draws_other_masks_by_the_seed() -> None:
    net = dense(extra=[node("Tanh", "a", "t"), node("Dropout", "t", "b")])
    feeds, curves = batch(16), []
    for seed in (1, 1, 2):
        with TrainingSession(net, **CLASSES, optimizer={"sgd": {"rate": 0.0}}, seed=seed) as s:
            curves.append([s.step(feeds).loss for _ in range(3)])
            assert s.evaluate(feeds)["loss"] == s.evaluate(feeds)["loss"]
    assert curves[0] == curves[1] != curves[2]
    assert len(set(curves[0])) == 3
    with TrainingSession(net, **CLASSES, optimizer={"sgd": {"rate": 0.0}}, mode="inference") as s:
        assert s.step(feeds).loss == pytest.approx(s.evaluate(feeds)["loss"], rel=1e-6)


def test_batch_normalization_keeps_running_statistics() -> None:
    rng = np.random.default_rng(0)
    weights = {"g": np.ones(4), "b": np.zeros(4), "mean": np.zeros(4), "var": np.ones(4)}
    net = model(
        [node("BatchNormalization", "x g b mean var", "y")], {"x": (T.FLOAT, ["N", 4])}, {"y": (T.FLOAT, ["N", 4])},
        {k: v.astype(np.float32) for k, v in weights.items()},
    )  # fmt: skip
    x = rng.normal(2, 3, (32, 4)).astype(np.float32)
    with TrainingSession(net, loss={"mse": "y"}) as s:
        assert [p.name for p in s.parameters()] == ["g", "b"]
        before = s.evaluate({"x": x}, ["y"])["y"]
        s.step({"x": x, "target": x})
        np.testing.assert_allclose(s.weights()["mean"], 0.1 * x.mean(0), rtol=1e-4)
        np.testing.assert_allclose(s.weights()["var"], 0.9 + 0.1 * x.var(0), rtol=1e-4)
        assert not np.allclose(before, s.evaluate({"x": x}, ["y"])["y"])


def test_half_floats_are_trained_in_float32() -> None:
    w = random(0, w=(5, 3))["w"].astype(np.float16)
    net = model([node("MatMul", "x w", "y")], {"x": (T.FLOAT16, ["N", 5])}, {"y": (T.FLOAT16, ["N", 3])}, {"w": w})
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16, 5)).astype(np.float16)
    target = (x @ np.ones((5, 3), np.float16)).astype(np.float32)
    with TrainingSession(net, loss={"mse": "y"}, optimizer={"sgd": {"rate": 0.05}}) as s:
        losses = [s.step({"x": x, "target": target}).loss for _ in range(60)]
        assert losses[-1] < 0.05 * losses[0]
        assert s.weights()["w"].dtype == np.float32


@pytest.mark.parametrize("accumulate", [False, True])
def test_losses_of_half_floats_are_scaled(accumulate: bool) -> None:
    """Gradients below the smallest float16 train; those that overflow shrink the scale; checkpoints have it."""
    feeds, norms = half_training.feeds(), {}
    losses, norm = half_training.in_double([*half_training.STEPS, "good", "good"])
    options: dict[str, Any] = {**half_training.OPTIONS, "accumulate": accumulate}
    for scale in (1, 1024.0, "dynamic", None):
        with TrainingSession(half_training.network(), **options, loss_scale=scale) as s:
            norms[scale] = s.step(feeds["good"]).norm
    assert norms[1] == 0 and norms[None] == norms["dynamic"] == pytest.approx(norm, rel=0.01)
    assert norms[1024.0] == pytest.approx(norm, rel=0.1)
    with TrainingSession(half_training.network(), **options) as s, warnings.catch_warnings():
        warnings.simplefilter("error")
        s.load(half_training.checkpoint())
        found = [(s.loss_scale, s.step(feeds[name])) for name in half_training.STEPS]
        assert [scale for scale, _ in found] == half_training.SCALES
        assert [step.applied for _, step in found] == half_training.APPLIED
        state, scale = s.state(), s.loss_scale
        last = [s.step(feeds[name]).loss for name in ("good", "good", "far")]
        s.load(state)
        assert s.loss_scale == scale and [s.step(feeds["good"]).loss for _ in range(2)] == last[:2]
    np.testing.assert_allclose([*[step.loss for _, step in found], *last[:2]], losses, rtol=0.01)
    assert TrainingSession(dense(), **CLASSES).loss_scale == 1


def test_sessions_have_their_own_weights_and_keep_them(tmp_path: Any) -> None:
    """Two sessions of one model, trim, a memory that is freed and filled again, and feeds of other shapes."""
    path = tmp_path / "net.onnx"
    path.write_bytes(dense())
    feeds = batch(8)
    with TrainingSession(path, **CLASSES) as a, TrainingSession(path, **CLASSES) as b:
        first = [a.step(feeds).loss for _ in range(6)]
        second = []
        for n in range(6):
            second.append(b.step(feeds).loss)
            if n == 1:
                b.trim()
            if n == 2:
                assert b._session.free_if_idle()
            if n == 3:
                b.evaluate(batch(300))
            if n == 4:
                b._session.programs.forget_others([])
        assert first == second
        assert np.array_equal(a.weights()["w1"], b.weights()["w1"])
    with pytest.raises(SessionFailed):
        a.step(feeds)


def test_a_checkpoint_goes_on_with_the_same_curve(tmp_path: Any) -> None:
    feeds, file = batch(8), tmp_path / "net.safetensors"
    options: dict[str, Any] = {**CLASSES, "optimizer": "adamw", "schedule": {"linear": {"steps": 9}}}
    with TrainingSession(dense(), **options) as a, TrainingSession(dense(3), **options) as b:
        a.step(feeds)
        a.save(file)
        rest = [a.step(feeds) for _ in range(3)]
        b.step(feeds)
        b.load(file)
        assert [b.step(feeds) for _ in range(3)] == rest
        assert [f.name for f in tmp_path.iterdir()] == [file.name]
        with pytest.raises(InvalidInput, match="cut off"):
            b.load(file.read_bytes()[:-9][:100])
    with TrainingSession(dense(), **CLASSES, optimizer="sgd") as other:
        with pytest.raises(InvalidInput, match="of optimizer adamw"):
            other.load(file)


def test_listeners_hear_of_steps() -> None:
    heard: list[Any] = []
    end = pyruntime.on("session", lambda event: heard.append(event) if event["type"] in ("step", "batch") else None)
    with TrainingSession(dense(), **CLASSES, accumulate=True) as s:
        first, second, last = s.accumulate(batch(4)), s.accumulate(batch(4)), s.apply()
        delivered()
        assert s.metrics()["runs"] == 3
    end()
    assert [(e["type"], e["batch"], e["step"], e["applied"]) for e in heard] == [
        ("batch", 1, 0, False), ("batch", 2, 0, False), ("step", 2, 1, True),
    ]  # fmt: skip
    assert [e["norm"] for e in heard] == [r.norm for r in (first, second, last)]
    assert {e["session"] for e in heard} == {s.id}


def test_a_step_that_is_stopped_changes_nothing_or_refuses() -> None:
    """Wherever the stop meets it."""
    ids = np.zeros((16, 64), np.int64)
    feeds = {"ids": ids, "target": ids}
    with TrainingSession(transformer(), loss={"cross_entropy": "logits"}) as s:
        s.step(feeds)
        outcomes = set()
        for n in range(12):
            checkpoint, options = s.state(), RunOptions()
            timer = threading.Timer(n / 400, lambda options=options: setattr(options, "terminate", True))
            timer.start()
            try:
                s.step(feeds, run_options=options)
                outcomes.add("done")
            except Terminated:
                try:
                    assert s.state() == checkpoint
                    outcomes.add("stopped")
                except SessionFailed:
                    s.load(checkpoint)
                    outcomes.add("lost")
                assert s.state() == checkpoint
            timer.join()
    assert "stopped" in outcomes


# ── what is refused, and what changes nothing ───────────────────────────────────────────────────────────────────────


def test_an_infinite_loss_changes_nothing_and_is_told() -> None:
    feeds = batch(4)
    bad = {**feeds, "x": np.full((4, 6), np.inf, np.float32)}
    for accumulate in (False, True):
        with TrainingSession(dense(extra=[node("Identity", "a", "b")]), **CLASSES, accumulate=accumulate) as s:
            s.step(feeds)
            before = s.weights()
            with pytest.warns(RuntimeWarning, match="step 2 .batch 2. changed no weight: the loss is not finite"):
                assert not s.step(bad).applied
            assert all(np.array_equal(x, before[n]) for n, x in s.weights().items())
            assert s.step(feeds).step == 2


def test_memory_that_will_not_do_is_told_before_a_kernel_runs() -> None:
    ids = np.zeros((16, 128), np.int64)
    few, many = ({"ids": x, "target": x} for x in (ids[:1, :4], ids))
    options = {**CLASSES_OF_TOKENS, "sess_options": SessionOptions(memory_limit=4 << 20)}
    with TrainingSession(transformer(), **options) as s, TrainingSession(transformer(), **CLASSES_OF_TOKENS) as free:
        for n in range(2):
            before = s.weights()
            with pytest.raises(OutOfMemory, match=r"\d+ bytes of memory are needed, memory_limit is 4194304"):
                s.step(many)
            assert all(np.array_equal(x, before[name]) for name, x in s.weights().items())
            assert s.step(few) == free.step(few) and s.memory().peak < 4 << 20, n


@pytest.mark.parametrize("weights", [None, [0.3, 2.0, 0.7]], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_that_of_pytorch(weights: Any, smoothing: float) -> None:
    """Σ w[t]·(1 - s)·-log p[t] + s/C·Σ w[c]·-log p[c], divided by the weights of the labels that count."""
    settings = {"weights": weights, "smoothing": smoothing, "ignore_index": 7}
    feeds = {**batch(4), "target": np.array([0, 7, 2, 1])}
    with TrainingSession(dense(), loss={"cross_entropy": "y", **settings}) as s:
        found = s.evaluate(feeds, ["y"])
    y, labels, w = found["y"][[0, 2, 3]].astype(float), [0, 2, 1], np.array(weights or [1.0] * 3)
    logs = y - np.log(np.exp(y).sum(1, keepdims=True))
    terms = (1 - smoothing) * w[labels] * logs[range(3), labels] + smoothing / 3 * (logs * w).sum(1)
    assert found["loss"] == pytest.approx(-terms.sum() / w[labels].sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs a loss"),
        ({"loss": {"mse": "z"}}, 'output "z" does not exist'),
        ({"loss": {"mee": "y"}}, "is not known"),
        ({"loss": "y"}, "a loss is a single number"),
        ({**CLASSES, "trainable": "head.*"}, 'no weight has a name like "head.*"'),
        ({**CLASSES, "trainable": []}, "no weight to train"),
        ({**CLASSES, "optimizer": "adm"}, 'optimizer "adm" is not known'),
        ({**CLASSES, "optimizer": {"sgd": {"lr": 1}}}, 'no setting of sgd "lr"'),
        ({**CLASSES, "schedule": "cosine"}, "needs the number of steps"),
        ({**CLASSES, "clip": "yes"}, "clip cannot be 'yes'"),
        ({**CLASSES, "clip": {"value": 0}}, "clip.value cannot be 0"),
        ({**CLASSES, "optimizer": {"sgd": -0.1}}, "sgd.rate cannot be -0.1"),
        ({**CLASSES, "optimizer": {"adam": {"beta1": 1}}}, "adam.beta1 cannot be 1 .*below 1"),
        ({**CLASSES, "schedule": {"constant": {"warmup": math.nan}}}, "constant.warmup cannot be nan"),
        ({"loss": {"cross_entropy": "y", "smoothing": 1.5}}, "smoothing cannot be 1.5"),
        ({"loss": {"cross_entropy": "y", "weights": [1, -1, 1]}}, "a class's weight cannot be -1"),
        ({**CLASSES, "lose": 1}, 'no option "lose"'),
        ({"loss": {"cross_entropy": "y", "target": "x"}}, 'has a value "x" already'),
        ({**CLASSES, "loss_scale": 0}, "loss_scale cannot be 0"),
        ({"loss": {"onnx": b"x"}}, "not an ONNX model"),
        ({"loss": {"onnx": 1}}, "not as int"),
        ({"loss": {"onnx": graph_of_loss("own")}}, "needs one output"),
        ({"loss": {"onnx": graph_of_loss("own"), "output": "b"}}, "no input of the graph of the loss .x, scores"),
        ({"loss": {"onnx": graph_of_loss("own"), "output": "b", "inputs": {"scores": "y"}}}, "is a single number"),
        ({"loss": {"onnx": graph_of_loss("twice"), "inputs": {"y": "z"}}}, 'the model has no output "z"'),
        ({"loss": {"onnx": graph_of_loss("twice"), "inputs": {"q": "y"}}}, 'has no input "q"'),
    ],
)  # fmt: skip
def test_refused_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(pyruntime.PyRuntimeError, match=text):
        TrainingSession(dense(), **options)


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf, "fast"], ids=str)
def test_rates_that_would_spoil_the_weights(rate: Any) -> None:
    with TrainingSession(dense(), **CLASSES) as s:
        before = s.weights()
        with pytest.raises(InvalidInput, match="rate cannot be"):
            s.step(batch(4), rate=rate)
        assert all(np.array_equal(x, before[n]) for n, x in s.weights().items())


def test_targets_of_another_shape_or_type() -> None:
    feeds = batch(4)
    with TrainingSession(dense(), **CLASSES) as s:
        bad = ((np.zeros(5, np.int64), "the labels"), (np.zeros((4, 3), np.int64), "rank"), (np.zeros(4), "type"))
        for target, text in bad:
            with pytest.raises(pyruntime.PyRuntimeError, match=text):
                s.step({**feeds, "target": target})
        assert s.step({**feeds, "target": feeds["target"].astype(np.uint8)}).step == 1


def test_exported_models_have_the_new_weights(tmp_path: Any) -> None:
    """onnxruntime runs them; weights may be raw, floats of a list, halves, or in another file."""
    import onnx
    import onnxruntime
    from onnx import helper

    w = random(0, w=(5, 3))["w"]
    plain = model([node("MatMul", "x w", "y")], {"x": (T.FLOAT, ["N", 5])}, {"y": (T.FLOAT, ["N", 3])}, {"w": w})
    listed = onnx.load_from_string(plain)
    listed.graph.initializer[0].CopyFrom(helper.make_tensor("w", T.FLOAT, (5, 3), w.ravel().tolist()))
    half = model(
        [node("MatMul", "x w", "y")], {"x": (T.FLOAT16, ["N", 5])}, {"y": (T.FLOAT16, ["N", 3])},
        {"w": w.astype(np.float16)},
    )  # fmt: skip
    apart = tmp_path / "apart.onnx"
    onnx.save(onnx.load_from_string(plain), apart, save_as_external_data=True, location="w.bin", size_threshold=0)
    x = np.random.default_rng(0).normal(size=(4, 5))
    for given in (plain, listed.SerializeToString(), half, apart):
        kind = np.float16 if given is half else np.float32
        with TrainingSession(given, loss={"mse": "y"}, optimizer="sgd") as s:
            s.step({"x": x.astype(kind), "target": np.ones((4, 3))})
            data = s.export(tmp_path / "new.onnx")
            assert (tmp_path / "new.onnx").read_bytes() == data
            expected = s.evaluate({"x": x.astype(kind)})["y"]
            assert not np.array_equal(s.weights()["w"], w)
        onnx.checker.check_model(onnx.load_from_string(data))
        found = onnxruntime.InferenceSession(data).run(None, {"x": x.astype(kind)})[0]
        np.testing.assert_allclose(found, expected, rtol=1e-2 if given is half else 1e-5)


def test_programs_are_cached_after_training() -> None:
    """The rules of rare operators do not count as operators of users."""
    code = """
from pyruntime.frontend import registry
from kit.training_networks import dense
from pyruntime import TrainingSession
TrainingSession(dense(), loss={"cross_entropy": "y"}, optimizer={"sgd": {"rate": 0.5}}).release()
assert not registry.is_extended()
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
