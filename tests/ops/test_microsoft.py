"""ONNX Runtime's own operators, and those of early ONNX that only it still runs, against ONNX Runtime."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import helper

from tests.ops import compare
from tests.ops.node import check_node, f32, floats, ints, node_model, rng, run_node

MICROSOFT = "com.microsoft"


class Case(NamedTuple):
    op: str
    args: list[Any]
    attrs: dict[str, Any] = {}
    outputs: int = 1
    constants: tuple[int, ...] = ()
    tolerance: float = 1e-5
    static: bool = False  # the meaning depends on dims, which must then be known


def bytes_(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def scales(*shape: int) -> np.ndarray:
    return (np.abs(floats(*shape)) * 0.1 + 0.01).astype(np.float32)


def texts(*words: str) -> np.ndarray:
    return np.array(words, object)


def check(case: Case, domain: str, opset: int) -> None:
    symbolic = (False,) if case.static else (False, True)
    check_node(
        case.op, case.args, opset, domain=domain, outputs=case.outputs, constants=case.constants,
        tolerance=case.tolerance, symbolic=symbolic, **case.attrs,
    )  # fmt: skip


IMAGE = floats(1, 3, 5, 6)

EARLY = [
    Case("Affine", [IMAGE], {"alpha": 2.0, "beta": 0.5}),
    Case("Scale", [IMAGE], {"scale": 3.0}),
    Case("ScaledTanh", [IMAGE], {"alpha": 0.5, "beta": 2.0}),
    Case("ParametricSoftplus", [f32([1000, -1000, 0, 1])], {"alpha": 0.5, "beta": 2.0}),
    Case("ImageScaler", [IMAGE], {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
    Case("Crop", [IMAGE], {"border": [1, 0, 2, 1]}),
    Case("Crop", [IMAGE], {"border": [1, 0, 0, 0], "scale": [2, 3]}),
    Case("DynamicSlice", [IMAGE, ints(1, 0), ints(-1, 100), ints(2, 3)], constants=(1, 2, 3)),
]

LAYER = [floats(4, 16, 8), floats(4, 16), floats(4, 8, 16), floats(4, 8)]
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 2.0, "activation_alpha": 1.7}
ROIS = f32([[0, 0, 1, 1], [0.2, 0.1, 0.7, 1.2], [-0.5, 0.3, 0.5, 0.4], [0.9, 0.9, 0.1, 0.1]])
BATCHES = np.array([0, 1, 1, 0], np.int32)
NGRAMS = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 2}
HASHED = [rng.integers(0, 8, (2, 7)), ints(3, -7, 2**61 + 5), ints(11, 13, 17, 19)]
HASHED_32 = [a.astype(np.int32) for a in (HASHED[0], ints(3, -7, 2**30 + 5), HASHED[2])]
HISTORY = [ints(5, 8, 7, 4).reshape(2, 2), ints(0, 11, 24, 41), np.array(5)]  # past, offsets, end
SEGMENTS = np.array([[0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 1]], np.int32)
PACKED = [rng.integers(0, 8, 9), *HASHED[1:], np.array([0, 1, 4, 9], np.int32)]
PAST, OLD = rng.integers(0, 8, (3, 2)), rng.integers(0, 3, (3, 2)).astype(np.int32)
PARTS = np.array([0, 0, 1, 1, 1, 1, 2, 2, 1], np.int32)
CAPTURED = np.array([0, 2, 9], np.int32)
SOURCE = ints(1, 5, 3, 4, 2, 5, 3)
LETTERS = np.maximum(rng.integers(-3, 6, (30, 6)), np.eye(1, 6, dtype=np.int64)).astype(
    np.int32
)  # does not begin with 0: undefined
WORD = [floats(4, 1, 3, 5), floats(4), floats(6, 5)]
UP = [floats(1, 3, 4, 5), floats(3, 2, 3, 3)]
IDS = ints(1, 2, 3, 1, 2, 5, 5, 5, 5, 5).reshape(2, 5)
GATES = [floats(2, 3, 4), floats(2, 3, 4, 1), floats(2, 3, 4, 5)]

CASES = [
    Case("GatherND", [floats(3, 4, 5), ints(0, 1, 2, 3).reshape(2, 2)], static=True),
    Case("Trilu", [floats(3, 4), np.array(1)], {"upper": 0}),
    Case("ExpandDims", [IMAGE, np.array(-1, np.int32)], constants=(1,)),
    Case("GridSample", [IMAGE, floats(1, 2, 3, 2)], {"align_corners": 1}),
    Case("Pad", [IMAGE, ints(0, 0, 1, 2, 0, 0, 0, 1).reshape(1, 8), f32([3.0])], constants=(1,)),
    Case("Range", [f32(1.0), f32(4.5)], static=True),
    Case("TransposeMatMul", [floats(3, 4), floats(5, 4)], {"transB": 1, "alpha": 0.5}),
    Case("Unique", [f32([2, 1, 1, 3, 4, 3])], outputs=3),
    Case("MatMulInteger16", [rng.integers(-300, 300, s).astype(np.int16) for s in ((3, 4), (4, 5))]),
    Case("GatedAdd", [floats(2, 3, 4), floats(2, 3, 4), floats(2, 3, 1)]),
    Case("ScaledSiLU", [floats(2, 3)], {"alpha": 2.0}),
    Case("ScaledSiLU", [floats(2, 3), f32(0.3)], {"alpha": 2.0}),
    Case("GatedRMSNorm", [floats(2, 3, 8), floats(4), floats(2, 3, 8)]),
    Case("GatedRMSNorm", [floats(2, 3, 8), floats(4), floats(2, 3, 8)], {"activation": "sigmoid"}),
    Case("BranchwiseRMSNorm", [floats(2, 3, 8)], {"num_branches": 2}),
    Case("BranchwiseRMSNorm", [floats(2, 3, 8), floats(8)], {"num_branches": 2}, static=True),
    Case("BranchwiseRMSNorm", [floats(2, 3, 8), floats(2, 4)], {"num_branches": 2}),
    Case("BranchwiseRMSNorm", [floats(2, 3, 2, 4), floats(4)], static=True),
    Case("LinearAttentionGate", [floats(2, 3, 4), floats(4), floats(4), floats(2, 3, 4)], outputs=2),
    *[Case("HyperConnectionPreMix", [floats(2, 3, 4, 5), m], {"reduction_scale": 0.5}, static=True) for m in GATES],
    Case("HyperConnectionPreMix", [floats(2, 3, 20), floats(2, 3, 20)], {"num_branches": 4}, static=True),
    *[
        Case("HyperConnectionPostMix", [floats(2, 3, 4, 5), floats(2, 3, 5), m, floats(2, 3, 4, 4)], static=True)
        for m in GATES
    ],
    Case("HyperConnectionPostMix", [floats(2, 3, 20), floats(2, 3, 5), floats(2, 3, 4)], {"num_branches": 4}),
    Case(
        "EngramGate",
        [floats(2, 3, 4, 8), floats(2, 3, 4, 8), floats(2, 3, 8), floats(4, 8), floats(4, 8), floats(4, 8)],
        outputs=2,
    ),
    Case("CDist", [floats(3, 4), floats(5, 4)]),
    Case("CDist", [floats(3, 4), floats(5, 4)], {"metric": "euclidean"}),
    Case("Inverse", [floats(2, 4, 4)], tolerance=1e-4),
    Case("Inverse", [f32([[0, 1], [1, 0]])]),
    *[
        Case("MoE", [floats(2, 3, 8), floats(6, 4), *LAYER], {"k": 2, "activation_type": name}, tolerance=1e-4)
        for name in ("relu", "gelu", "silu", "identity")
    ],
    Case(
        "MoE", [floats(6, 8), floats(6, 4), *LAYER],
        {"activation_type": "silu", "k": 3, "normalize_routing_weights": 1},
        tolerance=1e-4,
    ),
    Case(
        "MoE", [floats(6, 8), floats(6, 4), floats(4, 32, 8), floats(4, 32), *LAYER[2:]],
        {**SWIGLU, "activation_beta": 1.0, "k": 2}, tolerance=1e-4,
    ),
    *[
        Case("CropAndResize", [floats(2, 3, 7, 6), ROIS, BATCHES, np.array(size, np.int32)],
             {"mode": mode, "extrapolation_value": 5.0}, constants=(3,))
        for size in ([4, 3], [1, 3]) for mode in ("bilinear", "nearest")
    ],
    Case("UnfoldTensor", [floats(2, 7, 3)], {"dim": 1, "size": 3, "step": 2}),
    *[
        Case("MurmurHash3", [(floats(2, 5) * 1000).astype(dtype)], {"positive": positive, "seed": 7})
        for dtype in ("int32", "uint32", "int64", "uint64", "float32", "float64") for positive in (0, 1)
    ],
    Case("MurmurHash3", [texts("", "a", "ab", "abc", "abcd", "hello wörld")]),
    Case("MurmurHash3", [texts("", "a", "ab", "abc", "abcd", "hello wörld")], {"positive": 0, "seed": -1}),
    *[Case("NGramRepeatBlock", [IDS, floats(2, 8)], {"ngram_size": n}) for n in (1, 2, 3, 6)],
    *[Case("DynamicTimeWarping", [floats(*shape)]) for shape in ((4, 6), (1, 7, 3), (1, 5), (5, 1), (1, 1))],
    Case("DynamicTimeWarping", [np.zeros((4, 5), np.float32)]),
    Case("DynamicTimeWarping", [np.array([[-2, 0], [2, 0]], np.float32)]),  # two steps are as cheap
    *[
        Case("MatMulBnb4", [a, bytes_(24 * 16), scales(24 * 2)],
             {"K": 32, "N": 24, "block_size": 16, "quant_type": kind}, constants=(1, 2), tolerance=1e-4)
        for a, kind in ((floats(2, 3, 32), 0), (floats(32), 1), (floats(2, 3, 32), 1))
    ],
    Case(
        "QEmbedLayerNormalization",
        [
            np.array([[1, 2, 3], [0, 4, 5]], np.int32), np.array([[0, 1, 1], [0, 0, 1]], np.int32), bytes_(6, 8),
            bytes_(3, 8), bytes_(2, 8), bytes_(8), bytes_(8), np.array([[1, 1, 0], [1, 1, 1]], np.int32),
            *[f32(0.02)] * 5, *[np.array(128, np.uint8)] * 5,
        ],
        outputs=2, constants=tuple(range(8, 18)), tolerance=1e-3,
    ),
    Case("NGramHashMapping", HASHED, NGRAMS, outputs=2),
    Case("NGramHashMapping", HASHED_32, {**NGRAMS, "reset_on_eos": 1}, outputs=2),
    Case("NGramHashMapping", [*HASHED, HISTORY[0], None, None, SEGMENTS], NGRAMS, outputs=2),
    *[
        Case("NGramHashMapping", [*HASHED, past, *HISTORY[1:], SEGMENTS], {**NGRAMS, "reset_on_eos": reset}, outputs=2)
        for past in (None, HISTORY[0]) for reset in (0, 1)
    ],
    Case("VarlenNGramHashMapping", PACKED, NGRAMS, outputs=2),
    Case("VarlenNGramHashMapping", [PACKED[0].astype(np.int32), *HASHED_32[1:], PACKED[3]], NGRAMS, outputs=2),
    Case("VarlenNGramHashMapping", [*PACKED, None, None, None, PARTS], NGRAMS, outputs=3),
    Case("VarlenNGramHashMapping", [*PACKED, PAST, *HISTORY[1:], PARTS, OLD], {**NGRAMS, "reset_on_eos": 1}, outputs=3),
    Case("VarlenNGramHashMapping", [*PACKED, None, *HISTORY[1:], PARTS, None, CAPTURED],
         {**NGRAMS, "state_update_capacity": 3}, outputs=4),
    *[
        Case("BifurcationDetector", [SOURCE, ints(1, 2), ints(start), ints(*predicted)], attrs, outputs=2)
        for start, predicted in ((2, (3, 4, 9, 8, 7, 6)), (2, (3, 4, 2, 5, 3, 6)), (7, (3,)), (4, (2, 5, 5, 3)))
        for attrs in ({}, {"min_ngram_size": 2, "max_ngram_size": 4})
    ],
    Case("BifurcationDetector", [SOURCE, ints(1, 2), ints(0)], outputs=2),
    *[
        Case("MaxpoolWithMask", [floats(*shape), rng.integers(0, 4, mask).astype(np.int32).clip(0, 1)],
             {"kernel_shape": kernel, **attrs})
        for shape, mask, kernel in (
            ((1, 2, 9), (1, 1, 9), [3]), ((2, 3, 5, 7), (1, 1, 5, 7), [3, 3]), ((2, 3, 5, 7), (2, 5, 5, 7), [2, 3]),
            ((1, 2, 3, 4, 5), (1, 2, 3, 4, 5), [2, 2, 3]), ((0, 2, 4), (0, 2, 4), [2]),
        )
        for attrs in ({}, {"strides": [2] * len(kernel), "pads": [1, 0] * len(kernel)})
    ],
    Case("WordConvEmbedding", [LETTERS, *WORD], static=True),
    Case("WordConvEmbedding", [LETTERS, *WORD],
         {"char_embedding_size": 5, "conv_window_size": 3, "embedding_size": 4}, static=True),
    Case("ConvTransposeWithDynamicPads", [*UP, ints(1, 0, 0, 1), floats(2)], {"strides": [2, 1]}, constants=(2,)),
    Case("ConvTransposeWithDynamicPads", [*UP, ints(1, 0, 0, 1)], {"output_padding": [1, 0], "strides": [2, 1]}),
    Case("SampleOp", [floats(2, 3)]),
    *[
        Case("MRotaryEmbedding", [x, rng.integers(0, 10, (3, 2, 5)), floats(10, 8), floats(10, 8)],
             {"mrope_section": section, "mrope_layout": layout, "interleaved": interleaved,
              "num_heads": 2, "scale": 1.0 + interleaved, "is_packed_batching": interleaved}, static=True)
        for x in (floats(2, 5, 32), floats(2, 2, 5, 16))
        for layout, section in ((0, [2, 3, 3]), (1, [4, 2, 2])) for interleaved in (0, 1)
    ],
]  # fmt: skip

TOKENISERS = [
    {"separators": [" "]}, {"separators": [""]}, {"separators": [" ", ",|!"]}, {"separators": ["o|or"]},
    {"tokenexp": "."}, {"tokenexp": "[a-z]+"}, {"tokenexp": "a|ab|abc"},
]  # fmt: skip
WORDS = [texts("Hello World", "I love, computer science !", "abcd öä"), texts("a", ""), texts("", "")]
CASES += [
    Case("Tokenizer", [x], {"mark": mark, "mincharnum": least, "pad_value": "#", **how})
    for how in TOKENISERS for x in WORDS for mark in (0, 1) for least in (1, 2)
    if least == 1 or how not in (TOKENISERS[1], TOKENISERS[4])
]  # fmt: skip


@pytest.mark.parametrize("case", EARLY, ids=lambda c: c.op)
def test_of_early_opsets(case: Case) -> None:
    check(case, "", 9)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.op)
def test_of_microsoft(case: Case) -> None:
    check(case, MICROSOFT, 17)


# ── where ONNX Runtime computes with fewer bits, or not at all ────────────────────────────────────────────────────


@pytest.mark.parametrize("zeros", [False, True], ids=["", "zeros"])
@pytest.mark.parametrize(("bits", "block"), [(2, 0), (4, 0), (8, 0), (2, 16), (4, 16), (4, 32), (8, 16)])
def test_quantised_experts(bits: int, block: int, zeros: bool) -> None:
    """Against ONNX Runtime's MoE on the weights that the codes stand for. With blocks, a row of w2 has two."""
    each, middle = 8 // bits, 1 << (bits - 1)
    size, inner = (block, 2 * block) if block else (16, 32)

    def packed(codes: np.ndarray) -> np.ndarray:
        codes = np.pad(codes, [*[(0, 0)] * (codes.ndim - 1), (0, -codes.shape[-1] % each)])
        return sum(codes[..., n::each] << (n * bits) for n in range(each)).astype(np.uint8)

    def coded(outs: int, ins: int) -> tuple[Any, ...]:
        codes = rng.integers(0, 1 << bits, (4, outs, ins))
        scale = scales(4, outs, ins // block) if block else scales(4, outs)
        zero = rng.integers(0, 1 << bits, scale.shape) if zeros else np.full(scale.shape, middle)
        wide, low = (np.repeat(v, block, axis=2) if block else v[..., None] for v in (scale, zero))
        return packed(codes), scale, packed(zero) if zeros else None, ((codes - low) * wide).astype(np.float32)

    (w1, s1, z1, f1), (w2, s2, z2, f2) = coded(inner, size), coded(size, inner)
    x, router = floats(3, size), floats(3, 4)
    attrs = {"k": 2, "activation_type": "silu"}
    more = [None] * 4 + [z1, z2] if zeros else []
    got = run_node("QMoE", [x, router, w1, s1, None, w2, s2, *more], 17, domain=MICROSOFT, expert_weight_bits=bits,
                   **(attrs | ({"block_size": block} if block else {})))  # fmt: skip
    m, feeds = node_model("MoE", [x, router, f1, None, f2], 17, domain=MICROSOFT, normalize_routing_weights=1, **attrs)
    np.testing.assert_allclose(got[0], compare.by_onnxruntime(m, feeds)[0], rtol=1e-4, atol=1e-3)


def test_experts_with_a_gate() -> None:
    """fc2(silu(fc1(x)) · fc3(x)), which ONNX Runtime has on GPUs only: against numpy."""
    x, router, (w1, _, w2, _), w3 = floats(6, 8), floats(6, 4), LAYER, floats(4, 16, 8)
    got = run_node("MoE", [x, router, w1, None, w2, None, w3], 17, domain=MICROSOFT, activation_type="silu")
    share = np.exp(router) / np.exp(router).sum(1, keepdims=True)
    for row, e in enumerate(router.argmax(1)):
        inner = w1[e] @ x[row]
        want = share[row, e] * (w2[e] @ (inner / (1 + np.exp(-inner)) * (w3[e] @ x[row])))
        np.testing.assert_allclose(got[0][row], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("direction", "batch", "kind"),
    [("forward", 1, np.uint8), ("bidirectional", 1, np.int8), ("reverse", 2, np.int8)],
)
def test_dynamically_quantised_lstm(direction: str, batch: int, kind: Any) -> None:
    """With the same rounding of x and h to 8 bits. ONNX Runtime gets one row at a time, because its threads share
    ranges of h. Codes are near the zero point, because others saturate on some processors; all rows of x have one
    range."""
    d, zero = 2 if direction == "bidirectional" else 1, 128 if kind is np.uint8 else 0
    w, r = (rng.integers(zero - 63, zero + 64, (d, n, 80)).astype(kind) for n in (3, 20))
    x, bias, ws, rs = floats(9, batch, 3), floats(d, 160), scales(d), scales(d)
    x[0], x[1] = -4, 4
    zeros = np.full(d, zero, kind)

    def made(x: Any) -> Any:
        args = [x, w, r, bias, None, None, None, None, ws, zeros, rs, zeros]
        return node_model("DynamicQuantizeLSTM", args, 17, domain=MICROSOFT, outputs=3,
                          constants=(1, 2, 8, 9, 10, 11), hidden_size=20, direction=direction)  # fmt: skip

    def by_rows(*_: Any) -> list[Any]:
        found = [compare.by_onnxruntime(*made(x[:, n : n + 1])) for n in range(batch)]
        return [np.concatenate(parts, -2) for parts in zip(*found, strict=True)]

    compare.check(*made(x), by_rows)


def test_bitsandbytes_not_transposed() -> None:
    """a · w; ONNX Runtime computes it in the transposed form."""
    codes, steps, a = bytes_(24 * 16), scales(24 * 2), floats(3, 24)
    attrs = {"K": 32, "N": 24, "block_size": 16, "quant_type": 1, "domain": MICROSOFT, "constants": (1, 2)}
    transposed = compare.by_onnxruntime(
        *node_model("MatMulBnb4", [np.eye(32, dtype=np.float32), codes, steps], 17, **attrs)
    )[0]
    got = run_node("MatMulBnb4", [a, codes, steps], 17, transB=0, **attrs)[0]
    np.testing.assert_allclose(got, a @ transposed.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.uint64])
