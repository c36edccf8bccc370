"""A step that computes activations again stays within its memory, and is the same step."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from kit.gpu import GPU
from kit.training_networks import T, deep, model, node, random, transformer
from pyruntime import InvalidInput, OutOfMemory, SessionOptions, TrainingSession
from pyruntime.frontend.own_gradients import OwnGradients

CLASSES: dict[str, Any] = {"loss": {"cross_entropy": "logits"}}
ROWS = 8


def images(n: int, rows: int = ROWS, side: int = 32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {"image": rng.normal(size=(rows, 1, side, side)).astype(np.float32), "target": rng.integers(0, 10, rows)}


def tokens(n: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(n).integers(0, 50, (ROWS, 96))
    return {"ids": ids, "target": np.roll(ids, 1, 1)}


def sequences(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    return {"x": rng.normal(size=(40, ROWS, 6)).astype(np.float32), "target": rng.integers(0, 5, ROWS)}


class Case(NamedTuple):
    """share: of the bytes besides weights that a step without recomputation needs"""

    model: bytes
    feeds: Any
    share: float
    options: dict[str, Any] = {}


def net() -> bytes:
    return deep(6, 8, 32, dropout=0.3)


def gated() -> bytes:
    """Three LSTMs, one after the other: "x" (S, N, 6) -> "logits" (N, 5)."""
    weights, nodes, x, hidden = random(1, head=(16, 5)), [], "x", 16
    weights["last"] = np.array(-1)
    for n in range(3):
        size = hidden if n else 6
        weights[f"w{n}"] = random(n, w=(1, 4 * hidden, size))["w"]
        weights[f"r{n}"] = random(n, r=(1, 4 * hidden, hidden))["r"]
        nodes += [
            node("LSTM", f"{x} w{n} r{n}", f"y{n}", hidden_size=hidden), node("Squeeze", f"y{n} axis", f"s{n}"),
            node("LayerNormalization", f"s{n} one", f"z{n}"), node("Mish", f"z{n}", f"x{n}"),
        ]  # fmt: skip
        x = f"x{n}"
    weights |= {"axis": np.array([1]), "one": np.ones(hidden, np.float32)}
    nodes += [node("Gather", f"{x} last", "end"), node("MatMul", "end head", "logits")]
    return model(nodes, {"x": (T.FLOAT, ["S", "N", 6])}, {"logits": (T.FLOAT, ["N", 5])}, weights)


CASES = {
    "convolutions, running statistics and dropout": Case(net(), images, 0.5),
    "transformer": Case(transformer(blocks=3), tokens, 0.6),
    "little less than all": Case(transformer(), tokens, 0.95),
    "recurrences": Case(gated(), sequences, 0.9),
    "adapters": Case(transformer(blocks=3), tokens, 0.6, {"lora": {"rank": 4, "targets": ["*proj"]}}),
    "half floats": Case(transformer(np.float16), tokens, 0.9, {"loss_scale": 256.0}),
    "several batches for a step": Case(net(), images, 0.5, {"accumulate": True}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_same_step_in_less_memory(case: Case) -> None:
    found, peaks = [], []
    for share in (1.0, case.share):
        memory = {} if share == 1.0 else {"memory": peaks[0].weights + int(share * peaks[0].peak)}
        with TrainingSession(case.model, **CLASSES, **case.options, **memory, sess_options=one_thread()) as s:
            steps = [s.step(case.feeds(n)) for n in range(3)]
            found.append((steps, s.state()))
            peaks.append(s.memory())
    assert found[0] == found[1]
    assert peaks[1].weights + peaks[1].peak <= peaks[0].weights + case.share * peaks[0].peak


def test_recomputation_does_not_read_the_labels_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    original = OwnGradients.backward_pass
    monkeypatch.setattr(OwnGradients, "backward_pass", lambda tracer, _: original(tracer, "derived"))
    test_the_same_step_in_less_memory(CASES["little less than all"])


SMALL = {
    "running statistics, dropout, several batches": Case(deep(2, 8, 16, 0.3), partial(images, side=16), 0.6,
                                                         {"accumulate": True}),
    "adapters of half floats": Case(transformer(np.float16, blocks=1), tokens, 0.95,
                                    {"lora": {"rank": 4, "targets": ["*proj"]}}),
}  # fmt: skip


@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL.keys())
def test_the_same_step_in_less_memory_on_the_gpu(case: Case) -> None:
    """Losses differ by rounding: a Program for one size of batch sums in another order."""
    steps, weights, peaks = [], [], []
    for share in (1.0, case.share):
        memory = {} if share == 1.0 else {"memory": peaks[0].weights + int(share * peaks[0].peak)}
        with TrainingSession(case.model, **CLASSES, **case.options, **memory, providers=[GPU, "wasm"]) as s:
            steps.append([s.step(case.feeds(n)) for n in range(2)])
            assert s.explain()["providers"]["used"][0] == "webgpu"
            weights.append(s.weights())
            peaks.append(s.memory())
    assert peaks[1].weights + peaks[1].peak <= peaks[0].weights + case.share * peaks[0].peak
    np.testing.assert_allclose([r.loss for r in steps[1]], [r.loss for r in steps[0]], rtol=1e-5)
    for name, w in weights[0].items():
        np.testing.assert_allclose(weights[1][name], w, rtol=1e-6, atol=1e-7, err_msg=name)


def one_thread() -> SessionOptions:
    options = SessionOptions()
    options.intra_op_num_threads = 1
    return options


def test_nothing_is_computed_again_without_need() -> None:
    peaks = []
    for memory in ({}, {"memory": 1 << 30}):
        with TrainingSession(net(), **CLASSES, **memory, sess_options=one_thread()) as s:
            s.step(images(0))
            peaks.append(s.memory().peak)
    assert peaks[0] == peaks[1]


def test_what_cannot_be_done_is_told_before_a_step() -> None:
    """The error's figures are true: that much suffices, and is needed."""
    with TrainingSession(net(), **CLASSES, memory=700_000) as s:
        before = s.weights()
        with pytest.raises(OutOfMemory, match=r"a step needs \d+ bytes, \d+ of them for weights") as error:
            s.step(images(0))
        assert all(np.array_equal(w, before[name]) for name, w in s.weights().items())
        assert s.step(images(0, rows=1)).applied
    (reached,) = re.findall(r"(\d+) bytes would do", str(error.value))
    with TrainingSession(net(), **CLASSES, memory=int(reached)) as s, TrainingSession(net(), **CLASSES) as plain:
        assert s.step(images(0)) == plain.step(images(0)) and s.state() == plain.state()


