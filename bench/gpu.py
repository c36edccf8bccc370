"""python -m bench gpu: GFLOP/s and GB/s of the WebGPU kernels on the native adapter, by its own clock.

Models of one operator or of a short chain. Operations are those of products and convolutions (two for a
multiply-add); bytes are those of inputs, weights and outputs, each counted once, without intermediate results.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper

from kit.zoo import Feeds
from pyruntime import InferenceSession
from pyruntime.cli.profile import best
from pyruntime.providers.webgpu.wgpu_host import GpuHost


class Case(NamedTuple):
    """A model, its feeds, and its floating-point operations (0: only bytes count)."""

    model: bytes
    feeds: Feeds
    flops: int


def build(nodes: Sequence[onnx.NodeProto], feeds: Feeds, weights: Feeds, flops: int = 0) -> Case:
    """Build a model from "x" (and other feeds) to "y"."""
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x.shape) for name, x in feeds.items()]
    made = [onnx.numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return Case(model.SerializeToString(), feeds, flops)


def normal(*shape: int) -> np.ndarray:
    """Return random numbers whose magnitude keeps sums near 1."""
    x = np.random.default_rng(len(shape)).standard_normal(shape, np.float32)
    return x / np.float32(math.sqrt(shape[-1]))


def matmul(m: int, k: int, n: int) -> Case:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return build([node], {"x": normal(m, k)}, {"w": normal(k, n)}, 2 * m * k * n)


def scores(heads: int, length: int, width: int) -> Case:
    """Attention's q·kᵀ."""
    nodes = [helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    feeds = {"x": normal(heads, length, width), "k": normal(heads, length, width)}
    return build(nodes, feeds, {}, 2 * heads * length * length * width)


def conv(channels: int, filters: int, size: int, window: int, group: int = 1) -> Case:
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["z"], pads=[window // 2] * 4, group=group),
             helper.make_node("Relu", ["z"], ["y"])]  # fmt: skip
    weights = {"w": normal(filters, channels // group, window, window), "b": normal(filters)}
    flops = 2 * filters * channels // group * window**2 * size**2
    return build(nodes, {"x": normal(1, channels, size, size)}, weights, flops)


def recurrent(op: str, gates: int, steps: int, batch: int, width: int) -> Case:
    node = helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=width)
    weights = {"w": normal(1, gates * width, width), "r": normal(1, gates * width, width)}
    return build([node], {"x": normal(steps, batch, width)}, weights, 4 * steps * batch * gates * width**2)


def unary(op: str, *shape: int, **attributes: object) -> Case:
    return build([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": normal(*shape)}, {})


def chain(*shape: int) -> Case:
    """tanh(x · x + a) · b with a and b along the last axis: one kernel after fusion."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["p"]), helper.make_node("Add", ["p", "a"], ["q"]),
             helper.make_node("Tanh", ["q"], ["r"]), helper.make_node("Mul", ["r", "b"], ["y"])]  # fmt: skip
    return build(nodes, {"x": normal(*shape)}, {"a": normal(shape[-1]), "b": normal(shape[-1])})


def normalised(rows: int, width: int) -> Case:
    node = helper.make_node("LayerNormalization", ["x", "a", "b"], ["y"])
    return build([node], {"x": normal(rows, width)}, {"a": normal(width), "b": normal(width)})


def added(*shape: int) -> Case:
    return build([helper.make_node("Add", ["x", "z"], ["y"])], {"x": normal(*shape), "z": normal(*shape)}, {})


CASES: dict[str, Callable[[], Case]] = {
    "matmul 512": lambda: matmul(512, 512, 512),
    "matmul 1024": lambda: matmul(1024, 1024, 1024),
    "matmul 197x768x768": lambda: matmul(197, 768, 768),
    "matmul 509 (prime)": lambda: matmul(509, 509, 509),
    "matmul 1x2048x2048": lambda: matmul(1, 2048, 2048),
    "q·kT 12x197x64": lambda: scores(12, 197, 64),
    "conv 3x3 64 of 56x56": lambda: conv(64, 64, 56, 3),
    "conv 3x3 256 of 14x14": lambda: conv(256, 256, 14, 3),
    "conv 3x3 512 of 7x7": lambda: conv(512, 512, 7, 3),
    "conv 1x1 64 to 256 of 56x56": lambda: conv(64, 256, 56, 1),
    "conv 1x1 1024 to 256 of 14x14": lambda: conv(1024, 256, 14, 1),
    "conv 1x1 512 to 2048 of 7x7": lambda: conv(512, 2048, 7, 1),
    "conv 3x3 96 depthwise 112x112": lambda: conv(96, 96, 112, 3, 96),
    "LSTM 7 steps of 128": lambda: recurrent("LSTM", 4, 7, 1, 128),
    "GRU 7 steps of 8 x 128": lambda: recurrent("GRU", 3, 7, 8, 128),
    "add 4M": lambda: added(64, 256, 256),
    "tanh(x·x+a)·b 4M": lambda: chain(64, 256, 256),
    "sum of 4M": lambda: unary("ReduceSum", 1 << 22),
    "sums of 4096 rows of 1024": lambda: unary("ReduceMean", 4096, 1024, axes=[1]),
    "softmax 2364x197": lambda: unary("Softmax", 12 * 197, 197),
    "softmax 64x16384": lambda: unary("Softmax", 64, 16384),
    "layer norm 1500x384": lambda: normalised(1500, 384),
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("--filter", default="", metavar="RE", help="only cases whose name matches")
    parser.add_argument("--runs", type=int, default=5, help="the best time of each kernel counts (default 5)")
    args = parser.parse_args(argv)
    print(f"adapter: {GpuHost().adapter.name}")
    for name, make in CASES.items():
        if re.search(args.filter, name):
            print(measured(name, make(), args.runs), flush=True)
    return 0


def measured(name: str, case: Case, runs: int) -> str:
    session = InferenceSession(case.model, providers=["webgpu"])
    (y,) = session.run(None, case.feeds)
    calls = best([session.profile(case.feeds) for _ in range(runs)])
    seconds = sum(call.seconds for call in calls)
    weights = sum(math.prod(w.dims) * 4 for w in onnx.load_from_string(case.model).graph.initializer)
    moved = weights + y.nbytes + sum(x.nbytes for x in case.feeds.values())
    rate = f"{case.flops / seconds / 1e9:7.2f} GFLOP/s" if case.flops else " " * 15
    return f"{name:30} {1e3 * seconds:9.3f} ms {rate} {moved / seconds / 1e9:7.2f} GB/s  {len(calls)} kernels"


__all__ = ["CASES", "main"]
