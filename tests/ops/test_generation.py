"""GreedySearch, Sampling and BeamSearch over a small decoder, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pyruntime import InferenceSession
from pyruntime.errors import ExecutionError, ShapeError, UnsupportedOp
from tests.ops.compare import same
from tests.ops.dynamic import by_onnxruntime

V, PAD = 12, 11
DECODER = """<ir_version: 10, opset_import: ["" : 18]> dec (
    int32[B, S] input_ids, int32[B, S] position_ids, int32[B, T] attention_mask, float[2, B, 2, P, 3] past_0
) => (float[B, S, 12] logits, float[2, B, 2, T, 3] present_0) {
    e = Gather (words, input_ids)  p = Gather (places, position_ids)  h = Add (e, p)
    parts = Constant <value = int64[4] {0, 0, 2, 3}> ()  r = Reshape (h, parts)  q = Transpose <perm = [0, 2, 1, 3]> (r)
    zero = Constant <value = int64[1] {0}> ()  u = Unsqueeze (q, zero)  kv = Concat <axis = 0> (u, u)
    present_0 = Concat <axis = 3> (past_0, kv)
    first = Constant <value = int64 {0}> ()  k = Gather <axis = 0> (present_0, first)
    m = Cast <to = 1> (attention_mask)  ends = Constant <value = int64[2] {1, 3}> ()  wide = Unsqueeze (m, ends)
    seen = Mul (k, wide)  two = Constant <value = int64[1] {2}> ()  total = ReduceSum (seen, two)
    mixed = Mul (q, total)  back = Transpose <perm = [0, 2, 1, 3]> (mixed)
    joined = Constant <value = int64[3] {0, 0, 6}> ()  f = Reshape (back, joined)
    scores = MatMul (f, w)  logits = Add (scores, bias)
}"""
INPUTS = {
    "GreedySearch": "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask",
    "Sampling": "input_ids max_length min_length repetition_penalty vocab_mask prefix_vocab_mask attention_mask"
    " presence_mask seed",
    "BeamSearch": "input_ids max_length min_length num_beams num_return_sequences length_penalty repetition_penalty"
    " vocab_mask prefix_vocab_mask attention_mask decoder_input_ids logits_processor",
}
IDS = np.array([[PAD, PAD, 3, 4], [5, 6, 7, 8]], np.int32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def decoder() -> onnx.GraphProto:
    """Never gives PAD."""
    rng = np.random.default_rng(3)
    weights = {"words": rng.normal(size=(V, 6)), "places": rng.normal(size=(20, 6)), "w": rng.normal(size=(6, V))}
    weights["bias"] = np.where(np.arange(V) == PAD, -1000, 0)
    graph = onnx.parser.parse_model(DECODER).graph
    graph.initializer.extend(onnx.numpy_helper.from_array(x.astype(np.float32), name) for name, x in weights.items())
    return graph


def model(op: str, feeds: dict[str, np.ndarray], named: bool, **attrs: Any) -> bytes:
    """With the feeds' dims, or names for them."""
    names = [n if n in feeds else "" for n in INPUTS[op].split()]
    outputs = ["sequences"] if op != "BeamSearch" else ["sequences", "scores"]
    attrs = {"decoder": decoder(), "pad_token_id": PAD, "eos_token_id": 9, "model_type": 0, **attrs}
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attrs)
    dims = {
        n: [f"{n}_{axis}" if named and x.ndim > 1 else d for axis, d in enumerate(x.shape)] for n, x in feeds.items()
    }
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), dims[n]) for n, x in feeds.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=n) for n in outputs])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def check(op: str, feeds: dict[str, np.ndarray], **attrs: Any) -> None:
    want = by_onnxruntime(onnx.load_from_string(model(op, feeds, False, **attrs)), feeds)
    if op != "BeamSearch":
        want = [ended(want[0])]
    for named in (False, True):
        same(InferenceSession(model(op, feeds, named, **attrs), providers=["wasm"]).run(None, feeds), want, 1e-4)


def ended(sequences: np.ndarray) -> np.ndarray:
    """Writes padding after all sequences have ended, where ONNX Runtime leaves memory uninitialised."""
    over = (sequences == PAD)[:, IDS.shape[1] :].all(0)
    if over.any():
        sequences[:, IDS.shape[1] + int(over.argmax()) :] = PAD
    return sequences


TWO = {"num_beams": i32(2), "num_return_sequences": i32(1)}
RULES: list[tuple[dict[str, np.ndarray], dict[str, int]]] = [
    ({}, {}),
    ({}, {"eos_token_id": 2, "no_repeat_ngram_size": 2}),
    ({"min_length": i32(9)}, {"no_repeat_ngram_size": 3}),
    ({"repetition_penalty": f32(1.7)}, {"eos_token_id": 2}),
    ({"vocab_mask": i32(*[1] * 6, *[0] * 6)}, {}),
    ({"prefix_vocab_mask": i32(*[0, 1] * V).reshape(2, V)}, {"eos_token_id": 2}),
    ({"attention_mask": i32(0, 1, 1, 1, 1, 1, 1, 1).reshape(2, 4)}, {}),
]


@pytest.mark.parametrize(("feeds", "attrs"), RULES, ids=lambda x: " ".join(x) or "plain")
def test_greedy_search(feeds: dict[str, np.ndarray], attrs: dict[str, int]) -> None:
    check("GreedySearch", {"input_ids": IDS, "max_length": i32(12), **feeds}, **attrs)


