"""python -m bench llm: tokens a second of decoders of random weights, natively beside onnxruntime, and in Chromium
beside onnxruntime-web.

Natively each runtime has its own process; in a page the two alternate. `prefill`: the speed of a prompt of 64 tokens.
`at N`: the speed of decoding when the cache already has N positions. Each step feeds the present keys and values of the
step before as past ones, so caches grow, and copies of them count. `share`: the bandwidth at which a token reads its
weights and caches, divided by the bandwidth of searches for a byte, one on each thread. Shares above 1 mean that the
processor's caches have parts of the data. --bound: natively by IO binding, which copies no values into arrays.

The last lines are geometric means of our rows in Chromium (with --native, natively). `token at 1024 / at 16` is the
ratio of the times of a token, after the time for reading its caches at that bandwidth is subtracted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from bench import chromium
from bench.results import geomean_of
from kit.decoders import SIZES, TYPES, Decoder, cache_bytes, feeds

PROMPT, STEPS = 64, 16
WARM = 20, 3.0  # uncounted steps, and most seconds for them: V8 optimises code, the engine tries read orders
LARGE = 1 << 30  # bytes of weights from which they are in a separate file: protobuf is limited to 2 GB
Times = Mapping[str, list[float]]  # seconds of the prefill, then of a step at each length, by runtime


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench llm", description=__doc__)
    parser.add_argument("sizes", nargs="*", default=["15M"], help=f"of {', '.join(SIZES)} (default 15M)")
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[16, 1024])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--native", action="store_true", help="not in Chromium")
    parser.add_argument("--bound", action="store_true", help="by IO binding")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        return child(*args.child, args.lengths, args.threads[0], Bound if args.bound else Plain)
    found = [row for threads in args.threads for row in rows(args, threads)]
    if found:
        print(summary(args, found))
    return 0


def summary(args: argparse.Namespace, found: list[Row]) -> str:
    lines = []
    if len(args.lengths) > 1:
        more = geomean_of([row.more for row in found])
        lines = [f"token at {args.lengths[-1]} / at {args.lengths[0]}, beyond the caches' bytes: {more:.2f}"]
    shares = []
    for threads in args.threads:
        share = geomean_of([share for row in found if row.threads == threads for share in row.shares])
        shares.append(f"{threads} thread{'s' * (threads > 1)} {share:.2f}")
    ratio = geomean_of([ratio for row in found for ratio in row.ratios])
    peer = f"onnxruntime{'' if args.native else '-web'}"
    return "\n".join([*lines, f"decode share of bandwidth: {', '.join(shares)}; vs {peer} {ratio:.2f}"])


class Row(NamedTuple):
    """Results of a model on a number of threads: shares of the bandwidth and ratios to the peer, by length; and the
    time at the last length without its caches' bytes, over that at the first."""

    threads: int
    shares: list[float]
    ratios: list[float]
    more: float


def rows(args: argparse.Namespace, threads: int) -> list[Row]:
    print(f"{threads} thread(s); GB/s of the memory, tokens a second")
    print(f"{'':30}{'GB/s':>6}{'prefill':>9}" + "".join(f"{f'at {n}':>9}{'share':>7}" for n in args.lengths))
    made_of = []
    for size in args.sizes:
        for kind in args.types:
            path, weights = made(size, kind)
            speed = bandwidth(threads)  # for each model: other virtual machines on the host affect it
            caches = [cache_bytes(SIZES[size], kind, n) / speed for n in args.lengths]
            ideal = [weights / speed + c for c in caches]
            found = natively(path, size, kind, args, threads)
            report(f"{size:6}{kind:6}", found, ideal, speed)
            if not args.native:
                found = in_chromium(path, size, kind, args, threads)
                report(f"{size:6}{kind:6}", found, ideal, speed)
            if (ours := found.get("ours", [])[1:]) and len(found) == 2:
                (peer,) = (times[1:] for who, times in found.items() if who != "ours")
                shares = [best / time for best, time in zip(ideal, ours, strict=True)]
                more = (ours[-1] - caches[-1] + caches[0]) / ours[0]
                made_of.append(Row(threads, shares, [b / a for a, b in zip(ours, peer, strict=True)], more))
    return made_of


def made(name: str, kind: str) -> tuple[Path, int]:
    """Return the file, and the bytes of weights that each token needs."""
    path = chromium.BUILD / f"llm_{name}_{kind}.onnx"
    decoder = Decoder(SIZES[name], kind, empty=path.exists())
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        model = decoder.model()
        beside = decoder.bytes > LARGE
        onnx.save(model, path, save_as_external_data=beside, location=beside_of(path).name if beside else None)
    else:
        decoder.model()
    return path, decoder.bytes


def beside_of(path: Path) -> Path:
    """Return the path of large weights."""
    return path.with_suffix(".weights")


def bandwidth(threads: int) -> float:
    """Return the most bytes per second that this many threads read together."""
    barrier = multiprocessing.Barrier(threads)
    with ProcessPoolExecutor(threads, initializer=_barriers.append, initargs=(barrier,)) as pool:
        return max(sum(together) for together in zip(*pool.map(_speeds, range(threads)), strict=True))


