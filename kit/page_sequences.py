"""Random sequences of calls in a page (kit/pages/sequences): their nets, the page's script, and what runs them."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from playwright.sync_api import ConsoleMessage, Page

from kit import counting_decoders
from kit.chromium import ROOT
from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored

INNER, COLUMNS, RANK, WIDE = 8, 6, 2, 128
_TEXTS = {
    "gemm": f"(float[N, {INNER}] x) => (float[N, {COLUMNS}] y) {{ y = Gemm (x, layer_weight, bias) }}",
    "wide": f"""(float[N, {WIDE}] x) => (float[N, {WIDE}] y)
        {{ [first] a = MatMul (x, w1)  r = Relu (a)  [second] y = MatMul (r, w2) }}""",
    "sums": """(float[B, 3] x, float[B, P, 3] past) => (float[B, T, 3] present, float[B, 3] total) <int64[1] axis = {1}>
        { row = Unsqueeze (x, axis)  present = Concat <axis = 1> (past, row)
          total = ReduceSum <keepdims = 0> (present, axis) }""",
    "training": f"(float[N, {INNER}] x) => (float[N, {COLUMNS}] y) {{ y = Gemm (x, w, b) }}",
}


def nets() -> dict[str, Any]:
    """By name: `model` in base64, and the numbers that plain.js computes with. All are small integers but those of the
    net that trains."""
    draw = np.random.default_rng(0).integers
    weight, bias = draw(-3, 4, (INNER, COLUMNS)), draw(-3, 4, COLUMNS)
    first, second = draw(-1, 2, (WIDE, WIDE)), draw(-1, 2, (WIDE, WIDE))
    w, b = draw(-3, 4, (INNER, COLUMNS)) / 8, draw(-3, 4, COLUMNS) / 8
    pairs = {name: (draw(-2, 3, (RANK, INNER)), draw(-2, 3, (COLUMNS, RANK))) for name in ("one", "two")}
    adapters = {
        name: {"file": _text(_adapter(a, b)), "delta": _flat(a.T @ b.T)} for name, (a, b) in pairs.items()
    }  # fmt: skip
    cases = {
        name: getattr(counting_decoders, f"of_{name}")() for name in ("sums", "convolution", "window", "recurrence")
    }
    decoders = {f"decoder {name}": {"model": _text(case.model.SerializeToString())} for name, case in cases.items()}
    numbers = {"weight": weight, "bias": bias, "first": first, "second": second, "w": w, "b": b}
    flat = {name: _flat(x) for name, x in numbers.items()}
    layer = {"model": _model("gemm", {"layer_weight": weight, "bias": bias}), "inner": INNER, "adapters": adapters}
    return {
        "gemm": {**layer, "weight": flat["weight"], "bias": flat["bias"]},
        "wide": {
            "model": _model("wide", {"w1": first, "w2": second}), "size": WIDE,
            "first": flat["first"], "second": flat["second"],
        },
        "sums": {"model": _model("sums", {})},
        "training": {
            "model": _model("training", {"w": w, "b": b}), "inner": INNER, "columns": COLUMNS,
            "w": flat["w"], "b": flat["b"],
        },
        **decoders,
    }  # fmt: skip


def _model(name: str, weights: dict[str, np.ndarray]) -> str:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {_TEXTS[name]}')
    for node in made.graph.node:  # onnx's parser reads no dot in a name
        node.input[:] = [x.replace("layer_weight", "layer.weight") for x in node.input]
    for key, array in weights.items():
        tensor = numpy_helper.from_array(array.astype(np.float32), key.replace("layer_weight", "layer.weight"))
        made.graph.initializer.append(tensor)
    return _text(made.SerializeToString())


def _adapter(a: np.ndarray, b: np.ndarray) -> bytes:
    """As a file of PEFT, whose product counts once."""
    pair = {"A": a.astype(np.float32), "B": b.astype(np.float32)}
    tensors = {f"base_model.model.layer.lora_{part}.weight": x for part, x in pair.items()}
    stored = {key: Stored("float32", x.shape, np.ascontiguousarray(x)) for key, x in tensors.items()}
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK}
    return safetensors.write(stored, {"format": "pt", "adapter_config": json.dumps(config)})


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _flat(x: np.ndarray) -> list[float]:
    return [float(v) for v in x.ravel()]


def bundle() -> None:
    """Writes build/pages/sequences.js."""
    command = ["node_modules/.bin/esbuild", "kit/pages/sequences/index.js", "--bundle", "--format=esm"]
    output = ["--log-level=warning", "--external:/dist/*", "--outfile=build/pages/sequences.js"]
    subprocess.run([*command, *output], cwd=ROOT, check=True)


class Sequences:
    """A page that runs sequences."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.problems: list[str] = []
        page.set_default_timeout(0)
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("console", self._hear)
        page.goto(f"{origin}/bridge/sequences.html")
        page.wait_for_function("globalThis.sequences")
        page.evaluate("(nets) => sequences.start(nets)", nets())

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def search(self, **settings: Any) -> dict[str, Any]:
        """seed, runs, length: most commands of a sequence; seconds: None for no limit; names: beginnings of commands'
        names; path: of a failure, to repeat it. Result: number of runs and of commands, the shrunk failure or None"""
        found: dict[str, Any] = self.page.evaluate("(settings) => sequences.search(settings)", settings)
        return found

    def replay(self, commands: list[Any]) -> None:
        """Errors: those of playwright, with what was wrong"""
        self.page.evaluate("(commands) => sequences.replay(commands)", commands)
