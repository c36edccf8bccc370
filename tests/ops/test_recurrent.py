"""RNN, GRU and LSTM beyond the official suite: all options against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from kit.interpret import run
from tests.ops.compare import by_onnxruntime, by_session, check, model, same, value_info

T, B, INPUTS, H = 4, 3, 2, 3
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

CASES: list[tuple[str, dict[str, Any], str]] = [
    ("RNN", {}, "b lens h0"),
    ("RNN", {"direction": "reverse"}, "lens"),
    ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Tanh"]}, "b h0"),
    ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.3]}, "b"),
    ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}, "b"),
    ("RNN", {"activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [0.7]}, ""),
    ("RNN", {"activations": ["HardSigmoid"], "activation_alpha": [0.4], "activation_beta": [0.3]}, ""),
    ("RNN", {"activations": ["Elu"], "activation_alpha": [0.6]}, ""),
    ("RNN", {"activations": ["Softsign"]}, ""),
    ("RNN", {"activations": ["Softplus"]}, ""),
    ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.2]}, ""),
    ("GRU", {}, "b lens h0"),
    ("GRU", {"linear_before_reset": 1}, "b lens h0"),
    ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}, ""),
    ("GRU", {"direction": "bidirectional", "clip": 0.4}, "b lens h0"),
    ("GRU", {"direction": "reverse", "activations": ["HardSigmoid", "Softsign"]}, "b"),
    ("LSTM", {}, "b lens h0 c0 p"),
    ("LSTM", {"direction": "reverse", "clip": 0.3}, "b lens"),
    ("LSTM", {"clip": 0.1}, "c0"),
    ("LSTM", {"direction": "bidirectional"}, "b lens h0 c0 p"),
    ("LSTM", {"input_forget": 1}, "b h0 c0"),
    ("LSTM", {"activations": ["HardSigmoid", "Relu", "Softsign"]}, "b"),
    ("LSTM", {"direction": "bidirectional", "activations": ["Sigmoid", "Tanh", "Tanh", "Tanh", "Relu", "Tanh"]}, "b"),
]


def operands(op: str, attrs: dict[str, Any], parts: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    d, g = 2 if attrs.get("direction") == "bidirectional" else 1, GATES[op]
    shapes = {"x": (T, B, INPUTS), "w": (d, g * H, INPUTS), "r": (d, g * H, H), "b": (d, 2 * g * H), "h0": (d, B, H),
              "c0": (d, B, H), "p": (d, 3 * H)}  # fmt: skip
    out = {
        k: rng.uniform(-1, 1, s).astype(np.float32) for k, s in shapes.items() if k in ["x", "w", "r", *parts.split()]
    }
    if "lens" in parts:
        out["lens"] = np.array([4, 1, 3], np.int32)
    return out


def build(op: str, attrs: dict[str, Any], feeds: dict[str, np.ndarray], wanted: tuple[str, ...]) -> Any:
    order = ["x", "w", "r", "b", "lens", "h0", "c0", "p"][: 8 if op == "LSTM" else 6]
    names = [name if name in feeds else "" for name in order]
    node = helper.make_node(op, names, list(wanted), hidden_size=H, **attrs)
    return model([node], feeds, [w for w in wanted if w], opset=14)


@pytest.mark.parametrize(("op", "attrs", "parts"), CASES, ids=lambda v: str(v).replace(" ", ""))
def test_options(op: str, attrs: dict[str, Any], parts: str) -> None:
    feeds = operands(op, attrs, parts)
    check(build(op, attrs, feeds, ("y", "yh", "yc")[: 3 if op == "LSTM" else 2]), feeds)


@pytest.mark.parametrize("wanted", [("y",), ("", "yh"), ("", "", "yc"), ("y", "", "yc")])
def test_outputs_that_are_not_wanted(wanted: tuple[str, ...]) -> None:
    feeds = operands("LSTM", {}, "b lens")
    check(build("LSTM", {}, feeds, wanted), feeds)


@pytest.mark.parametrize("op", GATES)
def test_batch_first(op: str) -> None:
    """layout 1 is layout 0 with the batch axis moved."""
    attrs = {"direction": "bidirectional"}
    feeds = operands(op, attrs, "b h0 lens")
    wanted = ("y", "yh")
    y, yh = run(build(op, attrs, feeds, wanted).SerializeToString(), feeds)
    feeds["x"], feeds["h0"] = feeds["x"].swapaxes(0, 1), feeds["h0"].swapaxes(0, 1)
    got = run(build(op, {**attrs, "layout": 1}, feeds, wanted).SerializeToString(), feeds)
    same(got, [y.transpose(2, 0, 1, 3), yh.swapaxes(0, 1)])


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("hidden", [2, 8, 12])
def test_units_in_blocks(op: str, hidden: int) -> None:
    """With an even number of units, several are computed at once."""
    rng = np.random.default_rng(2)
    rows = GATES[op] * hidden
    shapes = {"x": (3, 2, 5), "w": (1, rows, 5), "r": (1, rows, hidden), "b": (1, 2 * rows)}
    feeds = {k: rng.uniform(-1, 1, s).astype(np.float32) for k, s in shapes.items()}
    node = helper.make_node(op, list(feeds), ["y", "h"], hidden_size=hidden)
    check(model([node], feeds, ["y", "h"], opset=14), feeds)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("hidden", [1, 7, 16, 33])
@pytest.mark.parametrize("free", [False, True])
def test_rows_of_the_batch_in_pairs(op: str, hidden: int, free: bool) -> None:
    """Even and odd batches; with `free`, known only at run time."""
    rng = np.random.default_rng(3)
    rows = GATES[op] * hidden
    fixed = {"w": (2, rows, 5), "r": (2, rows, hidden), "b": (2, 2 * rows)}
    weights = [numpy_helper.from_array(rng.uniform(-1, 1, s).astype(np.float32), k) for k, s in fixed.items()]
    node = helper.make_node(op, ["x", *fixed], ["y", "h"], hidden_size=hidden, direction="bidirectional")
    for batch in (1, 2, 3, 4):
        feeds = {"x": rng.uniform(-1, 1, (3, batch, 5)).astype(np.float32)}
        made = model([node], feeds, ["y", "h"], opset=14, initializer=weights)
        made.graph.input[0].CopyFrom(value_info("x", feeds["x"], symbolic=free))
        same(by_session(made, feeds), by_onnxruntime(made, feeds))


ATTENDING = ["x", "w", "r", "b", "lens", "h0", "c0", "p", "qw", "mw", "v", "memory", "memory_lens", "aw"]
M, E, K, A = 6, 4, 3, 5  # steps of the memory, its depth, depths of the attention and of its layer


@pytest.mark.parametrize(
    ("attrs", "left_out"),
    [
        ({}, "b lens h0 c0 p memory_lens aw"),
        ({"direction": "reverse", "input_forget": 1}, ""),
        ({"direction": "bidirectional", "activations": ["HardSigmoid", "Relu", "Tanh"] * 2, "clip": 0.4}, "h0"),
        ({"direction": "bidirectional"}, "aw c0"),
    ],
    ids=str,
)  # fmt: skip
def test_lstm_with_attention(attrs: dict[str, Any], left_out: str) -> None:
    d, rng = (2 if attrs.get("direction") == "bidirectional" else 1), np.random.default_rng(8)
    feeds = operands("LSTM", attrs, "b lens h0 c0 p")
    state = E if "aw" in left_out else A
    shapes = {"w": (d, 4 * H, INPUTS + state), "qw": (d, H, K), "mw": (d, E, K), "v": (d, K), "memory": (B, M, E)}
    feeds |= {k: rng.uniform(-1, 1, s).astype(np.float32) for k, s in {**shapes, "aw": (d, H + E, A)}.items()}
    feeds["memory_lens"] = np.array([6, 1, 3], np.int32)
    feeds = {k: x for k, x in feeds.items() if k not in left_out.split()}
    names = [name if name in feeds else "" for name in ATTENDING]
    node = helper.make_node("AttnLSTM", names, ["y", "h", "c"], hidden_size=H, domain="com.microsoft", **attrs)
    check(model([node], feeds, ["y", "h", "c"], opset=14, domains={"com.microsoft": 1}), feeds)
