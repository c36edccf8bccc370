"""Calls of the subset, in JavaScript: builtins, methods of Python's containers, constructors, functions."""

from __future__ import annotations

import ast
from collections.abc import Callable

from scripts.javascript import python_types as types
from scripts.javascript import tree
from scripts.javascript.expressions import Expressions, refuse_container
from scripts.javascript.names import Refused, camel
from scripts.javascript.python_types import element_kind, elements, is_optional, kind
from scripts.javascript.tree import Js, array, arrow, binary, call, member, method, new, plain, spread

ERRORS = "pyruntime.errors."


class Calls(Expressions):
    """Expressions with calls."""

    def _Call(self, e: ast.Call) -> Js:
        name, callee = self.typed.global_name(e.func), e.func
        if name == "typing.cast":
            return self.cast(self.js(e.args[1]), self.typed.type(e))
        if name.startswith("builtins."):
            return self._builtin(e, name.removeprefix("builtins."))
        if name == "math.prod":
            return self._total("product", e)
        if name.startswith(ERRORS) and name[len(ERRORS)].isupper():
            return self._error(e)
        if isinstance(callee, ast.Attribute) and not name:
            found = self.kind(callee.value)
            if found == "any" and not isinstance(callee.value, ast.Name | ast.Attribute):
                raise Refused(e, f"a method of an unknown type: {callee.attr}")
            is_json = found == "any" and callee.attr in ("get", "items")
            if is_json or found not in ("object", "none", "union", "any", "function"):
                return self._method(e, callee, "record" if is_json else found)
            return method(self.js(callee.value), camel(callee.attr), *self._arguments(e))
        return (new if self.typed.is_class(callee) else call)(self.js(callee), *self._arguments(e))

    def _arguments(self, e: ast.Call) -> list[Js]:
        """Arguments in the order of the parameters, `undefined` for a default between others; then an object of those
        by keyword alone."""
        parameters = types.signature(self.typed.type(e.func)) or []
        places = {p.name: n for n, p in enumerate(parameters)}
        named = [(k.arg, k.value) for k in e.keywords]
        if any(isinstance(a, ast.Starred) for a in e.args) or any(name is None for name, _ in named):
            raise Refused(e, "* and ** in a call")
        found: dict[int, Js] = {}
        options: list[tuple[str, Js] | Js] = []
        for n, (name, value) in enumerate([*((None, a) for a in e.args), *named]):
            if name is not None and name not in places:
                raise Refused(e, f"the keyword {name} of a function whose parameters are not known")
            at = n if name is None else places[name]
            expected = parameters[at].type if at < len(parameters) else None
            is_record = kind(expected) == "record" and parameters[at].name != ""
            if is_record and self.kind(value) == "map" and not isinstance(value, ast.Dict):
                raise Refused(e, f"argument {at}: a dict where a JSON object is expected")
            x = self.js(value, expected)
            if name is not None and parameters[at].is_named:
                options.append((camel(name), x))
                continue
            if max(found, default=-1) > at and isinstance(value, ast.Call):
                raise Refused(e, f"the call for {name} is evaluated in the order of the parameters")
            found[at] = x
        count = sum(not p.is_named for p in parameters) if options else max(found, default=-1) + 1
        positional = [found.get(n, plain("undefined")) for n in range(count)]
        return [*positional, *([tree.record(options)] if options else [])]

    def _error(self, e: ast.Call) -> Js:
        options: list[tuple[str, Js] | Js] = [(str(k.arg), self.js(k.value)) for k in e.keywords]
        return new(self.js(e.func), *self.all(e.args), *([tree.record(options)] if options else []))

    # ── builtins ──

    def _builtin(self, e: ast.Call, name: str) -> Js:
        write = BUILTINS.get(name)
        named = {str(k.arg): k.value for k in e.keywords}
        if write is None:
            raise Refused(e, f"{name}() is not in the subset")
        if unknown := named.keys() - {"key", "default", "strict"}:
            raise Refused(e, f"{name}({', '.join(sorted(unknown))}=…)")
        return write(self, e, name, named)

    def _len(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        found, x = self.kind(e.args[0]), self.js(e.args[0])
        if found == "record":
            x = method(plain("Object"), "keys", x)
        elif found not in ("list", "string", "map", "set", "any"):
            raise Refused(e, f"len() of {found}")
        return member(x, "size" if found in ("map", "set") else "length")

    def _extreme(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        values = [self.typed.type(a) for a in e.args] if len(e.args) > 1 else elements(self.typed.type(e.args[0]))
        if "key" in named or any(kind(t) not in ("number", "any") or is_optional(t) for t in values):
            raise Refused(e, f"{name}() of anything but numbers")
        if len(e.args) > 1:
            return method(plain("Math"), name, *self.all(e.args))
        default = [self.js(named["default"])] if "default" in named else []
        return self.support(f"{name}Of", self.array(e.args[0], "a number"), *default)

    def _isinstance(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        x, of, is_unknown = self.js(e.args[0]), getattr(e.args[1], "id", ""), self.kind(e.args[0]) == "any"
        if of == "int" and is_unknown:
            return method(plain("Number"), "isInteger", x)
        simple = {"str": "string", "bool": "boolean", "float": "number", "int": "number"}
        if of in simple:
            return binary(tree.unary("typeof ", x), "===", tree.text(simple[of]))
        if of == "list":
            return method(plain("Array"), "isArray", x)
        return self.support("isObject", x) if of == "dict" else binary(x, "instanceof", self.js(e.args[1]))

    def _sorted(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        values = self.iterable(e.args[0], "a sorted list")
        values = values if values.is_array else array([spread(values)])
        key, item = named.get("key"), elements(self.typed.type(e))[0]
        if isinstance(key, ast.Lambda):
            parts = key.body.elts if isinstance(key.body, ast.Tuple) else [key.body]
            order = [self._comparison(key.args.args[0].arg, part) for part in parts]
        elif key is not None:
            raise Refused(e, "a key that is no lambda")
        elif types.is_tuple(item) and all(kind(t) == "number" and not is_optional(t) for t in elements(item)):
            order = [_falling(plain(f"a[{n}]"), plain(f"b[{n}]")) for n in range(len(elements(item)))]
        elif kind(item) in ("number", "string", "any") and not is_optional(item):
            order = [] if kind(item) == "string" else [_falling(plain("a"), plain("b"))]
        else:
            raise Refused(e, f"sorted() of {kind(item)}")
        compare = [arrow(["a", "b"], tree.joined("||", order))] if order else []
        return method(values, "sort", *compare, is_array=True)

    def _comparison(self, parameter: str, key: ast.expr) -> Js:
        """How `a` stands to `b` by a key, an expression of the parameter."""
        t = self.typed.type(key)
        if kind(t) not in ("number", "boolean", "any") or is_optional(t):
            raise Refused(key, f"a key of kind {kind(t)}")
        falls = isinstance(key, ast.UnaryOp) and isinstance(key.op, ast.USub)
        written = []
        for name in ("b", "a") if falls else ("a", "b"):
            self.renamed = {parameter: name}
            written.append(self.js(key.operand if falls else key))  # type: ignore[attr-defined]
            self.renamed = {}
        return _falling(*written)

    def _range(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        if len(e.args) > 2:
            raise Refused(e, "range() with a step")
        return self.support("range", *self.all(e.args), is_array=True)

    def _predicate(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        """any() and all()"""
        generator, word = e.args[0], "some" if name == "any" else "every"
        if not isinstance(generator, ast.GeneratorExp) or len(generator.generators) != 1:
            raise Refused(e, f"{name}() of anything but a generator with one loop")
        loop, before = generator.generators[0], set(self.known)
        target, found = self.target(loop.target), self.array(loop.iter, "a bool")
        for condition in loop.ifs:
            found = method(found, "filter", arrow([target], self.condition(condition)))
            self.known |= self.found(condition)
        found = method(found, word, arrow([target], self.condition(generator.elt)))
        self.known = before
        return found

    def _enumerate(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        if len(e.args) > 1:
            raise Refused(e, "enumerate() with a start")
        return method(self.array(e.args[0]), "entries")

    def _zip(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        if len(e.args) != 2:
            raise Refused(e, f"zip() of {len(e.args)}")
        strict = [plain("true")] if getattr(named.get("strict"), "value", False) is True else []
        return self.support("zip", self.array(e.args[0]), self.array(e.args[1]), *strict, is_array=True)

    def _dict_of(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        if not e.args:
            return self.made("Map", e)
        return self.made("Map", e, self.js(e.args[0]) if self.kind(e.args[0]) == "map" else self.array(e.args[0]))

    def _set_of(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        return self.made("Set", e, *([self.iterable(e.args[0], "a set")] if e.args else []))

    def _list(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        if not e.args:
            return plain("[]")
        found = self.iterable(e.args[0])
        return found if found.is_array else array([spread(found)])

    def _str(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        if not self.is_plain(e.args[0]):
            raise Refused(e, "str() of anything but an integer or text")
        return call("String", self.js(e.args[0]))

    def _number(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        """int() and float()"""
        found, x = self.kind(e.args[0]), self.js(e.args[0])
        if found == "number" and name == "float":
            return x
        if found == "string" and name == "int":
            return self.support("integer", x)
        if found not in ("number", "boolean"):
            raise Refused(e, f"{name}() of {found}")
        return method(plain("Math"), "trunc", x) if found == "number" else call("Number", x)

    def _bool(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        return self.condition(e.args[0])

    def _abs(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        return method(plain("Math"), "abs", self.js(e.args[0]))

    def _sum(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        if len(e.args) > 1 or element_kind(self.typed.type(e.args[0])) not in ("number", "any"):
            raise Refused(e, "sum() of anything but numbers, or from a start")
        return self._total("sum", e)

    def _total(self, name: str, e: ast.Call) -> Js:
        found = self.support(name, self.array(e.args[0], "a number"))
        is_integer = not types.is_float(elements(self.typed.type(e.args[0]))[0])
        return self.checked("exact", found) if is_integer else found

    def _reversed(self, e: ast.Call, name: str, named: dict[str, ast.expr]) -> Js:
        return method(array([spread(self.iterable(e.args[0]))]), "reverse", is_array=True)

    # ── methods of containers and strings ──

    def _method(self, e: ast.Call, callee: ast.Attribute, found: str) -> Js:
        name, base, args = callee.attr, self.js(callee.value), e.args
        special = getattr(self, f"_{found}_{name}", None)
        if special is not None:
            result: Js = special(e, base, callee.value)
            return result
        if (found, name) in SUPPORTED and len(args) == SUPPORTED[found, name][1] and not e.keywords:
            return self.support(SUPPORTED[found, name][0], base, *self.all(args))
        if (found, name) in DIRECT and len(args) == DIRECT[found, name][1] and not e.keywords:
            return method(base, DIRECT[found, name][0], *self.all(args))
        raise Refused(e, f"the method {name} of {found}")

    def _record_items(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        names = {"items": "entries", "keys": "keys", "values": "values"}
        return method(plain("Object"), names[e.func.attr], base, is_array=True)  # type: ignore[attr-defined]

    _record_keys = _record_values = _record_items

    def _map_items(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return base

    def _map_get(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return binary(method(base, "get", self.js(e.args[0])), "??", self._default(e, of))

    def _record_get(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        key, default = e.args[0], self._default(e, of)
        name = str(getattr(key, "value", ""))
        if isinstance(key, ast.Constant) and name.isidentifier():
            return binary(member(base, name), "??", default)
        return self.support("entry", base, self.js(key), default)

    def _default(self, e: ast.Call, of: ast.expr) -> Js:
        if len(e.args) == 1:
            return plain("null")
        if getattr(e.args[1], "value", "") is not None and is_optional(types.value_type(self.typed.type(of))):
            raise Refused(e, "get() of values that may be None, with a default")
        return self.js(e.args[1])

    def _list_copy(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return array([spread(base)])

    def _map_copy(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return self.made("Map", of, base)

    def _set_copy(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return self.made("Set", of, base)

    def _list_pop(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        if e.args:
            return self.popped(base, self.js(e.args[0]))
        return self.cast(self.checked("found", method(base, "pop")), self.typed.type(e))

    def _list_extend(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return method(base, "push", spread(self.iterable(e.args[0])))

    def _map_pop(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return self.support("pop", base, *self.all(e.args))

    def _string_isdecimal(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return method(plain("/^\\p{Nd}+$/u"), "test", base)

    def _list_index(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        refuse_container(e, element_kind(self.typed.type(of)), "index()")
        return self.support("indexOf", base, self.js(e.args[0]))

    def _set_update(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return self.support("updateSet", base, self.iterable(e.args[0], "a set"))

    def _set_isdisjoint(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return self.support("isDisjoint", base, self.keys(e.args[0]))

    def _string_join(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return method(self.array(e.args[0]), "join", base)

    def _string_split(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        return method(base, "split", self._part(e), is_array=True)

    def _string_replace(self, e: ast.Call, base: Js, of: ast.expr) -> Js:
        by = e.args[1]  # "$" would have a meaning
        if isinstance(by, ast.Constant):
            return method(base, "replaceAll", self._part(e), tree.text(str(by.value).replace("$", "$$")))
        escaped = method(self.js(by), "replaceAll", tree.text("$"), tree.text("$$$$"))
        return method(base, "replaceAll", self._part(e), escaped)

    def _part(self, e: ast.Call) -> Js:
        """What a text is split by: each language splits by "" in its own way."""
        if not e.args or getattr(e.args[0], "value", None) == "" or e.keywords:
            raise Refused(e, f"the method {e.func.attr} of string without a text")  # type: ignore[attr-defined]
        return self.checked("part", self.js(e.args[0]))


def _falling(a: Js, b: Js) -> Js:
    return binary(a, "-", b)


Builtin = Callable[[Calls, ast.Call, str, dict[str, ast.expr]], Js]
BUILTINS: dict[str, Builtin] = {
    "len": Calls._len, "min": Calls._extreme, "max": Calls._extreme, "isinstance": Calls._isinstance,
    "sorted": Calls._sorted, "range": Calls._range, "any": Calls._predicate, "all": Calls._predicate,
    "enumerate": Calls._enumerate, "zip": Calls._zip, "list": Calls._list, "tuple": Calls._list,
    "dict": Calls._dict_of, "set": Calls._set_of, "frozenset": Calls._set_of, "str": Calls._str, "int": Calls._number,
    "float": Calls._number, "bool": Calls._bool, "abs": Calls._abs, "sum": Calls._sum, "reversed": Calls._reversed,
}  # fmt: skip
# Functions of python_builtins.js, and how many arguments the method has
SUPPORTED = {
    ("list", "insert"): ("insert", 2), ("map", "setdefault"): ("setDefault", 2),
    ("map", "update"): ("updateMap", 1),
}  # fmt: skip
# Methods that JavaScript has under another name, and how many arguments they have
DIRECT = {
    ("list", "append"): ("push", 1), ("set", "add"): ("add", 1), ("set", "discard"): ("delete", 1),
    ("map", "clear"): ("clear", 0), ("set", "clear"): ("clear", 0), ("map", "keys"): ("keys", 0),
    ("map", "values"): ("values", 0), ("string", "startswith"): ("startsWith", 1),
    ("string", "endswith"): ("endsWith", 1), ("string", "find"): ("indexOf", 1),
    ("string", "rfind"): ("lastIndexOf", 1), ("string", "lower"): ("toLowerCase", 0),
    ("string", "upper"): ("toUpperCase", 0),
}  # fmt: skip
__all__ = ["Calls"]
