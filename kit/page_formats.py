"""Formats of texts as pages have them, run in Node.js without a model: each next token is drawn from those allowed."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"], "additionalProperties": False,
}  # fmt: skip
SCHEMAS: list[dict[str, Any]] = [
    SCHEMA, {"type": "boolean"}, {"const": {"a": [1, None]}}, {"enum": ["yes", 2, None]},
    {"type": "integer", "minimum": -3, "maximum": 17}, {"type": "string", "pattern": "^[a-f]{2,4}-[0-9]{3}$"},
    {"type": "string", "format": "date"}, {"type": ["null", "boolean"]}, {"anyOf": [{"const": 1}, {"const": [2]}]},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "x"}], "items": False, "minItems": 2},
    {"$defs": {"leaf": {"type": "integer", "minimum": 0, "maximum": 9}},
     "type": "array", "items": {"$ref": "#/$defs/leaf"}, "minItems": 1, "maxItems": 4},
]  # fmt: skip


def byte_level() -> list[str]:
    """GPT-2's characters for the bytes from 0 to 255."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]


def vocabulary(count: int = 300) -> list[str]:
    """Tokens: each byte, pieces of JSON, and random words up to this number."""
    spaced = byte_level()[32]
    pieces = [
        '{"',
        '":',
        '",',
        '"}',
        ":" + spaced,
        "," + spaced,
        "[[",
        "]]",
        "true",
        "null",
        "é".encode().decode("latin1"),
    ]
    found, draw = dict.fromkeys([*byte_level(), *pieces]), random.Random(1)
    while len(found) < count:
        letters = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))
        found[draw.choice(["", spaced]) + letters] = None
    return [*found]


def answers(requests: Sequence[dict[str, Any]], tokens: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """requests, answers: as tests/web/formats.mjs documents them"""
    given = json.dumps({"tokens": tokens or vocabulary(), "requests": requests})
    command = ["node", "--no-warnings", str(ROOT / "tests/web/formats.mjs")]
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
