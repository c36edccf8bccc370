"""Generation of text with a decoder: which inputs and outputs are what, which tokens its caches keep, and which part of
the text is certain (docs/use/chat.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.runtime.batching import Declared
from pyruntime.runtime.decoder_caches import CachePairs, are_alike

IDS = ["input_ids", "decoder_input_ids", "ids", "tokens"]
SAMPLING = ["temperature", "top_k", "top_p", "random", "repetition_penalty", "repeated", "masked", "masks"]
SAMPLED = ["token", "best_tokens", "best_scores"]  # outputs of sampling
# The inputs that generation makes, and what they hold
HOLDS = {
    "attention_mask": "mask",
    "decoder_attention_mask": "mask",
    "mask": "mask",
    "position_ids": "places",
    "decoder_position_ids": "places",
    "positions": "places",
    "cache_position": "places",
    "token_type_ids": "zeros",
    "use_cache_branch": "is there a past",
    "num_logits_to_keep": "logits",
    "past_sequence_length": "old",
    "total_sequence_length": "total",
    "seqlens_k": "last place",
}
HIDES = ["mask", "last place"]  # what hides padding
CONTEXT = 6  # tokens of the prompt with which the first token is decoded
SEEDS = 2147483646  # seeds that differ by a multiple of it give the same random numbers
PADDED = 64  # pairs of penalties: their number is a multiple, so that few shapes are planned


@dataclass(eq=False, slots=True)
class TextInput:
    """An input that generation makes. holds: a value of HOLDS, "" for other inputs"""

    name: str
    holds: str
    rank: int


@dataclass(eq=False, slots=True)
class Made:
    """A tensor for an input. values: flat"""

    name: str
    dims: list[int]
    values: Sequence[float]


class DecoderLayout:
    """The parts of a decoder whose session samples several positions. given: inputs that the caller gives; paired:
    caches and the outputs that continue them, as the caller names them, "input=output"

    ids: input of tokens; rows: the texts that a run has, 0 if any number
    at_once: tokens of each that a run takes, 0 if any number
    caches: keys, values and states; fed: other inputs that generation makes
    has_states: whether a cache is a state, which cannot lose its last tokens
    stacks: whether a run may have several rows that do not depend on each other
    shares: whether these may be texts that are written at the same time: each has no inputs of its own
    repeated: inputs in `given` that have a row for each row of a run
    pads: whether these may have different lengths: a mask hides padding, and each has its own positions
    positions: of which the session samples tokens
    words: of a mask of tokens that may follow, 0 if the session samples without masks
    scores: whether the session returns the scores of the likeliest tokens
    unknown: inputs that the caller must give; refused: why the model cannot generate, or ""
    """

    def __init__(
        self, inputs: list[Declared], outputs: list[Declared], given: list[str], paired: list[str]
    ) -> None:  # fmt: skip
        free = [x for x in inputs if x.name not in SAMPLING]
        found = token_inputs([x for x in free if x.name not in given])
        dims = found[0].dims if len(found) == 1 else None
        batch = dims[0] if dims is not None and len(dims) > 0 else None
        last = dims[len(dims) - 1] if dims is not None and len(dims) == 2 else None
        self.ids = found[0].name if len(found) == 1 else ""
        self.rows = batch if isinstance(batch, int) else 0
        self.at_once = last if isinstance(last, int) else 0
        free = [x for x in free if x.name != self.ids]
        self.fed = [x for x in [text_input(x) for x in free if x.name not in given] if x.holds != ""]
        self.positions = sampled_positions(inputs)
        self.words = mask_words(inputs)
        self.scores = len([x for x in outputs if x.name in SAMPLED]) == len(SAMPLED)
        made = [x.name for x in self.fed]
        others = [x for x in free if x.name not in made]
        pairs = CachePairs(others, [x for x in outputs if x.name not in SAMPLED], batch, given, paired)
        self.caches = [cache for cache in pairs.caches if not (cache.of_encoder and cache.past in given)]
        self.has_states = len([cache for cache in self.caches if cache.axis < 0]) > 0
        own = [x for x in self.fed if x.holds in HIDES or x.holds == "places" and x.rank >= 2]
        self.pads = len({x.holds == "places" for x in own}) == 2
        are_rows = len([x for x in self.caches if x.batch < 0]) == 0 and not has_mixed_rows(inputs)
        self.stacks = are_rows and self.rows == 0
        self.shares = self.stacks and len(given) == 0
        self.repeated = [x.name for x in free if x.name in given and _begins_with(x, batch)]
        known = [*made, *given, *[cache.past for cache in self.caches]]
        self.unknown = [x.name for x in free if x.name not in known]
        self.refused = self._refusal(free, given, pairs.refused)

    def _refusal(self, inputs: list[Declared], given: list[str], of_pairs: str) -> str:
        if self.ids == "":
            return f"no input is called {', '.join(IDS)}, and not just one has the shape of tokens"
        if self.at_once > 1:
            return f"it takes exactly {self.at_once} tokens at a time"
        if self.positions == 0:
            return "its session samples no positions"
        settings = [name for name in given if name in SAMPLING]
        if len(settings) > 0:
            return f"{', '.join(settings)} belongs to the settings of a text, not to its inputs"
        strange = [x.name for x in inputs if x.name in self.unknown and x.name in HOLDS]
        if len(strange) > 0:
            return f"{', '.join(strange)} has a shape that a text cannot fill"
        if of_pairs != "" or len(self.caches) == 0:
            return of_pairs if of_pairs != "" else "it has no caches"
        begun = [cache.past for cache in self.caches if cache.past in given and cache.axis >= 0]
        if len(begun) > 0:
            return f"{', '.join(begun)} grows with the text and begins empty: do not give it"
        sizes = sorted({name for cache in self.caches for name in cache.unknown()})
        return f"free dimension overrides must give its caches the sizes {', '.join(sizes)}" if len(sizes) > 0 else ""

    def no_draft(self, read: int) -> str:
        """Why this model cannot check or propose drafted tokens, or "". read: tokens that it reads at a time"""
        return f"the model takes {self.at_once} token at a time" if 0 < self.at_once < read else ""


@dataclass(eq=False, slots=True)
class EncoderFeed:
    """An input of a decoder that its encoder gives. is_mask: which positions of the encoder count; output: the
    encoder's output, or its own mask, "" if all positions count"""

    feed: str
    output: str
    is_mask: bool


