"""BeamSearch of ONNX Runtime, with the letters of `generation`; W beams of an item, N sequences of an item that come
out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, exp, guard, log, maximum, power, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.encoder_decoder import behind_padding, check_encoder, encoded, first_tokens, repeated
from pyruntime.ops.microsoft.generation import Rules, call, check_decoder, counted, prompt, started
from pyruntime.ops.standard.control import iterate
from pyruntime.ops.standard.sort import top_k

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph

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


@op("BeamSearch", domain=MICROSOFT)
def beam_search(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None, num_beams: Tensor,
    num_return_sequences: Tensor, length_penalty: Tensor | None = None, repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None, prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None, logits_processor: Tensor | None = None, *, decoder: Graph,
    decoder_start_token_id: int = -1, early_stopping: int = 0, encoder: Graph | None = None, eos_token_id: int,
    init_decoder: Graph | None = None, model_type: int = 0, no_repeat_ngram_size: int = 0, pad_token_id: int,
    vocab_size: int = -1,
) -> list[Tensor]:  # fmt: skip
    """The W likeliest sequences go on with their 2·W likeliest tokens, until as many have ended, or have L = max_length
    tokens. model_type 0: a decoder alone, which goes on from the prompt; 1: an encoder of it and a decoder; 2: an
    encoder of features and a decoder, as WhisperBeamSearch.
    Shapes: input_ids and attention_mask (B, S) int32 -> the N best (B, N, L), their scores (B, N): the sum of
    logarithms of probabilities over length^length_penalty, and those of all tokens at each step (L - S, B, W, V)"""
    plan = Plan(
        t, max_length, num_beams, num_return_sequences, input_ids.shape[0], (init_decoder, decoder), vocab_size,
        eos_token_id, pad_token_id, length_penalty, bool(early_stopping),
    )  # fmt: skip
    rules = Rules(
        eos_token_id, repetition_penalty, no_repeat_ngram_size, vocab_mask, prefix_vocab_mask, min_length, plan.beams
    )
    if logits_processor is not None and model_type:
        raise t.unsupported("logits_processor is not implemented", "WhisperBeamSearch has one")
    if model_type == 2:
        return heard(plan, rules, encoder, input_ids, attention_mask, decoder_input_ids, decoder_start_token_id)
    if decoder_input_ids is not None:
        raise t.unsupported("decoder_input_ids is not implemented", "ONNX Runtime does not read it either")
    if model_type == 1:
        check_encoder(t, encoder, decoder, False)
        seen = behind_padding(t, input_ids, pad_token_id) if attention_mask is None else attention_mask
        start = first_tokens(t, plan.items, decoder_start_token_id)
        said, begin = encoded(t, encoder, decoder, [input_ids, seen], start, plan.beams, vocab_size)
        return plan.run(rules, said, begin, begin.ids)
    check_decoder(t, decoder, model_type)
    ids = repeated(t, input_ids, plan.beams)
    mask = None if attention_mask is None else repeated(t, attention_mask, plan.beams)
    first = prompt(t, ids, mask, pad_token_id, decoder)
    return plan.run(rules, call(t, init_decoder or decoder, first, vocab_size), first, ids)


def heard(
    plan: Plan, rules: Rules, encoder: Any, features: Tensor, mask: Tensor | None, tokens: Tensor | None, start: int
) -> list[Tensor]:
    """BeamSearch over an encoder of features (B, F, S) and a decoder like Whisper's. Sequences begin with `tokens`
    (B, T), or with the start token."""
    t, decoder = plan.t, plan.decoders[1]
    check_encoder(t, encoder, decoder, True)
    if mask is not None:
        raise t.unsupported("attention_mask is not implemented", "ONNX Runtime does not read it either")
    first = first_tokens(t, plan.items, start) if tokens is None else tokens
    t.require_equal(first.shape[0], plan.items, "decoder_input_ids are not one row an item")
    said, begin = encoded(t, encoder, decoder, [features], first, plan.beams, plan.vocabulary)
    return plan.run(rules, said, begin, begin.ids)


class Plan:
    """What a search is asked for, and the loop over its steps."""

    def __init__(
        self, t: Tracer, length: Tensor, beams: Tensor, kept: Tensor, items: AnyDim, decoders: tuple[Any, Any],
        vocabulary: int, eos: int, pad: int, penalty: Tensor | None, early: bool,
    ) -> None:  # fmt: skip
        self.t, self.items, self.decoders, self.vocabulary, self.pad = t, items, decoders, vocabulary, pad
        self.places, self.beams, self.kept = (t.ints(t.reshape(x, ()), 1)[0] for x in (length, beams, kept))
        t.require(sh.compare("le", self.kept, self.beams), f"{self.kept} sequences of {self.beams} beams are asked for")
        if any(t.wanted[3:]):
            raise t.unsupported("outputs behind the third are not implemented", "ONNX Runtime has them on GPUs only")
        self.search = _Search(t, items, self.beams, self.places, eos, pad, penalty, early)

    def run(self, rules: Rules, said: Any, first: Any, ids: Tensor) -> list[Tensor]:
        """The outputs, from what the first call said with the feeds `first`, for sequences that begin with ids."""
        t, tokens, rows, search = self.t, ids.shape[1], self.items * self.beams, self.search
        shown = len(t.wanted) > 2 and t.wanted[2]

        def step(
            n: Tensor | None, said: Any, feeds: Any, sequences: Tensor, scores: Tensor, found: Found
        ) -> tuple[list[Any], list[Tensor]]:
            logits, present = said
            count = counted(t, n, tokens)
            ruled = rules.applied(t, _log_softmax(t, logits), sequences, count, n is None)
            total = t.compute(ruled.shape, lambda r, v: ruled.at(r, v) + scores.at(r))
            scores, token, source, found = search.chosen(total, sequences, count, found)

            def grown(r: Expr, j: Expr) -> Expr:
                return select(j == count.at(), token.at(r), sequences.at(t.checked_index(source.at(r), rows), j))

            after = feeds.after(t, token, present, source)
            return [t.compute(sequences.shape, grown), scores, *found.parts(), *after.state()], [total] * shown

        def going(done: Tensor) -> Tensor:
            return t.map(X == 0, t.reduce("min", done, [0], keepdims=False))

        def body(n: Tensor, carried: list[Any]) -> tuple[Tensor, list[Any], list[Any]]:
            sequences, scores, *rest = carried
            feeds = first.again(t, rest[5:])
            said = call(t, self.decoders[1], feeds, self.vocabulary)
            values, total = step(n, said, feeds, sequences, scores, Found(*rest[:5]))
            return going(values[6]), values, total

        begun = started(t, ids, self.places, self.pad)
        beams = dim(self.beams)
        likely = t.compute((rows,), lambda r: select(r - r / beams * beams == 0, const(0.0, F32), NEVER))
        carried, total = step(None, said, first, begun, likely, search.nothing())
        trip = t.reshape(t.dims([self.places - tokens - 1]), ())
        results = iterate(t, trip, going(carried[6]), list(carried), body)
        best = search.finished(results[0], results[1], Found(*results[2:7]), self.kept)
        return [*best, self._shown(total[0], results[-1], self.places - tokens)] if shown else best

    def _shown(self, first: Tensor, others: Tensor, steps: AnyDim) -> Tensor:
        """The scores of the first call and of those that were made after it, then zeros: (steps, B, W, V)"""
        shape = (steps, self.items, self.beams, first.shape[1])

        def score(n: Expr, b: Expr, w: Expr, v: Expr) -> Expr:
            row = b * dim(self.beams) + w
            later = guard((n > 0) & (n <= dim(others.shape[0])), others.at(n - 1, row, v), 0.0)
            return select(n == 0, first.at(row, v), later)

        return self.t.compute(shape, score)


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
        self, total: Tensor, sequences: Tensor, count: Tensor, found: Found
    ) -> tuple[Tensor, Tensor, Tensor, Found]:
        """The beams that go on, (R,) each: their scores, tokens, and the rows that they come from; what is found."""
        t, width = self.t, total.shape[1]
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
                    k.store(source, (b, w), const(0, I32))  # as ONNX Runtime: of an item that is done
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


__all__ = ["Plan", "beam_search", "heard"]
