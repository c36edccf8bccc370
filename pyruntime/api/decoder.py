"""A decoder's session with the keys and values of the tokens that it has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyruntime.api.ort_value import OrtValue
from pyruntime.api.session import InferenceSession
from pyruntime.arguments import shown
from pyruntime.errors import DeviceLost, InvalidInput
from pyruntime.frontend.feed_checks import type_name
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, dtype_of, from_python
from pyruntime.onnx.graph import TensorType
from pyruntime.runtime.batching import Declared
from pyruntime.runtime.generation import DecoderLayout, Made, encoder_feeds, kept
from pyruntime.runtime.saved_text import (
    HALVES,
    PROBED,
    SavedDecoder,
    SavedTensor,
    another_model,
    are_near,
    check_model,
    description,
    from_halves,
)
from pyruntime.runtime.writing import MOST, Request, Sampling, beam_feeds, portions, sampling_feeds
from pyruntime.session.run_options import RunOptions

TYPES = {type_name(TensorType(dtype, None)): dtype for dtype in dt.ALL}
Arrays = Mapping[str, Any]


@dataclass(slots=True)
class Caches:
    """What a decoder has read. given: inputs besides those of a text; the other fields: as those of `Decoder`"""

    cached: list[int]
    pasts: dict[str, OrtValue]
    shrinks: bool
    saved: tuple[int, dict[str, OrtValue]]
    given: dict[str, OrtValue]


@dataclass(slots=True)
class Row:
    """Caches of one text: a row of those of several, of which the last `count` positions are its own"""

    pasts: dict[str, OrtValue]
    row: int
    count: int


@dataclass(slots=True)
class Decoder:
    """session: with the option sample_positions; given: inputs besides those of a text, such as an encoder's states,
    whose arrays may come later (None); adapters: of its runs, with weights
    continued: caches that names do not pair, with the outputs that continue them

    Errors: InvalidInput for a model that cannot generate."""

    session: InferenceSession
    given: Arrays = field(default_factory=dict)
    adapters: Mapping[str, float] = field(default_factory=dict)
    continued: Mapping[str, str] = field(default_factory=dict)
    layout: DecoderLayout = field(init=False)
    cached: list[int] = field(init=False, default_factory=list)  # tokens whose keys and values are in `pasts`
    pasts: dict[str, OrtValue] = field(init=False, default_factory=dict)
    _given: dict[str, OrtValue] = field(init=False, default_factory=dict)
    _saved: tuple[int, dict[str, OrtValue]] = field(init=False)  # tokens and caches before the last draft was read
    _repeats: tuple[Any, int, dict[str, OrtValue]] = field(init=False, default=(None, 0, {}))  # of `_given`, for beams
    shrinks: bool = field(init=False)  # whether the caches can lose their last tokens alone
    _types: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.session.get_inputs()
        self._types = {x.name: TYPES[x.type] for x in inputs if x.type in TYPES}
        self.layout = DecoderLayout(
            _declared(inputs),
            _declared(self.session.get_outputs()),
            list(self.given),
            [f"{past}={present}" for past, present in self.continued.items()],
        )
        hint = "export it as a decoder with a KV cache, for example with Optimum"
        if self.layout.refused:
            raise InvalidInput(f"this model cannot generate text: {self.layout.refused}", hint=hint)
        if self.layout.unknown:
            names = ", ".join(self.layout.unknown)
            hint = "inputs={name: array} gives what stays the same in all runs, caches={name: output} continues a cache"
            raise InvalidInput(f"the model has the inputs {names}, and names pair no output with them", hint=hint)
        self.give(self.given)

    def __reduce__(self) -> tuple[Any, ...]:
        """For `pickle` and `copy`: as it was opened, without caches."""
        return Decoder, (self.session, self.given, self.adapters, self.continued)

    def give(self, arrays: Arrays) -> None:
        """Take other inputs besides those of a text, and forget all tokens.

        Errors: InvalidInput for an input that is not there, or was not in `given`"""
        if strange := [name for name in arrays if name not in self._types]:
            raise InvalidInput(f"the model has no input {strange[0]}", hint=f"it has {', '.join(self._types)}")
        if strange := [name for name in arrays if name not in self.given]:
            raise InvalidInput(f"{', '.join(strange)} is not in the generator's inputs", hint="give it there, too")
        self.restart()  # a text that waits has the mapping of before
        self._given = {
            **self._given,
            **{name: self._converted(name, x) for name, x in arrays.items() if x is not None},
        }

    @property
    def context(self) -> int:
        """The tokens that a text may have by the model's metadata, as of a GGUF file."""
        found = self.session.metadata.custom_metadata_map.get("context_length", "")
        return int(found) if found.isdecimal() and int(found) > 0 else MOST

    def missing(self) -> list[str]:
        """Inputs in `given` that have no array yet."""
        return [name for name in self.given if name not in self._given]

    def restart(self) -> None:
        """Forget all tokens."""
        self.cached, self.pasts, self.shrinks, self._saved = [], {}, not self.layout.has_states, (0, {})

    def taken(self) -> Caches:
        return Caches(self.cached, self.pasts, self.shrinks, self._saved, self._given)

    def put(self, caches: Caches) -> None:
        self.cached, self.pasts, self._given = caches.cached, caches.pasts, caches.given
        self.shrinks, self._saved = caches.shrinks, caches.saved

    def trim(self, tokens: Sequence[int]) -> None:
        """Forget cached tokens that do not begin this text."""
        keep = self.kept(tokens, 0)
        if keep == 0:
            self.restart()
        elif keep < len(self.cached):
            self._keep(keep)

    def kept(self, tokens: Sequence[int], fresh: int) -> int:
        """How many cached tokens a run for these tokens keeps; at least the last `fresh` are fed."""
        return kept(self.cached, tokens, fresh, self.shrinks, self._saved[0])

    def sample(self, request: Request, how: Sampling) -> list[float]:
        """Return the tokens that follow each of the last tokens, or the choices that the request wants. Only tokens
        that are not cached are computed; all of them if the caches were on a GPU that is lost."""
        try:
            return self._sample(request, how)
        except DeviceLost:
            if not self.cached:
                raise
            self.restart()
            return self._sample(request, how)

    def _sample(self, request: Request, how: Sampling) -> list[float]:
        if request.beams:
            return self._continue_beams(request, how)
        keep = self.kept(request.tokens, request.count)
        if keep == 0 or not self.pasts:
            self.start(max(1, self.layout.rows))
        elif keep < len(self.cached):
            self._keep(keep)
        if not self.shrinks and len(self.cached) <= request.certain < len(request.tokens):
            self._saved = len(self.cached), dict(self.pasts)
        found: list[float] = []
        for part in portions(self.layout, request, keep):
            found = self.run(sampling_feeds(self.layout, part, len(self.cached), how), request.choices and 1)
            self.cached = list(part.tokens)
            self.shrinks = self.shrinks and self._rows() == {len(self.cached)}
        return found if request.choices else found[-request.count :]

    def _continue_beams(self, request: Request, how: Sampling) -> list[float]:
        """A run for all beams of a text, whose caches have a row for each until `narrow`."""
        count, rows = len(request.tokens), len(request.beams)
        if request.sources:
            self.pasts = self.stacked([Row(self.pasts, source, count) for source in request.sources], are_beams=True)
        self.cached = []  # no other text can go on with these caches
        return self.run(beam_feeds(self.layout, request, how), rows, self._repeated(rows))

    def _repeated(self, rows: int) -> dict[str, OrtValue]:
        """The inputs of one text that have a row for each row of a run, with so many equal rows."""
        given, count, found = self._repeats
        if given is not self._given or count != rows:
            names = [name for name in self.layout.repeated if name in self._given]
            arrays = [np.repeat(self._given[name].numpy(), rows, 0) for name in names]
            found = {name: OrtValue(x, self._types[name]) for name, x in zip(names, arrays, strict=True)}
            self._repeats = self._given, rows, found
        return found

    def narrow(self, tokens: Sequence[int]) -> None:
        """Keep the caches of the first beam, which has these tokens."""
        self.restore(tokens, self.stacked([Row(self.pasts, 0, len(tokens))]))

    def _rows(self) -> set[int]:
        """The positions in caches that grow: fewer than the tokens in those that keep the last ones alone."""
        growing = [cache for cache in self.layout.caches if not cache.of_encoder]
        return {self.pasts[cache.past].shape()[cache.axis] for cache in growing}

    def run(self, made: Sequence[Made], beams: int = 0, inputs: Mapping[str, OrtValue] | None = None) -> list[float]:
        """Return the sampled tokens (N, positions), flat; with beams the likeliest tokens (beams, K), then their log
        probabilities. The caches become those that the model returns. inputs: in place of some that were given"""
        given = {**self._given, **(inputs or {})}
        values = {name: x for name, x in given.items() if name not in self.pasts}
        values |= {x.name: self._value(x.name, x.dims, x.values) for x in made}
        wanted = ["best_tokens", "best_scores"] if beams else ["token"]
        names = [*wanted, *(cache.present for cache in self.layout.caches)]
        options = RunOptions()
        for name, weight in self.adapters.items():
            options.add_active_adapter(name, weight)
        results = self.session.run_with_ort_values(names, {**values, **self.pasts}, options)
        for cache, present in zip(self.layout.caches, results[len(wanted) :], strict=True):
            if not (cache.of_encoder and self.pasts[cache.past].shape()[cache.axis]):
                self.pasts[cache.past] = present
        return [one for result in results[: len(wanted)] for one in result.numpy()[-beams:].ravel().tolist()]

    def run_shared(self, made: Sequence[Made], pasts: dict[str, OrtValue]) -> list[float]:
        """`run` of several texts with caches of their own, which become those that the model returns."""
        before = self.taken()
        try:
            self.pasts = pasts
            return self.run(made)
        finally:
            self.put(before)

    def stacked(self, rows: Sequence[Row], are_beams: bool = False) -> dict[str, OrtValue]:
        """Copies of the caches of several texts, a row for each. Shorter ones begin with zeros. are_beams: all rows are
        of the same caches, and have the same encoder's states"""
        found: dict[str, OrtValue] = {}
        for cache in self.layout.caches:
            if are_beams and cache.of_encoder and rows[0].pasts[cache.past].shape()[cache.batch] == len(rows):
                found[cache.past] = rows[0].pasts[cache.past]
                continue
            parts = []
            for one in rows:
                part = np.moveaxis(one.pasts[cache.past].numpy(), cache.batch, 0)[one.row : one.row + 1]
                part = np.moveaxis(part, 0, cache.batch)
                if cache.axis >= 0 and not cache.of_encoder:
                    first = max(0, part.shape[cache.axis] - one.count)
                    part = part[(slice(None),) * cache.axis + (slice(first, None),)]
                parts.append(part)
            dims = list(parts[0].shape)
            dims[cache.batch] = len(parts)
            if cache.axis >= 0:
                dims[cache.axis] = max(part.shape[cache.axis] for part in parts)
            whole = np.zeros(dims, parts[0].dtype)
            for n, part in enumerate(parts):
                place = [slice(None)] * whole.ndim
                place[cache.batch] = slice(n, n + 1)
                if cache.axis >= 0:
                    place[cache.axis] = slice(dims[cache.axis] - part.shape[cache.axis], None)
                whole[tuple(place)] = part
            found[cache.past] = OrtValue(whole, self._types[cache.past])
        return found

    def save(self) -> tuple[SavedDecoder, list[Any]]:
        """What `restore` needs: the tokens, and the bytes of caches, with those of the first tokens alone."""
        probe = self._probed(self.cached) if self.cached else {}
        found: list[SavedTensor] = []
        arrays: list[Any] = []
        for values in (self.pasts, probe):
            for cache in self.layout.caches if self.cached else ():
                arrays.append(np.ascontiguousarray(values[cache.past].numpy()).reshape(-1).view(np.uint8))
                place = (cache.past, self._saved_type(cache.past), values[cache.past].shape(), 0, arrays[-1].nbytes)
                found.append(SavedTensor(*place, values is probe))
        return SavedDecoder(self.description, self.cached, found), arrays

    def read(self, saved: SavedDecoder, body: memoryview) -> dict[str, OrtValue]:
        """Saved caches, for `restore`. body: the bytes to which they refer. Errors: InvalidInput for those of another
        model"""
        types = {cache.past: self._saved_type(cache.past) for cache in self.layout.caches}
        sizes = {name: NUMPY[self._types[name].name].itemsize for name in types}
        check_model(saved, self.description, self.layout, types, sizes)
        own = self._probed(saved.cached) if saved.cached else {}
        found: dict[str, OrtValue] = {}
        for x in saved.tensors:
            array = np.frombuffer(body[x.first : x.last], NUMPY[self._types[x.name].name]).reshape(x.dims)
            if not x.probe:
                found[x.name] = OrtValue.ortvalue_from_numpy_with_onnx_type(array, self._types[x.name].code)
            elif not are_near(self._numbers(x.name, array), self._numbers(x.name, own[x.name].numpy())):
                raise another_model(saved.model, self.description)
        return found

    def restore(self, cached: Sequence[int], pasts: dict[str, OrtValue]) -> None:
        """Go on with these tokens and their caches."""
        self.restart()
        self.cached, self.pasts = list(cached), pasts
        self.shrinks = self.shrinks and (not cached or self._rows() == {len(cached)})

    @property
    def description(self) -> str:
        about = self.session.metadata
        return description(about.graph_name, about.producer_name, self.layout)

    def _probed(self, tokens: list[int]) -> dict[str, OrtValue]:
        """The caches of the first of these tokens alone. Those of before stay."""
        before = self.taken()
        self.restart()
        try:
            first = tokens[:PROBED]
            self._sample(Request(False, first, len(first), 1, [0.0]), Sampling())
            return self.pasts
        finally:
            self.put(before)

    def _saved_type(self, name: str) -> str:
        """In a page, tensors of bfloat16 have the type uint16."""
        return "uint16" if self._types[name] is dt.BF16 else self._types[name].name

    def _numbers(self, name: str, array: Any) -> list[float]:
        if form := HALVES.get(self._saved_type(name)):
            return from_halves(array.view(np.uint16).ravel().tolist(), form)
        return array.ravel().tolist()

    def _keep(self, count: int) -> None:
        """Keep the keys and values of the first tokens, or the caches that were saved after so many."""
        self.cached = self.cached[:count]
        if not self.shrinks:
            self.pasts = dict(self._saved[1])
            return
        for cache in self.layout.caches:
            if not cache.of_encoder:
                self.pasts[cache.past] = self.pasts[cache.past].first(count, cache.axis)

    def start(self, batch: int) -> None:
        """Empty caches, and states of zeros, unless the caller gives others."""
        self.restart()
        for cache in self.layout.caches:
            empty = OrtValue.ortvalue_from_shape_and_type(cache.sizes(batch), self._types[cache.past].code)
            self.pasts[cache.past] = self._given.get(cache.past, empty)

    def _value(self, name: str, dims: Sequence[int], values: Sequence[float]) -> OrtValue:
        """A tensor of the input's element type."""
        array = from_python((dims, list(values)), self._types[name])
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array, self._types[name].code)

    def _converted(self, name: str, array: Any) -> OrtValue:
        """An array that the caller gives, with the input's element type. Errors: InvalidInput"""
        try:
            made = np.asarray(array)
            if name in self._types and dtype_of(made) is not self._types[name]:
                return self._value(name, made.shape, made.ravel().tolist())
            return OrtValue.ortvalue_from_numpy(made)
        except (TypeError, ValueError, OverflowError) as e:
            raise InvalidInput(f'the input "{name}" cannot be {shown(array)}', hint="an array of numbers") from e


