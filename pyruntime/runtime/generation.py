"""Generation of text with a decoder: which inputs and outputs are what, which tokens its caches keep, and which part of
the text is certain (docs/use/chat.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.runtime.batching import Declared, Dims

IDS = ["input_ids", "ids", "tokens"]
FED = ["attention_mask", "position_ids", "token_type_ids", "use_cache_branch", "num_logits_to_keep"]
SAMPLING = ["temperature", "top_k", "top_p", "random", "repetition_penalty", "repeated"]
# A part of the name of a present and that of its past, as exporters write them
PAIRS = [
    ["present_key_values", "past_key_values"],
    ["present", "past_key_values"],
    ["present", "past"],
    ["new_", "past_"],
    ["_out", "_in"],
    ["output", "input"],
]
CONTEXT = 6  # tokens of the prompt with which the first token is decoded
PADDED = 64  # pairs of penalties: their number is a multiple, so that few shapes are planned


@dataclass(eq=False, slots=True)
class Cache:
    """An input of keys or values, the output that continues it, and the axis of positions."""

    past: str
    present: str
    dims: Dims
    axis: int


class DecoderLayout:
    """The parts of a decoder whose session samples several positions.

    ids: input of tokens; caches: keys and values; fed: other inputs that generation makes
    positions: of which the session samples tokens
    unknown: inputs that the caller must give; refused: why the model cannot generate, or ""
    """

    def __init__(self, inputs: list[Declared], outputs: list[Declared]) -> None:
        names = [x.name for x in inputs]
        found = [name for name in IDS if name in names]
        self.ids = found[0] if len(found) > 0 else ""
        self.fed = [name for name in names if name in FED]
        self.positions = sampled_positions(inputs)
        self.caches: list[Cache] = []
        self.refused = ""
        free = [x for x in inputs if x.name != self.ids and x.name not in FED and x.name not in SAMPLING]
        self._pair(free, [x for x in outputs if x.name != "token"])
        cached = [cache.past for cache in self.caches]
        self.unknown = [x.name for x in free if x.name not in cached]
        if self.ids == "":
            self.refused = f"no input is called {', '.join(IDS)}"
        elif self.positions == 0:
            self.refused = "its session samples no positions"
        elif len(self.caches) == 0:
            self.refused = "it has no caches that grow"

    def _pair(self, inputs: list[Declared], outputs: list[Declared]) -> None:
        by_name = {x.name: x for x in inputs}
        for output in outputs:
            names = [output.name.replace(pair[0], pair[1]) for pair in PAIRS if pair[0] in output.name]
            known = [name for name in names if name in by_name]
            if len(known) > 0:
                self._add(by_name[known[0]], output)
        if len(self.caches) > 0:
            return
        grow = [x for x in inputs if growing_axis(x) > 0]
        presents = [x for x in outputs if growing_axis(x) > 0]
        if len(grow) == len(presents):  # other names: both are in the same order
            for n in range(len(grow)):
                self._add(grow[n], presents[n])

    def _add(self, past: Declared, present: Declared) -> None:
        axis = growing_axis(past)
        if axis > 0 and past.dims is not None:
            self.caches.append(Cache(past.name, present.name, past.dims, axis))


def sampled_positions(inputs: list[Declared]) -> int:
    """Of a session with the option sample_positions, by the name of a dim; 0 for others."""
    for x in inputs:
        if x.name == "random" and x.dims is not None and len(x.dims) == 2:
            dim = x.dims[1]
            if isinstance(dim, str) and dim.startswith("positions:"):
                return int(dim.split(":")[1])
    return 0


def growing_axis(x: Declared) -> int:
    """The axis of positions of a cache: the first free one after that of the batch; 0 if there is none."""
    if x.dims is None or len(x.dims) < 3:
        return 0
    for axis in range(1, len(x.dims)):
        if not isinstance(x.dims[axis], int):
            return axis
    return 0


def empty_dims(cache: Cache, batch: int) -> list[int]:
    """The dims of a cache without positions."""
    found: list[int] = []
    for axis, dim in enumerate(cache.dims):
        found.append(batch if axis == 0 else dim if isinstance(dim, int) else 0)
    return found


def kept(cached: Sequence[int], tokens: Sequence[int], fresh: int) -> int:
    """How many of the cached tokens a run for these tokens keeps, if at least the last `fresh` of them must be fed."""
    most = min(len(cached), len(tokens) - fresh)
    for n in range(max(0, most)):
        if cached[n] != tokens[n]:
            return n
    return max(0, most)


def agreed(drafted: Sequence[int], sampled: Sequence[int]) -> int:
    """How many drafted tokens are those that the model samples in their places."""
    for n, token in enumerate(drafted):
        if token != sampled[n]:
            return n
    return len(drafted)


def penalised(rows: int, tokens: Sequence[int]) -> list[int]:
    """Pairs of a row and a token, flat: in the row of each of the last positions, the tokens up to there."""
    flat: list[int] = []
    for row in range(rows):
        _penalise(flat, row, tokens[0 : len(tokens) - rows + row + 1])
    return flat


def penalised_last(positions: int, texts: Sequence[Sequence[int]]) -> list[int]:
    """Pairs of a row and a token, flat: in the row of the last of the positions of each text, its tokens."""
    flat: list[int] = []
    for n in range(len(texts)):
        _penalise(flat, n * positions + positions - 1, texts[n])
    return flat


def _penalise(flat: list[int], row: int, tokens: Sequence[int]) -> None:
    seen = list(set(tokens))
    for n in range(-(-len(seen) // PADDED) * PADDED):
        flat.append(row)
        flat.append(seen[min(n, len(seen) - 1)])


def left_padded(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The rows, with zeros on the left where they are shorter than the longest."""
    longest = max([len(row) for row in rows])
    padded: list[list[int]] = []
    for row in rows:
        zeros = [0 for _ in range(longest - len(row))]
        padded.append([*zeros, *row])
    return padded


