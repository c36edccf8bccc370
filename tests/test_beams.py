"""Beam search: against transformers' texts, and its caches against runs without caches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kit.beam_texts import CROSSING, FORM, PATH, PROMPT, PROMPTS, STOPS, tokenizer
from kit.decoder_forms import FORMS, STATES, decoder
from kit.families import ENCODERS, names, source
from pyruntime import InvalidInput, TextGenerator
from pyruntime.api.text_batch import finished
from pyruntime.runtime.beams import BeamWriter
from pyruntime.runtime.writing import Request, Sampling, Text
from tests.test_families import opened

CASES: list[dict[str, Any]] = json.loads(PATH.read_text())
KINDS = [(case.get("form", FORM), tuple(case["stops"])) for case in CASES]
Generators = Callable[..., TextGenerator]


@pytest.fixture(scope="module")
def generator() -> Iterator[Generators]:
    made: dict[Any, TextGenerator] = {}

    def of(stops: Sequence[int], provider: str = "wasm", form: str = FORM) -> TextGenerator:
        key = (form, provider, *stops)
        if key not in made:
            model, inputs = decoder(FORMS[form]).SerializeToString(), {"encoder_hidden_states": STATES}
            made[key] = TextGenerator(
                model, tokenizer(), providers=[provider], stop_tokens=stops, inputs=inputs if form == CROSSING else None
            )
        return made[key]

    yield of
    for writer in made.values():
        writer.release()


def settings(case: dict[str, Any]) -> dict[str, Any]:
    own = ("num_beams", "max_tokens", "length_penalty", "early_stopping", "stop")
    form = {"format": {"regex": case["regex"]}} if "regex" in case else {}
    return {name: case[name] for name in own if name in case} | form


@pytest.mark.parametrize(("form", "stops"), sorted(set(KINDS)), ids=str)
def test_texts_are_those_of_transformers(form: str, stops: tuple[int], generator: Generators) -> None:
    cases = [case for case, kind in zip(CASES, KINDS, strict=True) if kind == (form, stops)]
    assert len(cases) > 6 and {case["num_beams"] for case in cases} == {2, 3, 5}
    for case in cases:
        found = generator(stops, form=form).generate(case["prompt"], **settings(case))
        if "regex" in case and (found.reason == "format" or len(found.tokens) < case["max_tokens"]):
            assert found.reason == "format" and re.fullmatch(case["regex"], found.text), case
        if found.tokens != case["tokens"]:
            assert found.reason == "format" and len(case["tokens"]) == case["max_tokens"], case  # theirs is cut
            assert case["tokens"][-1] not in stops
        elif "regex" not in case and found.reason != "text":
            assert found.reason == ("token" if stops and case["tokens"][-1] in stops else "length")
        assert not any(stop in found.text for stop in case.get("stop", ()))


def test_on_the_gpu(generator: Generators) -> None:
    for case in [case for case in CASES if case["stops"] == STOPS[1] and case["max_tokens"] == 9]:
        assert generator(STOPS[1], "webgpu").generate(case["prompt"], **settings(case)).tokens == case["tokens"]


def without_caches(writer: TextGenerator, prompt: list[int], how: Sampling, most: int) -> list[int]:
    """The search, where each run reads each beam from its start."""
    search = BeamWriter(Text(prompt, lambda _: "", [], [], lambda: 0.0), how, most, [])
    tokens: list[int] = []
    while (request := search.request()) is not None:
        best: tuple[list[float], list[float]] = ([], [])
        for row in request.beams or [request.tokens]:
            writer._model.restart()
            own = Request(False, row, len(row), 1, [0.0], [], request.choices)
            found = finished(writer._model.sample(own, search.how, None))
            best[0].extend(found[: len(found) // 2])
            best[1].extend(found[len(found) // 2 :])
        tokens = search.accepted(request, [*best[0], *best[1]])
    return tokens


@pytest.mark.parametrize("name", names())
def test_rows_of_caches_move(name: str) -> None:
    """States, windows and caches of published families, and an encoder's states."""
    writer = opened(name)
    inputs = source(name) if name in ENCODERS else None
    found = writer.generate(PROMPT, max_tokens=10, num_beams=3, inputs=inputs).tokens
    assert found == without_caches(writer, PROMPT, Sampling(num_beams=3), 10)
    writer.release()


def test_other_texts_meanwhile(generator: Generators) -> None:
    """A stream and a list of searches take turns with a search; the next turn reuses the caches of the best beam."""
    writer = generator([])
    how = {"num_beams": 3, "max_tokens": 12}
    expected = [writer.generate(prompt, **how).tokens for prompt in PROMPTS]
    plain = writer.generate(PROMPT, max_tokens=30).tokens
    pieces = writer.stream(PROMPT, max_tokens=30)
    assert "".join(pieces) == writer.last.text and writer.last.tokens == plain
    stream = writer._begun(writer._read({"max_tokens": 30}, [PROMPT]), True)
    assert [found.tokens for found in writer.generate(PROMPTS, **how)] == expected
    finished(writer._batch.advance(stream[0]))
    assert stream[0].text.tokens == plain
    again = writer.generate(PROMPT, **how)
    longer = writer.generate([*PROMPT, *again.tokens, 4], max_tokens=3)
    assert again.tokens == expected[0] and longer.reused >= len(PROMPT)
    writer.reset()
    assert writer.generate([*PROMPT, *again.tokens, 4], max_tokens=3).tokens == longer.tokens


def test_refused(generator: Generators) -> None:
    writer = generator([])
    for how, text in {
        ("temperature", 0.5): "no temperature", ("top_k", 3): "no temperature", ("repetition_penalty", 1.2): "penalty",
        ("num_beams", 0): "num_beams is 0", ("num_beams", 1.5): "num_beams is 1.5",
        ("early_stopping", 1): "early_stopping is 1", ("length_penalty", "1"): "length_penalty is '1'",
    }.items():  # fmt: skip
        with pytest.raises(InvalidInput, match=text):
            writer.generate(PROMPT, **{"num_beams": 2, how[0]: how[1]})
    with pytest.raises(InvalidInput, match="call generate"):
        list(writer.stream(PROMPT, num_beams=2))
    writer.generate(PROMPT, num_beams=2, max_tokens=3)
    for call in (writer.save, lambda: list(writer.resume(3))):
        with pytest.raises(InvalidInput, match="there is no single text"):
            call()
    model = decoder(FORMS[FORM]).SerializeToString()
    with pytest.raises(InvalidInput, match="a draft and lookup"):
        TextGenerator(model, lookup=2).generate(PROMPT, num_beams=2)
    one = TextGenerator(decoder(FORMS["positions first, one text"]).SerializeToString())
    with pytest.raises(InvalidInput, match="any number of texts"):
        one.generate(PROMPT, num_beams=2)
