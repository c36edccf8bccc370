"""python -m bench disco: disco's task "titanic" in a page, by examples/disco and by disco's own trainer.

disco (github.com/epfml/disco) trains by TensorFlow.js. Of its packages npm has discojs-node 2.1.1, whose core is that
of pages; here it runs on TensorFlow.js for pages, with the network and settings that the task had in 2024. Both train
two clients that average their weights after every second epoch: from the same weights, with the same batches, and both
evaluate after each epoch. Losses are those of the first client; MB are all that a page fetches (brotli 11). Each
trainer in turn, in a new profile; medians.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from statistics import median
from typing import Any

import onnx

from bench import machine
from bench.chromium import BUILD, MOUNTS, ROOT
from bench.start_server import Server, compressed
from kit import chromium as shared
from pyruntime.cli.serve import COMPRESSED

PAGE, EXAMPLE = ROOT / "bench/page/disco", ROOT / "examples/disco"
TRAINERS = ("ours", "cpu", "wasm", "webgl")
UNUSED = ("chalk", "crypto", "events", "fs")  # modules of Node.js that disco imports for other tasks


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench disco", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each trainer (default 3)")
    parser.add_argument("--trainers", nargs="*", default=TRAINERS, help=f"default: {' '.join(TRAINERS)}")
    args = parser.parse_args(argv)
    shared.build()
    build()
    mounts = {
        "/": PAGE, "/example/": EXAMPLE, "/pyruntime/": ROOT / "dist", "/disco.js": BUILD / "disco.js",
        "/tfjs-wasm/": MOUNTS["/tfjs-wasm/"],
    }  # fmt: skip
    files = [file for path in mounts.values() for file in (path.iterdir() if path.is_dir() else [path])]
    files = [file for file in files if file.suffix in {".csv", ".onnx", *COMPRESSED}]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in args.trainers}
    with Server(mounts, compressed(files)) as server, shared.launch() as browser:
        print(f"{machine.describe(browser.version)}\n{'':20}accuracy  steps/s  loss of epoch 1, 5, 10      MB")
        for _ in range(args.rounds):
            for name, found in results.items():
                found.append(visit(browser, server, name))
    for name, found in results.items():
        steps, last = median(one["steps"] for one in found), found[-1]
        losses = "".join(f"{last['losses'][n]:8.4f}" for n in (0, 4, 9))
        label = "pyruntime" if name == "ours" else f"disco, tfjs {name}"
        print(f"{label:20}{last['accuracy']:8.1%}{steps:9.0f}{losses:>24}{last['bytes'] / 1e6:8.2f}")
    return 0


def build() -> None:
    """Installs disco, and bundles its trainer."""
    folder = BUILD / "disco"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (PAGE / "package.json", PAGE / "package-lock.json"):
        shutil.copy(file, folder)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--silent"], cwd=folder, check=True)
    aliases = [f"--alias:{name}=./bench/page/disco/nothing.js" for name in UNUSED]
    command = [
        "node_modules/.bin/esbuild", "--bundle", "--minify", "--format=esm", "--log-level=error", "--tsconfig-raw={}",
        "--define:global=globalThis", "--alias:@tensorflow/tfjs-node=@tensorflow/tfjs", *aliases,
        str(PAGE / "trainer.js"), f"--outfile={BUILD / 'disco.js'}",
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, env={"NODE_PATH": str(folder / "node_modules")}, check=True)


def visit(browser: Any, server: Server, name: str) -> dict[str, Any]:
    """What a page with an empty cache measures."""
    stored = onnx.load(EXAMPLE / "network.onnx").graph.initializer
    weights = [onnx.numpy_helper.to_array(w).ravel().tolist() for w in stored]
    server.sent.clear()
    context = browser.new_context()
    context.set_default_timeout(600_000)
    page = context.new_page()
    page.goto(f"{server.url}/index.html")
    page.wait_for_function("globalThis.bench")
    call = "bench.ours()" if name == "ours" else "bench.disco(name, weights)"
    found = dict(page.evaluate(f"([name, weights]) => {call}", [name, weights]))
    context.close()
    return found | {"bytes": server.sent.total()}
