"""Text of decoders: against onnxruntime's greedy tokens, and each way of writing against the plain one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.decoder_forms import FORMS, STATES, decoder
from kit.families import source
from kit.greedy_decoding import tokens_after, tokens_of_form
from pyruntime import InferenceSession, InvalidInput, SessionOptions, TextGenerator
from pyruntime.api.text_prompts import Prompts
from pyruntime.errors import ExecutionError, SessionFailed
from pyruntime.runtime.generation import StopTexts, TextStream, kept
from tests.test_families import opened as families_opened
from tests.test_sampling import chosen

TEXT = Path(__file__).parents[1] / "demo/text"
DECODER, TOKENIZER = TEXT / "decoder.onnx", TEXT / "tokenizer.json"
PROMPT = [5, 7, 9, 11, 13, 2, 3] * 6
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "seed": 3},
    "penalised": {"repetition_penalty": 1.3},
    "both": {"temperature": 1.0, "repetition_penalty": 1.1, "seed": 4},
}


@pytest.fixture(scope="module")
def opened() -> Callable[..., TextGenerator]:
    """A generator of a model, without what it has read before."""
    made: dict[Any, TextGenerator] = {}

    def generator(name: str, draft: str | None = None) -> TextGenerator:
        if (name, draft) not in made:
            made[name, draft] = TextGenerator(_path(name), draft=None if draft is None else _path(draft))
        made[name, draft].reset()
        return made[name, draft]

    return generator


def _path(name: str) -> Path:
    return DECODER if name == "decoder" else zoo.materialize(name)


@pytest.mark.parametrize("name", ["llama_mini", "gpt2_tiny", "decoder"])
def test_greedy_tokens_are_those_of_onnxruntime(name: str, opened: Callable[..., TextGenerator]) -> None:
    found = opened(name).generate(PROMPT, max_tokens=16)
    assert found.tokens == tokens_after(_path(name), PROMPT, 16)
    assert (found.reason, found.text, found.reused) == ("length", "", 0)


@pytest.mark.parametrize("how", SETTINGS)
def test_turns_reuse_the_cache(how: str, opened: Callable[..., TextGenerator]) -> None:
    """The second prompt goes on, the third differs in its middle, the fourth is a part of the third."""
    first = opened("llama_mini").generate(PROMPT, max_tokens=12, **SETTINGS[how]).tokens
    prompts = [PROMPT, PROMPT + first + [4, 4], [*PROMPT[:20], 8, 9], PROMPT[:10]]
    cold = [opened("llama_mini").generate(prompt, max_tokens=8, **SETTINGS[how]).tokens for prompt in prompts]
    warm = opened("llama_mini")
    found = [warm.generate(prompt, max_tokens=8, **SETTINGS[how]) for prompt in prompts]
    assert [out.tokens for out in found] == cold
    assert [out.reused for out in found][1:] == [len(PROMPT) + 7, 20, 9]


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("draft", ["llama_mini", "llama_mini.nb4"])
def test_a_draft_changes_nothing(how: str, draft: str, opened: Callable[..., TextGenerator]) -> None:
    plain = opened("llama_mini").generate(PROMPT, max_tokens=20, **SETTINGS[how])
    found = opened("llama_mini", draft).generate(PROMPT, max_tokens=20, **SETTINGS[how])
    assert found.tokens == plain.tokens
    assert found.drafted >= found.accepted >= (draft == "llama_mini") * 12


@pytest.mark.parametrize("how", ["greedy", "penalised"])
def test_prompts_together(how: str, opened: Callable[..., TextGenerator]) -> None:
    prompts = [PROMPT, PROMPT[:3], PROMPT[:17]]
    alone = [opened("llama_mini").generate(prompt, max_tokens=10, **SETTINGS[how]).tokens for prompt in prompts]
    for generator in (opened("llama_mini"), opened("llama_mini", "llama_mini.nb4")):
        found = generator.generate(prompts, max_tokens=10, **SETTINGS[how])
        assert [out.tokens for out in found] == alone
    arrays = [np.array(prompt) for prompt in prompts]
    assert opened("llama_mini").generate(arrays[0], max_tokens=10, **SETTINGS[how]).tokens == alone[0]
    assert opened("llama_mini").generate(arrays, max_tokens=1, **SETTINGS[how])[2].tokens == alone[2][:1]


def test_prompts_together_that_fail(opened: Callable[..., TextGenerator], monkeypatch: pytest.MonkeyPatch) -> None:
    """leave a generator that goes on."""
    writer, first = opened("llama_mini"), opened("llama_mini").generate(PROMPT, max_tokens=3).tokens
    with monkeypatch.context() as patched, pytest.raises(ExecutionError):
        patched.setattr(Prompts, "encoded", lambda _, prompt: [10**6 if token == 3 else token for token in prompt])
        writer.generate([PROMPT, PROMPT[:3]], max_tokens=3)
    assert writer.generate(PROMPT, max_tokens=3).tokens == first


def test_caches_of_halves_and_codes(opened: Callable[..., TextGenerator]) -> None:
    for name in ("llama_mini.fp16", "llama_mini.nb4"):
        found = opened(name).generate(PROMPT, max_tokens=8)
        assert found.tokens == tokens_after(_path(name), PROMPT, 8)


def test_text() -> None:
    writer = TextGenerator(DECODER, TOKENIZER)
    whole = writer.generate("The executor", max_tokens=24)
    assert whole.text and whole.tokens
    pieces = list(writer.stream("The executor", max_tokens=24))
    assert "".join(pieces) == whole.text and len(pieces) > 5
    stop = whole.text[8:12]
    ended = writer.generate("The executor", max_tokens=24, stop=[stop, "never"])
    assert ended.text == whole.text[: whole.text.index(stop)] and ended.reason == "text"
    short = TextGenerator(DECODER, TOKENIZER, stop_tokens=whole.tokens[3:4]).generate("The executor", max_tokens=24)
    assert short.reason == "token" and short.tokens == whole.tokens[: whole.tokens.index(whole.tokens[3]) + 1]
    for _ in writer.stream("The executor"):
        break  # the caller may stop
    assert writer.generate("The executor", max_tokens=24).text == whole.text
    writer.release()


@pytest.mark.parametrize("form", FORMS)
def test_decoders_of_all_forms(form: str) -> None:
    """Names and layouts of inputs and caches, against onnxruntime without a cache; a second turn; prompts together."""
    made = FORMS[form]
    writer = TextGenerator(
        decoder(made).SerializeToString(), inputs={"encoder_hidden_states": STATES} if made.crosses else None
    )
    first = tokens_of_form(form, tuple(PROMPT[:8]), 6)
    prompts = [tuple(PROMPT[:8]), (*PROMPT[:8], *first[:3], first[3] ^ 1, 2), tuple(PROMPT[:3])]
    expected = [tokens_of_form(form, prompt, 6) for prompt in prompts]
    found = [writer.generate(prompt, max_tokens=6) for prompt in prompts]
    assert [out.tokens for out in found] == expected
    assert [out.reused for out in found] == [0, 11, 2]
    assert [out.tokens for out in writer.generate(prompts, max_tokens=6)] == expected


class Bytes:
    """A tokenizer whose tokens are bytes, so that characters have several. It drops a space at the start."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace").removeprefix(" ")


