"""Chat templates: messages as one text, as a model was trained to read them. The package jinja2 renders them in a
sandbox.

Spec: https://huggingface.co/docs/transformers/chat_templating_writing (what a template may use)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyruntime.errors import InvalidInput, NotSupported, file_bytes
from pyruntime.native.tools.gguf_text import gguf_template, is_gguf_file

Messages = Sequence[Mapping[str, Any]]
_CONFIG, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
_HINT = f"give chat_template: a Jinja text, or the path of a {_TEMPLATE} or a {_CONFIG}"


def is_messages(prompt: Any) -> bool:
    return isinstance(prompt, Sequence) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


class ChatTemplate:
    """texts: by name; "default" is used unless there are tools and one is named "tool_use". tokens: what a template
    knows as bos_token, eos_token and so on."""

    def __init__(self, texts: Mapping[str, str], tokens: Mapping[str, str]) -> None:
        self._texts, self._tokens = texts, tokens

    def render(self, messages: Messages, tools: Sequence[Any] | None, **variables: Any) -> str:
        """Errors: InvalidInput if there is no template, or it is damaged or refuses the messages; NotSupported without
        jinja2"""
        if not is_messages(messages) or not all(isinstance(m, Mapping) and "role" in m for m in messages):
            raise InvalidInput("messages are expected", hint='a list of {"role": "user", "content": "…"}')
        text = self._texts.get("tool_use" if tools and "tool_use" in self._texts else "default")
        if text is None:
            raise InvalidInput("this model has no chat template", hint=_HINT)
        environment, template_error = _environment()
        given = {**self._tokens, "messages": messages, "tools": tools, "documents": None, **variables}
        try:
            return str(environment.from_string(text).render(given))
        except (template_error, TypeError, ValueError, LookupError) as error:
            raise InvalidInput(f"the chat template refuses these messages: {error}") from error


def _environment() -> tuple[Any, type[Exception]]:
    """As transformers makes it: templates are code of strangers, and reach nothing."""
    try:
        from jinja2 import TemplateError, ext, nodes
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise NotSupported("the package jinja2 is not installed", hint="pip install jinja2") from error

    class Generation(ext.Extension):
        """Blocks that mark what an assistant has written: they are their content."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **how)  # jinja2's own escapes HTML

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    return environment, TemplateError


def find_template(given: Any, model: Any, tokenizer: Any) -> ChatTemplate:
    """The template of a generator.

    given: a Jinja text, or a path; None: the one of the tokenizer, of its GGUF file, or of the files beside it, or that
        of the model's GGUF file
    tokenizer: a path, bytes, or an object that may have a template
    Errors: InvalidInput for a file that holds none
    """
    if isinstance(given, str) and "{" in given:
        return ChatTemplate({"default": given}, _tokens_of(tokenizer))
    if given is not None:
        found = _in_file(given)
        if not found._texts:
            raise InvalidInput(f'there is no chat template in "{given}"', hint=_HINT)
        return found
    for source in (tokenizer, model):
        if is_gguf_file(source):
            return _in_file(source)
    if isinstance(tokenizer, (str, os.PathLike)):
        beside = [Path(tokenizer).with_name(name) for name in (_TEMPLATE, _CONFIG)]
        return next((_in_file(path) for path in beside if path.is_file()), ChatTemplate({}, {}))
    return ChatTemplate(_texts(getattr(tokenizer, "chat_template", None)), _tokens_of(tokenizer))


def _in_file(path: Any) -> ChatTemplate:
    """Of a GGUF file, a tokenizer_config.json, or a file that is the template."""
    if is_gguf_file(path):
        text, tokens = gguf_template(path)
        return ChatTemplate(_texts(text), tokens)
    text = file_bytes(path).decode(errors="replace")
    beside = Path(os.fspath(path)).with_name(_CONFIG)
    is_config = Path(os.fspath(path)).suffix == ".json"
    try:
        config = json.loads(text if is_config else beside.read_bytes() if beside.is_file() else "{}")
    except ValueError as error:
        raise InvalidInput(f'"{path if is_config else beside}" is no JSON: {error}') from error
    if not isinstance(config, dict):
        raise InvalidInput(f'"{path}" is no {_CONFIG}', hint=_HINT)
    texts = _texts(config.get("chat_template")) if is_config else {"default": text}
    return ChatTemplate(texts, {n: _token(config[n]) for n in _TOKENS if config.get(n)})


def _texts(found: Any) -> dict[str, str]:
    """By name: a file has one text, or a list of {"name", "template"}."""
    if isinstance(found, list):
        found = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
    found = found if isinstance(found, dict) else {"default": found}
    return {name: text for name, text in found.items() if isinstance(text, str) and text}


def _token(found: Any) -> str:
    return str(found.get("content", "")) if isinstance(found, dict) else str(found)


def _tokens_of(tokenizer: Any) -> dict[str, str]:
    """Of a tokenizer of the package transformers."""
    return {name: str(found) for name in _TOKENS if (found := getattr(tokenizer, name, None))}
