"""Attention operators of ONNX Runtime, compared with it, and official ones with named dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from pyruntime import InferenceSession, SessionOptions
from tests.ops.compare import by_session, parsed, same
from tests.ops.dynamic import Case, arrays, build, by_onnx, by_onnxruntime, check
from tests.ops.node import check_node, floats, ints, node_model

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
PAST = {"pk": "B 2 P 4", "pv": "B 2 P 4"}
GQA = {
    "q": "B S 64", "k": "B S 32", "v": "B S 32", "past_k": "B 2 P 16", "past_v": "B 2 P 16",
    "seqlens": (last, np.int32, "B"), "total": (total, np.int32, "1"),
}  # fmt: skip


def steps(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.uniform(0.01, 0.1, shape)


def coded(bits: int, scale: str) -> dict[str, Any]:
    """Past keys and values as codes; two of 4 bits share a byte."""
    kind, dims = (np.int8, "B 2 P 16") if bits == 8 else (np.uint8, "B 2 P 8")
    return {"past_k": (kind, dims), "past_v": (kind, dims)}


def small_positions(shape: Any, sizes: Any, rng: Any) -> Any:
    """Several sequences, concatenated along one axis."""
    return rng.integers(0, 2, shape)


CACHES = {"cos": "9 2", "sin": "9 2"}
WIDE = {"cos": "9 8", "sin": "9 8"}
OUT = ("y", "present_k", "present_v")
ALL = (*OUT, "qk")


def past(shape: Any, sizes: Any, rng: Any) -> Any:
    return np.full(shape, sizes["T"] - 1)


def two(shape: Any, sizes: Any, rng: Any) -> Any:
    return np.full(shape, 2)


def beam(shape: Any, sizes: Any, rng: Any) -> Any:
    return rng.integers(0, 2, shape)


BUFFER = {"past_k": "B 2 6 4", "past_v": "B 2 6 4", "past": (past, np.int32, "1")}
AT = ({"B": 4, "N": 2, "T": 4}, {"B": 2, "N": 1, "T": 1}, {"B": 2, "N": 1, "T": 6})

SCALE = (lambda shape, sizes, rng: np.full(shape, 0.02), np.float32, "")
ZERO = (lambda shape, sizes, rng: np.full(shape, 120), np.uint8, "")
CASES = [
    Case("MultiHeadAttention", {"num_heads": 2}, MHA, PLAIN),
    Case("MultiHeadAttention", {"num_heads": 2, "unidirectional": 1, "scale": 0.3}, MHA, PLAIN),
    Case("MultiHeadAttention", {"num_heads": 2, "unidirectional": 1}, {**MHA, "_b": "", "_m": "", "_a": "", **PAST},
         ({"B": 2, "S": 1, "K": 5, "P": 0}, {"B": 1, "S": 3, "K": 5, "P": 2}, {"B": 1, "S": 4, "K": 2, "P": 1}),
         outputs=OUT, name="MHA causal, more keys than queries"),
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
         {"q": "B S 8", "k": "B S 8", "v": "B S 8", "_b": "", "_m": "", "_a": "", **PAST},
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
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "smooth_softmax": -1}, GQA, STEPS, outputs=OUT),
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
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "qk_output": 1},
         {**GQA, "past_k": "B 2 6 16", "past_v": "B 2 6 16"}, STEPS[1:2], outputs=ALL, name="GQA buffer, scores",
         compared=[0, 3]),
    Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
         {**GQA, **WIDE, "seqlens": (ragged, np.int32, "B")}, STEPS[1:2], outputs=OUT, name="GQA ragged",
         compared=[0]),
    *[
        Case("GroupQueryAttention",
             {"num_heads": 4, "kv_num_heads": 2, "k_quant_type": kind, "v_quant_type": kind,
              "kv_cache_bit_width": bits, **attrs},
             {**GQA, **coded(bits, scale), **WIDE, "_i": "", "_a": "", "_h": "", "ks": (steps, np.float32, scale),
              "vs": (steps, np.float32, scale)}, STEPS, outputs=OUT, name=f"GQA {bits} bits {kind} {scale} {attrs}")
        for bits in (8, 4)
        for kind, scale in (("PER_TENSOR", "1"), ("PER_CHANNEL", "1 2 1 16"), ("PER_CHANNEL", "32"))
        for attrs in ({}, {"do_rotary": 1, "local_window_size": 2})
    ],
    Case("MultiHeadAttention", {"num_heads": 2, "scale": 0.3},
         {**MHA, "_b": "", "m": (ones, np.int32, "B K"), "a": "1 2 S K"}, PLAIN, outputs=ALL, name="MHA scores"),
    Case("MultiHeadAttention", {"num_heads": 2, "unidirectional": 1}, dict.fromkeys("qkv", "B S 8"), PLAIN, outputs=ALL,
         name="MHA causal scores"),
    *[
        Case("GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2, "qk_output": mode, **attrs}, GQA, STEPS,
             outputs=ALL)
        for mode, attrs in ((1, {}), (1, {"softcap": 0.7, "local_window_size": 2}), (2, {}))
    ],
    Case("DecoderMaskedMultiHeadAttention", {"num_heads": 2, "past_present_share_buffer": 1, "output_qk": 1},
         {**dict.fromkeys("qkv", "B 1 8"), "m": (ones, np.int32, "B T"), "a": "1 2 1 T", **BUFFER}, AT, outputs=ALL,
         name="DMMHA scores"),
    Case("MultiHeadAttention", {"num_heads": 2},
         {**dict.fromkeys("qkv", "B 1 8"), "_b": "", "_m": "", "_a": "", **BUFFER}, AT, outputs=OUT, name="MHA buffer"),
    *[
        Case("DecoderMaskedMultiHeadAttention", {"num_heads": 2, "past_present_share_buffer": 1},
             {**dict.fromkeys("qkv", "B 1 8"), **more[0], **BUFFER, **more[1]}, AT, outputs=OUT, name=f"DMMHA {name}")
        for name, more in {
            "plain": ({"_m": "", "_a": ""}, {}),
            "mask": ({"m": (ones, np.int32, "B T"), "_a": ""}, {}),
            "bias": ({"_m": "", "a": "1 2 1 T"}, {"_w": "", "_i": "", "b": "24"}),
            "beams": ({"_m": "", "_a": ""}, {"w": (two, np.int32, "1"), "i": (beam, np.int32, "N 2 6")}),
        }.items()
    ],
    *[
        Case("DecoderMaskedMultiHeadAttention", {"num_heads": 2},
             {"q": "B 1 8", "k": "B 2 K 4", "v": "B 2 K 4", **more}, ({"B": 2, "K": 3}, {"B": 1, "K": 1}),
             name=f"DMMHA cross {' '.join(more)}")
        for more in ({}, {"m": (ones, np.int32, "B K")})
    ],
    Case("RotaryEmbedding", {}, {"x": "B 2 S 4", "i": (positions, np.int64, "B S"), **CACHES}, PLAIN),
    Case("RotaryEmbedding", {"is_packed_batching": 1},
         {"x": "B 2 S 4", "i": (small_positions, np.int64, "B S"), "cos": "2 2", "sin": "2 2"}, PLAIN),
    Case("RotaryEmbedding", {"interleaved": 1}, {"x": "B S 8", "i": (positions, np.int64, "1"), **CACHES},
         ({"B": 2, "S": 2}, {"B": 1, "S": 1})),
    Case("RotaryEmbedding", {"num_heads": 2, "rotary_embedding_dim": 4},
         {"x": "B S 12", "i": (positions, np.int64, "B S"), **CACHES}, PLAIN),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_microsoft(case: Case) -> None:
    check(case, by_onnxruntime)


WINDOW = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 4, "sliding_window_cache": 1}
# past keys, of which a cache of 6 places holds the latest, new keys, items
SLIDING = [{"B": b, "S": s, "T": p + s} for p, s, b in (
    (3, 1, 1), (9, 1, 2), (5, 3, 1), (0, 9, 1), (12, 2, 1),
)]  # fmt: skip


ONE = (steps, np.float32, "1")


@pytest.mark.parametrize("more", [{}, {"a": "B 1 S T"}, {"ks": ONE, "vs": ONE}], ids=["plain", "bias", "codes"])
def test_caches_of_a_window(more: dict[str, Any]) -> None:
    """The content of unused places is not specified; the others hold the latest keys."""
    past: Any = {"past_k": "B 2 6 16", "past_v": "B 2 6 16"}
    attrs: dict[str, Any] = {**WINDOW, "do_rotary": 1}
    absent = {} if "a" in more else {"_a": "", "_h": ""}
    if "ks" in more:
        past = {"past_k": (np.int8, "B 2 6 16"), "past_v": (np.int8, "B 2 6 16")}
        attrs |= {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
    wide = {"cos": "20 8", "sin": "20 8", "_i": ""}
    case = Case("GroupQueryAttention", attrs, {**GQA, **past, **wide, **absent, **more}, SLIDING, outputs=OUT)

    def known(m: Any, feeds: Any) -> list[Any]:
        y, *presents = by_onnxruntime(m, feeds)
        total = int(feeds["total"][0])
        held = total if total <= 6 else total - 3 * -(-(total - 6) // 3)
        for present in presents:
            present[:, :, held:] = 0
        return [y, *presents]

    check(case, known)
    m, feeds = build(case, arrays(case, SLIDING[1])), arrays(case, SLIDING[1])
    same(InferenceSession(m.SerializeToString(), providers=["wasm"]).run(None, feeds), known(m, feeds), 1e-4)


COMPILED = ("GQA 4 bits PER_CHANNEL", "GQA 8 bits PER_TENSOR", "DMMHA beams", "MHA buffer")


@pytest.mark.parametrize("case", [c for c in CASES if c.name.startswith(COMPILED)], ids=str)
def test_compiled(case: Case) -> None:
    """In WebAssembly, with named dims."""
    m = build(case, arrays(case, case.sizes[0]))
    session = InferenceSession(m.SerializeToString(), providers=["wasm"])
    for sizes in case.sizes:
        feeds = {k: v for k, v in arrays(case, sizes).items() if k not in case.weights}
        same(session.run(None, feeds), by_onnxruntime(m, feeds), 1e-4)


@pytest.mark.parametrize("attrs", [{}, {"smooth_softmax": 1}, {"local_window_size": 2}], ids=str)
def test_prompts_that_are_shorter_than_others(attrs: dict[str, int]) -> None:
    """Results of valid queries; later ones are padding, for which ONNX Runtime masks keys."""
    counts = np.array([4, 2, 1], np.int32)
    args = [floats(3, 4, 16), floats(3, 4, 8), floats(3, 4, 8), None, None, counts - 1, np.array(4, np.int32)]
    m, feeds = node_model("GroupQueryAttention", args, 21, 3, "com.microsoft", num_heads=2, kv_num_heads=1, **attrs)
    got, want = InferenceSession(m.SerializeToString()).run(None, feeds), by_onnxruntime(m, feeds)
    for mine, its in zip(got, want, strict=True):
        for item, count in enumerate(counts):
            same(*([x[item].take(range(count), x.ndim - 3)] for x in (mine, its)), 1e-5)


def in_place(m: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run by ONNX Runtime, which requires present caches in the memory of past ones."""
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for name, x in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    for name in "kv":
        binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


