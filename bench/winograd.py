"""Compares Winograd with the direct product, natively on one thread: `python -m bench.winograd [--codes]`. Interleaved,
best of 15.

Prints for each shape the time of both, the ratio, and the largest error of each against float64 relative to the largest
output.
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from onnx import helper

from pyruntime import InferenceSession
from pyruntime.providers.wasm.routines import winograd

SHAPES = [(64, 56), (128, 28), (256, 14), (512, 7), (16, 56), (8, 56), (32, 64), (32, 12), (64, 10), (16, 112),
          (256, 28), (64, 224)]  # fmt: skip


def session(x: np.ndarray, weights: np.ndarray) -> Any:
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    nodes = [helper.make_node("Conv" if x.dtype == np.float32 else "ConvInteger", ["x", "w"], ["y"], pads=[1] * 4)]
    graph = helper.make_graph(
        nodes, "g", [info], [onnx.ValueInfoProto(name="y")], [onnx.numpy_helper.from_array(weights, "w")]
    )
    return InferenceSession(helper.make_model(graph, ir_version=9).SerializeToString())


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    size = x.shape[2]
    parts = [
        np.tensordot(w[:, :, r, s].astype(np.float64), padded[:, r : r + size, s : s + size], 1)
        for r in range(3)
        for s in range(3)
    ]
    return np.sum(parts, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.winograd", description=__doc__)
    parser.add_argument("--codes", action="store_true", help="uint8 and int8 instead of float32")
    codes = parser.parse_args().codes
    rng = np.random.default_rng(0)
    names = ("PAIRS_CHANNELS", "PAIRS_SIZE") if codes else ("WINOGRAD_CHANNELS", "WINOGRAD_SIZE")
    for channels, size in SHAPES:
        if codes:
            w = rng.integers(-128, 128, (channels, channels, 3, 3), np.int8)
            x = rng.integers(0, 256, (1, channels, size, size), np.uint8)
        else:
            w = (rng.standard_normal((channels, channels, 3, 3)) / (3 * channels**0.5)).astype(np.float32)
            x = rng.standard_normal((1, channels, size, size)).astype(np.float32)
        sessions = []
        for chosen in ((1 << 20, 0), (1, 1)):
            with patch.multiple(winograd, **dict(zip(names, chosen, strict=True))):
                sessions.append(session(x, w))
        want = exact(x, w)
        best, errors = [1.0, 1.0], [0.0, 0.0]
        for _ in range(15):
            for n, s in enumerate(sessions):
                start = time.perf_counter()
                (y,) = s.run(None, {"x": x})
                best[n] = min(best[n], time.perf_counter() - start)
                errors[n] = float(np.abs(y[0] - want).max() / np.abs(want).max())
        print(
            f"{channels}x{size}x{size}: direct {1e3 * best[0]:.2f} ms, winograd {1e3 * best[1]:.2f} ms, "
            f"ratio {best[0] / best[1]:.2f}; errors {errors[0]:.1e} {errors[1]:.1e}"
        )


if __name__ == "__main__":
    main()
