"""A decoder with the keys and values of the tokens that it has read: which of them a run keeps, and what it is fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pyruntime.errors import InvalidInput
from pyruntime.runtime.batching import Declared
from pyruntime.runtime.decoder_caches import Cache
from pyruntime.runtime.generation import DecoderLayout, Made, kept
from pyruntime.runtime.saved_text import (
    PROBED,
    SavedDecoder,
    SavedTensor,
    another_model,
    are_near,
    check_model,
    description,
)
from pyruntime.runtime.writing import Request, Sampling, beam_feeds, portions, sampling_feeds

Tensor: TypeAlias = Any  # of the host
Signal: TypeAlias = Any  # stops runs; None: nothing does
Tensors = dict[str, Tensor]


@dataclass(eq=False, slots=True)
class Caches:
    """What a decoder has read. cached: tokens whose keys and values are in `pasts`
    shrinks: whether the caches can lose their last tokens alone
    saved: caches before the last draft was read, of so many tokens (`saved_count`)
    given: inputs besides those of a text"""

    cached: list[int]
    pasts: dict[str, Tensor]
    shrinks: bool
    saved_count: int
    saved: dict[str, Tensor]
    given: dict[str, Tensor]

    def tensors(self) -> list[Tensor]:
        return [*self.pasts.values(), *self.saved.values()]


@dataclass(eq=False, slots=True)
class Row:
    """Caches of one text: a row of those of several, of which the last `count` positions are its own"""

    pasts: dict[str, Tensor]
    row: int
    count: int


@dataclass(eq=False, slots=True)
class Packed:
    """What `restore` needs. parts: the bytes of the tensors"""

    saved: SavedDecoder
    parts: list[Any]


class DecoderHost(Protocol):
    """A session, and its tensors.

    about: names of the graph and of its producer; types: of inputs, as saved texts name them
    """

    @property
    def about(self) -> list[str]: ...
    @property
    def types(self) -> Mapping[str, str]: ...

    async def run(self, feeds: dict[str, Tensor], made: list[Made], names: list[str], signal: Signal) -> list[Tensor]:
        """The outputs with these names."""

    async def numbers(self, tensor: Tensor, rows: int) -> list[float]:
        """The elements of its last rows, 0: of all. Nobody reads the tensor afterwards."""

    async def plain_numbers(self, name: str, tensor: Tensor) -> list[float]:
        """The elements of a cache, those of 16-bit floats as numbers."""

    async def first(self, tensor: Tensor, count: int, axis: int) -> Tensor:
        """Its first elements along an axis."""

    async def joined(self, name: str, rows: list[Row], batch: int, axis: int) -> Tensor:
        """One tensor of rows of those with this name. Shorter ones begin with zeros. axis: of positions, or -1"""

    async def bytes_of(self, tensor: Tensor) -> Any: ...
    def sizes(self, tensor: Tensor) -> list[int]: ...
    def byte_size(self, name: str) -> int: ...
    def converted(self, name: str, given: Any) -> Tensor: ...
    def zeros(self, name: str, dims: list[int]) -> Tensor: ...
    def read(self, saved: SavedTensor, body: Any) -> Tensor: ...
    def is_lost(self, error: Any) -> bool: ...
    def free(self, tensors: list[Tensor], used: list[Tensor]) -> None: ...


def decoder_layout(
    inputs: list[Declared],
    outputs: list[Declared],
    given: list[str],
    continued: Mapping[str, str],
    hint: str,
    more: str,
) -> DecoderLayout:
    """continued: caches that names do not pair, with the outputs that continue them; hint, more: for a model that is no
    decoder, or has other inputs, too. Errors: InvalidInput"""
    layout = DecoderLayout(inputs, outputs, given, [f"{past}={present}" for past, present in continued.items()])
    if layout.refused != "":
        raise InvalidInput(f"this model cannot generate text: {layout.refused}", hint=hint)
    if layout.unknown:
        names = ", ".join(layout.unknown)
        raise InvalidInput(f"the model has the inputs {names}, and names pair no output with them", hint=more)
    return layout


class CachedDecoder:
    """names: of inputs besides those of a text, such as an encoder's states, whose arrays may come later
    context: the tokens that a text may have by the model's metadata, as of a GGUF file"""

    def __init__(self, host: DecoderHost, layout: DecoderLayout, names: list[str], context: int) -> None:
        self.layout = layout
        self.names = names
        self.context = context
        self.own = Caches([], {}, True, 0, {}, {})
        self._host = host
        self._repeats: dict[str, Tensor] = {}  # inputs with equal rows for beams
        self._repeats_of: dict[str, Tensor] = {}  # what was given then
        self._repeats_rows = 0

    def give(self, arrays: Mapping[str, Any]) -> None:
        """Take other inputs besides those of a text, and forget all tokens.

        Errors: InvalidInput for an input that is not there, or was not in `names`"""
        missing = [name for name in arrays if name not in self._host.types]
        if missing:
            there = ", ".join(self._host.types)
            raise InvalidInput(f"the model has no input {missing[0]}", hint=f"it has {there}")
        strange = [name for name in arrays if name not in self.names]
        if strange:
            raise InvalidInput(f"{', '.join(strange)} is not in the generator's inputs", hint="give it there, too")
        self.restart()
        given = {name: self._host.converted(name, x) for name, x in arrays.items() if x is not None}
        self.own.given = {**self.own.given, **given}  # a text that waits has the mapping of before

    def missing(self) -> list[str]:
        """Inputs that have no array yet."""
        return [name for name in self.names if name not in self.own.given]

    def restart(self) -> None:
        """Forget all tokens."""
        self.put(self._empty())

    def _empty(self) -> Caches:
        return Caches([], {}, not self.layout.has_states, 0, {}, self.own.given)

    def take(self) -> Caches:
        """The caches, which the decoder does not have any more."""
        found = self.own
        self.own = self._empty()
        return found

    def put(self, caches: Caches) -> None:
        before = self.own.tensors()
        self.own = caches
        self._free(before)

    async def trim(self, tokens: list[int]) -> None:
        """Forget cached tokens that do not begin this text."""
        keep = self.kept(tokens, 0)
        if keep == 0:
            self.restart()
        elif keep < len(self.own.cached):
            await self._keep(keep)

    def kept(self, tokens: Sequence[int], fresh: int) -> int:
        """How many cached tokens a run for these tokens keeps; at least the last `fresh` are fed."""
        return kept(self.own.cached, tokens, fresh, self.own.shrinks, self.own.saved_count)

    async def sample(self, request: Request, how: Sampling, signal: Signal) -> list[float]:
        """The tokens that follow each of the last tokens, or the choices that the request wants. Only tokens that are
        not cached are computed; all of them if the caches were on a GPU that is lost."""
        try:
            return await self._sample(request, how, signal)
        except Exception as error:
            if not self._host.is_lost(error) or not self.own.cached:
                raise
        self.restart()
        return await self._sample(request, how, signal)

    async def _sample(self, request: Request, how: Sampling, signal: Signal) -> list[float]:
        if request.beams:
            return await self._continue_beams(request, how, signal)
        keep = self.kept(request.tokens, request.count)
        if keep == 0 or not self.own.pasts:
            self._start(max(1, self.layout.rows))
        elif keep < len(self.own.cached):
            await self._keep(keep)
        if not self.own.shrinks and len(self.own.cached) <= request.certain < len(request.tokens):
            self._save()
        found: list[float] = []
        for part in portions(self.layout, request, keep):
            made = sampling_feeds(self.layout, part, len(self.own.cached), how)
            found = await self.run(made, signal, 1 if request.choices > 0 else 0)
            self.own.cached = part.tokens
            self.own.shrinks = self.own.shrinks and self._is_whole()
        return found if request.choices > 0 else found[len(found) - request.count :]

    async def _continue_beams(self, request: Request, how: Sampling, signal: Signal) -> list[float]:
        """A run for all beams of a text, whose caches have a row for each until `narrow`."""
        count, rows = len(request.tokens), len(request.beams)
        if request.sources:
            self._replace(await self.stacked([Row(self.own.pasts, source, count) for source in request.sources], True))
        self.own.cached = []  # no other text can go on with these caches
        inputs = await self._repeated(rows)
        return await self.run(beam_feeds(self.layout, request, how), signal, rows, inputs)

    async def _repeated(self, rows: int) -> Tensors:
        """The inputs of one text that have a row for each row of a run, with so many equal rows."""
        given = self.own.given
        if self._repeats_of is not given or self._repeats_rows != rows:
            found: dict[str, Tensor] = {}
            for name in self.layout.repeated:
                if name in given:
                    found[name] = await self._host.joined(name, [Row(given, 0, 0)] * rows, 0, -1)
            self._repeats, self._repeats_of, self._repeats_rows = found, given, rows
        return self._repeats

    async def narrow(self, tokens: list[int]) -> None:
        """Keep the caches of the first beam, which has these tokens."""
        self.restore(tokens, await self.stacked([Row(self.own.pasts, 0, len(tokens))]))

    async def run(self, made: list[Made], signal: Signal, beams: int = 0, inputs: Tensors | None = None) -> list[float]:
        """The sampled tokens (N, positions), flat; with beams the likeliest tokens (beams, K), then their log
        probabilities. The caches become those that the model returns. inputs: in place of some that were given"""
        caches = self.layout.caches
        wanted = ["best_tokens", "best_scores"] if beams > 0 else ["token"]
        more: dict[str, Tensor] = {} if inputs is None else inputs
        feeds = {**self.own.given, **more, **self.own.pasts}
        results = await self._host.run(feeds, made, [*wanted, *[cache.present for cache in caches]], signal)
        presents = results[len(wanted) :]
        self._replace({cache.past: self._following(cache, presents[n]) for n, cache in enumerate(caches)})
        found: list[float] = []
        for n in range(len(wanted)):
            found.extend(await self._host.numbers(results[n], beams))
        return found

    def _following(self, cache: Cache, present: Tensor) -> Tensor:
        """The cache after a run: only the first one computes those of an encoder."""
        past = self.own.pasts[cache.past]
        return past if cache.of_encoder and self._host.sizes(past)[cache.axis] > 0 else present

    async def stacked(self, rows: list[Row], are_beams: bool = False) -> Tensors:
        """Copies of the caches of several texts, a row for each. are_beams: all rows are of the same caches, and have
        the same encoder's states"""
        found: dict[str, Tensor] = {}
        for cache in self.layout.caches:
            past = rows[0].pasts[cache.past]
            if are_beams and cache.of_encoder and self._host.sizes(past)[cache.batch] == len(rows):
                found[cache.past] = past
            else:
                axis = -1 if cache.of_encoder else cache.axis
                found[cache.past] = await self._host.joined(cache.past, rows, cache.batch, axis)
        return found

    async def pack(self) -> Packed:
        """What `restore` needs: the tokens, and the caches' bytes, with those of the first tokens alone."""
        tensors: list[SavedTensor] = []
        parts: list[Any] = []
        probe: dict[str, Tensor] = {}
        if self.own.cached:
            probe = await self._probed(self.own.cached)
            for values in [self.own.pasts, probe]:
                for cache in self.layout.caches:
                    part = await self._host.bytes_of(values[cache.past])
                    dims, kind = self._host.sizes(values[cache.past]), self._host.types[cache.past]
                    tensors.append(SavedTensor(cache.past, kind, dims, 0, len(part), values is probe))
                    parts.append(part)
        self._free(list(probe.values()))
        return Packed(SavedDecoder(self._description(), self.own.cached, tensors), parts)

    async def read(self, saved: SavedDecoder, body: Any) -> Tensors:
        """Saved caches, for `restore`. body: the bytes to which they refer. Errors: InvalidInput for those of another
        model"""
        sizes: Mapping[str, int] = {cache.past: self._host.byte_size(cache.past) for cache in self.layout.caches}
        check_model(saved, self._description(), self.layout, self._host.types, sizes)
        own: dict[str, Tensor] = {}
        if saved.cached:
            own = await self._probed(saved.cached)
        found: dict[str, Tensor] = {}
        for x in saved.tensors:
            tensor = self._host.read(x, body)
            if not x.probe:
                found[x.name] = tensor
                continue
            theirs = await self._host.plain_numbers(x.name, tensor)
            if not are_near(theirs, await self._host.plain_numbers(x.name, own[x.name])):
                raise another_model(saved.model, self._description())
        self._free(list(own.values()))
        return found

    def restore(self, cached: list[int], pasts: Tensors) -> None:
        """Go on with these tokens and their caches."""
        self.restart()
        self.own.cached = cached
        self._replace(pasts)
        self.own.shrinks = self.own.shrinks and (not cached or self._is_whole())

    def _description(self) -> str:
        about = self._host.about
        return description(about[0], about[1], self.layout)

    async def _probed(self, tokens: list[int]) -> Tensors:
        """The caches of the first of these tokens alone. Those of before stay."""
        before = self.take()
        try:
            first = tokens[:PROBED]
            await self._sample(Request(False, first, len(first), 1, [0.0]), Sampling(), None)
            return self.own.pasts
        finally:
            self.own = before

    def _is_whole(self) -> bool:
        """Whether the caches have all tokens: one that keeps the last positions alone has fewer."""
        growing = [cache for cache in self.layout.caches if not cache.of_encoder]
        count = len(self.own.cached)
        return all(self._host.sizes(self.own.pasts[cache.past])[cache.axis] == count for cache in growing)

    async def _keep(self, count: int) -> None:
        """Keep the keys and values of the first tokens, or the caches that were saved after so many."""
        self.own.cached = self.own.cached[:count]
        if not self.own.shrinks:
            self._replace({**self.own.saved})
            return
        found: dict[str, Tensor] = {}
        for cache in self.layout.caches:
            past = self.own.pasts[cache.past]
            found[cache.past] = past if cache.of_encoder else await self._host.first(past, count, cache.axis)
        self._replace(found)

    def _start(self, batch: int) -> None:
        """Empty caches, and states of zeros, unless the caller gives others."""
        self.restart()
        found: dict[str, Tensor] = {}
        for cache in self.layout.caches:
            if cache.past in self.own.given:
                found[cache.past] = self.own.given[cache.past]
            else:
                found[cache.past] = self._host.zeros(cache.past, cache.sizes(batch))
        self._replace(found)

    def _save(self) -> None:
        """Keep the caches of now, until others are saved."""
        before = list(self.own.saved.values())
        self.own.saved_count, self.own.saved = len(self.own.cached), {**self.own.pasts}
        self._free(before)

    def _replace(self, pasts: Tensors) -> None:
        before = list(self.own.pasts.values())
        self.own.pasts = pasts
        self._free(before)

    def _free(self, tensors: list[Tensor]) -> None:
        """Free tensors on the GPU that nothing here uses any more."""
        self._host.free(tensors, [*self.own.tensors(), *self.own.given.values()])