LAYOUTS = {"rows": [[0, 1, 3, 5], [0, 1, 2, 5]], "columns": [[0, 0, 1, 1, 2, -1], [0, 1, 0, 1, 2, -1]]}


def given(name: str) -> Any:
    return (lambda shape, sizes, rng: np.array(LAYOUTS[name])), np.int32, "2 4" if name == "rows" else "2 6"


@pytest.mark.parametrize("more", [{}, {"cos": "48 8", "sin": "48 8"}], ids=["plain", "rotary"])
def test_sparse_attention(more: dict[str, Any]) -> None:
    """Blocks of 16 keys in two layouts; a query of the second block does not see the blocks that its row omits."""
    total = (lambda shape, sizes, rng: np.full(shape, sizes["T"])), np.int32
    inputs = {
        "q": "B S 64", "k": "B S 32", "v": "B S 32", "past_k": "B 2 48 16", "past_v": "B 2 48 16",
        "rows": given("rows"), "columns": given("columns"), "total": (*total, "1"), "each": (*total, "B"), **more,
    }  # fmt: skip
    attrs = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, "do_rotary": len(more) // 2}
    case = Case("SparseAttention", attrs, inputs, outputs=OUT)
    m = build(case, arrays(case, {"B": 1, "S": 3, "T": 3}))
    session = InferenceSession(m.SerializeToString(), providers=["wasm"])
    for sizes in ({"B": 1, "S": 35, "T": 35}, {"B": 2, "S": 1, "T": 21}, {"B": 2, "S": 1, "T": 48}):
        feeds = arrays(case, sizes)
        same(session.run(None, feeds), in_place(m, feeds), 1e-4)


