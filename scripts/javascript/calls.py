"""Calls of the subset, in JavaScript: builtins, methods of Python's containers, constructors, functions."""

from __future__ import annotations

import re
from typing import Any

from mypy import nodes
from mypy.types import CallableType, TupleType, Type, get_proper_type

from scripts.javascript.expressions import PRIMITIVE, Expressions, Refused, refuse_container
from scripts.javascript.kinds import camel, element_kind, is_integer, is_optional, is_plain, kind, value_type

ERRORS = "pyruntime.errors."


class Calls(Expressions):
    """Expressions with calls."""

    def _CallExpr(self, e: nodes.CallExpr) -> str:
        return call(self, e)


def call(x: Expressions, e: nodes.CallExpr) -> str:
    callee = e.callee
    parts = _f_string(x, e)
    if parts is not None:
        return f"`{''.join(parts)}`"
    if isinstance(e.analyzed, nodes.CastExpr):
        return x.cast(x.text(e.analyzed.expr), e.analyzed.type)
    if isinstance(callee, nodes.NameExpr) and callee.fullname.startswith("builtins."):
        return _builtin(x, e, callee.name)
    if isinstance(callee, nodes.SuperExpr):
        return f"{x.text(callee)}({', '.join(_arguments(x, e))})"
    if isinstance(callee, (nodes.NameExpr, nodes.MemberExpr)):
        if callee.fullname in ("json.loads", "json.dumps"):
            return _json(x, e, callee.name)
        if callee.name == "from_bytes":
            return f"{x.support('fromBytes')}({x.text(e.args[0])}, {_order(e, 1)})"
        if callee.fullname == "math.prod":
            return f"{x.support('product')}({x.array(e.args[0])})"
        if callee.fullname.startswith(ERRORS):
            return _error(x, e)
        if callee.name == "fromkeys" and len(e.args) == 1:
            return f"new Set({x.iterable(e.args[0], True)})"  # as dict.fromkeys(x), which is used for its keys
    if isinstance(callee, nodes.MemberExpr) and x.kind(callee.expr) not in (
        "object",
        "none",
        "union",
        "any",
        "function",
    ):
        return _method(x, e, callee)
    if (
        isinstance(callee, nodes.MemberExpr)
        and x.kind(callee.expr) == "any"
        and not isinstance(callee.expr, nodes.NameExpr | nodes.MemberExpr)
    ):
        raise Refused(e, f"a method of an unknown type: {callee.name}")
    if isinstance(callee, nodes.MemberExpr) and x.kind(callee.expr) == "any" and callee.name in ("get", "items"):
        return _method(x, e, callee)
    made = isinstance(callee, nodes.NameExpr) and isinstance(callee.node, nodes.TypeInfo)
    name = f"{x.inner(callee.expr)}.{camel(callee.name)}" if _is_method(callee) else x.text(callee)  # type: ignore[attr-defined]
    return f"{'new ' if made else ''}{name}({', '.join(_arguments(x, e))})"


