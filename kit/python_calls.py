"""Counts the Python functions that the engine in a page enters: a run must enter none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kit.chromium import Engine

# Timers of one worker with one delay end in their order: what follows the opening of a model (IDLE in
# web/worker/interpreter/python.js) has run when this one ends.
_IDLE = """
from js import Promise, setTimeout
await Promise.new(lambda resolve, reject: setTimeout(resolve, 2000))
None
"""
_START = """
import sys
entered = []
sys.monitoring.use_tool_id(4, "count")
sys.monitoring.set_events(4, sys.monitoring.events.PY_START)
sys.monitoring.register_callback(4, sys.monitoring.events.PY_START, lambda code, _: entered.append(code.co_qualname))
sys.entered = entered
None
"""
_TAKE = """
import sys
names = sys.entered[:]
sys.entered.clear()
names
"""
_STOP = "import sys; sys.monitoring.free_tool_id(4); del sys.entered"


@contextmanager
def counting(engine: Engine) -> Iterator[Callable[[], list[str]]]:
    """Yields `take`, which returns the names of the functions entered since its previous call, including those that
    `take` enters itself (two calls in a row return just these)."""
    engine.python(_IDLE)
    engine.python(_START)
    try:
        engine.python(_TAKE)
        yield lambda: engine.python(_TAKE)
    finally:
        engine.python(_STOP)
