"""The network that sequences of calls run, a lookup, two products and a cache, and its plain evaluator."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored

WIDTH, ENTRIES, RANK = 128, 5, 2
TEXT = f"""<ir_version: 9, opset_import: ["" : 17]>
    g (float[N, {WIDTH}] x, int64[N] i, float[P, {WIDTH}] past) => (float[N, {WIDTH}] y, float[A, {WIDTH}] present) {{
        picked = Gather (table, i)
        h = Add (x, picked)
        y = Gemm <transB = 1> (h, layer_weight, bias)
        k = MatMul (h, keys)
        present = Concat <axis = 0> (past, k)
    }}"""
ADAPTERS = ("one", "two", "later")
Active = Mapping[str, float]


def _numbers() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3).standard_normal
    shapes = {"layer.weight": (WIDTH, WIDTH), "keys": (WIDTH, WIDTH), "bias": (WIDTH,), "table": (ENTRIES, WIDTH)}
    for name in ADAPTERS:
        shapes |= {f"{name}.A": (RANK, WIDTH), f"{name}.B": (WIDTH, RANK)}
    return {name: (draw(shape) / 8).astype(np.float32) for name, shape in shapes.items()}


NUMBERS = _numbers()


def _model() -> bytes:
    made = onnx.parser.parse_model(TEXT)
    made.graph.node[2].input[1] = "layer.weight"
    for name in ("layer.weight", "keys", "bias", "table"):
        made.graph.initializer.append(numpy_helper.from_array(NUMBERS[name], name))
    return made.SerializeToString()


MODEL = _model()


def adapter(name: str) -> bytes:
    """A file of PEFT, whose product counts once."""
    tensors = {f"base_model.model.layer.lora_{part}.weight": NUMBERS[f"{name}.{part}"] for part in "AB"}
    stored = {key: Stored("float32", x.shape, np.ascontiguousarray(x)) for key, x in tensors.items()}
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK}
    return safetensors.write(stored, {"format": "pt", "adapter_config": json.dumps(config)})


def inputs(rows: int, seed: int) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(seed)
    x = drawn.standard_normal((rows, WIDTH)).astype(np.float32)
    return {"x": x, "i": drawn.integers(0, ENTRIES, rows)}


def expected(feeds: Mapping[str, np.ndarray], past: np.ndarray, active: Active) -> dict[str, np.ndarray]:
    """The plain evaluator."""
    h = feeds["x"] + NUMBERS["table"][feeds["i"]]
    changes = [factor * NUMBERS[f"{n}.B"] @ NUMBERS[f"{n}.A"] for n, factor in active.items()]
    weight = NUMBERS["layer.weight"] + sum(changes, np.float32(0))
    return {"y": h @ weight.T + NUMBERS["bias"], "present": np.concatenate([past, h @ NUMBERS["keys"]])}


NOBODY = np.zeros((0, WIDTH), np.float32)  # a cache without rows
