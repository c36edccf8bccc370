"""Progress on standard error, for work that takes over a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
SECOND = 1.0


class _Line:
    """On a terminal, a line that is rewritten each second; otherwise one line after the first second."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.count = ""
        self.start = time.perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def _print(self) -> None:
        written = 0
        while not self._ended.wait(SECOND):
            line = f"{self.text}{self.count}: {time.perf_counter() - self.start:.0f} s"
            if sys.stderr.isatty():
                print(f"\r{line.ljust(written)}", end="", file=sys.stderr, flush=True)
                written = len(line)
            elif not written:
                written = 1
                print(f"{self.text} …", file=sys.stderr, flush=True)
        if written > 1:
            print(f"\r{' ' * written}\r", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@contextmanager
def doing(text: str) -> Iterator[_Line]:
    """Shows `text` and the seconds that have passed, during the block."""
    line = _Line(text)
    try:
        yield line
    finally:
        line.end()


def counted(text: str, items: Sequence[T]) -> Iterable[T]:
    """The items, one after the other; shows `text` and the number of the item."""
    with doing(text) as line:
        for n, item in enumerate(items):
            line.count = f" {n + 1} of {len(items)}"
            yield item