def encoder_feeds(inputs: list[str], outputs: list[Declared], decoder: list[str]) -> list[EncoderFeed]:
    """Return the inputs of a decoder that these outputs of an encoder are. inputs: of the encoder"""
    found: list[EncoderFeed] = []
    hidden = [x.name for x in outputs if "hidden" in x.name or len(outputs) == 1]
    for name in decoder:
        alike = [x.name for x in outputs if are_alike(x.name, name)]
        if name == "encoder_hidden_states" and len(hidden) > 0:
            alike = hidden
        if name == "encoder_attention_mask":
            found.append(EncoderFeed(name, "attention_mask" if "attention_mask" in inputs else "", True))
        elif len(alike) > 0:
            found.append(EncoderFeed(name, alike[0], False))
    return found


def _begins_with(x: Declared, batch: int | str | None) -> bool:
    """Whether the first dim of an input has the name of the tokens' batch."""
    return x.dims is not None and len(x.dims) > 0 and isinstance(batch, str) and x.dims[0] == batch


def token_inputs(inputs: list[Declared]) -> list[Declared]:
    """The input of tokens, by name, or else all that have its shape."""
    for name in IDS:
        found = [x for x in inputs if x.name == name]
        if len(found) > 0:
            return found
    rows = [x for x in inputs if x.dims is not None and len(x.dims) == 2 and not isinstance(x.dims[1], int)]
    return [x for x in rows if text_input(x).holds == ""]


def text_input(x: Declared) -> TextInput:
    rank = len(x.dims) if x.dims is not None else 9
    holds = HOLDS[x.name] if x.name in HOLDS else ""
    least = 2 if holds in ["mask", "zeros"] else 1 if holds == "places" else 0
    # Three rows of positions, for pictures' times, rows and columns: all are equal in a text
    is_threefold = holds == "places" and rank == 3 and x.dims is not None and x.dims[0] == 3
    return TextInput(x.name, holds if least <= rank <= 2 or is_threefold else "", rank)


