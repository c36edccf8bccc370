"""Source maps from lines of JavaScript to lines of Python, so that a debugger shows the Python.

Format: https://tc39.es/ecma426/"""

from __future__ import annotations

import json
from collections.abc import Sequence

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def source_map(file: str, source: str, text: str, lines: Sequence[int]) -> str:
    """file: the JavaScript's name; source: path and text of the Python; lines: of the Python (from 1; 0: none), for
    each line of the JavaScript."""
    mappings, before = [], 0
    for line in lines:
        mappings.append("" if not line else "".join(_digits(n) for n in (0, 0, line - 1 - before, 0)))
        before = line - 1 if line else before
    whole = {"version": 3, "file": file, "sources": [source], "sourcesContent": [text], "names": []}
    return json.dumps({**whole, "mappings": ";".join(mappings)})


def _digits(number: int) -> str:
    """A number in base 64, least digits first: bit 0 of the first is the sign, bit 5 of each means that more follow."""
    rest = abs(number) * 2 + (number < 0)
    text = ""
    while True:
        digit, rest = rest % 32, rest // 32
        text += DIGITS[digit + (32 if rest else 0)]
        if not rest:
            return text
