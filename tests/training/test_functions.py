"""Losses and optimisers that are Python functions, beside formulas (kit/traced_cases.py); averages of weights."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kit import torch_formulas as formulas
from kit import traced_cases as cases
from kit.training_networks import (
    T,
    batch,
    convolutional,
    dense,
    digits,
    model,
    node,
    of_outputs,
    with_gradient,
)
from pyruntime import InferenceSession, InvalidInput, TrainingSession
from pyruntime.errors import ExecutionError, PyRuntimeError, ShapeError
from pyruntime.training.graph.recipe import from_javascript, recipe_of
from pyruntime.training.graph.traced_functions import trace_update

PROVIDERS = pytest.mark.parametrize("provider", ["wasm", "webgpu"])


@PROVIDERS
@pytest.mark.parametrize("case", cases.LOSSES, ids=lambda case: case.name)
def test_losses_and_their_gradients(case: cases.LossCase, provider: str) -> None:
    options: Any = {"optimizer": {"sgd": {"rate": 1.0}}, "providers": [provider]}
    feeds = {n: x.astype(np.float32) if x.dtype.kind == "f" else x for n, x in case.feeds.items()}
    with TrainingSession(of_outputs(case.outputs), loss=case.function, **options) as s:
        before = s.weights()
        found = {"one": np.float32(1), **feeds}
        assert s.evaluate(found)["loss"] == pytest.approx(value := s.step(found).loss, rel=1e-6)
        gradients = [before[name] - w for name, w in s.weights().items()]
    assert value == pytest.approx(case.formula(*case.outputs, *case.feeds.values()), rel=1e-5)
    expected = formulas.slopes(case.formula, case.outputs, [*case.feeds.values()])
    for g, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(g, wanted, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("case", cases.UPDATES, ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("provider", "shape"), [("wasm", (5, 3)), ("webgpu", (5, 3)), ("wasm", (15,)), ("wasm", (1, 15))]
)
def test_optimisers(case: cases.UpdateCase, provider: str, shape: tuple[int, ...]) -> None:
    """24 steps, in the middle of which a checkpoint is loaded by a session of its own."""
    w = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    gradients = [g.reshape(shape) for g in formulas.gradients()]
    optimizer = {"function": {"update": case.function, **case.settings}}
    options: Any = {"loss": "y", "optimizer": optimizer, "providers": [provider]}
    with TrainingSession(with_gradient(w), **options) as a, TrainingSession(with_gradient(w), **options) as b:
        steps = zip(gradients, case.formula(w.astype(np.float64), gradients), strict=True)
        for n, (g, expected) in enumerate(steps):
            session = a if n < 12 else b
            session.load(a.state()) if n == 12 else None
            session.step({"g": g.astype(np.float32)})
            np.testing.assert_allclose(session.weights()["w"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"accumulate": True}, {"clip": 0.05}, {"clip": {"value": 0.01}},
                                     {"loss_scale": 8.0}, {"proximal": 0.1}], ids=str)  # fmt: skip
def test_a_function_is_as_the_optimiser_of_the_same_formula(options: Any) -> None:
    """With the rates of groups and a schedule, and a loss that is a function."""
    more: Any = {
        "groups": [{"match": "b*", "rate": 0.01}],
        "schedule": {"cosine": {"steps": 30, "warmup": 3}},
        **options,
    }
    plain: Any = {"loss": {"cross_entropy": "y"}, "optimizer": {"adam": {"rate": 0.02}}, **more}
    own: Any = {"optimizer": {"function": {"update": cases.adam, "rate": 0.02}}, **more}
    own["loss"] = lambda o, labels: -o["y"].log_softmax(-1).pick(labels["target"]).mean()
    with TrainingSession(dense(), **plain) as a, TrainingSession(dense(), **own) as b:
        for n in range(25):
            feeds = batch(4 + n % 3)
            assert b.step(feeds).loss == pytest.approx(a.step(feeds).loss, rel=2e-5)
        for name, w in a.weights().items():
            np.testing.assert_allclose(b.weights()[name], w, rtol=1e-3, atol=1e-5)


def test_rows_of_a_table() -> None:
    """A table whose gradient has few rows: a function of elements, and one that needs whole gradients."""
    table = np.random.default_rng(0).normal(size=(20000, 8)).astype(np.float32)
    net = model([node("Gather", "table ids", "r"), node("ReduceSum", "r", "y", keepdims=0)],
                {"ids": (T.INT64, ["N"])}, {"y": (T.FLOAT, [])}, {"table": table})  # fmt: skip
    ids = np.array([3, 19999, 3])
    g = np.zeros_like(table)
    np.add.at(g, ids, 1)
    for case in cases.UPDATES[:2]:
        optimizer = {"function": {"update": case.function, **case.settings}}
        with TrainingSession(net, loss="y", optimizer=optimizer) as s:
            for expected in case.formula(table.astype(np.float64), [g] * 3):
                s.step({"ids": ids})
                np.testing.assert_allclose(s.weights()["table"], expected, rtol=1e-4, atol=1e-5)


def _branches(o: Any, labels: Any) -> Any:
    return o.y.mean() if o.y.mean() > 0 else o.y.sum()


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (_branches, "has no value"),
    (lambda o, t: o.y.square(), "has 2 axes; a loss is a single number"),
    (lambda o, t: o.y.mean(-1), "has 1 axes"),
    (lambda o, t: o.y.logsumexp(), 'no method "logsumexp"'),
    (lambda o, t: 3.0, "returned float"),
    (lambda o, t: None, "returned NoneType"),
    (lambda o, t: o.z.mean(), 'output "z" does not exist'),
    (lambda o, t: t.target.mean(), "reads no output"),
    (lambda o, t: o.y.mean() + t.target.mean(), 'how many axes the label "target"'),
    (lambda o, t: (o.y * float("inf")).mean(), "cannot compute with inf"),
    (lambda o, t: (o.y + "a").mean(), "cannot compute with 'a'"),
    (lambda o, t: o.y.sum(1.5), "axes of sum cannot be 1.5"),
    (lambda o, t: o.y.sum(-1, 1).mean(), "keepdims of sum"),
    (lambda o, t: o.y.sum(dim=1).mean(), 'not "dim"'),
    (lambda o, t: o.y.one_hot().mean(), "one_hot needs classes"),
    (lambda o, t: o.y.add().mean(), "add takes 1 arguments"),
    (lambda o, t: o.y[0].mean(), "has no value"),
    (lambda o, t: sum(o.y), "has no value"),
    (lambda o, t: (o.y * o.y.rank).mean(), "rank of a traced tensor"),
    (lambda o, t: setattr(t, "target", o.y), "cannot be set"),
    (lambda o, t: o.y.unsqueeze(5).mean(), "axis"),
    (lambda o, t: o.y.unsqueeze([0, 0]).mean(), "repeat"),
    (lambda o, t: o.y.pick(1).mean(), "labels of pick have 0 axes"),
    (lambda o, t: (o.y * 10**400).mean(), "cannot compute with 1000"),
    (lambda o, t: (o.y % 2).mean(), "the loss raised TypeError: unsupported"),
    (lambda o: o.y.mean(), "the loss raised TypeError: .*takes 1 positional"),
]


@pytest.mark.parametrize(("loss", "message"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_losses_that_are_refused(loss: Any, message: str) -> None:
    with pytest.raises(PyRuntimeError, match=message):
        TrainingSession(dense(), loss=loss)


WRONG: list[tuple[Callable[..., Any], type[PyRuntimeError], str]] = [
    (lambda w, g, s, n: w - g if g.mean() > 0 else w, InvalidInput, "has no value"),
    (lambda w, g, s, n: g.mean(), ShapeError, "returns shape"),
    (lambda w, g, s, n: (s.__setattr__("m", s.m.unsqueeze(0)), w - s.m.mean())[1], ShapeError, "another shape in each"),
    (lambda w, g, s, n: w - s.m, InvalidInput, "never sets it"),
    (lambda w, g, s, n: w - n.momentum * g, InvalidInput, "no step.momentum"),
    (lambda w, g, s, n: w - n.correction(1) * g, InvalidInput, "correction cannot be of 1"),
    (lambda w, g, s, n: None, InvalidInput, "returned NoneType"),
    (lambda w, g, s, n: (s.__setitem__("a/b", s["a/b"] + g), w - s["a/b"])[1], InvalidInput, 'the name "a/b"'),
    (lambda w, g, s, n: (s.__setitem__("", g), w - g)[1], InvalidInput, "cannot be set"),
    (lambda w, g, s, n: 1 / 0, InvalidInput, "the optimizer raised ZeroDivisionError"),
]


@pytest.mark.parametrize(("update", "kind", "message"), WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_optimisers_that_are_refused(update: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        TrainingSession(dense(), loss={"cross_entropy": "y"}, optimizer=update)


def test_long_chains_of_values_that_are_read_twice() -> None:
    """Compiling took time that was exponential in the length."""
    w, g = np.ones((2, 3), np.float32), np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

    def chain(x: Any, tanh: Callable[..., Any]) -> Any:
        for _ in range(40):
            x = tanh(x * x + x)
        return x

    with TrainingSession(
        with_gradient(w), loss="y", trainable="w", optimizer=lambda w, g, s, n: w - chain(g, _tanh)
    ) as s:
        s.step({"g": g})
        np.testing.assert_allclose(s.weights()["w"], w - chain(g, np.tanh), rtol=1e-4, atol=1e-5)


CHAINED = 1000
LONG: dict[str, Callable[[Any], Any]] = {
    "numbers": lambda x: x * 0.999 + 0.001,
    "conditions": lambda x: ((x > 0.5).logical_or(x < 0)).where(x * 0.5, x + 0.25),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("of", ["loss", "optimizer"])
def test_chains_of_thousands_of_operations(name: str, of: str) -> None:
    """Expressions are walked by recursion, whose depth has a limit."""
    w, g = np.ones((2, 3), np.float32), np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

    def chain(x: Any) -> Any:
        for _ in range(CHAINED):
            x = LONG[name](x)
        return x

    def plain(x: np.ndarray) -> np.ndarray:
        for _ in range(CHAINED):
            x = x * 0.999 + 0.001 if name == "numbers" else np.where((x > 0.5) | (x < 0), x * 0.5, x + 0.25)
        return x

    options: Any = (
        {"loss": lambda outputs, _: chain(outputs.g * 1.0).sum() + outputs.y * 0.0} if of == "loss"
        else {"loss": "y", "optimizer": lambda w, g, s, n: w - chain(g)}
    )  # fmt: skip
    with TrainingSession(with_gradient(w), trainable="w", **options) as s:
        loss = s.step({"g": g}).loss
        if of == "loss":
            assert loss == pytest.approx(plain(g).sum(), rel=1e-4)
        else:
            np.testing.assert_allclose(s.weights()["w"], w - plain(g), rtol=1e-4, atol=1e-5)


def test_a_chain_of_conditions() -> None:
    """Each of which several read."""
    w, g = np.ones((2, 3), np.float32), np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

    def update(w: Any, g: Any, s: Any, n: Any) -> Any:
        c = g > 0
        for _ in range(400):
            c = c.logical_not().logical_and(c.logical_or(c))
        return w - c.logical_not().where(g, 0)

    with TrainingSession(with_gradient(w), loss="y", trainable="w", optimizer=update) as s:
        s.step({"g": g})
        np.testing.assert_allclose(s.weights()["w"], w - g, rtol=1e-6)


TIES: list[tuple[Callable[[Any], Any], float]] = [
    (lambda y: y.max(-1).sum(), 0.0), (lambda y: y.min().sum(), 0.0), (lambda y: y.maximum(0).sum(), 0.5),
    (lambda y: y.minimum(y * 0).sum(), 0.5), (lambda y: y.relu().sum(), 0.0), (lambda y: y.abs().sum(), 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "last"), TIES)
def test_gradients_of_equal_elements(loss: Any, last: float) -> None:
    """As torch's max(x, dim), whose index is that of one element, maximum, minimum, relu and abs. last: the gradient of
    an element that others before it equal"""
    w = np.zeros((1, 3), np.float32)
    net = model([node("Add", "w x", "y")], {"x": (T.FLOAT, [1, 3])}, {"y": (T.FLOAT, [1, 3])}, {"w": w})
    with TrainingSession(net, loss=lambda o, _: loss(o.y), trainable="w", accumulate=True) as s:
        assert s.gradients({"x": w})["w"][0, -1] == last


def _tanh(x: Any) -> Any:
    return x.tanh()


def test_settings_have_the_names_that_functions_read() -> None:
    trace = trace_update(lambda w, g, s, n: w - n.weightDecay * g)
    options = from_javascript({"loss": "y", "optimizer": {"function": {"update": trace, "weightDecay": 0.1}}})
    assert recipe_of(options).settings == {"rate": 1e-3, "weightDecay": 0.1}
    with pytest.raises(InvalidInput, match="function.number cannot be set"):
        recipe_of(
            {"loss": "y", "optimizer": {"function": {"update": lambda w, g, s, n: w - n.number * g, "number": 1}}}
        )


def test_losses_share_a_label_of_the_same_rank_alone() -> None:
    rows = lambda o, labels: (o.y.sum(-1) - labels.target).square().mean()  # noqa: E731
    with TrainingSession(dense(), loss=[{"cross_entropy": "y"}, rows]) as s:
        assert s.step(batch(4)).applied
    with pytest.raises(InvalidInput, match='"target" with 2 axes and with 1'):
        TrainingSession(dense(), loss=[{"mse": "y"}, rows])


@PROVIDERS
def test_products_of_vectors_and_numbers_that_are_not_finite(provider: str) -> None:
    """The output's name is one that steps of optimisers have a method of."""
    net = model([node("Mul", "w one", "correction")], {"one": (T.FLOAT, [])}, {"correction": (T.FLOAT, [1])},
                {"w": np.ones(1, np.float32)})  # fmt: skip
    for name, expected in (("relu", [0, 0, np.inf, np.nan]), ("softplus", [0, np.exp(-30), np.inf, np.nan])):
        loss = lambda o, labels, name=name: o.correction.matmul(getattr(labels.x, name)())  # noqa: E731
        with TrainingSession(net, loss=loss, trainable="w", providers=[provider]) as s:
            found = [
                s.evaluate({"one": np.float32(1), "x": np.array([x], np.float32)})["loss"]
                for x in (-np.inf, -30, np.inf, np.nan)
            ]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_weights_of_too_many_axes_are_refused_and_adapters_learn() -> None:
    wide = np.random.default_rng(0).normal(size=(1, 1, 1, 1, 1, 2, 3)).astype(np.float32)
    with pytest.raises(InvalidInput, match="has 7 axes"):
        TrainingSession(with_gradient(wide), loss="y", optimizer="adafactor")
    with TrainingSession(with_gradient(wide[0]), loss="y", optimizer="adafactor") as s:
        assert s.step({"g": wide[0]}).applied
    options: Any = {"loss": {"cross_entropy": "y"}, "lora": {"rank": 2}, "optimizer": "adafactor", "ema": 0.5}
    with TrainingSession(dense(), **options) as s:
        losses = [s.step(batch(8)).loss for _ in range(10)]
        assert losses[-1] < losses[0]
        average = TrainingSession(s.export(average=True), loss={"cross_entropy": "y"}).evaluate(batch(8))["loss"]
        assert average == pytest.approx(s.evaluate(batch(8), average=True)["loss"], rel=1e-5)


