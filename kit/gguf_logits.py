"""Logits of the tiny GGUF files of `gguf_models.py` by another implementation, transformers on PyTorch.

`python -m kit.gguf_logits` writes `gguf_logits.npz`, with which tests compare. It needs torch and transformers, which
no test installs; written with torch 2.14.1 and transformers 5.24.0.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from kit.gguf_models import EPSILON, FIELDS, GROUPS, HEADS, INNER, KINDS, LAYERS, TOKENS, VOCABULARY, WIDTH, write

OUT = Path(__file__).with_suffix(".npz")
ROWS = 4  # the last ones, which see all tokens before them
HEAD = WIDTH // HEADS
# Names in GGUF -> names in transformers
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
POST = {
    "ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
OTHERS = {
    "gemma2": POST, "gemma3": POST, "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "phi2": {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
}  # fmt: skip
CLASSES = {
    "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma", "gemma2": "Gemma2", "gemma3": "Gemma3",
    "phi3": "Phi3", "phi2": "Phi", "smollm3": "SmolLM3",
}  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {architecture: logits(architecture, Path(folder, "model.gguf")) for architecture in KINDS}
    np.savez_compressed(OUT, **found)


def logits(architecture: str, path: Path) -> np.ndarray:
    """(ROWS, VOCABULARY)"""
    import torch
    import transformers

    write(path, architecture)
    tensors = {t.name: np.array(t.data, np.float32) for t in gguf.GGUFReader(path).tensors}
    name = CLASSES[architecture] + ("Text" if architecture == "gemma3" else "")
    settings = getattr(transformers, f"{name}Config")(**_settings(architecture))
    model = getattr(transformers, f"{CLASSES[architecture]}ForCausalLM")._from_config(
        settings, attn_implementation="eager"
    )
    missing = model.load_state_dict({k: torch.tensor(v) for k, v in _state(architecture, tensors).items()}, False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
    model.tie_weights()
    with torch.no_grad():
        return np.asarray(model.eval()(torch.tensor([TOKENS])).logits[0, -ROWS:].numpy())


def _settings(architecture: str) -> dict[str, Any]:
    own = FIELDS.get(architecture, {})
    rope: dict[str, Any] = {"rope_theta": own.get("rope.freq_base", 10000.0), "rope_type": "default"}
    if architecture == "phi2":
        rope["partial_rotary_factor"] = 0.5
    if architecture == "gemma3":
        rope = {"full_attention": rope, "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}
    out = {
        "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS, "num_hidden_layers": LAYERS.get(architecture, 3), "head_dim": HEAD,
        "rms_norm_eps": EPSILON, "layer_norm_eps": EPSILON, "rope_parameters": rope, "pad_token_id": None,
        "tie_word_embeddings": "tied" in KINDS[architecture], "query_pre_attn_scalar": HEAD,
        "attn_logit_softcapping": own.get("attn_logit_softcapping"),
        "final_logit_softcapping": own.get("final_logit_softcapping"),
    }  # fmt: skip
    if window := own.get("attention.sliding_window"):
        out["sliding_window"] = window
    if architecture == "phi2":
        out["hidden_act"] = "gelu_new"
    return out


def _state(architecture: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = LAYER | OTHERS.get(architecture, {})
    ends = {
        "token_embd": "model.embed_tokens", "output": "lm_head",
        "output_norm": "model.final_layernorm" if architecture == "phi2" else "model.norm",
    }  # fmt: skip
    out = {}
    for full, value in tensors.items():
        stem, _, kind = full.rpartition(".")
        if "norm" in stem and architecture.startswith("gemma"):
            value = value - 1  # the file has 1 + weight
        if stem in ends:
            out[f"{ends[stem]}.{kind}"] = value
            continue
        _, layer, part = stem.split(".")
        before = f"model.layers.{layer}."
        if part == "attn_qkv" and architecture == "phi2":
            rows = np.split(value, [HEADS * HEAD, (HEADS + GROUPS) * HEAD])
            out |= {f"{before}self_attn.{p}_proj.{kind}": v for p, v in zip("qkv", rows, strict=True)}
            continue
        if part in ("attn_q", "attn_k") and architecture in ("llama", "smollm3"):
            value = _apart(value, HEADS if part == "attn_q" else GROUPS)
        out[f"{before}{names[part]}.{kind}"] = value
    return out


def _apart(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows whose rotated pairs are a half apart, from rows whose pairs are neighbours."""
    return w.reshape(heads, -1, 2, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


if __name__ == "__main__":
    main()
