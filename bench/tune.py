"""python -m bench tune [MODEL …] [--gpu] [--chromium]: the choices of tuning, the gain of a run, and the time of
tuning.

Natively, times are processor time of all threads, which suits WebAssembly on one thread and software GPUs, so that
other work on the machine counts little. Use --wall with a graphics card. In Chromium the clock counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from bench import models
from bench.chromium import chromium
from kit.gpu import GPU, GPU_IN_PAGES
from kit.models import assert_close
from pyruntime import InferenceSession
from pyruntime.native.tools.tuning import Tuned, tune

CPU_MODELS = [*models.names(), "detector.f32", "detector.qdq", "nested.f32", "residual.f32", "residual.qdq",
              "text_finder.f32"]  # fmt: skip
GPU_MODELS = ["bert_tiny", "gpt2_tiny", "lstm_tagger", "minilm", "mobilenet_v2", "superres", "wav2vec2_mini"]


class How(Protocol):
    def __call__(self, name: str, providers: list[Any], seconds: float) -> Tuned: ...


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench tune", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: the zoo and some of the field; with --gpu seven small ones")
    parser.add_argument("--gpu", action="store_true", help="on WebGPU")
    parser.add_argument("--chromium", action="store_true", help="in a page instead of natively")
    parser.add_argument("--wall", action="store_true", help="natively by the clock")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of turns for each candidate (default 3)")
    args = parser.parse_args(argv)
    gpu: Any = GPU_IN_PAGES if args.chromium else GPU
    providers, gains = [gpu, "wasm"] if args.gpu else ["wasm"], []
    with in_chromium() if args.chromium else natively(args.wall) as how:
        for name in args.models or (GPU_MODELS if args.gpu else CPU_MODELS):
            tuned = how(name, providers, args.seconds)
            gains.append(tuned.gain)
            print(f"{name}: {report(tuned)}", flush=True)
    print(f"geomean of {len(gains)}: {statistics.geometric_mean(gains):.3f}; {sum(g > 1.05 for g in gains)} over 1.05")
    return 0


@contextmanager
def natively(wall: bool) -> Iterator[How]:
    def tuned(name: str, providers: list[Any], seconds: float) -> Tuned:
        session, feeds = InferenceSession(models.path(name), providers=providers), models.feeds(name)
        before = session.run(None, feeds)
        found = tune(session, feeds, seconds, time.perf_counter if wall else time.process_time)
        assert_close(before, session.run(None, feeds), models.tolerance(name))
        return found

    yield tuned


@contextmanager
def in_chromium() -> Iterator[How]:
    with chromium() as opened:

        def tuned(name: str, providers: list[Any], seconds: float) -> Tuned:
            with opened.page() as page:
                found: dict[str, Any] = page.evaluate(
                    "(what) => bench.tune(...what)", [models.info(name), seconds, providers]
                )
            milli = {key: found[key] / 1e3 for key in ("before", "after", "took")}
            return Tuned(found["choices"], kernels=[], **milli)

        yield tuned


def report(tuned: Tuned) -> str:
    nodes = Counter((knob, value) for knob, by_node in tuned.choices.items() for value in sorted(by_node.values()))
    chosen = [f"{knob} {value} x {n}" for (knob, value), n in nodes.items()]
    times = f"{1e3 * tuned.before:.2f} ms by default, {1e3 * tuned.after:.2f} chosen, {tuned.gain:.2f} times as fast"
    return f"{times}, took {tuned.took:.0f} s; {', '.join(chosen) or 'the rules'}"
