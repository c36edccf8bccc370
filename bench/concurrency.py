"""python -m bench concurrency: runs per second of one session that several threads use at once, beside onnxruntime.

Both are native and have the same number of intra-op threads. They take turns, and so do the numbers of callers; medians
are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable

from bench import models
from bench.machine import processor

CALLERS = (1, 2, 4)
MODELS = ("mobilenet_v2", "resnet50", "bert_tiny", "minilm", "lstm_tagger", "yolo_nms")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench concurrency", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=1, help="of each session (default 1)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn (default 1)")
    parser.add_argument("--rounds", type=int, default=5, help="of turns (default 5)")
    args = parser.parse_args(argv)
    print(f"{processor()}, {os.cpu_count()} cores; runs a second, {args.threads} thread(s) a session")
    print(f"{'callers':20}" + "".join(f"{n:>26}" for n in CALLERS))
    for name in args.models:
        print(f"{name:20}" + line(name, args), flush=True)
    return 0


def line(name: str, args: argparse.Namespace) -> str:
    """Return a line with ours, onnxruntime's, and the ratio, by the number of callers."""
    runs = [ours(name, args.threads), theirs(name, args.threads)]
    found: dict[tuple[int, int], list[float]] = {}
    for _ in range(args.rounds):
        for callers in CALLERS:
            for who, run in enumerate(runs):
                found.setdefault((callers, who), []).append(throughput(run, callers, args.seconds))
    medians = {key: statistics.median(values) for key, values in found.items()}
    pairs = [(medians[n, 0], medians[n, 1]) for n in CALLERS]
    return "".join(f"{mine:9.1f} : {other:7.1f} {mine / other:5.2f}x" for mine, other in pairs)


def throughput(run: Callable[[], object], callers: int, seconds: float) -> float:
    """Return the runs per second of this many threads; each ends with its last run."""
    counts = [0] * callers
    end = time.perf_counter() + seconds

    def work(n: int) -> None:
        while time.perf_counter() < end:
            run()
            counts[n] += 1

    start = time.perf_counter()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(callers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(counts) / (time.perf_counter() - start)


def ours(name: str, threads: int) -> Callable[[], object]:
    from pyruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    session, feeds = InferenceSession(str(models.path(name)), options), models.feeds(name)
    return lambda: session.run(None, feeds)


def theirs(name: str, threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    path = str(models.path(name))
    session, feeds = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"]), models.feeds(name)
    return lambda: session.run(None, feeds)
