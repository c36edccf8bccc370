"""Tiny GGUF files with random weights, one for each architecture, written by the package `gguf` as llama.cpp's own
converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH, INNER, HEADS, GROUPS, VOCABULARY = 64, 96, 4, 2, 80
LAYERS = {"gemma3": 7, "smollm3": 4}  # whose sixth is not local; whose fourth does not rotate
EPSILON = 1e-5
# by architecture: what differs from LLaMA. "bias": of q, k, v; "head_norm": of q and k; "post": norms behind attention
# and feed-forward layers; "fused": q, k, v in one matrix; "tied": the embedding is the last matrix;
# "layer_norm": with biases everywhere, half of each head is rotated, and feed-forward layers have no gate
KINDS: dict[str, set[str]] = {
    "llama": set(), "qwen2": {"bias"}, "qwen3": {"head_norm"}, "gemma2": {"post", "tied"},
    "gemma3": {"post", "head_norm", "tied"}, "phi3": {"fused"}, "gemma": {"tied"}, "smollm3": {"tied"},
    "phi2": {"fused", "layer_norm"},
}  # fmt: skip
ARCHITECTURES = list(KINDS)
FIELDS: dict[str, dict[str, Any]] = {
    "gemma2": {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "attention.sliding_window": 4},
    "gemma3": {"attention.sliding_window": 4, "rope.freq_base": 1e6},
    "phi3": {"attention.sliding_window": 64},
    "qwen2": {"rope.freq_base": 1e6},
    "phi2": {"attention.layer_norm_epsilon": EPSILON, "rope.dimension_count": WIDTH // HEADS // 2},
}
PIECES = ["<unk>", "<s>", "▁", *"abcdefghijklmnopqrstuvwxyz", *(f"▁{c}" for c in "abcdefghijklmnopqrstuvwxyz")]
PIECES += [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ"][: VOCABULARY - len(PIECES)]
TOKENS = [3, 17, 42, 5, 79, 0, 23, 8, 61, 30]


def write(
    path: Path, architecture: str, kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32, *,
    numbers: dict[str, np.ndarray] | None = None, fields: dict[str, Any] | None = None, without: str = "",
    more: dict[str, np.ndarray] | None = None, template: str = "{{ messages[0].content }}",
) -> None:  # fmt: skip
    """kind: the type of the matrices; numbers: of tensors, in place of random ones; fields: more metadata; without,
    more: a key or tensor that is left out, a tensor that is added; template: of chats"""
    rng, has, layers = np.random.default_rng(7), KINDS.get(architecture, set()), LAYERS.get(architecture, 3)
    head = WIDTH // HEADS
    writer = gguf.GGUFWriter(path, architecture)
    found: dict[str, Any] = {
        "block_count": layers, "embedding_length": WIDTH, "feed_forward_length": INNER, "context_length": 128,
        "attention.head_count": HEADS, "attention.head_count_kv": GROUPS, "vocab_size": VOCABULARY,
        "attention.key_length": head, "attention.value_length": head, "rope.dimension_count": head,
        "attention.layer_norm_rms_epsilon": EPSILON, "rope.freq_base": 10000.0,
    }  # fmt: skip
    adders = {float: writer.add_float32, int: writer.add_uint32, str: writer.add_string}
    for key, value in {**found, **FIELDS.get(architecture, {}), **(fields or {})}.items():
        if key != without:
            adders[type(value)](f"{architecture}.{key}", value)
    writer.add_chat_template(template)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(PIECES)
    writer.add_token_scores([-float(n) for n in range(VOCABULARY)])
    writer.add_token_types([2, 3, *[1] * (VOCABULARY - 2)])
    writer.add_bos_token_id(1)
    writer.add_unk_token_id(0)

    def tensor(name: str, value: np.ndarray, of: gguf.GGMLQuantizationType) -> None:
        value = value if numbers is None else numbers[name]
        if name != without:
            writer.add_tensor(name, gguf.quants.quantize(value.astype(np.float32), of), raw_dtype=of)

    def vector(name: str, size: int, around: float = 1.0) -> None:
        tensor(name, around + 0.2 * rng.standard_normal(size), gguf.GGMLQuantizationType.F32)

    def matrix(name: str, rows: int, columns: int, bias: bool = "layer_norm" in has) -> None:
        tensor(f"{name}.weight", rng.standard_normal((rows, columns)) * 1.5 / columns**0.5, kind)
        if bias:
            vector(f"{name}.bias", rows, 0.0)

    def norm(name: str, size: int = WIDTH) -> None:
        vector(f"{name}.weight", size)
        if "layer_norm" in has:
            vector(f"{name}.bias", size, 0.0)

    matrix("token_embd", VOCABULARY, WIDTH, bias=False)
    sizes = {"q": HEADS * head, "k": GROUPS * head, "v": GROUPS * head}
    for n in range(layers):
        blk = f"blk.{n}"
        norm(f"{blk}.attn_norm")
        if "fused" in has:
            matrix(f"{blk}.attn_qkv", sum(sizes.values()), WIDTH)
        for part, size in sizes.items() if "fused" not in has else ():
            matrix(f"{blk}.attn_{part}", size, WIDTH, bias="bias" in has)
        matrix(f"{blk}.attn_output", WIDTH, HEADS * head)
        matrix(f"{blk}.ffn_up", 2 * INNER if architecture == "phi3" else INNER, WIDTH)
        if not has & {"fused", "layer_norm"}:
            matrix(f"{blk}.ffn_gate", INNER, WIDTH)
        matrix(f"{blk}.ffn_down", WIDTH, INNER)
        if "layer_norm" not in has:
            norm(f"{blk}.ffn_norm")
        for name in ["attn_q_norm", "attn_k_norm"] if "head_norm" in has else []:
            norm(f"{blk}.{name}", head)
        for name in ["post_attention_norm", "post_ffw_norm"] if "post" in has else []:
            norm(f"{blk}.{name}")
    norm("output_norm")
    if "tied" not in has:
        matrix("output", VOCABULARY, WIDTH)
    for name, value in (more or {}).items():
        writer.add_tensor(name, value.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
