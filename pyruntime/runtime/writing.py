"""Writes texts with a decoder: what the next run gets, and what its tokens mean (docs/use/chat.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyruntime.runtime.generation import (
    SEEDS,
    DecoderLayout,
    Made,
    Random,
    StopTexts,
    TextStream,
    agreed,
    left_padded,
    looked_up,
    penalised,
    penalised_last,
    text_inputs,
)

# The hint for a run whose indices are out of range
BEYOND = "does the tokenizer belong to this model? Or the text has more tokens than the model has positions"
SHORTER = "leave out the beginning of the chat"
BUSY = "a listener or an operator began a text in the middle of a run of this generator"
BUSY_HINT = "begin it after the run"
SPARE = 256  # positions of padding that texts may always have, because a run more costs more than this memory
THRIFT = 0.3  # of the positions of longer texts
AHEAD = 8  # pieces of a stream that runs for other texts may write before they are read


MOST = 2147483647
# The least and the largest value of each setting that is a number. Beyond them 32-bit floats overflow, or no model is.
LIMITS: Mapping[str, Sequence[int]] = {
    "max_tokens": [0, MOST], "temperature": [0, 1000000], "top_k": [0, MOST], "top_p": [0, 1],
    "repetition_penalty": [0, 100], "num_beams": [1, 1000], "length_penalty": [-10, 10], "draft_tokens": [1, 1000],
    "lookup": [0, MOST],
}  # fmt: skip
WHOLE = ["max_tokens", "top_k", "num_beams", "draft_tokens", "lookup"]


def refused_number(name: str, x: float) -> str:
    """What is expected instead of a setting's value, or "". x: NaN for what is no number"""
    if name == "repetition_penalty" and 0 <= x < 0.01:
        return "1 changes nothing, 1.1 avoids repetition"
    least, most = LIMITS[name]
    is_whole = name in WHOLE
    if least <= x <= most and not (is_whole and x % 1 != 0):
        return ""
    return f"{'an integer' if is_whole else 'a number'} from {least} to {most} is expected"


def refused_length(prompt: int, context: int) -> str:
    """Why no token can follow a prompt of so many tokens, or "". context: the tokens that the model can read"""
    return f"the prompt has {prompt} tokens, of the {context} that the model can read" if prompt >= context else ""


