"""python -m bench llm: tokens a second of decoders of random weights, natively beside onnxruntime, and in Chromium
beside onnxruntime-web.

Natively each runtime has a process of its own; in a page the two take turns. `prefill` is of 64 tokens. `at` is of
tokens one after another behind caches of that length and more: what a step gives as present keys and values is fed to
the next as past ones, so that caches grow and their copies count. `share` is the bytes of the weights that a token
needs, over the time of a token, of the bandwidth that a search for a byte has on one thread; what stays in the
processor's caches reads faster. --bound: natively by IO binding, whose values are not copied into arrays.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench import chromium
from bench.results import geomean_of
from kit.decoders import SIZES, TYPES, Decoder, feeds

PROMPT, STEPS = 64, 16
WARM = 3  # steps that are not counted
Times = Mapping[str, list[float]]  # seconds of the prefill, then of a step at each length, by runtime


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench llm", description=__doc__)
    parser.add_argument("sizes", nargs="*", default=["15M"], help=f"of {', '.join(SIZES)} (default 15M)")
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[16, 1024])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--native", action="store_true", help="not in Chromium")
    parser.add_argument("--bound", action="store_true", help="by IO binding")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        return child(*args.child, args.lengths, args.threads, Bound if args.bound else Plain)
    speed = bandwidth()
    print(f"bandwidth {speed / 1e9:.1f} GB/s, {args.threads} thread(s); tokens a second")
    print(f"{'':31}{'prefill':>9}" + "".join(f"{f'at {n}':>9}{'share':>7}" for n in args.lengths))
    ratios: list[float] = []
    for size in args.sizes:
        for kind in args.types:
            path, weights = made(size, kind)
            report(size, kind, natively(path, size, kind, args), weights / speed)
            if not args.native:
                found = in_chromium(path, size, kind, args)
                report(size, kind, found, weights / speed)
                ratios += [theirs / ours for ours, theirs in zip(*found.values(), strict=False)][1:]
    if ratios:
        print(f"decoding vs onnxruntime-web, {args.threads} thread(s): {geomean_of(ratios):.2f}")
    return 0


def made(name: str, kind: str) -> tuple[Path, int]:
    """The file, and the bytes of weights that each token needs."""
    path = chromium.BUILD / f"llm_{name}_{kind}.onnx"
    decoder = Decoder(SIZES[name], kind, empty=path.exists())
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(decoder.model(), path)
    else:
        decoder.model()
    return path, decoder.bytes


def bandwidth() -> float:
    """Bytes a second that one thread reads."""
    data = b"y" * (1 << 28)  # not zeros, which may all be one page
    times = []
    for _ in range(8):
        start = time.perf_counter()
        data.find(b"x")
        times.append(time.perf_counter() - start)
    return len(data) / min(times)


def report(size: str, kind: str, found: Times, ideal: float) -> None:
    """ideal: seconds of a token at the memory's bandwidth."""
    for who, (prefill, *steps) in found.items():
        cells = "".join(f"{1 / step:9.1f}{ideal / step:7.2f}" for step in steps)
        print(f"{size:6}{kind:6}{who:19}{PROMPT / prefill:9.1f}{cells}", flush=True)


# ── natively ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def natively(path: Path, size: str, kind: str, args: argparse.Namespace) -> Times:
    found = {}
    for who in ("ours", "onnxruntime"):
        command = [sys.executable, "-m", "bench", "llm", "--child", who, str(path), size, kind]
        command += ["--threads", str(args.threads), "--lengths", *map(str, args.lengths)]
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
    """Runs on arrays, of which each is fed the caches of the one before."""

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
    """The same by IO binding; of the outputs the logits are read."""

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
    """Seconds of one of some."""
    return statistics.median([steps.seconds() for _ in range(WARM + STEPS)][WARM:])


# ── in a page ────────────────────────────────────────────────────────────────────────────────────────────────────────


def in_chromium(path: Path, size: str, kind: str, args: argparse.Namespace) -> Times:
    of = SIZES[size]
    what = {
        "model": f"/data/{path.name}", "type": "float16" if kind == "fp16" else "float32", "layers": of.layers,
        "heads": of.kv, "width": of.width // of.heads, "lengths": args.lengths, "prompt": PROMPT, "warm": WARM,
        "steps": STEPS,
    }  # fmt: skip
    how = {"threads": args.threads, "provider": "wasm", "worker": False, "jax": False, "peer": True, "tiny": tiny()}
    with chromium.chromium() as browser, browser.page(1200) as page:
        page.evaluate("(how) => bench.start(how)", how)
        return page.evaluate("(what) => bench.decode(what)", what)


def tiny() -> str:
    from bench import models

    return models.tiny()