def text_inputs(layout: DecoderLayout, fresh: list[list[int]], mask: list[list[int]]) -> list[Made]:
    """The inputs for new tokens (N, S) after earlier ones; mask (N, all tokens): 0 where a row is padded."""
    count, total = len(fresh[0]), len(mask[0])
    shape = [len(fresh), count]
    made = [Made(layout.ids, shape, [token for row in fresh for token in row])]
    for x in layout.fed:
        if x.holds == "mask":
            made.append(Made(x.name, [len(mask), total], [bit for row in mask for bit in row]))
        elif x.holds == "places":
            own = [[1 for _ in range(total)]] if x.rank == 1 else mask
            rows = [_places(row, count) for row in own]
            dims = [3, *shape] if x.rank == 3 else shape[2 - x.rank :]
            times = 3 if x.rank == 3 else 1
            made.append(Made(x.name, dims, [place for _ in range(times) for row in rows for place in row]))
        elif x.holds == "zeros":
            made.append(Made(x.name, shape, [0 for row in fresh for _ in row]))
        elif x.holds == "last place":
            made.append(Made(x.name, [len(mask), 1][0 : x.rank], [sum(row) - 1 for row in mask]))
        else:
            made.append(Made(x.name, [1, 1][0 : x.rank], [_number(x.holds, layout, count, total)]))
    return made


def _places(mask: list[int], count: int) -> list[int]:
    """Of the last `count` tokens of a row, the number of tokens before each."""
    places: list[int] = []
    before = 0
    for bit in mask:
        places.append(before)
        before += bit
    return places[len(places) - count :]


def _number(holds: str, layout: DecoderLayout, count: int, total: int) -> int:
    if holds == "is there a past":
        return 1 if total > count else 0
    if holds == "logits":
        return min(layout.positions, count)
    return total - count if holds == "old" else total


def sampled_positions(inputs: list[Declared]) -> int:
    """Of a session with the option sample_positions, by the name of a dim; 0 for others."""
    words = _positions_dim(inputs).split(":")
    return int(words[1]) if len(words) > 1 else 0


def has_mixed_rows(inputs: list[Declared]) -> bool:
    """Whether a row of a run depends on the others, by the name of the same dim."""
    return _positions_dim(inputs).endswith(":mixed")


def _positions_dim(inputs: list[Declared]) -> str:
    for x in inputs:
        if x.name == "random" and x.dims is not None and len(x.dims) == 2:
            dim = x.dims[1]
            if isinstance(dim, str) and dim.startswith("positions:"):
                return dim
    return ""


def mask_words(inputs: list[Declared]) -> int:
    """Of a session with the option sample_masks; 0 for others."""
    for x in inputs:
        if x.name == "masks" and x.dims is not None and len(x.dims) == 2:
            dim = x.dims[1]
            if isinstance(dim, int):
                return dim
    return 0


def kept(cached: Sequence[int], tokens: Sequence[int], fresh: int, shrinks: bool, saved: int) -> int:
    """How many of the cached tokens a run for these tokens keeps, if at least the last `fresh` of them must be fed.
    shrinks: whether caches can lose their last tokens alone; saved: tokens after which the caches were saved"""
    most = max(0, min(len(cached), len(tokens) - fresh))
    same = agreed(cached[:most], tokens)
    if shrinks or same == len(cached):
        return same
    return saved if saved <= same else 0


def looked_up(tokens: Sequence[int], length: int, most: int) -> list[int]:
    """Return at most `most` tokens that followed the last `length` tokens where these stood before, nearest to the end;
    none if they did not."""
    end = len(tokens) - length
    for n in range(max(0, end)):
        start = end - 1 - n
        if agreed(tokens[end:], tokens[start : start + length]) == length:
            return [*tokens[start + length : start + length + most]]
    return []


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
    seen = sorted(set(tokens))
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
        self.state = seed % SEEDS + 1
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

    def branch(self) -> TextStream:
        """A copy."""
        made = TextStream(self.decode, [])
        made.tokens = [*self.tokens]
        made.start = self.start
        made.told = self.told
        return made

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

    def branch(self) -> StopTexts:
        """A copy, of a text that goes on."""
        made = StopTexts(self.stops)
        made.waiting = self.waiting
        return made

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
