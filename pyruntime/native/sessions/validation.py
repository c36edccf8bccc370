"""Validates Programs that come from files."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

from pyruntime.errors import InvalidModel
from pyruntime.ir.dtype import BY_NAME
from pyruntime.program import format
from pyruntime.runtime.schema import Schema
from pyruntime.runtime.validate import validate


def read_program(data: bytes) -> format.Program:
    """The Program of a file. Errors: InvalidModel for a file that is damaged, or that no executor can run."""
    program = format.Program.from_bytes(data)
    validate_header(program.header, len(program.blob))
    return program


def validate_header(header: Any, blob: int) -> None:
    """blob: its size in bytes. Errors: InvalidModel with the first violation."""
    try:
        validate(header, blob, _schema(), lambda dtype: BY_NAME[dtype].size)
    except RecursionError:
        text = "the program is damaged: the header: it is nested too deeply"
        raise InvalidModel(text, hint="export it again") from None


@cache
def _schema() -> Schema:
    rules = json.loads(Path(format.__file__).with_name("schema.json").read_text())
    return Schema(rules, partial(json.dumps, ensure_ascii=False, separators=(",", ":")))
