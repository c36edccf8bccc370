"""KV caches of GroupQueryAttention: quantised caches and sliding-window caches.

Letters: as in `standard.attention`; C: places of a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F8E4M3FN, F32, I8, I32, U8, DType
from pyruntime.ir.expr import Expr, cast, clip, dim, guard, rem, round_even, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.minifloat import decode, encode
from pyruntime.ops.standard.attention import MASKED, Bias

PerItem = Callable[[Expr], Expr]  # batch item (or head) -> a number


# ── quantised caches ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Codes:
    """Numbers as round(x / scale), with scale broadcast to (N, G, T, D), in int8 or float8e4m3fn, or two 4-bit codes in
    a uint8: each plus 8, the first in the low half. Without a scale the numbers are not encoded."""

    scale: Tensor | None
    dtype: DType

    def encode(self, t: Tracer, x: Tensor) -> Tensor:
        """The codes of numbers (N, G, S, D); 4-bit codes halve the last axis."""
        if self.scale is None:
            return x
        scale, (n_, g_, s_, d_) = self.scale, x.shape

        def ratio(*i: Expr) -> Expr:
            return cast(x.at(*i), F32) / cast(t.aligned(scale, x.shape, i), F32)

        def whole(bits: int, *i: Expr) -> Expr:
            most = float(1 << (bits - 1))
            return cast(clip(round_even(ratio(*i)), -most, most - 1), I32)

        if self.dtype is F8E4M3FN:
            return t.compute(x.shape, lambda *i: encode(ratio(*i), F8E4M3FN), F8E4M3FN)
        if self.dtype is I8:
            return t.compute(x.shape, lambda *i: cast(whole(8, *i), I8))
        half = sh.floordiv(d_, 2)
        t.require_equal(half + half, d_, "4-bit codes need an even head size")

        def pair(n: Expr, g: Expr, s: Expr, d: Expr) -> Expr:
            low, high = (whole(4, n, g, s, d * 2 + more) + 8 for more in (0, 1))
            return cast(low | (high << 4), U8)

        return t.compute((n_, g_, s_, half), pair)

    def decode(self, t: Tracer, x: Tensor, dtype: DType) -> Tensor:
        """The numbers of codes."""
        if self.scale is None:
            return x
        scale, shape = self.scale, x.shape
        if self.dtype is U8:
            shape = (*shape[:3], shape[3] * 2)

        def number(*i: Expr) -> Expr:
            if self.dtype is F8E4M3FN:
                code = decode(x.at(*i), F8E4M3FN)
            elif self.dtype is I8:
                code = cast(x.at(*i), F32)
            else:
                *place, d = i
                code = cast(((cast(x.at(*place, d / 2), I32) >> ((d & 1) * 4)) & 15) - 8, F32)
            return cast(code * cast(t.aligned(scale, shape, i), F32), dtype)

        return t.compute(shape, number)


# ── caches that grow ──────────────────────────────────────────────────────────────────────────────────────────────


def append_keys(t: Tracer, old: Tensor | None, new: Tensor, start: PerItem, total: AnyDim) -> Tensor:
    """The cache with new entries written after each item's past: (N, G, P, D), (N, G, S, D) -> (N, G, max(P, total),
    D)."""
    n_, g_, rows, d_ = new.shape
    past = 0 if old is None else old.shape[2]
    t.require_shape("the past", old, (n_, g_, past, d_))

    def body(n: Expr, g: Expr, j: Expr, d: Expr) -> Expr:
        place = j - start(n)
        is_new = (place >= 0) & (place < dim(rows))
        past_entry = 0 if old is None else guard(j < dim(past), old.at(n, g, j, d), 0)
        return guard(is_new, new.at(n, g, place, d), past_entry)

    return t.compute((n_, g_, sh.maximum(past, total), d_), body, new.dtype)


def from_beams(t: Tracer, x: Tensor, source: Tensor, past: AnyDim) -> Tensor:
    """The past keys of each beam: the key of row n·W + m at place j comes from row n·W + source[n, m, j].

    Shapes: x (N·W, G, T, D), source (N, W, places)"""
    width = source.shape[1]
    t.require_equal(source.shape[0] * width, x.shape[0], "cache_indirection has another batch size than the cache")

    def body(n: Expr, g: Expr, j: Expr, d: Expr) -> Expr:
        item, beam = n / dim(width), rem(n, dim(width))
        other = t.checked_index(source.at(item, beam, j), width)
        return guard(j < dim(past), x.at(item * dim(width) + other, g, j, d), x.at(n, g, j, d))

    return t.compute(x.shape, body)


# ── sliding-window caches ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Window:
    """A cache of `places` rows for a window of `width` keys. Of an item's T keys it holds the last L: row i is the key
    at position T - L + i. L = T while T <= places; else L is T minus the smallest multiple of places - width + 1 that
    makes L <= places.

    start(n), end(n): the number of keys of item n before and after the new ones."""

    places: AnyDim
    width: int
    start: PerItem
    end: PerItem

    def count(self, total: Expr) -> Expr:
        """L, the number of cached keys, for T = total keys."""
        group = dim(self.places - (self.width - 1))
        over = total - dim(self.places)
        return select(over <= 0, total, total - (over + group - 1) / group * group)

    def update(self, t: Tracer, old: Tensor, new: Tensor) -> Tensor:
        """The cache with the new keys; unused places hold 0."""
        t.require_shape("new keys or values", new, (*old.shape[:2], new.shape[2], old.shape[3]))

        def body(n: Expr, g: Expr, i: Expr, d: Expr) -> Expr:
            before, total = self.start(n), self.end(n)
            place = total - self.count(total) + i
            dropped = before - self.count(before)
            row = guard(place < before, old.at(n, g, place - dropped, d), new.at(n, g, place - before, d))
            return guard(place < total, row, 0)

        return t.compute(old.shape, body, old.dtype)

    def bias(self, inner: Bias | None) -> Bias:
        """Masks the scores of the old cache followed by the new keys; `inner` gets key positions in the sequence."""

        def bias(score: Expr, n: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
            before, is_new = self.start(n), j >= dim(self.places)
            query = before + i
            key = select(is_new, before + j - dim(self.places), before - self.count(before) + j)
            visible = (is_new | (key < before)) & (key <= query) & (key > query - self.width)
            return guard(visible, score if inner is None else inner(score, n, h, i, key), MASKED)

        return bias
