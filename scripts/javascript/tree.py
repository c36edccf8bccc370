"""Expressions of JavaScript as trees, which are printed with the parentheses that precedence asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# How tightly an expression binds, least first. An arrow function, a conditional or `??` never stands bare in another.
ARROW, CONDITIONAL, NULLISH, OR, AND, EQUAL, COMPARED, SUM, PRODUCT, POWER, UNARY, MEMBER, PRIMARY = range(13)
BINARY = {
    "??": NULLISH, "||": OR, "&&": AND, "===": EQUAL, "!==": EQUAL, "<": COMPARED, "<=": COMPARED, ">": COMPARED,
    ">=": COMPARED, "in": COMPARED, "instanceof": COMPARED, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT,
    "**": POWER,
}  # fmt: skip
OPPOSITE = {"===": "!==", "!==": "==="}


@dataclass(frozen=True)
class Js:
    """An expression. parts: texts, and operands with the least level that stands there without parentheses; is_array:
    whether it is an array, which nobody else has; operator: of a binary expression."""

    level: int
    parts: tuple[str | tuple[Js, int], ...]
    is_array: bool = False
    operator: str = ""

    def __str__(self) -> str:
        return "".join(p if isinstance(p, str) else p[0].within(p[1]) for p in self.parts)

    def within(self, level: int) -> str:
        return f"({self})" if self.level < level else str(self)


def plain(text: str) -> Js:
    """A name, a number, a text, or an empty display."""
    return Js(PRIMARY, (text,), is_array=text == "[]")


def binary(left: Js, operator: str, right: Js) -> Js:
    level = BINARY[operator]
    first = EQUAL if operator == "??" else PRODUCT + 3 if operator == "**" else level + (level in (EQUAL, COMPARED))
    second = level if operator in ("&&", "||") else first if operator == "??" else level + 1
    return Js(level, ((left, first), f" {operator} ", (right, second)), operator=operator)


def joined(operator: str, operands: Sequence[Js]) -> Js:
    """`a && b && c`."""
    found = operands[0]
    for x in operands[1:]:
        found = binary(found, operator, x)
    return found


def unary(operator: str, operand: Js) -> Js:
    return Js(UNARY, (operator, (operand, UNARY + (operand.parts[0] == operator == "-"))))


def negated(x: Js) -> Js:
    if x.operator in OPPOSITE:
        left, _, right = x.parts
        return Js(x.level, (left, f" {OPPOSITE[x.operator]} ", right), operator=OPPOSITE[x.operator])
    return unary("!", x)


def conditional(condition: Js, then: Js, otherwise: Js) -> Js:
    return Js(CONDITIONAL, ((condition, NULLISH), " ? ", (then, NULLISH), " : ", (otherwise, ARROW)))


def _listed(items: Iterable[Js]) -> tuple[str | tuple[Js, int], ...]:
    found: list[str | tuple[Js, int]] = []
    for x in items:
        found += [", ", (x, ARROW)] if found else [(x, ARROW)]
    return tuple(found)


def call(function: Js | str, *arguments: Js, is_array: bool = False) -> Js:
    callee = plain(function) if isinstance(function, str) else function
    return Js(MEMBER, ((callee, MEMBER), "(", *_listed(arguments), ")"), is_array)


def method(base: Js, name: str, *arguments: Js, is_array: bool = False) -> Js:
    return call(member(base, name), *arguments, is_array=is_array)


def new(name: Js | str, *arguments: Js) -> Js:
    return Js(MEMBER, (f"new {name}(", *_listed(arguments), ")"))


def member(base: Js, name: str) -> Js:
    return Js(MEMBER, ((base, MEMBER), f".{name}"))


def index(base: Js, at: Js) -> Js:
    return Js(MEMBER, ((base, MEMBER), "[", (at, ARROW), "]"))


def array(items: Iterable[Js]) -> Js:
    return Js(PRIMARY, ("[", *_listed(items), "]"), is_array=True)


def spread(x: Js) -> Js:
    return Js(ARROW, ("...", (x, NULLISH + 1)))


def record(entries: Sequence[tuple[str, Js] | Js]) -> Js:
    """A JSON object. entries: key and value, or an object whose entries are copied"""
    if not entries:
        return plain("{}")
    each = [e if isinstance(e, Js) else plain(e[0]) if e[0] == str(e[1]) else Js(ARROW, (f"{e[0]}: ", (e[1], ARROW)))
            for e in entries]  # fmt: skip
    return Js(PRIMARY, ("{ ", *_listed(each), " }"))


def arrow(parameters: Sequence[str], body: Js) -> Js:
    text = str(body)
    return Js(ARROW, (f"({', '.join(parameters)}) => ", f"({text})" if text.startswith("{") else text))


def template(parts: Iterable[str | Js]) -> Js:
    """Texts and values in between."""
    found = []
    for p in parts:
        text = str(p)
        if isinstance(p, str):
            found.append(text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${").replace("\n", "\\n"))
        else:
            found.append(f"${{{text}}}")
    return plain(f"`{''.join(found)}`")


def text(value: str) -> Js:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return plain(f"'{escaped}'")


def cast(name: str, x: Js) -> Js:
    """x as a value of the type with this name."""
    return Js(UNARY, (f"/** @type {{{name}}} */ ({x})",))
