"""python -m bench compile: times of compiling in Pyodide in Chromium, from a cold profile, by phase."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from bench import machine, models
from bench.chromium import BUILD, MOUNTS, Chromium, build
from bench.table import number
from bench.transformer import transformer
from kit import chromium as shared
from kit.light_models import light_path
from pyruntime.cli.serve import Server

PHASES = ("read", "trace", "passes", "copies", "emit", "encode")
TRANSFORMER = "transformer_1500"
ZOO = ("resnet50", "minilm", "whisper_tiny_encoder", models.SILERO)
MODELS = ("squeezenet", *ZOO, TRANSFORMER)


def source(name: str) -> tuple[str, models.Info | None, int]:
    """A model: its address, feeds (None: zeros, free dims 1), and number of nodes."""
    if name in ZOO:
        info = models.info(name)
        return info["model"], info, _nodes(models.path(name))
    path = light_path("squeezenet")
    if name == TRANSFORMER:
        path = BUILD / f"{name}.onnx"
        path.write_bytes(transformer(1500))
    prefix = "/data" if name == TRANSFORMER else "/light"
    return f"{prefix}/{path.name}", None, _nodes(path)


def _nodes(path: Path) -> int:
    return len(onnx.load(path, load_external_data=False).graph.node)


def one(url: str, address: str, info: models.Info | None) -> dict[str, Any]:
    """Measure in a new browser, so that neither it nor V8 has anything cached."""
    with shared.launch() as launched, Chromium(launched, url).page() as page:
        return page.evaluate("([address, info]) => bench.compile(address, info)", [address, info])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench compile", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--repeat", type=int, default=1, help="runs, of which the median counts (default 1)")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.models) - set(MODELS)):
        parser.error(f"no model {', '.join(unknown)}")
    build()
    print(f"{machine.processor()}, load {machine.load()}; ms in Pyodide in Chromium, each in a new browser")
    heads = ("nodes", "boot", "compile", *PHASES, "start-up", "first run")
    print(f"{'model':{22}}" + "".join(f"{head:>10}" for head in heads))
    with Server(MOUNTS) as server:
        for name in args.models or MODELS:
            address, info, nodes = source(name)
            runs = [one(server.url, address, info) for _ in range(args.repeat)]
            print(line(name, nodes, runs), flush=True)
    print("boot: from the first call until the engine answers; compile: reading and compiling while the session is")
    print("created; the phases, by the engine's own clock (a model that needs values compiles in its first run);")
    print("start-up: code, weights, folded constants; first run: with feeds of the bench, else zeros with free dims 1")
    return 0


def line(name: str, nodes: int, runs: list[dict[str, Any]]) -> str:
    def cell(of: Callable[[dict[str, Any]], float]) -> str:
        return number(statistics.median(of(run) for run in runs))

    cells = [str(nodes), cell(lambda run: run["boot"]), cell(lambda run: run["compile"])]
    cells += [cell(lambda run, phase=phase: run["phases"].get(phase, math.nan)) for phase in PHASES]
    cells += [cell(lambda run: run["init"]), cell(lambda run: run["first"])]
    return f"{name:{22}}" + "".join(f"{text:>10}" for text in cells)
