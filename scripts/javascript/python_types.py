"""What mypy knows about the Python. The only file that uses mypy: an upgrade of mypy changes no other one.

A type is opaque elsewhere: functions of this file answer questions about it. Expressions are those of `ast`, the
standard library's; mypy's tree is walked beside it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from mypy import build, nodes
from mypy.modulefinder import BuildSource
from mypy.options import Options
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    LiteralType,
    NoneType,
    TupleType,
    Type,
    TypeAliasType,
    TypedDictType,
    TypeVarType,
    UninhabitedType,
    UnionType,
    get_proper_type,
)

from scripts.javascript.names import Refused, camel

PythonType: TypeAlias = Type | None

# "list": an array; "map": a Map; "record": a JSON object; "any": JSON of any type; "object": an instance of a class.
KINDS = {
    "builtins.list": "list", "builtins.tuple": "list", "typing.Sequence": "list", "builtins.dict": "map",
    "typing.Mapping": "record", "builtins.set": "set", "builtins.frozenset": "set", "typing.AbstractSet": "set",
    "builtins.str": "string", "builtins.int": "number", "builtins.float": "number", "builtins.bool": "boolean",
    "builtins.object": "any", "builtins.range": "range", "builtins.dict_keys": "keys", "typing.KeysView": "keys",
    "_collections_abc.dict_keys": "keys", "_collections_abc.dict_items": "items", "typing.ItemsView": "items",
    "_collections_abc.dict_values": "iterable", "typing.ValuesView": "iterable", "typing.Iterable": "iterable",
    "typing.Collection": "iterable", "typing.Generator": "iterable", "builtins.enumerate": "iterable",
    "builtins.zip": "iterable", "builtins.reversed": "iterable", "typing.Coroutine": "promise",
    "typing.Awaitable": "promise",
}  # fmt: skip
# Parts of a statement or an expression: names of the attributes of `ast` and of mypy, where both have the same parts.
PARTS: dict[type[ast.AST], tuple[tuple[str, str], ...]] = {
    ast.Module: (("body", "defs"),), ast.ClassDef: (("bases", "base_type_exprs"), ("body", "defs")),
    ast.FunctionDef: (("body", "body"),), ast.AsyncFunctionDef: (("body", "body"),),
    ast.Return: (("value", "expr"),), ast.Expr: (("value", "expr"),),
    ast.Assign: (("targets", "lvalues"), ("value", "rvalue")),
    ast.AugAssign: (("target", "lvalue"), ("value", "rvalue")),
    ast.AnnAssign: (("target", "lvalues"), ("value", "rvalue")), ast.While: (("test", "expr"), ("body", "body")),
    ast.For: (("target", "index"), ("iter", "expr"), ("body", "body")), ast.Assert: (("test", "expr"),),
    ast.If: (("test", "expr"), ("orelse", "else_body")), ast.Delete: (("targets", "expr"),),
    ast.Raise: (("exc", "expr"),), ast.BinOp: (("left", "left"), ("right", "right")),
    ast.UnaryOp: (("operand", "expr"),), ast.Await: (("value", "expr"),),
    ast.Try: (("body", "body"), ("finalbody", "finally_body")),
    ast.IfExp: (("test", "cond"), ("body", "if_expr"), ("orelse", "else_expr")), ast.Attribute: (("value", "expr"),),
    ast.Subscript: (("value", "base"), ("slice", "index")),
    ast.Slice: (("lower", "begin_index"), ("upper", "end_index")),
    ast.List: (("elts", "items"),), ast.Tuple: (("elts", "items"),), ast.Set: (("elts", "items"),),
    ast.Starred: (("value", "expr"),), ast.GeneratorExp: (("elt", "left_expr"),), ast.Lambda: (("body", "body"),),
    ast.DictComp: (("key", "key"), ("value", "value")),
}  # fmt: skip


def check(paths: Mapping[str, Path]) -> tuple[dict[str, TypedModule], list[str]]:
    """Modules by name, and mypy's errors. paths: by name"""
    options = Options()
    options.python_version = (3, 11)
    options.export_types = options.preserve_asts = options.explicit_package_bases = True
    options.incremental = False
    options.follow_imports, options.ignore_missing_imports = "silent", True  # `make check` reports other modules
    result = build.build([BuildSource(str(p), name, None) for name, p in paths.items()], options)
    if result.errors:
        return {}, result.errors
    trees = {name: ast.parse(path.read_text()) for name, path in paths.items()}
    return {name: TypedModule(tree, result.graph[name].tree, result.types) for name, tree in trees.items()}, []


