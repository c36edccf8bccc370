"""GreedySearch and Sampling, with the letters of `generation`: one sequence per prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import attributes_of, op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, F64, I32, I64
from pyruntime.ir.expr import Expr, cast, const, dim, exp, maximum, minimum, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import LOWEST
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.generation import Rules, call, check_decoder, generate, prompt
from pyruntime.ops.standard.reduce import softmax_of
from pyruntime.ops.standard.sort import top_k

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph

# scores (R, V), state -> tokens (R,), state for the next token
Chooser = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _sequences(
    t: Tracer, ids: Tensor, length: Tensor, mask: Tensor | None, limits: tuple[Tensor | None, ...], chooser: Chooser,
    state: Tensor, *, decoder: Graph, decoder_start_token_id: int = -1, encoder: Graph | None = None,
    eos_token_id: int, init_decoder: Graph | None = None, model_type: int = 0, no_repeat_ngram_size: int = 0,
    pad_token_id: int, vocab_size: int = -1, **of_rules: Any,
) -> Tensor:  # fmt: skip
    """(R, L): the prompts, then the tokens that `chooser` returns. limits: min_length, repetition_penalty, vocab_mask
    and prefix_vocab_mask; of_rules: other fields of `Rules`."""
    check_decoder(t, decoder, model_type)
    shortest, repetition, vocabulary, prefix = limits
    rules = Rules(eos_token_id, repetition, no_repeat_ngram_size, vocabulary, prefix, shortest, **of_rules)
    places = t.ints(t.reshape(length, ()), 1)[0]
    rows = (ids.shape[0],)

    def choose(
        logits: Tensor, sequences: Tensor, count: Tensor, is_first: bool, values: list[Tensor]
    ) -> tuple[Tensor, None, list[Tensor], list[Tensor]]:
        ended, state = values
        best, state = chooser(rules.apply(t, logits, sequences, count, is_first), state)
        over = t.compute(rows, lambda r: ended.at(r) | cast(best.at(r) == eos_token_id, I32))
        token = t.compute(rows, lambda r: select(over.at(r) != 0, pad_token_id, cast(best.at(r), I32)))
        return token, None, [over, state], []

    feeds = prompt(t, ids, mask, pad_token_id, decoder)
    result = call(t, init_decoder or decoder, feeds, vocab_size)
    values = [t.fill(rows, 0, I32), state]
    return generate(t, decoder, vocab_size, feeds, result, ids, places, pad_token_id, values, 0, choose)[1][0]


@op("GreedySearch", domain=MICROSOFT)
@attributes_of(_sequences)
def greedy_search(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None = None,
    repetition_penalty: Tensor | None = None, vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None, **search: Any,
) -> Tensor:  # fmt: skip
    """Appends the likeliest token until a sequence has L = max_length tokens. From the end token on, a sequence is
    padding, as in ONNX Runtime.
    Shapes: input_ids and attention_mask (R, S) int32, min_length (1,), repetition_penalty (1,), vocab_mask (V,),
    prefix_vocab_mask (R, V) for the first token -> (R, L)"""

    def likeliest(scores: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return t.reduce("argmax", scores, [1], keepdims=False), state

    limits = (min_length, repetition_penalty, vocab_mask, prefix_vocab_mask)
    no_state = t.fill((1,), 0, I32)
    return _sequences(t, input_ids, max_length, attention_mask, limits, likeliest, no_state, **search)


@op("Sampling", domain=MICROSOFT)
@attributes_of(_sequences)
def sampling(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None = None,
    repetition_penalty: Tensor | None = None, vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None,
    presence_mask: Tensor | None = None, seed: Tensor | None = None, *, custom: int = 0, filter_value: float = -1e20,
    min_tokens_to_keep: int = 0, presence_penalty: float = 0.0, temperature: float = 1.0, top_p: float = 0.0,
    **search: Any,
) -> list[Tensor]:  # fmt: skip
    """GreedySearch that draws each token at random, by softmax(scores / temperature). The likeliest tokens whose
    probabilities add up to top_p keep their scores; those of the others become filter_value. `custom` keeps one token
    less. presence_penalty is subtracted for tokens of presence_mask, after the temperature. The random numbers are
    those of ONNX Runtime on Linux for the same seed (default 0).
    Shapes: as GreedySearch's, presence_mask (R, V) and seed (1,) int32 -> (R, L)"""
    if any(t.wanted[1:]):
        raise t.unsupported("filtered_logits is not implemented", "ONNX Runtime's CPU does not give it either")
    if temperature <= 0 or not 0 <= top_p <= 1 or min_tokens_to_keep < 0:
        text = f"temperature {temperature}, top_p {top_p} or min_tokens_to_keep {min_tokens_to_keep} is out of range"
        raise t.shape_error(text)
    limits = (min_length, repetition_penalty, vocab_mask, prefix_vocab_mask)
    draw = _Draw(t, bool(custom), top_p, filter_value, min_tokens_to_keep)
    return [
        _sequences(
            t, input_ids, max_length, attention_mask, limits, draw.token, draw.start(seed), **search,
            temperature=temperature, present=presence_mask if presence_penalty else None, penalty=presence_penalty,
        )
    ]  # fmt: skip


