"""python -m bench native [MODEL …]: processor time of runs on the desktop beside onnxruntime's CPU provider.

MODEL is a path, or a name of the zoo or the field; by default models of floats and of integers in both, and decoders
of 4-bit weights, which llama.cpp runs, too. Runs take turns; a column is the time of the best turn, and ratios are ours
over onnxruntime's: below 1 is faster. Geometric means follow, and for the models with the largest ratios the kinds of
kernels that take most of their time. All models take about ten minutes for each number of threads. `--codes` compares
instruction sets of machine code; `--top N` lists the N longest kernels of each model.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import llm, models
from bench.llama_cpp import CACHED, LlamaCpp
from kit import decoders
from pyruntime import InferenceSession, SessionOptions

CODES = ("avx512", "avx2", "off")
TURN = 0.005  # seconds of a turn, at least: shorter runs are repeated
FEWEST = 3  # turns, if they take longer than --seconds
LONGEST = 8  # models whose kernels are named at the end
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
DECODERS = {
    f"decode {size}.{kind}": (size, kind) for size, kind in [("15M", "int4a"), ("135M", "int4"), ("135M", "int4a")]
}

Timer = Callable[[int], float]  # seconds of processor time of a run, the mean of so many
Row = dict[str, Any]  # seconds of a run by column; "kinds": what takes most of it


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench native", description=__doc__)
    parser.add_argument("models", nargs="*", default=[*models.names(), *FIELD, *DECODERS])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--codes", nargs="+", choices=CODES, default=["avx512", "avx2"])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0, help="of the turns of a model")
    parser.add_argument("--top", type=int, default=0, help="kernels to list")
    args = parser.parse_args(argv)
    for threads in args.threads:
        print(f"{threads} thread{'s' * (threads > 1)}, ms:")
        print(f"{'model':28}{'onnxruntime':>12}" + "".join(f"{code:>10}{'ratio':>7}" for code in args.codes))
        table = {name: report(name, threads, args) for name in args.models}
        for title, chosen in groups(list(table)).items():
            means = "".join(f"{'':10}{mean(table, chosen, code):7.2f}" for code in args.codes)
            print(f"{f'geometric mean of {len(chosen)} {title}':40}{means}")
        largest = sorted(table, key=lambda name: -ratio(table[name], args.codes[0]))[:LONGEST]
        for name in largest:
            print(f"{name:28}{ratio(table[name], args.codes[0]):7.2f}  {table[name]['kinds']}", flush=True)
    return 0


def groups(names: Sequence[str]) -> dict[str, list[str]]:
    """The models of each geometric mean."""
    decoded = [name for name in names if name in DECODERS]
    whole = [name for name in names if name not in DECODERS]
    floats = [name for name in whole if not is_integer(name)]
    transformers = [name for name in floats if name.startswith(TRANSFORMERS)]
    found = {"models": whole, "of floats": floats, "transformers": transformers}
    found |= {"of integers": [name for name in whole if is_integer(name)], "decoders of 4 bits": decoded}
    return {title: chosen for title, chosen in found.items() if chosen}


def is_integer(name: str) -> bool:
    return name in models.everything() and (models.is_quantised(name) or name.endswith("nb4"))


def ratio(row: Row, code: str) -> float:
    return float(row[code] / row["peer"])


def mean(table: dict[str, Row], names: Sequence[str], code: str) -> float:
    return math.exp(sum(math.log(ratio(table[name], code)) for name in names) / len(names))


def report(name: str, threads: int, args: argparse.Namespace) -> Row:
    """Print a model's line, and return its times."""
    path, feeds = model_of(name)
    sessions = {code: opened(path, threads, code) for code in args.codes}
    runs: dict[str, Timer] = {code: of_runs(lambda s=s: s.run(None, feeds)) for code, s in sessions.items()}  # type: ignore[misc]
    peer = onnxruntime_session(path, threads)
    runs["peer"] = of_runs(lambda: peer.run(None, feeds))
    llama = beside_llama(DECODERS[name][0], threads) if name in DECODERS else None
    if llama is not None:
        runs["llama"] = llama
    row: Row = in_turns(runs, args.turns, args.seconds)
    for code, session in sessions.items():
        if code not in ("off", found := session.explain()["native_code"]):
            print(f"{code} does not run: {found}")
    cells = "".join(f"{1e3 * row[code]:10.2f}{ratio(row, code):7.2f}" for code in args.codes)
    beside = ""
    if llama is not None:
        llama.close()
        beside = f"   llama.cpp {1e3 * row['llama']:.2f}, ratio {row[args.codes[0]] / row['llama']:.2f}"
    print(f"{name:28}{1e3 * row['peer']:12.2f}{cells}{beside}", flush=True)
    row["kinds"] = kernels(sessions[args.codes[0]], feeds, args)
    return row


