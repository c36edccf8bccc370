"""Values of graph outputs: a tensor, a sequence of values, or nothing."""

from __future__ import annotations

from typing import Any

from pyruntime.ir.kernel import Tensor


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a value in order."""
    if isinstance(value, Tensor):
        return [value]
    return [t for i in value.items for t in tensors_of(i)] if hasattr(value, "items") else []


__all__ = ["tensors_of"]
