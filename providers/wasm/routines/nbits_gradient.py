"""The routine "matmul_nbits_gradient": the gradient of a product by quantised weights towards its input, g · W. It
reads the packed codes of the forward product, so that codes are in memory once."""

from __future__ import annotations

from typing import Any

from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Call, Kernel

from ..schedules import gemm
from ..schedules.layouts import TransposedCodes
from ..schedules.register_tile import PANEL
from .gemm_calls import product_call
from .matmul_nbits import COLUMNS, LONGEST, MatmulNBits, groups


class NBitsGradient(MatmulNBits):
    def prepare(self, call: Call) -> list[Kernel]:
        return super().prepare(call) if call.attrs["block_size"] % PANEL == 0 else []

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        g, codes, steps = (call.operand(n) for n in range(3))
        n, k, size = call.attrs["K"], call.attrs["N"], call.attrs["block_size"]
        m = sh.size(g.shape[:-1])
        params = gemm.Params(
            m=m, n=n, k=k, batch=1, lda=k, ldb=size, ldc=n, stride_a=0, stride_b=0, stride_c=0,
            mc=sh.clamp(m, 1, 192), nc=COLUMNS, kc=min(-(-k // PANEL) * PANEL, LONGEST),
        )  # fmt: skip
        layout = TransposedCodes(call.plan)
        return [product_call(writer, call, layout, groups(call.out.rank), [g, codes, steps], params)]
