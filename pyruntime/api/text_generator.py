"""Writes text with a decoder: streaming, sampling, a KV cache that stays between turns, a draft model.
`pyruntime/runtime/writing.py` decides what runs."""

from __future__ import annotations

import copy
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from pyruntime.api.chat_template import Messages
from pyruntime.api.decoder import Arrays, Decoder, Encoder
from pyruntime.api.options import SessionOptions
from pyruntime.api.session import InferenceSession
from pyruntime.api.text_batch import NativeBatch, finished
from pyruntime.api.text_file import read, write
from pyruntime.api.text_format import Formats
from pyruntime.api.text_prompts import Prompts, are_prompts
from pyruntime.api.text_settings import Generated, Settings, generated, number, numbers, row_of, sampling
from pyruntime.arguments import checks_arguments
from pyruntime.errors import InvalidInput, file_bytes
from pyruntime.native.sessions.program_file import is_program
from pyruntime.runtime.beams import BeamWriter, refused_beams
from pyruntime.runtime.decoder import Packed
from pyruntime.runtime.saved_text import DRAFT, NOTHING, NOTHING_HINT, SavedText
from pyruntime.runtime.text_batch import Chat, close
from pyruntime.runtime.writing import SHORTER, Numbers, Sampling, Text, Writer, refused_length

Model = str | os.PathLike[str] | bytes
Prompt = str | Sequence[int] | Messages


