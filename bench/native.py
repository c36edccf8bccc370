"""python -m bench native [MODEL …]: processor time of runs on the desktop beside onnxruntime's CPU provider.

MODEL is a path, or a name of the zoo or the field; by default models of floats and of integers in both. Runs take
turns; a column is the time of the best turn, and ratios are ours over onnxruntime's: below 1 is faster. Geometric means
follow. `--codes` compares instruction sets of machine code; `--top N` lists the N longest kernels of each model.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import models
from pyruntime import InferenceSession, SessionOptions

CODES = ("avx512", "avx2", "off")
TURN = 0.005  # seconds of a turn, at least: shorter runs are repeated
FIELD = """
residual.f32 detector.f32 shuffled.f32 ghosts.f32 wide_windows.f32 inverted.f32 nested.f32 encoder.f32 windows.f32
conformer.f32 speech.f32 writing.f32 residual.qdq detector.qdq inverted.qdq encoder.qdq encoder.dynamic windows.qdq
""".split()
TRANSFORMERS = (
    "bert",
    "minilm",
    "vit",
    "gpt2",
    "llama",
    "whisper",
    "wav2vec2",
    "encoder",
    "windows",
    "conformer",
    "writing",
)

Run = Callable[[], Any]
Row = dict[str, float]  # seconds of a run by column


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench native", description=__doc__)
    parser.add_argument("models", nargs="*", default=[*models.names(), *FIELD])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--codes", nargs="+", choices=CODES, default=["avx512", "avx2"])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--top", type=int, default=0, help="kernels to list")
    args = parser.parse_args(argv)
    for threads in args.threads:
        print(f"{threads} thread{'s' * (threads > 1)}, ms:")
        print(f"{'model':28}{'onnxruntime':>12}" + "".join(f"{code:>10}{'ratio':>7}" for code in args.codes))
        table = {name: report(name, threads, args) for name in args.models}
        for title, chosen in groups(list(table)).items():
            means = "".join(f"{'':10}{mean(table, chosen, code):7.2f}" for code in args.codes)
            print(f"{f'geometric mean of {len(chosen)} {title}':40}{means}")
    return 0


def groups(names: Sequence[str]) -> dict[str, list[str]]:
    """The models of each geometric mean."""
    floats = [name for name in names if not is_integer(name)]
    transformers = [name for name in floats if name.startswith(TRANSFORMERS)]
    found = {"models": list(names), "of floats": floats, "transformers": transformers}
    found["of integers"] = [name for name in names if is_integer(name)]
    return {title: chosen for title, chosen in found.items() if chosen}


def is_integer(name: str) -> bool:
    return name in models.everything() and (models.is_quantised(name) or name.endswith("nb4"))


def mean(table: dict[str, Row], names: Sequence[str], code: str) -> float:
    return math.exp(sum(math.log(table[name][code] / table[name]["peer"]) for name in names) / len(names))


def report(name: str, threads: int, args: argparse.Namespace) -> Row:
    """Print a model's line, and return its times."""
    path = Path(name) if Path(name).exists() else models.path(name)
    feeds = random_feeds(path) if Path(name).exists() else models.feeds(name)
    sessions = {code: opened(path, threads, code) for code in args.codes}
    runs: dict[str, Run] = {code: lambda s=s: s.run(None, feeds) for code, s in sessions.items()}  # type: ignore[misc]
    peer = onnxruntime_session(path, threads)
    runs["peer"] = lambda: peer.run(None, feeds)
    row = in_turns(runs, args.turns)
    for code, session in sessions.items():
        if code not in ("off", found := session.explain()["native_code"]):
            print(f"{code} does not run: {found}")
    cells = "".join(f"{1e3 * row[code]:10.2f}{row[code] / row['peer']:7.2f}" for code in args.codes)
    print(f"{name:28}{1e3 * row['peer']:12.2f}{cells}", flush=True)
    if args.top:
        kernels(sessions[args.codes[0]], feeds, args)
    return row


def opened(path: Path, threads: int, code: str) -> InferenceSession:
    options = SessionOptions(native_code=False if code == "off" else code, intra_op_num_threads=threads)
    return InferenceSession(path, options)


def in_turns(runs: dict[str, Run], turns: int) -> Row:
    """Seconds of processor time, of all threads, of the best turn of each run."""
    counts = {}
    for key, run in runs.items():
        run()
        counts[key] = max(1, math.ceil(TURN / max(timed(run, 1), 1e-6)))
    best = dict.fromkeys(runs, math.inf)
    for _ in range(turns):
        for key, run in runs.items():
            best[key] = min(best[key], timed(run, counts[key]))
    return best


def timed(run: Run, count: int) -> float:
    """Processor time of a run: other work on the machine counts less than with a clock."""
    start = time.process_time()
    for _ in range(count):
        run()
    return (time.process_time() - start) / count


def onnxruntime_session(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting is no work
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def random_feeds(path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for v in InferenceSession(path).get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in v.shape]
        feeds[v.name] = rng.standard_normal(shape).astype("f4")
    return feeds


def kernels(session: InferenceSession, feeds: Any, args: argparse.Namespace) -> None:
    """Print the best time of each call over the turns, longest first, and the sum per kind of kernel."""
    best: dict[tuple[str, str], float] = {}
    for _ in range(args.turns):
        for call in session.profile(feeds):
            key = call.node, call.kernel
            best[key] = min(best.get(key, math.inf), call.seconds)
    total = sum(best.values())
    print(f"  {len(best)} calls, {1e3 * total:.2f} ms in kernels")
    kinds: dict[str, float] = defaultdict(float)
    for (_, kernel), t in best.items():
        kinds[kernel.rstrip("0123456789").rstrip("_")] += t
    for kind, t in sorted(kinds.items(), key=lambda x: -x[1]):
        print(f"  {1e3 * t:9.3f} ms {100 * t / total:5.1f} %  {kind}")
    for (node, kernel), t in sorted(best.items(), key=lambda x: -x[1])[: args.top]:
        print(f"  {1e6 * t:9.1f} us {100 * t / total:5.1f} %  {node} {kernel}")


if __name__ == "__main__":
    raise SystemExit(main())
