"""Decoders of published families, as Optimum and onnxruntime-genai's builder export them: texts, turns, resets and
drafts against a plain loop over onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kit.families import ENCODERS, HEADS, WINDOW, Plain, model, names, source
from pyruntime import InvalidInput, SessionOptions, TextGenerator
from pyruntime.errors import ShapeError

PROMPT = [5, 7, 9, 11, 13, 2, 3, 8, 20, 31, 44, 6]
LONG = [*PROMPT, *PROMPT[::-1]]  # longer than a window
REPEATED = [*PROMPT, 17, *PROMPT[:8]]


def opened(name: str, **more: Any) -> TextGenerator:
    encoder = model(ENCODERS[name]) if name in ENCODERS else None
    options = SessionOptions()
    if name == "gptoss":  # whose graph does not tell it
        options.free_dimension_overrides = {"past_sliding_length": WINDOW, "kv_cache_dim": HEADS[name]}
    return TextGenerator(model(name), encoder=encoder, options=options, stop_tokens=[], **more)


@pytest.mark.parametrize("name", names())
def test_texts(name: str) -> None:
    """64 tokens, a second turn, a text that goes back, a longer prompt than a window; drafts from the text."""
    plain = Plain(name)
    prompts = [PROMPT, [], PROMPT[:7], LONG]
    inputs = {"inputs": source(name)} if name in ENCODERS else {}
    writer = opened(name, lookup=2)
    first = writer.generate(PROMPT, max_tokens=64, **inputs).tokens
    assert first == plain.tokens(PROMPT, 64)
    prompts[1] = [*PROMPT, *first[:9], 4, 3]
    for prompt in prompts:
        assert writer.generate(prompt, max_tokens=12).tokens == plain.tokens(prompt, 12)
    writer.reset()
    assert writer.generate(REPEATED, max_tokens=9).tokens == plain.tokens(REPEATED, 9)
    assert writer.last.drafted > 0
    writer.release()


def test_a_window_without_a_size_is_asked_for() -> None:
    with pytest.raises(ShapeError, match="past_sliding_length places .* free dimension overrides give its size"):
        TextGenerator(model("gptoss")).generate(PROMPT, max_tokens=1)


def test_an_encoder_runs_once_for_each_text() -> None:
    """Other inputs begin another text; without them the cross caches stay."""
    writer, plain = opened("t5"), Plain("t5")
    with pytest.raises(InvalidInput, match="the model needs encoder_attention_mask, encoder_hidden_states"):
        writer.generate(PROMPT)
    own = source("t5")
    other = {"input_ids": np.array([[9, 8, 7]]), "attention_mask": np.ones((1, 3), np.int64)}
    runs: list[int] = []
    assert writer._encoder is not None
    run = writer._encoder.session.run
    writer._encoder.session.run = lambda *a: (runs.append(1), run(*a))[1]  # type: ignore[method-assign]
    first = writer.generate(PROMPT, max_tokens=8, inputs=own).tokens
    found = [
        writer.generate(PROMPT, max_tokens=8, inputs=other).tokens,
        writer.generate(PROMPT, max_tokens=8, inputs=own).tokens,
        writer.generate(PROMPT, max_tokens=8).tokens,
    ]
    assert found[1] == found[2] == first == plain.tokens(PROMPT, 8) and found[0] != first
    assert len(runs) == 3 and writer.last.reused == len(PROMPT) - 1
    with pytest.raises(InvalidInput, match="no input words"):
        writer.generate(PROMPT, inputs={"words": own["input_ids"]})
