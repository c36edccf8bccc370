"""An encoder and a decoder like T5's or Whisper's, for BeamSearch: the first call runs the encoder and the decoder on
the first tokens; each following call runs the decoder on the next token, or on all tokens so far.

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
from pyruntime.ops.microsoft.generation import last_logits, reordered

_ENCODER = ["encoder_input_ids", "encoder_attention_mask", "decoder_input_ids"]
_FEATURE_ENCODER = ["encoder_input_ids", "decoder_input_ids"]  # encoder_input_ids are features
_SHARED = ["encoder_attention_mask", "encoder_hidden_states"]


@dataclass(frozen=True, slots=True)
class EncoderDecoderFeeds:
    """Feeds of one call of the decoder: ids (R, 1), or (R, T) if the decoder takes the `whole` sequence; `shared`, the
    same in all calls; past keys and values of self-attention (R, heads, T, size) and of cross-attention
    (R, heads, S, size)."""

    ids: Tensor
    shared: Sequence[Tensor]
    past: Sequence[Tensor]
    cross: Sequence[Tensor]
    whole: bool

    def inputs(self) -> list[Tensor]:
        return [self.ids, *self.shared, *self.past, *self.cross]

    def state(self) -> list[Tensor]:
        return [self.ids, *self.past]

    def again(self, t: Tracer, state: Sequence[Tensor]) -> EncoderDecoderFeeds:
        return replace(self, ids=state[0], past=state[1:])

    def after(
        self, t: Tracer, token: Tensor, present: Sequence[Tensor], source: Tensor | None = None
    ) -> EncoderDecoderFeeds:
        """The feeds of the next call, for the chosen token (R,); row r continues row source[r]."""
        past = [reordered(t, x, source) for x in present]
        ids = t.reshape(token, (token.shape[0], 1))
        if self.whole:
            ids = t.concat([reordered(t, self.ids, source), ids], 1)
        return replace(self, ids=ids, past=past)


def check_encoder(t: Tracer, encoder: Any, decoder: Any, takes_features: bool) -> None:
    """Refuse an encoder and a decoder whose inputs and outputs differ from T5's, or from Whisper's if the encoder
    takes features."""
    expected = _FEATURE_ENCODER if takes_features else _ENCODER
    if encoder is None or [v.name for v in encoder.inputs] != expected:
        raise t.unsupported("this encoder is not implemented", f"it takes {', '.join(expected)}")
    names = [v.name for v in decoder.inputs]
    pasts = [n for n in names if n.startswith("past_") and ("_self_" in n or "_cross_" in n)]
    shared = [n for n in _SHARED[takes_features:] if n in names]
    ordered = ["input_ids", *shared, *sorted(pasts, key=lambda n: "_cross_" in n)]
    produced = {v.name for v in encoder.outputs}
    needed = {n.replace("past_", "present_") for n in pasts} | ({_SHARED[1]} & {*names})
    own = sum("_self_" in n for n in pasts)
    if names != ordered or not needed <= produced or len(decoder.outputs) != own + 1:
        text = f"a decoder with the inputs {', '.join(names)} is not implemented"
        raise t.unsupported(
            text, f"it takes input_ids, {', '.join(_SHARED)}, past_key_self_0, … and past_key_cross_0, …"
        )


def encode(
    t: Tracer, encoder: Any, decoder: Any, inputs: Sequence[Tensor], start: Tensor, beams: AnyDim, vocabulary: int
) -> tuple[tuple[Tensor, list[Tensor]], EncoderDecoderFeeds]:
    """The result of the first call (logits, present keys and values), and its feeds. start (B, T): the decoder's first
    tokens; inputs: the encoder's other inputs."""
    results = t.subgraph(encoder, [*inputs, start])
    rows = {v.name: per_beam(t, x, beams) for v, x in zip(encoder.outputs, results, strict=True)}
    logits = per_beam(t, last_logits(t, results[0], vocabulary), beams)
    rows["encoder_attention_mask"] = per_beam(t, inputs[-1], beams)
    names = [v.name.replace("past_", "present_") for v in decoder.inputs[1:]]
    shared, past, cross = (
        [rows[n] for n in names if belongs(n)]
        for belongs in (_SHARED.__contains__, lambda n: "_self_" in n, lambda n: "_cross_" in n)
    )
    shape = getattr(decoder.inputs[0].type, "shape", None)
    whole = not (shape is not None and len(shape) == 2 and shape[1] == 1)
    return (logits, past), EncoderDecoderFeeds(per_beam(t, start, beams), shared, past, cross, whole)


def start_tokens(t: Tracer, items: AnyDim, start: int) -> Tensor:
    """(B, 1): the start token of the decoder."""
    if start < 0:
        raise t.shape_error(f"decoder_start_token_id {start} is not a token")
    return t.fill((items, 1), start, I32)


def leading_padding_mask(t: Tracer, ids: Tensor, pad: int) -> Tensor:
    """0 for the `pad` tokens that a sequence begins with, 1 for all others, as in ONNX Runtime."""

    def up_to(b: Expr, s: Expr, other: Expr) -> Expr:
        return select(other <= s, cast(ids.at(b, other) != pad, I32), 0)

    return t.reduce_compute("max", ids.shape, ids.shape[1:], up_to)


def per_beam(t: Tracer, x: Tensor, beams: AnyDim) -> Tensor:
    """(B, …) -> (B·W, …)."""
    return t.compute((x.shape[0] * beams, *x.shape[1:]), lambda r, *i: x.at(r / dim(beams), *i), x.dtype)
