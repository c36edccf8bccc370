"""The settings with which texts are written, and what was written."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from pyruntime.arguments import shown
from pyruntime.errors import InvalidInput
from pyruntime.runtime.writing import MOST, WHOLE, Format, Numbers, Sampling, Text, refused_number


@dataclass(slots=True)
class Generated:
    """What was written.

    text: without the prompt; "" without a tokenizer
    reason: why it ended: "length" (max_tokens, or the model can read no more), "token" (one of stop_tokens), "text"
        (one of stop) or "format" (the text has the format; with another reason it may be unfinished)
    reused: tokens of the prompt that were in the cache
    first, seconds: until the first token, and in all
    drafted, accepted: tokens of the draft model, and those that the model agreed with
    """

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    reason: str = "length"
    reused: int = 0
    first: float = 0.0
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0


@dataclass(slots=True)
class Settings:
    """Texts that one call writes. most: tokens of each; form: begins what they may be; inputs: of the model

    format: as it was given"""

    texts: list[Text]
    how: Sampling
    numbers: Numbers
    most: int
    form: Callable[[], Format | None] = lambda: None
    inputs: Mapping[str, Any] | None = None
    format: Any = None


def row_of(inputs: Mapping[str, Any] | None, row: int, rows: int) -> Mapping[str, Any] | None:
    """The inputs of one of several texts: a row of those that have a row for each, and others whole."""
    if inputs is None or rows == 1:
        return inputs
    return {name: x[row : row + 1] if np.shape(x)[:1] == (rows,) else x for name, x in inputs.items()}


def generated(text: Text) -> Generated:
    return Generated(
        list(text.tokens), text.text, text.reason, text.reused, text.first, text.elapsed, text.drafted, text.accepted
    )


def sampling(settings: Mapping[str, Any]) -> Sampling:
    known = [field.name for field in fields(Sampling)]
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in known:
            there = ", ".join(["max_tokens", "stop", "seed", "inputs", "format", *known])
            raise InvalidInput(f'the setting "{name}" does not exist', hint=f"there are {there}")
        if name == "early_stopping" and not isinstance(value, bool):
            raise InvalidInput(f"early_stopping is {shown(value)}", hint="True or False")
        found[name] = value if name == "early_stopping" else number(name, value)
    return Sampling(**found)


def number(name: str, value: Any) -> Any:
    """The value of a setting: an int if it must be whole, else a float. Errors: InvalidInput"""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    try:
        x = float(value) if is_number else math.nan
    except OverflowError:  # an int
        x = value = math.inf
    if expected := refused_number(name, x):
        raise InvalidInput(f"{name} is {shown(value)}", hint=expected)
    return int(x) if name in WHOLE else x


def numbers(seed: Any) -> Numbers:
    """The random numbers of a seed, of any if it is None. Errors: InvalidInput"""
    if seed is not None and (not isinstance(seed, Integral) or isinstance(seed, bool)):
        raise InvalidInput(f"seed is {shown(seed)}", hint="an integer is expected")
    return Numbers(secrets.randbits(31) if seed is None else int(seed))


def token_list(name: str, given: Any) -> list[int]:
    """Tokens that a caller gives. Errors: InvalidInput"""
    is_list = np.ndim(given) > 0 if isinstance(given, np.ndarray) else isinstance(given, Iterable)
    is_list = is_list and not isinstance(given, (str, bytes, bytearray, Mapping, Set))
    tokens = list(given) if is_list else []
    if not is_list or any(not isinstance(token, Integral) or isinstance(token, bool) for token in tokens):
        raise InvalidInput(f"{name} is {type(given).__name__}", hint="a text or a list of tokens is expected")
    if strange := [int(token) for token in tokens if not 0 <= token <= MOST]:
        raise InvalidInput(f"{name} has the token {min(max(strange), MOST + 1)}", hint=f"tokens are from 0 to {MOST}")
    return [int(token) for token in tokens]
