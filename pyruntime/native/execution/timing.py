"""Times the kernels of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class Timing(NamedTuple):
    """One kernel call of a run: label of its node, name of its function, seconds."""

    node: str
    kernel: str
    seconds: float


@contextmanager
def timed(executor: Any, repeat: int = 1) -> Iterator[list[tuple[str, float]]]:
    """In this context the executor runs each kernel on its own and appends its name and seconds to the list. repeat:
    how often each kernel on the GPU runs; its seconds are the mean"""
    found: list[tuple[str, float]] = []
    parts = [executor] if executor.gpu is None else [executor, executor.gpu]
    for part in parts:
        part.timings = found
    if executor.gpu is not None:
        executor.gpu.repeat = repeat
    try:
        yield found
    finally:
        for part in parts:
            part.timings = None


def timings(found: Sequence[tuple[str, float]]) -> list[Timing]:
    parts = [(*name.rpartition(" "), seconds) for name, seconds in found]
    return [Timing(node, kernel, seconds) for node, _, kernel, seconds in parts]
