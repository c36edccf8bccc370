"""Classes and cases of characters, as RE2 has them: its version of Unicode, not that of Python's `unicodedata`, which
differs between the desktop and the browser."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

Ranges = tuple[tuple[int, int], ...]
_ASCII = 127
# Letters of ASCII that have a case beyond ASCII (the long s and the Kelvin sign)
_BEYOND = {"s": 0x17F, "S": 0x17F, "k": 0x212A, "K": 0x212A}


@cache
def named(name: str) -> Ranges | None:
    """The sorted ranges of a category ("L", "Lu"), a script ("Greek") or "Any"; None for another name."""
    from pyruntime.host import unicode_tables as tables

    if name == "Any":
        return ((0, 0x10FFFF),)
    if name in tables.SCRIPTS:
        return tuple(_ranges(tables.BY_SCRIPT, {tables.SCRIPTS.index(name)}))
    wanted = {n for n, category in enumerate(tables.CATEGORIES) if category == name or category[0] == name}
    return tuple(_ranges(tables.BY_CATEGORY, wanted)) if wanted or name == "Cs" else None


def _ranges(runs: str, wanted: set[int]) -> Iterator[tuple[int, int]]:
    """The ranges of code points whose class is in `wanted`. runs: see unicode_tables"""
    start = last = 0
    begun = False
    for run in runs.split():
        count, _, number = run.partition(".")
        if number and int(number) in wanted:
            if not begun:
                last, begun = start, True
        elif begun:
            yield last, start - 1
            begun = False
        start += int(count, 36)
    if begun:
        yield last, start - 1


def cases(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The other cases of the characters in the ranges."""
    if all(high <= _ASCII for _, high in ranges):
        letters = [chr(c) for low, high in ranges for c in range(low, high + 1) if chr(c).isalpha()]
        found = [ord(c.swapcase()) for c in letters] + [_BEYOND[c] for c in letters if c in _BEYOND]
    else:
        points, groups = _groups()
        found = [c for low, high in ranges for at in _between(points, low, high) for c in groups[points[at]]]
    return [(c, c) for c in found]


def _between(points: Sequence[int], low: int, high: int) -> Iterable[int]:
    return range(bisect_left(points, low), bisect_left(points, high + 1))


@cache
def _groups() -> tuple[list[int], dict[int, list[int]]]:
    """The characters that have other cases, sorted, and for each the group of its cases."""
    from pyruntime.host import unicode_tables as tables

    groups: dict[int, list[int]] = {}
    first = 0
    for text in tables.CASES.split():
        step, *others = [int(number, 36) for number in text.split(".")]
        first += step
        group = [first, *[first + other for other in others]]
        groups |= dict.fromkeys(group, group)
    return sorted(groups), groups