class TypedModule:
    """The types of one module's expressions."""

    def __init__(self, tree: ast.Module, typed: nodes.MypyFile | None, types: dict[nodes.Expression, Type]) -> None:
        self.tree = tree
        self._types = types
        self._nodes: dict[ast.AST, Any] = {}
        self._pair(tree, typed)

    def _pair(self, a: Any, m: Any) -> None:
        """Notes which of mypy's nodes stands for a node of `ast` or for each in a list, and likewise for its parts."""
        if isinstance(m, nodes.Block):
            m = m.body
        if isinstance(a, list) or isinstance(m, list):
            a, m = (x if isinstance(x, list) else [x] for x in (a, m))
            for one, other in zip(a, m, strict=False):  # mypy adds methods to a dataclass
                self._pair(one, other)
            return
        if isinstance(a, ast.keyword):
            a = a.value
        if isinstance(m, nodes.Decorator):
            m = m.func
        if isinstance(a, ast.Starred) and not isinstance(m, nodes.StarExpr):  # an argument
            a = a.value
        if not isinstance(a, ast.AST) or m is None:
            return
        if isinstance(m, nodes.ReturnStmt) and not isinstance(a, ast.Return):  # a lambda's
            m = m.expr
        self._nodes[a] = m
        for name, other in PARTS.get(type(a), ()):
            self._pair(getattr(a, name), getattr(m, other, None))
        for part, counterpart in _other_parts(a, m):
            self._pair(part, counterpart)

    def type(self, e: ast.AST) -> PythonType:
        return self._types.get(self._nodes.get(e))  # type: ignore[arg-type]

    def global_name(self, e: ast.expr) -> str:
        """Module and name of what a name or an attribute refers to; "" if it is no global."""
        node: Any = self._nodes.get(e)
        is_global = isinstance(node, nodes.NameExpr) and node.kind == nodes.GDEF
        is_member = isinstance(node, nodes.MemberExpr) and isinstance(getattr(node.expr, "node", None), nodes.MypyFile)
        return node.fullname if is_global or is_member else ""

    def is_class(self, e: ast.expr) -> bool:
        return isinstance(getattr(self._nodes.get(e), "node", None), nodes.TypeInfo)

    def declared(self, target: ast.expr) -> PythonType:
        """The type of the variable or field that an assignment goes to."""
        node: Any = self._nodes.get(target)
        variable = getattr(node, "node", None)
        return variable.type if isinstance(variable, nodes.Var) and variable.type else self._types.get(node)

    def is_new_field(self, target: ast.expr) -> bool:
        """Whether an assignment without annotation declares a field."""
        return bool(getattr(self._nodes.get(target), "is_inferred_def", False))

    def names_type(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether an assignment at the top of a module gives a name to a type."""
        alias, analyzed = getattr(self._nodes.get(target), "node", None), self._analyzed(value)
        return isinstance(alias, nodes.TypeAlias) or isinstance(analyzed, nodes.TypeAliasExpr | nodes.TypeVarExpr)

    def named_type(self, value: ast.expr) -> PythonType:
        """The type that an expression writes; None if it is a mere name of one, or a variable for types."""
        analyzed = self._analyzed(value)
        return analyzed.node.target if isinstance(analyzed, nodes.TypeAliasExpr) else None

    def _analyzed(self, e: ast.expr) -> Any:
        return getattr(self._nodes.get(e), "analyzed", None)

    def function(self, f: ast.FunctionDef | ast.AsyncFunctionDef) -> CallableType:
        """Errors: Refused without annotations"""
        found = get_proper_type(self._nodes[f].type)
        if not isinstance(found, CallableType):
            raise Refused(f, f"{f.name} has no annotations")
        return found


def _other_parts(a: ast.AST, m: Any) -> list[tuple[Any, Any]]:
    """Parts that mypy has in another form."""
    if isinstance(a, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [*a.args.defaults, *(d for d in a.args.kw_defaults if d is not None)]
        return [(defaults, [x.initializer for x in m.arguments if x.initializer is not None])]
    if isinstance(a, ast.If):
        return [(a.body, m.body[0])]
    if isinstance(a, ast.Try):
        return [(one.body, other) for one, other in zip(a.handlers, m.handlers, strict=True)]
    if isinstance(a, ast.Call):
        return [(a.func, m.callee), ([*a.args, *a.keywords], m.args)]
    if isinstance(a, ast.BoolOp):  # a or (b or c)
        return [(a.values[0], m.left), (a.values[1] if len(a.values) == 2 else ast.BoolOp(a.op, a.values[1:]), m.right)]
    if isinstance(a, ast.Compare):
        return [([a.left, *a.comparators], m.operands)]
    if isinstance(a, ast.Dict):
        return [(a.keys, [k for k, _ in m.items]), (a.values, [v for _, v in m.items])]
    if isinstance(a, ast.ListComp | ast.SetComp):
        return [(ast.GeneratorExp(a.elt, a.generators), m.generator)]
    if isinstance(a, ast.GeneratorExp | ast.DictComp):
        loops = [(g.target, g.iter, g.ifs) for g in a.generators]
        return [*zip(map(list, zip(*loops, strict=True)), (m.indices, m.sequences, m.condlists), strict=True)]
    if isinstance(a, ast.JoinedStr):
        return [([v.value for v in a.values if isinstance(v, ast.FormattedValue)], _formatted(m))]
    return []


def _formatted(m: Any) -> list[Any]:
    """The values in an f-string: mypy has it as "".join of texts and of calls of format()."""
    name = getattr(getattr(m, "callee", None), "name", "")
    if name == "format":
        return [m.args[0]]
    return [x for part in m.args[0].items for x in _formatted(part)] if name == "join" else []


# ── questions about types ──


@dataclass(frozen=True)
class Parameter:
    """Of a function. name: "" where a type has none; is_named: by keyword alone"""

    name: str
    type: Type
    is_optional: bool
    is_named: bool


def members(t: PythonType) -> list[Any]:
    """The alternatives of a union, or the type itself."""
    proper = get_proper_type(t)
    return [get_proper_type(x) for x in proper.items] if isinstance(proper, UnionType) else [proper]


def kind(t: PythonType) -> str:
    """The kind of a type without None; "union" where the alternatives differ, "any" where mypy knows none."""
    found = {_kind(x) for x in members(t) if not isinstance(x, NoneType)}
    if len(found) > 1:
        found.discard("any")
    return found.pop() if len(found) == 1 else "union" if found else "none"


def _kind(t: Any) -> str:
    if isinstance(t, Instance):
        if t.type.fullname == "builtins.dict" and all(isinstance(get_proper_type(a), AnyType) for a in t.args):
            return "record"  # `isinstance(x, dict)` of JSON
        return KINDS.get(t.type.fullname, "object")
    if isinstance(t, LiteralType):
        return _kind(t.fallback)
    if isinstance(t, TypedDictType):
        return "record"
    if isinstance(t, TupleType):
        return "list"
    return "function" if isinstance(t, CallableType) else "any"


def is_optional(t: PythonType) -> bool:
    found = members(t)
    return len(found) > 1 and any(isinstance(x, NoneType) for x in found)


def is_tuple(t: PythonType) -> bool:
    return any(isinstance(x, TupleType) or getattr(x, "type", None) and x.type.name == "tuple" for x in members(t))


def is_float(t: PythonType) -> bool:
    """Whether a number may have a fraction."""
    return any(isinstance(x, Instance) and x.type.fullname == "builtins.float" for x in members(t))


def elements(t: PythonType) -> list[PythonType]:
    """Of a tuple the type of each item, of a list, a set or an iterable that of all, of a map that of its keys."""
    proper = members(t)[0]
    if isinstance(proper, TupleType):
        return list(proper.items)
    return [proper.args[0]] if isinstance(proper, Instance) and proper.args else [None]


def element_kind(t: PythonType) -> str:
    found = {kind(x) for x in elements(t)}
    return found.pop() if len(found) == 1 else "union" if found else "any"


def value_type(t: PythonType) -> PythonType:
    """Of the values of a map."""
    proper = members(t)[0]
    return proper.args[1] if isinstance(proper, Instance) and len(proper.args) > 1 else None


def field_type(t: PythonType, key: Any) -> PythonType:
    """Of an entry of a JSON object, where its type is known. key: a constant's value"""
    proper = members(t)[0]
    return proper.items.get(key) if isinstance(proper, TypedDictType) else value_type(t)


def declares(t: PythonType, key: str) -> bool | None:
    """Whether each alternative is a typed dict with the key; None if one is no typed dict."""
    found = members(t)
    return all(key in x.items for x in found) if all(isinstance(x, TypedDictType) for x in found) else None


def requires(t: PythonType, key: str) -> bool:
    """Whether the key is there in all typed dicts among the alternatives."""
    return all(key in x.required_keys for x in members(t) if isinstance(x, TypedDictType))


def is_function(t: PythonType) -> bool:
    return isinstance(get_proper_type(t), CallableType)


def signature(t: PythonType) -> list[Parameter] | None:
    """The parameters; None if t is not the type of a function."""
    proper = get_proper_type(t)
    if not isinstance(proper, CallableType):
        return None
    each = zip(proper.arg_names, proper.arg_types, proper.arg_kinds, strict=True)
    return [Parameter(name or "", a, k.is_optional(), k.is_named()) for name, a, k in each]


def result(t: PythonType) -> PythonType:
    """What a function returns."""
    proper = get_proper_type(t)
    return proper.ret_type if isinstance(proper, CallableType) else None


def awaited(t: PythonType) -> PythonType:
    """What `await` gives of a coroutine; other types as they are."""
    proper = get_proper_type(t)
    return proper.args[-1] if isinstance(proper, Instance) and _kind(proper) == "promise" else t


# ── types in JSDoc ──


class TypeNames:
    """Writes types for JSDoc. names: of the classes, typed dicts and aliases that they mention, by full Python name."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def text(self, t: PythonType) -> str:
        if isinstance(t, TypeAliasType) and t.alias is not None and not t.args:
            return self._named(t.alias.fullname)
        if isinstance(t, UnionType):
            return " | ".join(dict.fromkeys(map(self.text, t.items)))
        return " | ".join(dict.fromkeys(self._one(x) for x in members(t)))

    def method(self, t: CallableType) -> str:
        """The type of a method, without the brackets around it and without `self`."""
        return self._function(t, signature(t)[1:])  # type: ignore[index]

    def _one(self, t: Any) -> str:
        if isinstance(t, Instance):
            return self._instance(t)
        if isinstance(t, LiteralType):
            return f"'{t.value}'" if isinstance(t.value, str) else str(t.value).lower()
        if isinstance(t, TypedDictType):
            return self._named(t.fallback.type.fullname)
        if isinstance(t, TupleType):
            return f"[{', '.join(map(self.text, t.items))}]"
        if isinstance(t, CallableType):
            return f"({self._function(t, signature(t) or [])})"
        if isinstance(t, NoneType):
            return "null"
        if isinstance(t, TypeVarType):
            return t.name
        return "never" if isinstance(t, UninhabitedType) else "any"

    def _function(self, t: CallableType, parameters: list[Parameter]) -> str:
        """Those with a position, and an object of those by keyword alone."""

        def written(is_named: bool) -> list[str]:
            found = [(n, p) for n, p in enumerate(parameters) if p.is_named == is_named]
            return [f"{camel(p.name or f'_{n}')}{'?' if p.is_optional else ''}: {self.text(p.type)}" for n, p in found]

        options = [f"options: {{ {', '.join(written(True))} }}"] if written(True) else []
        return f"({', '.join([*written(False), *options])}) => {self._returned(t.ret_type)}"

    def _returned(self, t: PythonType) -> str:
        return "void" if isinstance(get_proper_type(t), NoneType) else self.text(t)

    def _instance(self, t: Instance) -> str:
        found = KINDS.get(t.type.fullname, "object")
        if found == "promise":
            return f"Promise<{self._returned(t.args[-1])}>"
        arguments = [self.text(a) for a in t.args]
        if found in ("list", "iterable"):
            inner = arguments[0] if arguments else "any"
            if found == "iterable":
                return f"Iterable<{inner}>"
            return f"{f'({inner})' if ' ' in inner else inner}[]"
        if found in ("map", "set", "record"):
            return {"map": "Map", "set": "Set", "record": "Record"}[found] + f"<{', '.join(arguments)}>"
        return self._named(t.type.fullname) if found == "object" else found

    def _named(self, fullname: str) -> str:
        name = fullname.rpartition(".")[2]
        self.names[fullname] = name
        return name
