"""Sequences of calls of training sessions, against gradients in NumPy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, rule
from onnx import numpy_helper

from fuzz.sequences.machine import GPU_FAULTS, PROVIDERS, Machine, close, stopped, stopping_after, together
from pyruntime import InferenceSession, TrainingSession
from pyruntime.errors import InvalidInput, SessionFailed, ShapeError, Terminated

INPUTS, HIDDEN, OUTPUTS = 4, 5, 3
TEXT = f"""<ir_version: 9, opset_import: ["" : 17]>
    g (float[N, {INPUTS}] x) => (float[N, {OUTPUTS}] y) {{
        a = Gemm (x, w1, b1)  h = Tanh (a)  y = Gemm (h, w2, b2)
    }}"""
SHAPES = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, OUTPUTS), "b2": (OUTPUTS,)}
RATE, MOMENTUM = 0.05, 0.9
Arrays = dict[str, np.ndarray]


def _weights() -> Arrays:
    draw = np.random.default_rng(5).standard_normal
    return {name: draw(shape) / 2 for name, shape in SHAPES.items()}


def _model() -> bytes:
    made = onnx.parser.parse_model(TEXT)
    for name, value in _weights().items():
        made.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    return made.SerializeToString()


MODEL = _model()


def batch(rows: int, seed: int, is_finite: bool = True) -> Arrays:
    draw = np.random.default_rng(seed).standard_normal
    x, target = draw((rows, INPUTS)).astype(np.float32), draw((rows, OUTPUTS)).astype(np.float32)
    if not is_finite:
        x[0, 0] = np.nan
    return {"x": x, "target": target}


@dataclass
class Reference:
    """The plain evaluator: a network of two layers whose loss is the mean squared error, trained by SGD with momentum.
    losses, gradients: of the batches that wait for `apply`"""

    weights: Arrays = field(default_factory=_weights)
    moments: Arrays = field(default_factory=lambda: {name: np.zeros(shape) for name, shape in SHAPES.items()})
    steps: int = 0
    gradients: list[Arrays] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    has_losses: bool = True  # of all batches that wait: checkpoints do not have them

    def outputs(self, x: np.ndarray) -> np.ndarray:
        w = self.weights
        return np.tanh(x @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]

    def loss(self, feeds: Arrays) -> float:
        return float(np.mean((self.outputs(feeds["x"]) - feeds["target"]) ** 2))

    def gradient(self, feeds: Arrays) -> Arrays:
        w, x = self.weights, feeds["x"].astype(np.float64)
        h = np.tanh(x @ w["w1"] + w["b1"])
        dy = 2 * (h @ w["w2"] + w["b2"] - feeds["target"]) / feeds["target"].size
        da = dy @ w["w2"].T * (1 - h * h)
        return {"w1": x.T @ da, "b1": da.sum(0), "w2": h.T @ dy, "b2": dy.sum(0)}

    def change(self, gradient: Arrays) -> None:
        for name, g in gradient.items():
            self.moments[name] = MOMENTUM * self.moments[name] + g
            self.weights[name] = self.weights[name] - RATE * self.moments[name]
        self.steps += 1

    def step(self, feeds: Arrays) -> float:
        loss = self.loss(feeds)
        if np.isfinite(loss):
            self.change(self.gradient(feeds))
        return loss

    def accumulate(self, feeds: Arrays) -> float:
        loss = self.loss(feeds)
        if np.isfinite(loss):
            if not self.gradients:
                self.losses, self.has_losses = [], True
            self.gradients.append(self.gradient(feeds))
            self.losses.append(loss)
        return loss

    def apply(self, is_sum: bool) -> None:
        scale = 1.0 if is_sum else 1.0 / len(self.gradients)
        self.change({name: scale * sum(g[name] for g in self.gradients) for name in SHAPES})
        self.gradients = []


@dataclass(eq=False)
class Opened:
    """is_broken: its weights are gone, or a step that was stopped may have changed them, and work is refused until
    `load`; may_be_broken: because of a fault of the GPU"""

    session: TrainingSession
    accumulates: bool
    providers: list[Any]
    reference: Reference = field(default_factory=Reference, repr=False)
    is_released: bool = False
    is_broken: bool = False
    may_be_broken: bool = False

    def __repr__(self) -> str:
        return f"<{self.providers} {'accumulates' if self.accumulates else ''}>"


@dataclass(eq=False)
class Checkpoint:
    data: bytes = field(repr=False)
    reference: Reference = field(repr=False)


ROWS, SEEDS = st.sampled_from([1, 2, 5, 33]), st.integers(0, 9)
FINITE = st.sampled_from([True, True, True, False])


class TrainingMachine(Machine):
    sessions = Bundle("sessions")
    checkpoints = Bundle("checkpoints")

    def __init__(self) -> None:
        super().__init__()
        self.held_sessions: list[Opened] = []

    def release_all(self) -> None:
        for one in self.held_sessions:
            one.session.release()
            del one.session

    def lost(self) -> None:
        for one in self.held_sessions:
            one.may_be_broken = one.may_be_broken or one.providers[0] == "webgpu"

    # ── opening and releasing ──

    @initialize(target=sessions, accumulates=st.booleans(), providers=st.sampled_from(["wasm", "webgpu"]))
    def first(self, accumulates: bool, providers: str) -> Opened:
        return self.open(accumulates, providers)

    @rule(target=sessions, accumulates=st.booleans(), providers=st.sampled_from(["wasm", "webgpu", "both"]))
    def open(self, accumulates: bool, providers: str) -> Opened:
        names = PROVIDERS[providers]

        def opened() -> TrainingSession:
            optimizer = {"sgd": {"rate": RATE, "momentum": MOMENTUM}}
            return TrainingSession(
                MODEL, loss={"mse": "y"}, optimizer=optimizer, trainable=[*SHAPES], accumulate=accumulates,
                providers=names,
            )  # fmt: skip

        allowed = [*(GPU_FAULTS if self.fault and providers == "webgpu" else ()), *self.limits()]
        session, error = self.attempt(f"open training {providers}", opened, *allowed)
        self.end_fault()
        if error is not None:
            self.unlimit()
            session, _ = self.attempt("open training again", opened)
        self.held_sessions.append(made := Opened(session, accumulates, names))
        return made

    @rule(one=sessions)
    def release(self, one: Opened) -> None:
        self.attempt("release", one.session.release)
        self.end_fault()
        one.is_released = True

    # ── calls ──

    def may_raise(self, one: Opened) -> tuple[type[Exception], ...]:
        """What limits of memory and faults of the GPU may raise."""
        found = [*self.limits(), *([SessionFailed] if one.may_be_broken else [])]
        return (*found, *GPU_FAULTS, SessionFailed) if self.fault and one.providers[0] == "webgpu" else tuple(found)

    def call(self, what: str, one: Opened, work: Callable[[], Any], *must: type[Exception], feeds: Any = None) -> Any:
        """The result of a call; None if it was refused, or failed for a reason that the sequence has given. must: one
        of these errors is right; feeds: of a step"""
        certain = (*must, *([SessionFailed] if one.is_released or one.is_broken else []))
        found, error = self.attempt(what, work, *certain, *self.may_raise(one))
        self.end_fault()
        if error is None:
            assert not certain, f"{what} was not refused: {found!r}"
            return found
        if not isinstance(error, certain):
            self.after_fault(one, feeds)
        return None

    def after_fault(self, one: Opened, feeds: Any = None) -> None:
        """After a call that failed: the session has its weights, or refuses work until `load`. feeds: of a step"""
        self.unlimit()
        _, error = self.attempt("evaluate after a fault", lambda: one.session.evaluate(batch(1, 0)), SessionFailed)
        one.is_broken, one.may_be_broken = error is not None, False
        if one.is_broken:
            return
        reference, waiting = one.reference, int(one.session._numbers.waiting)
        if one.accumulates and feeds is not None and waiting:  # the first half of a step may have been made
            assert waiting == 1 and not reference.gradients
            reference.gradients = [reference.gradient(feeds)]
            reference.losses, reference.has_losses = [reference.loss(feeds)], True
        assert waiting == len(reference.gradients), (waiting, len(reference.gradients))
        self.compare(one)

    # ── steps ──

    @rule(one=sessions, rows=ROWS, seed=SEEDS, is_finite=FINITE)
    def step(self, one: Opened, rows: int, seed: int, is_finite: bool) -> None:
        feeds, reference = batch(rows, seed, is_finite), one.reference
        must = [InvalidInput] if reference.gradients else []
        found = self.call("step", one, lambda: one.session.step(feeds), *must, feeds=feeds)
        if found is not None:
            close(found.loss, np.array(reference.step(feeds)))
            assert found.step == reference.steps and found.applied == is_finite, found
            self.compare(one)

    @rule(one=sessions, rows=ROWS, seed=SEEDS, is_finite=FINITE)
    def accumulate(self, one: Opened, rows: int, seed: int, is_finite: bool) -> None:
        feeds = batch(rows, seed, is_finite)
        must = [] if one.accumulates else [InvalidInput]
        found = self.call("accumulate", one, lambda: one.session.accumulate(feeds), *must)
        if found is not None:
            close(found.loss, np.array(one.reference.accumulate(feeds)))
            self.compare(one)

    @rule(one=sessions, is_sum=st.booleans())
    def apply(self, one: Opened, is_sum: bool) -> None:
        reference = one.reference
        must = [] if reference.gradients else [InvalidInput]
        found = self.call("apply", one, lambda: one.session.apply(sum=is_sum), *must)
        if found is not None:
            close(found.loss, np.array(np.mean(reference.losses) if reference.has_losses else np.nan))
            reference.apply(is_sum)
            assert found.step == reference.steps
            self.compare(one)

    @rule(one=sessions, seeds=st.lists(SEEDS, min_size=2, max_size=4), does=st.sampled_from(["step", "accumulate"]))
    def at_once(self, one: Opened, seeds: list[int], does: str) -> None:
        """Threads make steps, or add gradients. Some order of them gives the result."""
        reference = one.reference
        if one.is_released or one.is_broken or self.may_raise(one):
            return
        if reference.gradients if does == "step" else not one.accumulates:
            return
        feeds = [batch(2, seed) for seed in seeds]
        act = getattr(one.session, does)
        found, _ = self.attempt(f"{does} at once", lambda: together([lambda f=f: act(f) for f in feeds]))
        assert not [x for x in found if isinstance(x, Exception)], found
        order = sorted(range(len(seeds)), key=lambda n: found[n].step)
        assert does == "accumulate" or [found[n].step for n in order] == [
            reference.steps + n + 1 for n in range(len(seeds))
        ], f"steps have the numbers {[x.step for x in found]}"
        for n in order:
            close(found[n].loss, np.array(getattr(reference, does)(feeds[n])))
        self.compare(one)

    @rule(one=sessions, seed=SEEDS, beside=st.sampled_from(["set_weights", "state", "load", "evaluate", "trim"]))
    def beside_a_step(self, one: Opened, seed: int, beside: str) -> None:
        """A step, while another thread calls the session: one is before the other."""
        if one.is_released or one.is_broken or one.reference.gradients or self.may_raise(one):
            return
        feeds, session, before = batch(5, seed), one.session, copy.deepcopy(one.reference)
        new = np.random.default_rng(seed).standard_normal(SHAPES["w2"]).astype(np.float32)
        saved = session.state()
        acts: dict[str, Callable[[], Any]] = {
            "set_weights": lambda: session.set_weights({"w2": new}), "state": session.state,
            "load": lambda: session.load(saved), "evaluate": lambda: session.evaluate(feeds), "trim": session.trim,
        }  # fmt: skip
        found, _ = self.attempt(f"step and {beside}", lambda: together([lambda: session.step(feeds), acts[beside]]))
        assert not [x for x in found if isinstance(x, Exception)], found
        changed, stepped = copy.deepcopy(before), copy.deepcopy(before)
        if beside == "set_weights":
            changed.weights["w2"] = new.astype(np.float64)
        is_second = abs(found[0].loss - changed.loss(feeds)) < abs(found[0].loss - before.loss(feeds))
        loss = stepped.step(feeds)
        if beside == "set_weights" and is_second:
            loss, stepped = changed.step(feeds), changed
        elif beside == "set_weights":
            stepped.weights["w2"] = new.astype(np.float64)
        close(found[0].loss, np.array(loss))
        if beside == "evaluate":
            losses = (before.loss(feeds), stepped.loss(feeds))
            close(found[1]["loss"], np.array(min(losses, key=lambda x: abs(x - found[1]["loss"]))))
        if beside == "load" and session._numbers.step == before.steps:
            stepped, before.has_losses = before, False
        one.reference = stepped
        self.compare(one)

    @rule(one=sessions, rows=ROWS, seed=SEEDS, what=st.sampled_from(["loss", "output", "both"]))
    def evaluate(self, one: Opened, rows: int, seed: int, what: str) -> None:
        feeds = batch(rows, seed)
        given = feeds if what != "output" else {"x": feeds["x"]}
        names = None if what == "loss" else ["y"]
        found = self.call("evaluate", one, lambda: one.session.evaluate(given, names))
        if found is not None:
            if what != "output":
                close(found["loss"], np.array(one.reference.loss(feeds)))
            if what != "loss":
                close(found["y"], one.reference.outputs(feeds["x"]))

    @rule(one=sessions, seconds=st.sampled_from([0.0, 0.0005, 0.002]), seed=SEEDS)
    def stop(self, one: Opened, seconds: float, seed: int) -> None:
        """A step that is stopped changes nothing; the whole of it was made; or work is refused until `load`."""
        feeds, reference = batch(33, seed), one.reference
        if reference.gradients or one.is_broken or one.is_released:
            return
        self.end_fault()
        options = stopped() if seconds == 0 else stopping_after(seconds)
        errors = (Terminated, *self.may_raise(one))
        found, error = self.attempt("stop", lambda: one.session.step(feeds, run_options=options), *errors)
        if error is None:
            assert seconds > 0
            close(found.loss, np.array(reference.step(feeds)))
        else:
            may_be_broken = one.may_be_broken
            self.after_fault(one, feeds)
            assert not one.is_broken or seconds > 0 or may_be_broken, "a step that did not begin has changed weights"

    @rule(one=sessions, kind=st.sampled_from(["missing", "type", "rows", "name", "own name", "rate"]))
    def wrong(self, one: Opened, kind: str) -> None:
        feeds: dict[str, Any] = {**batch(3, 0)}
        rate = None
        if kind == "missing":
            del feeds["x"]
        elif kind == "type":
            feeds["x"] = feeds["x"].astype(np.int32)
        elif kind == "rows":
            feeds["target"] = feeds["target"][1:]
        elif kind in ("name", "own name"):
            feeds["z" if kind == "name" else "training:numbers"] = feeds["x"]
        else:
            rate = -1.0
        errors = (InvalidInput, ShapeError, *([SessionFailed] if one.is_released or one.is_broken else []))
        self.refused(f"wrong {kind}", lambda: one.session.step(feeds, rate=rate), *errors, *self.may_raise(one))
        self.end_fault()
        self.compare(one)

    # ── weights ──

    def compare(self, one: Opened) -> None:
        if one.is_released or one.is_broken:
            return
        values, error = self.attempt("weights", one.session.weights, *self.may_raise(one))
        if error is not None:
            one.is_broken = isinstance(error, SessionFailed)
            return
        for name, x in values.items():
            close(x, one.reference.weights[name])

    @rule(target=checkpoints, one=sessions)
    def save(self, one: Opened) -> Any:
        data = self.call("save", one, one.session.state)
        return Checkpoint(data or b"", copy.deepcopy(one.reference))

    @rule(one=sessions, checkpoint=checkpoints)
    def load(self, one: Opened, checkpoint: Checkpoint) -> None:
        if not checkpoint.data:
            return
        waits = bool(checkpoint.reference.gradients) and not one.accumulates
        errors = [*([SessionFailed] if one.is_released else []), *self.may_raise(one)]
        _, error = self.attempt("load", lambda: one.session.load(checkpoint.data), *errors)
        if error is None:
            one.is_broken = one.may_be_broken = False
            one.reference = copy.deepcopy(checkpoint.reference)
            one.reference.has_losses = False
            if waits:
                one.reference.gradients = []
            self.compare(one)
        elif not one.is_released:
            one.is_broken = True
        self.end_fault()

    @rule(one=sessions, seed=SEEDS)
    def set_weights(self, one: Opened, seed: int) -> None:
        new = np.random.default_rng(seed).standard_normal(SHAPES["w2"]).astype(np.float32)
        steps = one.reference.steps
        if self.call("set_weights", one, lambda: (one.session.set_weights({"w2": new}), steps)) is not None:
            one.reference.weights["w2"] = new.astype(np.float64)
            self.compare(one)

    @rule(one=sessions, seed=SEEDS)
    def export(self, one: Opened, seed: int) -> None:
        data = self.call("export", one, one.session.export)
        if data is not None:
            self.unlimit()
            x = batch(3, seed)["x"]
            session = InferenceSession(data)
            close(session.run(None, {"x": x})[0], one.reference.outputs(x))
            session.release()

    @rule(one=sessions)
    def trim(self, one: Opened) -> None:
        if one.is_broken:  # there may be memory to free although the weights are lost
            self.attempt("trim", one.session.trim, SessionFailed, *self.may_raise(one))
            self.end_fault()
            return
        self.call("trim", one, lambda: (one.session.trim(),))
        self.compare(one)
