"""python -m bench processes: one model in eight processes, beside onnxruntime: memory, and time to the first result.

Three ways for a process to get the session: a fork; a new process (spawn), from its start; and unpickling in a process
that has run another model before. onnxruntime's sessions cannot be pickled, so its processes open the model's file. All
begin at the same time and have one thread. Memory is the proportional set size (PSS) of all processes and their parent,
minus that of the same processes with a tiny model, over the weights.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench import load, machine
from bench.engines import LIBRARIES, pss
from kit import small_models

WAYS = ("fork", "spawn", "unpickle")


def opened(library: str, path: str) -> Any:
    module = import_module(library)
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    return module.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(session: Any) -> None:
    (x,) = session.get_inputs()
    session.run(None, {x.name: np.zeros((1, x.shape[1]), np.float32)})


def process(library: str, way: str, given: Any, tiny: str, ready: Any, start: Any, results: Any, ended: Any) -> None:
    """given: a session, its pickle, or the path of a model"""
    if way == "unpickle":
        run(opened(library, tiny))
        ready.release()
        start.wait()
        start = time.perf_counter()
        given = pickle.loads(given) if library == "pyruntime" else given
    run(opened(library, given) if isinstance(given, str) else given)
    results.put(time.perf_counter() - start)
    ended.wait()


def child(library: str, way: str, path: str, tiny: str, count: int) -> None:
    """The parent of the measured processes: prints seconds to the first result of each, and MB."""
    context: Any = multiprocessing.get_context("fork" if way == "fork" else "spawn")
    ready, ended, results = context.Semaphore(0), context.Event(), context.SimpleQueue()
    session = opened(library, path)
    run(session)
    given: Any = session
    if library != "pyruntime" and way != "fork":
        given = path
    elif way == "unpickle":
        given = pickle.dumps(session)
    start = context.Event() if way == "unpickle" else time.perf_counter()
    arguments = (library, way, given, tiny, ready, start, results, ended)
    children = [context.Process(target=process, args=arguments) for _ in range(count)]
    for one in children:
        one.start()
    if way == "unpickle":
        for _ in children:
            ready.acquire()
        start.set()
    seconds = [results.get() for _ in children]
    print(json.dumps({"seconds": seconds, "pss": pss(os.getpid())}))
    ended.set()
    for one in children:
        one.join()


def measured(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench", "processes", "--child", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench processes", description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="MB of weights (default 512)")
    parser.add_argument("--count", type=int, default=8, help="processes besides their parent (default 8)")
    parser.add_argument("--rounds", type=int, default=3, help="medians of rounds are printed (default 3)")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        *texts, count = args.child
        child(*texts, int(count))
        return 0
    path = load.made(args.size)
    tiny = Path(path).with_name("load_tiny.onnx")
    onnx.save(small_models.products(1, 16), tiny)
    weights = path.stat().st_size / 2**20
    print(f"{machine.processor()}, {os.cpu_count()} cores; {args.count} processes, {args.size} MB of weights")
    print("| | first result, s | the last of all, s | memory / weights |\n|---|---|---|---|")
    for way in WAYS:
        for library in LIBRARIES:
            rounds = []
            for _ in range(args.rounds):
                least, all_ = (measured(library, way, model, tiny, args.count) for model in (tiny, path))
                times = all_["seconds"]
                rounds.append((statistics.median(times), max(times), (all_["pss"] - least["pss"]) / weights))
            cells = [f"{statistics.median(one):.2f}" for one in zip(*rounds, strict=True)]
            print(f"| {way}, {library} | {' | '.join(cells)} |", flush=True)
    return 0
