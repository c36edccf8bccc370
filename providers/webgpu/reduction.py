"""Reductions with one workgroup per output: each invocation reduces a share, then they combine in workgroup memory."""

from __future__ import annotations

from pyruntime import shape as sh
from pyruntime.dtype import I32
from pyruntime.expr import Expr, binary, const
from pyruntime.kernel import Accum, For, Let, Reduce, Stmt, Store
from pyruntime.loopcode import LoopCode

from .adapter import Adapter
from .layout import register
from .printer import COMBINE, GROUP, Printer, Shader, entry, prepared, word


def cooperates(kernel: Reduce, adapter: Adapter) -> bool:
    """Whether a workgroup shares an output: many elements for few outputs.

    On llvmpipe a share costs more than it gives while one invocation may do it all (float32 sums, 2 busy cores, one
    invocation -> one workgroup per output): 3 x 5000 in 0.51 -> 0.27 ms, 64 x 16384 in 1.6 -> 5.8 ms, 4096 x 256 in
    3.4 -> 13 ms. On GPUs the invocations are what fills the machine; not measured yet.
    """
    if kernel.op.startswith("arg"):
        return False
    count, outputs = sh.estimate(sh.size(kernel.extents)), sh.estimate(sh.size(kernel.out.shape))
    if adapter.software:
        return count > 32768 or (count >= 4096 and outputs <= 8)
    return count >= 128 and outputs <= 65536


def print_reduction(code: LoopCode, f16: bool) -> Shader | None:
    """The shader of a lowered reduction, or None if it is not a plain nest of loops around one accumulation."""
    return _Reduction(prepared(code), False, f16).reduction()


class _Reduction(Printer):
    def reduction(self) -> Shader | None:
        (outer,) = self.code.body
        assert isinstance(outer, For)
        places = [n for n, s in enumerate(outer.body) if isinstance(s, For)]
        if len(places) != 1 or not isinstance(outer.body[-1], Store):
            return None
        before, nest = outer.body[: places[0]], outer.body[places[0]]
        assert isinstance(nest, For)
        loops, inner = _flat(nest)
        accums = [s for s in inner if isinstance(s, Accum)]
        if len(accums) != 1 or not all(isinstance(s, Let | Accum) for s in inner):
            return None
        self._print(outer, before, loops, inner, accums[0], outer.body[places[0] + 1 :])
        kind = register(accums[0].value.dtype)
        return self.finish(1, f"var<workgroup> shares: array<{kind}, {GROUP}>;\n")

    def _print(
        self, outer: For, before: list[Stmt], loops: list[For], inner: list[Stmt], accum: Accum, after: list[Stmt]
    ) -> None:
        lines, values = self.lines, self.values
        entry(lines)
        self.params()
        lines.add(f"let v{outer.var} = i32(first);")
        lines.add(f"if (v{outer.var} >= {word(self.code.params)}) {{ return; }}")
        self.block(before)
        total: Expr = const(1, I32)
        for s in loops:
            total = binary("mul", total, s.extent)
        lines.add(f"let total = {values.root(total)[0]};")
        lines.open(f"for (var share = i32(lane); share < total; share += {GROUP})")
        self._decode(loops)
        self.block(inner)
        lines.close()
        acc = f"v{accum.var}"
        lines.add(f"shares[lane] = {acc};")
        lines.add("workgroupBarrier();")
        lines.open(f"for (var half = {GROUP // 2}u; half > 0u; half = half >> 1u)")
        lines.open("if (lane < half)")
        values.names |= {-1: "shares[lane]", -2: "shares[lane + half]"}
        a, b = (Expr("var", (), accum.value.dtype, n) for n in (-1, -2))
        lines.add(f"shares[lane] = {values.root(binary(COMBINE[accum.op], a, b))[0]};")
        lines.close()
        lines.add("workgroupBarrier();")
        lines.close()
        lines.open("if (lane == 0u)")
        lines.add(f"{acc} = shares[0];")
        self.block(after)
        lines.close()
        lines.text.append("}")

    def _decode(self, loops: list[For]) -> None:
        rest = "share"
        for n in range(len(loops) - 1, -1, -1):
            s = loops[n]
            if n == 0:
                self.lines.add(f"let v{s.var} = {rest};")
                return
            (extent,) = self.values.root(s.extent)
            self.lines.add(f"let v{s.var} = {rest} % {extent};")
            self.lines.add(f"let rest{n} = {rest} / {extent};")
            rest = f"rest{n}"


def _flat(nest: For) -> tuple[list[For], list[Stmt]]:
    """The loops of a nest, and what one iteration of all does."""
    loops, inner = [nest], []
    body = nest.body
    while body and isinstance(body[-1], For):
        inner += body[:-1]
        loops.append(body[-1])
        body = body[-1].body
    return loops, inner + list(body)


__all__ = ["cooperates", "print_reduction"]
