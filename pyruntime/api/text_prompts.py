"""Prompts and texts as tokens: the tokenizer and the chat template of a generator."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from pyruntime.api.chat_template import Messages, find_template, is_messages
from pyruntime.api.text_settings import token_list
from pyruntime.arguments import shown
from pyruntime.errors import InvalidInput, NotSupported, file_bytes
from pyruntime.native.tools.gguf_text import gguf_tokenizer, is_gguf_file
from pyruntime.runtime.writing import Format, Text

_PARTS = (Integral, Mapping)  # of one prompt: tokens, messages


class Prompts:
    """Reads prompts and begins texts.

    model, tokenizer, chat_template, stop_tokens: as `TextGenerator` takes them
    Errors: InvalidInput for what is no tokenizer or has no template; NotSupported without the package tokenizers"""

    def __init__(self, model: Any, tokenizer: Any, chat_template: Any, stop_tokens: int | Sequence[int] | None) -> None:
        self.tokenizer = _tokenizer(model if tokenizer is None and is_gguf_file(model) else tokenizer)
        given = [stop_tokens] if isinstance(stop_tokens, Integral) else stop_tokens
        self.stop_tokens = _special(self.tokenizer) if given is None else token_list("stop_tokens", given)
        self._template = find_template(chat_template, model, tokenizer)

    def render(self, messages: Messages, tools: Sequence[Any] | None, tokenize: bool, **variables: Any) -> Any:
        """The messages of a chat as tokens or as a text. Errors: as `ChatTemplate.render`"""
        text = self._template.render(messages, tools, **variables)
        return self.encoded(text, add_special_tokens=False) if tokenize else text

    def text(self, stop: str | Sequence[str], prompt: list[int], form: Format | None = None) -> Text:
        """A text that follows the prompt, up to one of these stops."""
        stops = [stop] if isinstance(stop, str) else stop
        if not isinstance(stops, Sequence) or not all(isinstance(one, str) for one in stops):
            raise InvalidInput(f"stop is {shown(stop)}", hint="a text or a list of texts is expected")
        if stops and self.tokenizer is None:
            raise InvalidInput("stop needs a tokenizer", hint="stop_tokens end a text without one")
        return Text(prompt, self._decoded, [*stops], self.stop_tokens, time.perf_counter, form)

    def encoded(self, prompt: Any, **how: bool) -> list[int]:
        """how: of the tokenizer"""
        if is_messages(prompt):
            prompt = self.render(prompt, None, tokenize=True, add_generation_prompt=True)
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InvalidInput("a text needs a tokenizer", hint="TextGenerator(model, tokenizer), or give tokens")
            try:
                found = self.tokenizer.encode(prompt, **how)
            except (TypeError, UnicodeError) as e:  # a half of a surrogate pair
                raise InvalidInput(f"the tokenizer refuses the prompt: {e}", hint="is it Unicode text?") from e
            prompt = getattr(found, "ids", found)
        tokens = token_list("the prompt", prompt)
        if not tokens:
            raise InvalidInput("the prompt has no tokens", hint="begin with the model's start token")
        return tokens

    def _decoded(self, tokens: list[int]) -> str:
        return "" if self.tokenizer is None else str(self.tokenizer.decode(tokens))


def are_prompts(prompt: Any) -> bool:
    """Whether it is a list of prompts, not one."""
    is_list = isinstance(prompt, Sequence) or getattr(prompt, "ndim", 0) > 0
    return is_list and not isinstance(prompt, (str, bytes)) and len(prompt) > 0 and not isinstance(prompt[0], _PARTS)


def _tokenizer(tokenizer: Any) -> Any:
    is_gguf = is_gguf_file(tokenizer)
    if not is_gguf and not isinstance(tokenizer, (str, os.PathLike)):
        if tokenizer is not None and not (hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode")):
            hint = "the path of a tokenizer.json, or an object with encode(text) and decode(ids)"
            raise InvalidInput(f"tokenizer cannot be of type {type(tokenizer).__name__}", hint=hint)
        return tokenizer
    try:
        from tokenizers import Tokenizer
    except ImportError as e:
        raise NotSupported("the package tokenizers is not installed", hint="pip install tokenizers") from e
    data = gguf_tokenizer(tokenizer) if is_gguf else file_bytes(tokenizer)
    try:
        return Tokenizer.from_buffer(data)
    except Exception as e:  # the package raises no other class
        hint = "tokenizer.json is expected, not tokenizer_config.json"
        name = "the model" if isinstance(tokenizer, (bytes, bytearray, memoryview)) else os.fspath(tokenizer)
        raise InvalidInput(f'"{name}" is no tokenizer: {e}', hint=hint) from e


def _special(tokenizer: Any) -> list[int]:
    """The special tokens of a tokenizer of the packages tokenizers and transformers."""
    added: dict[int, Any] = getattr(tokenizer, "get_added_tokens_decoder", dict)()
    return [*(token for token, one in added.items() if one.special), *getattr(tokenizer, "all_special_ids", ())]