@pytest.mark.parametrize("memory", [0, -1, "1 GB", True, 0.5, np.inf, np.nan])
def test_bad_sizes(memory: Any) -> None:
    with pytest.raises(InvalidInput, match="memory cannot be"):
        TrainingSession(net(), **CLASSES, memory=memory)


def test_batches_of_other_sizes_and_evaluation() -> None:
    results = []
    for memory in ({}, {"memory": 2_700_000}):
        with TrainingSession(net(), **CLASSES, **memory) as s:
            steps = [s.step(images(n, rows)) for n, rows in enumerate((8, 3, 8))]
            feeds = images(9, 5)
            found = s.evaluate(feeds, ["logits"])
            outputs = s.evaluate({"image": feeds["image"]})
            results.append((steps, found["loss"], found["logits"].tolist(), outputs["logits"].tolist()))
    assert results[0] == results[1]


def test_axes_that_a_program_computes() -> None:
    """The Program of evaluation is compiled for axes which another one computes, whose memory a step frees."""
    nodes = [
        node("ReduceMax", "x", "largest", keepdims=0), node("Cast", "largest", "number", to=T.INT64),
        node("Reshape", "number shape", "axes"), node("ReduceMean", "x axes", "mean", keepdims=0),
        node("MatMul", "mean w", "logits"),
    ]  # fmt: skip
    weights = random(0, w=(6, 5)) | {"shape": np.array([1])}
    data = model(nodes, {"x": (T.FLOAT, ["N", "K", 6])}, {"logits": (T.FLOAT, ["N", 5])}, weights)
    feeds = {"x": np.ones((4, 3, 6), np.float32)}
    with (
        TrainingSession(data, **CLASSES, memory=1 << 24, sess_options=one_thread()) as s,
        TrainingSession(data, **CLASSES, sess_options=one_thread()) as plain,
    ):
        for _ in range(2):
            batch = {**feeds, "target": np.zeros(4, np.int64)}
            assert s.step(batch) == plain.step(batch)
            found, want = (x.evaluate(feeds)["logits"] for x in (s, plain))
            np.testing.assert_array_equal(found, want)
