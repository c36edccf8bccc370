"""Draws functions in the subset of Python that scripts/javascript translates."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

TYPES = {
    "int": "int", "bool": "bool", "str": "str", "ints": "list[int]", "strs": "list[str]", "dict": "dict[str, int]",
    "set": "set[int]", "pair": "tuple[int, int]", "maybe": "int | None",
}  # fmt: skip
PARAMETERS = {"i": "int", "j": "int", "t": "str", "xs": "ints", "ws": "strs", "d": "dict", "s": "set", "o": "maybe"}
# Templates of expressions, by type. {int}: an expression of that type; {x:int}: one in which x is an int; {small}: an
# integer from -4 to 7; {key}: a literal text; {name_int}: a variable.
TEMPLATES = {
    "int": (
        "{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} // 3", "{int} % 4", "{int} // -2", "{int} % -3",
        "{int} // {int}", "{int} % {int}", "-({int})", "abs({int})",
        "{int} - ({int} - {int})", "({int} + {int}) * {int}", "-({int}) // {int} * {int}", "{int} % ({int} * {int})",
        "min({int}, {int})", "max({int}, {int}, {int})", "len({ints})", "len({str})", "len({dict})", "len({set})",
        "sum({ints})", "sum(x for x in {ints} if {x:bool})", "sum({x:int} for x in {set})", "({ints})[0]",
        "({ints})[-1]", "[{int}, {int}, 4][{int} % 3]", "[{int}, {int}][-1]", "({dict})[{key}]",
        "({dict}).get({key}, {name_int})", "int(str({int}))", "int({str})", "int({bool})",
        "{int} if {bool} else {int}", "min([{int}, *{ints}])", "max({ints}, default={int})",
        "[4, 5, {int}].index({int})",
        "({str}).find({key})", "o if o is not None else {int}", "{int} if o is None else o", "({pair})[0]",
        "({pair})[1]", "max([{x:int} for x in {set}], default=0)", "math.prod({ints})",
        "(lambda x: {x:int})({int})",
    ),
    "bool": (
        "{int} < {int}", "{int} <= {name_int} < {int}", "{int} == {int}", "{int} != {int}", "{str} == {str}",
        "{str} < {str}",
        "not ({bool})", "not {ints}", "not {str}", "{bool} and {bool}", "{bool} or {bool}",
        "{bool} and ({bool} or {bool})",
        "not ({bool} and {bool})", "{int} in {ints}", "{int} not in {ints}", "{key} in {strs}", "{key} in {str}",
        "{key} in {dict}", "{key} not in {dict}", "{int} in {set}", "{ints} == {ints}", "{ints} != {ints}",
        "{pair} == {pair}", "any({x:bool} for x in {ints})", "all({x:bool} for x in {ints} if {x:bool})",
        "bool({dict})",
        "bool({set})", "bool({int})", "o is None", "o is not None and o < {int}", "{set} <= {set}",
        "({set}).isdisjoint({set})", "({str}).startswith({key})", "({str}).endswith({key})",
        "{bool} if {bool} else {bool}",
        "({str}).isdecimal()", "o == {int}", "any({bool} for w in {strs})",
    ),
    "str": (
        "{str} + {str}", 'f"{{name_int}}-{{name_str}}"', "str({int})", "({str}).lower()", "({str}).upper()",
        "({str})[{small}:]",
        "({str})[:{small}]", "({str})[{small}:{small}]", '", ".join({strs})', "({str}).replace({key}, {str})",
        "{str} if {bool} else {str}", '"".join(str(x) for x in {ints} if {x:bool})',
        '"-".join([str({x:int}) for x in {ints}])',
        "[*{strs}, {str}][0]", 'f"{{name_str}}`${{name_int}}"',
    ),
    "ints": (
        "[{int}, {int}]", "[{x:int} for x in {ints} if {x:bool}]", "sorted({ints})", "sorted({set})",
        "sorted({ints}, key=lambda x: (x % 3, -x))", "{ints} + {ints}", "[{int}] * {small}",
        "({ints})[{small}:{small}]",
        "({ints})[{small}:]", "list(range({small}, {small}))", "list(range({small}))", "list(reversed({ints}))",
        "list(({dict}).values())", "sorted(({dict}).values())", "[n for n, x in enumerate({ints}) if {x:bool}]",
        "[x + y for x, y in zip({ints}, {ints}, strict={strict})]", "({ints}).copy()", "[*{ints}, {int}]",
        "[x * y for x in {ints} for y in range(max(0, min(x, 4))) if {x:bool}]", "{ints} if {bool} else {ints}",
        "[*({pair})]",
    ),
    "strs": (
        "[{str}]", "list({dict})", "list(({dict}).keys())", "sorted({strs})", "({str}).split({key})", "list({str})",
        '[f"{k}={v}" for k, v in ({dict}).items()]', "[w + {str} for w in {strs}]", "{strs} + {strs}",
        "[w for w in {strs} if w in {dict}]", "[w for w in {strs} if w]",
    ),
    "dict": (
        "{{key}: {int}, {key}: {int}}", "{w: len(w) for w in {strs}}", "{**{dict}, {key}: {int}}", "dict({dict})",
        "({dict}).copy()", "dict(zip({strs}, {ints}, strict={strict}))",
        "{k: v + {int} for k, v in ({dict}).items()}",
        "{str(x): {x:int} for x in {ints}}",
    ),
    "set": ("{{int}, {int}}", "set({ints})", "{{x:int} for x in {ints}}", "{set} | {set}", "{set} - {set}",
        "set(({dict}).values())"),
    "pair": ("({int}, {int})",),
    "maybe": ("None", "{int}", "({dict}).get({key})", "o"),
}  # fmt: skip
LITERALS = {
    "int": ("0", "1", "2", "3", "-1", "-7", "10", "8589934593"), "bool": ("i < 2", "j != 0", "t == t", "o is None"),
    "str": ('""', '"a"', '"ab,b"', '"B"', '"12"', '" 7"', '"é"', '"it\'s"'), "ints": ("xs[:0]", "[3, 1, 2]",
        "[0]", "[5, -6]"),
    "strs": ("ws[:0]", '["a", "c"]'), "dict": ('{"a": 1}', '{"b": 2, "a": 0}'), "set": ("{1}", "{3, 4, 1}"),
    "pair": ("(1, 2)",), "maybe": ("None", "3"),
}  # fmt: skip
FIELD = re.compile(r"\{((?:x:)?(?:key|strict|small|name_int|name_str|" + "|".join(TYPES) + r"))\}")
KEYS = ('"a"', '"b"', '","', '"c"')
VALUES: dict[str, tuple[object, ...]] = {
    "int": (0, 1, 2, 7, -1, -5, 2**33 + 1), "str": ("", "a", "a,b", "12", "Bé"), "ints": ([], [1], [3, 1, 2], [2,
        2, -1]),
    "strs": ([], ["a"], ["b", "a", "b"]), "dict": ({}, {"a": 1}, {"b": 0, "a": 5}), "set": (set(), {1}, {9, 2, 17}),
    "maybe": (None, 0, 4),
}  # fmt: skip


class Function:
    """One random function. name: its name; text: its source; arguments: of its calls"""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.rng = rng
        self.count = 0
        self.name = name
        self.returns = rng.choice(list(TYPES))
        names = ", ".join(f"{n}: {TYPES[t]}" for n, t in PARAMETERS.items())
        body = self._block(dict(PARAMETERS), 1, rng.randrange(1, 5), False, final=True)
        lines = ["import math", "", "", f"def {name}({names}) -> {TYPES[self.returns]}:", *body]
        self.text = "\n".join(lines) + "\n"
        self.arguments = [[rng.choice(VALUES[t]) for t in PARAMETERS.values()] for _ in range(6)]

    # ── expressions ──

    def _expression(self, t: str, known: dict[str, str], depth: int) -> str:
        """An expression of type t, in parentheses if it is not simple. known: types of the variables"""
        own = [n for n, of in known.items() if of == t]
        if depth <= 0 or self.rng.random() < 0.25:
            return self.rng.choice(own) if own and self.rng.random() < 0.7 else self.rng.choice(LITERALS[t])
        text = self._filled(self.rng.choice(TEMPLATES[t]), known, depth - 1)
        return f"({text})" if self.rng.random() < 0.7 or " if " in text or "lambda" in text else text

    def _filled(self, template: str, known: dict[str, str], depth: int) -> str:
        return FIELD.sub(lambda found: self._field(found[1], known, depth), template)

    def _field(self, field: str, known: dict[str, str], depth: int) -> str:
        if field == "key":
            return self.rng.choice(KEYS)
        if field == "strict":
            return self.rng.choice(["True", "False", "False", "False"])
        if field.startswith("name_"):
            return self.rng.choice([n for n, of in known.items() if of == field.removeprefix("name_")])
        if field == "small":
            return f"max(-4, min({self._expression('int', known, depth)}, 7))"
        name, _, t = field.rpartition(":")
        text = self._expression(t, known | ({name: "int"} if name else {}), depth)
        return f"({text})"

    # ── statements ──

    def _new(self) -> str:
        self.count += 1
        return f"{self.rng.choice(['value', 'of_it', 'new', 'x_y'])}{self.count}"

    def _block(self, known: dict[str, str], level: int, count: int, is_loop: bool, final: bool = False) -> list[str]:
        indent = "    " * level
        lines: list[str] = []
        for _ in range(count):
            kinds: list[Callable[[dict[str, str], int], list[str]]] = [self._assign, self._change, self._assign]
            if level < 4:
                kinds += [self._if, self._branches, self._for, self._while]
            lines += [indent + line for line in self.rng.choice(kinds)(known, level)]
        if is_loop and self.rng.random() < 0.3:
            word = self.rng.choice(["break", "continue"])
            lines += [f"{indent}if {self._expression('bool', known, 2)}:", f"{indent}    {word}"]
        if final or self.rng.random() < 0.15:
            lines.append(f"{indent}return {self._expression(self.returns, known, 4)}")
        return lines

    def _inner(self, known: dict[str, str], level: int, is_loop: bool) -> list[str]:
        """A block inside, whose lines lack the indent of the block around it."""
        lines = self._block(dict(known), level + 1, self.rng.randrange(1, 3), is_loop)
        return [line[4 * level :] for line in lines]

    def _assign(self, known: dict[str, str], level: int) -> list[str]:
        t = self.rng.choice(["int", "int", "str", "ints", "strs", "dict", "set", "bool", "pair"])
        own = [n for n, of in known.items() if of == t and not n.startswith("loop")]
        name = self.rng.choice(own) if own and self.rng.random() < 0.3 else self._new()
        annotation = f": {TYPES[t]}" if name not in known else ""
        text = self._expression(t, known, 3)
        if t in ("str", "ints", "strs"):
            text = f"({text})[:20]"  # or loops would double it many times
        known[name] = t
        return [f"{name}{annotation} = {text}"]

    def _change(self, known: dict[str, str], level: int) -> list[str]:
        """Changes a value in its place."""
        templates = {
            "int": ["{name} += {int}", "{name} -= {int}", "{name} *= {small}", "{name} //= {int}", "{name} %= {int}"],
            "str": ["{name} += ({str})[:3]"], "set": ["{name}.add({int})", "{name}.discard({int})", "{name} |= {set}",
                    "{name}.update({ints})"],
            "ints": ["{name}.append({int})", "{name}.extend([{int}, {int}])", "{name}[{small}] = {int}",
            "{name}.insert({small}, {int})",
                     "{name}.pop()", "{name}.pop({small})", "del {name}[0]", "{name}[0] += {int}",
                     "{name} += [{int}]"],
            "dict": ["{name}[{key}] = {int}", "{name}[{key}] = {name}.get({key}, 0) + {int}",
            "{name}.setdefault({key}, {int})",
                     "{name}.pop({key}, None)", "del {name}[{key}]", "{name}.update({dict})", "{name}.clear()"],
        }  # fmt: skip
        own = [n for n, of in known.items() if of in templates and not n.startswith("loop")]
        name = self.rng.choice(own)
        return [self._filled(self.rng.choice(templates[known[name]]).replace("{name}", name), known, 2)]

    def _if(self, known: dict[str, str], level: int) -> list[str]:
        t = self.rng.choice(["bool", "bool", "ints", "str", "int", "dict"])
        lines = [f"if {self._expression(t, known, 3)}:", *self._inner(known, level, False)]
        if self.rng.random() < 0.4:
            lines += [f"elif {self._expression('bool', known, 2)}:", *self._inner(known, level, False)]
        return [*lines, "else:", *self._inner(known, level, False)] if self.rng.random() < 0.5 else lines

    def _branches(self, known: dict[str, str], level: int) -> list[str]:
        """A variable that both branches assign."""
        t, name = self.rng.choice(["int", "ints", "str"]), self._new()
        first, second = (self._expression(t, known, 2) for _ in range(2))
        condition = self._expression("bool", known, 2)
        known[name] = t
        return [f"if {condition}:", f"    {name}: {TYPES[t]} = {first}", "else:", f"    {name} = {second}"]

    def _for(self, known: dict[str, str], level: int) -> list[str]:
        self.count += 1
        name, other = f"loop{self.count}", f"loop_k{self.count}"
        head, types = self.rng.choice([
            (f"for {name} in range({{small}}):", {name: "int"}), (f"for {name} in {{ints}}[:5]:", {name: "int"}),
            (f"for {name}, {other} in enumerate({{ints}}[:5]):", {name: "int", other: "int"}),
            (f"for {other}, {name} in {{dict}}.copy().items():", {name: "int", other: "str"}),
            (f"for {name} in {{strs}}[:5]:", {name: "str"}), (f"for {name} in sorted({{set}}):", {name: "int"}),
            (f"for {name} in range({{small}}, {{small}}):", {name: "int"}),
        ])  # fmt: skip
        return [self._filled(head, known, 2), *self._inner(known | types, level, True)]

    def _while(self, known: dict[str, str], level: int) -> list[str]:
        self.count += 1
        name = f"loop{self.count}"
        head = f"while {name} < 4 and ({self._expression('bool', known, 2)}):"
        return [f"{name} = 0", head, f"    {name} += 1", *self._inner(known | {name: "int"}, level, True)]
