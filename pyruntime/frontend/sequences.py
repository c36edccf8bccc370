"""Compile-time values that are not tensors: sequences and empty optionals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.ir.dtype import DType
from pyruntime.ir.kernel import Tensor


@dataclass(frozen=True, slots=True)
class SequenceValue:
    """A sequence of values of known length. An optional is represented by its item, or by `NOTHING`."""

    items: tuple[Any, ...]
    dtype: DType | None = None


class Nothing:
    """An empty optional."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in a value, in order."""
    if isinstance(value, Tensor):
        return [value]
    return [t for i in value.items for t in tensors_of(i)] if isinstance(value, SequenceValue) else []
