"""Texts that are bound to a format: each has it, however tokens are chosen."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, normalizers

from kit import zoo
from kit.page_formats import SCHEMA, SCHEMAS, vocabulary
from pyruntime import InvalidInput, NotSupported, TextGenerator
from pyruntime.api.text_format import Formats
from pyruntime.runtime.writing import mask_feeds
from tests.test_text_generator import DECODER, TOKENIZER

HOW: list[dict[str, Any]] = [
    {}, {"temperature": 1.5, "seed": 3}, {"temperature": 1.0, "seed": 4, "top_k": 5, "repetition_penalty": 1.3},
    {"temperature": 1.0, "top_p": 0.3, "seed": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def writer() -> TextGenerator:
    return TextGenerator(DECODER, TOKENIZER)


def test_schemas(writer: TextGenerator) -> None:
    for schema in SCHEMAS:
        for how in HOW:
            found = writer.generate("The executor", max_tokens=200, format={"schema": schema}, **how)
            assert found.reason == "format", schema
            jsonschema.validate(json.loads(found.text), schema)


def byte_level() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(tokenizers.models.BPE({word: n for n, word in enumerate(vocabulary(900))}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def llama() -> tokenizers.Tokenizer:
    """As SentencePiece's: a space comes before each text."""
    plain = [chr(code) for code in range(0x21, 0x7F)]
    words = [
        "▁",
        *plain,
        *("▁" + one for one in plain),
        "true",
        "▁true",
        '":',
        '{"',
        "é",
        *(f"<0x{n:02X}>" for n in range(256)),
    ]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({word: n for n, word in enumerate(words)}, []))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    return made


def metaspace() -> tokenizers.Tokenizer:
    made = llama()
    made.normalizer = None
    made.pre_tokenizer, made.decoder = tokenizers.pre_tokenizers.Metaspace(), decoders.Metaspace()
    return made


