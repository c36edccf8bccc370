"""Attention operators of ONNX Runtime against itself, and named dims for the official ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from pyruntime import InferenceSession, SessionOptions
from tests.ops.compare import same
from tests.ops.dynamic import Case, arrays, build, by_onnx, by_onnxruntime, check
from tests.ops.node import floats

GROW = ({"B": 2, "S": 3, "P": 0, "T": 3}, {"B": 1, "S": 1, "P": 4, "T": 5}, {"B": 2, "S": 2, "P": 3, "T": 5})
STEPS = ({"B": 2, "S": 3, "P": 0, "T": 3}, {"B": 2, "S": 1, "P": 4, "T": 5}, {"B": 1, "S": 2, "P": 3, "T": 5})
PLAIN = ({"B": 2, "S": 3, "K": 3}, {"B": 1, "S": 1, "K": 1}, {"B": 3, "S": 4, "K": 4})


def ones(shape: Any, sizes: Any, rng: Any) -> Any:
    """A padding mask that keeps at least the first key."""
    mask = rng.integers(0, 2, shape)
    mask[..., 0] = 1
    return mask


def lengths(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(1, sizes["K"] + 1, shape)


def last(shape: Any, sizes: Any, rng: Any) -> Any:
    return np.full(shape, sizes["T"] - 1)


def ragged(shape: Any, sizes: Any, rng: Any) -> Any:
    return np.array([sizes["T"] - 1, sizes["T"] - 3])


def total(shape: Any, sizes: Any, rng: Any) -> Any:
    return np.full(shape, sizes["T"])


def positions(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(0, 8, shape)


MHA = {"q": "B S 8", "k": "B K 8", "v": "B K 8"}
GQA = {
    "q": "B S 64", "k": "B S 32", "v": "B S 32", "past_k": "B 2 P 16", "past_v": "B 2 P 16",
    "seqlens": (last, np.int32, "B"), "total": (total, np.int32, "1"),
}  # fmt: skip
CACHES = {"cos": "9 2", "sin": "9 2"}
WIDE = {"cos": "9 8", "sin": "9 8"}
OUT = ("y", "present_k", "present_v")

SCALE = (lambda shape, sizes, rng: np.full(shape, 0.02), np.float32, "")
ZERO = (lambda shape, sizes, rng: np.full(shape, 120), np.uint8, "")
CASES = [
    Case("MultiHeadAttention", {"num_heads": 2}, MHA, PLAIN),
    Case("MultiHeadAttention", {"num_heads": 2, "unidirectional": 1, "scale": 0.3}, MHA, PLAIN),
    Case("MultiHeadAttention", {"num_heads": 2}, {**MHA, "b": "24"}, PLAIN, name="MHA bias"),
    Case("MultiHeadAttention", {"num_heads": 2}, {**MHA, "_b": "", "m": (ones, np.int32, "B K")}, PLAIN,
         name="MHA 2-D mask"),
    Case("MultiHeadAttention", {"num_heads": 2}, {**MHA, "_b": "", "m": (lengths, np.int32, "B")}, PLAIN,
         name="MHA lengths"),
    Case("MultiHeadAttention", {"num_heads": 2}, {**MHA, "_b": "", "_m": "", "a": "1 2 S K"}, PLAIN,
         name="MHA attention bias"),
    Case("MultiHeadAttention", {"num_heads": 2}, {"q": "B S 8", "k": "B 2 K 4", "v": "B 2 K 4"}, PLAIN,
         name="MHA cross"),
    Case("MultiHeadAttention", {"num_heads": 2},
         {"q": "B S 8", "k": "B S 8", "v": "B S 8", "_b": "", "_m": "", "_a": "", "pk": "B 2 P 4", "pv": "B 2 P 4"},
         GROW, outputs=OUT, name="MHA past"),
    Case("Attention", {"num_heads": 2}, {"x": "B S 6", "w": "6 24", "b": "24"}, PLAIN),
    Case("Attention", {"num_heads": 2, "unidirectional": 1},
         {"x": "B S 6", "w": "6 24", "b": "24", "_m": "", "p": "2 B 2 P 4"}, GROW, outputs=("y", "present")),
    Case("Attention", {"num_heads": 2}, {"x": "B K 6", "w": "6 24", "b": "24", "m": (ones, np.int32, "B K")}, PLAIN,
         name="Attention mask"),
    Case("Attention", {"num_heads": 2}, {"x": "B K 6", "w": "6 24", "b": "24", "m": (lengths, np.int32, "B")}, PLAIN,
         name="Attention lengths"),
    Case("Attention", {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}, {"x": "B S 6", "w": "6 20", "b": "20"}, PLAIN),
    Case("QAttention", {"num_heads": 2},
         {"x": (np.uint8, "B S 6"), "w": (np.uint8, "6 24"), "b": "24", "xs": SCALE, "ws": SCALE, "_m": "",
          "xz": ZERO, "wz": ZERO, "p": "2 B 2 P 4"}, GROW, outputs=("y", "present"), tolerance=1e-4),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2}, GQA, STEPS, outputs=OUT),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 2},
         {**GQA, **WIDE}, STEPS, outputs=OUT),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1},
         {**GQA, **WIDE}, STEPS, outputs=OUT),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2}, {**GQA, "seqlens": (last, np.int32, "B 1")}, STEPS,
         outputs=OUT, name="GQA lengths (N, 1)"),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "softcap": 0.7, "scale": 0.4}, GQA, STEPS,
         outputs=OUT),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": 1}, GQA, STEPS, outputs=OUT),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2},
         {**GQA, "_c": "", "_s": "", "_i": "", "a": "B 1 S T"}, STEPS, outputs=OUT, name="GQA bias"),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2},
         {**GQA, "_c": "", "_s": "", "_i": "", "_a": "", "sink": "4"}, STEPS, outputs=OUT, name="GQA sink"),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
         {"q": "B S 128", "_k": "", "_v": "", **{k: GQA[k] for k in ("past_k", "past_v", "seqlens", "total")},
          **WIDE}, STEPS, outputs=OUT, name="GQA packed"),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2},
         {**GQA, "past_k": "B 2 6 16", "past_v": "B 2 6 16"}, STEPS[1:2], outputs=OUT, name="GQA buffer",
         compared=[0]),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
         {**GQA, **WIDE, "seqlens": (ragged, np.int32, "B")}, STEPS[1:2], outputs=OUT, name="GQA ragged",
         compared=[0]),
    Case("RotaryEmbedding", {}, {"x": "B 2 S 4", "i": (positions, np.int64, "B S"), **CACHES}, PLAIN),
    Case("RotaryEmbedding", {"interleaved": 1}, {"x": "B S 8", "i": (positions, np.int64, "1"), **CACHES},
         ({"B": 2, "S": 2}, {"B": 1, "S": 1})),
    Case("RotaryEmbedding", {"num_heads": 2, "rotary_embedding_dim": 4},
         {"x": "B S 12", "i": (positions, np.int64, "B S"), **CACHES}, PLAIN),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_microsoft(case: Case) -> None:
    check(case, by_onnxruntime)


@pytest.mark.parametrize("inputs", [{"q": "B S 2 3 4"}, {"q": "B S 8", "k": "B K 2 2 4"}], ids=["qkv", "kv"])
def test_packed(inputs: dict[str, str]) -> None:
    """ONNX Runtime's CPU refuses packed operands: compared with the same operands apart."""
    plain = Case("MultiHeadAttention", {"num_heads": 2}, MHA, PLAIN)

    def peer(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        packed = [x.transpose(3, 0, 1, 2, 4) for x in feeds.values() if x.ndim == 5]
        parts = [p.reshape(*p.shape[:2], -1) for x in packed for p in x]
        apart = dict(zip("qkv", parts if len(parts) == 3 else [feeds["q"], *parts], strict=True))
        return by_onnxruntime(build(plain, arrays(plain, PLAIN[0])), apart)

    check(Case("MultiHeadAttention", {"num_heads": 2}, inputs, PLAIN), peer)


FOUR = {"q": "B 4 S 4", "k": "B 2 S 4", "v": "B 2 S 4"}
OFFICIAL = [
    Case("Attention", {"is_causal": 1}, {**FOUR, "_m": "", "pk": "B 2 P 4", "pv": "B 2 P 4"}, GROW, outputs=OUT),
    Case("Attention", {"is_causal": 1, "left_window_size": 1}, FOUR, PLAIN, opset=25),
    Case("Attention", {}, {**FOUR, "m": "S T", "pk": "B 2 P 4", "pv": "B 2 P 4"}, GROW, outputs=OUT, name="mask"),
    Case("Attention", {"q_num_heads": 4, "kv_num_heads": 2, "softcap": 0.5},
         {"q": "B S 16", "k": "B K 8", "v": "B K 8"}, PLAIN),
    Case("Attention", {}, {"q": (np.float16, "B 4 S D"), "k": (np.float16, "B 2 S D"), "v": (np.float16, "B 2 S 4")},
         [{"B": 2, "S": 3, "D": 4}, {"B": 1, "S": 2, "D": 6}], tolerance=2e-3, name="halves, any head size"),
    Case("Attention", {"softcap": -1.0}, FOUR, PLAIN, name="no softcap"),
    Case("LinearAttention", {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"},
         {"q": "B S 16", "k": "B S 8", "v": "B S 6"}, PLAIN, outputs=("y", "state"), opset=27),
    Case("LinearAttention", {"q_num_heads": 4, "kv_num_heads": 2},
         {"q": "B S 16", "k": "B S 8", "v": "B S 6", "_p": "", "d": "B S W", "b": "B S O"},
         [{"B": 2, "S": 3, "W": 2, "O": 1}, {"B": 1, "S": 2, "W": 8, "O": 2}], outputs=("y", "state"), opset=27,
         name="gates, of any size"),
    Case("RotaryEmbedding", {}, {"x": "B 2 S 4", **CACHES, "i": (positions, np.int64, "B S")}, PLAIN),
    Case("CausalConvWithState", {"activation": "silu"}, {"x": "B 3 S", "w": "3 1 4", "b": "3", "p": "B 3 3"}, PLAIN,
         outputs=("y", "state"), opset=27),
]  # fmt: skip


@pytest.mark.parametrize("case", OFFICIAL, ids=str)
def test_official_with_named_dims(case: Case) -> None:
    from dataclasses import replace

    check(replace(case, domain="", opset=max(case.opset, 24)), by_onnx)


@pytest.mark.parametrize("declared", [True, False], ids=["dims", "no dims"])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("weights", [(), ("q",), ("k", "v")], ids=str)
@pytest.mark.parametrize("level", ["all", "basic", "disabled"])
def test_types_without_ranks(declared: bool, past: int, rank: int, weights: tuple[str, ...], level: str) -> None:
    """What a session finds out from its first feeds is their rank: other values have other results, of one Program."""
    values = {name: floats(1, 2, n, 4) for name, n in (("q", 3), ("k", 5), ("v", 5))}
    if rank == 3:
        values = {name: x.reshape(1, x.shape[2], 8) for name, x in values.items()}
    values |= {name: floats(1, 2, past, 4) for name in ("pk", "pv") if past}
    names = ["q", "k", "v", *(["", "pk", "pv"] if past else [])]
    heads = {"q_num_heads": 2, "kv_num_heads": 2} if rank == 3 else {}
    node = helper.make_node("Attention", names, ["y", *(["a", "b"] if past else [])], **heads)
    inputs = [
        helper.make_tensor_value_info(n, 1, list(x.shape) if declared else None)
        for n, x in values.items() if n not in weights
    ]  # fmt: skip
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=n) for n in node.output],
                              [numpy_helper.from_array(values[n], n) for n in weights])  # fmt: skip
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = InferenceSession(m.SerializeToString(), SessionOptions(graph_optimization_level=level))
    for scale in (1, 2):
        feeds = {n: x * scale for n, x in values.items() if n not in weights}
        same(session.run(None, feeds), by_onnx(m, feeds), 1e-5)
    assert len(session._programs) == 1