@pytest.mark.parametrize("text", ["plain", " begins with a space", "naïve — 日本語 🙂!", "🙂", "é" * 9, ""])
def test_pieces_are_whole_characters(text: str) -> None:
    stream = TextStream(Bytes().decode, b"x: ")
    pieces = [stream.add(token) for token in text.encode()]
    assert "".join(pieces) == text and "\ufffd" not in "".join(pieces) and stream.rest() == ""
    cut = TextStream(Bytes().decode, b"x: ")
    assert "".join(cut.add(token) for token in "ab🙂".encode()[:-1]) + cut.rest() == "ab\ufffd"


STOPS = {
    "split": (["ab", "cd"], ["bc"], "a"),
    "held back, then told": (["ab", "ad"], ["abc"], "abad"),
    "the first of two": (["one. two"], ["two", "."], "one"),
    "at the start": (["xx"], ["x"], ""),
    "overlapping": (["a", "a", "b", "c"], ["aab", "ab"], ""),
    "none": (["abc"], [], "abc"),
    "empty": (["abc"], [""], "abc"),
}


@pytest.mark.parametrize("case", STOPS)
def test_texts_that_stop(case: str) -> None:
    pieces, stops, expected = STOPS[case]
    text = StopTexts(stops)
    found = ""
    for piece in pieces:
        if not text.is_stopped:
            found += text.add(piece)
    assert found + ("" if text.is_stopped else text.waiting) == expected


def test_tokens_that_are_kept() -> None:
    assert [kept([1, 2, 3], tokens, 1, True, 0) for tokens in ([1, 2, 3], [1, 2, 3, 4], [1, 5, 3], [9], [1])] == [
        2,
        3,
        1,
        0,
        0,
    ]
    assert (
        kept([], [1], 1, True, 0) == 0
        and kept([1, 2, 3, 4], [1, 2, 3, 4], 3, True, 0) == 1
        and kept([1], [1], 4, True, 0) == 0
    )