def test_labels_out_of_range_and_of_other_sizes_are_told() -> None:
    options: Any = {"loss": lambda o, labels: -(o.y.log_softmax(-1) * labels.target.one_hot(3)).sum(-1).mean()}
    feeds = batch(4)
    with TrainingSession(dense(), **options) as s:
        before = s.weights()
        with pytest.raises(ExecutionError, match="index 3 is out of range"):
            s.step({**feeds, "target": np.array([0, 3, 1, 1])})
        with pytest.raises(PyRuntimeError, match="neither equal nor 1|differ"):
            s.step({**feeds, "target": np.array([0, 2, 1])})
        assert all(np.array_equal(w, before[n]) for n, w in s.weights().items())
        assert s.step(feeds).applied


def test_sessions_with_functions_can_be_pickled() -> None:
    options: Any = {"loss": lambda o, labels: (o.y - labels.target).square().mean(), "optimizer": cases.lars}
    feeds = {"x": batch(4)["x"], "target": np.zeros((4, 3), np.float32)}
    options["optimizer"] = {"function": {"update": cases.lars, "decay": 0.1, "trust": 1}}
    with TrainingSession(dense(), **options) as a:
        a.step(feeds)
        with pickle.loads(pickle.dumps(a)) as b:
            assert a.step(feeds) == b.step(feeds)
        other = {"function": {"update": cases.adam}}
        with TrainingSession(dense(), loss=options["loss"], optimizer=other) as c, pytest.raises(InvalidInput):
            c.load(a.state())


