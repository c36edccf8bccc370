"""BeamSearch, with the letters of `generation`; B items of the batch, W beams per item, N sequences returned per
item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, cast, const, dim, guard, maximum, power, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.encoder_decoder import (
    EncoderDecoderFeeds,
    check_encoder,
    encode,
    leading_padding_mask,
    per_beam,
    start_tokens,
)
from pyruntime.ops.microsoft.generation import Rules, call, check_decoder, generate, prompt
from pyruntime.ops.standard.reduce import log_softmax_of
from pyruntime.ops.standard.sort import top_k

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph

COPY_SCORE = -1e9  # the first score of all beams but the first, so that copies of the prompt do not compete


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """The best ended sequences of each item, best first: tokens (B, W, L), numbers of tokens and scores (B, W), the
    number of sequences and whether the item is done (B,)."""

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    used: Tensor
    done: Tensor

    def parts(self) -> list[Tensor]:
        return [self.tokens, self.lengths, self.scores, self.used, self.done]


class Search:
    """The parameters of a search (inputs and attributes of the operators), and the bookkeeping of its beams."""

    def __init__(
        self, t: Tracer, ids: Tensor, length: Tensor, beams: Tensor, returned: Tensor, penalty: Tensor | None, *,
        decoder: Graph, decoder_start_token_id: int = -1, early_stopping: int = 0, encoder: Graph | None = None,
        eos_token_id: int, init_decoder: Graph | None = None, no_repeat_ngram_size: int = 0, pad_token_id: int,
        vocab_size: int = -1,
    ) -> None:  # fmt: skip
        self.t, self.items, self.penalty, self.early = t, ids.shape[0], penalty, bool(early_stopping)
        self.decoder, self.encoder, self.init_decoder = decoder, encoder, init_decoder
        self.start, self.eos, self.pad = decoder_start_token_id, eos_token_id, pad_token_id
        self.ngram, self.vocabulary = no_repeat_ngram_size, vocab_size
        self.places, self.beams, self.returned = (t.ints(t.reshape(x, ()), 1)[0] for x in (length, beams, returned))
        t.require(
            sh.compare("le", self.returned, self.beams),
            f"num_return_sequences {self.returned} exceeds num_beams {self.beams}",
        )
        if any(t.wanted[3:]):
            raise t.unsupported("outputs after the third are not implemented", "ONNX Runtime has them on GPUs only")

    def encoded(self, inputs: list[Tensor], start: Tensor) -> tuple[tuple[Tensor, list[Tensor]], EncoderDecoderFeeds]:
        """`encode` by this search's models."""
        return encode(self.t, self.encoder, self.decoder, inputs, start, self.beams, self.vocabulary)

    def run_on_features(
        self, rules: Rules, features: Tensor, mask: Tensor | None, tokens: Tensor | None
    ) -> list[Tensor]:
        """`run` over an encoder of features (B, F, S) and a decoder like Whisper's. Sequences begin with `tokens`
        (B, T), or with the start token."""
        t = self.t
        check_encoder(t, self.encoder, self.decoder, True)
        if mask is not None:
            raise t.unsupported("attention_mask is not implemented", "ONNX Runtime does not read it either")
        ids = start_tokens(t, self.items, self.start) if tokens is None else tokens
        t.require_equal(ids.shape[0], self.items, "decoder_input_ids must have one row per item")
        result, first = self.encoded([features], ids)
        return self.run(rules, result, first, first.ids)

    def run(self, rules: Rules, result: tuple[Tensor, list[Tensor]], first: Any, ids: Tensor) -> list[Tensor]:
        """The outputs of the operator. `first` and `result` are the feeds and the result of the first call; sequences
        begin with ids (B·W, T)."""
        t, tokens, rows = self.t, ids.shape[1], self.items * self.beams
        returns_scores = len(t.wanted) > 2 and t.wanted[2]

        def choose(
            logits: Tensor, sequences: Tensor, count: Tensor, is_first: bool, state: list[Tensor]
        ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
            scores, *ended = state
            ruled = rules.apply(t, log_softmax_of(t, logits, [1]), sequences, count, is_first)
            total = t.compute(ruled.shape, lambda r, v: ruled.at(r, v) + scores.at(r))
            scores, token, source, hypotheses = self._next_beams(total, sequences, count, Hypotheses(*ended))
            return token, source, [scores, *hypotheses.parts()], [total] * returns_scores

        beams = dim(self.beams)
        scores = t.compute((rows,), lambda r: select(r - r / beams * beams == 0, const(0.0, F32), COPY_SCORE))
        total, results = generate(
            t, self.decoder, self.vocabulary, first, result, ids, self.places, self.pad,
            [scores, *self._no_hypotheses().parts()], 5, choose,
        )  # fmt: skip
        best = self._finished(results[0], results[1], Hypotheses(*results[2:7]))
        return [*best, self._scores(total[0], results[-1], self.places - tokens)] if returns_scores else best

    def _scores(self, first: Tensor, others: Tensor, steps: AnyDim) -> Tensor:
        """The scores of the first call and of the calls after it, then zeros: (steps, B, W, V)"""
        shape = (steps, self.items, self.beams, first.shape[1])

        def score(n: Expr, b: Expr, w: Expr, v: Expr) -> Expr:
            row = b * dim(self.beams) + w
            later = guard((n > 0) & (n <= dim(others.shape[0])), others.at(n - 1, row, v), 0.0)
            return select(n == 0, first.at(row, v), later)

        return self.t.compute(shape, score)

    def _no_hypotheses(self) -> Hypotheses:
        several = (self.items, self.beams)
        kinds = (((*several, self.places), I32), (several, I32), (several, F32), (several[:1], I32), (several[:1], I32))
        return Hypotheses(*[self.t.fill(shape, 0, dtype) for shape, dtype in kinds])

    def _next_beams(
        self, total: Tensor, sequences: Tensor, count: Tensor, hypotheses: Hypotheses
    ) -> tuple[Tensor, Tensor, Tensor, Hypotheses]:
        """The scores, the tokens and the continued rows of the next step's beams, (R,) each; and the hypotheses, with
        the sequences that end in this step."""
        t, width = self.t, total.shape[1]
        flat = t.reshape(total, (self.items, self.beams * width))
        best, where = top_k(t, flat, self.beams * 2, 1, True)
        several = (self.items, self.beams)

        def body(k: Builder, score: Tensor, token: Tensor, source: Tensor, *parts: Tensor) -> None:
            now = Hypotheses(*parts)
            with k.parallel(dim(self.items)) as b:
                self._copy(k, b, hypotheses, now)
                with k.loop(dim(self.beams)) as w:
                    k.store(score, (b, w), const(0.0, F32))
                    k.store(token, (b, w), const(self.pad, I32))
                    k.store(source, (b, w), const(0, I32))  # ONNX Runtime's choice for items that are done
                with k.when(now.done.at(b) == 0):
                    self._choose(k, b, (best, where), (score, token, source), sequences, count, now, width)

        shapes = [(several, F32), (several, I32), (several, I32), *[(x.shape, x.dtype) for x in hypotheses.parts()]]
        inputs = [best, where, sequences, count, *hypotheses.parts(), *([] if self.penalty is None else [self.penalty])]
        score, token, source, *parts = t.loops("beams_chosen", inputs, shapes, body)
        rows = (self.items * self.beams,)
        return t.reshape(score, rows), t.reshape(token, rows), t.reshape(source, rows), Hypotheses(*parts)

    def _choose(
        self, k: Builder, b: Expr, best: tuple[Tensor, Tensor], chosen: tuple[Tensor, Tensor, Tensor],
        sequences: Tensor, count: Tensor, now: Hypotheses, width: AnyDim,
    ) -> None:  # fmt: skip
        """Take W tokens that do not end their sequence from the 2·W best of an item. Sequences that end with one of the
        W best tokens become hypotheses."""
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

    def _finished(self, sequences: Tensor, scores: Tensor, hypotheses: Hypotheses) -> list[Tensor]:
        """The best sequences of each item and their scores. The beams of an item that is not done, which have L tokens,
        compete with its hypotheses."""
        t = self.t

        def body(k: Builder, *parts: Tensor) -> None:
            now = Hypotheses(*parts)
            with k.parallel(dim(self.items)) as b:
                self._copy(k, b, hypotheses, now)
                with k.when(now.done.at(b) == 0):
                    with k.loop(dim(self.beams)) as w:
                        row = k.let(b * dim(self.beams) + w)
                        self._add(k, now, b, sequences, row, dim(self.places), k.let(scores.at(row)))

        inputs = [sequences, scores, *hypotheses.parts(), *([] if self.penalty is None else [self.penalty])]
        last = Hypotheses(*t.loops("beams_finished", inputs, [(x.shape, x.dtype) for x in hypotheses.parts()], body))
        shape = (self.items, self.returned, self.places)

        def token(b: Expr, n: Expr, j: Expr) -> Expr:
            return select(j < last.lengths.at(b, n), last.tokens.at(b, n, j), self.pad)

        return [t.compute(shape, token), t.compute(shape[:2], lambda b, n: last.scores.at(b, n))]

    def _length(self, count: Expr) -> Expr:
        """The divisor of a sum of log probabilities: count^length_penalty."""
        size = cast(count, F32)
        return size if self.penalty is None else power(size, cast(self.penalty.at(0), F32))

    def _copy(self, k: Builder, b: Expr, hypotheses: Hypotheses, now: Hypotheses) -> None:
        with k.loop(dim(self.beams)) as w:
            with k.loop(dim(self.places)) as j:
                k.store(now.tokens, (b, w, j), hypotheses.tokens.at(b, w, j))
            k.store(now.lengths, (b, w), hypotheses.lengths.at(b, w))
            k.store(now.scores, (b, w), hypotheses.scores.at(b, w))
        k.store(now.used, (b,), hypotheses.used.at(b))
        k.store(now.done, (b,), hypotheses.done.at(b))

    def _add(
        self, k: Builder, now: Hypotheses, b: Expr, sequences: Tensor, row: Expr, length: Expr, total: Expr
    ) -> None:
        """Insert row `row` of the sequences into the hypotheses of item b, sorted by score; ties keep their order, and
        the worst hypothesis drops out if there are more than W."""
        score, used = k.let(total / self._length(length)), k.let(now.used.at(b))
        last = dim(self.beams) - 1
        with k.when((used <= last) | (score > now.scores.at(b, last))):
            at = k.var(select(used <= last, used, last), I32)
            k.store(now.used, (b,), select(used <= last, used + 1, used))
            with k.while_((at.get > 0) & (score > now.scores.at(b, self._place(maximum(at.get - 1, 0))))):
                lower, before = k.let(self._place(at.get)), k.let(self._place(maximum(at.get - 1, 0)))
                with k.loop(dim(self.places)) as j:
                    k.store(now.tokens, (b, lower, j), now.tokens.at(b, before, j))
                k.store(now.lengths, (b, lower), now.lengths.at(b, before))
                k.store(now.scores, (b, lower), now.scores.at(b, before))
                at.set(at.get - 1)
            place = k.let(self._place(at.get))
            with k.loop(dim(self.places)) as j:
                k.store(now.tokens, (b, place, j), sequences.at(self.t.checked_index(row, sequences.shape[0]), j))
            k.store(now.lengths, (b, place), length)
            k.store(now.scores, (b, place), score)

    def _place(self, at: Expr) -> Expr:
        return self.t.checked_index(at, self.beams)


@op("BeamSearch", domain=MICROSOFT)
@attributes_of(Search)
def beam_search(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None, num_beams: Tensor,
    num_return_sequences: Tensor, length_penalty: Tensor | None = None, repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None, prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None, logits_processor: Tensor | None = None, *, model_type: int = 0,
    **attributes: Any,
) -> list[Tensor]:  # fmt: skip
    """Each step extends the W best sequences of an item by their 2·W likeliest tokens, until W sequences have ended or
    have L = max_length tokens. model_type 0: a decoder alone, which continues the prompt; 1: an encoder of the prompt
    and a decoder; 2: an encoder of features and a decoder, as WhisperBeamSearch.
    Shapes: input_ids and attention_mask (B, S) int32 -> the N best sequences (B, N, L), their scores (B, N): the sum of
    log probabilities over length^length_penalty; and the scores of all tokens at each step (L - S, B, W, V)"""
    search = Search(t, input_ids, max_length, num_beams, num_return_sequences, length_penalty, **attributes)
    rules = Rules(search.eos, repetition_penalty, search.ngram, vocab_mask, prefix_vocab_mask, min_length, search.beams)
    if logits_processor is not None and model_type:
        raise t.unsupported("logits_processor is not implemented", "WhisperBeamSearch has one")
    if model_type == 2:
        return search.run_on_features(rules, input_ids, attention_mask, decoder_input_ids)
    if decoder_input_ids is not None:
        raise t.unsupported("decoder_input_ids is not implemented", "ONNX Runtime does not read it either")
    if model_type == 1:
        check_encoder(t, search.encoder, search.decoder, False)
        seen = leading_padding_mask(t, input_ids, search.pad) if attention_mask is None else attention_mask
        result, first = search.encoded([input_ids, seen], start_tokens(t, search.items, search.start))
        return search.run(rules, result, first, first.ids)
    check_decoder(t, search.decoder, model_type)
    ids = per_beam(t, input_ids, search.beams)
    mask = None if attention_mask is None else per_beam(t, attention_mask, search.beams)
    feeds = prompt(t, ids, mask, search.pad, search.decoder)
    return search.run(rules, call(t, search.init_decoder or search.decoder, feeds, search.vocabulary), feeds, ids)
