"""Regular expressions in RE2's syntax. Matching a whole text takes time linear in its length, for any expression.

An expression is compiled to a program of jumps, all of whose paths run at once (Thompson's construction); transitions
between sets of positions are memoised.
Spec: https://github.com/google/re2/wiki/Syntax, https://swtch.com/~rsc/regexp/regexp2.html"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from pyruntime.host.regex_parse import EDGE, KINDS, LINE, OTHER, SPLIT, WORD, Step, has, parse

_CACHE_SIZE = 10_000  # transitions


class Pattern:
    """A compiled expression. Errors: UnsupportedOp for an expression that is invalid, not supported or too long."""

    def __init__(self, expression: str) -> None:
        self.code: list[Step]
        self.code, self.reads_bytes = parse(expression)
        self._next: dict[tuple[frozenset[int], int, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        if self.reads_bytes:
            text = text.encode("utf-8", "surrogatepass").decode("latin-1")
        places, before = frozenset([0]), EDGE
        for c in text:
            places, before = self._after(places, before, c), kind(c)
            if not places:
                return False
        return len(self.code) in self._reached(places, before, EDGE)

    def longest(self, text: str, start: int) -> int | None:
        """The end of the longest match that begins at `start`, or None."""
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

    def find_all(self, text: str) -> Iterator[tuple[int, int]]:
        """The non-empty matches that do not overlap: the leftmost, longest ones."""
        at = 0
        while at < len(text):
            end = self.longest(text, at)
            if end is not None and end > at:
                yield at, end
                at = end
            else:
                at += 1

    def _after(self, places: frozenset[int], before: int, c: str) -> frozenset[int]:
        """`_step`, memoised."""
        key = (places, before, c)
        after = self._next.get(key)
        if after is None:
            if len(self._next) >= _CACHE_SIZE:
                self._next.clear()
            after = self._next[key] = self._step(places, before, c)
        return after

    def _step(self, places: frozenset[int], before: int, c: str) -> frozenset[int]:
        """Return the positions of all paths after the character c."""
        reached = self._reached(places, before, kind(c))
        code, number = self.code, ord(c)
        return frozenset(p + 1 for p in reached if p < len(code) and code[p].ranges and has(code[p].ranges, number))

    def _reached(self, places: Iterable[int], before: int, after: int) -> set[int]:
        """All positions that can be reached without consuming a character, between characters of kinds `before` and
        `after`."""
        reached: set[int] = set()
        todo = list(places)
        while todo:
            p = todo.pop()
            if p in reached:
                continue
            reached.add(p)
            step = self.code[p] if p < len(self.code) else None
            if step is None or step.ranges:
                continue
            if step.op == SPLIT:
                todo += [p + jump for jump in step.jumps]
            elif KINDS[step.op](before, after):
                todo.append(p + 1)
        return reached


def kind(c: str) -> int:
    """The kind of a character, which assertions test."""
    if c == "\n":
        return LINE
    return WORD if c.isascii() and (c.isalnum() or c == "_") else OTHER


@lru_cache(64)
def compiled(expression: str) -> Pattern:
    """The pattern of an expression, memoised."""
    return Pattern(expression)
