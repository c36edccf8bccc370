"""Expressions of the subset, in JavaScript."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from scripts.javascript import python_types as types
from scripts.javascript import tree
from scripts.javascript.constants import constant, is_pure, power
from scripts.javascript.names import Refused, camel
from scripts.javascript.python_types import PythonType, TypedModule, TypeNames, element_kind, is_optional, kind
from scripts.javascript.tree import Js, array, binary, call, index, member, method, new, plain, spread

# Modules that are written by hand in both languages with the same names.
EXTERNAL = {
    "pyruntime.errors": "../common/errors.js",
    "pyruntime.program.dims": "../common/dims.js",
    "pyruntime.program.types": "../common/program.js",
    "pyruntime.codegen.linear_memory": "../common/linear_memory.js",
}
SUPPORT = "../common/python_builtins.js"
CHECKS = "./python_checks.js"
RUNTIME = "pyruntime.runtime."
OPERATORS: dict[type, str] = {
    ast.Eq: "===", ast.NotEq: "!==", ast.Is: "===", ast.IsNot: "!==", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.And: "&&", ast.Or: "||",
}  # fmt: skip
PRIMITIVE = ("number", "string", "boolean", "none")
ORDERED = ({"number"}, {"string"}, {"number", "any"}, {"string", "any"}, {"any"})
MATH = {"math.inf": "Infinity"} | {f"math.{f}": f"Math.{f}" for f in ("floor", "ceil", "log2", "cos", "sqrt", "pow")}
UNDEFINED, NULL, ZERO = plain("undefined"), plain("null"), plain("0")


def refuse_container(node: Any, found: str, what: str) -> None:
    """JavaScript compares arrays, maps and sets by identity."""
    if found in ("list", "map", "set", "record"):
        raise Refused(node, f"{what} of {found}: it compares by identity in JavaScript")


class Expressions:
    """Of one module. typed: what mypy knows; imports: names by file, which the translation has used so far; is_checked:
    whether the JavaScript throws where it would differ from Python."""

    def __init__(self, module: str, typed: TypedModule, is_checked: bool) -> None:
        self.module = module
        self.typed = typed
        self.is_checked = is_checked
        self.names = TypeNames()
        self.imports: dict[str, set[str]] = {}
        self.known: set[str] = set()  # optional properties that a condition has found
        self.renamed: dict[str, str] = {}  # of the key of a sort: its parameter, and what stands for it

    # ── types ──

    def kind(self, e: ast.expr) -> str:
        return kind(self.typed.type(e))

    def cast(self, x: Js, t: PythonType) -> Js:
        return tree.cast(self.names.text(t), x)

    def support(self, name: str, *arguments: Js, is_array: bool = False) -> Js:
        """A call of a function of python_builtins.js."""
        return call(self.use(SUPPORT, name), *arguments, is_array=is_array)

    def checked(self, name: str, *arguments: Js) -> Js:
        """A call of a function of python_checks.js, in JavaScript that throws where its meaning differs; or the last
        argument alone."""
        return call(self.use(CHECKS, name), *arguments) if self.is_checked else arguments[-1]

    def popped(self, base: Js, at: Js) -> Js:
        """`list.pop(at)`"""
        return self.support("popAt", base, self.checked("within", base, at))

    def use(self, file: str, name: str) -> str:
        self.imports.setdefault(file, set()).add(name)
        return name

    # ── any expression ──

    def js(self, e: ast.expr, expected: PythonType = None) -> Js:
        """expected: the type of the place that takes the value; it tells JSON objects from maps."""
        if isinstance(e, ast.Dict):
            return self._dict(e, expected)
        if isinstance(e, ast.DictComp) and kind(expected) == "record":
            return method(plain("Object"), "fromEntries", self._pairs(e, types.value_type(expected)))
        write = getattr(self, f"_{type(e).__name__}", None)
        if write is None:
            raise Refused(e, f"{type(e).__name__} is not in the subset")
        found: Js = write(e)
        return found

    def all(self, expressions: Sequence[ast.expr]) -> list[Js]:
        return [self.js(e) for e in expressions]

    def _Name(self, e: ast.Name) -> Js:
        if name := self.typed.global_name(e):
            return plain(self._global(e, name))
        if self.renamed and e.id not in self.renamed and e.id in ("a", "b"):
            raise Refused(e, f"the key of a sort uses a variable {e.id}, a name that its comparison needs")
        return plain("this" if e.id == "self" else self.renamed.get(e.id) or camel(e.id))

    def _global(self, e: ast.expr, full: str) -> str:
        module, _, name = full.rpartition(".")
        if module == self.module:
            return camel(name)
        if full in MATH:
            return MATH[full]
        if module.startswith(RUNTIME):
            return self.use(f"./{module.removeprefix(RUNTIME)}.js", camel(name))
        if module not in EXTERNAL:
            raise Refused(e, f"{full} does not exist in JavaScript")
        return self.use(EXTERNAL[module], camel(name))

    def _Constant(self, e: ast.Constant) -> Js:
        value = e.value
        if value is None or isinstance(value, bool):
            return plain({None: "null", True: "true", False: "false"}[value])
        if isinstance(value, str):
            return tree.text(value)
        if not isinstance(value, int | float):
            raise Refused(e, f"{type(value).__name__} is not in the subset")
        if isinstance(value, int) and value > 1 << 53:
            raise Refused(e, "an integer beyond 2 ** 53")
        return plain(repr(value))

    def _Attribute(self, e: ast.Attribute) -> Js:
        if name := self.typed.global_name(e):
            return plain(self._global(e, name))
        if types.is_function(self.typed.type(e)) and self.kind(e.value) != "object":
            raise Refused(e, "a method is called, or passed as a lambda")
        return member(self.js(e.value), camel(e.attr))

    def _JoinedStr(self, e: ast.JoinedStr) -> Js:
        return tree.template([self._text_part(part) for part in e.values])

    def _text_part(self, e: ast.expr) -> str | Js:
        if isinstance(e, ast.Constant):
            return str(e.value)
        assert isinstance(e, ast.FormattedValue)
        if e.format_spec is not None or e.conversion != -1 or not self.is_plain(e.value):
            raise Refused(e, "an f-string of anything but an integer or text")
        return self.js(e.value)

    def is_plain(self, e: ast.expr) -> bool:
        """Whether both languages write it alike: integers and texts, not 1.0, which JavaScript writes as 1."""
        t = self.typed.type(e)
        return not types.is_float(t) and not is_optional(t) and kind(t) in ("number", "string", "any")

    # ── displays ──

    def _List(self, e: ast.List | ast.Tuple) -> Js:
        return array(self.all(e.elts))

    _Tuple = _List

    def _Starred(self, e: ast.Starred) -> Js:
        return spread(self.iterable(e.value))

    def _Set(self, e: ast.Set) -> Js:
        return self.made("Set", e, array(self.all(e.elts)))

    def made(self, name: str, e: ast.expr, *arguments: Js) -> Js:
        """A new Map or Set."""
        if (found := element_kind(self.typed.type(e))) in ("list", "union"):
            raise Refused(e, f"keys of {found} are compared by identity in JavaScript, so that no other one is found")
        return new(name, *arguments)

    def _dict(self, e: ast.Dict, expected: PythonType) -> Js:
        if kind(expected) == "record" or self.kind(e) == "record" or expected is not None and kind(expected) == "any":
            pairs: list[tuple[str, Js] | Js] = []
            for k, v in zip(e.keys, e.values, strict=True):
                field = types.field_type(expected, getattr(k, "value", ""))
                pairs.append(spread(self.js(v)) if k is None else (self._key(k), self.js(v, field)))
            return tree.record(pairs)
        each = zip(e.keys, e.values, strict=True)
        entries = [spread(self.js(v)) if k is None else array([self.js(k), self.js(v)]) for k, v in each]
        return self.made("Map", e, *([array(entries)] if entries else []))

    def _key(self, e: ast.expr) -> str:
        name = str(getattr(e, "value", ""))
        return name if isinstance(e, ast.Constant) and name.isidentifier() else f"[{self.js(e)}]"

    # ── operators ──

    def _BinOp(self, e: ast.BinOp) -> Js:
        return self.operation(e, e.left, type(e.op), e.right, self.kind(e))

    def operation(self, e: Any, first: ast.expr, op: type, second: ast.expr, what: str) -> Js:
        """what: the kind of the result"""
        left, right = self.kind(first), self.kind(second)
        if what == "number" and op in (ast.LShift, ast.Pow):
            return power(constant(e))
        if what == "number" or what == left == right == "any":
            return self._arithmetic(e, first, op, second)
        if what == "string" and op is ast.Add:
            return binary(self.js(first), "+", self.js(second))
        if "set" in (left, right) or "keys" in (left, right):
            if op is ast.BitOr:
                parts = [spread(self.iterable(x, "a set")) for x in (first, second)]
                return new("Set", array(parts))
            if op is ast.Sub:
                return self.support("difference", self.keys(first), self.keys(second))
        if what == "list" and op is ast.Add:
            return array([spread(self.js(first)), spread(self.js(second))])
        if what == "list" and op is ast.Mult and isinstance(first, ast.List) and len(first.elts) == 1:
            count = self.js(second)
            if not self._is_count(second):
                count = method(plain("Math"), "max", count, ZERO)
            return method(new("Array", count), "fill", self.js(first.elts[0]), is_array=True)
        raise Refused(e, f"{op.__name__} of {left} and {right}")

    @staticmethod
    def _is_count(e: ast.expr) -> bool:
        """Whether a number cannot be negative: a literal or a length."""
        return isinstance(e, ast.Constant) or isinstance(e, ast.Call) and getattr(e.func, "id", "") == "len"

    def _arithmetic(self, e: Any, first: ast.expr, op: type, second: ast.expr) -> Js:
        left, right = self.js(first), self.js(second)
        has_fraction = any(types.is_float(self.typed.type(x)) for x in (first, second))
        if op in (ast.Mod, ast.FloorDiv) and has_fraction and getattr(second, "value", 0) != 1:
            raise Refused(e, f"{op.__name__} of numbers with fractions")
        if op is ast.Mod:
            found = self.support("mod", left, self._divisor(second, right))
        elif op is ast.FloorDiv:
            found = method(plain("Math"), "floor", binary(left, "/", self._divisor(second, right)))
        elif op is ast.Div:
            return binary(left, "/", self._divisor(second, right))
        elif op in OPERATORS:
            found = binary(left, OPERATORS[op], right)
        else:
            raise Refused(e, f"{op.__name__} of numbers")
        return found if has_fraction or self.kind(first) == "any" else self.checked("exact", found)

    def _divisor(self, e: ast.expr, x: Js) -> Js:
        return x if isinstance(e, ast.Constant) and e.value else self.checked("divisor", x)

    def _BoolOp(self, e: ast.BoolOp) -> Js:
        left = e.values[0]
        if self.kind(e) in ("boolean", "any", "union", "none") or self.kind(left) == "boolean":
            return self.condition(e)
        is_first = isinstance(e.op, ast.Or) and is_optional(self.typed.type(left)) and len(e.values) == 2
        if is_first and self.kind(left) in ("object", "function"):
            return binary(self.js(left), "??", self.js(e.values[1]))
        raise Refused(e, f"the value of `{type(e.op).__name__.lower()}` is no bool: write a conditional expression")

    def _Compare(self, e: ast.Compare) -> Js:
        operands = [e.left, *e.comparators]
        if any(not is_pure(x) for x in operands[1:-1]):
            raise Refused(e, "a chain of comparisons with a call, which JavaScript evaluates twice")
        pairs = zip(e.ops, operands, operands[1:], strict=False)
        return tree.joined("&&", [self._compare(e, type(op), a, b) for op, a, b in pairs])

    def _compare(self, e: ast.Compare, op: type, a: ast.expr, b: ast.expr) -> Js:
        if op in (ast.In, ast.NotIn):
            text = self._contains(a, b)
            return text if op is ast.In else tree.negated(text)
        kinds = {self.kind(a), self.kind(b)}
        is_equality = op in (ast.Eq, ast.NotEq)
        if op is ast.LtE and "set" in kinds:
            return self.support("isSubset", self.keys(a), self.keys(b))
        if is_equality and kinds <= {"list", "any"}:
            self._refuse_unequal(e, a, b)
            same = self.support("same", self.js(a), self.js(b))
            return same if op is ast.Eq else tree.negated(same)
        if is_equality and (not kinds <= {*PRIMITIVE, "any", "union"} or kinds == {"number", "boolean"}):
            raise Refused(e, f"{'==' if op is ast.Eq else '!='} of {' and '.join(sorted(kinds))}")
        if op in (ast.Is, ast.IsNot) and kinds & {"number", "string"} and "none" not in kinds:
            raise Refused(e, "`is` of numbers or texts: write ==")
        if not is_equality and op not in (ast.Is, ast.IsNot) and kinds not in ORDERED:
            raise Refused(e, f"the order of {' and '.join(sorted(kinds))}")
        return binary(self.js(a), OPERATORS[op], self.js(b))

    def _refuse_unequal(self, e: ast.Compare, a: ast.expr, b: ast.expr) -> None:
        """Errors: Refused where Python would not compare elements as `same` does."""
        first, second = self.typed.type(a), self.typed.type(b)
        if "list" in (kind(first), kind(second)) and kind(first) == kind(second):
            if types.is_tuple(first) != types.is_tuple(second):
                raise Refused(e, "== of a list and a tuple, which differ in Python")
        for x in (first, second):
            if kind(x) == "list" and element_kind(x) in ("object", "map", "set", "record"):
                raise Refused(e, f"== of lists of {element_kind(x)}: they compare by identity in JavaScript")

    def _contains(self, item: ast.expr, container: ast.expr) -> Js:
        found = self.kind(container)
        if found == "record" or found == "any" and _is_text(item):
            return self._has(item, container)
        if found in ("map", "set"):
            return method(self.js(container), "has", self.js(item))
        if found == "keys" and isinstance(container, ast.Call) and isinstance(container.func, ast.Attribute):
            return self._contains(item, container.func.value)
        if self.kind(item) == "object":
            raise Refused(item, "`in` for an object: JavaScript compares these by identity")
        if found == "list":
            refuse_container(item, self.kind(item), "`in` a list")
        if found in ("list", "string", "any"):
            return method(self.js(container), "includes", self.js(item))
        raise Refused(container, f"`in` of {found}")

    def _has(self, item: ast.expr, container: ast.expr) -> Js:
        """Whether a JSON object has a key."""
        whole, key = self.js(container), getattr(item, "value", None)
        if isinstance(key, str):
            declared = types.declares(self.typed.type(container), key)
            if declared is not None:
                return binary(member(whole, key), "!==", UNDEFINED) if declared else binary(tree.text(key), "in", whole)
        return method(plain("Object"), "hasOwn", whole, self.js(item))

    def found(self, e: ast.expr) -> set[str]:
        """The optional properties that exist where this condition holds."""
        if isinstance(e, ast.BoolOp) and isinstance(e.op, ast.And):
            return {name for x in e.values for name in self.found(x)}
        if isinstance(e, ast.Compare) and len(e.ops) == 1 and isinstance(e.ops[0], ast.In) and _is_text(e.left):
            return {str(member(self.js(e.comparators[0]), e.left.value))}  # type: ignore[attr-defined]
        return set()

    def _UnaryOp(self, e: ast.UnaryOp) -> Js:
        if isinstance(e.op, ast.Not):
            return self.negation(e.operand)
        if not isinstance(e.op, ast.USub) or self.kind(e.operand) not in ("number", "any"):
            raise Refused(e, f"{type(e.op).__name__} of {self.kind(e.operand)}")
        return tree.unary("-", self.js(e.operand))

    def _IfExp(self, e: ast.IfExp) -> Js:
        if fallback := self._fallback(e):
            return fallback
        condition, before = self.condition(e.test), set(self.known)
        self.known |= self.found(e.test)
        then = self.js(e.body)
        self.known = before
        return tree.conditional(condition, then, self.js(e.orelse))

    def _fallback(self, e: ast.IfExp) -> Js | None:
        """`b if a is None else a` as `a ?? b`."""
        c = e.test
        if not isinstance(c, ast.Compare) or len(c.ops) > 1 or not isinstance(c.ops[0], ast.Is | ast.IsNot):
            return None
        value, other = (e.orelse, e.body) if isinstance(c.ops[0], ast.Is) else (e.body, e.orelse)
        same = isinstance(value, ast.Name) and isinstance(c.left, ast.Name) and value.id == c.left.id
        is_none = getattr(c.comparators[0], "value", "") is None
        return binary(self.js(value), "??", self.js(other)) if same and is_none else None

    # ── conditions ──

    def condition(self, e: ast.expr) -> Js:
        """An expression as a condition, true where Python takes it as true."""
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return self.negation(e.operand)
        if isinstance(e, ast.BoolOp):
            before, operands = set(self.known), []
            for x in e.values:
                operands.append(self.condition(x))
                self.known |= self.found(x) if isinstance(e.op, ast.And) else set()
            self.known = before
            return tree.joined(OPERATORS[type(e.op)], operands)
        t, found = self.typed.type(e), self.kind(e)
        if isinstance(e, ast.Compare) or found == "boolean" and not is_optional(t):
            return self.js(e)
        if is_optional(t):
            if found not in ("object", "function", "record"):
                raise Refused(e, f"a condition that is None or {found}: compare with None")
            return binary(self.js(e), "!==", NULL)
        if found in ("number", "string"):
            return binary(self.js(e), "!==", ZERO if found == "number" else tree.text(""))
        if found in ("list", "map", "set"):
            return binary(member(self.js(e), "length" if found == "list" else "size"), ">", ZERO)
        if found == "any":
            return self.support("truth", self.js(e))
        raise Refused(e, f"a condition of kind {found}")

    def negation(self, e: ast.expr) -> Js:
        found = self.condition(e)
        if found.operator == ">" and not isinstance(e, ast.Compare | ast.BoolOp | ast.UnaryOp):  # a size
            return Js(tree.EQUAL, (found.parts[0], " === ", (ZERO, tree.COMPARED)), operator="===")
        return tree.negated(found)

    # ── subscripts ──

    def _Subscript(self, e: ast.Subscript) -> Js:
        found, key = self.kind(e.value), getattr(e.slice, "value", None)
        if isinstance(e.slice, ast.Slice):
            return self._slice(e, e.slice)
        base = self.js(e.value)
        if found == "map":
            return self.support("item", base, self.js(e.slice))
        if found == "record" and isinstance(key, str):
            return self._property(e, base, key)
        if isinstance(key, str) and key.isidentifier():
            return member(base, key)
        if found not in ("list", "string", "record", "any", "union"):
            raise Refused(e, f"a subscript of {found}")
        if isinstance(e.slice, ast.UnaryOp):
            at = method(base, "at", self.js(e.slice))
            return self.cast(self.checked("found", at), self.typed.type(e))
        at = index(base, self.js(e.slice))
        return self.checked("found", at)

    def _property(self, e: ast.Subscript, base: Js, key: str) -> Js:
        found, t = member(base, key), self.typed.type(e.value)
        return found if types.requires(t, key) or str(found) in self.known else self.cast(found, self.typed.type(e))

    def _slice(self, e: ast.Subscript, bounds: ast.Slice) -> Js:
        if bounds.step is not None:
            raise Refused(e, "a slice with a stride")
        if self.kind(e.value) not in ("list", "string"):
            raise Refused(e, f"a slice of {self.kind(e.value)}")
        ends = [self.js(bounds.lower) if bounds.lower else ZERO, *([self.js(bounds.upper)] if bounds.upper else [])]
        has_bounds = bounds.lower is not None or bounds.upper is not None
        return method(self.js(e.value), "slice", *(ends if has_bounds else []), is_array=self.kind(e.value) == "list")

    # ── comprehensions ──

    def _GeneratorExp(self, e: ast.GeneratorExp | ast.ListComp) -> Js:
        return self._chain(e.generators, lambda: self.js(e.elt), e.elt)

    _ListComp = _GeneratorExp

    def _SetComp(self, e: ast.SetComp) -> Js:
        return self.made("Set", e, self._chain(e.generators, lambda: self.js(e.elt), e.elt, "a set"))

    def _DictComp(self, e: ast.DictComp) -> Js:
        return self.made("Map", e, self._pairs(e, None))

    def _pairs(self, e: ast.DictComp, value: PythonType) -> Js:
        return self._chain(e.generators, lambda: array([self.js(e.key), self.js(e.value, value)]))

    def _chain(
        self, loops: list[ast.comprehension], last: Callable[[], Js], element: ast.expr | None = None, goal: str = ""
    ) -> Js:
        """The loops of a comprehension, one inside the other. goal: as of iterable()"""
        before, loop = set(self.known), loops[0]
        target, found = self.target(loop.target), self.array(loop.iter, goal)
        for condition in loop.ifs:
            found = method(found, "filter", tree.arrow([target], self.condition(condition)), is_array=True)
            self.known |= self.found(condition)
        if len(loops) > 1:
            inner = self._chain(loops[1:], last, element, goal)
            found = method(found, "flatMap", tree.arrow([target], inner), is_array=True)
        else:
            value = last()
            if isinstance(element, ast.Tuple):
                value = self.cast(value, self.typed.type(element))  # TypeScript would find an array, not a tuple
            if str(value) != target or element is None or target.startswith("["):
                found = method(found, "map", tree.arrow([target], value), is_array=True)
        self.known = before
        return found

    def target(self, e: ast.expr) -> str:
        if isinstance(e, ast.Tuple):
            return f"[{', '.join('' if getattr(x, 'id', '') == '_' else self.target(x) for x in e.elts)}]"
        if not isinstance(e, ast.Name):
            raise Refused(e, "a target that is no name")
        return camel(e.id)

    # ── iteration ──

    def iterable(self, e: ast.expr, goal: str = "") -> Js:
        """For `...`, `for of`, or an argument. goal: what is made of the elements if their order does not matter"""
        if isinstance(e, ast.GeneratorExp | ast.ListComp):
            return self._chain(e.generators, lambda: self.js(e.elt), e.elt, goal)
        found = self.kind(e)
        if found == "set" and not goal:
            raise Refused(e, "the order of a set: sort it")
        if found == "record":
            return method(plain("Object"), "keys", self.js(e), is_array=True)
        return method(self.js(e), "keys") if found == "map" else self.js(e)

    def array(self, e: ast.expr, goal: str = "") -> Js:
        """An expression as an array, which it may be already."""
        found = self.iterable(e, goal)
        return found if found.is_array or self.kind(e) in ("list", "any") else array([spread(found)])

    def keys(self, e: ast.expr) -> Js:
        """A set, or a map for its keys, as the support functions take them."""
        if self.kind(e) == "keys" and isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute):
            return self.js(e.func.value)
        return self.js(e)

    # ── lambdas, and what is awaited ──

    def _Lambda(self, e: ast.Lambda) -> Js:
        return tree.arrow([camel(a.arg) for a in e.args.args], self.js(e.body))

    def _Await(self, e: ast.Await) -> Js:
        return tree.unary("await ", self.js(e.value))


def _is_text(e: ast.expr) -> bool:
    return isinstance(e, ast.Constant) and isinstance(e.value, str)


__all__ = ["EXTERNAL", "PRIMITIVE", "RUNTIME", "Expressions", "refuse_container"]