@checks_arguments()
class TextGenerator:
    """A decoder that writes texts. Those that are written at the same time, by threads or by streams that take turns,
    share the runs of the model.

    model: an ONNX decoder with a KV cache, as exporters write it: its inputs and caches are found by name and shape; or
        a GGUF file
    tokenizer: the path of a tokenizer.json or of a GGUF file, or an object with `encode(text).ids` and `decode(ids)`;
        by default the one in the model, if it is a GGUF file; without one, prompts are tokens
    chat_template: the Jinja text that writes messages as one text, or the path of a chat_template.jinja or of a
        tokenizer_config.json; by default the one in the GGUF file, beside tokenizer.json, or of the tokenizer object
    draft: a smaller decoder with the same tokens, which proposes `draft_tokens` tokens at a time; the model checks them
        in one run. The result does not change.
    lookup: in place of a draft: proposes what followed the last `lookup` tokens where they stood before (n-grams)
    logits: name of the output
    adapters: weights by names of adapters in the options; the model's runs use them
    inputs: arrays for inputs besides those of a text, for example an encoder's states
    encoder: the model whose outputs some of these inputs are; each text's `inputs` are its own
    caches: inputs that are caches, with the outputs that continue them, where names do not tell
    options, providers: of the sessions
    stop_tokens: a token or tokens that end a text; by default the tokenizer's special tokens
    Errors: InvalidInput for a model that cannot generate; those of a session.
    """

    def __init__(
        self, model: Model, tokenizer: Any = None, *, draft: Model | None = None, draft_tokens: int = 4,
        lookup: int = 0, logits: str = "logits", adapters: Mapping[str, float] | None = None,
        inputs: Arrays | None = None, encoder: Model | None = None, caches: Mapping[str, str] | None = None,
        options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
        stop_tokens: int | Sequence[int] | None = None, chat_template: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        draft_tokens, lookup = number("draft_tokens", draft_tokens), number("lookup", lookup)
        if lookup and draft is not None:
            raise InvalidInput("both draft and lookup propose tokens", hint="give one of them")
        self._prompts = Prompts(model, tokenizer, chat_template, stop_tokens)
        self.tokenizer, self.stop_tokens = self._prompts.tokenizer, self._prompts.stop_tokens
        self.draft_tokens = draft_tokens if draft is not None or lookup else 0
        self.lookup = lookup

        def opened(source: Model, positions: int, files: Mapping[str, Any]) -> InferenceSession:
            own = SessionOptions() if options is None else copy.copy(options)
            own.adapters = files
            if not is_program(source):  # which samples what it was exported for
                own.sample_from, own.sample_positions, own.sample_masks = logits, positions, True
            return InferenceSession(source, own, providers)

        session = opened(model, self.draft_tokens + 1, {} if options is None else options.adapters)
        self._encoder = None if encoder is None else Encoder(InferenceSession(encoder, options, providers), session)
        given = {**dict.fromkeys(() if self._encoder is None else self._encoder.given), **(inputs or {})}
        self._model = Decoder(session, given, adapters or {}, caches or {})
        self._draft = None if draft is None else Decoder(opened(draft, 1, {}), given)
        self._begin()
        if self.draft_tokens:
            self._check_draft()

    def _begin(self) -> None:
        """What a copy has of its own."""
        self._newest: Settings | None = None  # of the newest call
        self._batch = NativeBatch(self._decoders())
        self._formats = Formats(self.tokenizer, self.stop_tokens, self._model.layout.words)

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: no texts, and no caches. Errors: those of its sessions"""
        return {name: x for name, x in self.__dict__.items() if name not in ("_newest", "_batch", "_formats")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __copy__(self) -> TextGenerator:
        return copy.deepcopy(self)  # with sessions of its own

    def generate(self, prompt: Prompt | Sequence[Prompt], **settings: Any) -> Any:
        """What follows the prompt: `Generated`; for a list of prompts, which are written together, a list of them. The
        seed of each is one more than that of the one before.

        A prompt is a text, tokens, or the messages of a chat, `[{"role": "user", "content": "Hello"}]`.

        The settings are those of `stream`. Errors: InvalidInput for settings that do not fit."""
        are_several = are_prompts(prompt)
        found = self._whole(self._read(settings, prompt if are_several else [prompt]))  # type: ignore[arg-type,list-item]
        return found if are_several else found[0]

    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[str]:
        """The text that follows the prompt, piece by piece; `last` has what is written so far. Ends early if the caller
        stops to iterate.

        max_tokens: 256 by default; fewer where the model can read no more, as a GGUF file says
        temperature: 0 (the default) takes the likeliest token
        top_k, top_p: sample from the top_k likeliest tokens, and from the fewest that have top_p of the probability
        repetition_penalty: divides positive scores, and multiplies others, of tokens that are there already
        seed: of the random numbers; the same text in every language. By default another each time
        stop: texts before which the result ends
        num_beams: the likeliest of so many texts that are written side by side (beam search), 1 by default: in
            `generate` alone. length_penalty: the power of its length by which a text's log probability is divided, 1 by
            default; early_stopping: end once num_beams texts have ended
        format: {"schema": of JSON}, {"regex": …} or {"grammar": in GBNF} to which the text is bound; it is
            complete if its reason is "format"
        inputs: arrays for the encoder's inputs, or in place of some of the generator's `inputs`; without it the last
            ones hold, and their caches are used again
        """
        return self._pieces(self._read(settings, [prompt]))

    def apply_chat_template(
        self, messages: Messages, *, tools: Sequence[Any] | None = None, add_generation_prompt: bool = True,
        tokenize: bool = True, **variables: Any,
    ) -> Any:  # fmt: skip
        """The messages of a chat as tokens, or as a text if `tokenize` is False, by the model's chat template.

        messages: `{"role": …, "content": …}`; tools: functions that the model may call, as JSON schemas
        add_generation_prompt: end with the beginning of an answer; variables: others that the template knows
        Errors: InvalidInput where there is no template, or it refuses the messages
        """
        return self._prompts.render(
            messages, tools, tokenize=tokenize, add_generation_prompt=add_generation_prompt, **variables
        )

    def resume(self, max_tokens: int | None = None) -> Iterator[str]:
        """Go on with the newest text where it stopped, piece by piece: the caller ended the iteration, max_tokens were
        written, or `restore` opened it. `last` has the whole text. max_tokens: further tokens; by default those that
        were left. Errors: InvalidInput if there is no such text."""
        more = None if max_tokens is None else number("max_tokens", max_tokens)
        text, before = self._single()
        again = self._prompts.text(text.stops(), text.prompt, before.form())
        again.grow(text.tokens)
        most = before.most if more is None else len(again.tokens) + more
        return self._pieces(Settings([again], before.how, before.numbers, most, before.form, None, before.format))

    def save(self) -> bytes:
        """The newest text, its settings and caches, for `restore` in this or another process, also in a page.

        Errors: InvalidInput if there is no single text."""
        text, settings = self._single()

        async def packed() -> list[Packed]:
            await self._batch.use_alone(text)
            return [await decoder.pack() for decoder in self._decoders()]

        decoders: list[Packed] = finished(self._batch.turn(packed))
        seed, found = settings.numbers.seed, [one.saved for one in decoders]
        saved = SavedText(
            text.prompt, text.tokens, text.stops(), seed, settings.most, settings.how, found, settings.format
        )
        return write(saved, [part for one in decoders for part in one.parts])

    def restore(self, saved: bytes | str | os.PathLike[str]) -> None:
        """Continue with a text that `save` returned: bytes, or the path of a file with them. `resume` writes more of
        it; a prompt that begins like it reuses its caches.

        Errors: InvalidInput for the file of another model or version, and for one that is damaged or cut off; the
        generator stays as it was."""
        found, body = read(file_bytes(saved) if isinstance(saved, (str, os.PathLike)) else saved)
        decoders = self._decoders()
        if len(found.decoders) != len(decoders):
            count = len(found.decoders)
            raise InvalidInput(
                f"the text was saved by {count} decoders, this generator has {len(decoders)}", hint=DRAFT
            )
        form = self._formats.read(found.format)
        text = self._prompts.text(found.stops, found.prompt, form())
        text.grow(found.tokens)

        async def restored() -> None:
            await self._batch.enter(None)
            caches = [await decoder.read(one, body) for decoder, one in zip(decoders, found.decoders, strict=True)]
            for decoder, one, pasts in zip(decoders, found.decoders, caches, strict=True):
                decoder.restore(one.cached, pasts)
            self._batch.held = text
            self._newest = Settings([text], found.how, Numbers(found.seed), found.most, form, None, found.format)

        finished(self._batch.turn(restored))

    def reset(self) -> None:
        """Forget the tokens of earlier calls, and free their caches."""

        async def forget() -> None:
            await self._batch.enter(None)
            self._batch.restart()

        finished(self._batch.turn(forget))

    def release(self) -> None:
        """Free the sessions, once no other thread runs the model."""
        self.reset()
        for decoder in self._decoders():
            decoder.session.release()
        if self._encoder is not None:
            self._encoder.session.release()

    def _decoders(self) -> list[Decoder]:
        return [self._model] if self._draft is None else [self._model, self._draft]

    def _check_draft(self) -> None:
        refused = self._model.layout.no_draft(self.draft_tokens + 1)
        if self._model.layout.positions <= self.draft_tokens:
            refused = f"the Program samples {self._model.layout.positions} positions, not {self.draft_tokens + 1}"
        if refused:
            raise InvalidInput(f"a draft does not fit: {refused}", hint="generate without draft")

    @property
    def last(self) -> Generated:
        """What the newest call has written so far."""
        return generated(self._newest.texts[0]) if self._newest else Generated()

    def _read(self, settings: dict[str, Any], prompts: Sequence[Prompt]) -> Settings:
        """Errors: InvalidInput"""
        settings = {name: value for name, value in settings.items() if value is not None}
        most, stop = settings.pop("max_tokens", 256), settings.pop("stop", ())
        inputs, form = settings.pop("inputs", None), settings.pop("format", None)
        if inputs is not None and not isinstance(inputs, Mapping):
            raise InvalidInput(f"inputs is {type(inputs).__name__}", hint="a dict of arrays by name")
        drawn, most = numbers(settings.pop("seed", None)), number("max_tokens", most)
        how = sampling(settings)
        begin = self._formats.read(form)
        begun = [self._prompts.encoded(prompt) for prompt in prompts]
        texts = [self._prompts.text(stop, tokens, begin()) for tokens in begun]
        return Settings(texts, how, drawn, most, begin, inputs, form)

    def _give(self, inputs: Arrays | None) -> None:
        """Errors: InvalidInput for other inputs than the model has, and if it needs more"""
        if inputs is not None:
            arrays = inputs if self._encoder is None else self._encoder.run(inputs)
            for decoder in self._decoders():
                decoder.give({name: x for name, x in arrays.items() if decoder is self._model or name in decoder.names})
        elif missing := self._model.missing():
            raise InvalidInput(f"the model needs {', '.join(missing)}", hint="inputs={name: array} of a text gives it")

    def _single(self) -> tuple[Text, Settings]:
        """The newest text, unless there are several."""
        if self._newest is None or len(self._newest.texts) != 1 or self._newest.how.num_beams > 1:
            raise InvalidInput(NOTHING, hint=NOTHING_HINT)
        return self._newest.texts[0], self._newest

    def _begun(self, settings: Settings, is_whole: bool) -> list[Chat]:
        """Add the texts to those that are being written."""
        chats: list[Chat] = []
        for n, text in enumerate(settings.texts):
            begin = self._begin_with(row_of(settings.inputs, n, len(settings.texts)))
            most = self._most(text, settings.most)
            if settings.how.num_beams > 1:
                beams = self._beams(text, settings.how, most, is_whole)
                chats.append(Chat(text, beams, beams.how, begin, is_whole))
                continue
            numbers = Numbers(settings.numbers.seed + n)
            writer = Writer(text, numbers, most, self.draft_tokens, self.lookup)
            chats.append(Chat(text, writer, settings.how, begin, is_whole))
        self._newest = settings
        self._batch.add(chats)
        return chats

    def _begin_with(self, inputs: Arrays | None) -> Callable[[], Awaitable[None]]:
        async def begin() -> None:
            self._give(inputs)

        return begin

    def _most(self, text: Text, most: int) -> int:
        """The tokens that may follow a prompt. Errors: InvalidInput if the model can read no more"""
        count, context = len(text.prompt), self._model.context
        if refused := refused_length(count, context):
            raise InvalidInput(refused, hint=SHORTER)
        return min(most, context - count)

    def _beams(self, text: Text, how: Sampling, most: int, is_whole: bool) -> BeamWriter:
        refused = refused_beams(self._model.layout, how, self.draft_tokens, is_whole)
        if refused:
            raise InvalidInput(f"num_beams is {how.num_beams}: {refused}", hint="generate without num_beams")
        return BeamWriter(text, how, most, list(self.stop_tokens))

    def _pieces(self, settings: Settings) -> Iterator[str]:
        """The pieces of one text."""
        (chat,) = chats = self._begun(settings, False)
        try:
            while chat.request is not None or chat.pieces:
                finished(self._batch.advance(chat))
                while chat.pieces:
                    yield chat.pieces.pop(0)
            finished(self._batch.advance(chat))  # raises its error
        finally:
            close(chats)

    def _whole(self, settings: Settings) -> list[Generated]:
        """All texts once they are complete."""
        chats = self._begun(settings, True)
        try:
            for chat in chats:
                finished(self._batch.advance(chat))
        finally:
            close(chats)
        return [generated(text) for text in settings.texts]
