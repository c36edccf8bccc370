"""python -m bench.torch_steps: a training step here and in PyTorch, in turns in one process, on one thread.

Prints medians of processor time, the ratio of the two, and what a step takes of a run of the same model, here and
there. It needs torch, which nothing else here installs, beside this package with [native], onnx and onnxscript; used
with torch 2.13.0. Networks have PyTorch's initial weights; both sides get the same batches, squared error and Adam.
"""

from __future__ import annotations

import argparse
import copy
import io
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

from pyruntime import InferenceSession, SessionOptions, TrainingSession

LIMIT = 3.2  # of a step over a run
WARM_UP, COMPARED = 3, 1e-5  # the first steps compile and take memory; their losses must agree as closely


def stack(channels: int) -> nn.Module:
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Conv2d(channels, channels, 3, 1, 1), nn.ReLU())])


def layers() -> nn.Module:
    return nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(512, 512), nn.ReLU())])


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1568, 10),
    )  # fmt: skip


def residual() -> nn.Module:
    from bench.torch_nets import Residual

    return nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), Residual(32, 32, 1), Residual(32, 64, 2), nn.AdaptiveAvgPool2d(1))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, "gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "3x3, 64 channels, 2 x 56 x 56": (lambda: stack(64), (2, 64, 56, 56)),
    "3x3, 32 channels, 2 x 96 x 96": (lambda: stack(32), (2, 32, 96, 96)),
    "3x3, 128 channels, 4 x 28 x 28": (lambda: stack(128), (4, 128, 28, 28)),
    "3x3, 256 channels, 8 x 14 x 14": (lambda: stack(256), (8, 256, 14, 14)),
    "3 layers of 512, 64 rows": (layers, (64, 512)),
    "3 layers of 512, 256 rows": (layers, (256, 512)),
    "CNN, 32 x 28 x 28": (cnn, (32, 1, 28, 28)),
    "residual blocks, 4 x 32 x 32": (residual, (4, 3, 32, 32)),
    "transformer, 8 x 64 x 64": (transformer, (8, 64, 64)),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.torch_steps", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'ms of processor time':34}{'step':>9}{'PyTorch':>9}{'ratio':>7}{'step / run':>12}{'PyTorch':>9}")
    for name, (make, shape) in NETS.items():
        times, losses = measured(make, shape, rounds)
        ours, theirs, own, other = (median(t) * 1e3 for t in times)
        verdict = "" if all(abs(a / b - 1) < COMPARED for a, b in losses) else f"  OTHER LOSSES {losses}"
        verdict += "" if ours / own <= LIMIT else f"  over {LIMIT}"
        print(
            f"{name:34}{ours:9.2f}{theirs:9.2f}{ours / theirs:7.2f}{ours / own:12.2f}{theirs / other:9.2f}{verdict}",
            flush=True,
        )


def measured(make: Callable[[], nn.Module], shape: tuple[int, ...], rounds: int) -> tuple[list[list[float]], Any]:
    """Seconds of our steps, PyTorch's, our runs and its; pairs of losses of the first steps."""
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    target = torch.randn_like(module(x))
    file = io.BytesIO()
    keeps = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    # of a copy, because tracing in training mode changes running statistics
    torch.onnx.export(copy.deepcopy(module), (x,), file, dynamo=False, **names, **keeps)
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = TrainingSession(file.getvalue(), loss={"mse": "y"}, optimizer="adam", sess_options=options)
    forward = InferenceSession(file.getvalue(), options)
    optimizer = torch.optim.Adam(module.parameters())
    feeds = {"x": x.numpy(), "target": target.numpy()}

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    def run() -> Any:
        with torch.no_grad():
            return module(x)

    work: list[Callable[[], Any]] = [
        lambda: session.step(feeds).loss, step, lambda: forward.run(None, {"x": feeds["x"]}), run
    ]  # fmt: skip
    times: list[list[float]] = [[] for _ in work]
    losses = []
    for n in range(rounds + WARM_UP):
        found = []
        for k, one in enumerate(work):
            start = time.process_time()
            found.append(one())
            if n >= WARM_UP:
                times[k].append(time.process_time() - start)
        if n < WARM_UP:
            losses.append((found[0], found[1]))
    session.release()
    return times, losses


if __name__ == "__main__":
    main()
