"""The memory that all sessions of this process hold, and what they may hold together (docs/api/memory.md).

web/run/budgets.js and web/session/idle_models.js do the same in pages.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Protocol, TypeVar

from pyruntime.errors import InvalidInput, OutOfMemory
from pyruntime.providers.wasm import wasmtime_host
from pyruntime.runtime.memory_budget import Budget
from pyruntime.session.events import emit

T = TypeVar("T")

NAMES = {"linear": "memory_limit", "gpu": "gpu_memory_limit"}


class Holder(Protocol):
    """A session. last_used: when its last run ended"""

    last_used: float

    @property
    def is_busy(self) -> bool:
        """Whether work is under way."""

    def free_if_idle(self) -> bool:
        """Free its memory if no work is under way; returns whether it held any."""


def _budget(kind: str) -> Budget:
    def reached(share: float) -> None:
        budget = budgets[kind]
        emit("memory", {"memory": kind, "share": share, "used": budget.used, "limit": budget.limit})

    return Budget(reached)


budgets: dict[str, Budget] = {kind: _budget(kind) for kind in NAMES}
_holders: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by id
_limited: set[str] = set()  # kinds
_growing = threading.RLock()  # one memory grows at a time, if there is a limit


def set_memory_limit(
    memory_limit: int | None | str = "unchanged", gpu_memory_limit: int | None | str = "unchanged"
) -> None:
    """Limit the bytes of linear memory, and of GPU memory, that all sessions of this process hold together. None: no
    limit, as at first. Sessions that are idle lose memory if need be, longest idle first. Errors: InvalidInput"""
    for kind, limit in (("linear", memory_limit), ("gpu", gpu_memory_limit)):
        if limit == "unchanged":
            continue
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0):
            raise InvalidInput(f"{NAMES[kind]} cannot be {limit!r}", hint="a number of bytes, or None for no limit")
        with _growing:
            budgets[kind].limit = inf if limit is None else limit
            (_limited.discard if limit is None else _limited.add)(kind)
            measure(kind)
            while not budgets[kind].fits(0) and free_idle():
                measure(kind)


def is_limited() -> bool:
    return bool(_limited)


def measure(kind: str) -> int:
    """Bytes that sessions hold now."""
    with _growing:
        held = wasmtime_host.held_bytes() if kind == "linear" else _gpu_bytes()
        budgets[kind].hold(held - budgets[kind].used)
    return held


def _gpu_bytes() -> int:
    host = sys.modules.get("pyruntime.providers.webgpu.wgpu_host")  # loads wgpu
    return 0 if host is None else host.held_bytes()


@contextmanager
def growth(kind: str, more: int) -> Iterator[None]:
    """In which a memory takes this many bytes more. Errors: OutOfMemory if the limit does not allow them, and no other
    session is idle."""
    budget = budgets[kind]
    if kind not in _limited:
        yield
        return
    with _growing:
        measure(kind)
        while not budget.fits(more):
            if not free_idle():
                memory = "GPU memory" if kind == "gpu" else "memory"
                text = f"{more} more bytes of {memory} are needed, sessions hold {budget.used}"
                error = OutOfMemory(f"{text}, {NAMES[kind]} of the process is {budget.limit}", hint="raise it")
                error.gpu, error.of_all = kind == "gpu", True
                raise error
            measure(kind)
        yield
        measure(kind)


def free_idle(besides: Holder | None = None) -> bool:
    """Free the memory of the session that has been idle longest. Returns False if no idle session holds any, `besides`
    left aside."""
    others = [holder for holder in holders() if holder is not besides]
    return any(holder.free_if_idle() for holder in sorted(others, key=lambda holder: holder.last_used))


def add_holder(holder: Holder) -> None:
    _holders[id(holder)] = holder


def remove_holder(holder: Holder) -> None:
    _holders.pop(id(holder), None)


def holders() -> list[Holder]:
    """The sessions of this process."""
    return [holder for ref in _holders.valuerefs() if (holder := ref()) is not None]


# ── sessions that work at the same time ──────────────────────────────────────────────────────────────────────────────

_turn = threading.Condition()
_working: set[object] = set()  # a mark for each work under way
_first: list[object] = []  # of the work that waits for others. Until it has ended, no other begins
_PAUSE = 0.01  # seconds


def with_room(holder: Holder, work: Callable[[], T]) -> T:
    """The result of `work`. If the system refuses memory, free that of idle sessions and repeat it. If a limit leaves
    none, wait for the work of other sessions to end, and repeat it. Until `work` is called, and while it waits, the
    session counts as idle."""
    if not is_limited():
        return _freeing_idle(holder, work)
    mine = object()
    with _turn:
        _turn.wait_for(lambda: not _first)
        _working.add(mine)
    try:
        while True:
            try:
                return _freeing_idle(holder, work)
            except OutOfMemory as error:
                if not (error.of_all and _others_end(holder, mine)):
                    raise
    finally:
        with _turn:
            _working.discard(mine)
            if _first == [mine]:
                _first.clear()
            _turn.notify_all()


def _freeing_idle(holder: Holder, work: Callable[[], T]) -> T:
    while True:
        try:
            return work()
        except (MemoryError, OutOfMemory) as error:  # NumPy and Python raise MemoryError
            of_system = error.of_system if isinstance(error, OutOfMemory) else True
            if not (of_system and free_idle(besides=holder)):
                raise


def _others_end(holder: Holder, mine: object) -> bool:
    """Wait until other work has ended, or waits, too. Returns False if there is none."""
    holder.free_if_idle()
    with _turn:
        _working.discard(mine)
        _turn.notify_all()
        if _first and _first != [mine]:
            _turn.wait_for(lambda: not _first)
        elif _working:
            _first[:] = [mine]
            before = len(_working)
            _turn.wait_for(lambda: len(_working) < before)
        elif any(other.is_busy for other in holders() if other is not holder):
            _turn.wait(_PAUSE)  # it is about to end, or began before there was a limit
        else:
            return False
        _working.add(mine)
        return True
