"""GreedySearch and Sampling of ONNX Runtime, with the letters of `generation`: one row of tokens for each prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, F64, I32, I64
from pyruntime.ir.expr import Expr, X, Y, cast, const, dim, exp, maximum, minimum, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ops.lib.formula import LOWEST
from pyruntime.ops.microsoft import MICROSOFT
from pyruntime.ops.microsoft.generation import Feeds, Rules, call, check_decoder, counted, prompt, started
from pyruntime.ops.standard.control import iterate
from pyruntime.ops.standard.sort import top_k

if TYPE_CHECKING:
    from pyruntime.onnx.graph import Graph

# scores (R, V) and what is carried from token to token -> tokens (R,) and what is carried on
Chooser = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@op("GreedySearch", domain=MICROSOFT)
def greedy_search(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None = None,
    repetition_penalty: Tensor | None = None, vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None, *, decoder: Graph,
    decoder_start_token_id: int = -1, encoder: Graph | None = None, eos_token_id: int,
    init_decoder: Graph | None = None, model_type: int = 0, no_repeat_ngram_size: int = 0, pad_token_id: int,
    vocab_size: int = -1,
) -> Tensor:  # fmt: skip
    """The likeliest token again and again, up to L = max_length tokens. From its end token on a sequence is padding, as
    in ONNX Runtime. Shapes: input_ids and attention_mask (R, S) int32, min_length (1,), repetition_penalty (1,),
    vocab_mask (V,), prefix_vocab_mask (R, V) of the first token -> (R, L)"""
    check_decoder(t, decoder, model_type)
    rules = Rules(eos_token_id, repetition_penalty, no_repeat_ngram_size, vocab_mask, prefix_vocab_mask, min_length)

    def likeliest(scores: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return t.reduce("argmax", scores, [1], keepdims=False), state

    nothing = t.fill((1,), 0, I32)
    return _written(
        t, input_ids, max_length, attention_mask, rules, likeliest, nothing, (init_decoder, decoder), pad_token_id,
        vocab_size,
    )  # fmt: skip


@op("Sampling", domain=MICROSOFT)
def sampling(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None = None,
    repetition_penalty: Tensor | None = None, vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None,
    presence_mask: Tensor | None = None, seed: Tensor | None = None, *, custom: int = 0, decoder: Graph,
    decoder_start_token_id: int = -1, encoder: Graph | None = None, eos_token_id: int, filter_value: float = -1e20,
    init_decoder: Graph | None = None, min_tokens_to_keep: int = 0, model_type: int = 0, no_repeat_ngram_size: int = 0,
    pad_token_id: int, presence_penalty: float = 0.0, temperature: float = 1.0, top_p: float = 0.0,
    vocab_size: int = -1,
) -> list[Tensor]:  # fmt: skip
    """GreedySearch that draws its tokens, by the probabilities of scores over `temperature`. Of the likeliest tokens
    those stay that have top_p of all probability together; the scores of the others become filter_value. `custom`
    leaves out one more. Tokens of presence_mask lose presence_penalty, behind the temperature. Draws are those of ONNX
    Runtime on Linux for the same seed (default 0).
    Shapes: as GreedySearch's, presence_mask (R, V) and seed (1,) int32 -> (R, L)"""
    check_decoder(t, decoder, model_type)
    if any(t.wanted[1:]):
        raise t.unsupported("filtered_logits is not implemented", "ONNX Runtime's CPU does not give it either")
    if temperature <= 0 or not 0 <= top_p <= 1 or min_tokens_to_keep < 0:
        raise t.shape_error(f"temperature {temperature}, top_p {top_p} or min_tokens_to_keep {min_tokens_to_keep}")
    rules = Rules(
        eos_token_id, repetition_penalty, no_repeat_ngram_size, vocab_mask, prefix_vocab_mask, min_length,
        temperature=temperature, present=presence_mask if presence_penalty else None, penalty=presence_penalty,
    )  # fmt: skip
    draw = _Draw(t, bool(custom), top_p, filter_value, min_tokens_to_keep)
    return [
        _written(
            t, input_ids, max_length, attention_mask, rules, draw.token, draw.start(seed), (init_decoder, decoder),
            pad_token_id, vocab_size,
        )
    ]  # fmt: skip


