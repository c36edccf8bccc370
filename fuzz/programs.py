"""Exported programs with damaged bytes."""

from __future__ import annotations

from fuzz import suite
from fuzz.case import Case
from fuzz.draw import Draw
from fuzz.hostile import DAMAGES
from fuzz.models import small
from pyruntime import InferenceSession
from pyruntime.errors import PyRuntimeError


def case(draw: Draw) -> Case | None:
    """None if the model compiles only in its first run."""
    official = suite.load()[draw.pick(small())]
    try:
        program = InferenceSession(official.model).export(weights=True)
    except PyRuntimeError:
        return None
    how = draw.pick(DAMAGES[:-1])
    return Case("programs", how(draw, program), (official.data[0][0],), False, f"{official.name}: {how.__name__}")
