"""Hand-scheduled routines by name: each a `codegen.provider.Routine` with `emit(writer, call)` for invocations."""

from __future__ import annotations

from .base import WasmRoutine
from .conv import Conv
from .matmul import Matmul, PackB
from .nbits import MatmulNBits
from .transposed import ConvTranspose

ROUTINES: dict[str, WasmRoutine] = {
    "matmul": Matmul(),
    "pack_b": PackB(),
    "conv": Conv(),
    "conv_transpose": ConvTranspose(),
    "matmul_nbits": MatmulNBits(),
}

__all__ = ["ROUTINES"]
