"""BeamSearch over a small encoder and decoder like T5's and like Whisper's, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pyruntime import InferenceSession
from pyruntime.errors import ShapeError, UnsupportedOp
from tests.ops.compare import same
from tests.ops.dynamic import by_onnxruntime
from tests.ops.test_generation import f32, i32

V, PAD = 12, 0
SHARED = """
    d = Gather (words, IDS)  parts = Constant <value = int64[4] {0, 0, 2, 3}> ()
    r = Reshape (d, parts)  q = Transpose <perm = [0, 2, 1, 3]> (r)  v = Tanh (q)
    JOIN
    two = Constant <value = int64[1] {2}> ()
    ks = ReduceSum (present_key_self_0, two)  vs = ReduceSum (present_value_self_0, two)
    kv = Mul (CROSS_key_cross_0, CROSS_value_cross_0)
    m = Cast <to = 1> (encoder_attention_mask)  ends = Constant <value = int64[2] {1, 3}> ()
    wide = Unsqueeze (m, ends)  seen = Mul (kv, wide)  cs = ReduceSum (seen, two)
    a = Mul (q, ks)  b = Add (a, vs)  c = Add (b, cs)  back = Transpose <perm = [0, 2, 1, 3]> (c)
    joined = Constant <value = int64[3] {0, 0, 6}> ()  f = Reshape (back, joined)  g = Tanh (f)
    scores = MatMul (g, w)  logits = Add (scores, bias)
}"""
ENCODER = """<ir_version: 10, opset_import: ["" : 18]> enc (
    int32[B, S] encoder_input_ids, int32[B, S] encoder_attention_mask, int32[B, 1] decoder_input_ids
) => (float[B, 1, 12] logits, float[B, S, 6] encoder_hidden_states, float[B, 2, 1, 3] present_key_self_0,
      float[B, 2, 1, 3] present_value_self_0, float[B, 2, S, 3] present_key_cross_0,
      float[B, 2, S, 3] present_value_cross_0) {
    encoder_hidden_states = Gather (words, encoder_input_ids)
    hidden = Constant <value = int64[4] {0, 0, 2, 3}> ()  h = Reshape (encoder_hidden_states, hidden)
    present_key_cross_0 = Transpose <perm = [0, 2, 1, 3]> (h)  present_value_cross_0 = Sin (present_key_cross_0)
""" + SHARED.replace("IDS", "decoder_input_ids").replace("CROSS", "present").replace(
    "JOIN", "present_key_self_0 = Identity (q)  present_value_self_0 = Identity (v)"
)
DECODER = """<ir_version: 10, opset_import: ["" : 18]> dec (
    int32[B, 1] input_ids, int32[B, S] encoder_attention_mask, float[B, S, 6] encoder_hidden_states,
    float[B, 2, P, 3] past_key_self_0, float[B, 2, P, 3] past_value_self_0, float[B, 2, S, 3] past_key_cross_0,
    float[B, 2, S, 3] past_value_cross_0
) => (float[B, 1, 12] logits, float[B, 2, T, 3] present_key_self_0, float[B, 2, T, 3] present_value_self_0) {
""" + SHARED.replace("IDS", "input_ids").replace("CROSS", "past").replace(
    "JOIN",
    "present_key_self_0 = Concat <axis = 2> (past_key_self_0, q)"
    "  present_value_self_0 = Concat <axis = 2> (past_value_self_0, v)",
)
SEEN = SHARED[SHARED.index("    m = Cast") : SHARED.index("cs = Reduce")]


def unmasked(text: str) -> str:
    """Whisper has no mask."""
    text = text.replace(SEEN, "    ").replace("ReduceSum (seen", "ReduceSum (kv")
    return text.replace(" int32[B, S] encoder_attention_mask,", "")


LISTENER = unmasked(ENCODER).replace("int32[B, S] encoder_input_ids", "float[B, 6, S] encoder_input_ids")
LISTENER = LISTENER.replace("Gather (words, encoder_input_ids)", "Transpose <perm = [0, 2, 1]> (encoder_input_ids)")
LISTENER = (
    LISTENER.replace("int32[B, 1]", "int32[B, D]").replace("B, 2, 1, 3", "B, 2, D, 3").replace("B, 1, 12", "B, D, 12")
)
WHOLE = ("int32[B, 1] input_ids", "int32[B, Q] input_ids")
WITHOUT_HIDDEN = DECODER.replace(" float[B, S, 6] encoder_hidden_states,", "")
INPUTS = (
    "input_ids max_length min_length num_beams num_return_sequences length_penalty repetition_penalty vocab_mask"
    " prefix_vocab_mask attention_mask decoder_input_ids logits_processor cross_qk_layer_head extra_decoding_ids"
    " temperature"
).split()
IDS = np.array([[PAD, 3, 4, 5], [5, 6, PAD, 8]], np.int32)


def graph(text: str) -> onnx.GraphProto:
    """Never gives PAD."""
    rng = np.random.default_rng(3)
    weights = {"words": rng.normal(size=(V, 6)), "w": rng.normal(size=(6, V))}
    weights["bias"] = np.where(np.arange(V) == PAD, -1000, 0)
    made = onnx.parser.parse_model(text).graph
    made.initializer.extend(onnx.numpy_helper.from_array(x.astype(np.float32), name) for name, x in weights.items())
    return made


def model(
    feeds: dict[str, np.ndarray], named: bool, encoder: str = ENCODER, decoder: str = DECODER, op: str = "BeamSearch",
    outputs: tuple[str, ...] = ("sequences", "scores"), **attrs: Any,
) -> bytes:  # fmt: skip
    """With the feeds' dims, or names for them."""
    names = [n if n in feeds else "" for n in INPUTS][: 12 if op == "BeamSearch" else 15]
    attrs = {"model_type": 1, "eos_token_id": 9, "pad_token_id": PAD, "decoder_start_token_id": PAD, **attrs}
    node = helper.make_node(
        op, names, outputs, domain="com.microsoft", encoder=graph(encoder), decoder=graph(decoder), **attrs
    )
    inputs = [
        helper.make_tensor_value_info(
            n, onnx.TensorProto.FLOAT if x.dtype == np.float32 else onnx.TensorProto.INT32,
            [f"{n}_{axis}" if named and x.ndim > 1 else d for axis, d in enumerate(x.shape)],
        )
        for n, x in feeds.items()
    ]  # fmt: skip
    made = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=n) for n in outputs])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()