_barriers: list[Any] = []  # of a process of the pool


def _speeds(_: int) -> list[float]:
    data = b"y" * (1 << 28)  # not zeros, which may all be one page
    speeds = []
    for _ in range(8):
        _barriers[0].wait()
        start = time.perf_counter()
        data.find(b"x")
        speeds.append(len(data) / (time.perf_counter() - start))
    return speeds


def report(model: str, found: Times, ideal: list[float], speed: float) -> None:
    """ideal: seconds of a token at the memory's bandwidth, `speed`, by length."""
    for who, (prefill, *steps) in found.items():
        cells = "".join(f"{1 / step:9.1f}{best / step:7.2f}" for best, step in zip(ideal, steps, strict=True))
        print(f"{model}{who:18}{speed / 1e9:6.1f}{PROMPT / prefill:9.1f}{cells}", flush=True)


# ── natively ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def natively(path: Path, size: str, kind: str, args: argparse.Namespace, threads: int) -> Times:
    found = {}
    for who in ("ours", "onnxruntime"):
        command = [sys.executable, "-m", "bench", "llm", "--child", who, str(path), size, kind]
        command += ["--threads", str(threads), "--lengths", *map(str, args.lengths)]
        command += ["--bound"] * args.bound
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{size:6}{kind:6}{who:19}{(done.stderr.strip().splitlines() or ['?'])[-1]:.90}", flush=True)
        else:
            found[who] = json.loads(done.stdout)
    return found


def child(who: str, path: str, name: str, kind: str, lengths: list[int], threads: int, way: type[Plain]) -> int:
    import onnxruntime

    import pyruntime

    package: Any = pyruntime if who == "ours" else onnxruntime
    options = package.SessionOptions()
    options.intra_op_num_threads = threads
    session = package.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    prompt = feeds(SIZES[name], kind, PROMPT, 0)
    times = [min(Plain(session, prompt).seconds() for _ in range(4))]
    times += [decoded(way(session, feeds(SIZES[name], kind, 1, length))) for length in lengths]
    print(json.dumps(times))
    return 0


class Plain:
    """Run on arrays; each run gets the caches of the previous one."""

    def __init__(self, session: Any, given: Mapping[str, np.ndarray]) -> None:
        self.session = session
        self.names = [o.name for o in session.get_outputs()]
        self.given: dict[str, Any] = dict(given)

    def seconds(self) -> float:
        start = time.perf_counter()
        outputs = self.run()
        taken = time.perf_counter() - start
        self.given |= {n.replace("present", "past"): x for n, x in outputs.items() if n.startswith("present")}
        self.given |= {"last": self.given["last"] + 1, "total": np.asarray(self.given["total"] + 1)}
        return taken

    def run(self) -> dict[str, Any]:
        return dict(zip(self.names, self.session.run(None, self.given), strict=True))


class Bound(Plain):
    """Run by IO binding, and read only the logits."""

    def __init__(self, session: Any, given: Mapping[str, np.ndarray]) -> None:
        super().__init__(session, given)
        self.binding = session.io_binding()

    def run(self) -> dict[str, Any]:
        for name, x in self.given.items():
            (self.binding.bind_cpu_input if isinstance(x, np.ndarray) else self.binding.bind_ortvalue_input)(name, x)
        for name in self.names:
            self.binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(self.binding)
        outputs = dict(zip(self.names, self.binding.get_outputs(), strict=True))
        outputs["logits"].numpy()
        return outputs


def decoded(steps: Plain) -> float:
    """Return the seconds of a step, the median of several."""
    given = dict(steps.given)
    started = time.perf_counter()
    for _ in range(WARM[0]):
        if time.perf_counter() - started < WARM[1]:
            steps.seconds()
    steps.given = given
    return statistics.median([steps.seconds() for _ in range(3 + STEPS)][3:])


# ── in a page ────────────────────────────────────────────────────────────────────────────────────────────────────────


def in_chromium(path: Path, size: str, kind: str, args: argparse.Namespace, threads: int) -> Times:
    of, beside = SIZES[size], beside_of(path)
    weights = [{"path": beside.name, "data": f"/data/{beside.name}"}] if beside.exists() else []
    what = {
        "model": f"/data/{path.name}", "weights": weights, "type": "float16" if kind == "fp16" else "float32",
        "layers": of.layers, "heads": of.kv, "width": of.width // of.heads, "lengths": args.lengths, "prompt": PROMPT,
        "warm": WARM, "steps": STEPS,
    }  # fmt: skip
    how = {"threads": threads, "provider": "wasm", "worker": False, "jax": False, "peer": True, "tiny": tiny()}
    with chromium.chromium() as browser, browser.page(1200) as page:
        page.evaluate("(how) => bench.start(how)", how)
        told = page.evaluate("(what) => bench.decode(what)", what)
    for who, why in told["failed"].items():
        print(f"{size:6}{kind:6}{who:19}{why:.90}", flush=True)
    found: Times = told["found"]
    return found


def tiny() -> str:
    from bench import models

    return models.tiny()
