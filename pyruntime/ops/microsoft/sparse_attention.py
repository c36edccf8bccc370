"""SparseAttention, with the letters of `standard.attention`; L layouts, M places of the cache."""

from __future__ import annotations

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, const, dim, rem, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.group_attention import group_heads, rotate_by_caches
from pyruntime.ops.microsoft.kv_cache import append_keys
from pyruntime.ops.standard.attention import MASKED, attend, merge_heads


@op("SparseAttention", domain=MICROSOFT)
def sparse_attention(
    t: Tracer, query: Tensor, key: Tensor | None, value: Tensor | None, past_key: Tensor, past_value: Tensor,
    block_row_indices: Tensor, block_col_indices: Tensor, total_sequence_length: Tensor,
    key_total_sequence_lengths: Tensor, cos_cache: Tensor | None = None, sin_cache: Tensor | None = None, *,
    do_rotary: int = 0, kv_num_heads: int, num_heads: int, rotary_interleaved: int = 0, scale: float = 0.0,
    sparse_block_size: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Causal attention where a query sees the key blocks listed in the row of the query's block. Each layout is a
    compressed sparse row matrix of blocks; heads use the layouts in turn.

    Shapes: query (N, S, H·D), key and value (N, S, G·D), or query alone (N, S, (H + 2·G)·D), past (N, G, M, D),
    block_row_indices (L, blocks + 1), block_col_indices (L, entries), key_total_sequence_lengths (N,)
    -> (N, S, H·D), present key and value (N, G, M, D)"""
    q, k, v = group_heads(t, query, key, value, num_heads, kv_num_heads)
    rows, places, lengths = q.shape[2], past_key.shape[2], key_total_sequence_lengths
    total = t.ints(t.reshape(total_sequence_length, ()), 0)[0]
    t.require(sh.compare("le", total, places), f"{total} keys do not fit into a cache of {places}")
    first = dim(sh.compare("eq", rows, total))

    def start(n: Expr) -> Expr:
        return select(first != 0, 0, cast(lengths.at(n), I32) - dim(rows))

    if do_rotary == 1 and (cos_cache is None or sin_cache is None):
        raise t.shape_error("do_rotary needs cos_cache and sin_cache")
    if do_rotary == 1 and cos_cache is not None and sin_cache is not None:
        rotation = (cos_cache, sin_cache, None, lambda n, s: start(n) + s, rotary_interleaved)
        q, k = (rotate_by_caches(t, x, *rotation) for x in (q, k))
    present = [append_keys(t, old, new, start, places) for old, new in ((past_key, k), (past_value, v))]
    layouts = _layouts(t, block_row_indices, block_col_indices)
    count, blocks, _ = layouts.shape

    def bias(score: Expr, n: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        place = i + start(n)
        row, column = (t.checked_index(x / sparse_block_size, blocks) for x in (place, j))
        return select((j <= place) & (layouts.at(rem(h, dim(count)), row, column) != 0), score, MASKED)

    keys, values = (t.slice(x, 2, 0, total) for x in present)
    done = attend(t, q, keys, values, scale=scale or None, bias=bias)
    return merge_heads(t, done.out), present[0], present[1]


def _layouts(t: Tracer, rows: Tensor, columns: Tensor) -> Tensor:
    """(L, blocks, blocks): 1 if the query block (row) sees the key block (column)."""
    count, blocks = rows.shape[0], rows.shape[1] - 1
    t.require_equal(
        columns.shape[0], count, "block_row_indices and block_col_indices differ in their number of layouts"
    )

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(count)) as layout, k.loop(dim(blocks)) as row:
            with k.loop(dim(blocks)) as column:
                k.store(out, (layout, row, column), const(0, I32))
            with k.loop(dim(columns.shape[1])) as n:
                with k.when((n >= cast(rows.at(layout, row), I32)) & (n < cast(rows.at(layout, row + 1), I32))):
                    k.store(out, (layout, row, t.checked_index(columns.at(layout, n), blocks)), const(1, I32))

    return t.loops("block_layouts", [rows, columns], [((count, blocks, blocks), I32)], body)[0]
