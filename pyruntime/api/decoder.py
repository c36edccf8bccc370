"""A decoder's session with the keys and values of the tokens that it has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyruntime.api.ort_value import OrtValue
from pyruntime.api.session import InferenceSession
from pyruntime.errors import InvalidInput
from pyruntime.runtime.batching import Declared
from pyruntime.runtime.generation import DecoderLayout, Made, empty_dims, kept
from pyruntime.runtime.writing import Request, Sampling, sampling_feeds

TYPES = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_, "tensor(double)": np.float64,
}  # fmt: skip
Arrays = Mapping[str, Any]


@dataclass(slots=True)
class Decoder:
    """session: with the option sample_positions; given: inputs besides those of a text, such as an encoder's states

    Errors: InvalidInput for a model that cannot generate."""

    session: InferenceSession
    given: Arrays = field(default_factory=dict)
    layout: DecoderLayout = field(init=False)
    cached: list[int] = field(init=False, default_factory=list)  # tokens whose keys and values are in `pasts`
    pasts: dict[str, OrtValue] = field(init=False, default_factory=dict)
    _types: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.session.get_inputs()
        self._types = {x.name: TYPES.get(x.type, np.float32) for x in inputs}
        self.layout = DecoderLayout(
            [Declared(x.name, x.shape) for x in inputs],
            [Declared(x.name, x.shape) for x in self.session.get_outputs()],
            list(self.given),
        )
        hint = "export it as a decoder with a KV cache, for example with Optimum"
        if self.layout.refused:
            raise InvalidInput(f"this model cannot generate text: {self.layout.refused}", hint=hint)
        if strange := [name for name in self.given if name not in self._types]:
            raise InvalidInput(f"the model has no input {', '.join(strange)}", hint=f"it has {', '.join(self._types)}")
        if self.layout.unknown:
            names = ", ".join(self.layout.unknown)
            raise InvalidInput(f"the model has the inputs {names}", hint="inputs={name: array} gives them")

    def restart(self) -> None:
        """Forget all tokens."""
        self.cached, self.pasts = [], {}

    def sample(self, request: Request, how: Sampling) -> list[int]:
        """Return the tokens that follow each of the last tokens. Only tokens that are not cached are computed."""
        keep = kept(self.cached, request.tokens, request.count)
        if keep < len(self.cached) or not self.pasts:
            self._keep(keep)
        found = self.run(sampling_feeds(self.layout, request, keep, how))
        self.cached = list(request.tokens)
        return found[-request.count :]

    def run(self, made: Sequence[Made]) -> list[int]:
        """Return the sampled tokens (N, positions), flat. The caches become those that the model returns."""
        feeds = {**self.given, **{x.name: np.reshape(x.values, x.dims) for x in made}}
        values = {
            name: OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x, self._types[name])) for name, x in feeds.items()
        }
        names = ["token", *(cache.present for cache in self.layout.caches)]
        token, *presents = self.session.run_with_ort_values(names, {**values, **self.pasts})
        for cache, present in zip(self.layout.caches, presents, strict=True):
            if not (cache.of_encoder and self.pasts[cache.past].shape()[cache.axis]):
                self.pasts[cache.past] = present
        return [int(one) for one in token.numpy().flat]

    def _keep(self, count: int) -> None:
        """Keep the keys and values of the first tokens."""
        self.cached = self.cached[:count]
        if not self.pasts:
            self.start(1)
            return
        for cache in self.layout.caches:
            if not cache.of_encoder:
                self.pasts[cache.past] = self.pasts[cache.past].first(count, cache.axis)

    def start(self, batch: int) -> None:
        """Empty caches."""
        self.cached = []
        self.pasts = {
            cache.past: OrtValue.ortvalue_from_numpy(np.zeros(empty_dims(cache, batch), self._types[cache.past]))
            for cache in self.layout.caches
        }
