"""Contradicting shapes of inputs are refused, because a kernel would read outside of a tensor: at compile time if dims
are known, else when they are bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime import InferenceSession
from pyruntime.errors import InvalidModel, ShapeError, UnsupportedOp
from tests.ops.node import floats, ints, node_model

QKV = [floats(3, 2, 4, 8), floats(3, 2, 6, 8), floats(3, 2, 6, 8)]
MS = "com.microsoft"
BY_HEADS = [floats(2, 2, 16), floats(2, 5, 16), floats(2, 5, 16)]
ROTATED = [floats(2, 3, 4, 8), floats(50, 4), floats(50, 4), ints(*range(8)).reshape(2, 4)]
CACHED = [*(floats(2, 1, 8 * n) for n in (4, 2, 2)), floats(2, 2, 4, 8), floats(2, 2, 4, 8)]
HEADS = {"domain": MS, "num_heads": 2}
SHARED = {"domain": MS, "num_heads": 4, "kv_num_heads": 2}
LINEAR = [floats(2, 4, 32), floats(2, 4, 32), floats(2, 4, 32)]
GATED = {"kv_num_heads": 4, "q_num_heads": 4}
SMALLER = {"keep_aspect_ratio_policy": "not_smaller"}
HALVES = [x.astype(np.float16) for x in CACHED[3:]]
LENGTHS = ints(4, 4, dtype=np.int32)
TOTAL = ints(5, dtype=np.int32)
ADDED = [*CACHED, LENGTHS, TOTAL, None, None, None]
MIXED = [*CACHED[:3], *HALVES, LENGTHS, TOTAL]
DEFORMED = [floats(1, 1, 4, 4), floats(1, 1, 2, 2), floats(1, 8, 3, 3)]
CODES = ints(*range(16), dtype=np.uint8).reshape(1, 1, 4, 4)
FILTERS, ZERO = np.stack([CODES[0, :, :2, :2]] * 2), np.array(3, np.uint8)
BATCHES, SIDES = np.int32([0, 0]), np.int32([3, 3])
HASHES = [ints(3, 5), ints(7)]
NGRAMS = {"domain": MS, "max_ngram_size": 2, "n_head_per_ngram": 1, "pad_id": 0}
LSTM = [floats(1, 2, 3), floats(1, 8, 3), floats(1, 8, 2), floats(1, 16), ints(1, 1, dtype=np.int32)]
TARGET = ints(*[1] * 36).reshape(3, 3, 4)

GATE = [floats(2, 3, 4, 8), floats(2, 3, 4, 8), floats(2, 3, 8), floats(4, 8), floats(4, 8)]
EXPERTS = [floats(6, 8), floats(6, 4), floats(4, 16, 8), None, floats(4, 8, 16)]
BEFORE = [floats(2, 1, 8), floats(2, 1, 8), floats(2, 1, 8), None, None, floats(2, 2, 6, 4)]
TURNED = [floats(1, 2, 5, 32), ints(*[0] * 15).reshape(3, 1, 5), floats(10, 8), floats(10, 8)]
CONVOLVED = [
    CODES,
    np.float32(0.1),
    ZERO,
    FILTERS,
    np.float32(0.1),
    ZERO,
    np.float32(0.1),
    ZERO,
    ints(1, 2, dtype=np.int32),
]
ROWS = [CODES[0, 0], np.float32(0.1), ZERO, CODES[0, 0]]
MICROSOFT: list[tuple[str, list[Any], str, dict[str, Any]]] = [
    ("GatedAdd", [floats(2, 3, 1), floats(2, 3, 4), floats(2, 3, 1)], "y must have", {}),
    ("GatedAdd", [floats(2, 3, 4), floats(2, 3, 4), floats(2, 3, 4)], "gate must have", {}),
    ("GatedRMSNorm", [floats(2, 1, 8), floats(4), floats(2, 3, 8)], "gate must have", {}),
    ("BranchwiseRMSNorm", [floats(2, 3, 2, 4), floats(3, 4)], "scale must have", {}),
    ("LinearAttentionGate", [floats(2, 3, 4), floats(1), floats(4)], "dt_bias must have", {}),
    ("LinearAttentionGate", [floats(2, 3, 4), floats(4), floats(4), floats(1, 3, 4)], "b must have", {}),
    ("HyperConnectionPreMix", [floats(2, 3, 1, 5), floats(2, 3, 4, 1)], "factors of branches must have", {}),
    ("HyperConnectionPreMix", [floats(2, 3, 4, 1), floats(2, 3, 4, 5)], "1 or .* factors", {}),
    ("HyperConnectionPostMix", [floats(2, 3, 4, 5), floats(1, 3, 5), floats(2, 3, 4)], "block_output must have", {}),
    ("HyperConnectionPostMix", [floats(2, 3, 4, 5), floats(2, 3, 5), floats(2, 3, 4, 1), floats(1, 3, 4, 4)],
     "stream_mix must have", {}),
    ("EngramGate", [*GATE[:3], floats(4, 1), GATE[4]], "key_norm_scale must have", {}),
    ("EngramGate", [GATE[0], floats(1, 3, 4, 8), *GATE[2:]], "query must have", {}),
    ("MoE", [*EXPERTS, floats(2, 8)], "a bias must have", {"k": 2}),
    ("MoE", [EXPERTS[0], floats(6, 5), *EXPERTS[2:]], "numbers of experts", {}),
    ("DecoderMaskedMultiHeadAttention", [*BEFORE, floats(2, 2, 5, 4)], "past_value must have", {"num_heads": 2}),
    ("MRotaryEmbedding", [floats(2, 2, 5, 16), *TURNED[1:]], "position_ids must have", {"mrope_section": [2, 3, 3]}),
    ("MRotaryEmbedding", TURNED, "twice the width", {"mrope_section": [2, 3, 3], "num_heads": 2}),
    ("FusedConv", [floats(2, 4, 7, 6), floats(3, 4, 3, 3), None, floats(1, 3, 5, 4)], "z must have", {}),
    ("CropAndResize", [floats(2, 3, 7, 6), floats(1, 4), BATCHES, SIDES], "batch_indices must have", {}),
    ("CropAndResize", [floats(2, 3, 7, 6), floats(1, 4), BATCHES[:1], np.int32([3, 3, 3])], "crop_size must have", {}),
    ("QLinearConv", [*CONVOLVED[:3], FILTERS[:1], *CONVOLVED[4:]], "B must have", {}),
    ("QLinearConv", [*CONVOLVED[:8], ints(1, dtype=np.int32)], "B must have", {}),
    ("QLinearConv", [*CONVOLVED[:4], np.float32([0.1] * 3), *CONVOLVED[5:]], "cannot reshape", {}),
    ("QGemm", [*ROWS[:3], CODES[0, 0, :, :1], ROWS[1], ZERO, ints(1, 2, 3, 4, dtype=np.int32)], "4", {}),
    ("QGemm", [*ROWS, np.float32([0.1] * 4), ZERO], "zero point must have|zero point has rank", {}),
]  # fmt: skip


@pytest.mark.parametrize("free", [False, True], ids=["dims", "named dims"])
@pytest.mark.parametrize(
    ("op", "args", "opset", "text", "rest"),
    [
        ("Attention", [*QKV, None, None, None, ints(5, 5)], 24, "nonpad_kv_seqlen", {}),
        ("AffineGrid", [floats(1, 2, 3), ints(2, 1, 4, 5)], 20, "theta", {}),
        ("AffineGrid", [floats(2, 2, 3), ints(2, 1, 4, 5, 6)], 20, "theta", {}),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 1, 4), TARGET], 13, "axis 1", {}),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 3), TARGET], 13, "rank", {}),
        ("NegativeLogLikelihoodLoss", [floats(3, 5, 3, 4), TARGET, floats(4)], 13, "one element per class", {}),
        ("SoftmaxCrossEntropyLoss", [floats(3, 5, 1, 4), TARGET], 13, "axis 1", {}),
        ("MultiHeadAttention", [*BY_HEADS, floats(24)], 1, "24", HEADS),
        ("MultiHeadAttention", [*BY_HEADS, floats(24), None, floats(1, 2, 2, 5)], 1, "24", HEADS),
        ("Attention", [floats(2, 3, 8), floats(8, 24), floats(1)], 1, "the bias must have the shape", HEADS),
        ("Attention", [floats(2, 3, 8), floats(8, 25), floats(25)], 1, "do not add up", HEADS),
        (
            "Attention",
            [floats(2, 3, 8), floats(8, 24), floats(24)],
            1,
            "do not add up",
            {**HEADS, "qkv_hidden_sizes": [8, 8, 4]},
        ),
        ("DecoderMaskedMultiHeadAttention", [floats(2, 1, 25)], 1, "query, key and value", HEADS),
        ("ConvTranspose", [floats(1, 3, 3, 3), floats(3, 1, 3, 3)], 22, "channels into groups", {"group": 2}),
        ("MultiHeadAttention", [*BY_HEADS, None, None, floats(1, 2, 2, 1)], 1, "column for each key", HEADS),
        ("MultiHeadAttention", [*BY_HEADS, None, None, floats(1, 2, 1, 5)], 1, "row for each query", HEADS),
        ("MultiHeadAttention", [floats(2, 3, 8), floats(2, 2, 5, 4), floats(2, 5, 8)], 1, "value 3", HEADS),
        ("RotaryEmbedding", [floats(2, 2, 3, 3), ints(0), floats(9, 1), floats(9, 1)], 1, "twice", {"domain": MS}),
        ("LinearAttention", [*LINEAR, None, floats(2, 4, 5), floats(2, 4, 1)], 27, "decay or beta has", GATED),
        ("LinearAttention", [*LINEAR, None, floats(2, 4, 4), floats(2, 4, 3)], 27, "decay or beta has", GATED),
        ("LinearAttention", [*LINEAR, floats(2, 4, 8, 7), floats(2, 4, 4), floats(2, 4, 1)], 27, "past_state", GATED),
        (
            "LinearAttention",
            [floats(2, 4, 30), *LINEAR[1:], None, floats(2, 4, 4), floats(2, 4, 1)],
            27,
            "axis 2",
            GATED,
        ),
        ("GroupQueryAttention", [*CACHED[:4], floats(2, 2, 3, 8), LENGTHS, TOTAL], 1, "differ in length", SHARED),
        ("ConvInteger", [CODES, FILTERS, ZERO, ints(1, 2, dtype=np.uint8)[None]], 10, "zero point", {}),
        ("MatMulInteger", [CODES[0, 0], CODES[0, 0], np.stack([CODES[0, 0]] * 3)], 10, "shape", {}),
        ("NGramHashMapping", [ints(1, 2)[None], *HASHES, None, None, None, np.int32([[1]])], 1, "segment_ids", NGRAMS),
        ("NGramHashMapping", [ints(1, 2), *HASHES], 1, "rank", NGRAMS),
        ("NGramHashMapping", [ints(1, 2)[None], *HASHES], 1, "at most 32", {**NGRAMS, "max_ngram_size": 2**31}),
        ("WordConvEmbedding", [ints(1, 2)[None], floats(4, 1, 2, 5), floats(8), floats(6, 5)], 1, "b", {"domain": MS}),
        ("InstanceNormalization", [floats(2, 1, 4), floats(5), floats(5)], 6, "one number per channel", {}),
        ("BatchNormalization", [floats(5), *[floats(5)] * 4], 15, "one number per channel", {}),
        ("BatchNormalization", [floats(2, 3, 4), floats(4), *[floats(3)] * 3], 15, "one number per channel", {}),
        ("Resize", [floats(1, 1, 0, 4), None, None, ints(2, 3)], 18, "aspect", {"axes": [2, 3], **SMALLER}),
        ("GroupQueryAttention", MIXED, 1, "float32 and float16", SHARED),
        ("LinearAttention", [*LINEAR, floats(2, 1, 4, 8, 8), floats(2, 4, 4), floats(2, 4, 1)], 27, "rank 5", GATED),
        ("LinearAttention", [x[0] for x in LINEAR], 1, "rank 2", {**GATED, "domain": MS, "update_rule": "linear"}),
        ("CausalConvWithState", [floats(1, 2, 5), floats(2, 1, 4), None, floats(1, 2, 4)], 27, "less than the", {}),
        ("CausalConvWithState", [floats(1, 2, 5), floats(2, 1, 0)], 27, "filter is empty", {}),
        ("RotaryEmbedding", [*ROTATED[:2], floats(50, 3), ROTATED[3]], 23, "sin_cache", {}),
        ("RotaryEmbedding", [ROTATED[0], floats(50, 3), floats(50, 3), ROTATED[3]], 23, "rotated pair", {}),
        ("RotaryEmbedding", [*ROTATED[:3], ROTATED[3][:1]], 23, "position_ids", {}),
        ("RotaryEmbedding", ROTATED, 23, "rotated pair", {"rotary_embedding_dim": 10}),
        ("RotaryEmbedding", [ROTATED[0], floats(2, 3, 4), floats(2, 3, 4)], 23, "cos_cache", {}),
        ("GroupQueryAttention", [*CACHED, LENGTHS[:1], TOTAL], 1, "reshape", SHARED),
        ("Expand", [floats(3, 2), ints(2, 1, 6)], 13, "do not broadcast", {}),
        ("RoiAlign", [floats(1, 1, 8, 8), floats(4, 4), ints(0)], 16, "differ in number", {}),
        ("RoiAlign", [floats(1, 1, 8, 8), floats(1, 2), ints(0)], 16, "four coordinates", {}),
        ("MaxRoiPool", [floats(1, 1, 8, 8), floats(1, 4)], 1, "four coordinates", {"pooled_shape": [2, 2]}),
        ("DeformConv", [*DEFORMED[:2], floats(1, 8, 2, 3)], 19, "offset", {}),
        ("DeformConv", [*DEFORMED[:2], floats(2, 8, 3, 3)], 19, "offset", {}),
        ("DeformConv", [*DEFORMED, None, floats(1, 4, 3, 2)], 19, "mask", {}),
        ("DeformConv", [floats(1, 2, 4, 4), *DEFORMED[1:]], 19, "channels", {}),
        ("Col2Im", [floats(1, 6, 5), ints(5, 5), ints(1, 5)], 18, "do not divide", {}),
        ("ConvInteger", [CODES, CODES, None, CODES[0, 0, 0]], 10, "zero point", {}),
        ("Conv", [floats(1, 1, 4, 4), floats(1, 1, 0, 2)], 11, "kernel_shape has 0", {}),
        ("DFT", [floats(1, 4, 0)], 17, "not 1", {}),
        ("GRU", [floats(1, 2, 3), floats(1, 6, 3), floats(1, 6, 2), floats(1, 11)], 14, "B must", {"hidden_size": 2}),
        ("LSTM", [*LSTM, None, floats(1, 3, 2)], 14, "initial state", {"hidden_size": 2}),
        ("LSTM", [*LSTM[:4], ints(1, 1, 1, dtype=np.int32)], 14, "sequence_lens", {"hidden_size": 2}),
        ("Attention", [*QKV, floats(4, 7)], 23, "7 columns|columns", {}),
        ("Attention", [*QKV, floats(4, 5)], 23, "column for each key", {}),
        ("Attention", [*QKV, floats(4, 1)], 23, "column for each key", {}),
        ("GroupQueryAttention", [*ADDED, floats(1, 1, 1, 4)], 1, "column for each key", SHARED),
        ("GroupQueryAttention", [*ADDED, floats(1, 1, 2, 5)], 1, "row for each query", SHARED),
        ("Attention", [*QKV[:2], floats(3, 1, 6, 8)], 23, "values", {}),
        ("GatherND", [floats(3, 2, 2), ints(0, 1).reshape(2, 1)], 12, "batch axis", {"batch_dims": 1}),
        ("GatherElements", [floats(3, 3), ints(0, 0, 0, 0).reshape(1, 4)], 13, "rows on axis 1", {}),
        ("GatherElements", [floats(3, 3), ints(0)], 13, "rank", {}),
        ("ScatterElements", [floats(3, 3), ints(0, 0).reshape(1, 2), floats(1, 3)], 18, "updates", {}),
        ("ScatterElements", [floats(3, 3), *[floats(1, 4).astype(t) for t in (np.int64, np.float32)]], 18, "rows", {}),
        ("ScatterND", [floats(4, 4), ints(0).reshape(1, 1), floats(1, 1, 4)], 18, "updates", {}),
        ("TensorScatter", [floats(2, 1, 4, 5), floats(2, 1, 1, 4), ints(0, 0)], 24, "update", {}),
        ("TensorScatter", [floats(2, 1, 4, 5, 1), floats(2, 1, 2, 5), ints(0, 0)], 24, "differ in rank", {"axis": -1}),
        ("TensorScatter", [floats(2, 1, 4, 5), floats(2, 1, 5, 5), ints(0, 0)], 24, "do not fit", {}),
        ("GridSample", [floats(2, 1, 4, 4), floats(1, 3, 3, 2)], 20, "batch", {}),
        ("ReverseSequence", [floats(4, 3), ints(1, 1)], 10, "sequence_lens", {}),
        ("QuantizeLinear", [floats(3, 4), floats(4, 2), None], 21, "blocked", {"axis": 1, "block_size": 2}),
        ("DequantizeLinear", [CODES[0], floats(2), CODES[0, 0, 0, :1]], 13, "zero point", {"axis": 1}),
        ("RotaryEmbedding", [*ROTATED[:3], ints(*range(5)).reshape(1, 5)], 23, "position_ids", {}),
        ("LayerNormalization", [floats(2, 3, 1), floats(3, 5)], 17, "the result must have", {"axis": 1}),
        ("BatchNormalization", [floats(2, 3, 4), *[floats(3)] * 3, floats(1)], 15, "var", {"training_mode": 1}),
        ("Gemm", [floats(3, 4), floats(4, 1), floats(5)], 13, "the result must have", {}),
        ("Resize", [floats(1, 0), None, None, ints(1, 3)], 19, "axis 1 is empty", {"mode": "nearest"}),
        ("Pad", [floats(4, 5), ints(1, 1, 1, 1), None, ints(0, 0)], 19, "repeat", {}),
        ("Flatten", [floats(3, 4)], 13, "axis -3", {"axis": -3}),
        ("BiasGelu", [floats(2, 3, 1), floats(8)], 1, "bias", {"domain": MS}),
        ("SkipLayerNormalization", [floats(2, 3, 8), floats(2, 1, 8), floats(8)], 1, "skip", {"domain": MS}),
        ("FusedGemm", [floats(3, 4), floats(4, 1), floats(5)], 1, "the result must have", {"domain": MS}),
        ("MultiHeadAttention", [*BY_HEADS[:2], floats(2, 4, 16)], 1, "values", HEADS),
        ("GroupQueryAttention", [floats(2, 2, 32), *CACHED[1:], LENGTHS, TOTAL], 1, "keys and queries", SHARED),
        ("GroupQueryAttention", [*CACHED[:2], floats(2, 2, 16), *CACHED[3:], LENGTHS, TOTAL], 1, "in number", SHARED),
        ("Col2Im", [floats(1, 4, 4), ints(), ints()], 18, "image_shape is empty", {}),
        ("Slice", [floats(4, 5), ints(0, 0), ints(2, 2), ints()], 13, "2 starts, 2 ends, 0 axes", {}),
        ("Slice", [floats(4, 5), ints(0, 0), ints(2, 2), ints(1, -1)], 13, "repeat", {}),
        *[(op, args, 17, text, {"domain": MS, **rest}) for op, args, text, rest in MICROSOFT],
    ],
)
def test_refused(op: str, args: list[Any], opset: int, text: str, rest: dict[str, Any], free: bool) -> None:
    constants = tuple(n for n, a in enumerate(args) if op in ("Slice", "Pad", "Resize") and a is not None and n)
    model, feeds = node_model(op, args, opset, constants=constants, **rest)
    if free:
        for value in model.graph.input:
            for n, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.dim_param = f"{value.name}_{n}"
    with pytest.raises((ShapeError, InvalidModel, UnsupportedOp), match=text):
        InferenceSession(model.SerializeToString()).run(None, feeds)