def _f_string(x: Expressions, e: nodes.CallExpr) -> list[str] | None:
    """The parts of an f-string: mypy has it as "".join of texts and of calls of format()."""
    callee = e.callee
    if not (isinstance(callee, nodes.MemberExpr) and isinstance(callee.expr, nodes.StrExpr)):
        return None
    if callee.name == "format" and callee.expr.value.startswith("{"):
        return [f"${{{_formatted(x, e, callee.expr.value)}}}"]
    if callee.name != "join" or callee.expr.value != "" or not isinstance(e.args[0], nodes.ListExpr):
        return None
    parts: list[str] = []
    for part in e.args[0].items:
        if isinstance(part, nodes.StrExpr):
            parts.append(
                part.value.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${").replace("\n", "\\n")
            )
        else:
            parts += _f_string(x, part) or []
    return parts


def _formatted(x: Expressions, e: nodes.CallExpr, how: str) -> str:
    """A value in an f-string: an integer or text as it is, a list of integers, a number with places after the point."""
    value, places = e.args[0], getattr(e.args[1], "value", None)
    t = x.types.get(value)
    if how == "{:{}}" and places and (found := re.fullmatch(r"\.(\d)f", places)) and kind(t) == "number":
        return f"{x.support('fixed')}({x.text(value)}, {found[1]})"
    if how == "{:{}}" and places == "" and kind(t) == "list" and element_kind(t) == "number" and is_integer(t):
        return f"'[' + {x.array(value)}.join(', ') + ']'"
    if how != "{:{}}" or places != "" or not is_plain(t):
        raise Refused(e, "an f-string of anything but an integer or text")
    return x.text(value)


def _is_method(callee: Any) -> bool:
    return isinstance(callee, nodes.MemberExpr) and not isinstance(getattr(callee.expr, "node", None), nodes.MypyFile)


def _arguments(x: Expressions, e: nodes.CallExpr) -> list[str]:
    """Arguments in the order of the parameters, `undefined` for a default between others; then an object of those by
    keyword alone."""
    signature = get_proper_type(x.types.get(e.callee))
    names = signature.arg_names if isinstance(signature, CallableType) else [None] * len(e.args)
    named = [how.is_named() for how in signature.arg_kinds] if isinstance(signature, CallableType) else []
    types: list[Type | None] = (
        list(signature.arg_types) if isinstance(signature, CallableType) else [None] * len(e.args)
    )
    found: dict[int, str] = {}
    options: list[str] = []
    for n, (value, name) in enumerate(zip(e.args, e.arg_names, strict=True)):
        if e.arg_kinds[n].is_star():
            raise Refused(e, "* and ** in a call")
        if name is not None and name not in names:
            raise Refused(e, f"the keyword {name} of a function whose parameters are not known")
        at = n if name is None else names.index(name)
        if (
            at < len(types)
            and names[at]
            and kind(types[at]) == "record"
            and x.kind(value) == "map"
            and not isinstance(value, nodes.DictExpr)
        ):
            raise Refused(e, f"argument {at}: a dict where a JSON object is expected")
        text = x.text(value, types[at] if at < len(types) else None)
        if name is not None and at < len(named) and named[at]:
            options.append(_property(camel(name), text))
            continue
        if max(found, default=-1) > at and isinstance(value, nodes.CallExpr):
            raise Refused(e, f"the call for {name} is evaluated in the order of the parameters")
        found[at] = text
    count = named.count(False) if options else max(found, default=-1) + 1
    positional = [found.get(n, "undefined") for n in range(count)]
    return [*positional, *([f"{{ {', '.join(options)} }}"] if options else [])]


def _property(name: str, text: str) -> str:
    return name if name == text else f"{name}: {text}"


def _error(x: Expressions, e: nodes.CallExpr) -> str:
    named = [(n, x.text(a)) for n, a in zip(e.arg_names, e.args, strict=True) if n is not None]
    parts = [x.text(a) for n, a in zip(e.arg_names, e.args, strict=True) if n is None]
    if named:
        parts.append(f"{{ {', '.join(_property(n, text) for n, text in named)} }}")
    return f"new {x.text(e.callee)}({', '.join(parts)})"


def _json(x: Expressions, e: nodes.CallExpr, name: str) -> str:
    if name == "loads":
        return f"{x.support('parseJson')}({x.text(e.args[0])})"
    named = {n: a for n, a in zip(e.arg_names, e.args, strict=True) if n}
    separators = [getattr(p, "value", "") for p in getattr(named.get("separators"), "items", [])]
    escapes = getattr(named.get("ensure_ascii"), "name", "True") == "True"
    if x.kind(e.args[0]) not in ("record", "any") or separators != [",", ":"] or escapes:
        raise Refused(e, 'json.dumps() of anything but a JSON object, with separators=(",", ":"), ensure_ascii=False')
    return f"JSON.stringify({x.text(e.args[0])})"


def _order(e: nodes.CallExpr, n: int) -> str:
    """The order of bytes, argument n. Only numbers without sign exist."""
    if len(e.args) != n + 1 or getattr(e.args[n], "value", "") not in ("little", "big"):
        raise Refused(e, 'an order of bytes that is not "little" or "big", or a signed integer')
    return "true" if e.args[n].value == "little" else "false"  # type: ignore[attr-defined]


# ── builtins ──


def _builtin(x: Expressions, e: nodes.CallExpr, name: str) -> str:
    write = BUILTINS.get(name)
    if write is None:
        raise Refused(e, f"{name}() is not in the subset")
    named = {n: a for n, a in zip(e.arg_names, e.args, strict=True) if n}
    if unknown := named.keys() - {"key", "default", "strict"}:
        raise Refused(e, f"{name}({', '.join(sorted(unknown))}=…)")
    return str(write(x, e, [a for a, n in zip(e.args, e.arg_names, strict=True) if not n], named))


def _length(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    found, text = x.kind(args[0]), x.inner(args[0])
    text = text[1:-1] if text.startswith("(new Set(") else text
    if found == "record":
        return f"Object.keys({text}).length"
    if found not in ("list", "string", "map", "set", "any", "bytes"):
        raise Refused(e, f"len() of {found}")
    return f"{text}.{'size' if found in ('map', 'set') else 'length'}"


def _extreme(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    name = e.callee.name
    if "key" in named:
        values = x.array(args[0]) if len(args) == 1 else f"[{', '.join(map(x.text, args))}]"
        return f"{x.support(f'{name}By')}({values}, {x.text(named['key'])})"
    if len(args) > 1:
        return f"Math.{name}({', '.join(map(x.text, args))})"
    default = f", {x.text(named['default'])}" if "default" in named else ""
    return f"{x.support(f'{name}Of')}({x.array(args[0])}{default})"


def _isinstance(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    text, name, unknown = x.inner(args[0]), args[1].name, x.kind(args[0]) == "any"
    if name == "int":
        return f"Number.isInteger({x.text(args[0])})" if unknown else f"typeof {text} === 'number'"
    simple = {
        "str": f"typeof {text} === 'string'",
        "bool": f"typeof {text} === 'boolean'",
        "float": f"typeof {text} === 'number'",
        "list": f"Array.isArray({x.text(args[0])})",
    }
    if name in simple:
        return simple[name]
    return f"{x.support('isObject')}({x.text(args[0])})" if name == "dict" else f"{text} instanceof {x.text(args[1])}"


def _sorted(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    values = x.text(args[0])
    values = values if values.endswith("]") and values.startswith("[...") else f"[...{x.iterable(args[0])}]"
    key = named.get("key")
    if isinstance(key, nodes.LambdaExpr):
        value = key.expr()
        parts = value.items if isinstance(value, nodes.TupleExpr) else [value]
        return f"{values}.sort({_comparison(x, key.arguments[0].variable.name, parts)})"
    if key is not None:
        return f"{values}.sort((a, b) => {x.text(key)}(a) - {x.text(key)}(b))"
    t = x.types.get(e)
    item = get_proper_type(get_proper_type(t).args[0])  # type: ignore[union-attr]
    if isinstance(item, TupleType):
        return f"{values}.sort((a, b) => {' || '.join(f'a[{n}] - b[{n}]' for n in range(len(item.items)))})"
    return f"{values}.sort()" if kind(item) == "string" else f"{values}.sort((a, b) => a - b)"


def _comparison(x: Expressions, parameter: str, keys: list[Any]) -> str:
    """A function that orders by keys, each an expression of the parameter."""

    def of(name: str, key: Any) -> str:
        x.renamed = {parameter: name}
        text = x.inner(key)
        x.renamed = {}
        return text

    terms = []
    for key in keys:
        if x.kind(key) not in ("number", "boolean", "any"):
            raise Refused(key, f"a key of kind {x.kind(key)}")
        falls = isinstance(key, nodes.UnaryExpr) and key.op == "-"
        first, second = ("b", "a") if falls else ("a", "b")
        bare = key.expr if falls else key
        terms.append(f"{of(first, bare)} - {of(second, bare)}")
    return f"(a, b) => {' || '.join(terms)}"


def _range(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    return f"{x.support('range')}({', '.join(map(x.text, args))})"


def _predicate(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    generator, name = args[0], "some" if e.callee.name == "any" else "every"
    if not isinstance(generator, nodes.GeneratorExpr) or len(generator.indices) != 1:
        if element_kind(x.types.get(generator)) not in (*PRIMITIVE, "object"):
            raise Refused(e, f"{e.callee.name}() of containers: write the condition")
        return f"{x.array(generator)}.{name}(Boolean)"
    target, before = x.target(generator.indices[0]), set(x.known)
    text = x.array(generator.sequences[0])
    for condition in generator.condlists[0]:
        text = f"{text}.filter(({target}) => {x.condition(condition)})"
        x.known |= x.found(condition)
    text = f"{text}.{name}(({target}) => {x.condition(generator.left_expr)})"
    x.known = before
    return text


def _enumerate(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    if len(args) > 1:
        raise Refused(e, "enumerate() with a start")
    return f"{x.array(args[0])}.entries()"


def _zip(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    if len(args) != 2:
        raise Refused(e, f"zip() of {len(args)}")
    strict = ", true" if getattr(named.get("strict"), "name", "False") == "True" else ""
    return f"{x.support('zip')}({', '.join(map(x.array, args))}{strict})"


def _container(name: str) -> Any:
    def write(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
        if name == "Map" and args and x.kind(args[0]) == "map":
            return f"new Map({x.text(args[0])})"
        return f"new {name}({x.iterable(args[0]) if args and name == 'Set' else x.array(args[0]) if args else ''})"

    return write


def _list(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    if not args:
        return "[]"
    if isinstance(args[0], nodes.GeneratorExpr):
        return x.text(args[0])
    return x.text(args[0]) if x.text(args[0]).startswith(("zip(", "range(")) else f"[...{x.iterable(args[0])}]"


def _text(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    if not is_plain(x.types.get(args[0])):
        raise Refused(e, "str() of anything but an integer or text")
    return f"String({x.text(args[0])})"


def _integer(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    found, text = x.kind(args[0]), x.text(args[0])
    if found == "number" and e.callee.name == "float":
        return text
    if found == "string":
        return f"{x.support('integer' if e.callee.name == 'int' else 'float')}({text})"
    return f"{'Math.trunc' if found == 'number' else 'Number'}({text})"


def _bytes(x: Expressions, e: Any, args: list[Any], named: dict[str, Any]) -> str:
    """Zeros, the elements of a list, or the same bytes."""
    found = x.kind(args[0])
    if found == "bytes":
        return x.text(args[0])
    if found not in ("number", "list", "iterable"):
        raise Refused(e, f"bytes() of {found}")
    return f"new Uint8Array({x.text(args[0])})" if found == "number" else f"Uint8Array.from({x.iterable(args[0])})"


BUILTINS = {
    "len": _length, "min": _extreme, "max": _extreme, "isinstance": _isinstance, "sorted": _sorted, "range": _range,
    "any": _predicate, "all": _predicate, "enumerate": _enumerate, "zip": _zip, "list": _list, "tuple": _list,
    "dict": _container("Map"), "set": _container("Set"),
    "frozenset": _container("Set"), "str": _text, "int": _integer, "float": _integer,
    "bool": lambda x, e, args, named: x.condition(args[0]), "bytes": _bytes, "memoryview": _bytes,
    "abs": lambda x, e, args, named: f"Math.abs({x.text(args[0])})",
    "sum": lambda x, e, args, named: f"{x.support('sum')}({x.array(args[0])})",
    "reversed": lambda x, e, args, named: f"[...{x.iterable(args[0])}].reverse()",
}  # fmt: skip


# ── methods of containers and strings ──

# Texts of JavaScript for the value itself
PLAIN = {
    ("string", "lower"): "{}.toLowerCase()", ("string", "upper"): "{}.toUpperCase()",
    ("string", "isascii"): "/^[\\0-\\x7f]*$/.test({})", ("string", "isdecimal"): "/^\\p{{Nd}}+$/u.test({})",
    ("string", "encode"): "new TextEncoder().encode({})",
}  # fmt: skip
# Functions of python_builtins.js, and the number of arguments
SUPPORTED = {
    ("string", "removeprefix"): 1, ("string", "removesuffix"): 1, ("string", "partition"): 1, ("string", "count"): 1,
    ("string", "rpartition"): 1, ("bytes", "decode"): 0,
}  # fmt: skip


def _method(x: Expressions, e: nodes.CallExpr, callee: nodes.MemberExpr) -> str:
    found, base, name = x.kind(callee.expr), x.inner(callee.expr), callee.name
    if found == "any":
        found = "record"
    args = e.args
    if name == "get" and found in ("map", "record"):
        return _get(x, e, base, found)
    if name in ("items", "keys", "values"):
        views = {"items": "entries", "keys": "keys", "values": "values"}
        if found == "record":
            return f"Object.{views[name]}({x.text(callee.expr)})"
        return base if name == "items" else f"{base}.{name}()"
    if name == "join" and found == "bytes":
        if getattr(callee.expr, "value", None) != "":
            raise Refused(e, "join() with bytes between")
        return f"{x.support('concatenated')}({x.array(args[0])})"
    if name == "join":
        return f"{x.array(args[0])}.join({x.text(callee.expr)})"
    if (found, name) in PLAIN and (not args or name not in ("encode", "decode")):
        return PLAIN[found, name].format(base)
    if (found, name) == ("number", "to_bytes"):
        return f"{x.support('toBytes')}({x.text(callee.expr)}, {x.text(args[0])}, {_order(e, 1)})"
    if (found, name) in SUPPORTED and len(args) == SUPPORTED[found, name]:
        return f"{x.support(camel(name))}({', '.join([x.text(callee.expr), *map(x.text, args)])})"
    if name == "copy":
        return {"list": f"[...{base}]", "map": f"new Map({base})", "set": f"new Set({base})"}[found]
    supported = {
        ("list", "insert"),
        ("list", "pop"),
        ("map", "pop"),
        ("map", "setdefault"),
        ("map", "update"),
        ("set", "update"),
        ("set", "isdisjoint"),
    }
    if (found, name) in supported:
        values = [
            x.keys(a)
            if name == "isdisjoint"
            else x.iterable(a, True)
            if name == "update" and found == "set"
            else x.text(a)
            for a in args
        ]
        if (found, name) == ("list", "pop") and not args:
            return x.cast(f"{base}.pop()", x.types.get(e))
        own = {
            "pop": f"pop{'At' if found == 'list' else ''}",
            "setdefault": "setDefault",
            "isdisjoint": "isDisjoint",
            "update": f"update{'Set' if found == 'set' else 'Map'}",
        }
        return f"{x.support(own.get(name, name))}({', '.join([x.text(callee.expr), *values])})"
    if (found, name) == ("list", "extend"):
        return f"{base}.push(...{x.iterable(args[0])})"
    if (found, name) == ("list", "clear"):
        return f"{base}.length = 0"
    direct = {
        ("list", "append"): "push", ("list", "index"): "indexOf", ("set", "add"): "add", ("set", "discard"): "delete",
        ("map", "clear"): "clear", ("set", "clear"): "clear", ("string", "startswith"): "startsWith",
        ("string", "endswith"): "endsWith", ("string", "split"): "split", ("string", "find"): "indexOf",
        ("string", "replace"): "replaceAll", ("string", "rfind"): "lastIndexOf",
    }  # fmt: skip
    if (found, name) == ("list", "index"):
        refuse_container(e, element_kind(x.types.get(callee.expr)), "index()")
    counts = {"split": 1, "find": 1, "rfind": 1, "replace": 2}
    if (found, name) not in direct or len(args) != counts.get(name, len(args)):
        raise Refused(e, f"the method {name} of {found}")
    values = list(map(x.text, args))
    if name == "replace":
        values[1] = f"() => {values[1]}"  # or "$" would have a meaning
    return f"{base}.{direct[found, name]}({', '.join(values)})"


def _get(x: Expressions, e: nodes.CallExpr, base: str, found: str) -> str:
    key, default = e.args[0], x.text(e.args[1]) if len(e.args) > 1 else "null"
    if default != "null" and is_optional(value_type(x.types.get(e.callee.expr))):  # type: ignore[attr-defined]
        raise Refused(e, "get() of values that may be None, with a default")
    operand = f"({default})" if isinstance(e.args[-1], nodes.ConditionalExpr) else default
    if found == "map":
        return f"{base}.get({x.text(key)}) ?? {operand}"
    if isinstance(key, nodes.StrExpr) and key.value.isidentifier():
        return f"{base}.{key.value} ?? {operand}"
    return f"{x.support('entry')}({base}, {x.text(key)}, {default})"
