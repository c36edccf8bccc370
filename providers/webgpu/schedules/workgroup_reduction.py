"""Reductions with one workgroup for each output: each invocation reduces a share, then the shares are combined.

With subgroups, each subgroup combines its shares, and one invocation combines their results. Otherwise pairs of shares
are combined in workgroup memory. Subgroup max and min may ignore NaN, so that NaN is tested separately.

Spec: https://www.w3.org/TR/WGSL/#subgroup-builtin-functions
"""

from __future__ import annotations

from pyruntime.codegen.loop_ir import LoopCode
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, binary, const
from pyruntime.ir.kernel import Accum, For, Let, Reduce, Stmt, Store
from pyruntime.ir.reference import COMBINE

from ..adapter import Adapter
from ..printer.loops import GROUP, Printer, Shader, prepared
from ..printer.storage import register

_OF_SUBGROUP = {"sum": "Add", "prod": "Mul", "max": "Max", "min": "Min", "any": "Any", "all": "All"}
_BUILTINS = ("subgroup_id", "num_subgroups", "subgroup_invocation_id")


def cooperates(kernel: Reduce, adapter: Adapter) -> bool:
    """Whether a workgroup should share an output: there are many elements for few outputs.

    On software adapters sharing costs more than it saves, as long as one invocation may do all iterations (float32
    sums; one invocation, a workgroup by halves, by subgroups): 1 x 32768 in 100, 76 and 73 us on llvmpipe, 8 x 4096 in
    82, 137 and 113, 64 x 16384 in 1.5, 3.6 and 3.5 ms, 4096 x 256 in 2.0, 7.2 and 2.8; SwiftShader takes 0.8, 31 and 17
    ms for 1024 x 256. On GPUs more invocations fill the machine; not measured yet."""
    if kernel.op.startswith("arg"):
        return False
    count, outputs = sh.estimate(sh.size(kernel.extents)), sh.estimate(sh.size(kernel.out.shape))
    if adapter.software:
        return count > 32768 or (count >= 4096 and outputs <= 8)
    return count >= 128 and outputs <= 65536


def print_reduction(code: LoopCode, adapter: Adapter) -> Shader | None:
    """The shader of a lowered reduction, or None if it is not a plain nest of loops around one accumulation."""
    return _Reduction(prepared(code), adapter).reduction()


class Combining(Printer):
    """Prints loops whose iterations the invocations share, and the combination of their accumulators."""

    def __init__(self, code: LoopCode, adapter: Adapter) -> None:
        super().__init__(code, False, adapter.f16)
        self.builtins = _BUILTINS if adapter.subgroups else ()

    def shared(self, loops: list[For], inner: list[Stmt]) -> None:
        """Print one loop over the iterations of all these loops; each invocation executes a share of them."""
        lines = self.lines
        total: Expr = const(1, I32)
        for s in loops:
            total = binary("mul", total, s.extent)
        lines.add(f"let total = {self.values.root(total)[0]};")
        lines.open(f"for (var share = i32(lane); share < total; share += {GROUP})")
        self._decode(loops)
        self.block(inner)
        lines.close()

    def combined(self, accum: Accum) -> None:
        """Print the combination, and open a block for one invocation with the result in the accumulator."""
        if self.builtins:
            self._by_subgroups(accum)
        else:
            self._by_halves(accum)

    def memory(self, accum: Accum) -> str:
        """The declarations that `combined` needs."""
        return f"var<workgroup> shares: array<{register(accum.value.dtype)}, {GROUP}>;\n"

    def _by_halves(self, accum: Accum) -> None:
        lines, acc = self.lines, f"v{accum.var}"
        lines.add(f"shares[lane] = {acc};")
        lines.add("workgroupBarrier();")
        lines.open(f"for (var half = {GROUP // 2}u; half > 0u; half = half >> 1u)")
        lines.open("if (lane < half)")
        lines.add(f"shares[lane] = {self._pair(accum, 'shares[lane]', 'shares[lane + half]')};")
        lines.close()
        lines.add("workgroupBarrier();")
        lines.close()
        lines.open("if (lane == 0u)")
        lines.add(f"{acc} = shares[0];")

    def _by_subgroups(self, accum: Accum) -> None:
        """Combine by subgroups of any size."""
        lines, acc = self.lines, f"v{accum.var}"
        lines.add(f"let whole = subgroup{_OF_SUBGROUP[accum.op]}({acc});")
        found = "whole"
        if accum.op in ("max", "min") and register(accum.value.dtype) == "f32":
            lines.add(f"let nan = subgroupAny({self.values.call('is_nan', acc)});")
            found = f"select(whole, {self.values.call('of_bits', '0x7fc00000u')}, nan)"
        lines.add(f"if (subgroup_invocation_id == 0u) {{ shares[subgroup_id] = {found}; }}")
        lines.add("workgroupBarrier();")
        lines.open("if (lane == 0u)")
        lines.add(f"{acc} = shares[0];")
        lines.open("for (var n = 1u; n < num_subgroups; n++)")
        lines.add(f"{acc} = {self._pair(accum, acc, 'shares[n]')};")
        lines.close()

    def _pair(self, accum: Accum, x: str, y: str) -> str:
        self.values.names |= {-1: x, -2: y}
        a, b = (Expr("var", (), accum.value.dtype, n) for n in (-1, -2))
        return self.values.root(binary(COMBINE[accum.op], a, b))[0]

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


class _Reduction(Combining):
    def reduction(self) -> Shader | None:
        outer = self.outer
        places = [n for n, s in enumerate(outer.body) if isinstance(s, For)]
        if len(places) != 1 or not isinstance(outer.body[-1], Store):
            return None
        before, nest = outer.body[: places[0]], outer.body[places[0]]
        assert isinstance(nest, For)
        loops, inner = flat(nest)
        accums = [s for s in inner if isinstance(s, Accum)]
        if len(accums) != 1 or not all(isinstance(s, (Let, Accum)) for s in inner):
            return None
        self._print(before, loops, inner, accums[0], outer.body[places[0] + 1 :])
        return self.finish(1, self.memory(accums[0]), bool(self.builtins))

    def _print(self, before: list[Stmt], loops: list[For], inner: list[Stmt], accum: Accum, after: list[Stmt]) -> None:
        self.begin("i32(first)", self.builtins)
        self.block(before)
        self.shared(loops, inner)
        self.combined(accum)
        self.block(after)
        self.lines.close()


def flat(nest: For) -> tuple[list[For], list[Stmt]]:
    """The loops of a perfect nest, and the body of the innermost one."""
    loops, inner = [nest], []
    body = nest.body
    while body and isinstance(body[-1], For):
        inner += body[:-1]
        loops.append(body[-1])
        body = body[-1].body
    return loops, inner + list(body)
