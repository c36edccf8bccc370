"""GreedySearch of ONNX Runtime, with the letters of `generation`."""

from __future__ import annotations

from typing import Any

from pyruntime.frontend.registry import op
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import X, cast, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ops.control import iterate
from pyruntime.ops.generation import Feeds, Rules, call, check_decoder, counted, prompt, started


@op("GreedySearch", domain="com.microsoft")
def greedy_search(
    t: Tracer, input_ids: Tensor, max_length: Tensor, min_length: Tensor | None = None,
    repetition_penalty: Tensor | None = None, vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None, attention_mask: Tensor | None = None, *, decoder: Any,
    decoder_start_token_id: int = -1, encoder: Any = None, eos_token_id: int, init_decoder: Any = None,
    model_type: int = 0, no_repeat_ngram_size: int = 0, pad_token_id: int, vocab_size: int = -1,
) -> Tensor:  # fmt: skip
    """The likeliest token again and again, up to L = max_length tokens. From its end token on a sequence is padding, as
    in ONNX Runtime. Shapes: input_ids and attention_mask (R, S) int32, min_length (1,), repetition_penalty (1,),
    vocab_mask (V,), prefix_vocab_mask (R, V) of the first token -> (R, L)"""
    check_decoder(t, decoder, model_type)
    places = t.ints(t.reshape(max_length, ()), 1)[0]
    tokens, rows = input_ids.shape[1], input_ids.shape[0]
    rules = Rules(eos_token_id, repetition_penalty, no_repeat_ngram_size, vocab_mask, prefix_vocab_mask, min_length)

    def step(n: Tensor | None, graph: Any, feeds: Feeds, sequences: Tensor, ended: Tensor) -> list[Tensor]:
        logits, present = call(t, graph, feeds, vocab_size)
        count = counted(t, n, tokens)
        best = t.reduce("argmax", rules.applied(t, logits, sequences, count, n is None), [1], keepdims=False)
        over = t.compute((rows,), lambda r: ended.at(r) | cast(best.at(r) == eos_token_id, I32))
        token = t.compute((rows,), lambda r: select(over.at(r) != 0, pad_token_id, cast(best.at(r), I32)))
        grown = t.compute(sequences.shape, lambda r, j: select(j == count.at(), token.at(r), sequences.at(r, j)))
        after = feeds.after(t, token, present)
        return [grown, over, *after.state()]

    def going(ended: Tensor) -> Tensor:
        return t.map(X == 0, t.reduce("min", ended, [0], keepdims=False))

    def body(n: Tensor, carried: list[Any]) -> tuple[Tensor, list[Any], list[Any]]:
        sequences, ended, *state = carried
        values = step(n, decoder, first.again(t, state), sequences, ended)
        return going(values[1]), values, []

    first = prompt(t, input_ids, attention_mask, pad_token_id, decoder)
    begun = started(t, input_ids, places, pad_token_id)
    carried = step(None, init_decoder or decoder, first, begun, t.fill((rows,), 0, I32))
    trip = t.reshape(t.dims([places - tokens - 1]), ())
    return iterate(t, trip, going(carried[1]), list(carried), body)[0]


__all__ = ["greedy_search"]