def _declared(values: Sequence[Any]) -> list[Declared]:
    return [Declared(x.name, x.shape) for x in values]


class Encoder:
    """A session whose outputs are inputs of a decoder, computed once for each text.

    Errors: InvalidInput if no output is an input of the decoder"""

    def __init__(self, session: InferenceSession, decoder: InferenceSession) -> None:
        self.session = session
        self._inputs = [x.name for x in session.get_inputs()]
        outputs = _declared(session.get_outputs())
        self._feeds = encoder_feeds(self._inputs, outputs, [x.name for x in decoder.get_inputs()])
        self.given = [x.feed for x in self._feeds]  # the decoder's inputs
        if all(x.is_mask for x in self._feeds):
            names = ", ".join(x.name for x in outputs)
            raise InvalidInput(
                f"no output of the encoder is an input of the decoder: {names}", hint="give it as inputs"
            )

    def run(self, arrays: Arrays) -> dict[str, Any]:
        """The decoder's inputs: outputs of a run, and those of the arrays that the encoder does not read.

        Errors: those of a run"""
        own = {name: x for name, x in arrays.items() if name in self._inputs}
        others = {name: x for name, x in arrays.items() if name not in own}
        if not own:
            return others
        names = [x.output for x in self._feeds if not x.is_mask]
        made = dict(zip(names, self.session.run(names, own), strict=True))
        for x in self._feeds:
            seen = own.get(x.output)
            others[x.feed] = (
                made[x.output] if not x.is_mask else np.ones(made[names[0]].shape[:2]) if seen is None else seen
            )
        return others
