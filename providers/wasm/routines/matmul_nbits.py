"""The routine "matmul_nbits": constant quantised weights and large float16 matrices stay packed and are dequantised in
blocks."""

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
from ..schedules.gemv_integers import LARGEST_BLOCK
from ..schedules.register_tile import PANEL
from ..schedules.right_operand import rows_in_place
from ..schedules.weight_codes import GROUP, ROUND, WeightCodes
from .base import WasmRoutine, changed, made_map, widened
from .gemm_calls import product_call
from .integer_products import are_weights

STORED = {bits: next(width for width in (2, 4, 8) if width >= bits) for bits in range(2, 9)}  # of a code -> in memory
LARGE = 1 << 16  # elements; smaller matrices become float32
At = Callable[[Expr, Expr], Expr]
COLUMNS = 128  # columns of a block, whose panels (128 x 384 floats, 192 kB) are written and read once per block of rows
LONGEST = 384  # k of a block
GEMV_PANELS = 32  # panels of a block for few rows, approximately


def digits_of(bits: int, size: int, level: int = 0) -> int:
    """The int16 digits of an element of A in gemv_integers.py: one if the model allows it (accuracy_level 4), else two;
    0 if A stays float32. size: number of k of a block."""
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
        before, call = widened(call, (0,))
        layout = WeightCodes(
            STORED[call.attrs["bits"]],
            call.args[3] is not None,
            digits_of(call.attrs["bits"], call.attrs["block_size"], call.attrs["accuracy_level"]),
        )
        packed = [_packed_codes(call, codes, layout), _packed_steps(call, codes, steps)]
        args = (call.args[0], packed[0].out, packed[1].out)
        return [*before, *packed, changed(call, args=args, plan=layout)]

    def claims(self, call: Call) -> bool:
        return call.plan is not None and all(t is not None and t.dtype is F32 for t in (call.args[0], call.out))

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        if order != tuple(range(out.rank)) or out.dtype is not F32:
            return False
        return takes_epilogue(out, epilogue, groups(out.rank))

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        a, codes, steps = (call.operand(n) for n in range(3))
        k, n, size, layout = call.attrs["K"], call.attrs["N"], call.attrs["block_size"], call.plan
        m = sh.size(a.shape[:-1])
        mc, nc, kc = _blocks(m, n, k, writer.threads, rows_in_place(writer.module, layout))
        params = gemm.Params(
            m=m, n=n, k=k, batch=1, lda=k, ldb=size, ldc=n, stride_a=0, stride_b=0, stride_c=0, mc=mc, nc=nc, kc=kc
        )
        return [product_call(writer, call, layout, groups(call.out.rank), [a, codes, steps], params)]


def _blocks(m: AnyDim, n: int, k: int, threads: int, in_place: int) -> tuple[AnyDim, AnyDim, AnyDim]:
    """Return (mc, nc, kc), like `gemm.blocks`. If rows are few, each thread has the same number of blocks."""
    panels = -(-n // PANEL)
    few = PANEL * -(-panels // (threads * max(1, panels // (GEMV_PANELS * threads))))
    columns = sh.select(sh.compare("le", m, in_place), few, COLUMNS)
    return sh.clamp(m, 1, 192), columns, min(-(-k // GROUP) * GROUP, LONGEST)


def prepare_halves(call: Call) -> list[Kernel]:
    """Replace a product by a large constant matrix of float16 by one by codes of 16 bits, which take half the memory of
    float32."""
    a, b = call.args
    if a is None or b is None or b.dtype is not F16 or b.rank != 2 or not are_weights(b):
        return []
    k, n = b.shape
    if not isinstance(k, int) or not isinstance(n, int) or k * n < LARGE:
        return []
    before, call = widened(call, (0,))
    row, column = index(1), index(0) * PANEL + index(2)
    bits = guard((row < k) & (column < n), bitcast(b.at(row, column), U16), const(0, U16))
    rows = -(-k // ROUND) * ROUND
    codes = made_map((sh.ceildiv(n, PANEL), rows, PANEL), bits, call.node)
    exponent = cast(codes.out.at(*[index(n) for n in (1, 2, 3)]), I32) & 0x7C00
    special = Reduce("any", codes.out.shape, exponent == 0x7C00).making((1,), BOOL, call.node)
    args, attrs = (call.args[0], codes.out, special.out), {"block_size": rows, "K": k, "N": n}
    product = changed(call, routine="matmul_nbits", args=args, attrs=attrs, plan=WeightCodes(16))
    return [*before, codes, special, product]


def groups(rank: int) -> Groups:
    return (), (), tuple(range(rank - 1)), (rank - 1,)


def _packed_codes(call: Call, codes: Tensor, layout: WeightCodes) -> Map:
    bits, size = call.attrs["bits"], call.attrs["block_size"]

    def code(row: Expr, column: Expr) -> Expr:
        return code_at(codes, (column, row / size), row & (size - 1), bits) + (layout.middle - (1 << (bits - 1)))

    return codes_in_panels(layout, call.attrs["K"], call.attrs["N"], code, call.node)


def _packed_steps(call: Call, codes: Tensor, steps: Tensor) -> Map:
    bits, zeros = call.attrs["bits"], call.args[3]

    def scale(block: Expr, column: Expr) -> Expr:
        return cast(steps.at(column, block), F32)

    def added(block: Expr, column: Expr) -> Expr:
        assert zeros is not None
        zero = code_at(zeros, (column,), block, bits) if zeros.dtype is U8 else zeros.at(column, block)
        return (float(1 << (bits - 1)) - cast(zero, F32)) * scale(block, column)

    return steps_in_panels(codes.shape[1], call.attrs["N"], scale, added if zeros is not None else None, call.node)


def codes_in_panels(layout: WeightCodes, k: int, n: int, code: At, node: str) -> Map:
    """[panel][group of four k][byte], see weight_codes.py; code(k, column) is an int32, for 8 bits -128 to 127."""
    panel, group, byte = index(0), index(1), index(2)

    def at(row: Expr, column: Expr) -> Expr:
        row, column = group * GROUP + row, panel * PANEL + column
        return guard((column < dim(n)) & (row < dim(k)), code(row, column), const(0, I32))

    if layout.bits == 2:
        e = at(const(0, I32), byte)
        for kth in range(1, GROUP):
            e = e | (at(const(kth, I32), byte) << (2 * kth))
    else:
        column, row = (byte >> 1 & 7, (byte >> 4) * 2 + (byte & 1)) if layout.adjacent == 2 else (byte & 7, byte >> 3)
        e = at(row, column) if layout.bits == 8 else at(row, column) | (at(row + 2, column) << 4)
    shape = (sh.ceildiv(n, PANEL), -(-k // ROUND) * (ROUND // GROUP), layout.group_bytes)
    return made_map(shape, cast(e, U8), node)


def steps_in_panels(blocks: AnyDim, n: int, scale: At, added: At | None, node: str) -> Map:
    """[panel][block][column], or [panel][block][scale, addend][column]; both are float32 of block and column."""
    panel, block, lane = index(0), index(1), index(2 if added is None else 3)
    column = panel * PANEL + lane
    e = scale(block, column)
    shape: tuple[AnyDim, ...] = (sh.ceildiv(n, PANEL), blocks, PANEL)
    if added is not None:
        e = guard(index(2) < 1, e, added(block, column))
        shape = (*shape[:2], 2, PANEL)
    return made_map(shape, guard(column < dim(n), e, const(0.0)), node)
