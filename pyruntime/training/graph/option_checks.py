"""Checks of options of training. Errors: InvalidInput names the option."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from pyruntime.errors import InvalidInput


def check_names(what: str, value: Mapping[str, Any], known: Any) -> None:
    for name in value:
        if name not in known:
            raise InvalidInput(f'there is no {what} "{name}"', hint=f"known: {', '.join(sorted(known))}")


def single(what: str, value: Any) -> tuple[str, Any]:
    if not isinstance(value, Mapping) or len(value) != 1:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a name, or {name: settings}")
    return next(iter(value.items()))


def number(what: str, value: Any) -> float:
    number = value if isinstance(value, (int, float)) or not hasattr(value, "__float__") else float(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not isfinite(number):
        raise InvalidInput(f"{what} cannot be {value!r}", hint="give a number")
    return number


def not_negative(what: str, value: Any) -> float:
    """Errors: InvalidInput for what is no finite number from 0 on"""
    if number(what, value) < 0:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a number from 0 on")
    return float(value)


def limit(what: str, value: Any) -> float:
    if number(what, value) <= 0:
        raise InvalidInput(f"{what} cannot be {value!r}", hint="a number above 0")
    return float(value)


def patterns(what: str, value: Any) -> tuple[str, ...] | None:
    """Names or patterns. Errors: InvalidInput"""
    if value is None:
        return None
    found = (value,) if isinstance(value, str) else tuple(value) if hasattr(value, "__iter__") else (value,)
    if not all(isinstance(p, str) for p in found):
        raise InvalidInput(f"{what} cannot be {value!r}", hint='names or patterns such as "head.*"')
    return found
