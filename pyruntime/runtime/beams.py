"""Beam search: the likeliest of several texts that grow side by side (docs/use/chat.md).

Spec: https://huggingface.co/docs/transformers/main_classes/text_generation (num_beams, length_penalty, early_stopping)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyruntime.runtime.generation import DecoderLayout
from pyruntime.runtime.writing import Request, Sampling, Text

STOPS = 7  # stop tokens that may be among the likeliest tokens of a beam at once


@dataclass(eq=False, slots=True)
class Beam:
    """A text that may win. score: the sum of its log probabilities, once it has ended over a power of its length

    source: the beam that it continues, as a place among those of the run before
    """

    tokens: list[int]
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
        self._stop_tokens = set(stop_tokens)
        self._prompt = text.so_far()
        self._beams = [Beam([], 0.0, 0)]
        self._sources: list[int] = []  # of the beams, empty if each continues itself
        self._ended: list[Beam] = []  # best first
        self._is_over = most == 0

    def request(self) -> Request | None:
        """Return the next run, or None if the search is over."""
        if self._is_over:
            return None
        rows = [[*self._prompt, *beam.tokens] for beam in self._beams]
        beams = rows if len(self._beams[0].tokens) > 0 else []
        return Request(False, rows[0], len(rows[0]), 1, [0.0], [], self.how.top_k, beams, self._sources)

    def accepted(self, request: Request, sampled: list[float]) -> list[int]:
        """Return the tokens of the best text once the search is over. sampled: the likeliest tokens after each beam,
        then their log probabilities"""
        half = len(sampled) // 2
        each = half // len(self._beams)
        found: list[Beam] = []
        for n, beam in enumerate(self._beams):
            for place in range(n * each, (n + 1) * each):
                tokens = [*beam.tokens, int(sampled[place])]
                found.append(Beam(tokens, beam.score + sampled[half + place], n))
        self._step(sorted(found, key=lambda beam: -beam.score)[0 : self.how.top_k])
        if not self._is_over:
            return []
        return self._ended[0].tokens

    def _step(self, best: list[Beam]) -> None:
        """Choose the next beams, and the texts that have ended."""
        count = self._rules.num_beams
        length = len(best[0].tokens)
        scale = math.pow(length, self._rules.length_penalty)
        going = [beam for beam in best if not self._has_ended(beam)][0:count]
        # A text that ends behind the best beams is given up.
        ended = [Beam(beam.tokens, beam.score / scale, 0) for beam in best[0:count] if self._has_ended(beam)]
        self._ended = sorted([*self._ended, *ended], key=lambda beam: -beam.score)[0:count]
        is_full = len(self._ended) == count
        self._is_over = len(going) == 0
        if is_full and not self._is_over:
            worst = self._ended[count - 1].score
            self._is_over = self._rules.early_stopping or going[0].score / scale <= worst
        sources = [beam.source for beam in going]
        stay = len(going) == len(self._beams) and all(source == n for n, source in enumerate(sources))
        self._sources = [] if stay else sources
        self._beams = going

    def _has_ended(self, beam: Beam) -> bool:
        return beam.tokens[len(beam.tokens) - 1] in self._stop_tokens or len(beam.tokens) >= self._most


def refused_beams(layout: DecoderLayout, how: Sampling, text: Text, drafts: int, is_whole: bool) -> str:
    """Why these settings and this model do not go with beams, or "". is_whole: nobody reads the text before its end"""
    if not is_whole:
        return "the text is known at its end alone: call generate"
    if not layout.scores:
        return "its session returns no scores: compile the Program again"
    if layout.rows > 0 or layout.at_once > 0 or not layout.shares:
        return "the model must take any number of texts, which do not depend on each other, and have no other inputs"
    plain = Sampling()
    if how.temperature != plain.temperature or how.top_k != plain.top_k or how.top_p != plain.top_p:
        return "they take the likeliest tokens: give no temperature, top_k or top_p"
    if how.repetition_penalty != plain.repetition_penalty:
        return "give no repetition_penalty"
    if text.form is not None or len(text.stops()) > 0 or drafts > 0:
        return "a format, stop, a draft and lookup are for texts without beams"
    return ""