_PRIME = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Draw:
    """Draws the tokens of Sampling. The generator is C++'s minstd_rand0; generate_canonical makes a number in [0, 1)
    from two numbers.
    Source: https://en.cppreference.com/w/cpp/numeric/random"""

    t: Tracer
    custom: bool
    top_p: float
    filter_value: float
    min_tokens: int

    def start(self, seed: Tensor | None) -> Tensor:
        """The generator's state, (1,) int64: not 0."""
        t = self.t
        if seed is None:
            return t.fill((1,), 1, I64)
        t.require_equal(sh.size(seed.shape), 1, "seed must be one number")
        value = cast(t.reshape(seed, ()).at(), I64)
        state = value - value / _PRIME * _PRIME + cast(t.checked_index(cast(value < 0, I32), 1), I64)
        return t.compute((1,), lambda i: select(state == 0, const(1, I64), state))

    def token(self, scores: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (R,), and the generator's state after two numbers per row."""
        t, (rows, width) = self.t, scores.shape
        ordered, order = top_k(t, scores, width, 1, self.custom)
        shares = softmax_of(t, ordered, [1])

        def body(k: Builder, token: Tensor, after: Tensor, filtered: Tensor) -> None:
            x = k.var(state.at(0), I64)
            with k.loop(dim(rows)) as r:
                with k.loop(dim(width)) as v:
                    k.store(filtered, (v,), scores.at(r, v))
                self._filter(k, r, shares, order, filtered)
                number = [self._next(k, x) for _ in range(2)]
                size = float(_PRIME - 1)
                u = k.let((cast(number[0], F64) + cast(number[1], F64) * size) / (size * size))
                k.store(token, (r,), self._drawn(k, filtered, u))
            k.store(after, (0,), x.get)

        outputs, inner = [((rows,), I32), ((1,), I64)], [((width,), F32)]
        token, after = t.loops("sample", [scores, shares, order, state], outputs, body, inner)
        return token, after

    def _next(self, k: Builder, x: Any) -> Expr:
        """The next number of the generator, less 1, so that the smallest is 0."""
        product = k.let(x.get * 16807)
        x.set(product - product / _PRIME * _PRIME)
        return k.let(x.get - 1)

    def _filter(self, k: Builder, r: Expr, shares: Tensor, order: Tensor, filtered: Tensor) -> None:
        """Set the scores of tokens outside top_p to filter_value."""
        width = dim(order.shape[1])
        total = k.var(0.0, F32)
        with k.loop(width - 1 if self.custom else maximum(width - self.min_tokens, 1)) as j:
            total.set(total.get + shares.at(r, j))
            over = total.get > self.top_p if self.custom else total.get <= const(1 - self.top_p, F32)
            with k.when(over):
                token = order.at(r, j + 1 if self.custom else j)
                k.store(filtered, (self.t.checked_index(token, order.shape[1]),), const(self.filter_value, F32))

    def _drawn(self, k: Builder, filtered: Tensor, u: Expr) -> Expr:
        """The first token at which the cumulative probability exceeds u. Scores that are not finite have no
        probability."""
        width = dim(filtered.shape[0])
        peak, total, place = k.var(LOWEST, F32), k.var(0.0, F64), k.var(0, I32)

        def weight(v: Expr) -> Expr:
            score = filtered.at(v)
            return select(abs(score) <= -LOWEST, exp(cast(score, F64) - cast(peak.get, F64)), const(0.0, F64))

        with k.loop(width) as v:
            peak.set(select((filtered.at(v) > peak.get) & (filtered.at(v) <= -LOWEST), filtered.at(v), peak.get))
        with k.loop(width) as v:
            total.set(total.get + weight(v))
        limit, sum_ = k.let(total.get * u), k.var(0.0, F64)
        with k.loop(width) as v:
            sum_.set(sum_.get + weight(v))
            place.set(place.get + cast(sum_.get <= limit, I32))
        return minimum(place.get, width - 1)
