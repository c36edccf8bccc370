"""python -m bench subnormals: nets whose numbers are partly subnormal, beside the same nets with zeros in their place.

Both run in turns, natively and in one page of Chromium; a ratio is the median of the turns' ratios. Intel's processors
take up to 150 cycles for a product of subnormal numbers, AMD's and ARM's hardly more than for others, so the line with
the option keep_subnormals says what this machine would lose. `error` is the largest difference of the results.

`training` makes steps of AdamW on a constant batch, until moments would be subnormal: the time of the last steps beside
that of the first.
"""

from __future__ import annotations

import argparse
import base64
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bench import chromium, machine
from kit.training_networks import batch, dense
from pyruntime import InferenceSession, SessionOptions, TrainingSession

TINY = np.finfo(np.float32).tiny
SHARES = (0.0, 0.1, 0.6)
DECAY = """g (float[256, 256] x, float[256, 256] w) => (float[256, 256] y) <int64 steps = {200}, bool yes = {1}> {
  y = Loop (steps, yes, x) <body = b (int64 i, bool c, float[256, 256] h) => (bool d, float[256, 256] next) {
    d = Identity (c)  next = Mul (h, w)
  }>
}"""
NETS = {  # the text, the shapes of the feed and of the weight
    "conv 1x1": ("g (float[1, 768, 15, 20] x) => (float[1, 384, 15, 20] y) { y = Conv (x, w) }",
                 (1, 768, 15, 20), (384, 768, 1, 1)),
    "conv 3x3": ("g (float[1, 64, 32, 32] x) => (float[1, 64, 30, 30] y) { y = Conv (x, w) }",
                 (1, 64, 32, 32), (64, 64, 3, 3)),
    "gelu, matmul": ("g (float[64, 512] x) => (float[64, 512] y) { a = Gelu (x)  y = MatMul (a, w) }",
                     (64, 512), (512, 512)),
}  # fmt: skip
PAGE = """async ({ models, x, dims, turns }) => {
  const ort = await import('pyruntime');
  const ratios = [];
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const feeds = x.map((text) => ({ x: new ort.Tensor('float32', new Float32Array(bytes(text).buffer), dims) }));
  const create = (text) => ort.InferenceSession.create(bytes(text), { intraOpNumThreads: 1 });
  const sessions = await Promise.all(models.map(create));
  for (let turn = 0; turn < turns + 2; turn += 1) {
    const times = [];
    for (let n = 0; n < 2; n += 1) {
      const start = performance.now();
      for (let again = 0; again < 4; again += 1) await sessions[n].run(feeds[n]);
      times.push(performance.now() - start);
    }
    if (turn > 1) ratios.push(times[0] / times[1]);
  }
  await Promise.all(sessions.map((session) => session.release()));
  return ratios;
}"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench subnormals", description=__doc__)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--native", action="store_true", help="not in Chromium")
    args = parser.parse_args(argv)
    print(f"{machine.processor()}, load {machine.load()}")
    print(f"{'':16}{'share':>6}{'native':>8}{'kept':>8}{'error':>10}{'page':>8}")
    with nullcontext() if args.native else chromium.chromium() as browser:
        for name, (text, x_shape, w_shape) in NETS.items():
            for share in SHARES:
                pair = [_numbers(x_shape, share, 1), _numbers(w_shape, share, 2)]
                flat = [_flushed(x) for x in pair]
                ratio, error = native(text, pair, flat, args.turns, False)
                kept, _ = native(text, pair, flat, args.turns, True)
                page = in_page(browser, text, pair, flat, args.turns) if browser else float("nan")
                print(f"{name:16}{share:6.0%}{ratio:8.2f}{kept:8.2f}{error:10.1e}{page:8.2f}", flush=True)
    for keep in (False, True):
        print(f"decaying state{', kept' * keep}: {decaying(keep, args.turns):.2f}", flush=True)
    print(f"training, {args.steps} steps: {training(args.steps):.2f}")
    return 0


def _numbers(shape: tuple[int, ...], share: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape).astype(np.float32)
    return np.where(rng.random(shape) < share, x * np.float32(0.2) * TINY, x).astype(np.float32)


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < TINY, np.float32(0), x)


def _model(text: str, w: np.ndarray | None) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    if w is not None:
        model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return model.SerializeToString()


def native(text: str, pair: list[np.ndarray], flat: list[np.ndarray], turns: int, keep: bool) -> tuple[float, float]:
    """The ratio of the times, and the largest difference of the results."""
    runs, results = [], []
    for x, w in (pair, flat):
        options = SessionOptions()
        options.keep_subnormals, options.intra_op_num_threads = keep, 1
        session = InferenceSession(_model(text, w), options)
        results.append(session.run(None, {"x": x})[0])
        runs.append(_run(session, {"x": x}))
    return _ratio(runs, turns), float(np.abs(results[0] - results[1]).max())


def _run(session: Any, feeds: dict[str, np.ndarray]) -> Callable[[], Any]:
    return lambda: session.run(None, feeds)


def _ratio(runs: list[Callable[[], Any]], turns: int) -> float:
    ratios = []
    for _ in range(turns):
        times = []
        for run in runs:
            start = time.process_time()
            for _ in range(4):
                run()
            times.append(time.process_time() - start)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def in_page(browser: chromium.Chromium, text: str, pair: list[np.ndarray], flat: list[np.ndarray], turns: int) -> float:
    models = [_encoded(_model(text, w)) for _, w in (pair, flat)]
    feeds = [_encoded(np.ascontiguousarray(x).tobytes()) for x, _ in (pair, flat)]
    with browser.page() as page:
        how = {"models": models, "x": feeds, "dims": list(pair[0].shape), "turns": turns}
        return statistics.median(page.evaluate(PAGE, how))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decaying(keep: bool, turns: int) -> float:
    """A state that is multiplied by 0.5 in each of 200 steps, beside one that is multiplied by 1."""
    options = SessionOptions()
    options.keep_subnormals, options.intra_op_num_threads = keep, 1
    session = InferenceSession(_model(DECAY, None), options)
    x = _numbers((256, 256), 0, 1)
    return _ratio([_run(session, {"x": x, "w": np.full_like(x, w)}) for w in (0.5, 1.0)], turns)


def training(steps: int) -> float:
    """The time of the last fiftieth of the steps over that of the first, after ten to warm up."""
    options: dict[str, Any] = {"loss": {"cross_entropy": "y"}, "optimizer": {"adamw": {"rate": 1e-3, "decay": 0.1}}}
    with TrainingSession(dense(), **options) as session:
        feeds, times = batch(64), []
        for _ in range(steps + 10):
            start = time.process_time()
            session.step(feeds)
            times.append(time.process_time() - start)
    few = max(steps // 50, 5)
    return statistics.median(times[-few:]) / statistics.median(times[10 : 10 + few])
