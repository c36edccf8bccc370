"""What is in a GGUF file besides the graph: its tokenizer and its chat template."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pyruntime.onnx.gguf_reader import MAGIC, read_gguf
from pyruntime.onnx.gguf_tokenizer import tokenizer_json
from pyruntime.onnx.sources import FileSource, MemorySource


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


def chat_template(file: Any) -> str:
    """The Jinja template that writes messages as one text, "" if the file has none. file: a path or bytes"""
    return str(_metadata(file).get("tokenizer.chat_template", ""))


def _metadata(file: Any) -> Mapping[str, Any]:
    source = FileSource(file) if isinstance(file, (str, os.PathLike)) else MemorySource(file, "")
    return read_gguf(source).metadata
