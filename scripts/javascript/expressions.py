"""Expressions of the subset, in JavaScript."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from mypy import nodes
from mypy.types import CallableType, Type, TypedDictType, get_proper_type

from scripts.javascript.kinds import Refused, TypeNames, camel, field_type, is_optional, kind, members, value_type

# Modules that are written by hand in both languages with the same names.
EXTERNAL = {
    "pyruntime.errors": "../common/errors.js",
    "pyruntime.program.dims": "../common/dims.js",
    "pyruntime.program.types": "../common/program.js",
    "pyruntime.codegen.linear_memory": "../common/linear_memory.js",
}
SUPPORT = "../common/python_builtins.js"
RUNTIME = "pyruntime.runtime."
COMPARE = {"==": "===", "!=": "!==", "is": "===", "is not": "!=="}
LEVELS = {"+": 2, "-": 2, "*": 3, "/": 3, "//": 4, "%": 4}  # which operators bind more tightly
PRIMITIVE = ("number", "string", "boolean", "none")
MATH = {"math.inf": "Infinity"} | {f"math.{f}": f"Math.{f}" for f in ("floor", "ceil", "log2", "cos", "sqrt")}


def refuse_container(node: Any, found: str, what: str) -> None:
    """JavaScript compares arrays, maps and sets by identity."""
    if found in ("list", "map", "set", "record", "bytes"):
        raise Refused(node, f"{what} of {found}: it compares by identity in JavaScript")


class Expressions:
    """Of one module. types: of its expressions; imports: names by file, which the translation has used so far."""

    def __init__(self, module: str, types: dict[Any, Type]) -> None:
        self.module = module
        self.types = types
        self.names = TypeNames()
        self.imports: dict[str, set[str]] = {}
        self.known: set[str] = set()  # optional properties that a condition has found
        self.renamed: dict[str, str] = {}  # of the key of a sort: its parameter, and what stands for it

    # ── types ──

    def kind(self, e: Any) -> str:
        return kind(self.types.get(e))

    def cast(self, text: str, t: Type | None) -> str:
        return f"/** @type {{{self.names.text(t)}}} */ ({text})"

    def support(self, name: str) -> str:
        return self.use(SUPPORT, name)

    def use(self, file: str, name: str) -> str:
        self.imports.setdefault(file, set()).add(name)
        return name

    # ── any expression ──

    def text(self, e: Any, expected: Type | None = None) -> str:
        """expected: the type of the place that takes the value; it tells JSON objects from maps."""
        if isinstance(e, nodes.DictExpr):
            return self._dict(e, expected)
        if isinstance(e, nodes.DictionaryComprehension) and kind(expected) == "record":
            return f"Object.fromEntries({self._pairs(e, value_type(expected))})"
        method = getattr(self, f"_{type(e).__name__}", None)
        if method is None:
            raise Refused(e, f"{type(e).__name__} is not in the subset")
        return str(method(e))

    def _BytesExpr(self, e: nodes.BytesExpr) -> str:
        values = ast.literal_eval("b'" + e.value.replace("'", "\\'") + "'")
        return f"Uint8Array.of({', '.join(map(str, values))})"

    def _SuperExpr(self, e: nodes.SuperExpr) -> str:
        return "super" if e.name == "__init__" else f"super.{camel(e.name)}"

    def operand(self, e: Any, level: int) -> str:
        """An operand of an operator: in parentheses if its own operator binds less tightly than `level`."""
        own = LEVELS.get(e.op, 0) if isinstance(e, nodes.OpExpr) and self.kind(e) in ("number", "any") else 0
        if isinstance(e, nodes.UnaryExpr) and e.op == "-":
            own = LEVELS["*"]
        if isinstance(e, nodes.OpExpr) and e.op in ("//", "%"):
            return self.text(e)  # a call
        return self.text(e) if own >= level and own else self.inner(e)

    def inner(self, e: Any) -> str:
        """An operand, in parentheses if it is not simple."""
        text = self.text(e)
        simple = (nodes.NameExpr, nodes.IntExpr, nodes.StrExpr, nodes.FloatExpr, nodes.MemberExpr, nodes.CallExpr,
                  nodes.IndexExpr, nodes.ListExpr, nodes.TupleExpr, nodes.ListComprehension)  # fmt: skip
        plain = not text.startswith(("/**", "-", "typeof ")) and " ?? " not in text
        return text if isinstance(e, simple) and plain else f"({text})"

    def _NameExpr(self, e: nodes.NameExpr) -> str:
        if e.name in ("True", "False", "None"):
            return {"True": "true", "False": "false", "None": "null"}[e.name]
        if e.kind == nodes.GDEF:
            return self._global(e)
        if self.renamed and e.name not in self.renamed and e.name in ("a", "b"):
            raise Refused(e, f"the key of a sort uses a variable {e.name}, a name that its comparison needs")
        return "this" if e.name == "self" else self.renamed.get(e.name) or camel(e.name)

    def _global(self, e: Any) -> str:
        module, _, name = e.fullname.rpartition(".")
        if module == self.module:
            return camel(name)
        if e.fullname in MATH:
            return MATH[e.fullname]
        if module.startswith(RUNTIME):
            return self.use(f"./{module.removeprefix(RUNTIME)}.js", camel(name))
        if module not in EXTERNAL:
            raise Refused(e, f"{e.fullname} does not exist in JavaScript")
        return self.use(EXTERNAL[module], camel(name))

    def _IntExpr(self, e: nodes.IntExpr) -> str:
        if e.value > 1 << 53:
            raise Refused(e, "an integer beyond 2 ** 53")
        return str(e.value)

    def _FloatExpr(self, e: nodes.FloatExpr) -> str:
        return repr(e.value)

    def _StrExpr(self, e: nodes.StrExpr) -> str:
        escaped = e.value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"'{escaped}'"

    def _MemberExpr(self, e: nodes.MemberExpr) -> str:
        if isinstance(e.expr, nodes.NameExpr) and isinstance(e.expr.node, nodes.MypyFile):
            return self._global(e)
        if isinstance(get_proper_type(self.types.get(e)), CallableType) and self.kind(e.expr) != "object":
            raise Refused(e, "a method is called, or passed as a lambda")
        return f"{self.inner(e.expr)}.{camel(e.name)}"

    # ── displays ──

    def _ListExpr(self, e: nodes.ListExpr | nodes.TupleExpr) -> str:
        return f"[{', '.join(map(self.text, e.items))}]"

    _TupleExpr = _ListExpr

    def _StarExpr(self, e: nodes.StarExpr) -> str:
        return f"...{self.iterable(e.expr)}"

    def _SetExpr(self, e: nodes.SetExpr) -> str:
        return f"new Set({self._ListExpr(e)})"  # type: ignore[arg-type]

    def _dict(self, e: nodes.DictExpr, expected: Type | None) -> str:
        if kind(expected) == "record" or kind(self.types.get(e)) == "record" or expected and kind(expected) == "any":
            pairs = [
                f"...{self.text(v)}" if k is None else f"{self._key(k)}: {self.text(v, field_type(expected, k))}"
                for k, v in e.items
            ]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        pairs = [f"...{self.text(v)}" if k is None else f"[{self.text(k)}, {self.text(v)}]" for k, v in e.items]
        return f"new Map([{', '.join(pairs)}])" if pairs else "new Map()"

    def _key(self, e: Any) -> str:
        return e.value if isinstance(e, nodes.StrExpr) and e.value.isidentifier() else f"[{self.text(e)}]"

    # ── operators ──

    def _OpExpr(self, e: nodes.OpExpr) -> str:
        if e.op in ("and", "or"):
            return self._logical(e)
        left, right, what = self.kind(e.left), self.kind(e.right), self.kind(e)
        if what == "number" and e.op in ("<<", "**"):
            return _power(_constant(e))
        if what == "number" or what == left == right == "any":
            return self._arithmetic(e)
        if what == "string" and e.op == "+":
            return f"{self.inner(e.left)} + {self.inner(e.right)}"
        if "set" in (left, right) or "keys" in (left, right):
            if e.op == "|":
                return f"new Set([...{self.iterable(e.left)}, ...{self.iterable(e.right)}])"
            name = self.support({"-": "difference", "&": "intersection"}[e.op])
            return f"{name}({self.keys(e.left)}, {self.keys(e.right)})"
        if what == "bytes" and e.op == "+":
            return f"{self.support('concatenated')}([{self.text(e.left)}, {self.text(e.right)}])"
        if what == "bytes" and e.op == "*" and isinstance(e.left, nodes.BytesExpr) and len(e.left.value) == 1:
            return f"new Uint8Array({self.text(e.right)}).fill({ord(e.left.value)})"
        if what == "list" and e.op == "+":
            return f"[...{self.inner(e.left)}, ...{self.inner(e.right)}]"
        if what == "list" and e.op == "*" and isinstance(e.left, nodes.ListExpr) and len(e.left.items) == 1:
            return f"new Array({self.text(e.right)}).fill({self.text(e.left.items[0])})"
        if what == "map" and e.op == "|":
            return f"new Map([...{self.inner(e.left)}, ...{self.inner(e.right)}])"
        raise Refused(e, f"{e.op} of {left} and {right}")

    def _arithmetic(self, e: nodes.OpExpr) -> str:
        if e.op == "%":
            return f"{self.support('mod')}({self.text(e.left)}, {self.text(e.right)})"
        if e.op == "//":
            return f"Math.floor({self.operand(e.left, 3)} / {self.operand(e.right, 4)})"
        level = LEVELS[e.op]
        return f"{self.operand(e.left, level)} {e.op} {self.operand(e.right, level + (e.op in '-/'))}"

    def _logical(self, e: nodes.OpExpr) -> str:
        operator = "&&" if e.op == "and" else "||"
        if self.kind(e) not in ("boolean", "any", "union", "none") and self.kind(e.left) != "boolean":
            if (
                e.op == "or"
                and is_optional(self.types.get(e.left))
                and kind(self.types.get(e.left)) in ("object", "function")
            ):
                return f"{self.inner(e.left)} ?? {self.inner(e.right)}"
            raise Refused(e, f"the value of `{e.op}` is no bool: write a conditional expression")
        return self._both(e, operator, lambda x: self.condition(x))

    def _both(self, e: nodes.OpExpr, operator: str, write: Callable[[Any], str]) -> str:
        before, left = set(self.known), self._grouped(e.left, write, operator)
        self.known |= self.found(e.left) if operator == "&&" else set()
        right = self._grouped(e.right, write, operator)
        self.known = before
        return f"{left} {operator} {right}"

    def _grouped(self, e: Any, write: Callable[[Any], str], operator: str) -> str:
        text = write(e)
        inside = isinstance(e, nodes.OpExpr) and e.op in ("and", "or") and (e.op == "and") != (operator == "&&")
        return f"({text})" if inside or isinstance(e, nodes.ConditionalExpr) or " ?? " in text else text

    def _ComparisonExpr(self, e: nodes.ComparisonExpr) -> str:
        pairs = zip(e.operators, e.operands, e.operands[1:], strict=False)
        return " && ".join(self._compare(e, op, a, b) for op, a, b in pairs)

    def _compare(self, e: Any, op: str, a: Any, b: Any) -> str:
        if op in ("in", "not in"):
            text = self._contains(a, b)
            if op == "in":
                return text
            return (
                text.replace(" !== undefined", " === undefined")
                if text.endswith(" !== undefined")
                else f"!{text if text.endswith(')') and not text.startswith('(') else f'({text})'}"
            )
        kinds = {self.kind(a), self.kind(b)}
        if op == "<=" and "set" in kinds:
            return f"{self.support('isSubset')}({self.keys(a)}, {self.keys(b)})"
        if op in ("==", "!=") and kinds <= {"list", "any"}:
            return f"{'' if op == '==' else '!'}{self.support('same')}({self.text(a)}, {self.text(b)})"
        if op in ("==", "!=") and not kinds <= {*PRIMITIVE, "any", "union"}:
            raise Refused(e, f"{op} of {' and '.join(sorted(kinds))}")
        return f"{self.operand(a, 1)} {COMPARE.get(op, op)} {self.operand(b, 1)}"

    def _contains(self, item: Any, container: Any) -> str:
        found, whole = self.kind(container), self.inner(container)
        if found == "record" or found == "any" and isinstance(item, nodes.StrExpr):
            return self._has(item, container)
        if found in ("map", "set"):
            return f"{whole}.has({self.text(item)})"
        if found == "keys" and isinstance(container, nodes.CallExpr):
            return self._contains(item, container.callee.expr)  # type: ignore[attr-defined]
        if found == "list":
            refuse_container(item, self.kind(item), "`in` a list")
        if found in ("list", "string", "any"):
            return f"{whole}.includes({self.text(item)})"
        raise Refused(container, f"`in` of {found}")

    def _has(self, item: Any, container: Any) -> str:
        """Whether a JSON object has a key."""
        types = members(self.types.get(container))
        whole = self.inner(container)
        if isinstance(item, nodes.StrExpr) and all(isinstance(t, TypedDictType) for t in types):
            if all(item.value in t.items for t in types):
                return f"{whole}.{item.value} !== undefined"
            return f"'{item.value}' in {whole}"
        return f"Object.hasOwn({whole}, {self.text(item)})"

    def found(self, e: Any) -> set[str]:
        """The optional properties that exist where this condition holds."""
        if isinstance(e, nodes.OpExpr) and e.op == "and":
            return self.found(e.left) | self.found(e.right)
        if isinstance(e, nodes.ComparisonExpr) and e.operators == ["in"] and isinstance(e.operands[0], nodes.StrExpr):
            return {f"{self.inner(e.operands[1])}.{e.operands[0].value}"}
        return set()

    def _UnaryExpr(self, e: nodes.UnaryExpr) -> str:
        if e.op == "not":
            return self.negation(e.expr)
        return f"{e.op}{self.operand(e.expr, 5)}"

    def _ConditionalExpr(self, e: nodes.ConditionalExpr) -> str:
        fallback = self._fallback(e)
        if fallback:
            return fallback
        condition, before = self.condition(e.cond), set(self.known)
        if isinstance(e.cond, nodes.ConditionalExpr):
            condition = f"({condition})"
        self.known |= self.found(e.cond)
        then = self._branch(e.if_expr)
        self.known = before
        return f"{condition} ? {then} : {self.text(e.else_expr)}"

    def _branch(self, e: Any) -> str:
        return f"({self.text(e)})" if isinstance(e, nodes.ConditionalExpr) else self.text(e)

    def _fallback(self, e: nodes.ConditionalExpr) -> str:
        """`b if a is None else a` as `a ?? b`."""
        c = e.cond
        if not (isinstance(c, nodes.ComparisonExpr) and len(c.operands) == 2 and c.operators[0] in ("is", "is not")):
            return ""
        if not (isinstance(c.operands[1], nodes.NameExpr) and c.operands[1].name == "None"):
            return ""
        value, other = (e.else_expr, e.if_expr) if c.operators[0] == "is" else (e.if_expr, e.else_expr)
        if not (
            isinstance(value, nodes.NameExpr)
            and isinstance(c.operands[0], nodes.NameExpr)
            and value.name == c.operands[0].name
        ):
            return ""
        return f"{self.text(value)} ?? {self.inner(other)}"

    # ── conditions ──

    def condition(self, e: Any) -> str:
        """An expression as a condition, true where Python takes it as true."""
        if isinstance(e, nodes.UnaryExpr) and e.op == "not":
            return self.negation(e.expr)
        if isinstance(e, nodes.OpExpr) and e.op in ("and", "or"):
            return self._both(e, "&&" if e.op == "and" else "||", self.condition)
        return self._truth(e, "")

    def negation(self, e: Any) -> str:
        if isinstance(e, nodes.OpExpr) and e.op in ("and", "or"):
            return f"!({self.condition(e)})"
        if isinstance(e, nodes.ComparisonExpr):
            return f"!({self.text(e)})"
        return self._truth(e, "!")

    def _truth(self, e: Any, negate: str) -> str:
        t, found = self.types.get(e), self.kind(e)
        text = self.inner(e) if negate else self.text(e)
        if isinstance(e, (nodes.ComparisonExpr, nodes.UnaryExpr)) or found == "boolean" and not is_optional(t):
            if negate and " === " in text and text.startswith("typeof "):
                return text.replace(" === ", " !== ")
            return f"{negate}({text})" if negate and " " in text and not text.endswith(")") else f"{negate}{text}"
        text, equal = self.inner(e), "===" if negate else "!=="
        if is_optional(t):
            if found not in ("object", "function", "record"):
                raise Refused(e, f"a condition that is None or {found}: compare with None")
            return f"{text} {equal} null"
        if found in ("number", "string"):
            return f"{text} {equal} {0 if found == 'number' else chr(39) * 2}"
        if found in ("list", "map", "set", "bytes"):
            size = f"{text}.{'length' if found in ('list', 'bytes') else 'size'}"
            return f"{size} {'===' if negate else '>'} 0"
        if found == "any":
            return f"{negate}{self.support('truth')}({self.text(e)})"
        raise Refused(e, f"a condition of kind {found}")

    # ── subscripts ──

    def _IndexExpr(self, e: nodes.IndexExpr) -> str:
        found, base = self.kind(e.base), self.inner(e.base)
        if isinstance(e.index, nodes.SliceExpr):
            return self._slice(e, base)
        if found == "map":
            return f"{self.support('item')}({self.text(e.base)}, {self.text(e.index)})"
        if found == "record" and isinstance(e.index, nodes.StrExpr):
            return self._property(e, base, e.index.value)
        if isinstance(e.index, nodes.StrExpr) and e.index.value.isidentifier():
            return f"{base}.{e.index.value}"
        if isinstance(e.index, nodes.UnaryExpr):
            t = self.types.get(e)
            return self.cast(f"{base}.at({self.text(e.index)})", t)
        if found in ("list", "string", "record", "any", "union", "bytes"):
            return f"{base}[{self.text(e.index)}]"
        raise Refused(e, f"a subscript of {found}")

    def _property(self, e: nodes.IndexExpr, base: str, key: str) -> str:
        text = f"{base}.{key}"
        typed = [t for t in members(self.types.get(e.base)) if isinstance(t, TypedDictType)]
        required = all(key in t.required_keys for t in typed)
        return text if required or text in self.known else self.cast(text, self.types.get(e))

    def _slice(self, e: nodes.IndexExpr, base: str) -> str:
        assert isinstance(e.index, nodes.SliceExpr)
        begin, end, stride = e.index.begin_index, e.index.end_index, e.index.stride
        if stride is not None:
            raise Refused(e, "a slice with a stride")
        bounds = [self.text(begin) if begin else "0", *([self.text(end)] if end else [])]
        method = "subarray" if self.kind(e.base) == "bytes" else "slice"
        return f"{base}.{method}({', '.join(bounds) if begin or end else ''})"

    # ── comprehensions ──

    def _ListComprehension(self, e: nodes.ListComprehension) -> str:
        return self.generated(e.generator)

    def _GeneratorExpr(self, e: nodes.GeneratorExpr) -> str:
        return self.generated(e)

    def _SetComprehension(self, e: nodes.SetComprehension) -> str:
        return f"new Set({self.generated(e.generator)})"

    def _DictionaryComprehension(self, e: nodes.DictionaryComprehension) -> str:
        return f"new Map({self._pairs(e, None)})"

    def _pairs(self, e: nodes.DictionaryComprehension, value: Type | None) -> str:
        return self._chain(e, 0, lambda: f"[{self.text(e.key)}, {self.text(e.value, value)}]")

    def generated(self, e: nodes.GeneratorExpr) -> str:
        return self._chain(e, 0, lambda: self.text(e.left_expr), e.left_expr)

    def _chain(self, e: Any, n: int, last: Callable[[], str], element: Any = None) -> str:
        """Loop n of a comprehension and those inside it."""
        before, target = set(self.known), self.target(e.indices[n])
        text = self.array(e.sequences[n])
        for condition in e.condlists[n]:
            text = f"{text}.filter(({target}) => {self.condition(condition)})"
            self.known |= self.found(condition)
        if n + 1 < len(e.indices):
            text = f"{text}.flatMap(({target}) => {self._chain(e, n + 1, last, element)})"
        else:
            value = last()
            if isinstance(element, nodes.TupleExpr):
                value = self.cast(value, self.types.get(element))  # TypeScript would find an array, not a tuple
            if value != target or element is None or target.startswith("["):
                text = f"{text}.map(({target}) => {f'({value})' if value.startswith('{') else value})"
        self.known = before
        return text

    def target(self, e: Any) -> str:
        if isinstance(e, nodes.TupleExpr):
            return f"[{', '.join('' if getattr(x, 'name', '') == '_' else self.target(x) for x in e.items)}]"
        if not isinstance(e, nodes.NameExpr):
            raise Refused(e, "a target that is no name")
        return camel(e.name)

    # ── iteration ──

    def iterable(self, e: Any, is_argument: bool = False) -> str:
        """For `...` and `for of`, or an argument."""
        if isinstance(e, (nodes.GeneratorExpr, nodes.ListComprehension)):
            return self.text(e)
        found = self.kind(e)
        if found == "record":
            return f"Object.keys({self.text(e)})"
        if found == "map":
            return f"{self.inner(e)}.keys()"
        return self.text(e) if is_argument else self.inner(e)

    def array(self, e: Any) -> str:
        """An expression as an array, which it may be already."""
        if isinstance(e, (nodes.GeneratorExpr, nodes.ListComprehension, nodes.ListExpr, nodes.TupleExpr)):
            return self.text(e)
        if self.kind(e) in ("list", "any") or self.text(e).startswith(("Object.", "zip(", "range(")):
            return self.inner(e)
        return f"[...{self.iterable(e)}]"

    def keys(self, e: Any) -> str:
        """A set, or a map for its keys, as the support functions take them."""
        if self.kind(e) == "keys" and isinstance(e, nodes.CallExpr) and isinstance(e.callee, nodes.MemberExpr):
            return self.text(e.callee.expr)
        return self.text(e)

    # ── lambdas ──

    def _LambdaExpr(self, e: nodes.LambdaExpr) -> str:
        parameters = ", ".join(camel(a.variable.name) for a in e.arguments)
        value = self.text(e.expr())
        return f"({parameters}) => {f'({value})' if value.startswith('{') else value}"


def _power(number: int) -> str:
    """A constant, as a power of two if it is a large one."""
    exponent = number.bit_length() - 1
    return f"2 ** {exponent}" if number == 1 << exponent and exponent > 9 else str(number)


def _constant(e: Any) -> int:
    """The value of an expression of integer literals."""
    if isinstance(e, nodes.IntExpr):
        return e.value
    if isinstance(e, nodes.OpExpr) and e.op in ("<<", "**", "-", "+", "*"):
        a, b = _constant(e.left), _constant(e.right)
        return {"<<": lambda: a << b, "**": lambda: a**b, "-": lambda: a - b, "+": lambda: a + b, "*": lambda: a * b}[
            e.op
        ]()
    raise Refused(e, "an operand that is no constant")


__all__ = ["EXTERNAL", "RUNTIME", "Expressions", "Refused"]
