"""Products and lookups of weights that are quantised by blocks to 2 to 8 bits. Codes are packed with the lowest bits
first."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32, U8, U32, DType
from pyruntime.ir.expr import Expr, X, Y, bitcast, cast, dim, index, minimum
from pyruntime.ir.kernel import Leaf, Reduce, Tensor
from pyruntime.ir.packed_codes import code_at, packed_byte, unpacked
from pyruntime.ops.lib.formula import sum_type
from pyruntime.ops.lib.minifloat import MINIFLOATS, decode
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.matmul import matmul


@op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    t: Tracer, a: Tensor, b: Tensor, scales: Tensor, zero_points: Tensor | None = None, g_idx: Tensor | None = None,
    bias: Tensor | None = None, *, K: int, N: int, accuracy_level: int = 0, bits: int = 4, block_size: int,
    weight_prepacked: int = 0,
) -> Tensor:  # fmt: skip
    """a · wᵀ + bias with w[n, k] = (code - zero point) · scale; the zero point is 2^(bits-1) by default. Zero point and
    scale belong to the block of k, or to block g_idx[k]. If g_idx is constant and fills its blocks, a's elements and
    the codes are reordered by block; constant codes are reordered at compile time.

    Routine "matmul_nbits": args (a, b, scales, zero_points), attrs bits, block_size, K, N, accuracy_level. Level 4
    permits a to be quantised by blocks; other levels do not.
    Shapes: a (*A, K), b (N, blocks, block_size·bits/8) uint8, scales (N, blocks), zero_points uint8 packed (N,
    ceil(blocks·bits/8)) or of a's type (N, blocks), bias (N,) -> (*A, N)"""
    if weight_prepacked:
        raise t.unsupported(f"weight_prepacked {weight_prepacked} is ONNX Runtime's own layout")
    if not 2 <= bits <= 8:
        raise t.unsupported(f"bits {bits} is not one of 2 to 8")
    if block_size < 16 or block_size & (block_size - 1):
        raise t.unsupported(f"block_size {block_size} is not a power of 2 from 16 on")
    t.require_equal(a.shape[-1], K, "the input and K differ")
    blocks = -(-K // block_size)
    codes = t.reshape(b, (N, blocks, block_size * bits // 8))
    steps = t.reshape(scales, (N, blocks))
    packed = zero_points is not None and zero_points.dtype is U8
    zeros = None
    if zero_points is not None:
        zeros = t.reshape(zero_points, (N, -(-blocks * bits // 8) if packed else blocks))
    order = None if g_idx is None else _block_order(t, g_idx, K, block_size)
    if order is not None:
        (a, codes), g_idx = _reordered(t, a, codes, order, block_size, bits), None
    dtype = sum_type(a.dtype)
    rank = a.rank

    def weight(n: Expr, k: Expr) -> Expr:
        block, place = k / block_size, k & (block_size - 1)
        code = cast(code_at(codes, (n, block), place, bits), dtype)
        block = block if g_idx is None else t.checked_index(g_idx.at(k), blocks)
        if zeros is None:
            zero: Expr | float = float(1 << (bits - 1))
        elif packed:
            zero = cast(code_at(zeros, (n,), block, bits), dtype)
        else:
            zero = cast(zeros.at(n, block), dtype)
        return (code - zero) * cast(steps.at(n, block), dtype)

    def body(*i: Expr) -> Expr:
        return cast(a.at(*i[: rank - 1], index(rank)), dtype) * weight(i[rank - 1], index(rank))

    meaning = t.reduce_compute("sum", (*a.shape[:-1], N), (K,), body)
    if accuracy_level == 4 and g_idx is None:
        assert isinstance(meaning.kernel, Reduce)
        meaning.kernel.round_block = block_size
    y = meaning
    if g_idx is None:
        attrs = {"bits": bits, "block_size": block_size, "K": K, "N": N, "accuracy_level": accuracy_level}
        y = t.call("matmul_nbits", (a, codes, steps, zeros), meaning, **attrs)
    return t.cast(y if bias is None else t.map(X + cast(Y, dtype), y, bias), a.dtype)


def _block_order(t: Tracer, g_idx: Tensor, K: int, block_size: int) -> list[int] | None:
    """The order of k that puts the elements of each block together; None if g_idx is not constant, or does not give
    each block exactly the elements that it holds."""
    leaf = g_idx.kernel
    groups = t.elements(leaf.value) if isinstance(leaf, Leaf) and leaf.kind == "weight" else t.known(g_idx)
    if groups is None or sorted(groups) != [k // block_size for k in range(K)]:
        return None
    return sorted(range(K), key=groups.__getitem__)


def _reordered(
    t: Tracer, a: Tensor, codes: Tensor, order: list[int], block_size: int, bits: int
) -> tuple[Tensor, Tensor]:
    """a (*A, K) and codes (N, blocks, bytes) with k in this order, which makes g_idx redundant."""
    at = t.constant(order, I32)
    last = dim(len(order) - 1)

    def code(n: Expr, place: Expr) -> Expr:
        k = at.at(minimum(place, last))
        return code_at(codes, (n, k / block_size), k & (block_size - 1), bits)

    def byte(n: Expr, block: Expr, i: Expr) -> Expr:
        return packed_byte(lambda place: code(n, block * block_size + place), i, bits)

    return t.compute(a.shape, lambda *i: a.at(*i[:-1], at.at(i[-1]))), t.compute(codes.shape, byte)


# MatMulFpQ4's blk_quant_type -> elements of a block, bytes before its codes
_BLOBS = {0: (32, 4), 1: (32, 5), 2: (64, 4)}


@op("MatMulFpQ4", domain=MICROSOFT)
def matmul_fp_q4(t: Tracer, a: Tensor, b: Tensor, b_shape: Tensor, *, blk_quant_type: int = 1) -> Tensor:
    """a · w of 4-bit weights, which are a byte string of blocks along K, column by column. A block is its float32
    scale, its zero point (one byte in type 1; else 8) and its codes: each 16 bytes hold 32 codes, first the low halves,
    then the high ones.
    Shapes: a (*A, K), b (N · blocks · bytes of a block), b_shape (2): K, N -> (*A, N)"""
    if blk_quant_type not in _BLOBS:
        raise t.unsupported(f"blk_quant_type {blk_quant_type} is not 0, 1 or 2")
    size, before = _BLOBS[blk_quant_type]
    K, N = t.entries("B_shape", t.ints(b_shape, 0), 2)
    t.require_equal(a.shape[-1], K, "the input and B_shape differ")
    blocks = sh.ceildiv(K, size)
    t.require_shape("B", b, (N * blocks * (before + size // 2),))
    blob = t.reshape(b, (N, blocks, before + size // 2))

    def weight(k: Expr, n: Expr) -> Expr:
        block, place = k / size, k & (size - 1)
        word = sum((cast(blob.at(n, block, i), U32) << (8 * i) for i in range(1, 4)), cast(blob.at(n, block, 0), U32))
        byte = cast(blob.at(n, block, (place >> 5) * 16 + (place & 15) + before), I32)
        code = (byte >> (((place >> 4) & 1) * 4)) & 15
        zero = cast(blob.at(n, block, 4), I32) if blk_quant_type == 1 else 8
        return cast(code - zero, F32) * bitcast(word, F32)

    return matmul(t, a, t.compute((K, N), weight))


# The 16 values of bitsandbytes' four-bit floats. Source: https://arxiv.org/abs/2305.14314 (NF4, appendix E) and
# https://github.com/bitsandbytes-foundation/bitsandbytes (FP4)
_FP4 = [0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
_NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


@op("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(
    t: Tracer, a: Tensor, b: Tensor, absmax: Tensor, *, K: int, N: int, block_size: int, quant_type: int,
    training_mode: int = 0, transB: int = 1,
) -> Tensor:  # fmt: skip
    """a · wᵀ (a · w if transB is 0) of weights as bitsandbytes packs them: w (N, K) flat in blocks, each value a table
    entry (of 16) times its block's absmax; the first code is in the high half of a byte.

    Shapes: a (*A, K), b (ceil(N·K/2),) uint8, absmax (ceil(N·K/block_size),) -> (*A, N)"""
    if quant_type not in (0, 1):
        raise t.unsupported(f"quant_type {quant_type} is not 0 (FP4) or 1 (NF4)")
    if block_size < 1:
        raise t.shape_error(f"block_size is {block_size}, must be at least 1")
    table = t.constant(_NF4 if quant_type else [*_FP4, *(-v for v in _FP4)], F32)
    codes, steps = t.reshape(b, ((N * K + 1) // 2,)), t.reshape(absmax, (-(-N * K // block_size),))

    def weight(n: Expr, k: Expr) -> Expr:
        place = n * K + k
        code = (cast(codes.at(place / 2), I32) >> ((1 - (place & 1)) * 4)) & 15
        return table.at(code) * cast(steps.at(place / block_size), F32)

    w = t.compute((N, K), weight)
    return t.cast(matmul(t, t.cast(a, F32), t.transpose(w, [1, 0]) if transB else w), a.dtype)


@op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    t: Tracer, data: Tensor, indices: Tensor, scales: Tensor, zero_points: Tensor | None = None, *, bits: int = 4,
    block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Tensor:  # fmt: skip
    """Gather along one axis, then dequantise by blocks along another. uint8 data hold 8/bits elements per byte along
    their last axis. Shapes: data (*D), indices (*I) -> D with its axis replaced by I."""
    if bits not in (2, 4, 8):
        raise t.unsupported(f"bits {bits} is not one of 2, 4, 8")
    gather, blocked = t.axis(gather_axis, data.rank), t.axis(quantize_axis, data.rank)
    packed = data.dtype is U8 and bits < 8
    if packed and (gather != 0 or blocked == gather):
        raise t.unsupported("packed data needs gather_axis 0 and another quantize_axis")
    if data.dtype in MINIFLOATS and zero_points is not None:
        raise t.unsupported("zero points of float8 data are not supported")
    each = 8 // bits if packed else 1
    full = (*data.shape[:-1], data.shape[-1] * each)
    ids = indices.rank
    block = block_size or sh.maximum(full[blocked], 1)
    blocks = [sh.ceildiv(d, block) if n == blocked else d for n, d in enumerate(full)]
    t.require_broadcast_shape("scales", scales, blocks)
    if zero_points is not None:
        t.require_shape("zero_points", zero_points, [*blocks[:-1], sh.ceildiv(blocks[-1], each)])

    def body(*i: Expr) -> Expr:
        row = t.checked_index(indices.at(*i[gather : gather + ids]), full[gather], from_end=True)
        place = [*i[:gather], row, *i[gather + ids :]]
        at_block = [c / dim(block) if n == blocked else c for n, c in enumerate(place)]
        code = _code(data, place, bits, packed)
        zero = _zero(zero_points, data.dtype, at_block, bits, packed)
        value = (code if zero is None else code - zero) * cast(t.aligned(scales, tuple(blocks), at_block), F32)
        return cast(value, scales.dtype)

    shape = (*full[:gather], *indices.shape, *full[gather + 1 :])
    return t.compute(shape, body, scales.dtype)


def _code(data: Tensor, place: list[Expr], bits: int, packed: bool) -> Expr:
    if data.dtype in MINIFLOATS:
        return decode(data.at(*place), data.dtype)
    if not packed:
        return cast(data.at(*place), F32)
    last = place[-1]
    return cast(unpacked(data.at(*place[:-1], last * bits / 8), last, bits), F32)


def _zero(zeros: Tensor | None, dtype: DType, place: list[Expr], bits: int, packed: bool) -> Expr | float | None:
    if zeros is None:
        return float(1 << (bits - 1)) if dtype is U8 else None
    if not packed:
        return cast(zeros.at(*place), F32)
    return cast(unpacked(zeros.at(*place[:-1], place[-1] * bits / 8), place[-1], bits), F32)
