"""Hand-scheduled routines by name. Each is a `codegen.provider.Routine` with `emit(writer, call)`."""

from __future__ import annotations

from .base import WasmRoutine
from .conv import Conv
from .conv_filters import ConvFilters
from .conv_transpose import ConvTranspose, PhaseInterleave
from .matmul import Matmul, PackB
from .matmul_nbits import MatmulNBits
from .pool_gradient import MaxPoolGradient


def routines(dots: str) -> dict[str, WasmRoutine]:
    """dots: the kind of the host's 8-bit dot products (byte_products.py), "" if it has none."""
    return {
        "matmul": Matmul(dots),
        "pack_b": PackB(),
        "conv": Conv(dots),
        "conv_filters": ConvFilters(),
        "conv_transpose": ConvTranspose(),
        "phase_interleave": PhaseInterleave(),
        "matmul_nbits": MatmulNBits(),
        "max_pool_gradient": MaxPoolGradient(),
    }
