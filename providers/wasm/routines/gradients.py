"""The routines of backward passes by name."""

from __future__ import annotations

from .base import WasmRoutine
from .conv_filters import ConvFilters
from .pool_gradient import MaxPoolGradient

ROUTINES: dict[str, WasmRoutine] = {"conv_filters": ConvFilters(), "max_pool_gradient": MaxPoolGradient()}
