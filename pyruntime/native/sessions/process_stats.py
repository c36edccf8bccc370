"""What the sessions and GPU tensors of this process hold, and how many it dropped without releasing them."""

from __future__ import annotations

import atexit
import weakref
from dataclasses import dataclass
from typing import Any

from wasmtime._managed import Managed

from pyruntime.native.gpu import tensor
from pyruntime.native.memory import budgets

_dropped = {"sessions": 0}


@dataclass(frozen=True, slots=True)
class ProcessStats:
    """Of all sessions. arenas, gpu: bytes of linear memory and of GPU memory; tensors, tensor_bytes: GPU tensors;
    dropped_sessions, dropped_tensors: those that were collected as garbage without `release` and `dispose`."""

    arenas: int
    gpu: int
    sessions: int
    dropped_sessions: int
    tensors: int
    tensor_bytes: int
    dropped_tensors: int


def stats() -> ProcessStats:
    """Count the sessions and GPU tensors of this process, and the bytes that they hold."""
    linear, gpu = map(budgets.measure, ("linear", "gpu"))
    live, dropped = tensor.counts["live"], tensor.counts["dropped"]
    return ProcessStats(
        linear, gpu, len(budgets.holders()), _dropped["sessions"], live, tensor.counts["bytes"], dropped
    )


def free_when_collected(session: Any, programs: Any) -> weakref.finalize[Any, Any]:
    """Count the session as long as it lives, and free its memory when it is collected. Returns what to detach when the
    session is released."""
    budgets.add_holder(session)
    end = weakref.finalize(session, _collected, programs)
    end.atexit = False
    return end


@atexit.register
def _leave_to_the_system() -> None:
    """The system frees what is left at the end of a process. The finalizers of wasmtime would call functions of its
    modules, which are gone by then if a session is in a module that ends later."""
    Managed.__del__ = lambda _: None  # type: ignore[method-assign]


def _collected(programs: Any) -> None:
    _dropped["sessions"] += 1
    programs.forget_others([])
