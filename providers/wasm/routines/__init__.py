"""Hand-scheduled routines by name. Each is a `codegen.provider.Routine` with `emit(writer, call)`."""

from __future__ import annotations

from typing import Any

from .base import WasmRoutine
from .conv import Conv
from .conv_transpose import ConvTranspose, PhaseInterleave
from .matmul import Matmul, PackB
from .matmul_nbits import MatmulNBits


class _OfTraining:
    """A routine of backward passes: its module is imported when a kernel first calls it, so that sessions that only run
    models do not load it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        from . import gradients

        return getattr(gradients.ROUTINES[self._name], method)


def routines(dots: str) -> dict[str, WasmRoutine | Any]:
    """dots: the kind of the host's 8-bit dot products (byte_products.py), "" if it has none."""
    return {
        "matmul": Matmul(dots),
        "pack_b": PackB(),
        "conv": Conv(dots),
        "conv_transpose": ConvTranspose(),
        "phase_interleave": PhaseInterleave(),
        "matmul_nbits": MatmulNBits(),
        "conv_filters": _OfTraining("conv_filters"),
        "matmul_nbits_gradient": _OfTraining("matmul_nbits_gradient"),
        "max_pool_gradient": _OfTraining("max_pool_gradient"),
    }
