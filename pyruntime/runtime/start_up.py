"""The start of an executor: the buffers to place first, and the constants to load before each step of the init
block."""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.program.types import Call, Constant, Header, Step


@dataclass(eq=False, slots=True)
class StartUp:
    """permanent: buffers that calls of the init block make and that it does not free; constants: those that it does not
    free either; reads: for each of its steps, those of these constants that no step before it reads; before: for each
    step, the constants to load before it, which the block frees later."""

    permanent: list[int]
    constants: list[Constant]
    reads: list[list[Constant]]
    before: list[list[Constant]]


def start_up(header: Header) -> StartUp:
    """Buffers that outlive the init block come first, so that no holes remain between them. Constants that only one
    step reads are loaded before it, so that few are in memory at once."""
    steps = header["blocks"][0]["steps"]
    freed: set[int] = set()
    made: list[int] = []
    for step in steps:
        for call in calls_of(step):
            made.extend(call["alloc"])
            freed.update(call["free"])
        if "free" in step:
            freed.update(step["free"])
    permanent = [buffer for buffer in made if buffer not in freed]
    constants = [c for c in header["constants"] if c["buffer"] not in freed]
    pending = [c for c in header["constants"] if c["buffer"] in freed]
    unread = constants
    reads: list[list[Constant]] = []
    before: list[list[Constant]] = []
    for step in steps:
        read = {buffer for call in calls_of(step) for buffer in call["buffers"]}
        reads_any = "calls" not in step
        reads.append([c for c in unread if reads_any or c["buffer"] in read])
        before.append([c for c in pending if reads_any or c["buffer"] in read])
        unread = [c for c in unread if not reads_any and c["buffer"] not in read]
        pending = [c for c in pending if not reads_any and c["buffer"] not in read]
    return StartUp(permanent, constants, reads, before)


def calls_of(step: Step) -> list[Call]:
    """The calls of a wasm or GPU step; other steps have none."""
    return step["calls"] if "calls" in step else []
