"""python -m bench exported [MODEL …]: exported Programs on the GPU, beside sessions that Python compiles.

Each visit has a new browser profile: milliseconds from the import of the package until the session is ready, and the
bytes of code that it fetched, compressed by brotli. A second visit of a session with Python finds its compiled Program
in the browser's cache. Programs were exported with `--weights --provider webgpu --assume software`; "wasm" opens the
Program for places without a GPU, in the same file.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext

from bench import machine, models
from bench.chromium import BUILD, MOUNTS, ROOT
from bench.start import FIRST, KEPT, LATER, LIMIT, MODELS
from bench.start_server import Server, compressed
from kit import chromium
from kit.gpu import GPU_IN_PAGES
from pyruntime import InferenceSession

GPU: list[Any] = [GPU_IN_PAGES, "wasm"]
ASSUMED = ["software"]  # so that the shaders are those that Python writes for SwiftShader
KINDS = ("program", "wasm", "python", "second")  # of visits
Visits = dict[str, list[tuple[float, int]]]  # by kind: ms, bytes of code


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench exported", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=3, help="visits of each kind, of which the median counts")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.models) - set(models.names())):
        parser.error(f"no model {', '.join(unknown)}")
    chromium.build()
    BUILD.mkdir(parents=True, exist_ok=True)
    brotli = compressed(ROOT / "dist" / name for name in [*FIRST, *LATER, "executor.mjs"])
    print(f"{machine.processor()}, load {machine.load()}; ms until a session is ready, kB of code")
    print(f"{'model':18}{'file':>10}{'model file':>12}" + "".join(f"{kind:>9}{'kB':>7}" for kind in KINDS) + "   ratio")
    ratios, wrong = [], False
    with Server(dict(MOUNTS), brotli) as server, chromium.launch() as browser:
        for name in args.models or MODELS:
            bench = Bench(server, browser, name)
            found = bench.all(args.rounds)
            times = [statistics.median(ms for ms, _ in found[kind]) for kind in KINDS]
            code = [statistics.median(count for _, count in found[kind]) for kind in KINDS]
            ratios.append(times[0] / times[2])
            wrong |= bench.wrong
            cells = "".join(f"{ms:9.0f}{count / 1e3:7.0f}" for ms, count in zip(times, code, strict=True))
            print(f"{name:18}{bench.sizes[0]:10,}{bench.sizes[1]:12,}{cells}{ratios[-1]:8.2f}", flush=True)
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    print(f"a Program is ready in {mean:.2f} of the time of a first visit with Python, {len(ratios)} models")
    return int(wrong)


class Bench:
    """The visits of one model. sizes: bytes of the exported file, and of the model"""

    def __init__(self, server: Server, browser: Browser, name: str) -> None:
        self.server, self.browser = server, browser
        self.info = models.info(name)
        self.wrong = False
        path = Path(models.path(name))
        data = InferenceSession(path).export(weights=True, providers=["webgpu", "wasm"], assume=ASSUMED)
        (BUILD / f"{name}.pyrt").write_bytes(data)
        self.sizes = len(data), path.stat().st_size
        self.program = {**self.info, "model": f"/data/{name}.pyrt"}

    def all(self, rounds: int) -> Visits:
        found: Visits = defaultdict(list)
        for _ in range(rounds):
            for kinds in (["program"], ["wasm"], ["python", "second"]):
                context = self.browser.new_context()
                context.set_default_timeout(LIMIT)
                for kind in kinds:
                    found[kind].append(self.visit(context, kind, kind == "python"))
                context.close()
        return found

    def visit(self, context: BrowserContext, kind: str, waits: bool) -> tuple[float, int]:
        page = context.new_page()
        page.goto(f"{self.server.url}/start.html")
        page.wait_for_function("globalThis.bench")
        self.server.sent.clear()
        info = self.program if kind in ("program", "wasm") else self.info
        providers = ["wasm"] if kind == "wasm" else GPU
        found: dict[str, Any] = page.evaluate("([i, p]) => bench.visit('ours', i, p)", [info, providers])
        code = sum(count for path, count in self.server.sent.items() if Path(path).parent == ROOT / "dist")
        if isinstance(found["error"], str) or found["error"] > info["tolerance"]:
            print(f"  {info['name']}: the result of {kind} is wrong: {found['error']}")
            self.wrong = True
        if found["used"] != ("wasm" if kind == "wasm" else "webgpu"):
            print(f"  {info['name']}: {kind} ran on {found['used']}")
        if waits:
            page.wait_for_timeout(KEPT)
        page.close()
        return found["ready"], code