def test_a_sparse_matrix_is_fed_as_a_dense_one(kind: Any) -> None:
    import onnxruntime as ort

    a, b = (rng.integers(0, 4, shape).astype(kind) for shape in ((4, 3), (5, 4)))
    attrs = {"transA": 1, "transB": 1, **({"alpha": 0.5} if kind is np.float32 else {})}
    code = helper.np_dtype_to_tensor_dtype(a.dtype)
    graph = helper.make_graph(
        [helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain=MICROSOFT, **attrs)], "g",
        [helper.make_sparse_tensor_value_info("a", code, ["K", "M"]), compare.value_info("b", b, True)],
        [helper.make_tensor_value_info("y", code, None)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    places, place = np.ascontiguousarray(np.argwhere(a)), ort.OrtDevice.make("cpu", 0)
    sparse = ort.SparseTensor.sparse_coo_from_numpy(np.array(a.shape, np.int64), a[a != 0], places, place)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {"a": ort.OrtValue.ort_value_from_sparse_tensor(sparse), "b": b})
    compare.same(compare.by_session(made, {"a": a, "b": b}), want)


@pytest.mark.parametrize(("kind", "size", "before"), [(0, 32, 4), (1, 32, 5), (2, 64, 4)])
def test_weights_in_a_blob(kind: int, size: int, before: int) -> None:
    """Against numpy: ONNX Runtime has this product on some processors only, and its type 2 on none."""
    k, n, blocks = 100, 3, -(-100 // size)
    blob, a = bytes_(n, blocks, before + size // 2), floats(2, 2, k)
    blob[..., :4] = scales(n, blocks, 1).view(np.uint8)
    codes = blob[..., before:].reshape(n, -1, 16)
    wide = np.concatenate([codes & 15, codes >> 4], 2).reshape(n, blocks, size).astype(np.float32)
    zero = blob[..., 4:5].astype(np.float32) if kind == 1 else 8
    w = ((wide - zero) * blob[..., :4].copy().view(np.float32)).reshape(n, -1)[:, :k]
    m, feeds = node_model("MatMulFpQ4", [a, blob.ravel(), ints(k, n)], 17, domain=MICROSOFT, blk_quant_type=kind)
    compare.check(m, feeds, lambda *_: [a @ w.T], 1e-4)


def test_an_ngram_of_a_token_outside_is_refused() -> None:
    m, feeds = node_model("NGramRepeatBlock", [IDS, floats(2, 4)], 17, domain=MICROSOFT, ngram_size=1)
    with pytest.raises(Exception, match="index 5 is out of range"):
        compare.by_session(m, feeds)


# ── what ONNX Runtime has on GPUs only: against numpy ─────────────────────────────────────────────────────────────


def test_bias_softmax() -> None:
    x, inner, outer = floats(2, 3, 4), floats(2, 1, 4), floats(3, 4)

    def softmax(v: np.ndarray) -> np.ndarray:
        e = np.exp(v - v.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    for bias, attrs, want in (
        (inner, {"axis": 2, "is_inner_broadcast": 1}, softmax(x + inner)),
        (outer, {"axis": 2, "is_inner_broadcast": 0}, softmax(x + outer)),
    ):
        got = run_node("BiasSoftmax", [x, bias], 17, domain=MICROSOFT, **attrs)[0]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_bias_dropout() -> None:
    x, bias, residual = floats(2, 3), floats(3), floats(2, 3)
    y, mask = run_node("BiasDropout", [x, bias, residual], 17, domain=MICROSOFT, outputs=2)
    np.testing.assert_allclose(y, x + bias + residual, rtol=1e-6)
    assert mask.all() and mask.shape == x.shape


@pytest.mark.parametrize("op", ["ComplexMul", "ComplexMulConj"])
def test_complex_products(op: str) -> None:
    a, b = floats(2, 3, 2), floats(3, 2)
    left, right = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    want = left * (right if op == "ComplexMul" else right.conj())
    got = run_node(op, [a, b], 17, domain=MICROSOFT)[0]
    np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both: int) -> None:
    """Buckets as T5's paper has them."""
    table, far = floats(8, 2), 16
    got = run_node("RelativePositionBias", [table, ints(5), ints(30)], 17, domain=MICROSOFT, constants=(1, 2),
                   max_distance=far, is_bidirectional=both)[0]  # fmt: skip
    count = 4 if both else 8

    def bucket(distance: int) -> int:  # of key - query
        offset = count if both and distance > 0 else 0
        n = abs(distance) if both else max(-distance, 0)
        if n < count // 2:
            return offset + n
        steps = np.log(n / (count // 2)) / np.log(far / (count // 2)) * (count - count // 2)
        return offset + min(count // 2 + int(steps + 1e-6), count - 1)

    want = np.array([[[table[bucket(k - q), h] for k in range(30)] for q in range(5)] for h in range(2)])
    np.testing.assert_array_equal(got[0], want)


def test_mean_of_codes() -> None:
    x, zero = bytes_(2, 3, 4), np.array(100, np.uint8)
    got = run_node(
        "QLinearReduceMean", [x, f32(0.1), zero, f32(0.05), zero], 17, domain=MICROSOFT, axes=[1], keepdims=0
    )
    want = ((x.astype(np.float32) - 100) * 0.1).mean(1) / 0.05 + 100
    assert np.abs(got[0].astype(int) - np.clip(np.round(want), 0, 255)).max() <= 1


def test_gemma_rotary_embedding() -> None:
    emb = floats(2, 5, 8)
    q, q_rot, k, k_rot = (floats(2, 3, 5, 8).astype(np.float16) for _ in range(4))
    got = run_node("GemmaRotaryEmbedding", [emb, q, q_rot, k, k_rot], 17, domain=MICROSOFT, outputs=2)
    cos, sin = np.cos(emb)[:, None], np.sin(emb)[:, None]
    np.testing.assert_allclose(got[0], q * cos + q_rot * sin, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(got[1], k * cos + k_rot * sin, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_gates_of_what_is_no_number(where: int) -> None:
    """NaN may have a sign, which is not 0."""
    args = [floats(1, 2, 4, 8), floats(1, 2, 4, 8), floats(1, 2, 8), floats(4, 8), floats(4, 8)]
    args[where][0, 1, ..., 3] = np.nan
    check(Case("EngramGate", args), MICROSOFT, 17)


def test_states_that_none_are_kept_of() -> None:
    check(Case("VarlenNGramHashMapping", [*PACKED, None, None, None, PARTS], NGRAMS, outputs=4), MICROSOFT, 17)


@pytest.mark.parametrize("normalize", [0, 1, 2])
def test_shares_of_experts_add_up_if_asked_by_1(normalize: int) -> None:
    attrs = {"k": 2, "activation_type": "silu", "normalize_routing_weights": normalize}
    check(Case("MoE", [floats(6, 8), floats(6, 4), *LAYER], attrs, tolerance=1e-4), MICROSOFT, 17)


@pytest.mark.parametrize("positive", [-2, 1, 2])
def test_hashes_have_a_sign_unless_positive_is_1(positive: int) -> None:
    check(Case("MurmurHash3", [ints(1, 2, -3)], {"positive": positive}), MICROSOFT, 17)
