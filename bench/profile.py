"""Where the time of a model goes, natively: `python -m bench.profile MODEL [--runs N] [--top N] [--ort]`.

MODEL is a path or the name of a zoo model. Prints time per kernel, the sum, the time of a whole run, and how long the
model took to compile; with --ort, onnxruntime on one thread for comparison, interleaved.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime import InferenceSession
from tests import zoo


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.profile", description=__doc__)
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
    own, other = [], []
    for _ in range(args.runs):
        own.append(timed(session, feeds))
        if peer is not None:
            other.append(timed(peer, feeds))
    line = f"{name}: {1e3 * min(own):.2f} ms (median {1e3 * statistics.median(own):.2f}), first {1e3 * ready:.0f} ms"
    if other:
        line += f"; onnxruntime {1e3 * min(other):.2f} ms, ratio {min(other) / min(own):.2f}"
    print(line)
    if args.top:
        kernels(session, feeds, args)


def timed(session: Any, feeds: Any) -> float:
    """Processor time of this thread: other work on the machine counts less than with a clock."""
    start = time.thread_time()
    session.run(None, feeds)
    return time.thread_time() - start


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
    """The best time of each call over the runs, longest first, and the sum per kind of kernel."""
    executor = session._programs[next(iter(session._programs))]
    best: list[tuple[str, float]] = []
    for _ in range(args.runs):
        executor.timings = []
        session.run(None, feeds)
        found, executor.timings = executor.timings, None
        if len(best) != len(found):
            best = found
        best = [(n, min(a, b)) for (n, a), (_, b) in zip(best, found, strict=True)]
    total = sum(t for _, t in best)
    print(f"  {len(best)} calls, {1e3 * total:.2f} ms in kernels")
    kinds: dict[str, float] = defaultdict(float)
    for n, t in best:
        kinds[n.rpartition(" ")[2].rstrip("0123456789").rstrip("_")] += t
    for kind, t in sorted(kinds.items(), key=lambda x: -x[1]):
        print(f"  {1e3 * t:9.3f} ms {100 * t / total:5.1f} %  {kind}")
    for n, t in sorted(best, key=lambda x: -x[1])[: args.top]:
        print(f"  {1e6 * t:9.1f} us {100 * t / total:5.1f} %  {n}")


if __name__ == "__main__":
    main()
