"""The common part of GreedySearch, Sampling and BeamSearch: the loop that calls a decoder once per token, the feeds of
a decoder-only model like GPT-2, and the rules that change scores before a token is chosen.

Letters: R rows (items of the batch, or the beams of each), S tokens of the prompt, T tokens so far, L places of a
sequence, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I32
from pyruntime.ir.expr import Expr, X, cast, const, dim, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.lib.formula import LOWEST
from pyruntime.ops.standard.control import iterate

# ── the loop over tokens ──────────────────────────────────────────────────────────────────────────────────────────

# (logits (R, V), sequences (R, L), number of tokens in them, whether this is the first call, state) ->
# (the next token of each row (R,), the row that each row continues or None for itself, state, values to stack)
Choose = Callable[
    [Tensor, Tensor, Tensor, bool, list[Tensor]], tuple[Tensor, Tensor | None, list[Tensor], list[Tensor]]
]


def generate(
    t: Tracer, decoder: Any, vocabulary: int, first: Any, result: tuple[Tensor, list[Tensor]], ids: Tensor,
    places: AnyDim, pad: int, state: list[Tensor], done: int, choose: Choose,
) -> tuple[list[Tensor], list[Any]]:  # fmt: skip
    """Grow sequences from `ids` (R, S) to `places` tokens, or until state[done] is nonzero in every element.

    `first` and `result` are the feeds and the result of the first call, which the caller makes; the decoder makes the
    others. Returns the values that `choose` stacks in the first call, and the loop's results: sequences (R, L), the
    state, the last feeds, and the values that `choose` stacks in the other calls."""
    rows, tokens = ids.shape
    t.require(sh.compare("lt", tokens, places), f"max_length {places} must be more than the prompt's {tokens} tokens")

    def step(
        count: Tensor, result: tuple[Tensor, list[Tensor]], feeds: Any, sequences: Tensor, state: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        logits, present = result
        token, source, state, stacked = choose(logits, sequences, count, feeds is first, state)

        def grown(r: Expr, j: Expr) -> Expr:
            row = r if source is None else t.checked_index(source.at(r), rows)
            return select(j == count.at(), token.at(r), sequences.at(row, j))

        after = feeds.after(t, token, present, source)
        return [t.compute(sequences.shape, grown), *state, *after.state()], stacked

    def goes_on(values: list[Tensor]) -> Tensor:
        return t.map(X == 0, t.reduce("min", values[1 + done], [0], keepdims=False))

    def body(n: Tensor, carried: list[Any]) -> tuple[Tensor, list[Any], list[Any]]:
        split = 1 + len(state)
        feeds = first.again(t, carried[split:])
        # The first call comes before the loop.
        count = t.compute((), lambda: cast(n.at(*(0,) * n.rank), I32) + dim(tokens) + 1, I32)
        values, stacked = step(count, call(t, decoder, feeds, vocabulary), feeds, carried[0], carried[1:split])
        return goes_on(values), values, stacked

    padded = t.concat([ids, t.fill((rows, places - tokens), pad, I32)], 1)
    sequences = t.compute((rows, places), lambda r, j: padded.at(r, j), I32)
    carried, stacked = step(t.reshape(t.dims([tokens], I32), ()), result, first, sequences, state)
    trip = t.reshape(t.dims([places - tokens - 1]), ())
    return stacked, iterate(t, trip, goes_on(carried), list(carried), body)


def call(t: Tracer, decoder: Any, feeds: Any, vocabulary: int) -> tuple[Tensor, list[Tensor]]:
    """The logits of the last token, (R, V) float32, and the present keys and values."""
    logits, *present = t.subgraph(decoder, feeds.inputs())
    return last_logits(t, logits, vocabulary), present


def last_logits(t: Tracer, logits: Tensor, vocabulary: int) -> Tensor:
    """The logits of the last token, in float32. Shapes: (R, s, V) -> (R, V)"""
    rows, tokens, width = logits.shape
    if vocabulary > 0:
        t.require(sh.compare("le", vocabulary, width), f"vocab_size {vocabulary} is more than the decoder's {width}")
        width = vocabulary
    return t.compute((rows, width), lambda r, v: cast(logits.at(r, dim(tokens) - 1, v), F32))


# ── a decoder-only model ──────────────────────────────────────────────────────────────────────────────────────────

_INPUTS = ("input_ids", "position_ids", "attention_mask")


@dataclass(frozen=True, slots=True)
class DecoderFeeds:
    """Feeds of one call of a decoder-only model: ids and positions (R, s), mask (R, T), each past
    (2, R, heads, T - s, size); `next`: the positions (R, 1) for the following call."""

    ids: Tensor
    positions: Tensor
    mask: Tensor
    past: Sequence[Tensor]
    next: Tensor

    def inputs(self) -> list[Tensor]:
        return [self.ids, self.positions, self.mask, *self.past]

    def state(self) -> list[Tensor]:
        """The tensors that change from call to call."""
        return self.inputs()

    def again(self, t: Tracer, state: Sequence[Tensor]) -> DecoderFeeds:
        """The feeds with another state."""
        ids, positions, mask, *past = state
        return _one_token(t, ids, positions, mask, past)

    def after(self, t: Tracer, token: Tensor, present: Sequence[Tensor], source: Tensor | None = None) -> DecoderFeeds:
        """The feeds of the next call, for the chosen token (R,); row r continues row source[r]."""
        rows = token.shape[0]
        mask = t.concat([self.mask, t.fill((rows, 1), 1, I32)], 1)
        past = [reordered(t, x, source, 1) for x in present]
        return _one_token(t, t.reshape(token, (rows, 1)), self.next, mask, past)


def _one_token(t: Tracer, ids: Tensor, positions: Tensor, mask: Tensor, past: Sequence[Tensor]) -> DecoderFeeds:
    return DecoderFeeds(ids, positions, mask, past, t.compute(positions.shape, lambda r, s: positions.at(r, s) + 1))


def reordered(t: Tracer, x: Tensor, source: Tensor | None, axis: int = 0) -> Tensor:
    """x with row source[r] in row r along an axis; x itself without a source."""
    if source is None:
        return x

    def row(*i: Expr) -> Expr:
        return x.at(*i[:axis], t.checked_index(source.at(i[axis]), x.shape[axis]), *i[axis + 1 :])

    return t.compute(x.shape, row, x.dtype)


def prompt(t: Tracer, ids: Tensor, mask: Tensor | None, pad: int, decoder: Any) -> DecoderFeeds:
    """The feeds of the first call. Positions count the tokens other than `pad`; without a mask, `pad` is masked."""
    rows, tokens = ids.shape
    is_token = t.compute(ids.shape, lambda r, s: cast(ids.at(r, s) != pad, I32))

    def before(r: Expr, s: Expr, other: Expr) -> Expr:
        return select(other < s, is_token.at(r, s) * is_token.at(r, other), 0)

    positions = t.reduce_compute("sum", ids.shape, (tokens,), before)
    past = [_empty_past(t, v.name, v.type, rows) for v in decoder.inputs[3:]]
    return DecoderFeeds(ids, positions, is_token if mask is None else mask, past, t.reduce("sum", is_token, [1]))


def _empty_past(t: Tracer, name: str, kind: Any, rows: AnyDim) -> Tensor:
    shape = getattr(kind, "shape", None)
    heads, size = (shape[2], shape[4]) if shape is not None and len(shape) == 5 else (None, None)
    if not isinstance(heads, int) or not isinstance(size, int) or kind.dtype is None:
        raise t.unsupported(f'the decoder\'s input "{name}" must be a past with known heads and head size')
    return t.fill((2, rows, heads, 0, size), 0.0, kind.dtype)


def check_decoder(t: Tracer, decoder: Any, model_type: int) -> None:
    """Refuse a decoder whose inputs and outputs differ from GPT-2's."""
    if model_type != 0:
        raise t.unsupported(f"model_type {model_type} is not implemented, only 0 (a decoder alone)")
    names = [v.name for v in decoder.inputs]
    extra = [n for n in names[3:] if not n.startswith("past_") or n == "past_sequence_length"]
    if len(names) < 4 or extra or len(decoder.outputs) != len(names) - 2:
        text = f"a decoder with the inputs {', '.join(names)} is not implemented"
        raise t.unsupported(text, f"it takes {', '.join(_INPUTS)} and past_0, …; gives logits and present_0, …")


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that change scores before a token is chosen, in ONNX Runtime's order.

    eos: the token that ends a sequence. repetition: divides the scores of repeated tokens. ngram: length of the n-grams
    that must not repeat (0: off). vocabulary (V,): 0 for tokens that are never chosen. prefix (items, V): 0 for tokens
    that must not come first. shortest: the sequence length before which eos is not chosen. beams: number of rows per
    item. present (R, V): tokens that lose `penalty`."""

    eos: int
    repetition: Tensor | None
    ngram: int
    vocabulary: Tensor | None
    prefix: Tensor | None
    shortest: Tensor | None
    beams: AnyDim = 1
    temperature: float | Tensor = 1.0
    present: Tensor | None = None
    penalty: float = 0.0

    def apply(self, t: Tracer, scores: Tensor, sequences: Tensor, count: Tensor, first: bool) -> Tensor:
        """The changed scores (R, V). The first `count` places of sequences (R, L) are tokens."""
        marks = _marks(t, sequences, count, scores.shape[1], self.ngram)
        if self.prefix is not None:
            t.require_equal(self.prefix.shape[1], scores.shape[1], "prefix_vocab_mask and the vocabulary differ")
            masked = self.prefix.shape[0] * self.beams
            t.require_equal(masked, scores.shape[0], "prefix_vocab_mask must have one row per item")
        if self.present is not None:
            t.require_equal(self.present.shape[0], scores.shape[0], "presence_mask must have one row per item")
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
    """Bits by token, (R, V): 1 if the sequence contains it, 2 if it would complete a repeated n-gram."""
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
                        _mark_repeated(k, out, r, start, length)

    def _mark_repeated(k: Builder, out: Tensor, r: Expr, start: Expr, length: Expr) -> None:
        same = k.var(1, I32)
        for n in range(ngram - 1):
            equal = sequences.at(r, start + n) == sequences.at(r, length - ngram + 1 + n)
            same.set(same.get & cast(equal, I32))
        with k.when(same.get != 0):
            k.store(out, (r, t.checked_index(sequences.at(r, start + (ngram - 1)), width)), const(3, I32))

    return t.loops("token_marks", [sequences, count], [((rows, width), I32)], body)[0]
