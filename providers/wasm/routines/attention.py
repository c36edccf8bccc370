"""Attention without the whole matrix of scores: finds kernels of a segment that run as one, by blocks of rows.

These are a product, a procedure over the rows of its result (passes/fusion/row_fusion.py: softmax, with scale and mask
in it or in the product's epilogue) and a product of its result, if no other kernel reads the intermediate results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.codegen.provider import Invocation
from pyruntime.codegen.schedule import lower
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, For, Kernel, Loops, Stmt, Store, Tensor, tensors_in
from pyruntime.ir.statements import nodes, statements

from ..schedules import gemm
from ..schedules.blockwise_attention import Member, Params, blockwise, scratch_bytes
from ..schedules.layouts import Dense, Packed
from ..schedules.right_operand import few_rows
from .base import scratch
from .gemm_calls import pack_call
from .matmul import Product, described, invocation, offset

# Floats of a block of scores, a quarter of a second-level cache of 1 MB; smaller matrices are not split.
# Whisper's encoder (1500 x 1500) takes 0.98 of the time without blocks with 32 Ki or 64 Ki, 1.0 with 128 Ki; ViT-tiny's
# matrices (197 x 197) would gain less than the noise.
BLOCK = 1 << 16


@dataclass(slots=True)
class Chain:
    """A chain: its three kernels, and both products as gemm.py computes them."""

    scores: Call
    rows: Loops
    last: Call
    first: Product
    second: Product


# ── finding ───────────────────────────────────────────────────────────────────────────────────────────────────────


def find(kernels: Sequence[Kernel], private: Collection[int]) -> list[Chain]:
    """The chains among the kernels of a segment; private: see `provider.CodeWriter.segment`."""
    makers = {t.uid: k for k in kernels for t in k.outputs if t.uid in private}
    return [chain for k in kernels if _product(k) for chain in _ending(k, makers)]


def _product(kernel: Kernel | None) -> bool:
    return (
        isinstance(kernel, Call)
        and kernel.routine == "matmul"
        and kernel.plan is None
        and not kernel.packed
        and all(t.dtype is F32 for t in kernel.args if t is not None)
    )


def _ending(last: Any, makers: dict[int, Kernel]) -> Iterator[Chain]:
    """Yield the chain that ends with this product, if any."""
    middle = last.args[0]
    rows = makers.get(middle.uid)
    if not isinstance(rows, Loops) or not rows.unit_is_row or 0 in last.strided or middle is last.args[1]:
        return
    if last.epilogue is not None and middle in tensors_in(last.epilogue):
        return
    for t in rows.args:
        scores: Any = makers.get(t.uid)
        if _product(scores) and overwrites(rows, t):
            chain = Chain(scores, rows, last, described(scores), described(last))
            if _fits(chain):
                yield chain
                return


def _fits(chain: Chain) -> bool:
    """Whether the intermediate matrix is dense, [batch, m, n] for all three, and large."""
    t, p, q = chain.scores.out, chain.first, chain.second
    m, n = p.m, p.n
    if not isinstance(m, int) or not isinstance(n, int) or m * n <= BLOCK or min(m, n) <= few_rows():
        return False
    outer, inner = q.levels()
    dense = [(inner, m * n), (outer, inner.extent * m * n)]
    return (
        t.dtype is chain.rows.out.dtype is F32
        and not p.left
        and chain.scores.order in (None, tuple(range(t.rank)))
        and (q.m, q.k, q.lda) == (m, n, n)
        and outer.extent * inner.extent == p.levels()[0].extent * p.levels()[1].extent
        and all(axis.extent == 1 or axis.a == stride for axis, stride in dense)
    )


def overwrites(rows: Loops, source: Tensor) -> bool:
    """Whether the result may overwrite `source`: work units are rows of both, and an element is not read after the
    statement that writes it."""
    out = rows.out
    unit = rows.body[0]
    if source.shape != out.shape or source.dtype is not out.dtype or not isinstance(unit, For):
        return False
    place: Any = None
    written = False
    for s in unit.body:
        stores, loads = _uses(s, out, source)
        if loads and (written or not isinstance(s, For) or _reads_late(s, out, source)):
            return False
        for coords in (*stores, *loads):
            if not isinstance(s, For) or coords[-1].key() != Expr("var", (), coords[-1].dtype, s.var).key():
                return False
            own = [c.key() for c in coords[:-1]]
            place = place or own
            if own != place:
                return False
        written = written or bool(stores)
    return written


def _reads_late(s: Stmt, out: Tensor, source: Tensor) -> bool:
    """Whether a pass over a row reads an element of `source` after it has written that of `out`."""
    written = False
    for b in statements([s]):
        if written and any(x.op == "at" and x.value is source for x in nodes([b])):
            return True
        written = written or isinstance(b, Store) and b.target is out
    return False


def _uses(s: Stmt, out: Tensor, source: Tensor) -> tuple[list[Any], list[Any]]:
    """Return the coordinates at which a statement writes `out` and reads `source`."""
    stores = [b.coords for b in statements([s]) if isinstance(b, Store) and b.target is out]
    return stores, [x.args for x in nodes([s]) if x.op == "at" and x.value is source]


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def emit(writer: Any, chain: Chain) -> list[Invocation]:
    """Write a call that packs the right operands of each product, and a call that runs the chain."""
    p, q = chain.first, chain.second
    mc = sh.clamp(sh.floordiv(BLOCK, p.n * 12) * 12, 12, 192)
    packs, parts, columns = [], [], []
    for call, product in ((chain.scores, p), (chain.last, q)):
        pack, moved = _packed(writer, call, product)
        pack.node = chain.last.node
        _, nc, kc = gemm.blocks(product.m, product.n, product.k)
        packs.append(pack)
        parts.append(invocation(writer, call, moved, (mc, nc, kc), pack.tensors[1]))
        columns.append(sh.ceildiv(product.n, nc))
    parts.insert(1, writer.invoke(lower(chain.rows), chain.rows))
    between = (chain.scores.out, chain.rows.out)
    members = [
        Member(writer.module.exported[i.function], len(i.tensors), len(i.params), tuple(_places(i, between)))
        for i in parts
    ]
    size = scratch_bytes(members, mc, p.n)
    work = scratch(size * writer.threads)
    key = ("attention", *[(m.function.name, m.buffers, m.params, m.open) for m in members])
    f = writer.function(key, lambda name: blockwise(writer.module, name, members), "attention")
    tensors = [work if t in between else t for i in parts for t in i.tensors]
    blocks = sh.ceildiv(p.m, mc)
    own = Params(p.m, p.n, mc, blocks, columns[0], columns[1], size)
    params = [*[d for i in parts for d in i.params], *own]
    batch = p.levels()[0].extent * p.levels()[1].extent
    more = [t for i in parts for t in i.scratch]
    return [*packs, Invocation(f.name, [*tensors, work], params, batch * blocks, chain.last.node, [work, *more])]


def _places(call: Invocation, between: Sequence[Tensor]) -> list[int]:
    return [n for n, t in enumerate(call.tensors) if t in between]


def _packed(writer: Any, call: Call, p: Product) -> tuple[Invocation, Product]:
    """Return the call that packs each right operand of a product once, and the product with packed operands."""
    outer, inner = p.levels()
    step = gemm.packed_floats(p.n, p.k)
    low, high = [axis.extent if axis.b != 0 else 1 for axis in (inner, outer)]
    packed = scratch(4 * step * low * high)
    assert isinstance(p.layout, Dense)
    params = gemm.PackParams(
        n=p.n, k=p.k, batch=low * high, ld=p.ldb, stride_source=inner.b, stride_packed=step, inner=low,
        outer_source=outer.b, offset=offset(call, 1),
    )  # fmt: skip
    pack = pack_call(writer, call, p.layout.transposed, gemm.PackBuffers(call.operand(1), packed), params, [packed])
    strides = (step * low if high != 1 else 0, step if low != 1 else 0)
    batch = [replace(axis, b=b) for axis, b in zip((outer, inner), strides, strict=True)]
    return pack, replace(p, layout=Packed(), batch=batch)
