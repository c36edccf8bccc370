"""What GreedySearch, Sampling and BeamSearch of ONNX Runtime share: a decoder like GPT-2's, called for one more token
at a time.

Letters: R rows (items of the batch, or beams of each), S tokens of the prompt, T tokens so far, L places of a sequence,
V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, cast, const, dim, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import LOWEST

_INPUTS = ("input_ids", "position_ids", "attention_mask")


@dataclass(frozen=True, slots=True)
class Feeds:
    """Of one call: ids and positions (R, s), mask (R, T), each past (2, R, heads, T - s, size); `next`: the position
    (R, 1) of the call after it."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    past: Sequence[Tensor]
    next: Tensor

    def inputs(self) -> list[Tensor]:
        return [self.ids, self.positions, self.mask, *self.past]

    def state(self) -> list[Tensor]:
        """What changes from call to call."""
        return self.inputs()

    def again(self, t: Tracer, state: Sequence[Tensor]) -> Feeds:
        """With another state."""
        ids, positions, mask, *past = state
        return feeds_of(t, ids, positions, mask, past)

    def after(self, t: Tracer, token: Tensor, present: Sequence[Tensor], source: Tensor | None = None) -> Feeds:
        """Of the call for the token (R,) that was chosen; row r goes on from row source[r]."""
        rows = token.shape[0]
        mask = t.concat([self.mask, t.fill((rows, 1), 1, I32)], 1)
        past = [present_of(t, x, source) for x in present]
        return feeds_of(t, t.reshape(token, (rows, 1)), self.next, mask, past)


def feeds_of(t: Tracer, ids: Tensor, positions: Tensor, mask: Tensor, past: Sequence[Tensor]) -> Feeds:
    """Of a call for one token a row."""
    return Feeds(ids, positions, mask, past, t.compute(positions.shape, lambda r, s: positions.at(r, s) + 1))


def present_of(t: Tracer, x: Tensor, source: Tensor | None) -> Tensor:
    """(2, R, heads, T, size) with the rows in another order."""
    if source is None:
        return x
    rows = x.shape[1]
    return t.compute(x.shape, lambda kv, r, h, i, d: x.at(kv, t.checked_index(source.at(r), rows), h, i, d), x.dtype)


def prompt(t: Tracer, ids: Tensor, mask: Tensor | None, pad: int, decoder: Any) -> Feeds:
    """Of the first call. Positions count tokens that are not `pad`, which are left out unless there is a mask."""
    rows, tokens = ids.shape
    seen = t.compute(ids.shape, lambda r, s: cast(ids.at(r, s) != pad, I32))

    def before(r: Expr, s: Expr, other: Expr) -> Expr:
        return select(other < s, seen.at(r, s) * seen.at(r, other), 0)

    positions = t.reduce_compute("sum", ids.shape, (tokens,), before)
    past = [_empty(t, v.name, v.type, rows) for v in decoder.inputs[3:]]
    return Feeds(ids, positions, seen if mask is None else mask, past, t.reduce("sum", seen, [1]))


def _empty(t: Tracer, name: str, kind: Any, rows: AnyDim) -> Tensor:
    """No past keys and values."""
    shape = getattr(kind, "shape", None)
    heads, size = (shape[2], shape[4]) if shape is not None and len(shape) == 5 else (None, None)
    if not isinstance(heads, int) or not isinstance(size, int) or kind.dtype is None:
        raise t.unsupported(f'the decoder\'s input "{name}" is no past of known heads and size')
    return t.fill((2, rows, heads, 0, size), 0.0, kind.dtype)


def check_decoder(t: Tracer, decoder: Any, model_type: int) -> None:
    """Refuse what is not a decoder like GPT-2's."""
    if model_type != 0:
        raise t.unsupported(f"model_type {model_type} is not implemented, only 0 (a decoder alone)")
    names = [v.name for v in decoder.inputs]
    extra = [n for n in names[3:] if not n.startswith("past_") or n == "past_sequence_length"]
    if len(names) < 4 or extra or len(decoder.outputs) != len(names) - 2:
        text = f"a decoder with the inputs {', '.join(names)} is not implemented"
        raise t.unsupported(text, f"it takes {', '.join(_INPUTS)} and past_0, …; gives logits and present_0, …")


def call(t: Tracer, decoder: Any, feeds: Any, vocabulary: int) -> tuple[Tensor, list[Tensor]]:
    """The logits of the last token, (R, V) float32, and the present keys and values."""
    logits, *present = t.subgraph(decoder, feeds.inputs())
    return last_scores(t, logits, vocabulary), present


