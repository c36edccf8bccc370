"""The timeline of a run's memory: the address and the lifetime of each buffer."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.program.types import Call, Input
from pyruntime.runtime.states import Layout, Place


@dataclass(eq=False, slots=True)
class BufferSpan:
    """Bytes [address, address + size) hold the output of `name` in calls [start, end)."""

    name: str
    address: int
    size: int
    start: int
    end: int


class Timeline:
    """Records the buffers of one run while the planner plans it: an observer of the planner."""

    def __init__(self, inputs: list[Input]) -> None:
        self._clock = 0
        self._alive: dict[int, BufferSpan] = {}  # by address
        self._done: list[BufferSpan] = []
        self._names: dict[int, str] = {}
        for spec in inputs:
            self._names[spec["buffer"]] = spec["name"]

    def spans(self) -> list[BufferSpan]:
        """All buffers, those that begin first first."""
        for span in self._alive.values():
            span.end = self._clock + 1
        return sorted([*self._done, *self._alive.values()], key=lambda span: (span.start, span.address))

    def changed(self, before: Place, after: Place) -> None:
        """Inputs, copies and control steps. Buffers that are only renamed keep their spans."""
        old = {span.address for span in before.spans.values()}
        now = {span.address for span in after.spans.values()}
        for address in sorted(old):
            if address not in now:
                self._end(address)
        for buffer, span in after.spans.items():
            if span.address not in old:
                self._begin(span.address, span.size, self._names.get(buffer, "copy or control"))

    def laid_out(self, calls: list[Call], layout: Layout, sizes: dict[int, int]) -> None:
        """For each call, begins the spans of the buffers that it allocates and ends those of the buffers that it
        frees."""
        for call in calls:
            passed: set[int] = set()  # in place
            for buffer in call["alloc"]:
                address = layout.spans[buffer].address
                if address in self._alive:
                    passed.add(address)
            for buffer in call["alloc"]:
                address = layout.spans[buffer].address
                self._end(address)
                self._begin(address, sizes[buffer], call["node"])
            self._clock += 1
            for buffer in call["free"]:
                live = layout.spans.get(buffer)
                if live is not None and live.address not in passed:
                    self._end(live.address)

    def _begin(self, address: int, size: int, name: str) -> None:
        self._alive[address] = BufferSpan(name, address, size, self._clock, self._clock)

    def _end(self, address: int) -> None:
        span = self._alive.get(address)
        if span is not None:
            del self._alive[address]
            span.end = max(self._clock, span.start + 1)
            self._done.append(span)
