"""Parses a regular expression to a program: a list of steps with relative jumps, so that programs are joined by joining
lists. Nothing recurses: open groups are on a stack."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pyruntime.errors import UnsupportedOp
from pyruntime.host.unicode_classes import cases, named

Ranges = tuple[tuple[int, int], ...]  # of code points, both ends inclusive

# Kinds of characters beside a position: an end of the text, a line feed, a word character, another character.
EDGE, LINE, WORD, OTHER = range(4)
SPLIT = "split"
BYTE = "byte"  # the step of \\C
# Assertions, as conditions on the kinds of the characters before and after a position.
KINDS: dict[str, Callable[[int, int], bool]] = {
    "": lambda before, after: False,  # an empty set of characters
    "text start": lambda before, after: before == EDGE,
    "text end": lambda before, after: after == EDGE,
    "line start": lambda before, after: before in (EDGE, LINE),
    "line end": lambda before, after: after in (EDGE, LINE),
    "boundary": lambda before, after: (before == WORD) != (after == WORD),
    "no boundary": lambda before, after: (before == WORD) == (after == WORD),
}

MAX_STEPS = 20_000
MAX_REPEATS = 1000  # RE2's limit, also of the product of nested repetitions
MAX_DEPTH = 1000  # of nested groups
LAST = 0x10FFFF  # the last code point


class Step(NamedTuple):
    """Consume a character in `ranges`, continue at all relative `jumps` (SPLIT), or continue if an assertion of KINDS
    holds."""

    ranges: Ranges = ()
    op: str = ""
    jumps: tuple[int, ...] = ()


Code = list[Step]


def has(ranges: Ranges, c: int) -> bool:
    """Whether c is in sorted ranges that do not touch."""
    n = bisect_right(ranges, (c, LAST))
    return n > 0 and ranges[n - 1][1] >= c


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same characters as sorted ranges that do not touch."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(out[-1][1], high)
        else:
            out.append((low, high))
    return tuple(out)


def complement(ranges: Ranges) -> Ranges:
    out, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            out.append((at, low - 1))
        at = max(at, high + 1)
    return (*out, (at, LAST)) if at <= LAST else tuple(out)


def _set(text: str) -> Ranges:
    """The ranges between pairs of characters: 09AZ are the digits and the capital letters."""
    return tuple((ord(text[n]), ord(text[n + 1])) for n in range(0, len(text), 2))


_DIGIT, _SPACE, _LETTERS = _set("09"), _set("\t\n\f\r  "), _set("09AZ__az")
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _LETTERS}
_POSIX = {
    "alnum": _set("09AZaz"), "alpha": _set("AZaz"), "ascii": _set("\0\x7f"), "blank": _set("\t\t  "),
    "cntrl": _set("\0\x1f\x7f\x7f"), "digit": _DIGIT, "graph": _set("!~"), "lower": _set("az"), "print": _set(" ~"),
    "punct": _set("!/:@[`{~"), "space": _set("\t\r  "), "upper": _set("AZ"), "word": _LETTERS, "xdigit": _set("09AFaf"),
}  # fmt: skip
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ASSERTIONS = {"A": "text start", "z": "text end", "b": "boundary", "B": "no boundary"}
_REPEAT = re.compile(r"([*+?])|\{(\d+)(,?)(\d*)\}")
_PROPERTY = re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|([^{]))", re.DOTALL)
_GROUP = re.compile(r"\?(?:P?<\w+>|([imsU]*(?:-[imsU]+)?)([:)]))")


@dataclass
class _Open:
    """An open group: its branches so far, the parts of the last branch, and the flags in force.

    repeats: of each part, the largest product of the counts of nested repetitions; most: the largest of the group"""

    flags: frozenset[str]
    branches: list[Code] = field(default_factory=list)
    parts: list[Code] = field(default_factory=list)
    repeats: list[int] = field(default_factory=list)
    most: int = 1

    def add(self, part: Code, repeats: int = 1) -> None:
        self.parts.append(part)
        self.repeats.append(repeats)
        self.most = max(self.most, repeats)

    def branch(self) -> None:
        self.branches.append([step for part in self.parts for step in part])
        self.parts, self.repeats = [], []

    def close(self) -> Code:
        self.branch()
        out = self.branches.pop()
        while self.branches:
            first = self.branches.pop()
            out = [_jump(1, len(first) + 2), *first, _jump(len(out) + 1), *out]
        return out


def _jump(*to: int) -> Step:
    return Step((), SPLIT, to)


def _repeated(code: Code, least: int, most: int | None) -> Code:
    """`code` repeated `least` to `most` times (None: no limit)."""
    n = len(code)
    if most is None:
        loop = [_jump(1, n + 2), *code, _jump(-n - 1)]
        return [*code * least, *loop] if least != 1 else [*code, _jump(-n, 1)]
    rest = most - least
    optional = [step for k in range(rest) for step in (_jump(1, (rest - k) * (n + 1)), *code)]
    return code * least + optional


def by_bytes(ranges: Ranges) -> Code:
    """Consumes one character of the ranges, as the bytes of UTF-8."""
    branches: list[Code] = []
    for low, high in ranges:
        for length, (first, last) in enumerate(((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, LAST)), 1):
            if low <= last and high >= first:
                a, b = (chr(c).encode("utf-8", "surrogatepass") for c in (max(low, first), min(high, last)))
                branches += [[Step((pair,)) for pair in pairs] for pairs in _sequences(a, b, length)]
    group = _Open(frozenset(), branches[:-1], [branches[-1]] if branches else [[Step()]])
    return group.close()


def _sequences(a: bytes, b: bytes, length: int) -> list[list[tuple[int, int]]]:
    """Lists of ranges of bytes whose sequences are those from a to b, which have the same length."""
    if length == 1:
        return [[(a[0], b[0])]]
    if a[0] == b[0]:
        return [[(a[0], a[0]), *rest] for rest in _sequences(a[1:], b[1:], length - 1)]
    out: list[list[tuple[int, int]]] = []
    low, high = a[0], b[0]
    if a[1:] != b"\x80" * (length - 1):
        out += [[(low, low), *rest] for rest in _sequences(a[1:], b"\xbf" * (length - 1), length - 1)]
        low += 1
    if b[1:] != b"\xbf" * (length - 1):
        out += [[(high, high), *rest] for rest in _sequences(b"\x80" * (length - 1), b[1:], length - 1)]
        high -= 1
    if low <= high:
        out.append([(low, high), *[(0x80, 0xBF)] * (length - 1)])
    return out


def _matches_bytes(text: str) -> bool:
    """Whether \\C is in an expression, outside of quotations."""
    return any(match[0] == "\\C" for match in re.finditer(r"\\Q.*?(?:\\E|$)|\\.", text, re.DOTALL))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = [_Open(frozenset())]
        self.bytes = _matches_bytes(text)

    def error(self, what: str) -> UnsupportedOp:
        text = self.text if len(self.text) <= 80 else f"{self.text[:79]}…"
        return UnsupportedOp(f"pattern {text!r}: {what} at position {self.at}")

    def unsupported(self, what: str) -> UnsupportedOp:
        return self.error(f"{what!r} is not supported")

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def code(self) -> Code:
        """The program of the whole text."""
        while self.at < len(self.text):
            c = self.text[self.at]
            if self.text.startswith("\\Q", self.at):
                self.quotation()
            elif repeat := _REPEAT.match(self.text, self.at):
                self.repeat(repeat)
            elif c == "(":
                self.group()
            elif c == ")":
                if len(self.open) == 1:
                    raise self.error("an unexpected )")
                self.at += 1
                group = self.open.pop()
                self.open[-1].add(group.close(), group.most)
            elif c == "|":
                self.at += 1
                self.open[-1].branch()
            else:
                self.open[-1].add(self.consumed(self.single(c)))
        if len(self.open) > 1:
            raise self.error("a missing )")
        return self.open[0].close()

    def consumed(self, step: Step) -> Code:
        """The steps that consume one character: several if the text is read as bytes."""
        return by_bytes(step.ranges) if self.bytes and step.ranges and step.op != BYTE else [step]

    def quotation(self) -> None:
        """Literal characters from \\Q through \\E or the end."""
        start = self.at + 2
        end = self.text.find("\\E", start)
        for c in self.text[start : len(self.text) if end < 0 else end]:
            self.open[-1].add(self.consumed(Step(self.folded((ord(c), ord(c))))))
        self.at = len(self.text) if end < 0 else end + 2

    def group(self) -> None:
        """Enters a group at "("; (?i) and similar groups change flags instead."""
        if not self.text.startswith("(?", self.at):
            self.at += 1
            return self.enter(self.open[-1].flags)
        match = _GROUP.match(self.text, self.at + 1)
        if not match:
            raise self.unsupported(self.text[self.at : self.at + 4])
        self.at = match.end()
        on, _, off = (match[1] or "").partition("-")
        flags = (self.open[-1].flags | set(on)) - set(off)
        if match[2] != ")":
            return self.enter(flags)
        self.open[-1].flags = flags
        return None

    def enter(self, flags: frozenset[str]) -> None:
        self.open.append(_Open(flags))
        if len(self.open) > MAX_DEPTH:
            raise self.error(f"groups nested more than {MAX_DEPTH} deep")

    def repeat(self, match: re.Match[str]) -> None:
        group = self.open[-1]
        if not group.parts:
            raise self.error(f"{match[0]!r} repeats nothing")
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(match[1] or "", (0, 0))
        if not match[1]:
            least = int(match[2])
            most = int(match[4]) if match[4] else None if match[3] else least
        if max(least, most or 0) > MAX_REPEATS or most is not None and most < least:
            raise self.error(f"bad repetition {match[0]!r}")
        code, repeats = group.parts.pop(), group.repeats.pop()
        if not match[1]:
            repeats *= max(least if most is None else most, 1)
            if repeats > MAX_REPEATS:
                raise self.error(f"nested repetitions of more than {MAX_REPEATS} in all")
        if (len(code) + 1) * max(least + 1, most or 0) > MAX_STEPS:
            raise self.error(f"a repetition of more than {MAX_STEPS} steps")
        group.add(_repeated(code, least, most), repeats)
        self.at = match.end() + self.text.startswith("?", match.end())  # a lazy repetition matches the same texts
        if _REPEAT.match(self.text, self.at):
            raise self.error("a repetition of a repetition")

    # ── single characters ────────────────────────────────────────────────────────────────────────────────────────

    def single(self, c: str) -> Step:
        flags = self.open[-1].flags
        if c == "[":
            return Step(self.char_class())
        if c == "\\":
            name = self.text[self.at + 1 : self.at + 2]
            if name in _ASSERTIONS:
                self.at += 2
                return Step((), _ASSERTIONS[name])
            if name == "C":
                self.at += 2
                return Step(((0, 255),), BYTE)
            found = self.named_class()
            return Step(self.folded(((code := self.escaped()), code)) if found is None else found)
        self.at += 1
        if c == ".":
            return Step(_set("\0\U0010ffff") if "s" in flags else complement(_set("\n\n")))
        if c in "^$":
            return Step((), f"{'line' if 'm' in flags else 'text'} {'start' if c == '^' else 'end'}")
        return Step(self.folded((ord(c), ord(c))))

    def folded(self, *ranges: tuple[int, int]) -> Ranges:
        """ranges, with both cases of letters if flag i is set."""
        return joined([*ranges, *cases(ranges)] if "i" in self.open[-1].flags else ranges)

    def named_class(self) -> Ranges | None:
        """The ranges of \\d, \\W, \\pL, \\P{Greek} and the like if one starts here."""
        name = self.text[self.at + 1 : self.at + 2]
        if self.text[self.at] != "\\" or name.lower() not in (*_PERL, "p"):
            return None
        if name.lower() in _PERL:
            self.at += 2
            ranges, positive = self.folded(*_PERL[name.lower()]), name.islower()
        else:
            match = _PROPERTY.match(self.text, self.at)
            found = named(match[2] or match[3]) if match else None
            if match is None or found is None:
                raise self.unsupported(match[0] if match else "\\" + name)
            self.at = match.end()
            ranges, positive = self.folded(*found), name.islower() is not bool(match[1])
        return ranges if positive else complement(ranges)

    def escaped(self) -> int:
        """Return the code point of an escape sequence."""
        rest = self.text[self.at + 1 :]
        if number := re.match(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})", rest):
            code = int(number[3], 8) if number[3] else int(number[1] or number[2], 16)
            if code <= LAST:
                self.at += 1 + number.end()
                return code
        if not rest[:1].isascii() or not rest or rest[0].isalnum() and rest[0] not in _CONTROLS:
            raise self.unsupported("\\" + rest[:1])
        self.at += 2
        return _CONTROLS.get(rest[0], ord(rest[0]))

    def char_class(self) -> Ranges:
        """A class from "[" through "]"."""
        start = self.at
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        ranges: list[tuple[int, int]] = []
        first = self.at
        while self.at == first or not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                self.at = start
                raise self.error("a missing ]")
            ranges += self.class_item()
        self.at += 1
        return complement(tuple(ranges)) if negated else joined(ranges)

    def class_item(self) -> Ranges:
        if name := re.compile(r"\[:(\^?)(\w+):\]").match(self.text, self.at):
            if name[2] not in _POSIX:
                raise self.unsupported(name[0])
            self.at = name.end()
            match = self.folded(*_POSIX[name[2]])
            return complement(match) if name[1] else match
        if (found := self.named_class()) is not None:
            return found
        low = high = self.class_character()
        if self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            high = self.class_character()
        if high < low:
            raise self.error("a range whose end precedes its start")
        return self.folded((low, high))

    def class_character(self) -> int:
        if self.text.startswith("\\", self.at):
            return self.escaped()
        self.at += 1
        return ord(self.text[self.at - 1])


def parse(text: str) -> tuple[Code, bool]:
    """The program of an expression, and whether it reads the bytes of UTF-8 in place of characters (\\C). Errors:
    UnsupportedOp names an invalid or unsupported part and its position."""
    parser = _Parser(text)
    code = parser.code()
    if len(code) > MAX_STEPS:
        raise UnsupportedOp(f"a pattern of {len(code)} steps exceeds the limit of {MAX_STEPS}")
    return code, parser.bytes
