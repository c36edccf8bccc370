"""Sequences of calls of generators of text, whose decoders have rules in Python (kit/counting_decoders.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, rule

from fuzz.sequences.machine import GPU_FAULTS, PROVIDERS, Machine, together
from kit import counting_decoders
from kit.counting_decoders import Case
from pyruntime import SessionOptions, TextGenerator
from pyruntime.errors import InvalidInput, SessionFailed

DECODERS = {
    "sums": counting_decoders.of_sums,
    "halves": lambda: counting_decoders.of_sums(counting_decoders.TensorProto.FLOAT16),
    "convolution": counting_decoders.of_convolution,
    "window": counting_decoders.of_window,
    "recurrence": counting_decoders.of_recurrence,
    "static": lambda: counting_decoders.with_layer("static caches"),
    "two caches": lambda: counting_decoders.of_two_caches(("a", "b"), ("c", "d")),
    "state": lambda: counting_decoders.with_layer("states"),
}
FIRST = 0x4E00  # the character of token 0


@cache
def _case(name: str) -> Case:
    return DECODERS[name]()


@cache
def _model(name: str) -> bytes:
    return _case(name).model.SerializeToString()


class Tokenizer:
    """A character for each token."""

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[ord(one) - FIRST for one in text])

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(FIRST + token) for token in tokens)


def text_of(tokens: list[int]) -> str:
    return Tokenizer().decode(tokens)


@dataclass(eq=False)
class Opened:
    """draft: decoder of the draft, or ""; streams: that can go on, with what they have to give"""

    writer: TextGenerator
    decoder: str
    providers: str
    draft: str = ""
    streams: list[tuple[Iterator[str], str]] = field(default_factory=list, repr=False)
    is_released: bool = False

    def __repr__(self) -> str:
        return f"<{self.decoder} on {self.providers}, draft {self.draft}>"


PROMPTS = st.lists(st.integers(1, 9), min_size=1, max_size=7)
COUNTS = st.integers(1, 8)
# Ways of sampling by which the likeliest token wins: all others are less likely by e^100
SETTINGS = st.sampled_from([{}, {}, {"temperature": 0.01, "seed": 3}, {"temperature": 0.01, "top_k": 5, "top_p": 0.9},
                            {"repetition_penalty": 1.1}, {"temperature": None, "stop": None}])  # fmt: skip


class TextMachine(Machine):
    writers = Bundle("writers")

    def __init__(self) -> None:
        super().__init__()
        self.held_writers: list[Opened] = []

    def release_all(self) -> None:
        for one in self.held_writers:
            one.streams.clear()
            one.writer.release()
            del one.writer

    # ── opening and releasing ──

    @initialize(target=writers, decoder=st.sampled_from([*DECODERS]), providers=st.sampled_from([*PROVIDERS]))
    def first(self, decoder: str, providers: str) -> Opened:
        return self.open(decoder, providers, "")

    @rule(
        target=writers, decoder=st.sampled_from([*DECODERS]), providers=st.sampled_from([*PROVIDERS]),
        draft=st.sampled_from(["", "", "sums", "two caches", "state"]),
    )  # fmt: skip
    def open(self, decoder: str, providers: str, draft: str) -> Opened:
        """Decoders with states can have no draft. A draft may have another rule: the model decides."""
        draft = draft if decoder in ("sums", "halves", "two caches") else ""

        def opened() -> TextGenerator:
            model = None if not draft else _model(draft)
            return TextGenerator(
                _model(decoder), Tokenizer(), draft=model, draft_tokens=3, options=SessionOptions(),
                providers=PROVIDERS[providers], stop_tokens=[],
            )  # fmt: skip

        allowed = [*(GPU_FAULTS if self.fault and providers == "webgpu" else ()), *self.limits()]
        if draft == "state":
            allowed.append(InvalidInput)
        writer, error = self.attempt(f"open {decoder} {providers} {draft}", opened, *allowed)
        self.end_fault()
        if error is not None:
            self.unlimit()
            draft = ""
            writer, _ = self.attempt("open again", opened)
        made = Opened(writer, decoder, providers, draft)
        self.held_writers.append(made)
        return made

    @rule(one=writers)
    def release(self, one: Opened) -> None:
        self.attempt("release", one.writer.release)
        one.is_released = True
        self.end_fault()

    def errors(self, one: Opened) -> tuple[type[Exception], ...]:
        """What a call that is right may raise."""
        found: list[type[Exception]] = [SessionFailed] if one.is_released else []
        found += self.limits()
        if self.fault and one.providers == "webgpu":
            found += GPU_FAULTS
        return tuple(found)

    # ── texts ──

    @rule(one=writers, prompt=PROMPTS, count=COUNTS, settings=SETTINGS, is_text=st.booleans())
    def generate(self, one: Opened, prompt: list[int], count: int, settings: dict[str, Any], is_text: bool) -> None:
        right = _case(one.decoder).expected(prompt, count)
        given = text_of(prompt) if is_text else prompt
        found, error = self.attempt(
            "generate", lambda: one.writer.generate(given, max_tokens=count, **settings), *self.errors(one)
        )
        self.end_fault()
        assert error is not None or not one.is_released, "a released generator has written"
        if error is None:
            assert found.tokens == right and found.text == text_of(right), (found.tokens, right)

    @rule(one=writers, prompt=PROMPTS, count=COUNTS, at=st.integers(0, 7))
    def stop_at_text(self, one: Opened, prompt: list[int], count: int, at: int) -> None:
        right = text_of(_case(one.decoder).expected(prompt, count))
        end = right[at % len(right)]
        found, error = self.attempt(
            "stop at a text", lambda: one.writer.generate(prompt, max_tokens=count, stop=end), *self.errors(one)
        )
        self.end_fault()
        if error is None:
            assert (found.text, found.reason) == (right[: right.index(end)], "text"), (found, right)

    @rule(one=writers, prompt=PROMPTS, count=COUNTS, pieces=st.integers(0, 8),
          end=st.sampled_from(["drop", "close", "keep"]))  # fmt: skip
    def stream(self, one: Opened, prompt: list[int], count: int, pieces: int, end: str) -> None:
        """Read some pieces of a text, then abandon it, or go on with it later."""
        right = text_of(_case(one.decoder).expected(prompt, count))
        made: list[Iterator[str]] = []

        def read() -> str:
            made.append(one.writer.stream(prompt, max_tokens=count))
            return "".join(islice(made[0], pieces))

        found, error = self.attempt("stream", read, *self.errors(one))
        self.end_fault()
        if error is None:
            assert right.startswith(found), (found, right)
            if end == "keep" and pieces:
                one.streams.append((made[0], right[len(found) :]))
            elif end == "close":
                made[0].close()  # type: ignore[attr-defined]

    @rule(one=writers)
    def go_on(self, one: Opened) -> None:
        """Go on with a stream, beside which other texts were written."""
        if not one.streams:
            return
        stream, rest = one.streams.pop(0)
        found, _ = self.attempt("go on", lambda: "".join(stream), *self.errors(one))
        self.end_fault()
        assert found is None or rest == found, (found, rest)

    @rule(one=writers, prompts=st.lists(PROMPTS, min_size=1, max_size=3), count=COUNTS)
    def at_the_same_time(self, one: Opened, prompts: list[list[int]], count: int) -> None:
        """Several prompts in one call."""
        right = [_case(one.decoder).expected(prompt, count) for prompt in prompts]
        found, error = self.attempt(
            "generate together", lambda: one.writer.generate(prompts, max_tokens=count), *self.errors(one)
        )
        self.end_fault()
        if error is None:
            assert [x.tokens for x in found] == right, ([x.tokens for x in found], right)

    @rule(one=writers, prompts=st.lists(PROMPTS, min_size=2, max_size=3), count=COUNTS,
          beside=st.sampled_from(["", "", "reset", "trim", "release"]))  # fmt: skip
    def threads(self, one: Opened, prompts: list[list[int]], count: int, beside: str) -> None:
        """Texts on threads of their own. beside: what another thread does meanwhile"""
        right = [_case(one.decoder).expected(prompt, count) for prompt in prompts]
        writer = one.writer
        jobs = [lambda prompt=prompt: writer.generate(prompt, max_tokens=count).tokens for prompt in prompts]
        acts = {"reset": writer.reset, "release": writer.release, "trim": writer._model.session.trim}
        one.is_released = one.is_released or beside == "release"
        errors = self.errors(one)
        found, _ = self.attempt(
            f"{len(jobs)} at once {beside}", lambda: together([*jobs, *([acts[beside]] if beside else [])])
        )
        self.end_fault()
        for tokens, wanted in zip(found, right, strict=False):
            if isinstance(tokens, Exception):
                assert isinstance(tokens, errors), f"{tokens!r}"
            else:
                assert tokens == wanted, (tokens, wanted)

    # ── other calls ──

    @rule(one=writers, act=st.sampled_from(["reset", "trim", "last", "trim of the draft"]))
    def other(self, one: Opened, act: str) -> None:
        draft = one.writer._draft
        acts = {
            "reset": one.writer.reset, "last": lambda: one.writer.last, "trim": one.writer._model.session.trim,
            "trim of the draft": lambda: draft and draft.session.trim(),
        }  # fmt: skip
        self.attempt(act, acts[act], *self.errors(one))
        self.end_fault()

    @rule(one=writers, kind=st.sampled_from(["no tokens", "setting", "number", "token", "prompt", "stop"]))
    def wrong(self, one: Opened, kind: str) -> None:
        calls: dict[str, Any] = {
            "no tokens": lambda: one.writer.generate([]),
            "setting": lambda: one.writer.generate([1], none=1),
            "number": lambda: one.writer.generate([1], max_tokens=-1),
            "token": lambda: one.writer.generate([1, "a"]),
            "prompt": lambda: one.writer.generate(5),
            "stop": lambda: one.writer.generate([1], stop=5),
        }
        self.refused(f"wrong {kind}", calls[kind], InvalidInput, *self.errors(one))
        self.end_fault()
