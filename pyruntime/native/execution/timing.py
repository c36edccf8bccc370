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
def timed(executor: Any) -> Iterator[list[tuple[str, float]]]:
    """In this context the executor runs each kernel on its own, and appends its name and seconds to the list."""
    found: list[tuple[str, float]] = []
    parts = [executor] if executor.gpu is None else [executor, executor.gpu]
    for part in parts:
        part.timings = found
    try:
        yield found
    finally:
        for part in parts:
            part.timings = None


def timings(found: Sequence[tuple[str, float]]) -> list[Timing]:
    parts = [(*name.rpartition(" "), seconds) for name, seconds in found]
    return [Timing(node, kernel, seconds) for node, _, kernel, seconds in parts]