def model_of(name: str) -> tuple[Path, dict[str, np.ndarray]]:
    """A model's file, and feeds of a run."""
    if name in DECODERS:
        size, kind = DECODERS[name]
        return llm.made(size, kind)[0], decoders.feeds(decoders.SIZES[size], kind, 1, CACHED)
    if Path(name).exists():
        return Path(name), random_feeds(Path(name))
    return models.path(name), models.feeds(name)


def beside_llama(size: str, threads: int) -> LlamaCpp | None:
    try:
        return LlamaCpp(size, threads)
    except (OSError, RuntimeError, subprocess.CalledProcessError) as e:
        print(f"llama.cpp does not run: {e}")
        return None


def opened(path: Path, threads: int, code: str) -> InferenceSession:
    options = SessionOptions(native_code=False if code == "off" else code, intra_op_num_threads=threads)
    return InferenceSession(path, options)


def of_runs(run: Callable[[], Any]) -> Timer:
    """Processor time of all threads of this process: other work on the machine counts less than with a clock."""

    def timed(count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            run()
        return (time.process_time() - start) / count

    return timed


def in_turns(runs: dict[str, Timer], turns: int, seconds: float) -> Row:
    """The time of the best turn of each run. seconds: of all turns, about"""
    counts = {}
    for key, timed in runs.items():
        timed(1)
        counts[key] = max(1, math.ceil(TURN / max(timed(1), 1e-6)))
    best, end = dict.fromkeys(runs, math.inf), time.monotonic() + seconds
    for turn in range(turns):
        if turn >= FEWEST and time.monotonic() > end:
            break
        for key, timed in runs.items():
            best[key] = min(best[key], timed(counts[key]))
    return best


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


def kernels(session: InferenceSession, feeds: Any, args: argparse.Namespace) -> str:
    """The kinds of kernels that take most of the time of a run; prints the longest calls, if they are wanted."""
    best: dict[tuple[str, str], float] = {}
    for _ in range(args.turns if args.top else FEWEST):
        for call in session.profile(feeds):
            key = call.node, call.kernel
            best[key] = min(best.get(key, math.inf), call.seconds)
    total = sum(best.values())
    kinds: dict[str, float] = defaultdict(float)
    for (_, kernel), t in best.items():
        kinds[kernel.rstrip("0123456789").rstrip("_")] += t
    longest = sorted(kinds.items(), key=lambda x: -x[1])
    if args.top:
        print(f"  {len(best)} calls, {1e3 * total:.2f} ms in kernels")
        for kind, t in longest:
            print(f"  {1e3 * t:9.3f} ms {100 * t / total:5.1f} %  {kind}")
        for (node, kernel), t in sorted(best.items(), key=lambda x: -x[1])[: args.top]:
            print(f"  {1e6 * t:9.1f} us {100 * t / total:5.1f} %  {node} {kernel}")
    return ", ".join(f"{kind} {100 * t / total:.0f} %" for kind, t in longest if t > 0.1 * total)


if __name__ == "__main__":
    raise SystemExit(main())
