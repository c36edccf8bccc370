"""Messages as prompts: where a generator finds its chat template, and what it refuses. What templates do is in
tests/vectors/chat_templates.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit import gguf_models
from kit.docs import ROOT
from pyruntime import InvalidInput, NotSupported, TextGenerator

DECODER, TOKENIZER = ROOT / "demo/text/decoder.onnx", ROOT / "demo/text/tokenizer.json"
HELLO = [{"role": "user", "content": "a program"}]
PLAIN = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ tools | length if tools }}"


def shown(writer: TextGenerator, **how: Any) -> str:
    return str(writer.apply_chat_template(HELLO, tokenize=False, **how))


def test_gguf(tmp_path: Path) -> None:
    """The file's own template and tokens; chats are prompts like others."""
    path = tmp_path / "model.gguf"
    gguf_models.write(
        path, "llama", template="{{ bos_token }}{{ messages[-1].content }}{{ '!' if add_generation_prompt }}"
    )
    writer = TextGenerator(path)
    assert shown(writer) == "<s>a program!" and shown(writer, add_generation_prompt=False) == "<s>a program"
    tokens = writer.apply_chat_template(HELLO)
    assert writer.tokenizer.decode(tokens, skip_special_tokens=False).startswith("<s>")
    assert tokens.count(1) == 1  # the tokenizer does not add what the template wrote
    want = writer.generate(tokens, max_tokens=4).tokens
    assert writer.generate(HELLO, max_tokens=4).tokens == want
    assert [*writer.stream(HELLO, max_tokens=4)] and writer.last.tokens == want
    assert [one.tokens for one in writer.generate([HELLO, tokens], max_tokens=4)] == [want, want]
    assert shown(TextGenerator(path, chat_template="{{ eos_token }}{{ messages[0].role }}")) == "user"


def test_files(tmp_path: Path) -> None:
    """Beside tokenizer.json, as published: a chat_template.jinja before a tokenizer_config.json."""
    table = tmp_path / "tokenizer.json"
    table.write_bytes(TOKENIZER.read_bytes())
    texts = [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": "{{ tools[0].name }}"}]
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": texts, "bos_token": {"content": "[B]"}, "eos_token": None}))
    assert shown(TextGenerator(DECODER, table)) == "[B]user: a program\n"
    assert shown(TextGenerator(DECODER, table), tools=[{"name": "clock"}]) == "clock"
    assert shown(TextGenerator(DECODER, TOKENIZER, chat_template=config)) == "[B]user: a program\n"
    jinja = tmp_path / "chat_template.jinja"
    jinja.write_text("{{ bos_token }}{{ messages | length }}{{ mood }}")
    assert shown(TextGenerator(DECODER, table), mood="!") == "[B]1!"
    assert shown(TextGenerator(DECODER, TOKENIZER, chat_template=str(jinja))) == "[B]1"


def test_tokenizer_object() -> None:
    own = SimpleNamespace(encode=len, decode=str, chat_template=PLAIN, bos_token="<b>")
    assert shown(TextGenerator(DECODER, own)) == "<b>user: a program\n"


@pytest.mark.parametrize(
    ("template", "messages", "want"),
    [
        (None, HELLO, "this model has no chat template"),
        (PLAIN, [{"content": "a"}], "messages are expected"),
        (PLAIN, "a", "messages cannot be 'a'"),
        ("{{ raise_exception('no system') }}", HELLO, "refuses these messages: no system"),
        ("{{ messages.pop() }}", HELLO, "refuses these messages: .*unsafe|not safely"),
        ("{{ ''.__class__.__mro__ }}", HELLO, "refuses these messages: .*unsafe"),
        ("{% for", HELLO, "refuses these messages"),
        (5, HELLO, "chat_template cannot be 5"),
        (TOKENIZER, HELLO, "there is no chat template in"),
    ],
)
def test_refused(template: Any, messages: Any, want: str) -> None:
    with pytest.raises(InvalidInput, match=want):
        TextGenerator(DECODER, TOKENIZER, chat_template=template).apply_chat_template(messages)


def test_without_jinja2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(NotSupported, match="pip install jinja2"):
        TextGenerator(DECODER, TOKENIZER, chat_template=PLAIN).apply_chat_template(HELLO)
