"""Tiny decoders of published families, in the graphs that Optimum and onnxruntime-genai's builder write, and a plain
loop over onnxruntime that uses no cache again. `build.py` writes the files: models without their large weights,
compressed by xz. `model` fills these with random numbers, which are the same on every machine."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import pyruntime

HERE = Path(__file__).parent
WINDOW = 16  # keys that a token of the families with sliding windows reads
SOURCE = 7  # positions of an encoder, where its model leaves them open
TYPES = {
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32, "tensor(bool)": np.bool_,
}  # fmt: skip
ENCODERS = {"whisper": "whisper.encoder", "t5": "t5.encoder", "marian": "marian.encoder"}
# The size of a dim that says nothing else
HEADS = {"gptoss": 64, "nemotron": 32}


def names() -> list[str]:
    """All decoders."""
    return sorted({path.name.removesuffix(".onnx.xz") for path in HERE.glob("*.xz")} - set(ENCODERS.values()))


def is_large(tensor: onnx.TensorProto) -> bool:
    """Whether a weight is not in the file."""
    is_angle = "cos" in tensor.name or "sin" in tensor.name
    return tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= 512 and not is_angle


def model(name: str) -> bytes:
    found = onnx.load_from_string(lzma.decompress((HERE / f"{name}.onnx.xz").read_bytes()))
    for tensor in found.graph.initializer:
        if is_large(tensor):
            random = np.random.default_rng(zlib.crc32(f"{name}:{tensor.name}".encode()))
            weight = random.standard_normal(list(tensor.dims), np.float32) * 1.5 / tensor.dims[-1] ** 0.5
            tensor.raw_data = weight.tobytes()
    return found.SerializeToString()


def source(name: str) -> dict[str, np.ndarray]:
    """The inputs of a family's encoder."""
    if name == "whisper":
        return {"audio_features": np.random.default_rng(5).standard_normal((1, 80, 3000)).astype(np.float32)}
    return {"input_ids": np.arange(3, 3 + SOURCE)[None], "attention_mask": np.ones((1, SOURCE), np.int64)}


class Plain:
    """Greedy tokens of a family by onnxruntime: each run reads the whole text."""

    def __init__(self, name: str) -> None:
        self._session = onnxruntime.InferenceSession(model(name), providers=["CPUExecutionProvider"])
        self._head = HEADS.get(name, 16)
        self._encoded: dict[str, np.ndarray] = {}
        if name in ENCODERS:
            # onnxruntime 1.31 crashes in Whisper's Attention, which has no bias
            encoder: Any = (pyruntime if name == "whisper" else onnxruntime).InferenceSession(
                model(ENCODERS[name]), providers=["CPUExecutionProvider"]
            )
            made = zip([x.name for x in encoder.get_outputs()], encoder.run(None, source(name)), strict=True)
            self._encoded = {x.replace("present", "past").replace("last", "encoder"): value for x, value in made}
            self._encoded["encoder_hidden_states"] = self._encoded.pop("encoder_hidden_state", np.zeros(0))
            self._encoded["encoder_attention_mask"] = np.ones((1, SOURCE), np.int64)

    def tokens(self, prompt: Sequence[int], count: int) -> list[int]:
        found = list(prompt)
        for _ in range(count):
            feeds = {x.name: self._feed(x, found) for x in self._session.get_inputs()}
            (logits,) = self._session.run(["logits"], feeds)
            found.append(int(logits[0, -1].argmax()))
        return found[len(prompt) :]

    def _feed(self, x: Any, ids: list[int]) -> np.ndarray:
        """An input before a run that reads all tokens: caches are empty."""
        if x.name in self._encoded:
            return self._encoded[x.name]
        dtype, count = TYPES[x.type], len(ids)
        if x.name == "input_ids":
            return np.array([ids], dtype)
        if x.name == "attention_mask":
            return np.ones((1, count), dtype)
        if x.name == "position_ids":
            return np.broadcast_to(np.arange(count, dtype=dtype), [3, 1, count][3 - len(x.shape) :])
        if x.name == "use_cache_branch":
            return np.array([False])
        sizes = {"past_sliding_length": WINDOW, "kv_cache_dim": self._head, "batch_size": 1}
        return np.zeros([d if isinstance(d, int) else sizes.get(d, 0) for d in x.shape], dtype)
