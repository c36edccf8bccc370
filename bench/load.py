"""python -m bench load: memory for loading a model, over its weights, beside onnxruntime and onnxruntime-web.

The models consist of products with random weights. Each is loaded in a fresh process, and by its address in a fresh
page. `peak` is the largest resident memory, `steady` the memory after a run, both minus the memory after a session of a
tiny model; natively, mapped files count. In Chromium all processes are measured, with a profile on disk; uncollected
garbage is part of `steady`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx

from bench import chromium, growth
from kit import chromium as shared
from kit import small_models
from pyruntime.cli.serve import Server

SIZES = (20, 64, 192, 512, 1024)  # MB
KEPT = 4  # seconds after which a page has hashed the model for its Program cache
WIDTHS = {20: 512, 64: 1024}  # width of the matrices; others have 2048
WEB = {"ours": "pyruntime", "onnxruntime-web": "onnxruntime-web/wasm"}
LOAD = """async ({ name, model, width, tiny }) => {
  const ort = await import(name);
  if (tiny) await (await ort.InferenceSession.create(tiny)).release();
  if (!model) return 0;
  const start = performance.now();
  const session = await ort.InferenceSession.create(model);
  const ready = performance.now() - start;
  globalThis.kept = session;
  await session.run({ x: new ort.Tensor('float32', new Float32Array(width), [1, width]) });
  return ready / 1000;
}"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench load", description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, help=f"MB of weights (default {SIZES})")
    parser.add_argument("--native", action="store_true", help="not in Chromium")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        return child(*args.child)
    models = {size: made(size) for size in args.sizes}
    print(f"{'MB':>6} {'':18}{'peak':>8}{'steady':>8}{'ready':>9}")
    for size, path in models.items():
        for who in ("ours", "onnxruntime"):
            report(size, who, *in_process(who, path, size))
    if not args.native:
        in_chromium(models)
    return 0


def report(size: int, who: str, peak: float, steady: float, ready: float) -> None:
    print(f"{size:6} {who:18}{peak / size:8.2f}{steady / size:8.2f}{ready:7.2f} s", flush=True)


def width_of(size: int) -> int:
    return WIDTHS.get(size, 2048)


def made(size: int) -> Path:
    """Return the model with this many megabytes of weights inside."""
    path = chromium.BUILD / f"load_{size}.onnx"
    width = width_of(size)
    layers = round(size * 1e6 / (4 * width * width))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        model = small_models.products(layers, width)
        rng = np.random.default_rng(0)
        for weight in model.graph.initializer:
            if weight.data_type == onnx.TensorProto.FLOAT:
                weight.raw_data = (rng.standard_normal((width, width), np.float32) / width**0.5).tobytes()
        onnx.save(model, path)
    return path


# ── natively ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def in_process(who: str, path: Path, size: int) -> tuple[float, float, float]:
    """Peak and steady MB, seconds."""
    command = [sys.executable, "-m", "bench", "load", "--child", who, str(path), str(width_of(size))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found["peak"], found["steady"], found["ready"]


def child(who: str, path: str, width: str) -> int:
    """Runs in the measured process."""
    import onnxruntime

    import pyruntime

    session = pyruntime.InferenceSession if who == "ours" else onnxruntime.InferenceSession
    session(small_models.affine().SerializeToString(), providers=["CPUExecutionProvider"])
    before, start = status("VmRSS"), time.perf_counter()
    loaded = session(path, providers=["CPUExecutionProvider"])
    ready = time.perf_counter() - start
    loaded.run(None, {"x": np.zeros((1, int(width)), np.float32)})
    found = {"peak": status("VmHWM") - before, "steady": status("VmRSS") - before, "ready": ready}
    print(json.dumps(found))
    return 0


def status(key: str) -> float:
    """Return the MB of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[key].split()[0]) * 1024 / 1e6


# ── in Chromium ──────────────────────────────────────────────────────────────────────────────────────────────────────


def in_chromium(models: dict[int, Path]) -> None:
    chromium.build()
    small_models.write(chromium.ROOT / "build" / "models")
    with Server(chromium.MOUNTS) as server:
        for size, path in models.items():
            for who, module in WEB.items():
                with shared.launch_profile() as profile:
                    page = profile.pages[0]
                    page.set_default_timeout(600_000)
                    page.goto(server.url + "/index.html")
                    how = {"name": module, "tiny": "/models/affine.onnx", "model": "", "width": width_of(size)}
                    page.evaluate(LOAD, how)
                    before = browsers()
                    with watched(browsers) as seen:
                        ready = page.evaluate(LOAD, {**how, "tiny": "", "model": f"/data/{path.name}"})
                        time.sleep(KEPT + size / 200)
                    report(size, f"{who}, page", max(seen) - before, browsers() - before, ready)


def browsers() -> float:
    """Return the resident MB, without pages of files, of the browser that this process has started."""
    sums = 0.0
    for pid in growth.kin(os.getpid()):
        try:
            if "playwright/driver" not in Path(f"/proc/{pid}/cmdline").read_text():
                sums += growth.resident(pid)
        except OSError:
            continue
    return sums


@contextmanager
def watched(measure: Callable[[], float]) -> Iterator[list[float]]:
    """Samples a function repeatedly during the block."""
    seen, done = [measure()], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(measure())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()
