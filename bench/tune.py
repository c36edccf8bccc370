"""python -m bench tune [MODEL …] [--gpu]: what tuning chooses, what a run gains, and the time that it takes, natively.

Times are of the processor, of all threads: of one thread's work on WebAssembly, and where the processor is the GPU, so
that other work on the machine counts little. On a GPU of its own, --wall.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter

from bench import models
from kit.models import assert_close
from pyruntime import InferenceSession
from pyruntime.native.tuning import Tuned, tune

CPU_MODELS = [*models.names(), "detector.f32", "detector.qdq", "nested.f32", "residual.f32", "residual.qdq",
              "text_finder.f32"]  # fmt: skip
GPU_MODELS = ["bert_tiny", "gpt2_tiny", "lstm_tagger", "minilm", "mobilenet_v2", "superres", "wav2vec2_mini"]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench tune", description=__doc__)
    parser.add_argument("models", nargs="*", help="default: the zoo and some of the field; with --gpu seven small ones")
    parser.add_argument("--gpu", action="store_true", help="on the native WebGPU adapter")
    parser.add_argument("--wall", action="store_true", help="by the clock")
    parser.add_argument("--seconds", type=float, default=3.0, help="of turns for each candidate (default 3)")
    args = parser.parse_args(argv)
    clock = time.perf_counter if args.wall else time.process_time
    gains = []
    for name in args.models or (GPU_MODELS if args.gpu else CPU_MODELS):
        session = InferenceSession(models.path(name), providers=["webgpu", "wasm"] if args.gpu else ["wasm"])
        feeds = models.feeds(name)
        before = session.run(None, feeds)
        tuned = tune(session, feeds, args.seconds, clock)
        assert_close(before, session.run(None, feeds), models.tolerance(name))
        gains.append(tuned.gain)
        print(f"{name}: {report(tuned)}", flush=True)
    print(f"geomean of {len(gains)}: {statistics.geometric_mean(gains):.3f}; {sum(g > 1.05 for g in gains)} over 1.05")
    return 0


def report(tuned: Tuned) -> str:
    chosen = [f"{knob} {value} x {n}" for (knob, value), n in _counts(tuned).items()]
    times = f"{1e3 * tuned.before:.2f} ms by default, {1e3 * tuned.after:.2f} chosen, {tuned.gain:.2f} times as fast"
    return f"{times}, took {tuned.took:.0f} s; {', '.join(chosen) or 'the rules'}"


def _counts(tuned: Tuned) -> Counter[tuple[str, int]]:
    """Nodes by knob and value."""
    return Counter((knob, value) for knob, nodes in tuned.choices.items() for value in sorted(nodes.values()))
