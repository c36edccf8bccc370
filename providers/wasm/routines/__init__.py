"""Hand-scheduled routines by name: each a `codegen.provider.Routine` with `emit(writer, call)` for invocations."""

from __future__ import annotations

from .base import WasmRoutine
from .conv import Conv
from .matmul import Matmul, PackB
from .nbits import MatmulNBits
from .transposed import ConvTranspose


def routines(dots: str) -> dict[str, WasmRoutine]:
    """For a host with these 8-bit dot products (quads.py), or without any ("")."""
    return {
        "matmul": Matmul(dots),
        "pack_b": PackB(),
        "conv": Conv(dots),
        "conv_transpose": ConvTranspose(),
        "matmul_nbits": MatmulNBits(),
    }


__all__ = ["routines"]
