"""Validates plain data against schema.json: a small interpreter of the part of JSON Schema that it uses.

web/worker/programs/schema.js does the same; tests/test_contract.py checks that both give the same messages.
Spec: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Check = Callable[[Any, Mapping[str, int]], str]  # (data, limits) -> "" or "path: what is wrong"

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str),
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
}
_TYPE_NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "an integer",
    "boolean": "true or false",
}


@cache
def schema() -> dict[str, Any]:
    """The schema of a Program's header."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("schema.json").read_text())
    return found


def refusal(header: Any, limits: Mapping[str, int]) -> str:
    """A short message on what is wrong with a header, or "". limits: the size of the "blob" in bytes, and the length of
    each list that positions refer to."""
    try:
        return _whole()(header, limits)
    except RecursionError:
        return ": it is nested too deeply"


@cache
def _whole() -> Check:
    return _check(schema())


def _check(rule: Mapping[str, Any]) -> Check:
    """A function that checks data against a rule."""
    if "$ref" in rule:
        return _reference(rule["$ref"].rpartition("/")[2])
    if "anyOf" in rule:
        inner = _any_of(rule["anyOf"])
        return _nested(inner, rule["nesting"]) if "nesting" in rule else inner
    if "const" in rule:
        return lambda x, _: "" if _same(x, rule["const"]) else f": {_quoted(rule['const'])} expected"
    if "enum" in rule:
        return lambda x, _: "" if any(_same(x, v) for v in rule["enum"]) else f": {_quoted(x)} is not known"
    kind = rule["type"]
    inner = {"object": _object, "array": _array, "integer": _integer, "string": _string}.get(kind, _plain)(rule)
    fits, told = _TYPES[kind], f": {_TYPE_NAMES.get(kind, kind)} expected"
    return lambda x, limits: inner(x, limits) if fits(x) else told


def _plain(rule: Mapping[str, Any]) -> Check:
    return lambda x, limits: ""


def _reference(name: str) -> Check:
    """The check of a named rule, looked up when it first runs, because rules may be recursive."""
    return lambda x, limits: _named(name)(x, limits)


@cache
def _named(name: str) -> Check:
    return _check(schema()["$defs"][name])


def _object(rule: Mapping[str, Any]) -> Check:
    properties = {key: _check(r) for key, r in rule.get("properties", {}).items()}
    required = rule.get("required", ())
    others = rule.get("additionalProperties", True)
    rest = _check(others) if isinstance(others, dict) else None

    def check(x: Any, limits: Mapping[str, int]) -> str:
        for key in required:
            if key not in x:
                return f": {_quoted(key)} is missing"
        for key, value in x.items():
            inner = properties.get(key, rest)
            if inner is None:
                if others is False:
                    return f": {_quoted(key)} is not known"
                continue
            wrong = inner(value, limits)
            if wrong:
                return f".{key}{wrong}"
        return ""

    return check


def _array(rule: Mapping[str, Any]) -> Check:
    first = [_check(r) for r in rule.get("prefixItems", ())]
    rest = _check(rule["items"]) if "items" in rule else None
    least, most, within = rule.get("minItems", 0), rule.get("maxItems", 1 << 53), rule.get("within")

    def check(x: Any, limits: Mapping[str, int]) -> str:
        if not least <= len(x) <= most:
            return f": it has {len(x)} entries"
        for n, value in enumerate(x):
            inner = first[n] if n < len(first) else rest
            wrong = inner(value, limits) if inner is not None else ""
            if wrong:
                return f"[{n}]{wrong}"
        if within is not None and x[0] + x[1] > limits[within]:
            return f": it ends at {x[0] + x[1]}, the {within} at {limits[within]}"
        return ""

    return check


def _integer(rule: Mapping[str, Any]) -> Check:
    least, most, index = rule.get("minimum", -(1 << 53)), rule.get("maximum", 1 << 53), rule.get("indexOf")

    def check(x: Any, limits: Mapping[str, int]) -> str:
        if index is not None and x >= limits.get(index, 0):
            return f": there are only {limits.get(index, 0)} {index}"
        return "" if least <= x <= most else ": it is out of range"

    return check


def _string(rule: Mapping[str, Any]) -> Check:
    least = rule.get("minLength", 0)
    return lambda x, _: "" if len(x) >= least else ": it is empty"


def _any_of(rules: list[Mapping[str, Any]]) -> Check:
    """Reports the error of the one alternative whose outline matches the data."""
    choices = [(_outline(r), _check(r)) for r in rules]

    def check(x: Any, limits: Mapping[str, int]) -> str:
        for fits, inner in choices:
            if fits(x):
                return inner(x, limits)
        return ": it has none of the forms that it may have"

    return check


def _outline(rule: Mapping[str, Any]) -> Callable[[Any], bool]:
    """A predicate: whether data matches this alternative's type, keys and constants."""
    if "$ref" in rule:
        rule = schema()["$defs"][rule["$ref"].rpartition("/")[2]]
    if "enum" in rule:
        return lambda x: x is not None
    fits = _TYPES[rule["type"]]
    if rule["type"] == "object":
        named = {key: _values(r) for key, r in rule["properties"].items()}
        marks = {key: values for key, values in named.items() if values}
        keys = rule["required"]
        if marks:
            return lambda x: fits(x) and all(key in x and x[key] in values for key, values in marks.items())
        return lambda x: fits(x) and all(key in x for key in keys)
    if "prefixItems" in rule:
        values = _values(rule["prefixItems"][0])
        return lambda x: fits(x) and len(x) > 0 and x[0] in values
    return fits


def _values(rule: Mapping[str, Any]) -> list[Any]:
    """The constants that distinguish one alternative from the others."""
    return [v for v in rule.get("enum", [rule.get("const")]) if isinstance(v, str)]


def _nested(inner: Check, most: int) -> Check:
    """Refuses lists that are nested too deeply, before `inner` descends into them."""

    def check(x: Any, limits: Mapping[str, int]) -> str:
        level, depth = [x], 0
        while level:
            level = [v for part in level if isinstance(part, list) for v in part]
            depth += 1
            if depth > most:
                return ": it is nested too deeply"
        return inner(x, limits)

    return check


def _same(x: Any, y: Any) -> bool:
    return type(x) is type(y) and bool(x == y)


def _quoted(x: Any) -> str:
    return json.dumps(x, ensure_ascii=False, separators=(",", ":"))[:60]


__all__ = ["refusal", "schema"]
