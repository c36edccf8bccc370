"""Formats of texts in pages: what they allow, compared with re, jsonschema and llguidance."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import jsonschema
import llguidance
import numpy as np
import pytest

from kit.page_formats import SCHEMAS, answers, vocabulary
from pyruntime import InvalidInput
from pyruntime.api.text_format import _grammar, lark
from pyruntime.runtime.grammar import read_grammar

SHORT = ["".join(one) for n in range(5) for one in itertools.product("ab1é", repeat=n)]
REGEXES = [
    "a*b",
    "(a|b)+1?",
    "a{2}",
    "a{2,}b",
    "[ab]{1,3}",
    "(?:ab)*1",
    "[^a]b?",
    "[^a1]{2}",
    r"\d+|\w{2}",
    r"\W\D?",
    "(?P<x>a)b|b",
    "a??b",
    "(a*)*",
    "(a|aa){2}b?",
    ".{2}",
    "[a-bé]+",
    "[\\u00e0-\\u00ff]b",
    "^ab$|^1$",
    "a|",
    "[\\x61-\\x62]1",
    "\\S{3}",
    "(|a)b",
]
GRAMMARS = [
    'root ::= "a" root "b" | ""',
    "root ::= [^a-z]+",
    'root ::= x{2,3} # twice\nx ::= "a" | "b"',
    'root ::= (x y)*\nx ::= "a"?\ny ::= "1"',
    'root ::= "é" [à-ÿ]? | "b" .',
    'root ::= list\nlist ::= "a" | "a" "1" list',
    'root ::= "ab" "1" | "ab1" "b"\n',
    'root ::= word "b"\nword ::= [a-z]+',
    'root ::= "\\x61" "\\u00e9"{0,2} [\\]\\-1]',
    'root\n ::=\n "a"\n | "b"\n x-1 ::= "c"',
    'root ::= [a-b]{,2} "1"',
    'root ::= "a" root | "b"{0} "1"{0,0} "é"',
]
MORE: list[Any] = [
    True,
    {"type": "number", "minimum": 2.5, "maximum": 7.2},
    {"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 1},
    {"type": "integer", "exclusiveMinimum": 98, "maximum": 1002},
    {"type": "integer", "maximum": -9},
    {"type": "number"},
    {"type": "integer"},
    {"type": "string", "pattern": '^(a"b|\\\\\\n)$'},
    {"type": "string", "pattern": "[^a]$"},
    {"type": "string", "minLength": 3, "maxLength": 5},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3},
    {"properties": {"a": {"type": "null"}, "b": False, "c": {}}, "required": ["c", "d"], "type": "object"},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"minimum": 3}}},
            {"properties": {"a": {"type": "integer", "maximum": 5}}, "required": ["a"]},
        ]
    },
    {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "additionalProperties": False}
        },
    },
    {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": k}, k: {"type": "boolean"}}, "required": ["kind", k]}
            for k in "ab"
        ]
    },
    {
        "type": "array",
        "prefixItems": [{"const": 1}, {"const": 2}],
        "items": {"type": "boolean"},
        "minItems": 1,
        "maxItems": 4,
    },
    {"items": [{"const": 1}], "additionalItems": False, "type": "array"},
    {"anyOf": [{"type": "string"}, {"type": "null"}], "maxLength": 3},
    {"enum": ["é", 'quo"te', [1, {"a": None}], 2.5, False], "type": ["string", "array", "number"]},
    {"type": ["integer", "number"], "minimum": 7},
    {
        "type": "object",
        "properties": {"__proto__": {"type": "null"}, "a/b": {"type": "null"}},
        "required": ["__proto__"],
    },
    *(
        {"type": "string", "format": name}
        for name in ("date", "time", "date-time", "uuid", "ipv4", "email", "hostname")
    ),
]
UNFIT = {
    "multipleOf": {"type": "integer", "multipleOf": 3},
    "not": {"not": {"type": "null"}},
    "if": {"if": True},
    "uniqueItems": {"uniqueItems": True},
    "patternProperties": {"patternProperties": {"a": True}},
    "contains": {"contains": True},
    "dependentRequired": {"dependentRequired": {}},
    "unevaluatedProperties": {"unevaluatedProperties": False},
    "propertyNames": {"propertyNames": {"maxLength": 3}},
    "format": {"type": "string", "format": "colour"},
    "maxLength": {"type": "string", "pattern": "a", "maxLength": 3},
    "minProperties": {"type": "object", "minProperties": 2},
    "oneOf": {"oneOf": [{"minimum": 2}, {"type": "integer"}]},
    "$ref": {"$ref": "other.json"},
    "type": {"type": "nothing"},
    "minimum": {"minimum": "3"},
    "pattern": {"pattern": "(?=a)"},
}


def test_regular_expressions() -> None:
    found = answers([{"format": {"regex": regex}, "texts": SHORT, "count": 3, "seed": 4} for regex in REGEXES])
    for regex, answer in zip(REGEXES, found, strict=True):
        pattern = re.compile(regex, re.ASCII)
        # \W and \D are limited to ASCII, because dialects differ in other characters.
        same = [bool(pattern.fullmatch(text)) for text in SHORT if not re.search(r"\\[WDS]", regex) or text.isascii()]
        given = [
            accepted
            for text, accepted in zip(SHORT, answer["accepted"], strict=True)
            if not re.search(r"\\[WDS]", regex) or text.isascii()
        ]
        assert given == same and any(given) != regex.startswith(r"\W"), regex
        assert all(text is None or pattern.fullmatch(text) for text in answer["texts"]), regex


def test_grammars() -> None:
    """are the same language in pages and in Python."""
    found = answers([{"format": {"grammar": grammar}, "texts": SHORT} for grammar in GRAMMARS])
    for grammar, answer in zip(GRAMMARS, found, strict=True):
        rules = lark(read_grammar([*grammar], [ord(c) for c in grammar]))
        first = llguidance.LLMatcher(_tokens(), llguidance.LLMatcher.grammar_from_lark(rules), log_level=0)
        assert not first.is_error() and any(answer["accepted"]), first.get_error()
        assert answer["accepted"] == [_accepts(first.deep_copy(), text) for text in SHORT], grammar


def test_grammars_are_regular_expressions() -> None:
    """Others keep a terminal for each character: recursive ones, huge ones, and long chains of rules."""
    chain = "\n".join(f"r{n} ::= r{n + 1}" for n in range(5000))
    for grammar, is_regular in {
        'root ::= item ("," item)*\nitem ::= [a-z]{1,9} | "no" | ""': True,
        'root ::= [a-z ]* "a" [a-z ]{400} "."': True,
        'root ::= "(" root ")" | "x"': False,
        'root ::= a\na ::= "x" b?\nb ::= "y" a': False,
        "root ::= ([a-z]{1,100} ){1,90}": False,
        f'root ::= r0\n{chain}\nr5000 ::= "x"': False,
    }.items():
        assert lark(read_grammar([*grammar], [ord(c) for c in grammar])).startswith("start: /") == is_regular, grammar


def _tokens() -> Any:
    class Bytes:
        is_tokenizer_wrapper, bos_token_id, eos_token_id, special_token_ids = True, None, 256, [256]
        tokens = [bytes([byte]) for byte in range(256)] + [b""]

        def __call__(self, text: str | bytes) -> list[int]:
            return [*(text.encode() if isinstance(text, str) else text)]

    return llguidance.LLTokenizer(Bytes(), eos_token=[256])  # type: ignore[arg-type]


def _accepts(matcher: Any, text: str) -> bool:
    for byte in text.encode():
        if matcher.is_stopped() or not np.frombuffer(matcher.compute_bitmask(), "u1")[byte >> 3] >> (byte & 7) & 1:
            return False
        matcher.consume_token(byte)
    return bool(matcher.is_accepting())


def test_schemas() -> None:
    """Random texts are values that fit."""
    schemas = [*SCHEMAS, *MORE]
    found = answers(
        [{"format": {"schema": schema}, "count": 10, "seed": n, "most": 4000} for n, schema in enumerate(schemas)]
    )
    for schema, answer in zip(schemas, found, strict=True):
        texts = [text for text in answer["texts"] if text is not None]
        assert len(texts) > 2, schema
        for text in texts:
            draft = jsonschema.Draft7Validator if "additionalItems" in str(schema) else jsonschema.Draft202012Validator
            draft(schema, format_checker=draft.FORMAT_CHECKER).validate(json.loads(text))


def test_refused() -> None:
    requests: list[tuple[Any, str]] = [
        ({"schema": {"properties": {"x": schema}}}, f"at #/properties/x/{name}") for name, schema in UNFIT.items()
    ]
    requests += [
        ({"schema": False}, "no value fits it"),
        ({"schema": {"type": "object", "required": ["a"], "additionalProperties": False}}, "no value fits it"),
        ({"schema": "{"}, "the schema of the format is refused"),
        ({"schema": 3}, "a schema is an object"),
        ({"regex": ""}, "only an empty text"),
        ({"grammar": 'root ::= ""'}, "only an empty text"),
        ({"xml": "a"}, "format is"),
        ("json", "format is"),
        ({"regex": 3}, "a text is expected"),
        ({"schema": {"allOf": [{"$ref": "#"}]}}, "refers to itself"),
        ({"schema": {"type": "string", "minLength": 900_000}}, "too large"),
        ({"schema": {"type": "number", "minimum": 0.2, "maximum": 0.8}}, "no whole number is between"),
    ]
    requests += [
        ({"regex": regex}, "the regex of the format is refused at character")
        for regex in (
            "(",
            "a)",
            "[",
            "[]",
            "a**",
            "*",
            "a{3,2}",
            r"\b",
            "(?=a)",
            r"\1",
            "a^b",
            "(a$)",
            "{2}",
            r"\p{L}",
            "a{99999}",
            "[b-a]",
            "\\",
        )
    ]
    for (form, part), answer in zip(requests, answers([{"format": form} for form, _ in requests]), strict=True):
        assert part in answer.get("error", ""), form


DAMAGED = {
    "begin: 1": "line 1: a rule is expected",
    "root ::= x": "names the rule x",
    'a ::= "b"': "no rule root",
    'root ::= "a\n': 'a " or ] is missing',
    "root ::= (": "a ) is missing",
    "root ::= [": 'a " or ]',
    'root ::= "a" )': "there is no (",
    'root ::= root "a"': "begins with itself",
    'root ::= x "a"\nx ::= y? root\ny ::= "b"': "begins with itself",
    'root ::= "\\q"': "\\q is not known",
    'root ::= "\\x6"': "hexadecimal",
    'root ::= "a"{3,2}': "a number of times",
    'root ::= "a"{}': "a number of times",
    "root ::= [b-a]": "ends before it begins",
    "root ::= []": "no characters",
    'root ::= "a"{99999}': "more than",
    'root ::= "\\ud800"': "no such character",
    'root ::= "a"\nroot ::= "b"': "line 2: the rule root is defined twice",
    "root ::= " + "(" * 200: "nested",
}


def test_damaged_grammars() -> None:
    """are refused with the same words."""
    for (grammar, part), answer in zip(
        DAMAGED.items(), answers([{"format": {"grammar": grammar}} for grammar in DAMAGED]), strict=True
    ):
        with pytest.raises(InvalidInput) as raised:
            read_grammar([*grammar], [ord(c) for c in grammar])
        assert part in answer["error"] and answer["error"] in str(raised.value), grammar


def test_formats_with_too_many_parts_in_one_another_are_refused() -> None:
    given = [("grammar", 'root ::= "a"' + "*" * 20_000), ("schema", '{"items":' * 20_000 + "{}" + "}" * 20_000)]
    for (kind, text), answer in zip(given, answers([{"format": {kind: text}} for kind, text in given]), strict=True):
        assert "format is refused" in answer["error"], kind
        with pytest.raises(InvalidInput, match=f"{kind} of the format is refused"):
            _grammar(llguidance.LLMatcher, kind, text)


def test_tokens_of_several_characters() -> None:
    """give texts of all forms, and a mask of 49,152 tokens is fast on average."""
    schema = {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}},
        "maxItems": 3,
    }
    (found,) = answers([{"format": {"schema": schema}, "count": 20, "most": 200}], vocabulary(49_152))
    for text in found["texts"]:
        jsonschema.validate(json.loads(text), schema)
    assert len(found["milliseconds"]) > 20