def no_cache() -> bytes:
    text = "g (int64[n, s] input_ids) => (float[n, s, 8] logits) { logits = OneHot (input_ids, depth, values) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}')
    for name, value in (("depth", np.array(8)), ("values", np.array([0, 1], np.float32))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model.SerializeToString()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no cache": (lambda: TextGenerator(no_cache()), "it has no caches"),
    "no logits": (lambda: TextGenerator(DECODER, logits="scores"), 'output "scores" does not exist'),
    "draft tokens": (lambda: TextGenerator(DECODER, draft_tokens=0), "draft_tokens is 0"),
    "setting": (lambda: TextGenerator(DECODER).generate([1], heat=1), 'the setting "heat" does not exist'),
    "temperature": (lambda: TextGenerator(DECODER).generate([1], temperature=-1), "temperature is -1"),
    "penalty": (lambda: TextGenerator(DECODER).generate([1], repetition_penalty=0), "repetition_penalty is 0"),
    "seed": (lambda: TextGenerator(DECODER).generate([1], seed="x"), "seed is 'x'"),
    "text": (lambda: TextGenerator(DECODER).generate("text"), "a text needs a tokenizer"),
    "stop": (lambda: TextGenerator(DECODER).generate([1], stop="."), "stop needs a tokenizer"),
    "not a number": (lambda: TextGenerator(DECODER).generate([1], top_p=float("nan")), "top_p is nan"),
    "top_k": (lambda: TextGenerator(DECODER).generate([1], top_k=2.5), "top_k is 2.5"),
    "stops": (lambda: TextGenerator(DECODER, TOKENIZER).generate("a", stop=[1]), "stop is [1]"),
    "no prompt": (lambda: TextGenerator(DECODER).generate(None), "prompt cannot be None"),
    "half a token": (lambda: TextGenerator(DECODER).generate([1, 2.5]), "prompt cannot be [1, 2.5]"),
    "count": (lambda: TextGenerator(DECODER).generate([1], max_tokens=-1), "max_tokens is -1"),
    "no tokens": (lambda: TextGenerator(DECODER).generate([]), "the prompt has no tokens"),
    "no input": (lambda: of_form("no mask", states=STATES), "the model has no input states"),
    "no name": (lambda: TextGenerator(DECODER).generate([5], inputs={1: 2}), "the model has no input 1"),
    "texts": (
        lambda: of_form("with an encoder", encoder_hidden_states=np.array(["a"])),
        '"encoder_hidden_states" cannot be',
    ),
    "ragged": (lambda: of_form("with an encoder", encoder_hidden_states=[[1], [2, 3]]), "cannot be [[1], [2, 3]]"),
    "no states": (lambda: of_form("with an encoder"), "the model has the inputs encoder_hidden_states"),
}


def of_form(form: str, **inputs: Any) -> TextGenerator:
    return TextGenerator(decoder(FORMS[form]).SerializeToString(), inputs=inputs)


HUGE = 10**5000  # more digits than Python prints
NO_NUMBERS: list[Any] = [-1, 2.5e308, -1e308, float("nan"), HUGE, -HUGE, True, np.bool_(True), "1", [1], np.eye(1)]
WRONG: dict[str, list[Any]] = {
    "max_tokens": [*NO_NUMBERS, 2.5, 2**31], "temperature": NO_NUMBERS, "top_k": [*NO_NUMBERS, 2.5, 2**63],
    "top_p": [*NO_NUMBERS, 1.5], "repetition_penalty": [*NO_NUMBERS, 0, 1e-320, 1e308],
    "num_beams": [*NO_NUMBERS, 0, 1.5, 1001], "length_penalty": [*NO_NUMBERS[1:], 1e308, -11],
    "seed": [*NO_NUMBERS[6:], 2.0, float("nan")], "early_stopping": [1, HUGE], "stop": [1, HUGE, b"a", False],
    "inputs": [1, [1]], "format": [HUGE, []],
}  # fmt: skip
PROMPTS: list[Any] = [
    [-1], [2**31], [2**70], [True], b"ab", [None], [["a"]], [[]], [[5], []], {"role": "user"}, "\ud800", np.array(5),
    [2.0],
]  # fmt: skip


