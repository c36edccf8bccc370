"""Greedy decoding by onnxruntime, without a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from kit.decoder_forms import FORMS, STATES, Form, decoder


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


@cache
def tokens_of_form(form: str, ids: Sequence[int], count: int) -> list[int]:
    """The same for a decoder of kit/decoder_forms.py."""
    session = onnxruntime.InferenceSession(decoder(FORMS[form]).SerializeToString(), providers=["CPUExecutionProvider"])
    found = list(ids)
    for _ in range(count):
        (logits,) = session.run(["logits"], {x.name: _feed(FORMS[form], x, found) for x in session.get_inputs()})
        found.append(int(logits[0, -1].argmax()))
    return found[len(ids) :]


def _feed(form: Form, x: Any, ids: list[int]) -> np.ndarray:
    known = {
        form.ids: np.array([ids]),
        form.mask: np.ones((1, len(ids)), np.int64),
        form.positions: np.arange(len(ids))[slice(None) if form.flat else None],
        "encoder_hidden_states": STATES,
        "use_cache_branch": np.array([False]),
    }
    of = np.float16 if form.half else np.float32
    return known[x.name] if x.name in known else np.zeros(form.cache(1, 0), of)


__all__ = ["tokens_after", "tokens_of_form"]
