"""The matcher of regular expressions: compared with Python's `re` if both have the same meaning, and in linear time."""

from __future__ import annotations

import random
import re
import time
import unicodedata
from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from pyruntime.errors import UnsupportedOp
from pyruntime.host.regex import Pattern
from pyruntime.host.regex_parse import MAX_DEPTH


def RE2(pattern: str) -> Callable[[list[str]], list[bool]]:
    """RE2's matcher, in onnxruntime. Raises Fail for an invalid pattern."""
    x, y = (helper.make_tensor_value_info(n, t, ["n"]) for n, t in (("x", TensorProto.STRING), ("y", TensorProto.BOOL)))
    graph = helper.make_graph([helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return lambda texts: session.run(None, {"x": np.array(texts, object)})[0].tolist()


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


SUBJECTS = [
    "", "a", "A", "é", "É", "ß", "ẞ", "ſ", "s", "S", "K", "k", "ǅ", "ǆ", "Ǆ", "12", "٣", "Été", "a.b", "axb",
    "日本", "😀", "\n", "a\nb", "ab", "aa", "a*", "E", "Q", "_", "Ω", "ω", "σ", "ς", "Σ", "a\\E", "aab", "{", "a{",
    "a{,2}", "\t", "·", "µ", "μ", "Μ", "xé", "éé", "ÀÉ", "i", "İ", "ı", "I"
]  # fmt: skip
PATTERNS = [
    r"\p{L}+", r"\pN+", r"[\p{L}\d.]+", r"(?i)é", r"\Qa.b\E", r"\Qa.b", r"a\Q\E", r"\Qa\E*", r"\Qab\E+", r"\E",
    r"a\E", r"\C", r"\C\C", r"\C+", r"a\C*", r"[\C]", r"(?i)ß", r"(?i)ſ", r"(?i)[k]", r"(?i)[^é]", r"(?i)\w",
    r"(?i)\W", r"(?i)\d", r"\P{L}", r"\p{^L}", r"\P{^L}", r"\pLu", r"\p{Lu}", r"(?i)\p{Lu}", r"(?i)\P{Lu}",
    r"[\p{Greek}a]", r"[^\p{Greek}a]", r"\p{Han}+", r"\p{Any}", r"\p{Foo}", r"\p{greek}", r"\p{}", r"\p", r"\p{L",
    r"[[:word:]]+", r"[[:^alpha:]]", r"(?i)[[:upper:]]", r"(?i)[[:^upper:]]", r"[^[:^alpha:]]", r"(?i)σ",
    r"(?i)ω", r"(?i)µ", r"(?i)[α-ω]", r"(?i)i", r"(?i)İ", r"(?i)ǆ", r"(?i)ǅ", r"\pZ", r"\p{Zs}", r"\pC", r"\pS",
    r"\p{M}", r"\p{Cn}", r"\p{Cs}", r"\p{LC}", r"\p{Common}", r"[\pN]", r"[^\pN]", r"a{,2}", r"a{", r"{", r"a**",
    r"a*?", r"a*?*", r"(?i)*a", r"a(?i)*", r"a|*", r"(?:)*", r"^*", r"$*a", r"\b*", r"(?P<n>a)(?P<n>b)",
    r"(?P<é>a)", r"(?<n>a)", r"(?P<>a)", r"(?'n'a)", r"(?i:a)b", r"(?-i:a)", r"(?i-s:a.)", r"(?im)a", r"(?)a",
    r"(?-)a", r"(?--i)a", r"(?i-)a", r"(?U)a+", r"(?x)a", r"\8", r"\07", r"\1", r"\x4", r"\x{41", r"\x{}",
    r"\x{1F600}", r"\cA", r"\e", r"\h", r"\R", r"\K", r"\G", r"\Z", r"\z", r"\A", r"a\z", r"\v", r"\_", r"\-",
    r"\é", r"[a-\d]", r"[\d-a]", r"[a-]", r"[]a]", r"[^]a]", r"[]", r"[^]", r"[z-a]", r"[a", r"[[:foo:]]",
    r"[[:alpha:]", r"[[=a=]]", r"[[.a.]]", r"[\Qa\E]", r"[\b]", r"[\B]", r"[\A]", r"[\z]", r"[\x41-\x43]",
    r"[\101]", r"[é-ß]", r"(?s).", r".", r"(?m)^a$", r"a$", r"(a", r"a)", r")", r"(|a)+", r"()", r"||", r"x*",
    r"a{2}{3}", r"a{1001}", r"a{1000}", r"(a{2}){2}", r"a{0}", r"a{1,0}", r"((a{10}){10}){10}", r"((a{10}){10}){11}",
    r"(a{32}){32}", r"(a{20,}){51}", r"(a{0,40}){26}", r"((b|a{501}|c)*){2}", r"(a{1000})+", r"(a{501}b){2}",
    r"(a*){1000}", r"((a{600}){1}){1,2}", r"(a{2}b{501}){1,2}", r"(a{500}(b{2}|c){2}){2}", r"(a{0}){1000}",
    r"(a{0,}){1000}", r"(?:a{501}){2}", r"(a{501})(b{2})", r"((a{2}){2}){250}", r"((a{2}){2}){251}", r"(a?){500}",
    r"\pL\pL", r"\p{L}{2}", r"(?i)\x{e9}", r"(?i)\Qé\E", r"(?i)éÉ", r"[[:ascii:]]", r"\p{N}*?", r"(?i)K",
    r"(?i)[K-K]", r"\p{Latin}+", r"\p{Cyrillic}", r"(?=a)", r"(?!a)", r"(?<=a)", r"(?>a)", r"a++", r"a*+",
    r"(?#c)a", 'a\x00', '\\\n'
]  # fmt: skip


@pytest.mark.parametrize("first", range(0, len(PATTERNS), 25))
def test_as_onnxruntime_reads_it(first: int) -> None:
    """RE2 in onnxruntime: the same matches, and an error for the same patterns."""
    for text in PATTERNS[first : first + 25]:
        try:
            want = RE2(text)(SUBJECTS)
        except Fail:
            with pytest.raises(UnsupportedOp):
                Pattern(text)
        else:
            pattern = Pattern(text)
            assert [pattern.matches(subject) for subject in SUBJECTS] == want, text


# Code points on both sides of each place where the category changes, all of the first ones, and every 41st
POINTS = [
    c
    for c in range(0x110000)
    if not 0xD800 <= c <= 0xDFFF
    and (c < 0x3000 or c % 41 == 0 or len({unicodedata.category(chr(min(c + n, 0x10FFFF))) for n in (-1, 0, 1)}) > 1)
]


@pytest.mark.parametrize("name", ["L", "Nd", "Mn", "P", "So", "Zs", "C", "Greek", "Han", "Common", "Latin"])
def test_classes_of_unicode(name: str) -> None:
    characters = [chr(c) for c in POINTS]
    pattern = Pattern(rf"\p{{{name}}}")
    assert [pattern.matches(c) for c in characters] == RE2(rf"\p{{{name}}}")(characters)


def test_cases_of_unicode() -> None:
    """Every character that has another case, against one pattern in 20 of them."""
    cased = [chr(c) for c in range(0x1E944) if len({chr(c).lower(), chr(c).upper(), chr(c).title()}) > 1]
    for c in cased[::60]:
        assert [x for x in cased if Pattern(f"(?i){c}").matches(x)] == [
            x for x, hit in zip(cased, RE2(f"(?i){c}")(cased), strict=True) if hit
        ]


@pytest.mark.parametrize(("text", "what"), [
    (r"a\1", "not supported at position 1"), ("(?=a)", "not supported"), ("(?<!a)", "not supported"),
    ("(?>a)", "not supported"), ("(?P=x)", "not supported"), ("(?#c)", "not supported"), (r"\p{Foo}", "not supported"),
    (r"\Z", "not supported"), (r"[\b]", "not supported"),
    ("a**", "repetition of a repetition"), ("a*+", "repetition of a repetition"), ("a{2}{3}", "repetition of a"),
    ("(a", r"a missing \)"), ("a)", r"an unexpected \)"), ("[a", r"a missing \]"), ("*a", "repeats nothing"),
    ("a|*", "repeats nothing"), ("[z-a]", "end precedes its start"), ("[[:foo:]]", "not supported"),
    ("a{1001}", "bad repetition"), ("a{3,2}", "bad repetition"), ("(a{100}){11}", "repetitions of more than 1000"),
    ("\\", "not supported"), ("(?", "not supported"), (r"\x{110000}", "not supported"),
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
