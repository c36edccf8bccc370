"""Measures where a model spends its time, natively: `python -m bench.native MODEL [--runs N] [--top N] [--ort]`.

MODEL is a path or the name of a zoo model. Prints time per kernel, the sum, the time of a whole run, and how long the
model took to compile; with --ort, onnxruntime on one thread for comparison, interleaved.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from kit import zoo
from pyruntime import InferenceSession


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.native", description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--top", type=int, default=0, help="kernels to list")
    parser.add_argument("--ort", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    for name in (args := parser.parse_args()).models:
        report(name, args)


def report(name: str, args: argparse.Namespace) -> None:
    path = Path(name) if Path(name).exists() else zoo.materialize(name)
    feeds = random_feeds(path) if Path(name).exists() else zoo.inputs(name)
    start = time.perf_counter()
    session = InferenceSession(path)
    session.run(None, feeds)
    ready = time.perf_counter() - start
    peer = onnxruntime_session(path) if args.ort else None
    own, other, fast = [], [], []
    for _ in range(args.runs):
        fast.append(speed())
        own.append(timed(session, feeds))
        if peer is not None:
            other.append(timed(peer, feeds))
    line = f"{name}: {1e3 * min(own):.2f} ms (median {1e3 * statistics.median(own):.2f}), first {1e3 * ready:.0f} ms"
    if other:
        line += f"; onnxruntime {1e3 * min(other):.2f} ms, ratio {min(other) / min(own):.2f}"
    if name in PEER:
        slow = FULL_SPEED / max(fast)
        line += f"; machine {max(fast):.0f} GFLOP/s, against web peer {PEER[name] * slow / 1e3 / min(own):.2f}"
    print(line)
    if args.top:
        kernels(session, feeds, args)


PEER = {  # onnxruntime-web 1.30 /wasm, one thread, idle machine, ms
    "resnet50": 246, "mobilenet_v2": 24, "efficientnet_b0": 47, "vit_tiny": 85, "bert_tiny": 1.51, "minilm": 20,
    "gpt2_tiny": 0.38, "llama_mini": 1.77, "llama_mini.nb4": 5.20, "llama_mini.dyn": 1.38, "llama_mini.qdq": 1.96,
    "llama_mini.fp16": 1.79, "whisper_tiny_encoder": 1205, "whisper_tiny_decoder": 109, "unet_resize": 145,
    "yolo_nms": 58, "lstm_tagger": 1.17, "mobilenet_v2.qdq": 31, "superres": 33, "minilm.dyn": 9.75,
    "wav2vec2_mini": 18,
}  # fmt: skip
FULL_SPEED = 50.0  # GFLOP/s of `speed` on the idle machine


@functools.cache
def _speed_kernel() -> Any:
    from pyruntime.providers.wasm.printer.assembler import Module
    from pyruntime.providers.wasm.schedules import gemm
    from pyruntime.providers.wasm.schedules.arithmetic import Arithmetic
    from pyruntime.providers.wasm.schedules.layouts import Packed
    from pyruntime.providers.wasm.wasmtime_host import WasmHost

    host, module = WasmHost(), Module()
    gemm.matmul(module, "f", Packed(), arithmetic=Arithmetic.of_floats(host.relaxed))
    host.grow(1 << 23)
    params = gemm.Params(512, 512, 512, 1, 512, 512, 512, 0, 0, 0, mc=192, nc=256, kc=384)
    words = [1 << 16, 1 << 21, 1 << 22, 1 << 22, 0, *params]
    host.memory[1024 : 1024 + 4 * len(words)] = np.array(words, "<i4").view(np.uint8)
    f = host.load(module.to_bytes())["f"]
    return lambda: f(1024, 0, gemm.units(512, 512, 1, 192, 256), 0)


def speed() -> float:
    """Return the GFLOP/s of a 512 x 512 x 512 product, which shows how fast the machine is at the moment."""
    f, best = _speed_kernel(), 1.0
    for _ in range(3):
        start = time.thread_time()
        f()
        best = min(best, time.thread_time() - start)
    return 2 * 512**3 / best / 1e9


def timed(session: Any, feeds: Any) -> float:
    """Processor time of all threads: other work on the machine counts less than with a clock."""
    start = time.process_time()
    session.run(None, feeds)
    return time.process_time() - start


def onnxruntime_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def random_feeds(path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for v in InferenceSession(path).get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in v.shape]
        feeds[v.name] = rng.standard_normal(shape).astype("f4")
    return feeds


def kernels(session: InferenceSession, feeds: Any, args: argparse.Namespace) -> None:
    """Print the best time of each call over the runs, longest first, and the sum per kind of kernel."""
    executor = next(iter(session._native.executors.values()))
    best: list[tuple[str, float, str]] = []
    for _ in range(args.runs):
        executor.timings = []
        session.run(None, feeds)
        found, executor.timings = executor.timings, None
        if len(best) != len(found):
            best = found
        best = [(n, min(a, b), place) for (n, a, place), (_, b, _) in zip(best, found, strict=True)]
    total = sum(t for _, t, _ in best)
    print(f"  {len(best)} calls, {1e3 * total:.2f} ms in kernels")
    kinds: dict[str, float] = defaultdict(float)
    for n, t, _ in best:
        kinds[n.rpartition(" ")[2].rstrip("0123456789").rstrip("_")] += t
    for kind, t in sorted(kinds.items(), key=lambda x: -x[1]):
        print(f"  {1e3 * t:9.3f} ms {100 * t / total:5.1f} %  {kind}")
    for n, t, _ in sorted(best, key=lambda x: -x[1])[: args.top]:
        print(f"  {1e6 * t:9.1f} us {100 * t / total:5.1f} %  {n}")


if __name__ == "__main__":
    main()