def test_what_no_setting_can_be() -> None:
    writer = TextGenerator(DECODER, TOKENIZER)
    for name, values in WRONG.items():
        for value in values:
            with pytest.raises(InvalidInput, match=name):
                writer.generate([5, 7], **{"max_tokens": 2, name: value})
    for prompt in PROMPTS:
        with pytest.raises(InvalidInput):
            writer.generate(prompt, max_tokens=2)
    for more in ({"draft_tokens": HUGE}, {"draft_tokens": 10**9}, {"lookup": True}, {"stop_tokens": [-1]}):
        with pytest.raises(InvalidInput, match=next(iter(more))):
            TextGenerator(DECODER, TOKENIZER, **more)
    expected = writer.generate([5, 7], max_tokens=3).tokens
    for how in ({"temperature": 1e-320}, {"temperature": 1, "top_p": 0}, {"temperature": 1.0, "top_k": 1.0}):
        assert writer.generate([5, 7], max_tokens=3.0, **how).tokens == expected
    writer.generate([5, 7], max_tokens=1)
    list(writer.resume(2))
    assert writer.last.tokens == expected
    large = writer.generate([5, 7], max_tokens=3, temperature=9.0, seed=HUGE).tokens
    assert large == writer.generate([5, 7], max_tokens=3, temperature=9.0, seed=HUGE % 2147483646).tokens
    stop = TextGenerator(DECODER, stop_tokens=expected[1])
    assert stop.generate([5, 7], max_tokens=3).tokens == expected[:2]


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    work, text = REFUSED[case]
    with pytest.raises(InvalidInput) as error:
        work()
    assert text in str(error.value)


@pytest.mark.parametrize("positions", [1, 3, 9])
@pytest.mark.parametrize("settings", [(0.0, 0, 1.0), (0.8, 12, 0.9), (1.0, 0, 1.0)])
def test_sampled_positions(positions: int, settings: tuple[float, int, float]) -> None:
    """A token of each of the last positions, with a penalty for some, against the definition in NumPy."""
    text = "g (float[n, s, 50] x) => (float[n, s, 50] logits) { logits = Identity (x) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}').SerializeToString()
    session = InferenceSession(model, SessionOptions(sample_from="logits", sample_positions=positions))
    rng = np.random.default_rng(1)
    x = np.asarray(2 * rng.standard_normal((2, 5, 50)), np.float32)
    rows = min(positions, 5)
    random = rng.random((2, rows)).astype(np.float32)
    pairs = np.array([[row, token] for row in range(0, 2 * rows, 2) for token in (3, 7, 7, 20)])
    temperature, top_k, top_p = settings
    for repeated in (pairs, pairs[:0]):
        feeds = {
            "x": x, "temperature": np.float32(temperature), "top_k": np.int64(top_k), "top_p": np.float32(top_p),
            "random": random, "repetition_penalty": np.float32(1.5), "repeated": repeated,
        }  # fmt: skip
        found, best, scores = session.run(None, feeds)
        logits = x[:, -rows:].reshape(-1, 50).copy()
        for row, token in {(row, token) for row, token in repeated.tolist()}:
            logits[row, token] *= 1.5 if logits[row, token] < 0 else 1 / 1.5
        expected = [chosen(row, *settings, float(n)) for row, n in zip(logits, random.ravel(), strict=True)]
        assert found.shape == (2, rows) and found.ravel().tolist() == expected
        scaled = logits.astype(np.float64) / (temperature or 1e-6)
        shares = scaled - scaled.max(1, keepdims=True)
        shares -= np.log(np.exp(shares).sum(1, keepdims=True))
        assert best.tolist() == np.argsort(-logits, 1, "stable")[:, : top_k or 50].tolist()
        np.testing.assert_allclose(scores, np.take_along_axis(shares, best, 1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize("kind", ["text", "draft", "encoder"])
def test_a_generator_is_a_value(kind: str, way: str) -> None:
    """with sessions of its own, and without caches"""
    ways = {"pickle": lambda one: pickle.loads(pickle.dumps(one)), "copy": copy.copy, "deepcopy": copy.deepcopy}
    settings: dict[str, Any] = {"max_tokens": 8}
    prompt: Any = PROMPT
    if kind == "encoder":
        writer = families_opened("t5")
        settings["inputs"] = source("t5")
    else:
        writer = TextGenerator(DECODER, TOKENIZER, draft=DECODER if kind == "draft" else None)
        prompt, settings["format"] = "The executor", {"regex": "[a-z ]{3,9}"}
    expected = writer.generate(prompt, **settings)
    other = ways[way](writer)
    writer.release()
    found = other.generate(prompt, **settings)
    assert (found.tokens, found.text, found.drafted) == (expected.tokens, expected.text, expected.drafted)
    assert found.reused == 0 and other.stop_tokens == writer.stop_tokens
    other.release()
    with pytest.raises(SessionFailed):
        ways[way](other)
