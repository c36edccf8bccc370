"""Regular expressions. Whether a whole text matches takes time linear in the text, whatever the expression.

An expression becomes a program of jumps, run on all its paths at once (Thompson's construction); sets of places that
were met are remembered. It is read as RE2 reads it; of its syntax \\p, \\C, \\Q and case folding beyond ASCII are
refused.
Spec: https://github.com/google/re2/wiki/Syntax, https://swtch.com/~rsc/regexp/regexp2.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from pyruntime.host.regex_parse import EDGE, KINDS, LINE, OTHER, SPLIT, WORD, Step, has, parse

_REMEMBERED = 10_000  # transitions


class Pattern:
    """A compiled expression. Errors: UnsupportedOp for one that is wrong, or too long."""

    def __init__(self, expression: str) -> None:
        self.code: list[Step] = parse(expression)
        self._next: dict[tuple[frozenset[int], int, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        places, before = frozenset([0]), EDGE
        for c in text:
            places, before = self._after(places, before, c), kind(c)
            if not places:
                return False
        return len(self.code) in self._reached(places, before, EDGE)

    def longest(self, text: str, start: int) -> int | None:
        """The end of the longest match that begins at `start`."""
        places, before = frozenset([0]), kind(text[start - 1]) if start else EDGE
        end = None
        for n in range(start, len(text) + 1):
            after = kind(text[n]) if n < len(text) else EDGE
            if len(self.code) in self._reached(places, before, after):
                end = n
            if n < len(text):
                places, before = self._after(places, before, text[n]), after
            if not places:
                break
        return end

    def found(self, text: str) -> Iterator[tuple[int, int]]:
        """The matches that are not empty, each the longest at the first place after the one before."""
        at = 0
        while at < len(text):
            end = self.longest(text, at)
            if end is not None and end > at:
                yield at, end
                at = end
            else:
                at += 1

    def _after(self, places: frozenset[int], before: int, c: str) -> frozenset[int]:
        """`_step`, remembered."""
        key = (places, before, c)
        found = self._next.get(key)
        if found is None:
            if len(self._next) >= _REMEMBERED:
                self._next.clear()
            found = self._next[key] = self._step(places, before, c)
        return found

    def _step(self, places: frozenset[int], before: int, c: str) -> frozenset[int]:
        """Where the paths are after a character."""
        here = self._reached(places, before, kind(c))
        code, number = self.code, ord(c)
        return frozenset(p + 1 for p in here if p < len(code) and code[p].ranges and has(code[p].ranges, number))

    def _reached(self, places: Iterable[int], before: int, after: int) -> set[int]:
        """All places that are reached without a character, between one of kind `before` and one of kind `after`."""
        found: set[int] = set()
        todo = list(places)
        while todo:
            p = todo.pop()
            if p in found:
                continue
            found.add(p)
            step = self.code[p] if p < len(self.code) else None
            if step is None or step.ranges:
                continue
            if step.op == SPLIT:
                todo += [p + jump for jump in step.jumps]
            elif KINDS[step.op](before, after):
                todo.append(p + 1)
        return found


def kind(c: str) -> int:
    """What assertions ask of a character."""
    if c == "\n":
        return LINE
    return WORD if c.isascii() and (c.isalnum() or c == "_") else OTHER


@lru_cache(64)
def compiled(expression: str) -> Pattern:
    """The pattern of an expression, remembered."""
    return Pattern(expression)


__all__ = ["Pattern", "compiled"]
