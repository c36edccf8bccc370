"""An encoder and a decoder like T5's or Whisper's, for BeamSearch of ONNX Runtime: the first call runs the encoder with
the decoder's first tokens, the others the decoder for one more token, or for all so far.

Letters: as in `generation` and `beam_search`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import I32
from pyruntime.ir.expr import Expr, cast, dim, select
from pyruntime.ir.kernel import Tensor
from pyruntime.ir.shape import AnyDim
from pyruntime.ops.microsoft.generation import last_scores

_ENCODER = ["encoder_input_ids", "encoder_attention_mask", "decoder_input_ids"]
_LISTENER = ["encoder_input_ids", "decoder_input_ids"]  # the first are features
_FIXED = ["encoder_attention_mask", "encoder_hidden_states"]


@dataclass(frozen=True, slots=True)
class Crossed:
    """Of one call of the decoder: ids (R, 1), or (R, T) if it wants the `whole` sequence, what all calls share, past
    keys and values of the decoder's own (R, heads, T, size), and of the encoder's (R, heads, S, size)."""

    ids: Tensor
    fixed: Sequence[Tensor]
    past: Sequence[Tensor]
    cross: Sequence[Tensor]
    whole: bool

    def inputs(self) -> list[Tensor]:
        return [self.ids, *self.fixed, *self.past, *self.cross]

    def state(self) -> list[Tensor]:
        return [self.ids, *self.past]

    def again(self, t: Tracer, state: Sequence[Tensor]) -> Crossed:
        return replace(self, ids=state[0], past=state[1:])

    def after(self, t: Tracer, token: Tensor, present: Sequence[Tensor], source: Tensor | None = None) -> Crossed:
        """Of the call for the token (R,) that was chosen; row r goes on from row source[r]."""
        past = present if source is None else [_taken(t, x, source) for x in present]
        ids = t.reshape(token, (token.shape[0], 1))
        if self.whole:
            ids = t.concat([self.ids if source is None else _taken(t, self.ids, source), ids], 1)
        return replace(self, ids=ids, past=past)


def _taken(t: Tracer, x: Tensor, source: Tensor) -> Tensor:
    return t.compute(x.shape, lambda r, *i: x.at(t.checked_index(source.at(r), x.shape[0]), *i), x.dtype)


def check_encoder(t: Tracer, encoder: Any, decoder: Any, listens: bool) -> None:
    """Refuse what is not an encoder and a decoder like T5's, or Whisper's if it `listens`."""
    expected = _LISTENER if listens else _ENCODER
    if encoder is None or [v.name for v in encoder.inputs] != expected:
        raise t.unsupported("this encoder is not implemented", f"it takes {', '.join(expected)}")
    names = [v.name for v in decoder.inputs]
    pasts = [n for n in names if n.startswith("past_") and ("_self_" in n or "_cross_" in n)]
    wanted = ["input_ids", *[n for n in _FIXED[listens:] if n in names], *sorted(pasts, key=lambda n: "_cross_" in n)]
    given = {v.name for v in encoder.outputs}
    needed = {n.replace("past_", "present_") for n in pasts} | ({_FIXED[1]} & {*names})
    own = sum("_self_" in n for n in pasts)
    if names != wanted or not needed <= given or len(decoder.outputs) != own + 1:
        text = f"a decoder with the inputs {', '.join(names)} is not implemented"
        raise t.unsupported(
            text, f"it takes input_ids, {', '.join(_FIXED)}, past_key_self_0, … and past_key_cross_0, …"
        )


def encoded(
    t: Tracer, encoder: Any, decoder: Any, given: Sequence[Tensor], start: Tensor, beams: AnyDim, vocabulary: int
) -> tuple[tuple[Tensor, list[Tensor]], Crossed]:
    """What the first call gives, scores and present keys and values, and its feeds. given: what the encoder takes
    besides start (B, T), the decoder's first tokens."""
    results = t.subgraph(encoder, [*given, start])
    rows = {v.name: repeated(t, x, beams) for v, x in zip(encoder.outputs, results, strict=True)}
    scores = repeated(t, last_scores(t, results[0], vocabulary), beams)
    rows["encoder_attention_mask"] = repeated(t, given[-1], beams)
    names = [v.name.replace("past_", "present_") for v in decoder.inputs[1:]]
    fixed, past, cross = (
        [rows[n] for n in names if found(n)]
        for found in (_FIXED.__contains__, lambda n: "_self_" in n, lambda n: "_cross_" in n)
    )
    shape = getattr(decoder.inputs[0].type, "shape", None)
    whole = not (shape is not None and len(shape) == 2 and shape[1] == 1)
    return (scores, past), Crossed(repeated(t, start, beams), fixed, past, cross, whole)


def first_tokens(t: Tracer, items: AnyDim, start: int) -> Tensor:
    """(B, 1): the token that a decoder starts with."""
    if start < 0:
        raise t.shape_error(f"decoder_start_token_id {start} is no token")
    return t.fill((items, 1), start, I32)


def behind_padding(t: Tracer, ids: Tensor, pad: int) -> Tensor:
    """0 for what `pad` the sequences begin with, 1 for all else, as in ONNX Runtime."""

    def upto(b: Expr, s: Expr, other: Expr) -> Expr:
        return select(other <= s, cast(ids.at(b, other) != pad, I32), 0)

    return t.reduce_compute("max", ids.shape, ids.shape[1:], upto)


def repeated(t: Tracer, x: Tensor, beams: AnyDim) -> Tensor:
    """(B, …) -> (B·W, …)."""
    return t.compute((x.shape[0] * beams, *x.shape[1:]), lambda r, *i: x.at(r / dim(beams), *i), x.dtype)


__all__ = ["Crossed", "behind_padding", "check_encoder", "encoded", "first_tokens", "repeated"]
