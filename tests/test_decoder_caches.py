"""Caches of decoders: states, windows, names and element types, against the rule that the tokens follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kit.counting_decoders import cases, of_convolution, of_recurrence, of_sums, of_two_caches, of_window
from pyruntime import InvalidInput, TextGenerator
from pyruntime.runtime.batching import Declared
from pyruntime.runtime.decoder_caches import CachePairs

CASES = cases()
PROMPT = [5, 7, 9, 4]


@pytest.mark.parametrize("name", CASES)
def test_texts(name: str) -> None:
    """The same prompt twice, a text that goes on, one that goes back, and two prompts together."""
    case = CASES[name]
    writer = TextGenerator(case.model.SerializeToString())
    first = writer.generate(PROMPT, max_tokens=6).tokens
    prompts = [PROMPT, [*PROMPT, *first, 3], [*PROMPT, 8], [1]]
    found = [writer.generate(prompt, max_tokens=6).tokens for prompt in prompts]
    assert [first, *found] == [case.expected(prompt, 6) for prompt in [PROMPT, *prompts]]
    prompts = [PROMPT, PROMPT[::-1], [1]]
    together = writer.generate(prompts, max_tokens=6)
    assert [out.tokens for out in together] == [case.expected(prompt, 6) for prompt in prompts]


def test_a_state_that_the_caller_gives() -> None:
    """It is the state before the first token, of every text."""
    state = np.array([[[8, 2]]], np.float32)
    case = of_convolution()
    writer = TextGenerator(case.model.SerializeToString(), inputs={"past_conv.0": state})
    for _ in range(2):
        assert writer.generate(PROMPT, max_tokens=4).tokens == case.expected([8, 2, *PROMPT], 4)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a cache that the caller gives": (
        of_sums(), {"inputs": {"past_key_values.0.key": np.zeros((1, 1, 2, 1), np.float32)}}, "begins empty",
    ),
    "a draft for one token at a time": (of_sums(new=1, batch=1), {"draft": of_sums()}, "takes 1 token at a time"),
    "four tokens at a time": (of_sums(new=4), {}, "takes exactly 4 tokens at a time"),
    "a setting as an input": (of_sums(), {"inputs": {"temperature": np.float32(1)}}, "belongs to the settings of"),
    "a lookup for one token at a time": (of_sums(new=1, batch=1), {"lookup": 2}, "takes 1 token at a time"),
    "a draft and a lookup": (of_sums(), {"draft": of_sums(), "lookup": 2}, "both draft and lookup"),
    "no such pair": (of_sums(), {"caches": {"past_key_values.0.key": "logits"}}, "is no cache and the output"),
    "exchanged": (of_two_caches(("a.0", "b.0"), ("b.x", "a.x")), {}, "names do not tell which output continues"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    case, more, text = REFUSED[name]
    if "draft" in more:
        more = {**more, "draft": more["draft"].model.SerializeToString()}
    with pytest.raises(InvalidInput, match=text):
        TextGenerator(case.model.SerializeToString(), **more)


DRAFTS = {
    "of a model with a window": (of_window(), of_sums()),
    "of a model with a state": (of_convolution(), of_sums()),
    "by a model with a state": (of_sums(), of_convolution()),
    "that are right, with a state": (of_convolution(), of_convolution()),
    "that are right, with a window": (of_window(), of_window()),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_drafts_beside_states_and_windows(name: str) -> None:
    """What cannot lose tokens returns to its caches before the draft. The text stays the same."""
    case, draft = DRAFTS[name]
    writer = TextGenerator(case.model.SerializeToString(), draft=draft.model.SerializeToString())
    found = writer.generate([5, 7], max_tokens=30)
    assert found.tokens == case.expected([5, 7], 30) and found.drafted > 12
    assert (found.accepted == found.drafted) == name.startswith("that are right")
    again = [5, 7, *found.tokens[:9], 8]
    assert writer.generate(again, max_tokens=9).tokens == case.expected(again, 9)


@pytest.mark.parametrize("name", ["a state beside keys", "a window", "int8"])
def test_drafts_from_the_text(name: str) -> None:
    case = CASES[name]
    prompt = [5, 7, 9, 4, 5, 7, 9, 4, 5, 7]
    writer = TextGenerator(case.model.SerializeToString(), lookup=2)
    found = writer.generate(prompt, max_tokens=12)
    assert found.tokens == case.expected(prompt, 12) and found.drafted > 0


def test_caches_that_the_caller_pairs() -> None:
    names = ("a.0", "b.0"), ("b.x", "a.x")
    case = of_two_caches(*names)
    writer = TextGenerator(case.model.SerializeToString(), caches=dict(zip(*names, strict=True)))
    assert writer.generate(PROMPT, max_tokens=6).tokens == case.expected(PROMPT, 6)


def test_one_token_at_a_time_reads_the_prompt_by_tokens() -> None:
    case = of_recurrence()
    writer = TextGenerator(case.model.SerializeToString())
    runs: list[int] = []
    run = writer._model.session.run_with_ort_values

    def counted(*args: Any) -> Any:
        runs.append(1)
        return run(*args)

    writer._model.session.run_with_ort_values = counted  # type: ignore[method-assign]
    assert writer.generate(PROMPT, max_tokens=2).tokens == case.expected(PROMPT, 2)
    assert len(runs) == len(PROMPT) + 1


PAIRED = {
    "Optimum": ["past_key_values.{}.key", "past_key_values.{}.value", "present.{}.key", "present.{}.value"],
    "onnxruntime-genai": ["past_key_{}", "past_value_{}", "present_key_{}", "present_value_{}"],
    "sherpa-onnx": ["in_layer_self_k_{}", "in_layer_self_v_{}", "out_layer_self_k_{}", "out_layer_self_v_{}"],
    "two words": ["key_cache_{}", "value_cache_{}", "new_key_cache_{}", "new_value_cache_{}"],
    "capitals": ["keyIn{}", "valueIn{}", "keyOut{}", "valueOut{}"],
    "all capitals": ["KEY_IN_{}", "VALUE_IN_{}", "KEY_OUT_{}", "VALUE_OUT_{}"],
    "the number first": ["layers.{}.k.past", "layers.{}.v.past", "layers.{}.k.present", "layers.{}.v.present"],
    "states": ["cached_conv1_{}", "cached_conv2_{}", "new_cached_conv1_{}", "new_cached_conv2_{}"],
}  # fmt: skip


@pytest.mark.parametrize("form", PAIRED)
def test_pairs_by_name(form: str) -> None:
    """Twelve layers whose outputs are declared in the opposite order."""
    pasts = [name.format(n) for n in range(12) for name in PAIRED[form][:2]]
    presents = [name.format(n) for n in range(12) for name in PAIRED[form][2:]]
    dims: list[int | str | None] = ["batch", 4, "past", 8]
    later: list[int | str | None] = ["batch", 4, "total", 8]
    pairs = CachePairs(
        [Declared(x, dims) for x in pasts], [Declared(x, later) for x in presents[::-1]], "batch", [], []
    )
    assert pairs.refused == ""
    assert {x.past: x.present for x in pairs.caches} == dict(zip(pasts, presents, strict=True))
    assert {(x.batch, x.axis) for x in pairs.caches} == {(0, 2)}


@pytest.mark.parametrize("given", [[], ["states"]])
def test_an_input_that_the_caller_gives_is_no_cache(given: list[str]) -> None:
    """An encoder's states have the rank of caches without names. Who gives them gets caches in the order of
    declaration; else the counts differ, and nothing is paired."""
    dims: list[int | str | None] = ["batch", "past", 8]
    inputs = [Declared("states", ["batch", "source", 8]), Declared("a", dims), Declared("b", dims)]
    outputs = [Declared(name, ["batch", "total", 8]) for name in ("c", "d")]
    pairs = CachePairs(inputs, outputs, "batch", given, [])
    assert [(x.past, x.present) for x in pairs.caches] == ([("a", "c"), ("b", "d")] if given else [])


def test_keys_of_an_encoder_of_fixed_size() -> None:
    """Each run returns them, so they are a state."""
    dims: list[int | str | None] = [1, 2, 1500, 8]
    names = ("past_key_values.0.encoder.key", "present.0.encoder.key")
    (cache,) = CachePairs([Declared(names[0], dims)], [Declared(names[1], dims)], 1, [], []).caches
    assert cache.axis == -1 and not cache.of_encoder
