"""python -m bench over4: a model with more weights than a 32-bit memory holds, natively and in Chromium.

An embedding of 1.3 GB and products of random weights, 4.8 GB in all, are made in build/bench, run, compared with NumPy
layer by layer, and removed again. `peak` and `steady` are defined as in `python -m bench load`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from bench import chromium
from bench.load import browsers, status, watched
from kit import chromium as shared
from kit import small_models
from pyruntime.cli.serve import Server

ROWS, WIDTH = 160_000, 2048  # rows of the embedding, and number of matrices
LAYERS = 210
FILE = "over4.bin"
IDS = [0, 7, ROWS - 1]
LOAD = """async ({ ids, threads }) => {
  const ort = await import('pyruntime');
  const start = performance.now();
  const options = { externalData: ['over4.bin'], intraOpNumThreads: threads };
  const session = await ort.InferenceSession.create('/data/over4.onnx', options);
  const ready = (performance.now() - start) / 1000;
  const feed = { ids: new ort.Tensor('int64', BigInt64Array.from(ids.map(BigInt)), [ids.length]) };
  const runs = [];
  let y;
  for (let n = 0; n < 3; n++) {
    const begin = performance.now();
    ({ y } = await session.run(feed));
    runs.push((performance.now() - begin) / 1000);
  }
  globalThis.kept = session;
  return { ready, run: Math.min(...runs), y: [...y.data] };
}"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench over4", description=__doc__)
    parser.add_argument("--native", action="store_true", help="not in Chromium")
    parser.add_argument("--keep", action="store_true", help="do not remove the model")
    parser.add_argument("--threads", type=int, default=1, help="in both")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        return child(args.child, args.threads)
    chromium.BUILD.mkdir(parents=True, exist_ok=True)
    path = chromium.BUILD / "over4.onnx"
    try:
        make(path)
        expected = by_numpy(path.with_name(FILE))
        command = [sys.executable, "-m", "bench", "over4", "--child", str(path), "--threads", str(args.threads)]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        report("native", told, expected)
        if not args.native:
            report("page", in_chromium(args.threads), expected)
    finally:
        if not args.keep:
            path.unlink(missing_ok=True)
            path.with_name(FILE).unlink(missing_ok=True)
    return 0


def shapes() -> list[tuple[int, int]]:
    return [(ROWS, WIDTH), *[(WIDTH, WIDTH)] * LAYERS]


def size() -> float:
    """Return the MB of weights."""
    return sum(4 * rows * columns for rows, columns in shapes()) / 1e6


def make(path: Path) -> None:
    """Write the model, and its weights to a file beside it, because protobuf is limited to 2 GB."""
    ids, value = ("ids", TensorProto.INT64, ["n"]), ("y", TensorProto.FLOAT, ["n", WIDTH])
    names = ["h0", *[f"h{n}" for n in range(1, LAYERS)], "y"]
    nodes = [helper.make_node("Gather", ["w0", "ids"], ["h0"])]
    nodes += [helper.make_node("MatMul", [names[n], f"w{n + 1}"], [names[n + 1]]) for n in range(LAYERS)]
    made = small_models.model(nodes, [ids], [value])
    rng, offset = np.random.default_rng(0), 0
    with path.with_name(FILE).open("wb") as file:
        for n, (rows, columns) in enumerate(shapes()):
            for first in range(0, rows, WIDTH):
                part = rng.standard_normal((min(WIDTH, rows - first), columns), np.float32)
                file.write((part / np.float32(columns**0.5)).tobytes())
            length = 4 * rows * columns
            weight = TensorProto(name=f"w{n}", data_type=TensorProto.FLOAT, dims=[rows, columns])
            weight.data_location = TensorProto.EXTERNAL
            for key, text in (("location", FILE), ("offset", str(offset)), ("length", str(length))):
                weight.external_data.add(key=key, value=text)
            made.graph.initializer.append(weight)
            offset += length
    onnx.save(made, path)


def by_numpy(path: Path) -> np.ndarray:
    """Return the result in float64, computed layer by layer."""
    weights = np.memmap(path, np.float32, "r")
    table = weights[: ROWS * WIDTH].reshape(ROWS, WIDTH)
    h, at = table[IDS].astype(np.float64), ROWS * WIDTH
    for _ in range(LAYERS):
        h = h @ weights[at : at + WIDTH * WIDTH].reshape(WIDTH, WIDTH)
        at += WIDTH * WIDTH
    return h


def child(path: str, threads: int) -> int:
    """Runs in the measured process."""
    import pyruntime

    pyruntime.InferenceSession(small_models.affine().SerializeToString())
    before, start = status("VmRSS"), time.perf_counter()
    options = pyruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = pyruntime.InferenceSession(path, options)
    ready, runs = time.perf_counter() - start, []
    for _ in range(3):
        start = time.perf_counter()
        (y,) = session.run(None, {"ids": np.array(IDS)})
        runs.append(time.perf_counter() - start)
    found = {"peak": status("VmHWM") - before, "steady": status("VmRSS") - before, "ready": ready, "run": min(runs)}
    print(json.dumps({**found, "y": y.ravel().tolist()}))
    return 0


def in_chromium(threads: int) -> dict[str, Any]:
    chromium.build()
    with Server(chromium.MOUNTS) as server, shared.launch_profile() as profile:
        page = profile.pages[0]
        page.set_default_timeout(1_800_000)
        page.goto(server.url + "/index.html")
        before = browsers()
        with watched(browsers) as seen:
            found = page.evaluate(LOAD, {"ids": IDS, "threads": threads})
        return {**found, "peak": max(seen) - before, "steady": browsers() - before}


def report(who: str, told: dict[str, Any], expected: np.ndarray) -> None:
    error = np.abs(np.array(told["y"]).reshape(expected.shape) - expected).max() / np.abs(expected).max()
    peak, steady = told["peak"] / size(), told["steady"] / size()
    text = f"{who:8}{size():6.0f} MB  peak {peak:.2f}  steady {steady:.2f}  ready {told['ready']:.1f} s  "
    print(f"{text}run {1000 * told['run']:.0f} ms  error {error:.1e}", flush=True)
    if not error < 1e-4:
        raise SystemExit(f"{who}: the result is wrong")
