"""Values at compile time that are not tensors: sequences, and optionals that hold nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.ir.dtype import DType
from pyruntime.ir.kernel import Tensor


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


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a value in order."""
    if isinstance(value, Tensor):
        return [value]
    return [t for i in value.items for t in tensors_of(i)] if isinstance(value, SequenceValue) else []


__all__ = ["NOTHING", "Nothing", "SequenceValue", "tensors_of"]
