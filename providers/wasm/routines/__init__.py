"""Hand-scheduled routines by name: `pyruntime.provider.Routine`, and `emit(builder, call)`, which gives the invocations."""

from __future__ import annotations

from .base import Schedule
from .conv import Conv
from .matmul import Matmul, PackB

ROUTINES: dict[str, Schedule] = {"matmul": Matmul(), "pack_b": PackB(), "conv": Conv()}

__all__ = ["ROUTINES"]
