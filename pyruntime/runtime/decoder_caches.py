"""Which inputs of a decoder are caches: which output continues each, and which of its axes grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyruntime.runtime.batching import Declared, Dims

# Words that tell a cache before a run from the same cache after it. Names are compared without them.
SIDES = [
    "past", "old", "prev", "previous", "in", "input", "init", "initial", "last",
    "present", "new", "next", "out", "output", "updated", "later", "final", "cur", "current",
]  # fmt: skip
WHOLE = ["past_key_values", "present_key_values", "pkv"]  # in names of one key or one value


@dataclass(eq=False, slots=True)
class Cache:
    """An input that each run continues by an output. dims: of the input

    batch: its axis, -1 if there is none
    axis: of positions, which grows; -1 for a state of fixed size, as of convolutions and recurrences
    of_encoder: its positions are an encoder's, and only a first run computes them
    """

    past: str
    present: str
    dims: Dims
    batch: int
    axis: int
    of_encoder: bool

    def sizes(self, batch: int) -> list[int]:
        """The dims before the first token."""
        found: list[int] = []
        for axis, dim in enumerate(self.dims):
            found.append(batch if axis == self.batch else dim if isinstance(dim, int) else 0)
        return found

    def unknown(self) -> list[str]:
        """Names of dims whose size is neither in the model nor that of the batch or the positions."""
        found: list[str] = []
        for axis, dim in enumerate(self.dims):
            if not isinstance(dim, int) and axis not in (self.batch, self.axis):
                found.append(dim if isinstance(dim, str) else f"axis {axis} of {self.past}")
        return found


class CachePairs:
    """The caches among these inputs and outputs of a model; batch: the batch of its tokens, if the model declares it;
    given: inputs that the caller gives. Without a name that pairs it, such an input is constant, or a state.
    paired: pairs of an input and an output that the caller names, "input=output"

    refused: why two of them could be exchanged, or ""
    """

    def __init__(
        self, inputs: list[Declared], outputs: list[Declared], batch: int | str | None, given: list[str],
        paired: list[str],
    ) -> None:  # fmt: skip
        self.caches: list[Cache] = []
        self.refused = ""
        self._batch = batch
        inputs = [x for x in inputs if x.dims is not None]
        for output in outputs:
            named = [x for x in inputs if f"{x.name}={output.name}" in paired]
            alike = [
                x for x in inputs if are_alike(x.name, output.name) and not _is_paired(x.name, output.name, paired)
            ]
            fits = [x for x in (named if len(named) > 0 else alike) if self._fit(x, output)]
            if len(fits) == 1:
                self._add(fits[0], output)
        known = [f"{x.past}={x.present}" for x in self.caches]
        strange = [pair for pair in paired if pair not in known]
        if len(strange) > 0:
            self.refused = f"{', '.join(strange)} is no cache and the output that continues it"
            return
        pasts = [x.past for x in self.caches]
        if len(set(pasts)) < len(pasts):
            self.refused = f"two outputs continue {', '.join(_twice(pasts))}"
        if len(pasts) == 0:
            self._by_order([x for x in inputs if x.name not in given or _is_same(x, outputs)], outputs)

    def _by_order(self, inputs: list[Declared], outputs: list[Declared]) -> None:
        """Pair what no name pairs in the order of declaration, as exporters without names declare it; only if no name
        contradicts it."""
        pasts = [x for x in inputs if len([y for y in outputs if self._fit(x, y)]) > 0]
        presents = [y for y in outputs if len([x for x in pasts if self._fit(x, y)]) > 0]
        if len(pasts) != len(presents):
            return
        for n, past in enumerate(pasts):
            likeness = [_alike(past.name, present.name) for present in presents]
            if max(likeness) > likeness[n]:
                self.refused = f"names do not tell which output continues {past.name}; the option caches names it"
            if not self._fit(past, presents[n]):
                return
        for n, past in enumerate(pasts):
            self._add(past, presents[n])

    def _fit(self, past: Declared, present: Declared) -> bool:
        """Whether an output may continue an input: their dims agree, but on an axis that grows."""
        dims, later = past.dims, present.dims
        if dims is None or later is None or len(dims) != len(later) or len(dims) == 0:
            return False
        axis = growing_axis(past, present, self._batch)
        for n in range(len(dims)):
            if n != axis and isinstance(dims[n], int) and isinstance(later[n], int) and dims[n] != later[n]:
                return False
        return axis >= 0 or _is_state(dims, later)

    def _add(self, past: Declared, present: Declared) -> None:
        dims = past.dims
        if dims is not None:
            axis = growing_axis(past, present, self._batch)
            of_encoder = axis >= 0 and ("encoder" in past.name or "cross" in past.name)
            of_batch = batch_axis(dims, self._batch, axis < 0)
            self.caches.append(Cache(past.name, present.name, dims, of_batch, axis, of_encoder))


def _is_same(past: Declared, outputs: list[Declared]) -> bool:
    """Whether an output has just the dims of an input."""
    return len([x for x in outputs if x.dims is not None and past.dims is not None and x.dims == past.dims]) > 0


def _is_state(dims: Dims, later: Dims) -> bool:
    """Whether all free dims of an input are those of an output, too."""
    return [dims[n] for n in free_axes(dims)] == [later[n] for n in free_axes(dims)]


def free_axes(dims: Dims) -> list[int]:
    return [axis for axis in range(len(dims)) if not isinstance(dims[axis], int)]


def batch_axis(dims: Dims, batch: int | str | None, is_state: bool = False) -> int:
    """The axis that has the name of the tokens' batch, or else the first of several free ones, of a state the first
    free one; -1 if there is none."""
    free = free_axes(dims)
    named = [axis for axis in free if dims[axis] == batch and batch != ""]
    if len(named) > 0:
        return named[0]
    return free[0] if len(free) > (0 if is_state else 1) else -1


def growing_axis(past: Declared, present: Declared, batch: int | str | None) -> int:
    """The axis of positions of a cache: a free one, with another name in the present or without a name; -1 if there is
    none."""
    dims, later = past.dims, present.dims
    if dims is None or later is None or len(dims) < 3 or len(dims) != len(later):
        return -1
    of_batch = batch_axis(dims, batch)
    free = [axis for axis in free_axes(dims) if axis != of_batch]
    renamed = [axis for axis in free if dims[axis] != later[axis]]
    return [*renamed, *free, -1][0]


def _words(name: str) -> list[str]:
    """The words of a name in small letters; a number is a word, and so is what begins with a capital letter."""
    for whole in WHOLE:
        name = name.replace(whole, "past")
    words: list[str] = []
    before = "."
    for letter in name:
        kind = "0" if letter.isdecimal() else "." if letter.lower() == letter.upper() else "a"
        if kind != "." and (kind != before or (letter != letter.lower() and before == "a" and _ends_small(words))):
            words.append("")
        if kind != ".":
            words[len(words) - 1] += letter
        before = kind
    return [word.lower() for word in words]


def _ends_small(words: list[str]) -> bool:
    last = words[len(words) - 1]
    return last[len(last) - 1 :] == last[len(last) - 1 :].lower()


def _stem(name: str) -> list[str]:
    return [word for word in _words(name) if word not in SIDES]


def are_alike(a: str, b: str) -> bool:
    """Whether two names are one, but for words that tell a cache before a run from the same one after it."""
    return _stem(a) == _stem(b)


def _alike(a: str, b: str) -> int:
    """How many words of a are words of b, too."""
    others = _stem(b)
    return len([word for word in _stem(a) if word in others])


def _is_paired(past: str, present: str, pairs: Sequence[str]) -> bool:
    """Whether a pair names this input or this output."""
    return len([pair for pair in pairs if pair.startswith(f"{past}=") or pair.endswith(f"={present}")]) > 0


def _twice(names: Sequence[str]) -> list[str]:
    return [name for n, name in enumerate(names) if name in names[:n]]