def given(width: int = 3, kept: int = 2, penalty: float = 1.0, **more: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "input_ids": IDS, "max_length": i32(8), "min_length": i32(1), "num_beams": i32(width),
        "num_return_sequences": i32(kept), "length_penalty": f32(penalty), "repetition_penalty": f32(1.0), **more,
    }  # fmt: skip


MASK = i32(0, 1, 1, 1, 1, 1, 1, 0).reshape(2, 4)
CASES: list[tuple[dict[str, np.ndarray], dict[str, Any]]] = [
    (given(), {}),
    (given(4, 4, 0.5, attention_mask=MASK), {"eos_token_id": 2}),
    (given(1, 1), {"no_repeat_ngram_size": 2, "decoder": WITHOUT_HIDDEN}),
    (given(3, 1, 2.0, repetition_penalty=f32(1.7), min_length=i32(4)), {"eos_token_id": 10, "early_stopping": 1}),
    (given(3, 2), {"decoder": DECODER.replace(*WHOLE), "outputs": ("sequences", "scores", "each")}),
    (given(2, 2, vocab_mask=i32(*[1] * 9, 1, 0, 1)), {"decoder_start_token_id": 4, "eos_token_id": 2}),
]


FEATURES = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
SAID = i32(3, 4, 2, 6, 7, 1).reshape(2, 3)
WHISPER = {
    "op": "WhisperBeamSearch", "model_type": 2, "encoder": LISTENER, "decoder": unmasked(WITHOUT_HIDDEN),
    "eos_token_id": 5, "pad_token_id": 5, "decoder_start_token_id": 3,
}  # fmt: skip
STAMPS = {
    "beginning_timestamp_token_id": 8, "no_timestamps_token_id": 7, "start_of_lm_token_id": 6, "translate_token_id": 1,
    "transcribe_token_id": 2,
}  # fmt: skip


def spoken(width: int = 3, kept: int = 2, penalty: float = 1.0, **more: np.ndarray) -> dict[str, np.ndarray]:
    return given(width, kept, penalty, input_ids=FEATURES, max_length=i32(10), **more)


CASES += [
    (spoken(), {**WHISPER, "outputs": ("sequences", "scores", "each"), "decoder": unmasked(DECODER)}),
    (spoken(2, 1, decoder_input_ids=SAID, temperature=f32(3.0)), {**WHISPER, "eos_token_id": 10}),
    (spoken(4, 3, 0.5, logits_processor=i32(1)), {**WHISPER, **STAMPS}),
    (spoken(3, 1, logits_processor=i32(1), decoder_input_ids=SAID), {**WHISPER, **STAMPS, "pad_token_id": 0}),
    (spoken(3, 3), {**WHISPER, "op": "BeamSearch", "decoder": unmasked(WITHOUT_HIDDEN).replace(*WHOLE)}),
]


@pytest.mark.parametrize(("feeds", "attrs"), CASES, ids=range(len(CASES)))
def test_beam_search(feeds: dict[str, np.ndarray], attrs: dict[str, Any]) -> None:
    want = by_onnxruntime(onnx.load_from_string(model(feeds, False, **attrs)), feeds)
    for named in (False, True):
        same(InferenceSession(model(feeds, named, **attrs), providers=["wasm"]).run(None, feeds), want, 1e-4)


@pytest.mark.parametrize(
    ("attrs", "error", "message"),
    [
        ({"decoder_start_token_id": -1}, ShapeError, "-1 is not a token"),
        ({"encoder": ENCODER.replace("decoder_input_ids", "ids")}, UnsupportedOp, "this encoder is not implemented"),
        (
            {"decoder": DECODER.replace("past_key_self_0", "key_self")},
            UnsupportedOp,
            "a decoder with the inputs input_ids",
        ),
        (
            {"decoder": DECODER.replace("past_key_self_0", "past_key_self_1")},
            UnsupportedOp,
            "a decoder with the inputs",
        ),
        ({**WHISPER, "encoder": ENCODER}, UnsupportedOp, "this encoder"),
        ({**WHISPER, "decoder_output_cross_qk": 1}, UnsupportedOp, "queries and keys"),
    ],
)
def test_refused(attrs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        InferenceSession(model(given(), False, **attrs), providers=["wasm"]).run(None, given())
