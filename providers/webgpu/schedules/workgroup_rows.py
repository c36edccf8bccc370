"""Procedures of rows (`row_fusion`) with one workgroup per row: its invocations share each pass over the row.

Each pass divides the row in the same way, so an invocation reads only those elements of the row that it wrote itself.
"""

from __future__ import annotations

import math

from pyruntime.codegen.loop_ir import LoopCode
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Accum, For, Loops, Stmt
from pyruntime.ir.statements import statements

from ..adapter import Adapter
from ..printer.loops import Shader, prepared
from .workgroup_reduction import Combining, flat

SHORT = 32  # elements; one invocation runs a shorter row; not measured on a GPU yet


def cooperates(kernel: Loops, adapter: Adapter) -> bool:
    """Whether a workgroup shares a row. On software adapters the rule is that of reductions
    (workgroup_reduction.py)."""
    (rows,) = kernel.body
    assert isinstance(rows, For)
    length = max(_length(s) for s in rows.body if isinstance(s, For))
    if adapter.software:
        return length >= 4096 and sh.estimate(rows.extent.value) <= 8
    return length >= SHORT


def _length(nest: For) -> float:
    return math.prod(sh.estimate(s.extent.value) for s in flat(nest)[0])


def print_rows(code: LoopCode, adapter: Adapter) -> Shader:
    return _Rows(prepared(code), adapter).rows()


class _Rows(Combining):
    def rows(self) -> Shader:
        self.begin("i32(first)", self.builtins)
        self.block(self.outer.body)
        accum = next(s for s in statements(self.outer.body) if isinstance(s, Accum))
        return self.finish(1, self.memory(accum), bool(self.builtins))

    def statement(self, s: Stmt) -> None:
        """Invocations share passes over the row. All of them execute the other statements alike."""
        if not isinstance(s, For):
            super().statement(s)
            return
        lines = self.lines
        loops, inner = flat(s)
        lines.open("")
        self.shared(loops, inner)
        for accum in inner:
            if isinstance(accum, Accum):
                self.combined(accum)
                lines.add(f"shares[0] = v{accum.var};")
                lines.close()
                lines.add("workgroupBarrier();")
                lines.add(f"v{accum.var} = shares[0];")
                lines.add("workgroupBarrier();")  # before the next pass writes there
        lines.close()
