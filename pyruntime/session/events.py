"""Events that programs listen for: `pyruntime.on(name, listener)`. Twin of web/common/events.js.

A thread of its own calls the listeners: an event may come from within a run, and a listener that used the same session
there would wait for itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import Any

from pyruntime.errors import InvalidInput

Listener = Callable[[Mapping[str, Any]], object]

_listeners: dict[str, list[Listener]] = {"memory": [], "session": []}
_threads: list[Any] = []  # an executor with one thread, once there was an event


def listeners(name: str) -> list[Listener]:
    """Those of this event, from now on: a list that `on` and `off` change."""
    if name not in _listeners:
        raise InvalidInput(f'there is no event "{name}"', hint=f"one of {', '.join(_listeners)}")
    return _listeners[name]


def on(name: str, listener: Listener) -> Callable[[], None]:
    """Call `listener` for each event of this name from now on, with a dict. Returns a function that ends it. Events are
    "memory" and "session" (docs/api/memory.md)."""
    if not callable(listener):
        raise InvalidInput(f'the listener of "{name}" is no function: {listener!r}')
    if listener not in listeners(name):
        listeners(name).append(listener)
    return lambda: off(name, listener)


def off(name: str, listener: Listener) -> None:
    """End what `on` began."""
    if listener in listeners(name):
        listeners(name).remove(listener)


def emit(name: str, event: Mapping[str, Any]) -> None:
    """Call the listeners soon, in the order of events. The error of one is logged and stops nothing else."""
    found = [*listeners(name)]
    if not found:
        return
    if sys.platform == "emscripten":  # has no threads
        _call(found, event)
        return
    work = partial(copy_context().run, _call, found, event)  # listeners find what the caller keeps there: traces
    try:
        if not _threads:
            from concurrent.futures import ThreadPoolExecutor

            _threads.append(ThreadPoolExecutor(1, "pyruntime-events"))
        _threads[0].submit(work)
    except RuntimeError:  # the process ends, and its threads take no more work
        work()


def delivered() -> None:
    """Wait until the listeners have been called for all events so far."""
    if _threads:
        _threads[0].submit(lambda: None).result()


def _call(found: list[Listener], event: Mapping[str, Any]) -> None:
    for listener in found:
        try:
            listener(event)
        except Exception:
            import logging

            logging.getLogger("pyruntime").exception("a listener of events failed")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.clear)  # the thread stays with the parent
