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


Timed = tuple[str, float, str]  # label of the node and name of the function, seconds, name of the provider


@contextmanager
def timed(executor: Any, repeat: int = 1) -> Iterator[list[Timed]]:
    """In this context the executor runs each kernel on its own and appends its name, seconds and provider to the list.
    repeat: how often each kernel on the GPU runs; its seconds are the mean"""
    found: list[Timed] = []
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


def timings(found: Sequence[Timed]) -> list[Timing]:
    parts = [(*name.rpartition(" "), seconds) for name, seconds, _ in found]
    return [Timing(node, kernel, seconds) for node, _, kernel, seconds in parts]
