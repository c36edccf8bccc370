"""Text as numbers: characters, then pairs of pieces that are merged, the most frequent first. Pieces end with a word.

`demo/text/pieces.js` is its sibling."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

WORD = re.compile(r"\n| ?[^ \n]+| ")


class Pieces:
    """names: all pieces; a number is a position. merges: pairs, the earlier before the later."""

    def __init__(self, names: Sequence[str], merges: Sequence[Sequence[str]]) -> None:
        self.names, self.merges = list(names), [tuple(pair) for pair in merges]
        self._numbers = {name: n for n, name in enumerate(self.names)}
        self._ranks = {pair: n for n, pair in enumerate(self.merges)}
        self._known: dict[str, list[int]] = {}

    @staticmethod
    def learned(text: str, size: int) -> Pieces:
        """So many pieces of a text."""
        words = {word: list(word) for word in WORD.findall(text)}
        counts = Counter(WORD.findall(text))
        names, merges = sorted(set(text)), []
        while len(names) < size:
            pairs = Counter[tuple[str, str]]()
            for word, parts in words.items():
                for pair in pairwise(parts):
                    pairs[pair] += counts[word]
            best = max(pairs, key=lambda pair: (pairs[pair], pair))
            merges.append(best)
            names.append("".join(best))
            for parts in words.values():
                merge(parts, best)
        return Pieces(names, merges)

    def encode(self, text: str) -> list[int]:
        """Characters that no piece has are left out."""
        return [number for word in WORD.findall(text) for number in self._word(word)]

    def _word(self, word: str) -> list[int]:
        if word not in self._known:
            parts = [c for c in word if c in self._numbers]
            while pairs := [pair for pair in pairwise(parts) if pair in self._ranks]:
                merge(parts, min(pairs, key=self._ranks.__getitem__))
            self._known[word] = [self._numbers[part] for part in parts]
        return self._known[word]

    def decode(self, numbers: Sequence[int]) -> str:
        return "".join(self.names[n] for n in numbers)


def merge(parts: list[str], pair: tuple[str, str]) -> None:
    """Wherever the two follow one another they become one."""
    n = 0
    while n < len(parts) - 1:
        if (parts[n], parts[n + 1]) == pair:
            parts[n : n + 2] = ["".join(pair)]
        n += 1
