"""The routine "matmul_nbits": constant weights of few bits stay packed and become floats block by block, and so do
large matrices of float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyruntime.codegen.block_epilogue import Groups, takes_epilogue
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.blocks import is_constant
from pyruntime.ir.dtype import BOOL, F16, F32, I32, U8, U16
from pyruntime.ir.expr import Expr, bitcast, cast, const, dim, guard, index
from pyruntime.ir.kernel import Call, Kernel, Map, Reduce, Tensor
from pyruntime.ir.packed_codes import code_at
from pyruntime.ir.shape import AnyDim

from ..schedules import gemm
from ..schedules.gemv_integers import LARGEST_BLOCK, largest_row
from ..schedules.panel_order import FEW
from ..schedules.register_tile import PANEL
from ..schedules.weight_codes import GROUP, ROUND, FewBits
from .base import WasmRoutine, arithmetic, call_epilogue, made_map, own_words, scratch, widened
from .integer_products import are_weights

STORED = {bits: next(width for width in (2, 4, 8) if width >= bits) for bits in range(2, 9)}  # by bits of a code
LARGE = 1 << 16  # elements; smaller ones become float32
At = Callable[[Expr, Expr], Expr]
COLUMNS = 128  # of a block: its panels (128 x 384 floats, 192 kB) are written and read once per block of rows
FEW_PANELS = 32  # of a block of few rows, about


def digits_of(bits: int, size: int, level: int = 0) -> int:
    """Of the integers that few rows become: one where the model allows it by accuracy_level 4, else two, 0 where they
    stay floats. size: k of a block."""
    if STORED[bits] == 2 or size > LARGEST_BLOCK or size % ROUND:
        return 0
    return 1 if level == 4 else 2


class MatmulNBits(WasmRoutine):
    def prepare(self, call: Call) -> list[Kernel]:
        a, codes, steps, _ = call.args
        if a is None or codes is None or steps is None or call.out.dtype is not F32:
            return []
        if not all(is_constant(t) for t in call.args[1:] if t is not None) or call.attrs["block_size"] % GROUP:
            return []
        made = widened(call, (0,))
        few = FewBits(
            STORED[call.attrs["bits"]],
            call.args[3] is not None,
            digits_of(call.attrs["bits"], call.attrs["block_size"], call.attrs["accuracy_level"]),
        )
        packed = [_packed_codes(call, codes, few), _packed_steps(call, codes, steps)]
        call.args = (call.args[0], packed[0].out, packed[1].out)
        call.attrs = {**call.attrs, "ready": few}
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
        kind = call.attrs["ready"].kind
        m = sh.size(a.shape[:-1])
        done = call_epilogue(writer, call, _groups(c.rank), own_words(gemm, 2, more=1))
        mc, nc, kc = _blocks(m, n, k, call.attrs["block_size"], call.attrs["ready"].digits, writer.threads)
        own = scratch(gemm.scratch_bytes(nc, kc) * writer.threads)
        words = [m, n, k, 1, k, call.attrs["block_size"], n, 0, 0, 0, mc, nc, kc, 1, 0, 0, 0, 0, 0, *done.params]
        extra, sums = 1 + len(done.tensors), arithmetic(writer, call)

        def make(name: str) -> Any:
            return gemm.matmul(writer.module, name, kind, arithmetic=sums, epilogue=done.epilogue, extra=extra)

        key = ("matmul", kind, sums, done.epilogue.block_key(), extra)
        f = writer.function(key, make, f"matmul_{kind}")
        tensors = [a, codes, c, done.bias or c, own, steps, *done.tensors]
        return [Invocation(f.name, tensors, words, gemm.units(m, n, 1, mc, nc), call.node, [own])]


def _blocks(m: AnyDim, n: int, k: int, size: int, digits: int, threads: int) -> tuple[AnyDim, AnyDim, AnyDim]:
    """(mc, nc, kc) as of `gemm.blocks`. Where rows are few there are as many blocks for each thread, and scratch, which
    has no panels then, holds the rows' records."""
    kc = min(-(-k // GROUP) * GROUP, 384)
    panels = -(-n // PANEL)
    few = PANEL * -(-panels // (threads * max(1, panels // (FEW_PANELS * threads))))
    records = -(-FEW * largest_row(k, size, digits) // (4 * few)) if digits else 1
    rare = sh.compare("le", m, FEW)
    return sh.clamp(m, 1, 192), sh.select(rare, few, COLUMNS), sh.select(rare, records, kc)


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
    rows = -(-k // ROUND) * ROUND
    codes = made_map((sh.ceildiv(n, PANEL), rows, PANEL), bits, call.node)
    exponent = cast(codes.out.at(*[index(n) for n in (1, 2, 3)]), I32) & 0x7C00
    special = Reduce("any", codes.out.shape, exponent == 0x7C00)
    special.node, special.outputs = call.node, (Tensor((1,), BOOL, special),)
    call.routine, call.args = "matmul_nbits", (call.args[0], codes.out, special.out)
    call.attrs = {"block_size": rows, "K": k, "N": n, "ready": FewBits(16)}
    return [*made, codes, special]


def _groups(rank: int) -> Groups:
    return (), (), tuple(range(rank - 1)), (rank - 1,)


def _packed_codes(call: Call, codes: Tensor, few: FewBits) -> Map:
    bits, size = call.attrs["bits"], call.attrs["block_size"]

    def code(row: Expr, column: Expr) -> Expr:
        return code_at(codes, (column, row / size), row & (size - 1), bits) + (few.middle - (1 << (bits - 1)))

    return codes_in_panels(few, call.attrs["K"], call.attrs["N"], code, call.node)


def _packed_steps(call: Call, codes: Tensor, steps: Tensor) -> Map:
    bits, zeros = call.attrs["bits"], call.args[3]

    def scale(block: Expr, column: Expr) -> Expr:
        return cast(steps.at(column, block), F32)

    def added(block: Expr, column: Expr) -> Expr:
        assert zeros is not None
        zero = code_at(zeros, (column,), block, bits) if zeros.dtype is U8 else zeros.at(column, block)
        return (float(1 << (bits - 1)) - cast(zero, F32)) * scale(block, column)

    return steps_in_panels(codes.shape[1], call.attrs["N"], scale, added if zeros is not None else None, call.node)


def codes_in_panels(few: FewBits, k: int, n: int, code: At, node: str) -> Map:
    """[panel][group of four k][byte], see weight_codes.py; `code` of k and column, as int32: of 8 bits -128 to 127."""
    panel, group, byte = index(0), index(1), index(2)

    def at(row: Expr, column: Expr) -> Expr:
        row, column = group * GROUP + row, panel * PANEL + column
        return guard((column < dim(n)) & (row < dim(k)), code(row, column), const(0, I32))

    if few.bits == 2:
        e = at(const(0, I32), byte)
        for kth in range(1, GROUP):
            e = e | (at(const(kth, I32), byte) << (2 * kth))
    else:
        column, row = (byte >> 1 & 7, (byte >> 4) * 2 + (byte & 1)) if few.together == 2 else (byte & 7, byte >> 3)
        e = at(row, column) if few.bits == 8 else at(row, column) | (at(row + 2, column) << 4)
    shape = (sh.ceildiv(n, PANEL), -(-k // ROUND) * (ROUND // GROUP), few.group)
    return made_map(shape, cast(e, U8), node)


def steps_in_panels(blocks: AnyDim, n: int, scale: At, added: At | None, node: str) -> Map:
    """[panel][block][column], or [panel][block][scale, added][column]; both of block and column, as float32."""
    panel, block, lane = index(0), index(1), index(2 if added is None else 3)
    column = panel * PANEL + lane
    e = scale(block, column)
    shape: tuple[AnyDim, ...] = (sh.ceildiv(n, PANEL), blocks, PANEL)
    if added is not None:
        e = guard(index(2) < 1, e, added(block, column))
        shape = (*shape[:2], 2, PANEL)
    return made_map(shape, guard(column < dim(n), e, const(0.0)), node)


__all__ = ["LARGE", "MatmulNBits", "codes_in_panels", "prepare_halves", "steps_in_panels"]
