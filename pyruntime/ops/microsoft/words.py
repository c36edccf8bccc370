"""Embeddings of words by their letters, and hashes of n-grams of tokens for embedding tables.

Letters: B batch, S sequence, H hashes of a token, N words, L letters, E embedding, K window, F filters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import BOOL, I32
from pyruntime.ir.expr import Expr, cast, const, dim, maximum, minimum, select, tanh
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.standard.index import gather
from pyruntime.ops.standard.matmul import matmul

LONGEST = 32  # tokens of an n-gram: this length takes 1.3 s to compile, measured by hand


@op("NGramHashMapping", domain=MICROSOFT)
def ngram_hash_mapping(
    t: Tracer, input_ids: Tensor, multipliers: Tensor, vocab_sizes: Tensor, past_ids: Tensor | None = None,
    head_offsets: Tensor | None = None, eos_token_id: Tensor | None = None, segment_ids: Tensor | None = None,
    *, max_ngram_size: int, n_head_per_ngram: int, pad_id: int, reset_on_eos: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """For n = 2 … max_ngram_size: x₀·m₀ ^ … ^ xₙ₋₁·mₙ₋₁, modulo the size of each of its heads, where xₖ is the token k
    places before; and the last tokens, for the next call. pad_id, or eos_token_id if given, replaces tokens before the
    beginning, before an end of text (if reset_on_eos) and before a change of segment.
    Shapes: input_ids (B, S), multipliers (≥ n), vocab_sizes (H), past_ids (B, n - 1) -> (B, S, H), (B, n - 1)"""
    heads = _Heads(multipliers, vocab_sizes, head_offsets, max_ngram_size, n_head_per_ngram)
    before, (batch, length) = heads.check(t), input_ids.shape
    end = None if eos_token_id is None else t.reshape(eos_token_id, ()).at()
    missing: Expr = const(pad_id, input_ids.dtype) if end is None else end
    past = t.compute((batch, before), lambda b, k: missing, input_ids.dtype) if past_ids is None else past_ids
    t.require_equal(past.shape[1], before, "past_ids must have max_ngram_size - 1 columns")
    t.require_shape("segment_ids", segment_ids, (batch, length))
    tokens = t.concat([past, input_ids], 1)

    def shifted(i: Sequence[Expr], k: int) -> Expr:
        """The token k places before, unless an end of text or of a segment lies between."""
        b, s = i
        cut: Expr = const(0, BOOL)
        for j in range(1, k + 1):
            if end is not None and reset_on_eos:
                cut = cut | (tokens.at(b, s + (before - j)) == end)
            if segment_ids is not None:
                later, earlier = maximum(s - (j - 1), 0), maximum(s - j, 0)
                cut = cut | (segment_ids.at(b, later) != segment_ids.at(b, earlier))
        return select(cut, missing, tokens.at(b, s + (before - k)))

    return heads.of(t, (batch, length), shifted), t.slice(tokens, 1, length, before)


@dataclass(frozen=True, slots=True)
class _Heads:
    """The parameters of the hashes, with `each` heads for every n = 2 … most."""

    multipliers: Tensor
    sizes: Tensor
    offsets: Tensor | None
    most: int
    each: int

    def check(self, t: Tracer) -> int:
        """Refuse parameters that do not fit. Returns the largest number of past tokens in an n-gram."""
        if self.most < 2 or self.each < 1:
            raise t.shape_error(f"max_ngram_size {self.most} is below 2, or n_head_per_ngram {self.each} below 1")
        if self.most > LONGEST:
            hint = f"at most {LONGEST}, because each length is compiled separately"
            raise t.unsupported(f"max_ngram_size {self.most} is not implemented", hint)
        t.require_equal(self.sizes.shape[0], (self.most - 1) * self.each, "vocab_sizes must have one element per head")
        t.require_shape("head_offsets", self.offsets, self.sizes.shape)
        return self.most - 1

    def of(self, t: Tracer, shape: Sequence[AnyDim], shifted: Callable[[Sequence[Expr], int], Expr]) -> Tensor:
        """The hashes (*shape, H). shifted(coordinates, k) is the token k places before the one at these coordinates."""

        def hashes(n: int) -> Tensor:
            def body(*i: Expr) -> Expr:
                mixed = shifted(i[:-1], 0) * self.multipliers.at(0)
                for k in range(1, n):
                    mixed = mixed ^ (shifted(i[:-1], k) * self.multipliers.at(k))
                h = i[-1] + (n - 2) * self.each
                size = self.sizes.at(h + t.checked_index(cast(minimum(self.sizes.at(h), 1), I32) - 1, 1))
                return mixed % size + (0 if self.offsets is None else self.offsets.at(h))

            return t.compute((*shape, self.each), body, self.multipliers.dtype)

        return t.concat([hashes(n) for n in range(2, self.most + 1)], len(shape))


@op("VarlenNGramHashMapping", domain=MICROSOFT)
def varlen_ngram_hash_mapping(
    t: Tracer, input_ids: Tensor, multipliers: Tensor, vocab_sizes: Tensor, ends: Tensor,
    past_ids: Tensor | None = None, head_offsets: Tensor | None = None, eos_token_id: Tensor | None = None,
    segment_ids: Tensor | None = None, past_segment_ids: Tensor | None = None, capture_count: Tensor | None = None,
    *, max_ngram_size: int, n_head_per_ngram: int, pad_id: int, reset_on_eos: int = 0, state_update_capacity: int = 0,
) -> list[Tensor | None]:  # fmt: skip
    """NGramHashMapping of concatenated sequences: sequence b is from ends[b] to ends[b + 1]. Also returns the last
    tokens and the last segments of each sequence with its past and, for N = state_update_capacity, the last tokens
    after each of the first capture_count tokens of a sequence.
    Shapes: input_ids and segment_ids (T), ends (B + 1) int32, past_ids and past_segment_ids (B, n - 1), capture_count
    (B) -> (T, H), (B, n - 1), (B, n - 1), (B, N, n - 1)"""
    heads = _Heads(multipliers, vocab_sizes, head_offsets, max_ngram_size, n_head_per_ngram)
    before = heads.check(t)
    total, batch = input_ids.shape[0], ends.shape[0] - 1
    if not 0 <= state_update_capacity <= 8 or (capture_count is None) != (state_update_capacity == 0):
        raise t.shape_error(
            f"state_update_capacity {state_update_capacity} must be 0 to 8, with capture_count if not 0"
        )
    for name, x, shape in (
        ("past_ids", past_ids, (batch, before)), ("segment_ids", segment_ids, (total,)),
        ("past_segment_ids", past_segment_ids, (batch, before)), ("capture_count", capture_count, (batch,)),
    ):  # fmt: skip
        t.require_shape(name, x, shape)
    end = None if eos_token_id is None else t.reshape(eos_token_id, ()).at()
    missing: Expr = const(pad_id, input_ids.dtype) if end is None else end

    def start(b: Expr) -> Expr:
        return t.checked_index(ends.at(b), total + 1)

    # per token: its sequence, and its index in that sequence
    owner = t.reduce_compute("sum", (total,), (batch,), lambda p, b: cast(ends.at(b + 1) <= p, I32))
    place = t.compute((total,), lambda p: p - start(t.checked_index(owner.at(p), batch)))

    def seen(x: Tensor, past: Tensor | None, absent: Expr, b: Expr, at: Expr) -> Expr:
        """Element `at` of sequence b, or of its past if `at` is negative."""
        own = x.at(minimum(maximum(start(b) + at, 0), dim(total) - 1))
        old = absent if past is None else past.at(b, minimum(maximum(at + before, 0), before - 1))
        return select(at >= 0, own, old)

    def token(b: Expr, at: Expr) -> Expr:
        return seen(input_ids, past_ids, missing, b, at)

    def segment(b: Expr, at: Expr) -> Expr:
        assert segment_ids is not None
        first = segment_ids.at(minimum(start(b), dim(total) - 1))
        return seen(segment_ids, past_segment_ids, first, b, at)

    def shifted(i: Sequence[Expr], k: int) -> Expr:
        b = t.checked_index(owner.at(*i), batch)
        at = t.checked_index(place.at(*i), total)
        cut: Expr = const(0, BOOL)
        for j in range(1, k + 1):
            if end is not None and reset_on_eos:
                cut = cut | (token(b, at - j) == end)
            if segment_ids is not None:
                cut = cut | (segment(b, at - j + 1) != segment(b, at - j))
        return select(cut, missing, token(b, at - k))

    def last(of: Callable[[Expr, Expr], Expr]) -> Tensor:
        return t.compute((batch, before), lambda b, j: of(b, start(b + 1) - start(b) - before + j))

    def state(b: Expr, n: Expr, j: Expr) -> Expr:
        assert capture_count is not None
        exists = (n < capture_count.at(b)) & (n < start(b + 1) - start(b))
        return select(exists, token(b, n + 1 - before + j), const(pad_id, input_ids.dtype))

    states = (batch, state_update_capacity, before)
    return [
        heads.of(t, (total,), shifted), last(token), None if segment_ids is None else last(segment),
        t.compute(states, state) if state_update_capacity else t.fill(states, 0, input_ids.dtype),
    ]  # fmt: skip


@op("WordConvEmbedding", domain=MICROSOFT)
def word_conv_embedding(
    t: Tracer, words: Tensor, w: Tensor, b: Tensor, letters: Tensor,
    *, char_embedding_size: int | None = None, conv_window_size: int | None = None, embedding_size: int | None = None,
) -> Tensor:  # fmt: skip
    """max over windows of tanh(w · embeddings of the window's letters + b). Letters are the nonzero entries of a word,
    and windows end within them; a word that begins with 0 gives 0. Shapes: words (N, L), w (F, 1, K, E), b (F), letters
    (C, E)
    -> (N, F)"""
    filters, _, window, size = w.shape
    for attribute, dimension in ((char_embedding_size, size), (conv_window_size, window), (embedding_size, filters)):
        if attribute is not None:
            t.require_equal(attribute, dimension, "an attribute differs from the shape of the weights")
    t.require_shape("b", b, (filters,))
    t.require_equal(letters.shape[1], size, "embeddings of letters and filters differ in width")
    count, length = words.shape
    t.require(length - window >= 0, "the window is longer than a word")
    places = length - window + 1
    embedded = gather(t, letters, words)
    windows = t.compute((count, places, window, size), lambda n, p, k, e: embedded.at(n, p + k, e))
    rows = t.reshape(windows, (count, places, window * size))
    products = matmul(t, rows, t.transpose(t.reshape(w, (filters, window * size)), (1, 0)))
    used = t.reduce_compute("sum", (count,), (length,), lambda n, i: cast(words.at(n, i) > 0, I32))

    def best(n: Expr, f: Expr, p: Expr) -> Expr:
        return select((p == 0) | (p + dim(window) <= used.at(n)), products.at(n, p, f), -math.inf)

    most = t.reduce_compute("max", (count, filters), (places,), best)
    return t.compute((count, filters), lambda n, f: select(words.at(n, 0) > 0, tanh(most.at(n, f) + b.at(f)), 0.0))
