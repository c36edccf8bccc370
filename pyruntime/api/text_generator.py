"""Writes text with a decoder: streaming, sampling, a KV cache that stays between turns, a draft model. Twin of
web/extras/text_generator.js and web/extras/written_together.js."""

from __future__ import annotations

import copy
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from pyruntime.api.decoder import Arrays, Decoder, Sampling
from pyruntime.api.options import SessionOptions
from pyruntime.api.session import InferenceSession
from pyruntime.errors import InvalidInput, NotSupported
from pyruntime.runtime.generation import (
    Random,
    StopTexts,
    TextStream,
    agreed,
    kept,
    left_padded,
    not_together,
    penalised_last,
)

Model = str | os.PathLike[str] | bytes
Prompt = str | Sequence[int]


@dataclass(slots=True)
class Generated:
    """What was written.

    text: without the prompt; "" without a tokenizer
    reason: why it ended: "length" (max_tokens), "token" (one of stop_tokens) or "text" (one of stop)
    reused: tokens of the prompt that were in the cache
    first, seconds: until the first token, and in all
    drafted, accepted: tokens of the draft model, and those that the model agreed with
    """

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: str = "length"
    reused: int = 0
    first: float = 0.0
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0


class TextGenerator:
    """A decoder that writes text.

    model: an ONNX decoder with a KV cache, as exporters write it: its inputs and caches are found by name and shape
    tokenizer: the path of a tokenizer.json, or an object with `encode(text).ids` and `decode(ids)`; without one,
        prompts are tokens
    draft: a smaller decoder with the same tokens, which proposes `draft_tokens` tokens at a time; the model checks them
        in one run. The result does not change.
    logits: name of the output
    inputs: arrays for inputs besides those of a text, for example an encoder's states
    options, providers: of the sessions
    stop_tokens: tokens that end a text; by default the tokenizer's special tokens
    Errors: InvalidInput for a model that cannot generate; those of a session.
    """

    def __init__(
        self, model: Model, tokenizer: Any = None, *, draft: Model | None = None, draft_tokens: int = 4,
        logits: str = "logits", inputs: Arrays | None = None, options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None, stop_tokens: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        if draft_tokens < 1:
            raise InvalidInput(f"draft_tokens is {draft_tokens}", hint="it must be 1 or more")
        self.tokenizer = _tokenizer(tokenizer)
        self.last = Generated()
        self.draft_tokens = draft_tokens if draft is not None else 0
        self.stop_tokens = set(_special(self.tokenizer) if stop_tokens is None else stop_tokens)

        def opened(source: Model, positions: int) -> Decoder:
            own = SessionOptions() if options is None else copy.deepcopy(options)
            own.sample_from, own.sample_positions = logits, positions
            return Decoder(InferenceSession(source, own, providers), inputs or {})

        self._model = opened(model, self.draft_tokens + 1)
        self._draft = None if draft is None else opened(draft, 1)

    def generate(self, prompt: Prompt | Sequence[Prompt], **settings: Any) -> Any:
        """What follows the prompt: `Generated`; for a list of prompts, which are computed together, a list of them.

        The settings are those of `stream`. Errors: InvalidInput for settings that do not fit."""
        if (
            isinstance(prompt, str)
            or not isinstance(prompt, Iterable)
            or not len(prompt)
            or isinstance(prompt[0], Integral)
        ):
            for _ in self.stream(prompt, **settings):  # type: ignore[arg-type]
                pass
            return self.last
        return self._together(prompt, **settings)  # type: ignore[arg-type]

    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[str]:
        """The text that follows the prompt, piece by piece; `last` has what is written so far. Ends early if the caller
        stops to iterate.

        max_tokens: 256 by default
        temperature: 0 (the default) takes the likeliest token
        top_k, top_p: sample from the top_k likeliest tokens, and from the fewest that have top_p of the probability
        repetition_penalty: divides positive scores, and multiplies others, of tokens that are there already
        seed: of the random numbers; the same text in every language. By default another each time
        stop: texts before which the result ends
        """
        self.last = Generated()
        return (piece for piece in self._written(prompt, self.last, **settings) if piece)

    def reset(self) -> None:
        """Forget the tokens of earlier calls, and free their caches."""
        for decoder in self._decoders():
            decoder.restart()

    def release(self) -> None:
        """Free the sessions."""
        self.reset()
        for decoder in self._decoders():
            decoder.session.release()

    def _decoders(self) -> list[Decoder]:
        return [self._model] if self._draft is None else [self._model, self._draft]

    # ── one text ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _written(
        self, prompt: Prompt, out: Generated, max_tokens: int = 256, seed: int | None = None,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> Iterator[str]:  # fmt: skip
        how, numbers, tokens = _sampling(sampling), _Numbers(seed), self._encoded(prompt)
        text, most = self._text(out, stop, tokens), _count(max_tokens)
        out.reused = kept(self._model.cached, tokens, 1)
        while len(out.tokens) < most and not text.is_ended:
            for token in self._next(tokens + out.tokens, most - len(out.tokens), how, numbers, out):
                yield text.add(token)
                if text.is_ended:
                    break
        yield text.end()

    def _next(
        self, tokens: list[int], most: int, how: Sampling, numbers: _Numbers, out: Generated
    ) -> list[int]:  # fmt: skip
        """The next tokens: one, or with a draft those that the model agrees with, and one more. A place in the text has
        its random number, so that the draft does not change the result."""
        place, drafted = len(out.tokens), list[int]()
        if self._draft is not None:
            for n in range(min(self.draft_tokens, most - 1)):
                drafted += self._draft.sample(tokens + drafted, 1, how, numbers.at(place + n, 1))
        count = len(drafted) + 1
        found = self._model.sample(tokens + drafted, count, how, numbers.at(place, count))
        good = agreed(drafted, found)
        out.drafted += len(drafted)
        out.accepted += good
        return found[: good + 1]

    def _text(self, out: Generated, stop: str | Sequence[str], prompt: list[int]) -> _Text:
        stops = [stop] if isinstance(stop, str) else list(stop or ())
        if not all(isinstance(one, str) for one in stops):
            raise InvalidInput(f"stop is {stop!r}", hint="a text or a list of texts is expected")
        if stops and self.tokenizer is None:
            raise InvalidInput("stop needs a tokenizer", hint="stop_tokens end a text without one")
        return _Text(out, TextStream(self._decoded, prompt), StopTexts(stops), self.stop_tokens)

    def _encoded(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InvalidInput("a text needs a tokenizer", hint="TextGenerator(model, tokenizer), or give tokens")
            found = self.tokenizer.encode(prompt)
            prompt = getattr(found, "ids", found)
        if not isinstance(prompt, Iterable) or not all(isinstance(token, Integral) for token in prompt):
            raise InvalidInput(f"the prompt is {type(prompt).__name__}", hint="a text or a list of tokens is expected")
        if not len(prompt):
            raise InvalidInput("the prompt has no tokens", hint="begin with the model's start token")
        return [int(token) for token in prompt]

    def _decoded(self, tokens: list[int]) -> str:
        return "" if self.tokenizer is None else str(self.tokenizer.decode(tokens))

    # ── several texts ────────────────────────────────────────────────────────────────────────────────────────────

    def _together(
        self, prompts: Sequence[Prompt], max_tokens: int = 256, seed: int | None = None,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> list[Generated]:  # fmt: skip
        """Prompts of different lengths are padded on the left, which a mask hides. The draft is not used."""
        how, numbers = _sampling(sampling), _Numbers(seed)
        begun = [self._encoded(prompt) for prompt in prompts]
        if refused := not_together(self._model.layout, begun):
            raise InvalidInput(refused, hint="generate one prompt after the other")
        texts = [self._text(Generated(), stop, tokens) for tokens in begun]
        fresh, mask = left_padded(begun), left_padded([[1] * len(tokens) for tokens in begun])
        try:
            self._model.start(len(prompts))
            for n in range(_count(max_tokens)):
                rows = min(self._model.layout.positions, len(fresh[0]))
                random = np.zeros((len(prompts), rows), np.float32)
                random[:, -1] = numbers.at(n * len(prompts), len(prompts))
                written = [tokens + text.out.tokens for tokens, text in zip(begun, texts, strict=True)]
                pairs = penalised_last(rows, written) if how.repetition_penalty != 1 else []
                repeated = np.array(pairs, np.int64).reshape(-1, 2)
                feeds = {**self._model.text_feeds(fresh, mask), **how.feeds(), "random": random, "repeated": repeated}
                fresh = self._model.run(feeds)[:, -1:].tolist()
                for text, (token,) in zip(texts, fresh, strict=True):
                    if not text.is_ended:
                        text.add(token)
                if all(text.is_ended for text in texts):
                    break
                mask = [[*row, 1] for row in mask]
        finally:
            self._model.restart()
        for text in texts:
            text.end()
        return [text.out for text in texts]


class _Text:
    """A text that grows by tokens, up to a stop."""

    def __init__(self, out: Generated, stream: TextStream, stops: StopTexts, stop_tokens: set[int]) -> None:
        self.out, self.stream, self.stops, self.stop_tokens = out, stream, stops, stop_tokens
        self.is_ended = False
        self._start = time.perf_counter()

    def add(self, token: int) -> str:
        """The text that is certain now."""
        out = self.out
        out.tokens.append(token)
        out.seconds = time.perf_counter() - self._start
        out.first = out.first or out.seconds
        if token in self.stop_tokens:
            out.reason, self.is_ended = "token", True
            return ""
        return self._told(self.stream.add(token))

    def end(self) -> str:
        """The rest of the text."""
        if self.stops.is_stopped:
            return ""
        rest = self._told(self.stream.rest())
        if not self.stops.is_stopped:
            self.out.text += self.stops.waiting
            rest += self.stops.waiting
        return rest

    def _told(self, text: str) -> str:
        piece = self.stops.add(text)
        self.out.text += piece
        if self.stops.is_stopped:
            self.out.reason, self.is_ended = "text", True
        return piece


class _Numbers:
    """Random numbers by place."""

    def __init__(self, seed: int | None) -> None:
        if seed is not None and not isinstance(seed, Integral):
            raise InvalidInput(f"seed is {seed!r}", hint="an integer is expected")
        self._random = Random(secrets.randbits(31) if seed is None else int(seed))
        self._made: list[float] = []

    def at(self, start: int, count: int) -> list[float]:
        while len(self._made) < start + count:
            self._made.append(self._random.next())
        return self._made[start : start + count]


def _count(max_tokens: Any) -> int:
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, Integral) or max_tokens < 0:
        raise InvalidInput(f"max_tokens is {max_tokens!r}", hint="an integer from 0 on is expected")
    return int(max_tokens)


def _sampling(given: dict[str, Any]) -> Sampling:
    known = [field.name for field in fields(Sampling)]
    for name, value in given.items():
        if name not in known:
            raise InvalidInput(f'the setting "{name}" does not exist', hint=f"there are {', '.join(known)}")
        kind, what = (Integral, "an integer") if name == "top_k" else (Real, "a number")
        if isinstance(value, bool) or not isinstance(value, kind) or not float(value) >= 0:
            raise InvalidInput(f"{name} is {value!r}", hint=f"{what} from 0 on is expected")
    found = Sampling(**given)
    if found.repetition_penalty == 0:
        raise InvalidInput("repetition_penalty is 0", hint="1 changes nothing, 1.1 avoids repetition")
    return found


def _tokenizer(tokenizer: Any) -> Any:
    if not isinstance(tokenizer, (str, os.PathLike)):
        return tokenizer
    try:
        from tokenizers import Tokenizer
    except ImportError as e:
        raise NotSupported("the package tokenizers is not installed", hint="pip install tokenizers") from e
    return Tokenizer.from_file(os.fspath(tokenizer))


def _special(tokenizer: Any) -> list[int]:
    """The special tokens of a tokenizer of the packages tokenizers and transformers."""
    added: dict[int, Any] = getattr(tokenizer, "get_added_tokens_decoder", dict)()
    return [*(token for token, one in added.items() if one.special), *getattr(tokenizer, "all_special_ids", ())]
