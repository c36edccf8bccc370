"""Work that may wait for promises of JavaScript: generators that yield promises and are sent what these resolve to.

Without a GPU nothing waits. With one, Python can wait in the middle of plain calls where the browser switches stacks
(JSPI) and JavaScript entered Python by `runPythonAsync` or `callPromising`; elsewhere a program awaits the work."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from pyruntime.errors import SessionFailed

T = TypeVar("T")
Work = Generator[Any, Any, T]


def can_wait() -> bool:
    """Whether plain calls can wait for promises here and now."""
    from pyodide.ffi import can_run_sync

    return can_run_sync()


def finish(work: Work[T]) -> T:
    """The result of the work. Errors: SessionFailed if it has to wait and cannot"""
    given: Any = None
    try:
        while True:
            promise = work.send(given)
            if not can_wait():
                work.close()
                raise SessionFailed("Python cannot wait for the GPU here", hint="await session.run_awaitable(…)")
            from pyodide.ffi import run_sync

            given = run_sync(promise)
    except StopIteration as end:
        return end.value


async def finished(work: Work[T]) -> T:
    """The same for programs that await it."""
    given: Any = None
    try:
        while True:
            given = await work.send(given)
    except StopIteration as end:
        return end.value
