"""What is in a GGUF file besides the graph: its tokenizer and its chat template."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pyruntime.onnx.gguf_reader import MAGIC, read_gguf
from pyruntime.onnx.sources import FileSource, MemorySource
from pyruntime.runtime.gguf_tokenizer import TEMPLATE, special_token, tokenizer_json


def is_gguf_file(path: Any) -> bool:
    """Whether it is the path of a GGUF file, or its bytes."""
    if not isinstance(path, (str, os.PathLike)):
        return isinstance(path, (bytes, bytearray, memoryview)) and bytes(path[:4]) == MAGIC
    try:
        with open(path, "rb") as file:
            return file.read(4) == MAGIC
    except (OSError, ValueError):
        return False


def gguf_tokenizer(file: Any) -> bytes:
    """The tokenizer as a tokenizer.json. file: a path or bytes. Errors: InvalidModel for a kind that is not known"""
    return json.dumps(tokenizer_json(_metadata(file))).encode()


def gguf_template(file: Any) -> tuple[str, dict[str, str]]:
    """The Jinja template that writes messages as one text, "" if the file has none, and the tokens that it may name.

    file: a path or bytes"""
    metadata = _metadata(file)
    tokens = {f"{name}_token": special_token(metadata, name) for name in ("bos", "eos")}
    return str(metadata.get(TEMPLATE, "")), {name: token for name, token in tokens.items() if token}


def _metadata(file: Any) -> Mapping[str, Any]:
    source = FileSource(file) if isinstance(file, (str, os.PathLike)) else MemorySource(file, "")
    return read_gguf(source).metadata
