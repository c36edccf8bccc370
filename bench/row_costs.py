"""What a run of several rows costs beside a run of one row: natively, and in Chromium."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from bench.chromium import BUILD, Chromium
from pyruntime import InferenceSession, SessionOptions

ROUNDS = 15  # of turns; the first three do not count
Times = dict[str, dict[int, list[float]]]  # of a runtime and a number of rows
RUNTIMES: dict[str, bool | None] = {"native": True, "wasmtime": False, "onnxruntime": None}  # machine code or not
IN_PAGE = """async ([url, k, rows, rounds]) => {
  const found = {}, sessions = {};
  const model = new Uint8Array(await (await fetch(url)).arrayBuffer());
  const packages = { ours: '/dist/ort.mjs', 'onnxruntime-web': '/peer/ort.wasm.bundle.min.mjs' };
  for (const [name, address] of Object.entries(packages)) {
    const ort = await import(address);
    ort.env.wasm.numThreads = 1;
    if (name !== 'ours') ort.env.wasm.wasmPaths = '/peer/';
    const session = await ort.InferenceSession.create(model, { executionProviders: ['wasm'], intraOpNumThreads: 1 });
    sessions[name] = [ort, session];
    found[name] = Object.fromEntries(rows.map((m) => [m, []]));
  }
  for (let round = 0; round < rounds; round++)
    for (const [name, [ort, session]] of Object.entries(sessions))
      for (const m of rows) {
        const values = Float32Array.from({ length: m * k }, (_, n) => Math.sin(n));
        const x = new ort.Tensor('float32', values, [m, k]);
        const start = performance.now();
        await session.run({ x });
        found[name][m].push((performance.now() - start) / 1000);
      }
  return found;
}"""


def natively(data: bytes, k: int, rows: Sequence[int], timed: Callable[[Any, Any], float]) -> Times:
    """Seconds of runs on one thread, in turns. timed: of (session, feeds)"""
    sessions = {name: _open(data, code) for name, code in RUNTIMES.items()}
    feeds = {m: {"x": np.random.default_rng(0).standard_normal((m, k)).astype(np.float32)} for m in rows}
    found: Times = {name: {m: [] for m in rows} for name in sessions}
    for _ in range(ROUNDS):
        for name, session in sessions.items():
            for m in rows:
                found[name][m].append(timed(session, feeds[m]))
    return found


def _open(data: bytes, code: bool | None) -> Any:
    if code is None:
        own = onnxruntime.SessionOptions()
        own.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(data, own)
    return InferenceSession(data, SessionOptions(native_code=code, intra_op_num_threads=1))


def in_page(opened: Chromium, data: bytes, k: int, rows: Sequence[int]) -> Times:
    """As `natively`, wall clock."""
    (BUILD / "rows.onnx").write_bytes(data)
    with opened.page() as page:
        found: Mapping[str, Mapping[str, list[float]]] = page.evaluate(
            IN_PAGE, ["/data/rows.onnx", k, list(rows), ROUNDS]
        )
    return {name: {int(m): times for m, times in of.items()} for name, of in found.items()}


def show(title: str, found: Times) -> None:
    """Print a line for each runtime: milliseconds of the first number of rows, then the others' ratios to it."""
    for name, times in found.items():
        first, *others = (statistics.median(each[3:]) for each in times.values())
        print(f"{title:18}{name:16}{1e3 * first:8.2f}" + "".join(f"{x / first:8.2f}" for x in others), flush=True)
