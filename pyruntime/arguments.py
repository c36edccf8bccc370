"""Checks arguments of public functions by their annotations, in the host's Python; pages do not import this.

An argument of another type raises InvalidInput, which names the parameter. None for a parameter with a default counts
as absent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature, unwrap
from numbers import Integral, Real
from types import FunctionType, NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

from pyruntime.errors import InvalidInput
from pyruntime.options import Kind, instance

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

_BOOLS = ("bool", "bool_")  # NumPy's has the second name


def _is_bool(x: Any) -> bool:
    return type(x).__name__ in _BOOLS


_SIMPLE: dict[Any, Kind] = {
    bool: Kind("True or False", lambda x: _is_bool(x) or isinstance(x, int) and x in (0, 1)),
    int: Kind("an integer", lambda x: isinstance(x, Integral) and not _is_bool(x)),
    float: Kind("a number", lambda x: isinstance(x, Real) and not _is_bool(x)),
    str: instance(str, "a text"),
    bytes: instance((bytes, bytearray, memoryview), "bytes"),
    os.PathLike: instance(os.PathLike, "a path"),
    NoneType: instance(NoneType, "None"),
    Mapping: instance(Mapping, "a dict"),
    dict: instance(dict, "a dict"),
    Callable: Kind("a function", callable),
    Iterable: Kind("a list", lambda x: hasattr(x, "__iter__") and not isinstance(x, (str, bytes, Mapping))),
}
_LISTS = (Sequence, Collection, list, tuple)


class _Argument(NamedTuple):
    """kind: the accepted values, or None for all; default: Parameter.empty if there is none"""

    name: str
    kind: Kind | None
    default: Any

    def checked(self, value: Any) -> Any:
        """Errors: InvalidInput"""
        if self.kind is None or self.kind.takes(value):
            return value
        if value is None and self.default is not Parameter.empty:
            return self.default
        hint = "model.SerializeToString() gives its bytes" if hasattr(value, "SerializeToString") else self.kind.wants
        raise InvalidInput(f"{self.name} cannot be {shown(value)}", hint=hint)


def checks_arguments(*but: str) -> Callable[[C], C]:
    """A decorator of classes: their constructor and public methods check arguments. but: methods that do so by
    themselves, because they are called often"""

    def decorate(cls: C) -> C:
        for name, member in list(vars(cls).items()):
            is_public = name == "__init__" or not name.startswith("_")
            if not is_public or name in but:
                continue
            if isinstance(member, (staticmethod, classmethod)):
                setattr(cls, name, type(member)(checked(member.__func__)))
            elif isinstance(member, FunctionType):
                setattr(cls, name, checked(member))
        return cls

    return decorate


def checked(function: F) -> F:
    """The function with a check of its arguments. Without parameters it stays as it is."""
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [p for p in signature(function).parameters.values() if p.name not in ("self", "cls")]
    first = len(signature(function).parameters) - len(parameters)
    if not parameters:
        return function
    by_name: dict[str, _Argument] = {}
    in_order: list[_Argument] = []
    takes_all = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)

    def read() -> None:
        """The annotations, once they are needed: their modules are imported by then."""
        for p in parameters:
            if p.kind in (*positional, Parameter.KEYWORD_ONLY):
                by_name[p.name] = _Argument(p.name, parameter_kind(function, p), p.default)
                if p.kind in positional:
                    in_order.append(by_name[p.name])

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not by_name:
            read()
        try:
            own = [a.checked(x) for a, x in zip(in_order, args[first:], strict=False)]
            for key, x in kwargs.items():
                if key in by_name:
                    kwargs[key] = by_name[key].checked(x)
                elif not takes_all:
                    raise InvalidInput(f"there is no argument {key!r}", hint=f"there are {', '.join(by_name)}")
            given = [a.name for a in in_order[: len(own)]]
            for a in by_name.values():
                if a.default is Parameter.empty and a.name not in kwargs and a.name not in given:
                    raise InvalidInput(f"the argument {a.name!r} is missing", hint=a.kind.wants if a.kind else "")
        except InvalidInput as error:
            raise InvalidInput(f"{_name(function, args[:first])}: {error.message}", hint=error.hint) from None
        return function(*args[:first], *own, *args[first + len(own) :], **kwargs)

    return call  # type: ignore[return-value]


def _name(function: Callable[..., Any], owner: Sequence[Any]) -> str:
    """As users know it: with the class of the object. owner: the object or class, if it is a method"""
    kind = [x if isinstance(x, type) else type(x) for x in owner]
    name = function.__name__
    return ".".join([*(k.__name__ for k in kind), *([] if name == "__init__" else [name])])


def parameter_kind(function: Callable[..., Any], p: Parameter) -> Kind | None:
    """The values that a parameter accepts. None: all, also if its annotation names what only type checkers import"""
    try:
        of = p.annotation
        return kind_of(eval(of, unwrap(function).__globals__) if isinstance(of, str) else of)
    except NameError:
        return None


def kind_of(annotation: Any) -> Kind | None:
    """The values of a type. None: all"""
    origin, inner = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, UnionType):
        kinds = [kind_of(one) for one in inner]
        known = [kind for kind in kinds if kind is not None]
        words = " or ".join(dict.fromkeys(kind.wants for kind in known))
        return Kind(words, lambda x: any(kind.takes(x) for kind in known)) if len(known) == len(kinds) else None
    if origin in _SIMPLE:
        return _SIMPLE[origin]
    if origin in _LISTS:
        item = kind_of(inner[0]) if inner else None
        return Kind("a list", _is_list) if item is None else _list_of(item)
    if not isinstance(origin, type) or origin in (Any, object, Parameter.empty):
        return None
    if getattr(origin, "_is_protocol", False):
        members = [name for name in vars(origin) if not name.startswith("_")]
        return Kind(f"an object with {', '.join(members)}", lambda x: all(hasattr(x, name) for name in members))
    return instance(origin, f"{'an' if origin.__name__[0] in 'AEIO' else 'a'} {origin.__name__}")


def _is_list(x: Any) -> bool:
    """Whether it has items in an order, as lists and arrays do. Texts, bytes and dicts are none."""
    has_items = hasattr(x, "__len__") and hasattr(x, "__getitem__") and getattr(x, "ndim", 1) > 0
    return has_items and not isinstance(x, (str, bytes, Mapping))


def _list_of(item: Kind) -> Kind:
    _, _, one = item.wants.partition(" ")
    wants = "a list" if " " in one or not one else f"a list of {one}s"
    return Kind(wants, lambda x: _is_list(x) and all(item.takes(each) for each in x))


def shown(x: Any) -> str:
    """A value in a message: short ones as they are written, others by their type."""
    is_short = x is None or isinstance(x, (bool, int, float, str, bytes)) or isinstance(x, (list, tuple, dict))
    is_huge = isinstance(x, int) and x.bit_length() > 256  # Python prints no more than 4300 digits
    text = repr(x) if is_short and not is_huge and (not hasattr(x, "__len__") or len(x) <= 60) else ""
    return text if 0 < len(text) <= 80 else f"of type {type(x).__name__}"
