"""Beam search: the likeliest of several texts that grow side by side (docs/use/chat.md).

Spec: https://huggingface.co/docs/transformers/main_classes/text_generation (num_beams, length_penalty, early_stopping)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyruntime.errors import InvalidInput
from pyruntime.runtime.generation import DecoderLayout
from pyruntime.runtime.writing import Request, Sampling, Text

STOPS = 7  # stop tokens that may be among the likeliest tokens of a beam at once


@dataclass(eq=False, slots=True)
class Beam:
    """A text that may win. score: the sum of its log probabilities, once it has ended over a power of its length

    source: the beam that it continues, as a place among those of the run before
    """

    text: Text
    score: float
    source: int


class BeamWriter:
    """Writes the best of several texts, as `Writer` writes one. most: tokens; stop_tokens: they end a text

    how: what its runs get: the likeliest tokens of each beam, unchanged by temperature or penalty
    """

    def __init__(self, text: Text, how: Sampling, most: int, stop_tokens: list[int]) -> None:
        self.text = text
        self.how = Sampling(1.0, how.num_beams * (1 + max(1, min(STOPS, len(stop_tokens)))))
        self._rules = how
        self._most = most
        self._beams = [Beam(text.branch(), 0.0, 0)]
        self._sources: list[int] = []  # of the beams, empty if each continues itself
        self._ended: list[Beam] = []  # best first
        self._is_over = most == 0

    def request(self) -> Request | None:
        """Return the next run, or None if the search is over."""
        if self._is_over:
            return None
        rows = [beam.text.so_far() for beam in self._beams]
        beams = rows if len(self._beams[0].text.tokens) > 0 else []
        forms = [beam.text.form for beam in self._beams]
        masks = [mask for form in forms if form is not None for mask in form.masks([])]
        return Request(False, rows[0], len(rows[0]), 1, [0.0], masks, self.how.top_k, beams, self._sources)

    def accepted(self, request: Request, sampled: list[float]) -> list[int]:
        """Return the tokens of the best text once the search is over. sampled: the likeliest tokens after each beam,
        then their log probabilities. Errors: InvalidInput if all of these are NaN or -inf"""
        half = len(sampled) // 2
        each = half // len(self._beams)
        scores = [self._beams[n // each].score + score for n, score in enumerate(sampled[half:])]
        places = [n for n, score in enumerate(scores) if score > -math.inf]
        if len(places) == 0:
            raise InvalidInput("the model gave no token to go on with", hint="are all of its scores NaN or -inf?")
        best = sorted(places, key=lambda n: -scores[n])[0 : self.how.top_k]
        self._step([(n // each, int(sampled[n]), scores[n]) for n in best])
        if not self._is_over:
            return []
        return self._ended[0].text.tokens

    def _step(self, best: list[tuple[int, int, float]]) -> None:
        """Choose the next beams, and the texts that have ended. best: beams, tokens that follow them, and the scores"""
        count = self._rules.num_beams
        length = len(self._beams[0].text.tokens) + 1
        scale = math.pow(length, self._rules.length_penalty)
        going: list[Beam] = []
        ended = [*self._ended]
        for place, (source, token, score) in enumerate(best):
            if place >= count and len(going) == count:
                break
            text = self._beams[source].text.branch()
            text.add(token)
            if not text.is_ended and length < self._most:
                going.append(Beam(text, score, source))
            elif place < count:  # a text that ends behind the best beams is given up
                ended.append(Beam(text, score / scale, source))
        # A text that lacks the end of its format wins only if no other has ended.
        rank = sorted(ended, key=lambda beam: (0 if beam.text.is_ended or beam.text.form is None else 1, -beam.score))
        self._ended = rank[0:count]
        is_full = len(self._ended) == count
        self._is_over = len(going) == 0
        if is_full and not self._is_over:
            worst = self._ended[count - 1].score
            self._is_over = self._rules.early_stopping or going[0].score / scale <= worst
        sources = [beam.source for beam in going]
        stay = len(going) == len(self._beams) and all(source == n for n, source in enumerate(sources))
        self._sources = [] if stay else sources
        self._beams = going


def refused_beams(layout: DecoderLayout, how: Sampling, drafts: int, is_whole: bool) -> str:
    """Why these settings and this model do not go with beams, or "". is_whole: nobody reads the text before its end"""
    if not is_whole:
        return "the text is known at its end alone: call generate"
    if not layout.scores:
        return "its session returns no scores: compile the Program again"
    if layout.at_once > 0 or not layout.stacks:
        return "the model must take any number of texts, which do not depend on each other"
    plain = Sampling()
    if how.temperature != plain.temperature or how.top_k != plain.top_k or how.top_p != plain.top_p:
        return "they take the likeliest tokens: give no temperature, top_k or top_p"
    if how.repetition_penalty != plain.repetition_penalty:
        return "give no repetition_penalty"
    return "a draft and lookup are for texts without beams" if drafts > 0 else ""
