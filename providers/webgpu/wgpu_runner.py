"""Runs a Program's GPU steps natively: its shaders, prepared steps, and copies between the memories."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .printer.loops import Shader
from .wgpu_device import Held, Place, narrow, stored, widen
from .wgpu_host import Dispatch, GpuHost

SHORT = 0.02  # seconds: steps that took less are submitted as a whole, and not waited for
PORTION, GROWTH = 0.01, 4  # seconds of a submission of others, and how many times larger the next one may be


class _Prepared:
    """A step with its shapes bound: what is needed to make its bind groups, and they, for one arena generation."""

    def __init__(self, calls: Sequence[dict[str, Any]], sizes: list[list[int]], words: Sequence[int]) -> None:
        self.calls = calls
        self.words = list(words)
        self.sizes = sizes
        self.generation = -1
        self.offsets: list[int] | None = None  # of the parameter blocks
        self.dispatches: list[Dispatch] = []
        self.seconds = math.inf  # of the last run
        self.portion = 1  # dispatches of a submission


class GpuRunner:
    """host: the device; base: address at which the GPU's memory starts."""

    def __init__(self, host: GpuHost, base: int) -> None:
        self.host = host
        self.base = base
        self.shaders: list[Shader] = []
        self.prepared: list[_Prepared] = []
        self.timings: list[tuple[str, float]] | None = None

    def load(self, data: bytes) -> None:
        """The shaders of a program, as its code writer wrote them."""
        self.shaders = [Shader(**s) for s in json.loads(data)]
        self.host.checks = any(s.faults for s in self.shaders)

    def reserve(self, end: int) -> None:
        """Memory up to this address."""
        self.host.grow(end - self.base)

    @property
    def parameter_bytes(self) -> int:
        """Of parameter blocks, since plans were last dropped."""
        return self.host.parameters.top

    def forget(self) -> None:
        self.host.flush()
        self.prepared.clear()
        self.host.parameters.forget()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self, calls: Sequence[dict[str, Any]], sizes: Any, words: Sequence[int]) -> int:
        """Keep a step's argument words (addresses, parameters and work of each call) and the bytes that its buffers
        have there, with the room to grow; gives its number."""
        self.prepared.append(_Prepared(calls, [[sizes[b] for b in c["buffers"]] for c in calls], words))
        return len(self.prepared) - 1

    def run(self, number: int, check: Callable[[], None]) -> None:
        """check: raises what ends the run; asked between the submissions of a step that takes long."""
        step = self.prepared[number]
        if step.generation != self.host.generation:
            self._bind(step)
        if not step.dispatches:
            return
        if self.timings is not None and self.host.adapter.timestamps:
            times = self.host.timed(step.dispatches)
            self.timings += [(d.label, t / 1e9) for d, t in zip(step.dispatches, times, strict=True)]
        elif step.seconds < SHORT:
            self.host.encode(step.dispatches)
        else:
            self._in_portions(step, check)

    def _in_portions(self, step: _Prepared, check: Callable[[], None]) -> None:
        """web/run/portions.js does the same."""
        start = last = time.perf_counter()
        at = 0
        while at < len(step.dispatches):
            check()
            part = step.dispatches[at : at + step.portion]
            self.host.encode(part)
            self.host.finish()
            now = time.perf_counter()
            step.portion = max(1, int(len(part) * min(GROWTH, PORTION / max(now - last, 1e-6))))
            at, last = at + len(part), now
        step.seconds = last - start

    def _bind(self, step: _Prepared) -> None:
        """Parameter blocks and bind groups for the arena as it is."""
        blocks, plans, at = [], [], 0
        for call, sizes in zip(step.calls, step.sizes, strict=True):
            count, params = len(call["buffers"]), len(call["params"]) + 1
            addresses = step.words[at : at + count]
            words = step.words[at + count : at + count + params]
            at += count + params
            if words[-1] > 0:
                plans.append((call, addresses, sizes, words[-1]))
                blocks.append(struct.pack(f"<{params}i", *words))
        step.dispatches = []
        if step.offsets is None:  # steps are dropped with their blocks
            step.offsets = self.host.parameters.put(blocks)
        for (call, addresses, sizes, work), offset in zip(plans, step.offsets, strict=True):
            label = f"{call['node']} {call['kernel']}".strip()
            places = [(a - self.base, s) for a, s in zip(addresses, sizes, strict=True)]
            step.dispatches.append(self.host.dispatch(self.shaders[int(call["kernel"])], places, offset, work, label))
        step.generation = self.host.generation

    # ── crossings ────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, address: int, x: np.ndarray[Any, Any]) -> None:
        """Elements in linear memory's layout to the GPU; 64-bit integers become 32-bit ones."""
        if x.size:
            self.host.write(address - self.base, narrow(x))

    def read(self, those: Sequence[tuple[int, np.dtype[Any], int]]) -> list[np.ndarray[Any, Any]]:
        """Elements (address, type, count) in linear memory's layout; waits for the work that makes them."""
        found = self.host.read_all([(at - self.base, count * stored(dtype).itemsize) for at, dtype, count in those])
        return [widen(data, dtype, count) for data, (_, dtype, count) in zip(found, those, strict=True)]

    def take_fault(self) -> bytes:
        """The record of a fault that the last read found, as linear memory has it; empty if there was none."""
        node, extent, index, _ = struct.unpack("<4i", self.host.take_fault())
        return struct.pack("<iiq", node, extent, index) if node else b""

    def hold(self, dtype: np.dtype[Any], count: int) -> Held:
        """Memory of its own for so many elements."""
        return Held(self.host.own, count * stored(dtype).itemsize)

    def fetch_held(self, those: Sequence[tuple[int, Held]]) -> None:
        """Copies what is held elsewhere to addresses."""
        own = [(held, self._place(at)) for at, held in those if held.size]
        self.host.copy([((held.buffer, 0), place, held.bytes) for held, place in own])

    def fill_held(self, those: Sequence[tuple[int, Held]]) -> None:
        """Copies what is at addresses to where it is held."""
        own = [(held, self._place(at)) for at, held in those if held.size]
        self.host.copy([(place, (held.buffer, 0), held.bytes) for held, place in own])

    def _place(self, address: int) -> Place:
        return self.host.place(address - self.base)


__all__ = ["GpuRunner"]