DRAWS: list[tuple[int | None, dict[str, Any]]] = [
    (None, {"top_p": 0.9}),
    (0, {"top_p": 0.8, "temperature": 2.0}),
    (7, {"top_p": 0.6, "filter_value": -5.0, "min_tokens_to_keep": 3}),
    (2**31 - 1, {"top_p": 0.5, "custom": 1, "temperature": 0.5}),
    (5, {"top_p": 0.99, "temperature": 5.0, "eos_token_id": 2}),
    (6, {"top_p": 0.7, "temperature": 9.0, "custom": 1}),
    (8, {"top_p": 0.95, "temperature": 3.0, "presence_penalty": 0.0}),
]


@pytest.mark.parametrize(
    ("rule", "seed", "attrs"), [(rule, *draw) for rule, draw in zip(RULES, DRAWS, strict=True)],
    ids=lambda x: str(x)[:40],
)  # fmt: skip
def test_sampling(rule: tuple[Any, Any], seed: int | None, attrs: dict[str, Any]) -> None:
    """Exactly the tokens that ONNX Runtime draws on Linux."""
    feeds = {"input_ids": IDS, "max_length": i32(16), "min_length": i32(1), "repetition_penalty": f32(1.0), **rule[0]}
    check("Sampling", feeds | ({} if seed is None else {"seed": i32(seed)}), **{**rule[1], **attrs})


@pytest.mark.parametrize("penalty", [1.5, -2.0, -1000.0])
@pytest.mark.parametrize("more", [{}, {"repetition_penalty": f32(1.7)}, {"vocab_mask": i32(0, *[1] * 11)}])
def test_tokens_that_are_present_lose_a_penalty(more: dict[str, np.ndarray], penalty: float) -> None:
    """Only for the first token of the first item: ONNX Runtime's CPU subtracts all penalties from its score."""
    mask = np.zeros((2, V), np.int32)
    mask[0, 0] = 1
    given = {
        "input_ids": IDS, "max_length": i32(16), "min_length": i32(1), "repetition_penalty": f32(1.0),
        "presence_mask": mask, "seed": i32(3), **more,
    }  # fmt: skip
    check("Sampling", given, top_p=0.9, temperature=1.3, presence_penalty=penalty)


def test_of_each_item_others_are_present() -> None:
    """Tokens with a large penalty are never drawn, like those of a vocab_mask."""
    mask = np.arange(2 * V, dtype=np.int32).reshape(2, V) % 5 % 2
    feeds = {"input_ids": IDS, "max_length": i32(20), "presence_mask": mask}
    data = model("Sampling", feeds, False, top_p=0.99, temperature=9.0, presence_penalty=1e9)
    (found,) = InferenceSession(data, providers=["wasm"]).run(None, feeds)
    for row, gone in zip(found[:, IDS.shape[1] :], mask, strict=True):
        assert len(set(row)) > 2 and not gone[row[row != PAD]].any()


# beams, returned sequences, whether to stop early, length penalty
BEAMS = [(3, 2, 0, 1.0), (1, 1, 0, 1.0), (4, 4, 1, 0.5), (3, 1, 0, 2.0), (2, 2, 1, 1.0), (3, 3, 0, 0.5), (4, 1, 1, 1.0)]


@pytest.mark.parametrize(
    ("feeds", "attrs", "beams"), [(*rule, beams) for rule, beams in zip(RULES, BEAMS, strict=True)],
    ids=lambda x: " ".join(map(str, x)) or "plain",
)  # fmt: skip
def test_beam_search(feeds: dict[str, np.ndarray], attrs: dict[str, int], beams: tuple[int, int, int, float]) -> None:
    width, kept, early, penalty = beams
    given = {
        "input_ids": IDS, "max_length": i32(10), "min_length": i32(1), "num_beams": i32(width),
        "num_return_sequences": i32(kept), "length_penalty": f32(penalty), "repetition_penalty": f32(1.0), **feeds,
    }  # fmt: skip
    check("BeamSearch", given, early_stopping=early, **attrs)


def test_the_first_call_may_have_a_decoder_of_its_own() -> None:
    feeds = {"input_ids": IDS, "max_length": i32(8)}
    plain, apart = (model("GreedySearch", feeds, False, **more) for more in ({}, {"init_decoder": decoder()}))
    a, b = (InferenceSession(m, providers=["wasm"]).run(None, feeds)[0] for m in (plain, apart))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("op", "attrs", "more", "error", "message"),
    [
        ("GreedySearch", {"model_type": 1}, {}, UnsupportedOp, "model_type 1 is not implemented"),
        ("GreedySearch", {}, {"max_length": i32(4)}, ShapeError, "must be more than the prompt's 4 tokens"),
        ("Sampling", {"temperature": 0.0}, {}, ShapeError, "temperature 0"),
        ("Sampling", {}, {"seed": i32(-1)}, ExecutionError, "out of range"),
        ("GreedySearch", {}, {"prefix_vocab_mask": np.ones((3, V), np.int32)}, ShapeError, "one row per item"),
        ("BeamSearch", {}, {**TWO, "prefix_vocab_mask": np.ones((1, V), np.int32)}, ShapeError, "one row per item"),
        ("GreedySearch", {}, {"input_ids": IDS[0]}, ShapeError, "rank"),
        ("BeamSearch", {}, {**TWO, "attention_mask": IDS[0]}, ShapeError, "rank"),
        ("Sampling", {"presence_penalty": 1.0}, {"presence_mask": IDS[:1]}, ShapeError, "presence_mask must have"),
        ("Sampling", {"presence_penalty": 1.0}, {"presence_mask": IDS}, ShapeError, "presence_mask and the vocab"),
    ],
)  # fmt: skip
def test_refused(
    op: str, attrs: dict[str, Any], more: dict[str, np.ndarray], error: type[Exception], message: str
) -> None:
    feeds = {"input_ids": IDS, "max_length": i32(8), **more}
    with pytest.raises(error, match=message):
        InferenceSession(model(op, feeds, False, **attrs), providers=["wasm"]).run(None, feeds)
