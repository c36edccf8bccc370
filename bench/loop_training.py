"""python -m bench loop_training: time and memory of the gradients of recurrences, natively on one thread.

Each line has a number of steps: processor time of a step in microseconds of the forward pass, of both passes with the
states of all steps, and with those of some steps, which is what sessions do; and the peak of memory of both. The time
of a step should not depend on their number. Least of several turns in which the three alternate.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper

from bench import machine
from bench.loop_models import BUILDERS, Feeds, build
from bench.loops import ours, seconds
from pyruntime import InferenceSession, SessionOptions
from pyruntime.training.derive import control_rules

TRAINING = "ai.onnx.preview.training"
MODELS = ["mamba_scan", "delta_scan", "rwkv_scan", "lstm_scan"]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench loop_training", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {' '.join(BUILDERS)}; default: {' '.join(MODELS)}")
    parser.add_argument("--steps", type=int, nargs="+", default=[64, 256, 1024, 4096], help="default 64 256 1024 4096")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args(argv)
    print(f"{machine.processor()}, load {machine.load()}, {machine.commit()}; us a step, MB")
    print(f"{'model':20}{'steps':>6}{'forward':>9}{'all':>9}{'some':>9}{'ratio':>7}{'all':>10}{'some':>9}")
    for name in options.models or MODELS:
        for steps in options.steps:
            line(name, steps, options.turns)
    return 0


def line(name: str, steps: int, turns: int) -> None:
    model, feeds = build(name, steps)
    forward = ours(model.SerializeToString(), feeds, 1, [])
    raw = derived(model, feeds)[0].SerializeToString()
    with whole():
        every = opened(raw)
    some = opened(raw)
    runs = [forward, lambda: every.run(None, feeds), lambda: some.run(None, feeds)]
    best = [float("inf")] * len(runs)
    for _ in range(turns):
        best = [min(least, seconds(run)) for least, run in zip(best, runs, strict=True)]
    times = [1e6 * x / steps for x in best]
    peaks = [one.memory().peak / 1e6 for one in (every, some)]
    shown = "".join(f"{x:9.2f}" for x in times)
    print(f"{name:20}{steps:6}{shown}{times[2] / times[1]:7.2f}{peaks[0]:10.2f}{peaks[1]:9.2f}", flush=True)


def opened(raw: bytes) -> InferenceSession:
    return InferenceSession(raw, SessionOptions(intra_op_num_threads=1), providers=["wasm"])


@contextmanager
def whole() -> Iterator[None]:
    """Sessions that are opened meanwhile keep the states of all steps."""
    before, control_rules.is_long = control_rules.is_long, lambda *_: False
    try:
        yield
    finally:
        control_rules.is_long = before


def derived(model: ModelProto, feeds: Feeds) -> tuple[ModelProto, Feeds]:
    """A model of the sum of the squares of the outputs, and its derivatives by float inputs and weights. The model is
    changed."""
    graph = model.graph
    xs = [k for k, x in feeds.items() if x.dtype == np.float32]
    xs += [w.name for w in graph.initializer if w.data_type == 1 and w.dims]
    squares = []
    for out in graph.output:
        graph.node.append(helper.make_node("Mul", [out.name, out.name], [f"{out.name}/square"]))
        graph.node.append(helper.make_node("ReduceSum", [f"{out.name}/square"], [f"{out.name}/sum"], keepdims=0))
        squares.append(f"{out.name}/sum")
    graph.node.append(helper.make_node("Sum", squares, ["loss"]))
    found = [f"{x}/gradient" for x in xs]
    graph.node.append(helper.make_node("Gradient", xs, found, domain=TRAINING, xs=xs, y="loss"))
    del graph.output[:]
    graph.output.extend(ValueInfoProto(name=name) for name in ("loss", *found))
    model.opset_import.append(helper.make_opsetid(TRAINING, 1))
    return model, feeds