class Random:
    """Random numbers from 0 to 1, the same in all languages. Source: https://doi.org/10.1145/63039.63042"""

    def __init__(self, seed: int) -> None:
        self.state = seed % 2147483646 + 1
        for _ in range(8):  # numbers of neighbouring seeds are alike at first
            self.next()

    def next(self) -> float:
        self.state = self.state * 48271 % 2147483647
        return self.state / 2147483647


class TextStream:
    """The text of tokens as they come. A token may be a part of a character, and its text may depend on the token
    before it, so a few tokens are decoded together. prompt: tokens before the text"""

    def __init__(self, decode: Callable[[list[int]], str], prompt: Sequence[int]) -> None:
        self.decode = decode
        self.tokens: list[int] = [*prompt[max(0, len(prompt) - CONTEXT) :]]
        self.start = 0  # of the tokens that are decoded together
        self.told = len(self.tokens)  # tokens whose text is told

    def add(self, token: int) -> str:
        """The text that is certain now, and not told before."""
        self.tokens.append(token)
        before = self.decode(self.tokens[self.start : self.told])
        whole = self.decode(self.tokens[self.start :])
        if len(whole) <= len(before) or whole.endswith("\ufffd"):
            return ""
        self.start = self.told
        self.told = len(self.tokens)
        return whole[len(before) :]

    def rest(self) -> str:
        """The text of the last tokens, if no other follows."""
        whole = self.decode(self.tokens[self.start :])
        return whole[len(self.decode(self.tokens[self.start : self.told])) :]


class StopTexts:
    """Ends a text before the first of these texts."""

    def __init__(self, stops: list[str]) -> None:
        self.stops = [stop for stop in stops if stop != ""]
        self.waiting = ""  # the end of the text, which may begin a stop
        self.is_stopped = False

    def add(self, text: str) -> str:
        """The part of the text that certainly comes before a stop. At the end of the text, `waiting` is the rest."""
        text = self.waiting + text
        self.waiting = ""
        ends = [at for at in [text.find(stop) for stop in self.stops] if at >= 0]
        if len(ends) > 0:
            self.is_stopped = True
            return text[0 : min(ends)]
        longest = 0
        for stop in self.stops:
            for length in range(1, min(len(stop), len(text) + 1)):
                if text.endswith(stop[0:length]):
                    longest = max(longest, length)
        self.waiting = text[len(text) - longest :]
        return text[0 : len(text) - longest]
