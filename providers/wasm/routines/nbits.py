"""The routine "matmul_nbits": constant weights of 4 or 8 bits stay packed and become floats block by block, and so do
large matrices of float16."""

from __future__ import annotations

from typing import Any

from pyruntime.codegen.block_epilogue import Groups, takes_epilogue
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F16, F32, I32, U8, U16
from pyruntime.ir.expr import Expr, bitcast, cast, const, dim, guard, index
from pyruntime.ir.kernel import Alias, Call, Kernel, Leaf, Map, Tensor

from ..schedules import gemm
from ..schedules.dequantize import GROUP, groups_bytes
from ..schedules.register_tile import PANEL
from .base import WasmRoutine, arithmetic, call_epilogue, made_map, own_words, scratch, widened
from .integers import are_weights

LARGE = 1 << 16  # elements; smaller ones become float32
COLUMNS = 128  # of a block: its panels (128 x 384 floats, 192 kB) are written and read once per block of rows


class MatmulNBits(WasmRoutine):
    def prepare(self, call: Call) -> list[Kernel]:
        a, codes, steps, _ = call.args
        if a is None or codes is None or steps is None or call.out.dtype is not F32 or call.attrs["bits"] not in (4, 8):
            return []
        if not all(_is_weight(t) for t in call.args[1:] if t is not None) or call.attrs["block_size"] % GROUP:
            return []
        made = widened(call, (0,))
        packed = [_packed_codes(call, codes), _packed_steps(call, codes, steps)]
        call.args = (call.args[0], packed[0].out, packed[1].out)
        call.attrs = {**call.attrs, "ready": True}
        return [*made, *packed]

    def claims(self, call: Call) -> bool:
        return bool(call.attrs.get("ready")) and all(t is not None and t.dtype is F32 for t in (call.args[0], call.out))

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        if order != tuple(range(out.rank)) or out.dtype is not F32:
            return False
        return takes_epilogue(out, epilogue, _groups(out.rank))

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        a, codes, steps = call.args
        assert a is not None and codes is not None and steps is not None
        k, n, c = call.attrs["K"], call.attrs["N"], call.out
        kind = f"nbits{call.attrs['bits']}"
        m = sh.size(a.shape[:-1])
        done = call_epilogue(writer, call, _groups(c.rank), own_words(gemm, 2, more=1))
        mc, nc, kc = sh.clamp(m, 1, 192), COLUMNS, min(-(-k // GROUP) * GROUP, 384)
        own = scratch(gemm.scratch_bytes(nc, kc) * writer.threads)
        words = [m, n, k, 1, k, call.attrs["block_size"], n, 0, 0, 0, mc, nc, kc, 1, 0, 0, 0, 0, 0, *done.params]
        extra, sums = 1 + len(done.tensors), arithmetic(writer, call)

        def make(name: str) -> Any:
            return gemm.matmul(writer.module, name, kind, arithmetic=sums, epilogue=done.epilogue, extra=extra)

        key = ("matmul", kind, sums, done.epilogue.block_key(), extra)
        f = writer.function(key, make, f"matmul_{kind}")
        tensors = [a, codes, c, done.bias or c, own, steps, *done.tensors]
        return [Invocation(f.name, tensors, words, gemm.units(m, n, 1, mc, nc), call.node, [own])]


def prepare_halves(call: Call) -> list[Kernel]:
    """A product by a large constant matrix of float16 as one of codes of 16 bits: it takes the memory that it has in
    the file, not twice as much."""
    a, b = call.args
    if a is None or b is None or b.dtype is not F16 or b.rank != 2 or not are_weights(b):
        return []
    k, n = b.shape
    if not isinstance(k, int) or not isinstance(n, int) or k * n < LARGE:
        return []
    made = widened(call, (0,))
    row, column = index(1), index(0) * PANEL + index(2)
    bits = guard((row < k) & (column < n), bitcast(b.at(row, column), U16), const(0, U16))
    codes = made_map((sh.ceildiv(n, PANEL), -(-k // GROUP) * GROUP, PANEL), bits, call.node)
    call.routine, call.args = "matmul_nbits", (call.args[0], codes.out, codes.out)
    call.attrs = {"bits": 16, "block_size": -(-k // GROUP) * GROUP, "K": k, "N": n, "ready": True}
    return [*made, codes]


def _groups(rank: int) -> Groups:
    return (), (), tuple(range(rank - 1)), (rank - 1,)


def _is_weight(t: Tensor) -> bool:
    while isinstance(t.kernel, Alias):
        t = t.kernel.base
    return isinstance(t.kernel, Leaf) and t.kernel.kind in ("weight", "constant")


def _packed_codes(call: Call, codes: Tensor) -> Map:
    """[panel][group of four k][byte], see dequantize.py."""
    bits, size, n = call.attrs["bits"], call.attrs["block_size"], call.attrs["N"]
    blocks = codes.shape[1]
    panel, group, byte = index(0), index(1), index(2)
    column, row = panel * PANEL + (byte & (PANEL - 1)), group * GROUP + (byte >> 3)

    def code(k: Expr) -> Expr:
        place = k & (size - 1)
        found = cast(codes.at(column, k / size, place * bits / 8), I32)
        found = found if bits == 8 else (found >> ((place & 1) * 4)) & 15
        return guard((column < dim(n)) & (k < dim(blocks * size)), found, const(0, I32))

    e = code(row) if bits == 8 else code(row) | (code(row + 2) << 4)
    shape = (sh.ceildiv(n, PANEL), sh.ceildiv(call.attrs["K"], GROUP), groups_bytes(bits))
    return made_map(shape, cast(e, U8), call.node)


def _packed_steps(call: Call, codes: Tensor, steps: Tensor) -> Map:
    """[panel][block][scale, added][column]."""
    bits, zeros = call.attrs["bits"], call.args[3]
    panel, block, which, lane = (index(n) for n in range(4))
    column = panel * PANEL + lane
    scale = cast(steps.at(column, block), F32)
    zero: Expr = const(float(1 << (bits - 1)))
    if zeros is not None and zeros.dtype is U8:
        found = cast(zeros.at(column, block * bits / 8), I32)
        zero = cast(found if bits == 8 else (found >> ((block & 1) * 4)) & 15, F32)
    elif zeros is not None:
        zero = cast(zeros.at(column, block), F32)
    e = guard(column < dim(call.attrs["N"]), guard(which < 1, scale, -zero * scale), const(0.0))
    return made_map((sh.ceildiv(call.attrs["N"], PANEL), codes.shape[1], 2, PANEL), e, call.node)


__all__ = ["MatmulNBits", "prepare_halves"]
