"""RNN, GRU and LSTM with all their options, for the table of gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 2, 5
LONG = 130  # steps of a case whose cell states are computed again, chunk after chunk
Options = dict[str, Any]

# name -> operator, attributes, optional inputs (B, lens, h0, c0, P), outputs that are asked for
TABLE: dict[str, tuple[str, Options, str, str]] = {
    "rnn": ("RNN", {}, "B", "Y Y_h"),
    "rnn lens": ("RNN", {"direction": "bidirectional"}, "B lens h0", "Y Y_h"),
    "rnn last": ("RNN", {"direction": "reverse", "layout": 1, "activations": ["Elu"]}, "", "Y_h"),
    "rnn two": (
        "RNN",
        {"direction": "bidirectional", "activations": ["LeakyRelu", "Affine"], "activation_alpha": [0.3, 0.5],
         "activation_beta": [0.1]}, "B h0", "Y",
    ),
    "gru": ("GRU", {}, "B", "Y Y_h"),
    "gru lens": ("GRU", {"direction": "bidirectional"}, "B lens h0", "Y Y_h"),
    "gru linear": ("GRU", {"linear_before_reset": 1, "direction": "reverse"}, "B lens h0", "Y Y_h"),
    "gru linear layout": (
        "GRU", {"linear_before_reset": 1, "direction": "bidirectional", "layout": 1}, "B h0", "Y Y_h",
    ),
    "gru last": ("GRU", {"layout": 1, "clip": 0.4, "activations": ["Softsign", "ScaledTanh"]}, "", "Y_h"),
    "gru linear last": ("GRU", {"linear_before_reset": 1}, "", "Y_h"),
    "lstm": ("LSTM", {}, "B", "Y Y_h Y_c"),
    "lstm all": ("LSTM", {"direction": "bidirectional"}, "B lens h0 c0 P", "Y Y_h Y_c"),
    "lstm coupled": ("LSTM", {"input_forget": 1, "direction": "reverse"}, "B h0 c0 P", "Y Y_c"),
    "lstm layout": ("LSTM", {"layout": 1, "direction": "bidirectional", "clip": 0.4}, "lens h0 c0", "Y_h"),
    "lstm long": ("LSTM", {"direction": "bidirectional"}, "B lens c0 P", "Y Y_c"),
    "lstm cell": (
        "LSTM", {"activations": ["Sigmoid", "Softplus", "Tanh", "Sigmoid", "Tanh", "Softsign"],
                 "direction": "bidirectional"}, "P c0", "Y_c",
    ),
}  # fmt: skip


def nodes() -> Iterator[tuple[str, onnx.NodeProto, dict[str, np.ndarray]]]:
    for name, (op, attributes, optional, outputs) in TABLE.items():
        values = _values(op, attributes, optional.split(), LONG if name == "lstm long" else STEPS)
        order = ["X", "W", "R", "B", "lens", "h0", "c0", "P"][: 8 if op == "LSTM" else 6]
        inputs = [key if key in values else "" for key in order]
        results = [y if y in outputs.split() else "" for y in ("Y", "Y_h", "Y_c")[: 3 if op == "LSTM" else 2]]
        yield name, helper.make_node(op, inputs, results, hidden_size=HIDDEN, **attributes), values


def _values(op: str, attributes: Options, optional: list[str], steps: int) -> dict[str, np.ndarray]:
    rng, gates = np.random.default_rng(7), GATES[op]
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    layout = attributes.get("layout")
    state = (BATCH, directions, HIDDEN) if layout else (directions, BATCH, HIDDEN)
    shapes = {
        "X": (BATCH, steps, INPUTS) if layout else (steps, BATCH, INPUTS),
        "W": (directions, gates * HIDDEN, INPUTS), "R": (directions, gates * HIDDEN, HIDDEN),
        "B": (directions, 2 * gates * HIDDEN), "h0": state, "c0": state, "P": (directions, 3 * HIDDEN),
    }  # fmt: skip
    values = {k: rng.normal(size=s) * 0.7 for k, s in shapes.items() if k in "XWR" or k in optional}
    if "lens" in optional:
        values["lens"] = np.array([steps, 0, steps // 2 + 1], np.int32)
    return values
