"""python -m bench smaller: three networks that read digits, made smaller: bytes of the file, processor time of a run of
the 360 held-out images, and how many of them it tells rightly, natively; then the share that onnxruntime tells rightly
with the same file.

The data are kit/digits.npz. Each net is trained for 12 epochs. Quantised: by the ranges of 256 images, by each
calibration. Pruned: without half of the channels, or with zeros for half of the blocks of 1x4 weights, and fine-tuned
for 6 epochs. Distilled: a net of half the width, from random weights, learns for 12 epochs what the first one says of
all images without their labels; beside it the same net with 100 labels alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

from kit.training_networks import T, classifier, digits, model, node, random
from pyruntime import TrainingSession, compare_models, prune, quantize_static
from pyruntime.quantization.calibration import METHODS

IMAGES, LABELS, HELD, KNOWN = digits()
CLASSES = {"cross_entropy": "logits"}


def lenet(width: int) -> bytes:
    shapes: Any = {"w1": (width, 1, 3, 3), "b1": (width,), "w2": (2 * width, width, 3, 3), "b2": (2 * width,)}
    return classifier(random(0, **shapes, w3=(10, 8 * width), b3=(10,)), side=8)


def residual(width: int) -> bytes:
    """A convolution, three blocks of two with BatchNormalization and a sum, and a layer."""
    weights: dict[str, np.ndarray] = {}

    def convolution(x: str, y: str, channels: int) -> list[Any]:
        weights.update(random(len(weights), **{f"{y}.w": (width, channels, 3, 3)}))
        for name, start in (("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1)):
            weights[f"{y}.{name}"] = np.full(width, start, np.float32)
        norm = " ".join(f"{y}.{name}" for name in ("scale", "shift", "mean", "variance"))
        return [node("Conv", f"{x} {y}.w", f"{y}.c", pads=[1] * 4), node("BatchNormalization", f"{y}.c {norm}", y)]

    nodes = [*convolution("image", "first", 1), node("Relu", "first", "x0")]
    for n in range(3):
        nodes += [*convolution(f"x{n}", f"a{n}", width), node("Relu", f"a{n}", f"r{n}")]
        nodes += [*convolution(f"r{n}", f"b{n}", width), node("Add", f"x{n} b{n}", f"s{n}")]
        nodes.append(node("Relu", f"s{n}", f"x{n + 1}"))
    nodes += [node("GlobalAveragePool", "x3", "g"), node("Flatten", "g", "f")]
    nodes.append(node("Gemm", "f head.w head.b", "logits", transB=1))
    weights.update(random(99, **{"head.w": (10, width), "head.b": (10,)}))
    return model(nodes, {"image": (T.FLOAT, ["N", 1, 8, 8])}, {"logits": (T.FLOAT, ["N", 10])}, weights)


def layers(width: int) -> bytes:
    shapes: Any = {"w1": (width, 64), "b1": (width,), "w2": (width, width), "b2": (width,), "w3": (10, width)}
    nodes = [
        node("Flatten", "image", "x"), node("Gemm", "x w1 b1", "a", transB=1), node("Relu", "a", "b"),
        node("Gemm", "b w2 b2", "c", transB=1), node("Relu", "c", "d"), node("Gemm", "d w3 b3", "logits", transB=1),
    ]  # fmt: skip
    weights = random(0, **shapes, b3=(10,))
    return model(nodes, {"image": (T.FLOAT, ["N", 1, 8, 8])}, {"logits": (T.FLOAT, ["N", 10])}, weights)


NETS: dict[str, tuple[Callable[[int], bytes], int]] = {
    "convolutions": (lenet, 16),
    "residual": (residual, 32),
    "layers": (layers, 256),
}


def trained(
    data: bytes, epochs: int, rate: float = 2e-3, loss: Any = CLASSES, count: int | None = None, **options: Any
) -> bytes:
    """count: of images and labels; 0: all images, without labels"""
    feeds = {"image": IMAGES[: count or None], **({} if count == 0 else {"target": LABELS[:count]})}
    with TrainingSession(data, loss=loss, optimizer={"adam": {"rate": rate}}, **options) as session:
        session.fit(feeds, epochs=epochs, batch_size=64)
        return session.export()


def variants(make: Callable[[int], bytes], width: int, first: bytes) -> dict[str, bytes]:
    samples = [{"image": IMAGES[:256]}]
    learned = quantize_static(first, samples, trainable=True).to_bytes()
    lesson = {"distill": "logits", "teacher": first, "temperature": 4, "alpha": 1}
    half = prune(first, 0.5)
    return {
        **{name: quantize_static(first, samples, calibration=name).to_bytes() for name in METHODS},
        "quantised, trained": trained(learned, 3, 5e-4, scales="lsq", mode="inference"),
        "pruned, trained": trained(half, 6),
        "blocks, trained": trained(prune(first, 0.5, blocks=(1, 4)), 6, zeros="keep"),
        "half, of 100 labels": trained(make(width // 2), 150, count=100),
        "half, distilled": trained(make(width // 2), 12, loss=lesson, count=0),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench smaller", description=__doc__)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"default: {' '.join(NETS)}")
    args = parser.parse_args(argv)
    for name in args.nets or NETS:
        make, width = NETS[name]
        first = trained(make(width), 12)
        for kind, data in variants(make, width, first).items():
            found = compare_models(first, data, [{"image": HELD, "label": KNOWN}], labels="label")
            assert found.accuracy
            if kind == METHODS[0]:
                print(_line(name, "as trained", first, found.seconds[0], found.accuracy[0]))
            print(_line(name, kind, data, found.seconds[1], found.accuracy[1]), flush=True)
    return 0


def _line(name: str, kind: str, data: bytes, seconds: float, right: float) -> str:
    scores = onnxruntime.InferenceSession(data).run(None, {"image": HELD})[0]
    theirs = float((scores.argmax(1) == KNOWN).mean())
    return f"{name:14}{kind:21}{len(data) / 1024:8.1f} KiB {1e3 * seconds:8.2f} ms {right:7.1%} {theirs:7.1%}"
