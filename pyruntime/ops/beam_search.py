"""BeamSearch of ONNX Runtime, with the letters of `generation`; W beams of an item, N sequences of an item that come
out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, exp, log, maximum, power, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.control import iterate
from pyruntime.ops.encoder_decoder import check_encoder, encoded, repeated
from pyruntime.ops.generation import Rules, call, check_decoder, counted, prompt, started
from pyruntime.ops.sort import top_k

NEVER = -1e9  # the score of all but the first beam of an item, which are its copies in the beginning


@dataclass(frozen=True, slots=True)
class Found:
    """The best ended sequences of each item, best first: (B, W, L), their numbers of tokens and scores (B, W), how many
    there are and whether the item is done (B,)."""

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    used: Tensor
    done: Tensor

    def parts(self) -> list[Tensor]:
        return [self.tokens, self.lengths, self.scores, self.used, self.done]


@op("BeamSearch", domain="com.microsoft")
def beam_search(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None, num_beams: Tensor,
    num_return_sequences: Tensor, length_penalty: Tensor | None = None, repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None, prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None, logits_processor: Tensor | None = None, *, decoder: Any,
    decoder_start_token_id: int = -1, early_stopping: int = 0, encoder: Any = None, eos_token_id: int,
    init_decoder: Any = None, model_type: int = 0, no_repeat_ngram_size: int = 0, pad_token_id: int,
    vocab_size: int = -1,
) -> list[Tensor]:  # fmt: skip
    """The W likeliest sequences go on with their 2·W likeliest tokens, until as many have ended, or have L = max_length
    tokens. model_type 0: a decoder alone, which goes on from the prompt; 1: an encoder of it and a decoder.
    Shapes: input_ids and attention_mask (B, S) int32 -> the N best (B, N, L), their scores (B, N): the sum of
    logarithms of probabilities over length^length_penalty."""
    if model_type == 1:
        check_encoder(t, encoder, decoder)
    else:
        check_decoder(t, decoder, model_type)
    if decoder_input_ids is not None or logits_processor is not None or any(t.wanted[2:]):
        raise t.unsupported("decoder_input_ids, logits_processor and the output scores are not implemented")
    places, beams, kept = (t.ints(t.reshape(x, ()), 1)[0] for x in (max_length, num_beams, num_return_sequences))
    t.require(sh.compare("le", kept, beams), f"{kept} sequences of {beams} beams are asked for")
    items = input_ids.shape[0]
    rows = items * beams
    first: Any
    if model_type == 1:
        said, first = encoded(
            t, encoder, decoder, input_ids, attention_mask, pad_token_id, decoder_start_token_id, beams, vocab_size
        )
        ids = first.ids
    else:
        ids, mask = (None if x is None else repeated(t, x, beams) for x in (input_ids, attention_mask))
        assert ids is not None
        first = prompt(t, ids, mask, pad_token_id, decoder)
        said = call(t, init_decoder or decoder, first, vocab_size)
    tokens = ids.shape[1]
    rules = Rules(
        eos_token_id, repetition_penalty, no_repeat_ngram_size, vocab_mask, prefix_vocab_mask, min_length, beams
    )
    search = _Search(t, items, beams, places, eos_token_id, pad_token_id, length_penalty, bool(early_stopping))

    def step(n: Tensor | None, said: Any, feeds: Any, sequences: Tensor, scores: Tensor, found: Found) -> list[Any]:
        logits, present = said
        count = counted(t, n, tokens)
        ruled = rules.applied(t, _log_softmax(t, logits), sequences, count, n is None)
        scores, token, source, found = search.chosen(ruled, sequences, scores, count, found)

        def grown(r: Expr, j: Expr) -> Expr:
            return select(j == count.at(), token.at(r), sequences.at(t.checked_index(source.at(r), rows), j))

        after = feeds.after(t, token, present, source)
        return [t.compute(sequences.shape, grown), scores, *found.parts(), *after.state()]

    def going(done: Tensor) -> Tensor:
        return t.map(X == 0, t.reduce("min", done, [0], keepdims=False))

    def body(n: Tensor, carried: list[Any]) -> tuple[Tensor, list[Any], list[Any]]:
        sequences, scores, *rest = carried
        feeds = first.again(t, rest[5:])
        values = step(n, call(t, decoder, feeds, vocab_size), feeds, sequences, scores, Found(*rest[:5]))
        return going(values[6]), values, []

    begun = started(t, ids, places, pad_token_id)
    likely = t.compute((rows,), lambda r: select(r - r / dim(beams) * dim(beams) == 0, const(0.0, F32), NEVER))
    carried = step(None, said, first, begun, likely, search.nothing())
    trip = t.reshape(t.dims([places - tokens - 1]), ())
    sequences, scores, *rest = iterate(t, trip, going(carried[6]), list(carried), body)
    return search.finished(sequences, scores, Found(*rest[:5]), kept)


def _log_softmax(t: Tracer, x: Tensor) -> Tensor:
    peak = t.reduce("max", x, [1])
    total = t.reduce("sum", t.map(exp(X - Y), x, peak), [1])
    return t.map(X - Y, x, t.map(X + log(Y), peak, total))


@dataclass(frozen=True, slots=True)
class _Search:
    """The bookkeeping of beams."""

    t: Tracer
    items: AnyDim
    beams: AnyDim
    places: AnyDim
    eos: int
    pad: int
    penalty: Tensor | None
    early: bool

    def nothing(self) -> Found:
        """Before anything was found."""
        several = (self.items, self.beams)
        kinds = (((*several, self.places), I32), (several, I32), (several, F32), (several[:1], I32), (several[:1], I32))
        return Found(*[self.t.fill(shape, 0, dtype) for shape, dtype in kinds])

    def chosen(
        self, ruled: Tensor, sequences: Tensor, scores: Tensor, count: Tensor, found: Found
    ) -> tuple[Tensor, Tensor, Tensor, Found]:
        """The beams that go on, (R,) each: their scores, tokens, and the rows that they come from; what is found."""
        t, width = self.t, ruled.shape[1]
        total = t.compute(ruled.shape, lambda r, v: ruled.at(r, v) + scores.at(r))
        flat = t.reshape(total, (self.items, self.beams * width))
        best, where = top_k(t, flat, self.beams * 2, 1, True)
        several = (self.items, self.beams)

        def body(k: Builder, score: Tensor, token: Tensor, source: Tensor, *parts: Tensor) -> None:
            now = Found(*parts)
            with k.parallel(dim(self.items)) as b:
                self._copy(k, b, found, now)
                with k.loop(dim(self.beams)) as w:
                    k.store(score, (b, w), const(0.0, F32))
                    k.store(token, (b, w), const(self.pad, I32))
                    k.store(source, (b, w), b * dim(self.beams))
                with k.when(now.done.at(b) == 0):
                    self._choose(k, b, (best, where), (score, token, source), sequences, count, now, width)

        shapes = [(several, F32), (several, I32), (several, I32), *[(x.shape, x.dtype) for x in found.parts()]]
        given = [best, where, sequences, count, *found.parts(), *([] if self.penalty is None else [self.penalty])]
        score, token, source, *parts = t.loops("beams_chosen", given, shapes, body)
        rows = (self.items * self.beams,)
        return t.reshape(score, rows), t.reshape(token, rows), t.reshape(source, rows), Found(*parts)

    def _choose(
        self, k: Builder, b: Expr, best: tuple[Tensor, Tensor], chosen: tuple[Tensor, Tensor, Tensor],
        sequences: Tensor, count: Tensor, now: Found, width: AnyDim,
    ) -> None:  # fmt: skip
        """Of the 2·W best tokens of an item, W that do not end their sequence; those that do, among the first W."""
        filled, length = k.var(0, I32), k.let(count.at())
        with k.loop(dim(self.beams * 2)) as j:
            with k.when(filled.get < dim(self.beams)):
                place = k.let(cast(best[1].at(b, j), I32))
                row, score = k.let(b * dim(self.beams) + place / dim(width)), k.let(best[0].at(b, j))
                token = k.let(place - place / dim(width) * dim(width))
                with k.when(token == self.eos):
                    with k.when(j < dim(self.beams)):
                        self._add(k, now, b, sequences, row, length, score)
                with k.otherwise():
                    at = k.let(self.t.checked_index(filled.get, self.beams))
                    for target, value in zip(chosen, (score, token, row), strict=True):
                        k.store(target, (b, at), value)
                    filled.set(filled.get + 1)
        with k.when(now.used.at(b) == dim(self.beams)):
            best_left = best[0].at(b, 0) / self._length(length)
            over = const(1, I32) if self.early else cast(now.scores.at(b, dim(self.beams) - 1) >= best_left, I32)
            k.store(now.done, (b,), over)

    def finished(self, sequences: Tensor, scores: Tensor, found: Found, kept: AnyDim) -> list[Tensor]:
        """The best of each item: where it is not done, of those found and of its beams, which have L tokens."""
        t = self.t

        def body(k: Builder, *parts: Tensor) -> None:
            now = Found(*parts)
            with k.parallel(dim(self.items)) as b:
                self._copy(k, b, found, now)
                with k.when(now.done.at(b) == 0):
                    with k.loop(dim(self.beams)) as w:
                        row = k.let(b * dim(self.beams) + w)
                        self._add(k, now, b, sequences, row, dim(self.places), k.let(scores.at(row)))

        given = [sequences, scores, *found.parts(), *([] if self.penalty is None else [self.penalty])]
        last = Found(*t.loops("beams_finished", given, [(x.shape, x.dtype) for x in found.parts()], body))
        shape = (self.items, kept, self.places)

        def token(b: Expr, n: Expr, j: Expr) -> Expr:
            return select(j < last.lengths.at(b, n), last.tokens.at(b, n, j), self.pad)

        return [t.compute(shape, token), t.compute(shape[:2], lambda b, n: last.scores.at(b, n))]

    def _length(self, count: Expr) -> Expr:
        """What a sum of logarithms is divided by."""
        size = cast(count, F32)
        return size if self.penalty is None else power(size, cast(self.penalty.at(0), F32))

    def _copy(self, k: Builder, b: Expr, found: Found, now: Found) -> None:
        with k.loop(dim(self.beams)) as w:
            with k.loop(dim(self.places)) as j:
                k.store(now.tokens, (b, w, j), found.tokens.at(b, w, j))
            k.store(now.lengths, (b, w), found.lengths.at(b, w))
            k.store(now.scores, (b, w), found.scores.at(b, w))
        k.store(now.used, (b,), found.used.at(b))
        k.store(now.done, (b,), found.done.at(b))

    def _add(self, k: Builder, now: Found, b: Expr, sequences: Tensor, row: Expr, length: Expr, total: Expr) -> None:
        """Row `row` of the sequences among the best of item b, behind those that are as good; the worst falls out."""
        score, used = k.let(total / self._length(length)), k.let(now.used.at(b))
        last = dim(self.beams) - 1
        with k.when((used <= last) | (score > now.scores.at(b, last))):
            at = k.var(select(used <= last, used, last), I32)
            k.store(now.used, (b,), select(used <= last, used + 1, used))
            with k.while_((at.get > 0) & (score > now.scores.at(b, self._place(maximum(at.get - 1, 0))))):
                here, before = k.let(self._place(at.get)), k.let(self._place(maximum(at.get - 1, 0)))
                with k.loop(dim(self.places)) as j:
                    k.store(now.tokens, (b, here, j), now.tokens.at(b, before, j))
                k.store(now.lengths, (b, here), now.lengths.at(b, before))
                k.store(now.scores, (b, here), now.scores.at(b, before))
                at.set(at.get - 1)
            place = k.let(self._place(at.get))
            with k.loop(dim(self.places)) as j:
                k.store(now.tokens, (b, place, j), sequences.at(self.t.checked_index(row, sequences.shape[0]), j))
            k.store(now.lengths, (b, place), length)
            k.store(now.scores, (b, place), score)

    def _place(self, at: Expr) -> Expr:
        return self.t.checked_index(at, self.beams)


__all__ = ["beam_search"]
