"""The routines of backward passes by name."""

from __future__ import annotations

from .base import WasmRoutine
from .conv_filters import ConvFilters
from .nbits_gradient import NBitsGradient
from .pool_gradient import MaxPoolGradient

ROUTINES: dict[str, WasmRoutine] = {
    "conv_filters": ConvFilters(), "matmul_nbits_gradient": NBitsGradient(), "max_pool_gradient": MaxPoolGradient(),
}  # fmt: skip
