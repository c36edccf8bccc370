"""Decides by times where the runs of a session are fastest (provider "auto"): on WebAssembly, on the GPU, or on a
provider of others that takes part.

A pure state machine: the executor runs on WebAssembly and reports the times. When the trial wants the times of the
others, the executor measures them one after another beside the session's runs, on a copy of their feeds.
"""

from __future__ import annotations

GPU = "the GPU"
RUNS = 3  # timed runs of about one size, after a first one, whose code is still slow
FLOOR = 2.0  # ms: a GPU takes about as long to start kernels and to return results
GAIN = 0.9  # another must be faster by a tenth, because times vary
LONGER = 4.0  # runs that take this many times as long as those of the trial start a new one
OTHER_RUNS = 3  # timed runs on another, after a first one that loads weights and compiles shaders

TIMING = 0
WANTED = 1
SETTLED = 2


class ProviderTrial:
    """Of one session.

    state: TIMING, WANTED (the others are to be measured) or SETTLED; others: what may be faster than WebAssembly, as
    `why` names it; measured: the number of the one that is measured; winner: the number of the one that has won, or -1;
    best: milliseconds of a run on WebAssembly; why: the reason of the choice, for `explain`
    """

    def __init__(self, reference: float, others: list[str]) -> None:
        """reference: `best` of the trial that chose WebAssembly on an earlier visit, or 0"""
        self.state = SETTLED if reference > 0 else TIMING
        self.others = others
        self.measured = 0
        self.winner = -1
        self.best = reference
        self.why = "auto: runs on WebAssembly are timed"
        self._times: list[float] = []
        self._elements = 0
        self._long = 0
        self._other_times: list[float] = []
        self._least = 0.0  # of the winner so far
        self._found: list[str] = []  # times of the others
        self._failed: list[str] = []  # why others have none

    def took(self, elements: int, time: float) -> bool:
        """A run on WebAssembly took so many milliseconds. Not called while others are measured. elements: of the
        feeds. Returns whether the trial has settled by this run."""
        was_settled = self.state == SETTLED
        self._count(elements, time)
        return self.state == SETTLED and not was_settled

    def _count(self, elements: int, time: float) -> None:
        if self.state == SETTLED:
            self._long = self._long + 1 if time > LONGER * max(self.best, FLOOR / LONGER) else 0
            if self._long > RUNS:
                self.state = TIMING
                self._times = []
        if self.state == SETTLED:
            return
        if abs(elements - self._elements) > self._elements / 8:
            self._elements = elements
            self._times = []
            self.state = TIMING
        if self.state == WANTED:
            return
        self._times.append(time)
        if len(self._times) <= RUNS:
            return
        self.best = min(self._times[1:])
        if self.best < FLOOR and len(self.others) == 1 and self.others[0] == GPU:
            self._settle(f"a run takes {milliseconds(self.best)} on WebAssembly, too little for a GPU")
        else:
            self.state = WANTED
            self.measured = 0
            self.winner = -1
            self._found = []
            self._failed = []

    def took_elsewhere(self, time: float) -> bool:
        """Record the milliseconds of a run on the other that is measured. Returns whether another run on it is
        needed."""
        self._other_times.append(time)
        if len(self._other_times) <= OTHER_RUNS:
            return True
        least = min(self._other_times[1:])
        self._found.append(f"{milliseconds(least)} on {self.others[self.measured]}")
        if least < GAIN * self.best and (self.winner < 0 or least < self._least):
            self.winner = self.measured
            self._least = least
        self._next()
        return False

    def unused(self) -> None:
        """The compiler placed no kernel of the run on the other that is measured."""
        self._failed.append(f"no kernel is worth the way to {self.others[self.measured]}")
        self._next()

    def failed(self, reason: str) -> None:
        """The other could not be measured; or the session could not move to the one that has won."""
        if self.state == SETTLED:
            self._settle(f"{self.others[self.winner]} failed: {reason}")
            self.winner = -1
            return
        self._failed.append(f"{self.others[self.measured]} failed: {reason}")
        self._next()

    def _next(self) -> None:
        """Measure the next one, or settle."""
        self._other_times = []
        self.measured += 1
        if self.measured < len(self.others):
            return
        times = [f"a run takes {milliseconds(self.best)} on WebAssembly, {', '.join(self._found)}"]
        self._settle("; ".join([*(times if len(self._found) > 0 else []), *self._failed]))

    def _settle(self, why: str) -> None:
        self.state = SETTLED
        self.why = f"auto: {why}"
        self._long = 0


def milliseconds(time: float) -> str:
    tenths = int(10 * time + 0.5)
    return f"{tenths // 10}.{tenths % 10} ms"
