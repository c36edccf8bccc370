"""python -m bench training: steps a second of training in one page, beside TensorFlow.js and jax-js.

The same networks, weights, batches and optimiser (Adam), in turns, on WebAssembly; TensorFlow.js also on its other
backends, where these can train the network. A time contains the batch's way into the engine and the loss's way out.
The losses of the first steps are compared first.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import numpy as np

from bench import history, machine
from bench.chromium import BUILD, Chromium, chromium
from bench.training_memory import MemoryUse, memory_use
from bench.training_nets import NETS, Net

PEERS = ("jax", "tfjs wasm", "tfjs cpu", "tfjs webgl")
RATE = 1e-3
BATCHES = 4
COMPARED = 4  # steps whose losses must agree
TOLERANCE = 0.01  # of a loss
WANTED = {"cnn": 2.0, "transformer": 1.5}  # times the faster peer
LIMIT = 3.5  # of a step's time over that of a run of the model


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench training", description=__doc__)
    parser.add_argument("nets", nargs="*", help=f"default: {' '.join(NETS)}")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="default 1")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each library (default 12)")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), help=f"default: {', '.join(PEERS)}")
    parser.add_argument("--built", action="store_true", help="dist/ is up to date")
    parser.add_argument("--save", action="store_true", help="keep the result in bench/history")
    args = parser.parse_args(argv)
    lines: list[str] = []
    models: dict[str, dict[str, dict[str, float]]] = {}
    with chromium(built=args.built) as browser:
        about = machine.describe(browser.version)
        for name in args.nets or NETS:
            for threads in args.threads:
                found = measured(browser, name, threads, args.rounds, ["ours", *args.peers])
                lines += report(name, threads, found)
                models.setdefault(name, {})[str(threads)] = times(found)
            lines.append(told(name, memory_use(NETS[name])))
        if args.save:
            kept = machine.identity(browser.version) | {"provider": "training", "models": models}
            print(f"kept as {history.write(kept)}")
    print(about)
    print("\n".join(lines))
    return 0


def measured(browser: Chromium, name: str, threads: int, rounds: int, names: list[str]) -> dict[str, Any]:
    effort = {"threads": threads, "rounds": rounds, "compared": COMPARED}
    what = {"info": stored(name, NETS[name]), "names": names, **effort}
    with browser.page() as page:
        return dict(page.evaluate("(what) => bench.training(what)", what))


def stored(name: str, net: Net) -> dict[str, Any]:
    """Write a network's model, weights and batches for the page. Returns bench/page/training/net.js's NetInfo."""
    folder = BUILD / "training"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.onnx").write_bytes(net.model())
    blob = bytearray()

    def parts(arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        made = []
        for key, array in arrays.items():
            place = {"offset": len(blob), "size": array.nbytes}
            made.append({"name": key, "type": str(array.dtype), "dims": list(array.shape), **place})
            blob.extend(array.tobytes())
        return made

    info = {
        "kind": name, "model": f"/data/training/{name}.onnx", "data": f"/data/training/{name}.bin", "rate": RATE,
        "loss": {"crossEntropy": "logits"}, "sizes": net.sizes, "weights": parts(net.weights()),
        "batches": [parts(net.feeds(n)) for n in range(BATCHES)],
    }  # fmt: skip
    (folder / f"{name}.bin").write_bytes(blob)
    return info


def agree(found: dict[str, Any], one: str) -> bool:
    return bool(np.allclose(found[one]["losses"], found["ours"]["losses"], rtol=TOLERANCE))


def times(found: dict[str, Any]) -> dict[str, float]:
    """Medians in ms of the libraries that can train the network."""
    return {name: float(f"{median(f['steps']):.3g}") for name, f in found.items() if f["steps"]}


def report(name: str, threads: int, found: dict[str, Any]) -> list[str]:
    lines = [f"{name}, {threads} thread{'s' * (threads > 1)}"]
    for one, f in found.items():
        if not f["steps"]:
            lines.append(f"  {one:12} cannot train it: {f.get('error', '')}")
            continue
        step, forward = median(f["steps"]), median(f["forwards"])
        wrong = "" if agree(found, one) else f"  OTHER LOSSES {f['losses']}"
        lines.append(
            f"  {one:12}{1000 / step:8.1f} steps/s  step {step:8.2f} ms  forward {forward:8.2f} ms"
            f"  step / forward {step / forward:.2f}{wrong}"
        )
    made = times(found)
    peers = {one: t for one, t in made.items() if one != "ours" and agree(found, one)}
    if "ours" in made and peers:
        best = min(peers, key=lambda one: peers[one])
        ratio, wanted = peers[best] / made["ours"], WANTED[name]
        lines.append(f"  {ratio:.2f} x {best}, the fastest peer (target {wanted}): {verdict(ratio >= wanted)}")
    if "ours" in made:
        own = median(found["ours"]["steps"]) / median(found["ours"]["forwards"])
        lines.append(f"  step / own forward {own:.2f} (target {LIMIT}): {verdict(own <= LIMIT)}")
    return lines


def verdict(good: bool) -> str:
    return "met" if good else "MISSED"


def told(name: str, use: MemoryUse) -> str:
    return (
        f"{name}: peak of a step {use.peak / 1e6:.2f} MB, kept activations {use.kept / 1e6:.2f} MB"
        f" ({use.peak / use.kept:.2f} x), weights and states {use.states / 1e6:.2f} MB"
    )