# ── averages ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "adafactor"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_averages_of_weights(optimizer: str, accumulate: bool) -> None:
    """As torch's get_ema_multi_avg_fn: the first step copies, each later one adds its share."""
    images, labels, *_ = digits()
    feeds = {"image": images[:16], "target": labels[:16]}
    options: Any = {"loss": {"cross_entropy": "logits"}, "optimizer": optimizer, "accumulate": accumulate}
    with (
        TrainingSession(convolutional(), **options, ema=0.8) as s,
        TrainingSession(convolutional(), **options) as plain,
    ):
        assert s.evaluate(feeds, average=True) == s.evaluate(feeds)
        average: dict[str, np.ndarray] = {}
        for n in range(6):
            assert s.step(feeds).loss == plain.step(feeds).loss
            now = s.weights()
            average = {k: 0.8 * average[k] + 0.2 * w if n else w for k, w in now.items()}
        for name, w in s.weights(average=True).items():
            np.testing.assert_allclose(w, average[name], rtol=1e-5, atol=1e-7)
        (logits,) = InferenceSession(s.export(average=True)).run(None, {"image": images[:16]})
        found = s.evaluate(feeds, ["logits"], average=True)
        np.testing.assert_allclose(found["logits"], logits, rtol=1e-5, atol=1e-6)
        plain.set_weights(s.weights(average=True))
        assert found["loss"] == pytest.approx(plain.evaluate(feeds)["loss"], rel=1e-6)
        assert all(np.array_equal(w, now[k]) for k, w in s.weights().items())
        with TrainingSession(convolutional(), **options, ema=0.8) as other:
            other.load(s.state())
            assert other.evaluate(feeds, average=True)["loss"] == found["loss"]
            other.load(plain.state())  # without averages: they begin with its weights
            other.step(feeds)
            assert other.evaluate(feeds, average=True)["loss"] != found["loss"]


