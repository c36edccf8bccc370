"""Operators whose algorithm decides, natively on one thread beside onnxruntime: `python -m bench operators [NAME …]`.

Both run in turns in one process. Prints the median of each one's time, the median of the ratios of the turns (ours over
onnxruntime's; below 1 we are faster), and the largest difference of the results as a share of the largest element.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import pyruntime

Feeds = dict[str, np.ndarray]
ML = "ai.onnx.ml"


def boxes(rng: np.random.Generator, count: int, classes: int) -> Feeds:
    """Boxes of a detector: clusters of overlapping boxes."""
    centres = rng.uniform(0, 600, (count // 20, 2)).repeat(20, 0) + rng.normal(0, 6, (count // 20 * 20, 2))
    sizes = rng.uniform(20, 80, (len(centres), 2))
    corners = np.concatenate([centres - sizes / 2, centres + sizes / 2], 1)
    return {"x": corners[None].astype("f4"), "s": (rng.random((1, classes, len(centres))) ** 8).astype("f4")}


def regions(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    start = rng.uniform(0, size * 0.6, (count, 2))
    return np.concatenate([start, start + rng.uniform(size * 0.05, size * 0.4, (count, 2))], 1).astype("f4")


def floats(rng: np.random.Generator, *shape: int, dtype: str = "f4") -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


# name -> (operator, feeds, constants, attributes, opset)
Case = tuple[str, Callable[[np.random.Generator], Feeds], dict[str, Any], dict[str, Any], int]


def nms(count: int, classes: int, most: int, score: float) -> Case:
    limits = {"most": np.array(most), "iou": np.array(0.5, "f4"), "low": np.array(score, "f4")}
    return "NonMaxSuppression", lambda rng: boxes(rng, count, classes), limits, {}, 18


def dft(rows: int, length: int, parts: int = 1, **attributes: int) -> Case:
    return "DFT", lambda rng: {"x": floats(rng, rows, length, parts)}, {}, {"axis": 1, **attributes}, 17


def product(m: int, k: int, n: int, dtype: str = "f8") -> Case:
    weight = floats(np.random.default_rng(1), k, n, dtype=dtype)
    return "MatMul", lambda rng: {"x": floats(rng, m, k, dtype=dtype)}, {"w": weight}, {}, 17


def deform(channels: int, filters: int, size: int) -> Case:
    def feeds(rng: np.random.Generator) -> Feeds:
        return {
            "x": floats(rng, 1, channels, size, size), "w": floats(rng, filters, channels, 3, 3),
            "o": floats(rng, 1, 18, size, size), "b": floats(rng, filters), "m": rng.random((1, 9, size, size), "f4"),
        }  # fmt: skip

    return "DeformConv", feeds, {}, {"pads": [1] * 4, "kernel_shape": [3, 3]}, 19


def softmax(masked: float | None = None) -> Case:
    """2000 rows of 500 scores; every other one is `masked`."""

    def feeds(rng: np.random.Generator) -> Feeds:
        x = floats(rng, 2000, 500)
        if masked is not None:
            x[:, ::2] = masked
        return {"x": x}

    return "Softmax", feeds, {}, {}, 13


def roi(channels: int, size: int, count: int, **attributes: int) -> Case:
    def feeds(rng: np.random.Generator) -> Feeds:
        return {"x": floats(rng, 1, channels, size, size), "r": regions(rng, count, size * 8),
                "b": np.zeros(count, np.int64)}  # fmt: skip

    return "RoiAlign", feeds, {}, {"output_height": 7, "output_width": 7, "spatial_scale": 0.125, **attributes}, 16


def parse(to: int, text: Callable[[np.random.Generator], Any]) -> Case:
    return "Cast", lambda rng: {"x": np.array(list(map(str, text(rng).tolist())), object)}, {}, {"to": to}, 19


CASES: dict[str, Case] = {
    "nms 8400 x 80": nms(8400, 80, 100, 0.25),
    "nms 8400 x 80, all scores": nms(8400, 80, 100, 0.0),
    "nms 8400 x 1": nms(8400, 1, 300, 0.25),
    "dft 64 x 4096": dft(64, 4096),
    "dft 64 x 4096, complex": dft(64, 4096, 2),
    "dft 64 x 4096, one side": dft(64, 4096, onesided=1),
    "dft 64 x 1000": dft(64, 1000),
    "dft 64 x 1009, prime": dft(64, 1009),
    "dft 8 x 4099, prime": dft(8, 4099, 2),
    "dft 1 x 65536": dft(1, 65536),
    "float64 product 256": product(256, 256, 256),
    "float64 product 512": product(512, 512, 512),
    "float64 product 1 x 1024": product(1, 1024, 1024),
    "deformable 64 x 40": deform(64, 64, 40),
    "deformable 128 x 20": deform(128, 128, 20),
    "roi align 256 x 50": roi(256, 50, 100, sampling_ratio=2),
    "roi align, adaptive": roi(256, 50, 100),
    "softmax": softmax(),
    "softmax, mask of -100": softmax(-100.0),
    "softmax, mask of -inf": softmax(-np.inf),
    "text to float32": parse(TensorProto.FLOAT, lambda rng: floats(rng, 20_000)),
    "text to float64": parse(TensorProto.DOUBLE, lambda rng: floats(rng, 20_000, dtype="f8")),
    "text to int64": parse(TensorProto.INT64, lambda rng: rng.integers(-(10**6), 10**6, 20_000)),
}  # fmt: skip


def model(case: Case, feeds: Feeds) -> bytes:
    op, _, constants, attributes, opset = case

    def info(name: str, x: np.ndarray) -> Any:
        kind = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
        return helper.make_tensor_value_info(name, kind, x.shape)

    node = helper.make_node(op, [*feeds, *constants], ["y"], **attributes)
    inputs, weights = (
        [info(k, v) for k, v in feeds.items()],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def sessions(data: bytes | str, threads: int = 1) -> list[Any]:
    options = [pyruntime.SessionOptions(), onnxruntime.SessionOptions()]
    for made in options:
        made.intra_op_num_threads = threads
    options[1].add_session_config_entry("session.intra_op.allow_spinning", "0")  # beside our turns
    ours = pyruntime.InferenceSession(data, options[0])
    return [ours, onnxruntime.InferenceSession(data, options[1], providers=["CPUExecutionProvider"])]


def difference(got: np.ndarray, want: np.ndarray) -> str:
    if got.shape != want.shape:
        return f"shapes {got.shape} and {want.shape}"
    if got.dtype.kind != "f":
        return "equal" if (got == want).all() else f"{int((got != want).sum())} differ"
    return f"{np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-30):.0e}"


def turns(pair: list[Any], feeds: Feeds, seconds: float) -> list[list[float]]:
    """Run the sessions in turns, at least five times; return the seconds of each one's runs."""
    times: list[list[float]] = [[] for _ in pair]
    for session in pair:
        session.run(None, feeds)
    end = time.perf_counter() + seconds
    while len(times[0]) < 5 or time.perf_counter() < end:
        for session, took in zip(pair, times, strict=True):
            start = time.perf_counter()
            session.run(None, feeds)
            took.append(time.perf_counter() - start)
    return times


def measure(name: str, seconds: float) -> None:
    case = CASES[name]
    feeds = case[1](np.random.default_rng(0))
    pair = sessions(model(case, feeds))
    results = [session.run(None, feeds)[0] for session in pair]
    times = turns(pair, feeds, seconds)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    ours, theirs = (1e3 * statistics.median(took) for took in times)
    print(
        f"{name:28} {ours:9.2f} ms, onnxruntime {theirs:8.2f} ms, ratio {ratio:6.2f}; {difference(*results)}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench operators", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of cases (default: all)")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each case, at least five turns")
    chosen = parser.parse_args(arguments)
    for name in CASES:
        if not chosen.names or any(part in name for part in chosen.names):
            measure(name, chosen.seconds)


if __name__ == "__main__":
    main()
