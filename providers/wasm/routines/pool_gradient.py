"""The routine "max_pool_gradient", for windows of 2x2 that do not overlap."""

from __future__ import annotations

from typing import Any

from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Call

from ..schedules import pool_gradient
from .base import fused_epilogue
from .conv import PlaneRoutine, conv_groups


class MaxPoolGradient(PlaneRoutine):
    """args: x (N, C, H, W), g (N, C, H / 2, W / 2)"""

    def claims(self, call: Call) -> bool:
        if not super().claims(call) or call.attrs["kernel"] != (2, 2) or call.attrs["strides"] != (2, 2):
            return False
        if any(d != 1 for d in call.attrs["dilations"]) or any(p != 0 for p in call.attrs["pads"]):
            return False
        extents = zip(call.operand(0).shape[2:], call.operand(1).shape[2:], strict=True)
        return all(sh.compare("eq", sh.floordiv(d, 2), o) == 1 for d, o in extents)

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        x, g = call.operand(0), call.operand(1)
        n, c, h, w = x.shape
        params = pool_gradient.Params(h=h, w=w, oh=g.shape[2], ow=g.shape[3], channels=c)
        fused = fused_epilogue(writer, call, conv_groups(4), pool_gradient.ARGUMENTS, registers=False)
        buffers = pool_gradient.Buffers(x, g, fused.out)
        return [fused.invocation(pool_gradient.into_largest, ("max_pool",), buffers, params, n * c)]
