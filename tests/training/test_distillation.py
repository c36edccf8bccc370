"""A small model learns from a teacher's file: beside the formula, and what it gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from kit.training_networks import T, classifier, convolutional, digits, model, node, random
from pyruntime import InvalidInput, TrainingSession

IMAGES, LABELS, HELD, KNOWN = digits()
BATCH = {"image": IMAGES[:16], "target": LABELS[:16]}


def student(seed: int = 1, **names: str) -> bytes:
    """One layer."""
    nodes = [node("Flatten", "image", "f"), node("Gemm", "f w b", "logits", transB=1)]
    return model(
        nodes, {"image": (T.FLOAT, ["N", 1, 8, 8])}, {"logits": (T.FLOAT, ["N", 10])}, random(seed, w=(10, 64), b=(10,))
    )  # fmt: skip


def logs(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))


def logits(data: bytes, images: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(data).run(["logits"], {"image": images})[0]


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize(("temperature", "alpha"), [(1.0, 1.0), (4.0, 0.3)])
def test_beside_the_formula(temperature: float, alpha: float, provider: str) -> None:
    teacher, rate = convolutional(2), 0.05
    loss = {"distill": "logits", "teacher": teacher, "temperature": temperature, "alpha": alpha}
    options: Any = {"loss": loss, "optimizer": {"sgd": {"rate": rate}}, "providers": [provider]}
    feeds = BATCH if alpha < 1 else {"image": BATCH["image"]}
    x, y = BATCH["image"].reshape(16, 64).astype(np.float64), np.eye(10)[BATCH["target"]]
    said = logs(logits(teacher, BATCH["image"]) / temperature)
    w, b = random(1, w=(10, 64), b=(10,))["w"].astype(np.float64), np.zeros(10)
    with TrainingSession(student(), **options) as session:
        assert {p.name for p in session.parameters()} == {"w", "b"}
        for _ in range(10):
            z = x @ w.T + b
            soft, hard = logs(z / temperature), logs(z)
            first = temperature**2 * (np.exp(said) * (said - soft)).sum(1).mean()
            expected = alpha * first - (1 - alpha) * (hard * y).sum(1).mean()
            assert session.step(feeds).loss == pytest.approx(expected, rel=1e-5)
            g = alpha * temperature * (np.exp(soft) - np.exp(said)) + (1 - alpha) * (np.exp(hard) - y)
            w, b = w - rate * g.T @ x / 16, b - rate * g.sum(0) / 16
        for name, wanted in {"w": w, "b": b}.items():
            np.testing.assert_allclose(session.weights()[name], wanted, rtol=1e-4, atol=1e-6)


def test_a_teacher_s_path_its_inputs_and_outputs(tmp_path: Path) -> None:
    """A teacher that reads another input, which is fed, and has two outputs."""
    nodes = [node("Flatten", "large", "f"), node("Gemm", "f v", "said"), node("Neg", "said", "other")]
    inputs, both = {"large": (T.FLOAT, ["N", 1, 4, 4])}, {n: (T.FLOAT, ["N", 10]) for n in ("other", "said")}
    (tmp_path / "t.onnx").write_bytes(model(nodes, inputs, both, random(3, v=(16, 10))))
    outside = {"save_as_external_data": True, "location": "t.bin", "size_threshold": 0}
    onnx.save(onnx.load(tmp_path / "t.onnx"), tmp_path / "t.onnx", **outside)
    loss = {"distill": "logits", "teacher": tmp_path / "t.onnx", "output": "said", "alpha": 1}
    with TrainingSession(student(), loss=loss) as session:
        assert {i.name for i in session.inputs()} == {"image", "large"}
        feeds = {"image": IMAGES[:4], "large": IMAGES[:4, :, ::2, ::2]}
        losses = [session.step(feeds).loss for _ in range(30)]
        assert losses[-1] < losses[0]
        assert [v.name for v in onnxruntime.InferenceSession(session.export()).get_inputs()] == ["image"]


def test_it_learns_more_than_from_few_labels() -> None:
    """Of images without labels, by what a trained network says of them."""
    with TrainingSession(
        convolutional(), loss={"cross_entropy": "logits"}, optimizer={"adam": {"rate": 3e-3}}
    ) as large:
        large.fit({"image": IMAGES, "target": LABELS}, epochs=4)
        teacher = large.export()
    shapes: Any = {"w1": (4, 1, 3, 3), "b1": (4,), "w2": (6, 4, 3, 3), "b2": (6,), "w3": (10, 24), "b3": (10,)}
    small = classifier(random(5, **shapes), side=8)
    found = {}
    for name, loss, data in (
        ("labels", {"cross_entropy": "logits"}, {"image": IMAGES[:60], "target": LABELS[:60]}),
        ("teacher", {"distill": "logits", "teacher": teacher, "alpha": 1}, {"image": IMAGES}),
    ):
        with TrainingSession(small, loss=loss, optimizer={"adam": {"rate": 1e-2}}) as session:
            session.fit(data, epochs=5 if name == "teacher" else 120)
            found[name] = float((logits(session.export(), HELD).argmax(1) == KNOWN).mean())
    assert found["teacher"] > found["labels"] + 0.02


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"distill": "logits"}, "an output and a teacher"),
    ({"distill": "logits", "teacher": 3}, "not as int"),
    ({"distill": "nothing", "teacher": student()}, '"nothing" does not exist'),
    ({"distill": "logits", "teacher": student(), "alpha": 1.5}, "up to 1"),
    ({"distill": "logits", "teacher": student(), "temperature": 0}, "above 0"),
    ({"distill": "logits", "teacher": student(), "temper": 1}, '"temper"'),
    ({"distill": "logits", "teacher": student(), "output": "said"}, "needs one output"),
]


@pytest.mark.parametrize(("loss", "message"), REFUSED, ids=[row[1] for row in REFUSED])
def test_refused(loss: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TrainingSession(student(), loss=loss)
