"""Decides by times whether the runs of a session are faster on WebAssembly or on the GPU (provider "auto"). Natively
another provider may take the place of the GPU.

A pure state machine: the executor runs on WebAssembly and reports the times. When the trial wants the GPU's time, the
executor measures it beside the session's runs, on a copy of their feeds.
"""

from __future__ import annotations

RUNS = 3  # timed runs of about one size, after a first one, whose code is still slow
FLOOR = 2.0  # ms: a GPU takes about as long to start kernels and to return results
GAIN = 0.9  # the GPU must be faster by a tenth, because times vary
LONGER = 4.0  # runs that take this many times as long as those of the trial start a new one
GPU_RUNS = 3  # timed runs on the GPU, after a first one that loads weights and compiles shaders

TIMING = 0
WANTED = 1
SETTLED = 2


class ProviderTrial:
    """Of one session.

    state: TIMING, WANTED (the GPU is to be measured) or SETTLED; on_gpu: whether the GPU has won; best, least:
    milliseconds of a run on WebAssembly and on the GPU; floor: runs that take less are too short for a trial; why: the
    reason of the choice, for `explain`; other: the name there of what is compared
    """

    def __init__(self, reference: float) -> None:
        """reference: `best` of the trial that chose WebAssembly on an earlier visit, or 0"""
        self.state = SETTLED if reference > 0 else TIMING
        self.on_gpu = False
        self.best = reference
        self.least = 0.0
        self.floor = FLOOR
        self.other = "the GPU"
        self.why = "auto: runs on WebAssembly are timed"
        self._times: list[float] = []
        self._elements = 0
        self._long = 0
        self._gpu_times: list[float] = []

    def took(self, elements: int, time: float) -> bool:
        """A run on WebAssembly took so many milliseconds. Not called while the GPU is measured. elements: of the
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
        if self.best < self.floor:
            self.settle(False, f"auto: a run takes {milliseconds(self.best)} on WebAssembly, too little for a GPU")
        else:
            self.state = WANTED

    def took_on_gpu(self, time: float) -> bool:
        """Record the milliseconds of a run on the GPU. Returns whether another run is needed; if not, the trial has
        settled."""
        self._gpu_times.append(time)
        if len(self._gpu_times) <= GPU_RUNS:
            return True
        self.least = min(self._gpu_times[1:])
        times = f"{milliseconds(self.best)} on WebAssembly, {milliseconds(self.least)} on {self.other}"
        self.settle(self.least < GAIN * self.best, f"auto: a run takes {times}")
        return False

    def unused(self) -> None:
        """The compiler placed no kernel of the run on the GPU."""
        self.settle(False, f"auto: no kernel is worth the way to {self.other}")

    def failed(self, reason: str) -> None:
        """The GPU could not be measured."""
        self.settle(False, f"auto: {self.other} failed: {reason}")

    def settle(self, on_gpu: bool, why: str) -> None:
        self.state = SETTLED
        self.on_gpu = on_gpu
        self.why = why
        self._long = 0
        self._gpu_times = []


def milliseconds(time: float) -> str:
    tenths = int(10 * time + 0.5)
    return f"{tenths // 10}.{tenths % 10} ms"
