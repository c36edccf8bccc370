"""python -m bench engines: a model in Ray Data, Ray Serve, Dask, Spark, Apache Beam and Gunicorn, beside onnxruntime in
the same engine.

Two processes with one thread each (Beam: one) run 4,000 rows of 256 numbers in batches of 256 through four dense
layers, 38 MB of weights. Prints the seconds from the start of the job to its first row, rows a second after it, and the
largest proportional set size (PSS) of all processes, those of the engine too. The first time it installs each engine
into build/engines (0.6 to 1 GB each). Spark needs Java 17.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench import machine

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build/engines"
PROGRAM = Path(__file__).with_name("engine_programs.py")
# Engine -> the example that names its packages
EXAMPLES = {
    "ray_data": "ray", "ray_serve": "ray", "dask": "dask", "spark": "spark", "beam": "beam", "gunicorn": "gunicorn",
}  # fmt: skip
LIBRARIES = ("pyruntime", "onnxruntime")
WIDTHS = (256, 2048, 2048, 2048, 16)


def model() -> Path:
    path = FOLDER / "model.onnx"
    random = np.random.default_rng(0)
    steps = [f"h{i + 1} = Gemm (h{i}, w{i}, b{i})  a{i + 1} = Relu (h{i + 1})" for i in range(len(WIDTHS) - 1)]
    body = "  ".join(steps).replace("(h0", "(x")
    for i in range(1, len(WIDTHS) - 1):
        body = body.replace(f"Gemm (h{i}", f"Gemm (a{i}")
    head = '<ir_version: 10, opset_import: ["" : 20]>'
    last = len(WIDTHS) - 1
    made = onnx.parser.parse_model(f"{head} g (float[N, 256] x) => (float[N, 16] a{last}) {{ {body} }}")
    for i, (k, m) in enumerate(zip(WIDTHS, WIDTHS[1:], strict=False)):
        for name, shape in ((f"w{i}", (k, m)), (f"b{i}", (m,))):
            values = random.standard_normal(shape, np.float32) / np.float32(k**0.5)
            made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(made, path)
    return path


def environment(name: str) -> Path:
    """The Python of an environment with the packages of the example, and with onnxruntime beside."""
    folder = FOLDER / EXAMPLES[name]
    text = (ROOT / "examples" / EXAMPLES[name] / "README.md").read_text()
    (packages,) = re.findall(r'pip install "../..\[native\]" (.*)', text)
    stamp = folder / "packages.txt"
    pip = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check"]
    if not stamp.exists() or stamp.read_text() != packages:
        project = (ROOT / "pyproject.toml").read_text()
        peers = re.findall(r'"((?:onnx|onnxruntime)==[\d.]+)"', project)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([*pip, f"{ROOT}[native]", *packages.replace('"', "").split(), *sorted(set(peers))], check=True)
        stamp.write_text(packages)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", ROOT], check=True)  # the engine of now
    return folder / "bin/python"


def descendants(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        try:
            threads = Path(f"/proc/{one}/task").glob("*/children")
            found += [int(child) for path in threads for child in path.read_text().split()]
        except OSError:
            pass
    return found


def pss(pid: int) -> float:
    """Of a process and its descendants, in MB."""
    total = 0
    for one in descendants(pid):
        try:
            total += int(re.findall(r"^Pss: +(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.M)[0])
        except (OSError, IndexError):  # it has ended
            pass
    return total / 1024


def measured(python: Path, name: str, library: str, path: Path, rows: int) -> dict[str, Any]:
    # -P: or bench/profile.py would stand for Python's
    command = [python, "-P", PROGRAM, name, library, path, str(rows)]
    variables = {**os.environ, "PYTHONPATH": str(FOLDER), "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most = [0.0]

    def watch() -> None:
        while process.poll() is None:
            most.append(pss(process.pid))
            time.sleep(0.3)

    thread = threading.Thread(target=watch)
    thread.start()
    out, error = process.communicate(timeout=600)
    thread.join()
    assert process.returncode == 0, error[-3000:]
    return {**json.loads(out.splitlines()[-1]), "pss": max(most)}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench engines", description=__doc__)
    parser.add_argument("engines", nargs="*", default=[*EXAMPLES], help=", ".join(EXAMPLES))
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3, help="of turns; medians are printed (default 3)")
    args = parser.parse_args(argv)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not (FOLDER / "bench").exists():  # so that jobs import this package, and the engine that is installed
        (FOLDER / "bench").symlink_to(ROOT / "bench")
    path = model()
    print(f"{machine.processor()}; medians of {args.rounds}, pyruntime / onnxruntime")
    print("| engine | first row, s | rows a second | PSS, MB |\n|---|---|---|---|")
    for name in args.engines:
        python = environment(name)
        found: dict[str, list[dict[str, Any]]] = {library: [] for library in LIBRARIES}
        for _ in range(args.rounds):
            for library in LIBRARIES:
                found[library].append(measured(python, name, library, path, args.rows))
        cells = [
            " / ".join(f"{statistics.median(one[key] for one in found[lib]):{form}}" for lib in LIBRARIES)
            for key, form in (("first", ".2f"), ("rows", ",.0f"), ("pss", ",.0f"))
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0
