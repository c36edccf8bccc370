"""The matcher of regular expressions: compared with Python's `re` if both have the same meaning, and in linear time."""

from __future__ import annotations

import random
import re
import time

import pytest

from pyruntime.errors import UnsupportedOp
from pyruntime.host.regex import Pattern
from pyruntime.host.regex_parse import MAX_DEPTH

ATOMS = ["a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\w", r"\W", "[a-c_]", r"\b", "^", "$", r"\B", "é", r"\x61",
         "(?:b|)", "[]a]", "[a-]", r"[\d_]", r"\.", "{", "(?i:A)", "(?s:.)"]  # fmt: skip
TIMES = ["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0}", "*?", "{0,2}?"]


def expression(draw: random.Random, depth: int) -> str:
    kind = draw.random()
    if depth == 0 or kind < 0.35:
        return draw.choice(ATOMS)
    if kind < 0.6:
        return expression(draw, depth - 1) + expression(draw, depth - 1)
    if kind < 0.75:
        return f"({expression(draw, depth - 1)}|{expression(draw, depth - 1)})"
    return f"(?:{expression(draw, depth - 1)}){draw.choice(TIMES)}"


@pytest.mark.parametrize("seed", range(4))
def test_as_python_reads_it(seed: int) -> None:
    draw = random.Random(seed)
    matched = 0
    for _ in range(600):
        text = expression(draw, 4)
        ours = Pattern(text)
        theirs = re.compile(text.replace("$", r"\Z"), re.ASCII)  # in Python, $ also matches before a last line feed
        for _ in range(6):
            subject = "".join(draw.choice("abcc1_ é\n") for _ in range(draw.randrange(1, 7)))
            assert ours.matches(subject) == (theirs.fullmatch(subject) is not None), (text, subject)
            matched += ours.matches(subject)
    assert matched > 100


@pytest.mark.parametrize(("text", "subject", "matches"), [
    ("", "", True), ("", "a", False), ("a{,3}", "a{,3}", True), ("()*a", "a", True), ("(|a)+", "aaa", True),
    ("(?i)abK[x-z]", "ABk" + "Z", True), ("(?i)k", "\u212a", True), ("(?i)[^k]", "K", False),
    ("(?i)a(?-i)b", "AB", False),
    (r"\x{1F600}", "\U0001f600", True), (r"\101\n\07", "A\n\7", True), (r"\Aa\z", "a", True), ("a$", "a\n", False),
    ("(?m)a$\n^b", "a\nb", True), ("a$\n^b", "a\nb", False), (".", "\n", False), ("[^a]", "\n", True),
    ("[[:alpha:]]+[[:^digit:]]", "abZ-", True), ("(?P<n>a)(?<m>b)", "ab", True),
    (r"\s", "\v", False), (r"\w", "é", False),
    (r"[^\x00-\x{10FFFF}]|a", "a", True), ("[a\\]]+", "]a", True), (r"\B", "", True), ("x*y{2}|z", "xxyy", True),
])  # fmt: skip
def test_as_re2_reads_it(text: str, subject: str, matches: bool) -> None:
    assert Pattern(text).matches(subject) is matches


@pytest.mark.parametrize(("text", "what"), [
    (r"a\1", "not supported at position 1"), ("(?=a)", "not supported"), ("(?<!a)", "not supported"),
    ("(?>a)", "not supported"), ("(?P=x)", "not supported"), ("(?#c)", "not supported"), (r"\p{L}", "not supported"),
    (r"\C", "not supported"), (r"\Q.\E", "not supported"), (r"\Z", "not supported"), (r"[\b]", "not supported"),
    ("a**", "repetition of a repetition"), ("a*+", "repetition of a repetition"), ("a{2}{3}", "repetition of a"),
    ("(a", r"a missing \)"), ("a)", r"an unexpected \)"), ("[a", r"a missing \]"), ("*a", "repeats nothing"),
    ("a|*", "repeats nothing"), ("[z-a]", "end precedes its start"), ("[[:foo:]]", "not supported"),
    ("a{1001}", "bad repetition"), ("a{3,2}", "bad repetition"), ("(a{100}){300}", "more than 20000 steps"),
    ("(?i)é", "beyond ASCII"), ("\\", "not supported"), ("(?", "not supported"), (r"\x{110000}", "not supported"),
    ("(" * (MAX_DEPTH + 1), "groups nested"), ("a?" * 11_000, "steps"),
])  # fmt: skip
def test_what_is_refused(text: str, what: str) -> None:
    with pytest.raises(UnsupportedOp, match=what):
        Pattern(text)


@pytest.mark.parametrize(
    "text", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(.*)*x{3}", "(a+a+)+y", "(a?){30}a{30}b", "(a|b|ab)*c"]
)
def test_the_time_is_linear_in_the_text(text: str) -> None:
    def seconds(n: int) -> float:
        pattern = Pattern(text)
        start = time.process_time()
        assert not pattern.matches("a" * n + "!")
        return time.process_time() - start

    few = min(seconds(2000) for _ in range(3))
    assert seconds(20_000) < 40 * few + 0.05