@pytest.mark.parametrize("tokenizer", [byte_level, llama, metaspace])
def test_tokenizers_that_begin_texts_with_a_space(tokenizer: Callable[[], tokenizers.Tokenizer]) -> None:
    """Formats force parts of texts, which have no such space."""
    words, draw = tokenizer(), random.Random(1)
    formats = Formats(words, [], -(-words.get_vocab_size() // 32))
    for schema in SCHEMAS:
        form, found, is_over = formats.read({"schema": schema})(), [], False
        while not is_over:
            (mask,) = form.masks([])  # type: ignore[union-attr]
            bits = np.unpackbits(np.array(mask, "<i4").view("u1"), bitorder="little")
            found.append(int(draw.choice(np.flatnonzero(bits).tolist())))
            is_over = form.take(found[-1])  # type: ignore[union-attr]
        jsonschema.validate(json.loads(words.decode(found)), schema)


def test_regular_expressions_and_grammars(writer: TextGenerator) -> None:
    for how in HOW:
        found = writer.generate("The", format={"regex": "[0-9]{3}-[a-z]{2,5}é?!"}, **how)
        assert found.reason == "format" and re.fullmatch("[0-9]{3}-[a-z]{2,5}é?!", found.text)
        grammar = 'root ::= "yes" | "no" " "+ "never"'
        pieces = writer.stream("The", format={"grammar": grammar}, **how)
        assert re.fullmatch("yes|no +never", "".join(pieces)) and writer.last.reason == "format"


def test_drafts(writer: TextGenerator) -> None:
    """whose tokens the format may forbid do not change the text."""
    prompt, form = '{"a": [1, 1, 1, 1, {"name": "', {"schema": SCHEMA}
    drafting = [TextGenerator(DECODER, TOKENIZER, lookup=1), TextGenerator(DECODER, TOKENIZER, draft=DECODER)]
    for how in HOW:
        plain = writer.generate(prompt, max_tokens=100, format=form, **{"seed": 1, **how})
        for one in drafting:
            found = one.generate(prompt, max_tokens=100, format=form, **{"seed": 1, **how})
            assert found.tokens == plain.tokens and found.reason == "format" and found.drafted
    assert writer.generate(prompt, max_tokens=5).reason == "length"  # and none is bound afterwards


def test_texts_that_stop_before_their_end(writer: TextGenerator) -> None:
    whole = writer.generate("The executor", max_tokens=100, format={"schema": SCHEMA})
    found = writer.generate("The executor", max_tokens=9, format={"schema": SCHEMA})
    assert found.reason == "length" and whole.text.startswith(found.text)
    assert "".join(writer.resume(100)) and writer.last.text == whole.text and writer.last.reason == "format"


@pytest.mark.parametrize(
    "form", [{"schema": SCHEMA}, {"regex": "[0-9]{9}x{3}"}, {"grammar": 'root ::= [a-z]{40} x\nx ::= "(" x ")" | "z"'}]
)
def test_saved_texts(writer: TextGenerator, form: dict[str, Any]) -> None:
    """keep their format."""
    whole = writer.generate("The executor", max_tokens=100, format=form, temperature=1.0, seed=2)
    writer.generate("The executor", max_tokens=4, format=form, temperature=1.0, seed=2)
    other = TextGenerator(DECODER, TOKENIZER)
    other.restore(writer.save())
    assert "".join(other.resume(100)) and other.last.tokens == whole.tokens and other.last.reason == whole.reason


def test_several_and_stop_tokens() -> None:
    """Texts of one batch each have the format; a stop token ends a text that could go on."""
    model = tokenizers.models.BPE({chr(33 + n): n for n in range(94)}, [])
    tokens = tokenizers.Tokenizer(model)
    tokens.add_special_tokens(["<end>"])
    writer = TextGenerator(zoo.materialize("llama_mini"), tokens)
    assert writer.stop_tokens == [94]
    for how in ({}, {"temperature": 1.0, "seed": 2}):
        found = writer.generate([[5, 7, 9], [3]], max_tokens=30, format={"regex": "[0-9]+|[a-z]{2}"}, **how)
        for one in found:
            assert re.fullmatch("[0-9]+|[a-z]{2}", one.text.replace(" ", "")) and one.reason in ("format", "length")
    ended = writer.generate([5, 7], max_tokens=300, format={"regex": "[0-9]+"}, temperature=3.0, seed=1)
    assert ended.reason == "format" and ended.tokens[-1] == 94 and "<end>" not in ended.text


def test_refused(writer: TextGenerator, monkeypatch: pytest.MonkeyPatch) -> None:
    for form, message in [
        ({"xml": "a"}, "format is"), ("json", "format is"), ({"schema": 3}, "a schema is an object"),
        ({"schema": {"type": "nothing"}}, "the format is refused"), ({"regex": "("}, "the format is refused"),
        ({"grammar": "begin: 1"}, "refused in line 1"), ({"grammar": 'a ::= "b"'}, "no rule root"),
        ({"schema": {"not": {}}}, "the format is refused"), ({"regex": ""}, "only an empty text"),
        ({"schema": "{"}, "the schema of the format is refused"),
        ({"regex": "\u0001"}, "^no token of this model continues the format\n"),
    ]:  # fmt: skip
        with pytest.raises(InvalidInput, match=message) as told:
            writer.generate("The", format=form)
        assert str(told.value).count("of the format is") <= 1
    with pytest.raises(InvalidInput, match="needs the tokens of a tokenizer"):
        TextGenerator(DECODER).generate([1], format={"regex": "a"})
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(NotSupported, match="llguidance"):
        writer.generate("The", format={"regex": "a"})


def test_masks_of_a_draft_with_another_number_of_tokens() -> None:
    for words, flat in ((1, [7, 9]), (3, [7, 8, 0, 9, 1, 0])):
        assert mask_feeds(SimpleNamespace(words=words), [0, 2], [[7, 8], [9, 1]])[1].values == flat
