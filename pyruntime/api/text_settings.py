"""The settings with which texts are written, and what was written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.runtime.writing import Format, Numbers, Sampling, Text, refused_number

WHOLE = ("top_k", "num_beams")
LEAST = {"num_beams": 1, "length_penalty": -100}


@dataclass(slots=True)
class Generated:
    """What was written.

    text: without the prompt; "" without a tokenizer
    reason: why it ended: "length" (max_tokens), "token" (one of stop_tokens), "text" (one of stop) or "format" (the
        text has the format; with another reason it may be unfinished)
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


def sampling(settings: dict[str, Any]) -> Sampling:
    known = [field.name for field in fields(Sampling)]
    for name, value in settings.items():
        if name not in known:
            there = ", ".join(["max_tokens", "stop", "seed", "inputs", "format", *known])
            raise InvalidInput(f'the setting "{name}" does not exist', hint=f"there are {there}")
        if name != "early_stopping":
            check_number(name, value, name in WHOLE, LEAST.get(name, 0))
        elif not isinstance(value, bool):
            raise InvalidInput(f"early_stopping is {value!r}", hint="True or False")
    found = Sampling(**settings)
    if found.repetition_penalty == 0:
        raise InvalidInput("repetition_penalty is 0", hint="1 changes nothing, 1.1 avoids repetition")
    return found


def check_number(name: str, value: Any, is_whole: bool, least: int = 0) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if expected := refused_number(float(value) if is_number else math.nan, is_whole, least):
        raise InvalidInput(f"{name} is {value!r}", hint=f"{expected}")
