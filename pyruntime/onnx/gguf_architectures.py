"""What distinguishes the decoders that GGUF files name, where tensors do not tell it; the rest is in gguf_decoder.py.

Source: the key "general.architecture" and the names of keys and tensors that llama.cpp writes
(https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Fields = Mapping[str, Any]  # metadata of the architecture, without its name before the key


def _never(n: int, fields: Fields) -> bool:
    return False


# Names of the parts of a layer, and of the model, in transformers, by their names in GGUF files.
_MODULES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "token_embd": "model.embed_tokens", "output": "lm_head",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """interleaved: whether the pairs that a head rotates are neighbours (llama.cpp's "norm") or a half apart ("neox")
    activation: of the feed-forward layers, "silu" or "gelu"
    layer_norm: LayerNormalization in place of the root mean square
    parallel: attention and feed-forward layers read the same normalised values
    scales_embedding: the embeddings of tokens are multiplied by the root of their width
    is_local: whether layer n attends to the last `attention.sliding_window` tokens alone
    local_base: the base of the rotation's angles in local layers; 0 where it is that of the others
    unrotated: whether layer n does not rotate its heads
    wide_heads: the number of layers of the one size whose scores are divided by the root of width / heads instead of
        the head's size
    modules: names of parts in transformers, by their names in the file
    """

    interleaved: bool = False
    activation: str = "silu"
    layer_norm: bool = False
    parallel: bool = False
    scales_embedding: bool = False
    is_local: Callable[[int, Fields], bool] = _never
    local_base: float = 0.0
    unrotated: Callable[[int, Fields], bool] = _never
    wide_heads: int = 0
    modules: Mapping[str, str] = field(default_factory=lambda: _MODULES)


def _but_each(period: int) -> Callable[[int, Fields], bool]:
    """All layers but each `period`th are local, unless the file has a list."""

    def is_local(n: int, fields: Fields) -> bool:
        pattern = fields.get("attention.sliding_window_pattern", period)
        return bool(pattern[n]) if isinstance(pattern, list) else (n + 1) % pattern != 0

    return is_local


def _each_fourth(n: int, fields: Fields) -> bool:
    return (n + 1) % 4 == 0


def _if_windowed(n: int, fields: Fields) -> bool:
    return bool(fields.get("attention.sliding_window", 0) > 0)


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(interleaved=True),
    "smollm3": Architecture(interleaved=True, unrotated=_each_fourth),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "gemma": Architecture(activation="gelu", scales_embedding=True),
    "gemma2": Architecture(activation="gelu", scales_embedding=True, is_local=_but_each(2), wide_heads=46),
    "gemma3": Architecture(
        activation="gelu", scales_embedding=True, is_local=_but_each(6), local_base=10000.0, wide_heads=62
    ),
    "phi2": Architecture(
        activation="gelu",
        layer_norm=True,
        parallel=True,
        modules=_MODULES | {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    ),
    "phi3": Architecture(is_local=_if_windowed, modules=_MODULES | {"ffn_up": "mlp.gate_up_proj"}),
}