@dataclass(eq=False, slots=True)
class Sampling:
    """How tokens are chosen from logits.

    temperature: 0 takes the likeliest token; top_k: samples from so many of the likeliest (0: all); top_p: from the
    fewest that have this probability together; repetition_penalty: divides positive scores of tokens that are there
    num_beams: texts among which a search finds the likeliest; length_penalty: the power of a text's length by which its
    score is divided; early_stopping: whether the search is over once so many texts have ended
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False

    def feeds(self, random: Sequence[float], rows: int, pairs: Sequence[int]) -> list[Made]:
        """The inputs of sampling. random (N, rows): flat; pairs: of a row and a token that is penalised, flat"""
        # The likeliest token needs no order of all tokens.
        top_k = 1 if self.temperature <= 0 else self.top_k
        return [
            Made("temperature", [], [self.temperature]),
            Made("top_k", [], [top_k]),
            Made("top_p", [], [self.top_p]),
            Made("repetition_penalty", [], [self.repetition_penalty]),
            Made("random", [len(random) // rows, rows], random),
            Made("repeated", [len(pairs) // 2, 2], pairs),
        ]


class Format:
    """What a text may be, and the part of it that is written.

    masks: given tokens that are drafted, a mask for each of them and for the token after them, as the input `masks` of
        a session has them; fewer if the format forbids one of these tokens or ends with it
    take: adds a token, and tells whether the text is complete; an error for a token that the format forbids
    branch: gives a copy that goes on by itself
    """

    def __init__(
        self, masks: Callable[[list[int]], list[Sequence[int]]], take: Callable[[int], bool],
        branch: Callable[[], Format],
    ) -> None:  # fmt: skip
        self.masks = masks
        self.take = take
        self.branch = branch


def mask_feeds(layout: DecoderLayout, rows: list[int], masks: list[Sequence[int]]) -> list[Made]:
    """The inputs of masks: in the row of each of them, the tokens that may follow; those of a model with fewer tokens
    are cut. An empty list for a session without such inputs."""
    if layout.words == 0:
        return []
    flat = [word for mask in masks for word in [*mask, *[0] * layout.words][: layout.words]]
    return [Made("masked", [len(rows)], rows), Made("masks", [len(masks), layout.words], flat)]


class Numbers:
    """Random numbers by their position in a text."""

    def __init__(self, seed: int) -> None:
        self.seed = seed % SEEDS
        self._random = Random(seed)
        self._made: list[float] = []

    def at(self, start: int, count: int) -> list[float]:
        while len(self._made) < start + count:
            self._made.append(self._random.next())
        return self._made[start : start + count]


def _no_text(_: list[int]) -> str:
    return ""


class Text:
    """A text that grows by tokens, up to a stop.

    clock: gives the time; form: what the text may be, None if it is free
    reason: why the text ended: "length", "token" (one of the stop tokens), "text" or "format" (it is complete)
    reused: tokens of the prompt that were cached; first, elapsed: time until the first and the last token
    drafted, accepted: tokens of a draft model, and those that the model agreed with
    """

    def __init__(
        self, prompt: list[int], decode: Callable[[list[int]], str], stops: list[str], stop_tokens: list[int],
        clock: Callable[[], float], form: Format | None = None,
    ) -> None:  # fmt: skip
        self.prompt = prompt
        self.form = form
        self.tokens: list[int] = []
        self.text = ""
        self.reason = "length"
        self.reused = 0
        self.first = 0.0
        self.elapsed = 0.0
        self.drafted = 0
        self.accepted = 0
        self.is_ended = False
        self._stream = TextStream(decode, prompt)
        self._stops = StopTexts(stops)
        self._stop_tokens = set(stop_tokens)
        self._clock = clock
        self._start = clock()

    def branch(self) -> Text:
        """A copy that goes on by itself. It has a text only if it has stops."""
        form = None if self.form is None else self.form.branch()
        has_stops = len(self.stops()) > 0
        made = Text(self.prompt, self._stream.decode if has_stops else _no_text, [], [], self._clock, form)
        made.tokens = [*self.tokens]
        made._stop_tokens = self._stop_tokens
        if has_stops:
            made._stream = self._stream.branch()
            made._stops = self._stops.branch()
        return made

    def so_far(self) -> list[int]:
        return [*self.prompt, *self.tokens]

    def stops(self) -> list[str]:
        return self._stops.stops

    def grow(self, tokens: list[int]) -> None:
        """Add tokens that were written before, up to a stop."""
        for token in tokens:
            if not self.is_ended:
                self.add(token)

    def add(self, token: int) -> str:
        """Return the text that is certain now, and was not before."""
        self.tokens.append(token)
        self.elapsed = self._clock() - self._start
        if len(self.tokens) == 1:
            self.first = self.elapsed
        if self.form is not None and self.form.take(token):
            self.reason = "format"
            self.is_ended = True
        elif token in self._stop_tokens:
            self.reason = "token"
            self.is_ended = True
        if token in self._stop_tokens:
            return ""
        return self._certain(self._stream.add(token))

    def end(self) -> str:
        """Return the rest of the text."""
        if self._stops.is_stopped:
            return ""
        rest = self._certain(self._stream.rest())
        if self._stops.is_stopped:
            return rest
        self.text += self._stops.waiting
        return rest + self._stops.waiting

    def _certain(self, text: str) -> str:
        piece = self._stops.add(text)
        self.text += piece
        if self._stops.is_stopped:
            self.reason = "text"
            self.is_ended = True
        return piece


@dataclass(eq=False, slots=True)
class Request:
    """The next run. of_draft: the draft model runs; tokens: the text so far, with drafted tokens

    certain: of the tokens, those that are no draft
    count: of the last tokens, those whose followers are sampled; random: a number for each; masks: of tokens that may
        follow, for each, or none
    choices: of a search, how many of the likeliest tokens it wants; beams: its texts so far, in place of `tokens`, and
        masks for each; sources: the beam of the run before that each of them continues, none if each continues itself
    """

    of_draft: bool
    tokens: list[int]
    certain: int
    count: int
    random: list[float]
    masks: list[Sequence[int]] = field(default_factory=list)
    choices: int = 0
    beams: list[list[int]] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)


class Writer:
    """Writes one text. most: tokens; draft_tokens: how many are drafted, 0 without a draft; lookup: tokens whose
    earlier place in the text gives the draft, 0 if a model drafts

    Each position of the text has its random number, so that a draft does not change the result.
    """

    def __init__(self, text: Text, numbers: Numbers, most: int, draft_tokens: int, lookup: int) -> None:
        self.text = text
        self._numbers = numbers
        self._most = most
        self._draft_tokens = draft_tokens
        self._lookup = lookup
        self._drafted: list[int] = []

    def request(self) -> Request | None:
        """Return the next run, or None if the text is complete."""
        position = len(self.text.tokens)
        if self.text.is_ended or position >= self._most:
            return None
        written = self.text.so_far()
        most = min(self._draft_tokens, self._most - position - 1)
        if self._lookup > 0:
            self._drafted = looked_up(written, self._lookup, most)
        masks = self._masks()
        count = len(self._drafted) + 1
        is_cut = 0 < len(masks) < count
        if is_cut:  # the format forbids the next token, or ends with it
            count = len(masks)
            self._drafted = self._drafted[0 : count - 1]
        tokens = [*written, *self._drafted]
        if self._lookup == 0 and count <= most and not is_cut:
            return Request(True, tokens, len(written), 1, self._numbers.at(position + count - 1, 1), masks[count - 1 :])
        return Request(False, tokens, len(written), count, self._numbers.at(position, count), masks)

    def _masks(self) -> list[Sequence[int]]:
        form = self.text.form
        return [] if form is None else form.masks(self._drafted)

    def accepted(self, request: Request, sampled: list[float]) -> list[int]:
        """Return the new tokens of the text: those that the model agrees with, and one more; none after a draft."""
        tokens = [int(token) for token in sampled]
        if request.of_draft:
            self._drafted.append(tokens[0])
            return []
        good = agreed(self._drafted, tokens)
        self.text.drafted += len(self._drafted)
        self.text.accepted += good
        self._drafted = []
        return tokens[0 : good + 1]


def portions(layout: DecoderLayout, request: Request, cached: int) -> list[Request]:
    """Return the runs for a request, one after another: one, or one for each token that is not cached. All but the last
    sample what nobody reads."""
    if layout.at_once == 0:
        return [request]
    count = len(request.tokens)
    parts = [Request(request.of_draft, request.tokens[0:n], n, 1, [0.0]) for n in range(cached + 1, count)]
    return [*parts, request]


def sampling_feeds(layout: DecoderLayout, request: Request, cached: int, how: Sampling) -> list[Made]:
    """Return the feeds of a run of one text, whose rows are equal if the model takes several. cached: of its tokens,
    those whose keys and values are cached"""
    copies = range(max(1, layout.rows))
    fresh = request.tokens[cached:]
    rows = min(layout.positions, len(fresh))
    pairs = penalised(rows, request.tokens) if how.repetition_penalty != 1 else []
    random = [*[0.0 for _ in range(rows - request.count)], *request.random]
    ones = [1 for _ in request.tokens]
    made = text_inputs(layout, [fresh for _ in copies], [ones for _ in copies])
    places = [rows - len(request.masks) + n for n in range(len(request.masks))]
    sampled = how.feeds([number for _ in copies for number in random], rows, pairs)
    return [*made, *sampled, *mask_feeds(layout, places, request.masks)]


def shared_length(layout: DecoderLayout, request: Request, cached: int) -> int:
    """Texts for which this is equal can share a run, which reads a token of each, if they are sampled alike; -1 for one
    that runs alone. cached: as of `sampling_feeds`"""
    if not layout.shares or request.of_draft or request.count != 1 or request.choices > 0:
        return -1
    if len(request.tokens) != cached + 1:
        return -1
    return 0 if layout.pads else cached


@dataclass(eq=False, slots=True)
class Waiting:
    """A text that goes on by a run. cached: as of `sampling_feeds`; how: it is sampled; is_alone: it shares no run"""

    request: Request
    cached: int
    how: Sampling
    is_alone: bool = False


def shared_groups(layout: DecoderLayout, texts: list[Waiting]) -> list[list[int]]:
    """Return the texts of each run, as places in the list. Those that share a run have at most SPARE positions of
    padding, or THRIFT of their own."""
    groups: list[list[int]] = []
    for n in sorted(range(len(texts)), key=lambda n: -texts[n].cached):
        fits = [group for group in groups if _can_join(layout, texts, group, n)]
        if len(fits) > 0:
            fits[0].append(n)
        else:
            groups.append([n])
    return sorted([sorted(group) for group in groups], key=lambda group: group[0])


def _can_join(layout: DecoderLayout, texts: list[Waiting], group: list[int], n: int) -> bool:
    """Whether a text can share the run of these, the first of which is the longest."""
    first, text = texts[group[0]], texts[n]
    length = -1 if text.is_alone else shared_length(layout, text.request, text.cached)
    if first.is_alone or length < 0 or shared_length(layout, first.request, first.cached) != length:
        return False
    own = sum([texts[member].cached for member in [*group, n]])
    padding = (len(group) + 1) * first.cached - own
    return padding <= max(SPARE, THRIFT * own) and are_alike(first.how, text.how)


def are_alike(a: Sampling, b: Sampling) -> bool:
    """Whether texts are sampled alike."""
    is_same = a.temperature == b.temperature and a.top_k == b.top_k and a.top_p == b.top_p
    return is_same and a.repetition_penalty == b.repetition_penalty


def shared_feeds(layout: DecoderLayout, requests: list[Request], how: Sampling) -> list[Made]:
    """Return the feeds of a run that reads the last token of each text. Shorter ones are padded on the left."""
    texts = [request.tokens for request in requests]
    mask = left_padded([[1 for _ in tokens] for tokens in texts])
    pairs = penalised_last(1, texts) if how.repetition_penalty != 1 else []
    fresh = [[tokens[len(tokens) - 1]] for tokens in texts]
    random = [number for request in requests for number in request.random]
    places = [n for n, request in enumerate(requests) for _ in request.masks]
    masks = [mask for request in requests for mask in request.masks]
    return [*text_inputs(layout, fresh, mask), *how.feeds(random, 1, pairs), *mask_feeds(layout, places, masks)]


def beam_feeds(layout: DecoderLayout, request: Request, how: Sampling) -> list[Made]:
    """Return the feeds of a run that reads the last token of each beam."""
    rows = [
        Request(False, tokens, len(tokens), 1, [0.0], request.masks[n : n + 1])
        for n, tokens in enumerate(request.beams)
    ]
    return shared_feeds(layout, rows, how)
