"""Validates plain data against a schema: interprets the part of JSON Schema that pyruntime/program/schema.json uses.

Spec: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Rule = Mapping[str, Any]
Limits = dict[str, int]
Check = Callable[[Any, Limits], str]  # returns "", or the place of the first error and what is wrong there

MOST = 2**53  # no integer of a header is as large
REFERENCE = "#/$defs/"  # before the name of a rule

FITS: dict[str, Callable[[Any], bool]] = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str),
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
}
NAMES: dict[str, str] = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
}


class Schema:
    """Its rules are compiled to functions when data first need them. quote: returns a value as JSON text."""

    def __init__(self, rules: Rule, quote: Callable[[Any], str]) -> None:
        self.rules = rules
        self.quote = quote
        self._named: dict[str, Check] = {}

    def refusal(self, data: Any, limits: Limits) -> str:
        """A short message on what is wrong with the data, or "". limits: the size of the "blob" in bytes, and the
        length of each list that positions refer to."""
        return self._definition("")(data, limits)

    def _definition(self, name: str) -> Check:
        """The check of a named rule; "" names the whole schema."""
        known = self._named.get(name)
        if known is not None:
            return known
        made = self._check(self.rules if name == "" else self.rules["$defs"][name])
        self._named[name] = made
        return made

    def _check(self, rule: Rule) -> Check:
        """A function that checks data against a rule."""
        if "$ref" in rule:  # looked up when it first runs, because rules may be recursive
            return lambda data, limits: self._definition(_reference(rule))(data, limits)
        if "anyOf" in rule:
            inner = self._any_of(rule["anyOf"])
            return _nested(inner, rule["nesting"]) if "nesting" in rule else inner
        if "const" in rule:
            return lambda data, limits: (
                "" if _is_same(data, rule["const"]) else f": {self._quoted(rule['const'])} expected"
            )
        if "enum" in rule:
            return self._enum(rule["enum"])
        return self._typed(rule)

    def _typed(self, rule: Rule) -> Check:
        kind: str = rule["type"]
        fits = FITS[kind]
        wrong = f": {NAMES[kind]} expected"
        inner = self._of_type(rule, kind)
        return lambda data, limits: inner(data, limits) if fits(data) else wrong

    def _of_type(self, rule: Rule, kind: str) -> Check:
        """The checks besides the type."""
        if kind == "object":
            return self._object(rule)
        if kind == "array":
            return self._array(rule)
        if kind == "integer":
            return _integer(rule)
        least: int = rule.get("minLength", 0)
        return lambda data, limits: ": it is empty" if kind == "string" and len(data) < least else ""

    def _enum(self, values: list[Any]) -> Check:
        def check(data: Any, limits: Limits) -> str:
            return "" if any(_is_same(data, value) for value in values) else f": {self._quoted(data)} is not known"

        return check

    def _object(self, rule: Rule) -> Check:
        rules: Rule = rule.get("properties", {})
        required: list[str] = rule.get("required", [])
        additional: Any = rule.get("additionalProperties", True)
        known = {key: self._check(inner) for key, inner in rules.items()}
        rest = self._check(additional) if isinstance(additional, dict) else None
        is_closed = isinstance(additional, bool) and not additional

        def check(data: Any, limits: Limits) -> str:
            values: Mapping[str, Any] = data
            for key in required:
                if key not in values:
                    return f": {self._quoted(key)} is missing"
            for key, value in values.items():
                inner = known.get(key, rest)
                if inner is None and is_closed:
                    return f": {self._quoted(key)} is not known"
                wrong = "" if inner is None else inner(value, limits)
                if wrong != "":
                    return f".{key}{wrong}"
            return ""

        return check

    def _array(self, rule: Rule) -> Check:
        rules: list[Rule] = rule.get("prefixItems", [])
        first = [self._check(inner) for inner in rules]
        rest = self._check(rule["items"]) if "items" in rule else None
        least: int = rule.get("minItems", 0)
        most: int = rule.get("maxItems", MOST)
        whole: str | None = rule.get("within")

        def check(data: Any, limits: Limits) -> str:
            values: list[Any] = data
            if len(values) < least or len(values) > most:
                return f": it has {len(values)} entries"
            for n, value in enumerate(values):
                inner = first[n] if n < len(first) else rest
                wrong = "" if inner is None else inner(value, limits)
                if wrong != "":
                    return f"[{n}]{wrong}"
            if whole is not None and values[0] + values[1] > limits[whole]:
                return f": it ends at {values[0] + values[1]}, the {whole} at {limits[whole]}"
            return ""

        return check

    def _any_of(self, rules: list[Rule]) -> Check:
        """Reports the error of the one alternative whose outline the data match."""
        choices = [(self._outline(rule), self._check(rule)) for rule in rules]

        def check(data: Any, limits: Limits) -> str:
            for fits, inner in choices:
                if fits(data):
                    return inner(data, limits)
            return ": it matches no allowed form"

        return check

    def _outline(self, rule: Rule) -> Callable[[Any], bool]:
        """A predicate: whether data match this alternative's type, keys and constants."""
        if "$ref" in rule:
            return self._outline(self.rules["$defs"][_reference(rule)])
        if "enum" in rule:
            return lambda data: data is not None
        fits = FITS[rule["type"]]
        if rule["type"] == "object":
            return _object_outline(rule)
        if "prefixItems" in rule:
            words = _words(rule["prefixItems"][0])
            return lambda data: fits(data) and len(data) > 0 and data[0] in words
        return fits

    def _quoted(self, data: Any) -> str:
        return self.quote(data)[:60]


def _reference(rule: Rule) -> str:
    """The name of the rule to which this one refers."""
    reference: str = rule["$ref"]
    return reference[len(REFERENCE) :]


def _integer(rule: Rule) -> Check:
    least: int = rule.get("minimum", -MOST)
    most: int = rule.get("maximum", MOST)
    counted: str | None = rule.get("indexOf")

    def check(data: Any, limits: Limits) -> str:
        if counted is not None and data >= limits.get(counted, 0):
            return f": it must be below {limits.get(counted, 0)}, the number of {counted}"
        return "" if least <= data <= most else ": it is out of range"

    return check


def _object_outline(rule: Rule) -> Callable[[Any], bool]:
    """Whether data have the constants of these properties, or the required keys if no property is constant."""
    rules: Rule = rule["properties"]
    required: list[str] = rule["required"]
    words = {key: _words(inner) for key, inner in rules.items()}
    marks = [key for key, values in words.items() if len(values) > 0]

    def fits(data: Any) -> bool:
        if not isinstance(data, dict):
            return False
        values: Mapping[str, Any] = data
        if len(marks) == 0:
            return all(key in values for key in required)
        return all(key in values and values[key] in words[key] for key in marks)

    return fits


def _words(rule: Rule) -> list[str]:
    """The constants that distinguish one alternative from the others."""
    values: list[Any] = rule.get("enum", [rule.get("const")])
    return [value for value in values if isinstance(value, str)]


def _nested(inner: Check, most: int) -> Check:
    """Refuses lists that are nested too deeply, before `inner` descends into them."""

    def check(data: Any, limits: Limits) -> str:
        level: list[Any] = [data]
        depth = 0
        while len(level) > 0:
            if depth == most:
                return ": it is nested too deeply"
            level = [value for part in level if isinstance(part, list) for value in part]
            depth += 1
        return inner(data, limits)

    return check


def _is_same(x: Any, y: Any) -> bool:
    """Whether two constants are equal. In Python True equals 1."""
    return x == y and isinstance(x, bool) == isinstance(y, bool)
