"""WhisperBeamSearch, with the letters of `generation` and `beam_search`; F features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import BOOL, F32, I32
from pyruntime.ir.expr import Expr, const, dim, exp, log, maximum, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import LOWEST
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.beam_search import Search
from pyruntime.ops.microsoft.generation import Rules

LATEST_FIRST = 50  # the first timestamp is at most this many steps after the start, as in ONNX Runtime


@op("WhisperBeamSearch", domain=MICROSOFT)
@attributes_of(Search)
def whisper_beam_search(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None, num_beams: Tensor,
    num_return_sequences: Tensor, length_penalty: Tensor | None = None, repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None, prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None, logits_processor: Tensor | None = None,
    cross_qk_layer_head: Tensor | None = None, extra_decoding_ids: Tensor | None = None,
    temperature: Tensor | None = None, *, beginning_timestamp_token_id: int = -1, decoder_output_cross_qk: int = 0,
    model_type: int = 2, no_speech_token_id: int = -1, no_timestamps_token_id: int = -1,
    start_of_lm_token_id: int = -1, transcribe_token_id: int = -1, translate_token_id: int = -1, **attributes: Any,
) -> list[Tensor]:  # fmt: skip
    """BeamSearch over audio features. logits_processor 1 applies Whisper's rules for timestamps.
    Shapes: input_ids, the features (B, F, S), decoder_input_ids (B, T) int32 -> as BeamSearch's"""
    if model_type != 2:
        raise t.unsupported(f"model_type {model_type} is not 2, Whisper's", "BeamSearch takes the others")
    if decoder_output_cross_qk or cross_qk_layer_head is not None or extra_decoding_ids is not None:
        raise t.unsupported("products of queries and keys are not implemented", "ONNX Runtime has them on GPUs only")
    search = Search(t, input_ids, max_length, num_beams, num_return_sequences, length_penalty, **attributes)
    arguments = (
        search.eos, repetition_penalty, search.ngram, vocab_mask, prefix_vocab_mask, min_length, search.beams,
        1.0 if temperature is None else temperature,
    )  # fmt: skip
    rules = Rules(*arguments)
    if logits_processor is not None and t.static(t.reshape(logits_processor, ()))[0] == 1:
        rules = _Timestamps(
            *arguments, begin=beginning_timestamp_token_id, never=(no_timestamps_token_id, start_of_lm_token_id),
            once=(search.start, translate_token_id, transcribe_token_id),
        )  # fmt: skip
    return search.run_on_features(rules, input_ids, attention_mask, decoder_input_ids)


@dataclass(frozen=True, slots=True)
class _Timestamps(Rules):
    """`Rules`, and Whisper's rules: timestamps are the tokens from `begin` on, come in pairs except for the first, and
    do not decrease. never: tokens that are never chosen; once: tokens that are not chosen after the first timestamp.
    Source: https://arxiv.org/abs/2212.04356, section 4.5"""

    begin: int = -1
    never: tuple[int, ...] = ()
    once: tuple[int, ...] = ()

    def apply(self, t: Tracer, scores: Tensor, sequences: Tensor, count: Tensor, first: bool) -> Tensor:
        ruled = Rules.apply(self, t, scores, sequences, count, first)
        rows, width = scores.shape
        if self.begin < 1 or (isinstance(width, int) and self.begin >= width):
            raise t.shape_error(f"beginning_timestamp_token_id {self.begin} is not one of {width} tokens")

        def body(k: Builder, out: Tensor) -> None:
            with k.parallel(dim(rows)) as r:
                allowed = self._allowed(k, r, sequences, count)
                with k.loop(dim(width)) as v:
                    k.store(out, (r, v), select(allowed(v), ruled.at(r, v), LOWEST))
                self._prefer(k, r, out)

        return t.loops("timestamps", [ruled, sequences, count], [(ruled.shape, F32)], body)[0]

    def _allowed(self, k: Builder, r: Expr, sequences: Tensor, count: Tensor) -> Any:
        """A function that tells whether a token may follow the sequence of row r."""
        length, latest = k.let(count.at()), k.var(-1, I32)
        opened = k.var(0, I32)  # number of tokens up to the first timestamp
        with k.loop(length) as j:
            token = k.let(sequences.at(r, j))
            opened.set(select(latest.get < 0, j + 1, opened.get))
            latest.set(select(token >= self.begin, token, latest.get))
        has_text = k.let(length > opened.get)
        last = k.let(sequences.at(r, maximum(length - 1, 0)) >= self.begin)
        before = k.let(~has_text | (sequences.at(r, maximum(length - 2, 0)) >= self.begin))
        lowest = k.let(select(latest.get < 0, self.begin, select(last & ~before, latest.get, latest.get + 1)))

        def allowed(v: Expr) -> Expr:
            refused: Expr = const(0, BOOL)
            for token in self.never:
                refused = refused | (v == token)
            for token in self.once:
                refused = refused | (has_text & (v == token))
            stamp = v >= self.begin
            refused = refused | (last & select(before, stamp, v < self.eos)) | (stamp & (v < lowest))
            return ~(refused | (~has_text & (v > self.begin + LATEST_FIRST)))

        return allowed

    def _prefer(self, k: Builder, r: Expr, out: Tensor) -> None:
        """Force a timestamp if all timestamps together are likelier than the likeliest other token."""
        width = dim(out.shape[1])
        text, peak, total = k.var(LOWEST, F32), k.var(LOWEST, F32), k.var(0.0, F32)
        with k.loop(width) as v:
            score = k.let(out.at(r, v))
            text.set(select((v < self.begin) & (score > text.get), score, text.get))
            peak.set(select((v >= self.begin) & (score > peak.get), score, peak.get))
        with k.loop(width - self.begin) as n:
            score = k.let(out.at(r, n + self.begin))
            total.set(total.get + select(score > LOWEST, exp(score - peak.get), const(0.0, F32)))
        with k.when((total.get > 0.0) & (log(total.get) + peak.get > text.get)):
            with k.loop(self.begin) as v:
                k.store(out, (r, v), const(LOWEST, F32))
