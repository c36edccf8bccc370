"""What a mypy type is in JavaScript."""

from __future__ import annotations

from typing import Any

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


class Refused(Exception):
    """The Python is outside of the subset."""

    def __init__(self, node: Any, why: str) -> None:
        super().__init__(why)
        self.line = getattr(node, "line", 0)


# "list": an array; "map": a Map; "record": a JSON object; "any": JSON of any type; "object": an instance of a class;
# "bytes": a Uint8Array that nobody changes, so that its slices are views.
KINDS = {
    "builtins.list": "list", "builtins.tuple": "list", "typing.Sequence": "list", "builtins.dict": "map",
    "typing.Mapping": "record", "builtins.set": "set", "builtins.frozenset": "set", "typing.AbstractSet": "set",
    "builtins.str": "string", "builtins.int": "number", "builtins.float": "number", "builtins.bool": "boolean",
    "builtins.object": "any", "builtins.range": "range", "builtins.dict_keys": "keys", "typing.KeysView": "keys",
    "_collections_abc.dict_keys": "keys", "_collections_abc.dict_items": "items", "typing.ItemsView": "items",
    "_collections_abc.dict_values": "iterable", "typing.ValuesView": "iterable", "typing.Iterable": "iterable",
    "typing.Collection": "iterable", "typing.Generator": "iterable", "builtins.enumerate": "iterable",
    "builtins.zip": "iterable", "builtins.reversed": "iterable", "builtins.bytes": "bytes",
    "builtins.memoryview": "bytes",
}  # fmt: skip


def members(t: Type | None) -> list[Any]:
    """The alternatives of a union, or the type itself."""
    proper = get_proper_type(t)
    return [get_proper_type(x) for x in proper.items] if isinstance(proper, UnionType) else [proper]


def kind(t: Type | None) -> str:
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


def is_optional(t: Type | None) -> bool:
    found = members(t)
    return len(found) > 1 and any(isinstance(x, NoneType) for x in found)


def element_kind(t: Type | None) -> str:
    """What a list, a set or an iterable has; of a map, what its keys are."""
    proper = members(t)[0]
    if isinstance(proper, TupleType):
        return kind(UnionType(list(proper.items)))
    return kind(proper.args[0]) if isinstance(proper, Instance) and proper.args else "any"


def value_type(t: Type | None) -> Type | None:
    """Of the values of a map."""
    proper = members(t)[0]
    return proper.args[1] if isinstance(proper, Instance) and len(proper.args) > 1 else None


def field_type(t: Type | None, key: Any) -> Type | None:
    """Of an entry of a JSON object, where its type is known. key: an expression"""
    proper = members(t)[0]
    if isinstance(proper, TypedDictType):
        return proper.items.get(getattr(key, "value", ""))
    return value_type(t)


def is_integer(t: Type | None) -> bool:
    """Whether the elements of a list are integers, none of them a bool."""
    proper = members(t)[0]
    elements = proper.items if isinstance(proper, TupleType) else getattr(proper, "args", ())
    return all(
        getattr(get_proper_type(x), "type", None) and get_proper_type(x).type.fullname == "builtins.int"
        for x in elements
    )


def is_plain(t: Type | None) -> bool:
    """Whether both languages write it in the same way: integers and texts, not 1.0, which JavaScript writes as 1."""
    floats = any(isinstance(x, Instance) and x.type.fullname == "builtins.float" for x in members(t))
    return not floats and kind(t) in ("number", "string", "any")


class TypeNames:
    """Writes types for JSDoc. names: of the classes, typed dicts and aliases that they mention, by full Python name."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def text(self, t: Type | None) -> str:
        if isinstance(t, TypeAliasType) and t.alias is not None and not t.args:
            return self._named(t.alias.fullname)
        if isinstance(t, UnionType):
            return " | ".join(dict.fromkeys(map(self.text, t.items)))
        return " | ".join(dict.fromkeys(self._one(x) for x in members(t)))

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
            returned = get_proper_type(t.ret_type)
            result = "void" if isinstance(returned, NoneType) else self.text(t.ret_type)
            return f"(({', '.join(self._parameters(t))}) => {result})"
        if isinstance(t, NoneType):
            return "null"
        if isinstance(t, TypeVarType):
            return t.name
        return "never" if isinstance(t, UninhabitedType) else "any"

    def _parameters(self, t: CallableType) -> list[str]:
        """Of a function's type: those with a position, and an object of those by keyword alone."""
        parameters, options = [], []
        for n, (name, a, how) in enumerate(zip(t.arg_names, t.arg_types, t.arg_kinds, strict=True)):
            text = f"{camel(name or f'_{n}')}{'?' if how.is_optional() else ''}: {self.text(a)}"
            (options if how.is_named() else parameters).append(text)
        return [*parameters, *([f"options: {{ {', '.join(options)} }}"] if options else [])]

    def _instance(self, t: Instance) -> str:
        found, arguments = KINDS.get(t.type.fullname, "object"), [self.text(a) for a in t.args]
        if found in ("list", "iterable"):
            inner = arguments[0] if arguments else "any"
            if found == "iterable":
                return f"Iterable<{inner}>"
            return f"{f'({inner})' if ' ' in inner else inner}[]"
        if found in ("map", "set") and element_kind(t) in ("list", "bytes"):
            raise Refused(t, f"keys of {found} are compared by identity in JavaScript, so that no other one is found")
        if found in ("map", "set", "record"):
            return {"map": "Map", "set": "Set", "record": "Record"}[found] + f"<{', '.join(arguments)}>"
        if found == "object":
            return self._named(t.type.fullname)
        if found == "bytes":
            return "Uint8Array"
        return found

    def _named(self, fullname: str) -> str:
        name = fullname.rpartition(".")[2]
        self.names[fullname] = name
        return name


RESERVED = {"new", "delete", "function", "default", "case", "var", "switch", "typeof", "void", "this", "with", "let"}


def camel(name: str) -> str:
    """A JavaScript name: `lay_out` becomes `layOut`; constants and classes stay."""
    if name.isupper() or not name.strip("_"):
        return name
    bare = name.lstrip("_")
    first, *rest = bare.split("_")
    joined = name[: len(name) - len(bare)] + first + "".join(part.capitalize() for part in rest if part)
    return joined + "_" if joined in RESERVED else joined