def _written(
    t: Tracer, ids: Tensor, length: Tensor, mask: Tensor | None, rules: Rules, choose: Chooser, state: Tensor,
    decoders: tuple[Any, Any], pad: int, vocabulary: int,
) -> Tensor:  # fmt: skip
    """(R, L): the prompts and the tokens that `choose` finds; decoders: of the first call, if it has its own, and of
    all others."""
    first_decoder, decoder = decoders
    places = t.ints(t.reshape(length, ()), 1)[0]
    rows, tokens = ids.shape

    def step(
        n: Tensor | None, graph: Any, feeds: Feeds, sequences: Tensor, ended: Tensor, state: Tensor
    ) -> list[Tensor]:
        logits, present = call(t, graph, feeds, vocabulary)
        count = counted(t, n, tokens)
        best, state = choose(rules.applied(t, logits, sequences, count, n is None), state)
        over = t.compute((rows,), lambda r: ended.at(r) | cast(best.at(r) == rules.eos, I32))
        token = t.compute((rows,), lambda r: select(over.at(r) != 0, pad, cast(best.at(r), I32)))
        grown = t.compute(sequences.shape, lambda r, j: select(j == count.at(), token.at(r), sequences.at(r, j)))
        after = feeds.after(t, token, present)
        return [grown, over, state, *after.state()]

    def going(ended: Tensor) -> Tensor:
        return t.map(X == 0, t.reduce("min", ended, [0], keepdims=False))

    def body(n: Tensor, carried: list[Any]) -> tuple[Tensor, list[Any], list[Any]]:
        sequences, ended, state, *feeds = carried
        values = step(n, decoder, first.again(t, feeds), sequences, ended, state)
        return going(values[1]), values, []

    first = prompt(t, ids, mask, pad, decoder)
    begun = started(t, ids, places, pad)
    carried = step(None, first_decoder or decoder, first, begun, t.fill((rows,), 0, I32), state)
    trip = t.reshape(t.dims([places - tokens - 1]), ())
    return iterate(t, trip, going(carried[1]), list(carried), body)[0]


_PRIME = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Draw:
    """How Sampling draws. The random numbers are those of C++'s minstd_rand0 and, two of them a number in [0, 1), its
    generate_canonical. Source: https://en.cppreference.com/w/cpp/numeric/random"""

    t: Tracer
    custom: bool
    share: float
    filtered: float
    least: int

    def start(self, seed: Tensor | None) -> Tensor:
        """The generator's state, (1,) int64: not 0."""
        t = self.t
        if seed is None:
            return t.fill((1,), 1, I64)
        t.require_equal(sh.size(seed.shape), 1, "seed is not one number")
        given = cast(t.reshape(seed, ()).at(), I64)
        state = given - given / _PRIME * _PRIME + cast(t.checked_index(cast(given < 0, I32), 1), I64)
        return t.compute((1,), lambda i: select(state == 0, const(1, I64), state))

    def token(self, scores: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(R,), and the state after two numbers for each row."""
        t, (rows, width) = self.t, scores.shape
        ordered, order = top_k(t, scores, width, 1, self.custom)
        spread = t.map(exp(X - Y), ordered, t.reduce("max", scores, [1]))
        shares = t.map(X / Y, spread, t.reduce("sum", spread, [1]))

        def body(k: Builder, token: Tensor, after: Tensor, kept: Tensor) -> None:
            x = k.var(state.at(0), I64)
            with k.loop(dim(rows)) as r:
                with k.loop(dim(width)) as v:
                    k.store(kept, (v,), scores.at(r, v))
                self._filter(k, r, shares, order, kept)
                number = [self._next(k, x) for _ in range(2)]
                size = float(_PRIME - 1)
                u = k.let((cast(number[0], F64) + cast(number[1], F64) * size) / (size * size))
                k.store(token, (r,), self._drawn(k, kept, u))
            k.store(after, (0,), x.get)

        outputs, inner = [((rows,), I32), ((1,), I64)], [((width,), F32)]
        token, after = t.loops("sample", [scores, shares, order, state], outputs, body, inner)
        return token, after

    def _next(self, k: Builder, x: Any) -> Expr:
        """The next number of the generator, from 0 on."""
        product = k.let(x.get * 16807)
        x.set(product - product / _PRIME * _PRIME)
        return k.let(x.get - 1)

    def _filter(self, k: Builder, r: Expr, shares: Tensor, order: Tensor, kept: Tensor) -> None:
        """Scores of tokens beyond the share become `filtered`."""
        width = dim(order.shape[1])
        total = k.var(0.0, F32)
        with k.loop(width - 1 if self.custom else maximum(width - self.least, 1)) as j:
            total.set(total.get + shares.at(r, j))
            over = total.get > self.share if self.custom else total.get <= const(1 - self.share, F32)
            with k.when(over):
                token = order.at(r, j + 1 if self.custom else j)
                k.store(kept, (self.t.checked_index(token, order.shape[1]),), const(self.filtered, F32))

    def _drawn(self, k: Builder, kept: Tensor, u: Expr) -> Expr:
        """The token at which the sum of probabilities first exceeds u of it all; what is not finite has none."""
        width = dim(kept.shape[0])
        peak, total, place = k.var(LOWEST, F32), k.var(0.0, F64), k.var(0, I32)

        def weight(v: Expr) -> Expr:
            score = kept.at(v)
            return select(abs(score) <= -LOWEST, exp(cast(score, F64) - cast(peak.get, F64)), const(0.0, F64))

        with k.loop(width) as v:
            peak.set(select((kept.at(v) > peak.get) & (kept.at(v) <= -LOWEST), kept.at(v), peak.get))
        with k.loop(width) as v:
            total.set(total.get + weight(v))
        limit, sum_ = k.let(total.get * u), k.var(0.0, F64)
        with k.loop(width) as v:
            sum_.set(sum_.get + weight(v))
            place.set(place.get + cast(sum_.get <= limit, I32))
        return minimum(place.get, width - 1)


__all__ = ["greedy_search", "sampling"]