def test_averages_of_rows() -> None:
    """Rows of a table without a gradient go on to their average."""
    table = np.random.default_rng(0).normal(size=(20000, 8)).astype(np.float32)
    net = model([node("Gather", "table ids", "r"), node("ReduceSum", "r", "y", keepdims=0)],
                {"ids": (T.INT64, ["N"])}, {"y": (T.FLOAT, [])}, {"table": table})  # fmt: skip
    with TrainingSession(net, loss="y", optimizer={"sgd": {"rate": 0.5}}, ema=0.5) as s:
        average = None
        for n in range(4):
            s.step({"ids": np.array([n // 2, 7])})
            now = s.weights()["table"]
            average = now if average is None else 0.5 * average + 0.5 * now
        np.testing.assert_allclose(s.weights(average=True)["table"], average, rtol=1e-6)


def test_without_averages_they_are_refused() -> None:
    with TrainingSession(dense(), loss={"cross_entropy": "y"}) as s:
        for call in (s.weights, s.export, lambda average: s.evaluate(batch(4), average=average)):
            with pytest.raises(InvalidInput, match="option ema"):
                call(average=True)
    for wrong in (0, 1, -1, 2, "a", float("nan")):
        with pytest.raises(InvalidInput, match="ema cannot be"):
            TrainingSession(dense(), loss={"cross_entropy": "y"}, ema=wrong)
