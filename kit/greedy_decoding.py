"""Greedy decoding by onnxruntime, without a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime


def tokens_after(model: Path, ids: Sequence[int], count: int) -> list[int]:
    """The most likely tokens that follow; inputs and outputs have the names of Hugging Face's exporters."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = {x.name for x in session.get_inputs()}
    none = {
        x.name: np.zeros([d if isinstance(d, int) else int(axis == 0) for axis, d in enumerate(x.shape)], np.float32)
        for x in session.get_inputs()
        if x.name.startswith("past")
    }
    found = list(ids)
    for _ in range(count):
        whole = np.array([found])
        feeds = {"input_ids": whole, "attention_mask": np.ones_like(whole), "position_ids": np.arange(len(found))[None]}
        (logits,) = session.run(["logits"], {name: x for name, x in feeds.items() if name in names} | none)
        found.append(int(logits[0, -1].argmax()))
    return found[len(ids) :]


__all__ = ["tokens_after"]