SELF = {"x": "B S 6", "w": "6 24", "b": "24", "_m": ""}


def test_projected_attention_in_a_buffer() -> None:
    """ONNX Runtime's CPU refuses it: compared with the same past in a separate tensor."""
    sizes = ({"B": 2, "S": 1, "P": 3}, {"B": 1, "S": 2, "P": 0})
    attrs = {"num_heads": 2, "unidirectional": 1}
    length = (lambda shape, sizes, rng: np.full(shape, sizes["P"]), np.int32, "1")
    buffered = {**SELF, "p": "2 B 2 6 4", "_a": "", "n": length}
    plain = Case("Attention", attrs, {**SELF, "p": "2 B 2 P 4"}, sizes, outputs=("y", "present"))

    def peer(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        count, buffer = int(feeds["n"][0]), feeds["p"].copy()
        apart = {k: v for k, v in feeds.items() if k != "n"} | {"p": buffer[:, :, :, :count]}
        y, present = by_onnxruntime(build(plain, apart), apart)
        buffer[:, :, :, : present.shape[3]] = present
        return [y, buffer]

    check(Case("Attention", {**attrs, "past_present_share_buffer": 1}, buffered, sizes, outputs=("y", "present")), peer)


@pytest.mark.parametrize("size", [0, 2])
def test_rotary_inside_of_attention(size: int) -> None:
    """ONNX Runtime's CPU refuses it: compared with its projection, RotaryEmbedding and MultiHeadAttention."""
    case = Case("Attention", {"num_heads": 2, "unidirectional": 1, "do_rotary": 1, "rotary_embedding_dim": size},
                {**SELF, "p": "2 B 2 P 4"}, ({"B": 2, "S": 3, "P": 0}, {"B": 1, "S": 2, "P": 3}))  # fmt: skip
    turns = size or 4
    text = f"""agraph (float[B, S, 6] x, float[6, 24] w, float[24] b, float[B, 2, P, 4] pk, float[B, 2, P, 4] pv,
                      int64[B, S] i, float[9, {turns // 2}] cos, float[9, {turns // 2}] sin)
            => (float[B, S, 8] y, float[B, 2, T, 4] nk, float[B, 2, T, 4] nv) {{
        z = MatMul (x, w)   zb = Add (z, b)   q, k, v = Split <axis = 2, num_outputs = 3> (zb)
        qr = com.microsoft.RotaryEmbedding <num_heads = 2, rotary_embedding_dim = {size}> (q, i, cos, sin)
        kr = com.microsoft.RotaryEmbedding <num_heads = 2, rotary_embedding_dim = {size}> (k, i, cos, sin)
        y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (qr, kr, v, , , , pk, pv)
    }}"""
    angles = np.arange(9)[:, None] * 10000.0 ** (-2 * np.arange(turns // 2) / turns)
    tables = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}

    def peer(m: Any, feeds: dict[str, np.ndarray]) -> list[Any]:
        pk, pv = feeds["p"]
        rows = np.arange(pk.shape[2], pk.shape[2] + feeds["x"].shape[1], dtype=np.int64)
        i = np.tile(rows, (len(pk), 1))
        given = {"x": feeds["x"], "w": feeds["w"], "b": feeds["b"], "pk": pk, "pv": pv, "i": i, **tables}
        return by_onnxruntime(parsed(text, **{"com.microsoft": 1}), given)[:1]

    check(case, peer)


@pytest.mark.parametrize("inputs", [{"q": "B S 2 3 4"}, {"q": "B S 8", "k": "B K 2 2 4"}], ids=["qkv", "kv"])
def test_packed(inputs: dict[str, str]) -> None:
    """ONNX Runtime's CPU refuses packed operands: compared with separate operands."""
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
    """A session specialises on the rank of its first feeds only: other values run on the same Program."""
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
    assert len(session._native.executors) == 1


@pytest.mark.parametrize("scale", [0.0, -0.0, 0.3, None])
def test_a_scale_of_0_is_no_default(scale: float | None) -> None:
    """By ONNX's function all keys then have the same weight; ONNX Runtime's kernels refuse it."""
    attrs = {} if scale is None else {"scale": scale}
    check_node("Attention", [floats(1, 2, 3, 4), floats(1, 2, 5, 4), floats(1, 2, 5, 4)], 23, by_onnx, **attrs)


@pytest.mark.parametrize("past", [0, 2])
def test_a_mask_of_one_row_under_is_causal(past: int) -> None:
    """The mask applies to each query in addition to its own causal limit; the reference applies the first query's limit
    to all."""
    q, k, v = floats(2, 2, 3, 4), floats(2, 2, 5, 4), floats(2, 2, 5, 4)
    older = [floats(2, 2, past, 4) for _ in range(2)] if past else [None, None]
    row = np.arange(5 + past) != 1
    wide = np.broadcast_to(row, (2, 1, 3, 5 + past))
    rest = [*older, None if past else ints(4, 5)]
    want = by_onnx(*node_model("Attention", [q, k, v, wide, *rest], 24, is_causal=1))[0]
    for shape in ((1, 5 + past), (2, 1, 1, 5 + past)):
        m, feeds = node_model("Attention", [q, k, v, np.broadcast_to(row, shape), *rest], 24, is_causal=1)
        np.testing.assert_allclose(by_session(m, feeds)[0], want, rtol=1e-5)


def test_texts_that_are_padded_on_the_left() -> None:
    """In sessions with sample_positions GroupQueryAttention has this rule. ONNX Runtime computes each text alone."""
    attrs = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    tables, past = [floats(9, 8), floats(9, 8)], [floats(1, 2, 0, 16)] * 2
    texts = [[floats(1, n, width) for width in (64, 32, 32)] for n in (6, 4)]  # of the second, two places are padding

    def run(of: Any, arrays: list[Any], past: list[Any], lengths: list[int], total: int, **more: Any) -> list[Any]:
        rest = [np.array(lengths, np.int32), np.array(total, np.int32), *tables]
        feeds = [*arrays, *past, *rest]
        return list(of(*node_model("GroupQueryAttention", feeds, 1, 3, "com.microsoft", **attrs, **more)))

    alone = [run(by_onnxruntime, text, past, [n - 1], n)[0] for n, text in zip((6, 4), texts, strict=True)]
    padded = [np.pad(x, ((0, 0), (2, 0), (0, 0))) for x in texts[1]]
    both = [np.concatenate(pair) for pair in zip(texts[0], padded, strict=True)]
    empty = [floats(2, 2, 0, 16)] * 2
    first, *caches = run(by_session, [x[:, :5] for x in both], empty, [4, 2], 5, left_padded=1)
    same([first[:1], first[1:, 2:]], [alone[0][:, :5], alone[1][:, :3]], 1e-5)
    found = run(by_session, [x[:, 5:] for x in both], caches, [5, 3], 6, left_padded=1)[0]
    same([found[:1], found[1:]], [alone[0][:, 5:], alone[1][:, 3:]], 1e-5)
