"""Compiles serialised dims to functions of the symbols' values, once for each Program. Twin of web/common/dims.js."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

Env = dict[str, int]  # values of symbols
Evaluate = Callable[[Mapping[str, int]], int]


def source(d: Any) -> str:
    """A dim as the source of a Python expression over the mapping `s`. Names are quoted, so that none can inject
    code."""
    if isinstance(d, int):
        return str(d)
    if isinstance(d, str):
        return f"s[{d!r}]"
    op, *args = d
    parts = [source(a) for a in args]
    if op in "+*":
        return "(" + op.join(parts) + ")"
    if op == "select":
        return f"({parts[1]} if {parts[0]} else {parts[2]})"
    if op == "floordiv":
        return f"_floordiv({parts[0]}, {parts[1]})"
    if op in ("max", "min"):
        return f"{op}({', '.join(parts)})"
    return f"int({parts[0]} {_COMPARE[op]} {parts[1]})"


def symbols(d: Any) -> set[str]:
    """The symbols in a serialised dim, by the Program's names."""
    if isinstance(d, list):
        return set().union(*[symbols(x) for x in d[1:]])
    return {d} if isinstance(d, str) else set()


_COMPARE = {"lt": "<", "le": "<=", "eq": "=="}


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def compile_dims(dims: Sequence[Any]) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """A function from the symbols' values to the values of all these dims. Equal dims are computed once."""
    found, places = distinct_dims(dims)
    if len(set(places)) == len(places):
        return found
    every = itemgetter(*places)
    return lambda s: every(found(s))


def distinct_dims(dims: Sequence[Any]) -> tuple[Callable[[Mapping[str, int]], tuple[int, ...]], list[int]]:
    """A function from the symbols' values to the values of the distinct dims, and the position of each dim among
    these."""
    texts = [source(d) for d in dims]
    places = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    found = eval(f"lambda s: ({''.join(f'{text},' for text in places)})", {"_floordiv": _floordiv})
    return found, [places[text] for text in texts]


def compile_dim(d: Any) -> Evaluate:
    return itemgetter(d) if isinstance(d, str) else _cached(json.dumps(d))


@lru_cache(maxsize=65536)
def _cached(text: str) -> Evaluate:
    return eval(f"lambda s: {source(json.loads(text))}", {"_floordiv": _floordiv})
