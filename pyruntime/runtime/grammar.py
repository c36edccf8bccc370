"""Grammars of texts: their tree, and the reader of GBNF, the notation of llama.cpp.

Source: https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md. Unlike there, lines may break anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyruntime.errors import InvalidInput

LAST = 0x10FFFF  # the last character
MOST_COPIES = 10_000
MOST_DEPTH = 100
ROOT = "root"
ESCAPES = {"n": 10, "r": 13, "t": 9, '"': 34, "\\": 92, "[": 91, "]": 93, "-": 45, "^": 94}
HEX = {"x": 2, "u": 4, "U": 8}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
DIGITS = "0123456789"
HEX_DIGITS = "0123456789abcdef"


@dataclass(eq=False, slots=True)
class Node:
    """A part of a grammar.

    kind: "chars" (one character of `ranges`: first and last code points, flat), "sequence" or "choice" (of `parts`),
        "repeat" (of the one part, from `least` to `most` times, -1: without a limit) or "rule" (the one of this name)
    """

    kind: str
    parts: list[Node] = field(default_factory=list)
    ranges: list[int] = field(default_factory=list)
    least: int = 0
    most: int = -1
    rule: str = ""


def complement(ranges: list[int]) -> list[int]:
    """All other characters. ranges: first and last code points, flat"""
    found: list[int] = []
    first = 0
    for pair in sorted(
        [(ranges[2 * n], ranges[2 * n + 1]) for n in range(len(ranges) // 2)], key=lambda x: (x[0], x[1])
    ):
        if pair[0] > first:
            found = [*found, first, pair[0] - 1]
        first = max(first, pair[1] + 1)
    return [*found, first, LAST] if first <= LAST else found


def read_grammar(chars: list[str], codes: list[int]) -> dict[str, Node]:
    """The rules of a grammar in GBNF, by name. chars, codes: its characters, and their code points.

    Errors: InvalidInput, which names the line, for a grammar that is damaged, names rules that are not there, or whose
    rules begin with themselves"""
    rules = _Reader(chars, codes).rules()
    if ROOT not in rules:
        raise InvalidInput(f"the grammar of the format has no rule {ROOT}", hint=f'{ROOT} ::= "yes" | "no"')
    for name in sorted([*rules.keys()]):
        for other in _names(rules[name]):
            if other not in rules:
                raise InvalidInput(
                    f"the grammar of the format names the rule {other} in {name}, but does not define it"
                )
    _check_left(rules)
    return rules


def _names(node: Node) -> list[str]:
    found = [node.rule] if node.kind == "rule" else []
    for part in node.parts:
        found = [*found, *_names(part)]
    return found


def _check_left(rules: dict[str, Node]) -> None:
    empty: set[str] = set()  # rules that may be empty
    is_same = False
    while not is_same:
        found = {name for name in rules.keys() if _may_be_empty(rules[name], empty)}
        is_same = len(found) == len(empty)
        empty = found
    for name in sorted([*rules.keys()]):
        reached: set[str] = set()
        open_names = _first_rules(rules[name], empty)
        while len(open_names) > 0:
            other = open_names.pop()
            if other == name:
                text = f"the rule {name} in the grammar of the format begins with itself"
                raise InvalidInput(text, hint="write a repetition: x ::= y+ in place of x ::= y | x y")
            if other not in reached:
                reached.add(other)
                open_names = [*open_names, *_first_rules(rules[other], empty)]


def _may_be_empty(node: Node, empty: set[str]) -> bool:
    if node.kind == "rule":
        return node.rule in empty
    if node.kind == "choice":
        return any(_may_be_empty(part, empty) for part in node.parts)
    if node.kind == "repeat":
        return node.least == 0 or _may_be_empty(node.parts[0], empty)
    return node.kind == "sequence" and all(_may_be_empty(part, empty) for part in node.parts)


def _first_rules(node: Node, empty: set[str]) -> list[str]:
    """Rules with which it may begin."""
    if node.kind == "rule":
        return [node.rule]
    found: list[str] = []
    for part in node.parts:
        found = [*found, *_first_rules(part, empty)]
        if node.kind == "sequence" and not _may_be_empty(part, empty):
            return found
    return found


class _Reader:
    def __init__(self, chars: list[str], codes: list[int]) -> None:
        self._chars = chars
        self._codes = codes
        self._at = 0

    def rules(self) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self._skip()
        while self._at < len(self._chars):
            name = self._begin_of_rule()
            if name == "":
                raise self._refused("a rule is expected, such as name ::=")
            if name in found:
                raise self._refused(f"the rule {name} is defined twice")
            found[name] = self._choice(0)
        return found

    def _refused(self, text: str) -> InvalidInput:
        line = 1
        for c in self._chars[0 : self._at]:
            if c == "\n":
                line += 1
        return InvalidInput(f"the grammar of the format is refused in line {line}: {text}", hint="GBNF is expected")

    def _next(self) -> str:
        return self._chars[self._at] if self._at < len(self._chars) else ""

    def _skip(self) -> None:
        while self._next() in (" ", "\t", "\r", "\n", "#"):
            if self._next() == "#":
                while self._next() not in ("", "\n"):
                    self._at += 1
            else:
                self._at += 1

    def _take(self, c: str) -> bool:
        if self._next() != c:
            return False
        self._at += 1
        return True

    def _word(self) -> str:
        found = ""
        while self._next() != "" and self._next() in LETTERS:
            found += self._next()
            self._at += 1
        return found

    def _begin_of_rule(self) -> str:
        """Its name, if a rule begins; otherwise "", and nothing is read."""
        start = self._at
        name = self._word()
        self._skip()
        if name != "" and self._take(":") and self._take(":") and self._take("="):
            self._skip()
            return name
        self._at = start
        return ""

    def _is_end(self) -> bool:
        start = self._at
        is_rule = self._begin_of_rule() != ""
        self._at = start
        return is_rule or self._next() in ("", "|", ")")

    def _choice(self, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise self._refused(f"parentheses are nested more than {MOST_DEPTH} times")
        found = [self._sequence(depth)]
        while self._take("|"):
            self._skip()
            found.append(self._sequence(depth))
        if depth == 0 and self._next() == ")":
            raise self._refused("there is no ( for this )")
        return found[0] if len(found) == 1 else Node("choice", found)

    def _sequence(self, depth: int) -> Node:
        found: list[Node] = []
        while not self._is_end():
            found.append(self._repeated(self._element(depth)))
            self._skip()
        return found[0] if len(found) == 1 else Node("sequence", found)

    def _element(self, depth: int) -> Node:
        if self._take('"'):
            found: list[Node] = []
            while not self._take('"'):
                code = self._char()
                found.append(Node("chars", ranges=[code, code]))
            return Node("sequence", found)
        if self._take("["):
            return self._class()
        if self._take("."):
            return Node("chars", ranges=[0, LAST])
        if self._take("("):
            self._skip()
            inner = self._choice(depth + 1)
            if not self._take(")"):
                raise self._refused("a ) is missing")
            return inner
        name = self._word()
        if name == "":
            raise self._refused(f"{self._next()} is not expected")
        return Node("rule", rule=name)

    def _class(self) -> Node:
        is_other = self._take("^")
        ranges: list[int] = []
        while not self._take("]"):
            first = self._char()
            last = first
            if self._next() == "-" and self._at + 1 < len(self._chars) and self._chars[self._at + 1] != "]":
                self._at += 1
                last = self._char()
            if last < first:
                raise self._refused("a range of characters ends before it begins")
            ranges = [*ranges, first, last]
        found = complement(ranges) if is_other else ranges
        if len(found) == 0:
            raise self._refused("a class has no characters")
        return Node("chars", ranges=found)

    def _char(self) -> int:
        """The code point of a character, which may be an escape."""
        if self._at >= len(self._chars):
            raise self._refused('a " or ] is missing')
        if not self._take("\\"):
            self._at += 1
            return self._codes[self._at - 1]
        c = self._next()
        self._at += 1
        if c in ESCAPES:
            return ESCAPES[c]
        if c not in HEX:
            raise self._refused(f"the escape \\{c} is not known")
        code = 0
        for _ in range(HEX[c]):
            digits = [n for n, digit in enumerate(HEX_DIGITS) if digit == self._next().lower()]
            if len(digits) == 0:
                raise self._refused(f"\\{c} needs {HEX[c]} hexadecimal digits")
            code = code * 16 + digits[0]
            self._at += 1
        if code > LAST or 0xD800 <= code <= 0xDFFF:
            raise self._refused("there is no such character")
        return code

    def _repeated(self, node: Node) -> Node:
        found = node
        while self._next() in ("*", "+", "?", "{"):
            if self._take("*"):
                found = Node("repeat", [found])
            elif self._take("+"):
                found = Node("repeat", [found], least=1)
            elif self._take("?"):
                found = Node("repeat", [found], most=1)
            else:
                self._at += 1
                found = self._counted(found)
        return found

    def _counted(self, node: Node) -> Node:
        self._skip()
        least = self._count(-1)
        most = least
        self._skip()
        if self._take(","):
            self._skip()
            most = self._count(-1)
            self._skip()
        if not self._take("}") or (0 <= most < least) or (least < 0 and most < 0):
            raise self._refused("a number of times is expected, such as {2}, {2,} or {2,5}")
        return Node("repeat", [node], least=max(0, least), most=most)

    def _count(self, default: int) -> int:
        digits = ""
        while self._next() != "" and self._next() in DIGITS:
            digits += self._next()
            self._at += 1
        if len(digits) > 5 or (digits != "" and int(digits) > MOST_COPIES):
            raise self._refused(f"a part is repeated more than {MOST_COPIES} times")
        return default if digits == "" else int(digits)
