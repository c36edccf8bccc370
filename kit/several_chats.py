"""Chats of one generator that are written at the same time: for tests in Python and in pages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

PROMPT = [5, 7, 9, 11, 13, 2, 3, 8, 20, 31, 44, 6]
LONG = [*PROMPT, *PROMPT[::-1]]
SHORT = PROMPT[:1]
SAMPLED = {"temperature": 1.2, "top_k": 30}
PENALISED = {"repetition_penalty": 1.3}


class Letters:
    """A tokenizer with a letter for each token, so that each token is a piece."""

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[ord(letter) - 0x4E00 for letter in text])

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(0x4E00 + token) for token in tokens)


# By name: prompt, settings, the turn in which it begins, and the pieces after which it stops (0: at its end)
TABLE: dict[str, list[tuple[list[int], dict[str, Any], int, int]]] = {
    "one": [(PROMPT, {}, 0, 0)],
    "two alike": [(PROMPT, {}, 0, 0), (PROMPT, {}, 0, 0)],
    "short and long": [(SHORT, {}, 0, 0), (LONG, {}, 0, 0)],
    "one joins": [(PROMPT, {}, 0, 0), (SHORT, {}, 4, 0)],
    "a longer one joins": [(SHORT, {}, 0, 0), (LONG, {}, 5, 0)],
    "one stops": [(PROMPT, {}, 0, 3), (SHORT, {}, 0, 0), (LONG, {}, 0, 0)],
    "the longest stops, another joins": [(LONG, {}, 0, 4), (SHORT, {}, 1, 0), (PROMPT[:5], {}, 6, 0)],
    "seeds": [(PROMPT, {"seed": n, **SAMPLED}, n, 0) for n in range(4)],
    "sampled in two ways": [
        (PROMPT, {}, 0, 0),
        (SHORT, {"seed": 3, **SAMPLED}, 0, 0),
        (LONG, {}, 1, 0),
        (PROMPT[:6], {"seed": 4, **SAMPLED}, 2, 0),
    ],
    "penalties": [(PROMPT, PENALISED, 0, 0), (SHORT, PENALISED, 2, 0), (LONG, PENALISED, 2, 5)],
    "eight": [((PROMPT + LONG)[n : 3 * n + 1], {}, n // 3, n % 2 * (n + 2)) for n in range(8)],
}
