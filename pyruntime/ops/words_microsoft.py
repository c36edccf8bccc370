"""ONNX Runtime's operators that embed words by their letters, and hash runs of tokens for tables of embeddings.

Letters: B batch, S sequence, H hashes of a token, N words, L letters, E embedding, K window, F filters."""

from __future__ import annotations

import math

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import BOOL, I32
from pyruntime.ir.expr import Expr, cast, const, dim, maximum, minimum, select, tanh
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.index import gather
from pyruntime.ops.matmul import matmul
from pyruntime.ops.qlinear import MICROSOFT


@op("NGramHashMapping", domain=MICROSOFT)
def ngram_hash_mapping(
    t: Tracer, input_ids: Tensor, multipliers: Tensor, vocab_sizes: Tensor, past_ids: Tensor | None = None,
    head_offsets: Tensor | None = None, eos_token_id: Tensor | None = None, segment_ids: Tensor | None = None,
    *, max_ngram_size: int, n_head_per_ngram: int, pad_id: int, reset_on_eos: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """For n = 2 … max_ngram_size: x₀·m₀ ^ … ^ xₙ₋₁·mₙ₋₁, modulo the size of each of its heads, where xₖ is the token k
    places before; and the last tokens, for the next call. Before the beginning, an end of text (if reset_on_eos) and a
    change of segment stands pad_id, or eos_token_id where it is given.
    Shapes: input_ids (B, S), multipliers (≥ n), vocab_sizes (H), past_ids (B, n - 1) -> (B, S, H), (B, n - 1)"""
    if max_ngram_size < 2 or n_head_per_ngram < 1:
        raise t.shape_error(
            f"max_ngram_size {max_ngram_size} is below 2, or n_head_per_ngram {n_head_per_ngram} below 1"
        )
    batch, length = input_ids.shape
    before = max_ngram_size - 1
    t.require_equal(vocab_sizes.shape[0], before * n_head_per_ngram, "vocab_sizes is not one for each head")
    end = None if eos_token_id is None else t.reshape(eos_token_id, ()).at()
    missing: Expr = const(pad_id, input_ids.dtype) if end is None else end
    past = t.compute((batch, before), lambda b, k: missing, input_ids.dtype) if past_ids is None else past_ids
    t.require_equal(past.shape[1], before, "past_ids is not max_ngram_size - 1 long")
    tokens = t.concat([past, input_ids], 1)

    def shifted(b: Expr, s: Expr, k: int) -> Expr:
        """The token k places before, if nothing lies between."""
        cut: Expr = const(0, BOOL)
        for j in range(1, k + 1):
            if end is not None and reset_on_eos:
                cut = cut | (tokens.at(b, s + (before - j)) == end)
            if segment_ids is not None:
                here, there = maximum(s - (j - 1), 0), maximum(s - j, 0)
                cut = cut | (segment_ids.at(b, here) != segment_ids.at(b, there))
        return select(cut, missing, tokens.at(b, s + (before - k)))

    def hashes(n: int) -> Tensor:
        def body(b: Expr, s: Expr, head: Expr) -> Expr:
            mixed = shifted(b, s, 0) * multipliers.at(0)
            for k in range(1, n):
                mixed = mixed ^ (shifted(b, s, k) * multipliers.at(k))
            h = head + (n - 2) * n_head_per_ngram
            size = vocab_sizes.at(h + t.checked_index(cast(minimum(vocab_sizes.at(h), 1), I32) - 1, 1))
            return mixed % size + (0 if head_offsets is None else head_offsets.at(h))

        return t.compute((batch, length, n_head_per_ngram), body, input_ids.dtype)

    found = t.concat([hashes(n) for n in range(2, max_ngram_size + 1)], 2)
    return found, t.slice(tokens, 1, length, before)


@op("WordConvEmbedding", domain=MICROSOFT)
def word_conv_embedding(
    t: Tracer, words: Tensor, w: Tensor, b: Tensor, letters: Tensor,
    *, char_embedding_size: int | None = None, conv_window_size: int | None = None, embedding_size: int | None = None,
) -> Tensor:  # fmt: skip
    """max over windows of tanh(w · embeddings of its letters + b), over as many letters as the word has that are not 0;
    0 for a word that begins with 0. Shapes: words (N, L), w (F, 1, K, E), b (F), letters (C, E) -> (N, F)"""
    filters, _, window, size = w.shape
    for given, found in ((char_embedding_size, size), (conv_window_size, window), (embedding_size, filters)):
        if given is not None:
            t.require_equal(given, found, "an attribute differs from the shape of the weights")
    t.require_equal(letters.shape[1], size, "embeddings of letters and filters differ in length")
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
