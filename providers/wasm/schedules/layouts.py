"""How the right operand B of a product lies in memory. `name` is part of the names of functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .weight_codes import WeightCodes


@dataclass(frozen=True, slots=True)
class Packed:
    """Panels [ceil(N / 8)][K][8], written by `gemm.pack_b` once for weights."""

    name: ClassVar[str] = "panels"


@dataclass(frozen=True, slots=True)
class Dense:
    """A matrix [K][N] with n contiguous or, `transposed`, [N][K] with k contiguous; of float32 or, `half`, float16."""

    transposed: bool = False
    half: bool = False

    @property
    def name(self) -> str:
        return ("cols" if self.transposed else "rows") + "16" * self.half

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 2 if self.half else 4


@dataclass(frozen=True, slots=True)
class TransposedCodes:
    """The transpose of a matrix of codes, for gradients (pack_transposed.py)."""

    codes: WeightCodes

    @property
    def name(self) -> str:
        return f"{self.codes.name}t"


Layout = Packed | Dense | WeightCodes | TransposedCodes
