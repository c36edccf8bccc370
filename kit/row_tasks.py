"""What a combination of features (kit/feature_table.py) computes, and its right results.

A task is plain data, so that the same task runs natively, in pages and in Pyodide. It has two halves. Between them the
features act that are no part of a run: a stop, a lost device, `trim`. Results are a list for each half.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import tokenizers

from kit.counting_decoders import WORDS, Case, with_layer
from kit.feature_pairs import CLASSES, NUMBERS, WIDTH
from pyruntime.training.files import safetensors
from pyruntime.training.files.safetensors import Stored

Row = Mapping[str, str]
PROMPT, SECOND = [5, 7, 9, 4], [6, 2, 8, 1]
FIRST_TOKENS, MORE_TOKENS = 3, 3
RATE = 0.1
LETTER = 0x4E00  # of token 0, so that each token is a piece of a stream
FORCED = 70  # the token that the format puts in the middle of each three
FORMAT = {"regex": f"(?:.{chr(LETTER + FORCED)}.){{1,2}}"}
BEAMS = 2
DECODER_FACTOR = 1 + 2.0 * 1.0 + 4.0 * 0.5  # 1 + the product of each adapter times its weight
ADAPTERS = {"one": (2.0, 1.0), "two": (4.0, 0.5)}  # the number in its matrices, its weight in runs
LORA = {"rank": 2, "alpha": 2, "targets": ["*"]}


def has_decoder(row: Row) -> bool:
    return row["caches"] != "no caches"


def decoder_of(row: Row) -> Case:
    return with_layer(row["caches"], DECODER_FACTOR if row["adapters"] == "adapters" else 1.0)


def model_of(row: Row) -> bytes:
    return decoder_of(row).model.SerializeToString() if has_decoder(row) else NUMBERS.model()


def adapter_of(row: Row, name: str) -> bytes:
    """An adapter of the row's model, as a file of PEFT."""
    if not has_decoder(row):
        return NUMBERS.adapter(name)
    arrays = {"A": np.ones((1, 1), np.float32), "B": np.full((1, 1), ADAPTERS[name][0], np.float32)}
    tensors = {f"base_model.model.layer.lora_{part}.weight": x for part, x in arrays.items()}
    stored = {key: Stored("float32", x.shape, x) for key, x in tensors.items()}
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1}
    return safetensors.write(stored, {"format": "pt", "adapter_config": json.dumps(config)})


def tokenizer() -> str:
    """A tokenizer.json with a letter for each token."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE({chr(LETTER + n): n for n in range(WORDS)}, []))
    made.decoder = tokenizers.decoders.Fuse()
    return str(made.to_str())


def feeds() -> list[np.ndarray]:
    """Feeds for the model without caches, of shape (2, WIDTH), (5, WIDTH) and (1, WIDTH)."""
    return [
        np.random.default_rng(n).standard_normal((size, WIDTH)).astype(np.float32) for n, size in enumerate((2, 5, 1))
    ]


def targets() -> list[np.ndarray]:
    return [
        np.random.default_rng(n).standard_normal((len(x), CLASSES)).astype(np.float32) for n, x in enumerate(feeds())
    ]


def task(row: Row, program: bytes | None = None) -> dict[str, Any]:
    """The row, its files in base64, feeds, prompts and options. program: exported from the model"""
    coded = lambda data: base64.b64encode(data).decode()  # noqa: E731
    return {
        "row": dict(row), "model": coded(model_of(row)), "program": program and coded(program),
        "adapters": {name: coded(adapter_of(row, name)) for name in ADAPTERS} if row["adapters"] == "adapters" else {},
        "active": {name: weight for name, (_, weight) in ADAPTERS.items()} if row["adapters"] == "adapters" else {},
        "feeds": [x.tolist() for x in feeds()], "targets": [x.tolist() for x in targets()],
        "prompts": [PROMPT, SECOND], "tokens": [FIRST_TOKENS, MORE_TOKENS], "decodes": has_decoder(row),
        "tokenizer": tokenizer(), "letter": LETTER, "format": FORMAT if row["texts"] == "formats" else None,
        "beams": BEAMS if row["search"] == "beams" else 1, "rate": RATE,
        "lora": LORA if row["adapters"] == "adapters" else None,
    }  # fmt: skip


def check(row: Row, found: list[Any]) -> None:
    """Errors: AssertionError for other results of the two halves than the right ones."""
    if row["caller"] == "training":
        _check_training(row, found)
    elif has_decoder(row):
        assert found == _tokens(row)
    else:
        active = {name: weight for name, (_, weight) in ADAPTERS.items()} if row["adapters"] == "adapters" else {}
        right = [NUMBERS.expected(x, active) for x in feeds()]
        for half in found:
            for ours, theirs in zip(half, right, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def _tokens(row: Row) -> list[list[list[int]]]:
    """For each half the tokens of each text."""
    prompts = [PROMPT, SECOND] if row["caller"] == "Batcher" or row["chats"] == "several chats" else [PROMPT]
    first = [_written(row, prompt, FIRST_TOKENS) for prompt in prompts]
    longer = [prompt + tokens for prompt, tokens in zip(prompts, first, strict=True)]
    return [first, [_written(row, text, MORE_TOKENS) for text in longer]]


def _written(row: Row, prompt: list[int], count: int) -> list[int]:
    """Beams find the same text: in each step one token is likelier than all others."""
    case = decoder_of(row)
    if row["texts"] != "formats":
        return case.expected(prompt, count)
    begun = [*prompt, *case.expected(prompt, 1), FORCED]
    return [*begun[len(prompt) :], *case.expected(begun, 1)]


def _check_training(row: Row, found: list[Any]) -> None:
    """found: for each half the loss of a step, and then the weight and the bias"""
    weight, bias = NUMBERS.weight.astype(np.float64), NUMBERS.bias.astype(np.float64)
    for (loss, ours, our_bias), x, target in zip(found, feeds(), targets(), strict=False):
        difference = x @ weight.T + bias - target
        np.testing.assert_allclose(loss, np.mean(difference**2), rtol=1e-4)
        if row["adapters"] == "adapters":  # the weights are those of the exported model, with the adapters
            weight, bias = np.array(ours, np.float64), np.array(our_bias, np.float64)
            continue
        slope = 2 * difference / difference.size
        weight, bias = weight - RATE * slope.T @ x, bias - RATE * slope.sum(0)
        np.testing.assert_allclose(ours, weight, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(our_bias, bias, rtol=1e-4, atol=1e-5)
    if row["adapters"] == "adapters":
        assert np.abs(weight - NUMBERS.weight).max() > 1e-3 and np.array_equal(bias, NUMBERS.bias)


def weights_of(model: bytes) -> list[list[Any]]:
    """The weight and the bias of an exported model without caches."""
    found = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load_from_string(model).graph.initializer}
    return [found["layer.weight"].tolist(), found["bias"].tolist()]
