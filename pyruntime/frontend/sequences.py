"""Values at compile time that are not tensors: sequences, and optionals that hold nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.ir.dtype import DType


@dataclass(frozen=True, slots=True)
class SequenceValue:
    """A sequence at compile time: its length is known, its items are values. An optional is its item, or `NOTHING`."""

    items: tuple[Any, ...]
    dtype: DType | None = None


class Nothing:
    """An empty optional."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()

__all__ = ["NOTHING", "Nothing", "SequenceValue"]