def last_scores(t: Tracer, logits: Tensor, vocabulary: int) -> Tensor:
    """Those of the last token, float32. Shapes: (R, s, V) -> (R, V)"""
    rows, tokens, width = logits.shape
    if vocabulary > 0:
        t.require(sh.compare("le", vocabulary, width), f"vocab_size {vocabulary} is more than the decoder's {width}")
        width = vocabulary
    return t.compute((rows, width), lambda r, v: cast(logits.at(r, dim(tokens) - 1, v), F32))


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Rules:
    """What changes scores before a token is chosen, in ONNX Runtime's order. beams: rows of an item."""

    eos: int
    repetition: Tensor | None
    ngram: int
    vocabulary: Tensor | None
    prefix: Tensor | None
    shortest: Tensor | None
    beams: AnyDim = 1
    temperature: float | Tensor = 1.0
    present: Tensor | None = None  # tokens that lose `penalty` (R, V)
    penalty: float = 0.0

    def applied(self, t: Tracer, scores: Tensor, sequences: Tensor, count: Tensor, first: bool) -> Tensor:
        """scores (R, V); the first `count` places of sequences (R, L) are tokens."""
        marks = _marks(t, sequences, count, scores.shape[1], self.ngram)
        if self.prefix is not None:
            t.require_equal(self.prefix.shape[1], scores.shape[1], "prefix_vocab_mask and the vocabulary differ")
            masked = self.prefix.shape[0] * self.beams
            t.require_equal(masked, scores.shape[0], "prefix_vocab_mask is not a row an item")
        if self.present is not None:
            t.require_equal(self.present.shape[0], scores.shape[0], "presence_mask is not a row an item")
            t.require_equal(self.present.shape[1], scores.shape[1], "presence_mask and the vocabulary differ")
        if self.vocabulary is not None:
            t.require_equal(self.vocabulary.shape[0], scores.shape[1], "vocab_mask and the vocabulary differ")

        def rule(r: Expr, v: Expr) -> Expr:
            score, mark = scores.at(r, v), marks.at(r, v)
            if self.repetition is not None:
                penalty = cast(self.repetition.at(0), F32)
                score = select((mark & 1) != 0, select(score < 0.0, score * penalty, score / penalty), score)
            if self.ngram:
                score = select((mark & 2) != 0, LOWEST, score)
            if self.vocabulary is not None:
                score = select(self.vocabulary.at(v) == 0, LOWEST, score)
            if self.prefix is not None and first:
                score = select(self.prefix.at(r / dim(self.beams), v) == 0, LOWEST, score)
            if self.shortest is not None:
                score = select((v == self.eos) & (count.at() < cast(self.shortest.at(0), I32)), LOWEST, score)
            if isinstance(self.temperature, Tensor):
                score = score / cast(self.temperature.at(0), F32)
            elif self.temperature != 1.0:
                score = score / self.temperature
            if self.present is not None:
                score = score - cast(self.present.at(r, v), F32) * self.penalty
            return score

        return t.compute(scores.shape, rule)


def _marks(t: Tracer, sequences: Tensor, count: Tensor, width: AnyDim, ngram: int) -> Tensor:
    """(R, V): 1 for tokens that the sequence has, 2 for those that would repeat an n-gram of it."""
    rows, places = sequences.shape

    def body(k: Builder, out: Tensor) -> None:
        with k.parallel(dim(rows)) as r:
            with k.loop(dim(width), "vector") as v:
                k.store(out, (r, v), const(0, I32))
            length = k.let(count.at())
            with k.loop(dim(places)) as j:
                with k.when(j < length):
                    k.store(out, (r, t.checked_index(sequences.at(r, j), width)), const(1, I32))
            if ngram:
                with k.loop(dim(places)) as start:
                    with k.when(start + ngram <= length):
                        _repeated(k, out, r, start, length)

    def _repeated(k: Builder, out: Tensor, r: Expr, start: Expr, length: Expr) -> None:
        same = k.var(1, I32)
        for n in range(ngram - 1):
            equal = sequences.at(r, start + n) == sequences.at(r, length - ngram + 1 + n)
            same.set(same.get & cast(equal, I32))
        with k.when(same.get != 0):
            k.store(out, (r, t.checked_index(sequences.at(r, start + (ngram - 1)), width)), const(3, I32))

    return t.loops("token_marks", [sequences, count], [((rows, width), I32)], body)[0]


def started(t: Tracer, ids: Tensor, places: AnyDim, pad: int) -> Tensor:
    """(R, L): the prompt, then padding."""
    rows, tokens = ids.shape
    t.require(sh.compare("lt", tokens, places), f"max_length {places} must be more than the prompt's {tokens} tokens")
    padded = t.concat([ids, t.fill((rows, places - tokens), pad, I32)], 1)
    return t.compute((rows, places), lambda r, j: padded.at(r, j), I32)


def counted(t: Tracer, n: Tensor | None, tokens: AnyDim) -> Tensor:
    """How many tokens a sequence has in iteration n of the loop, which the first call is before."""
    if n is None:
        return t.reshape(t.dims([tokens], I32), ())
    return t.compute((), lambda: cast(n.at(*(0,) * n.rank), I32) + dim(tokens) + 1, I32)


__all__ = ["Feeds", "Rules", "call", "check_decoder", "counted", "last_scores", "prompt", "started"]
