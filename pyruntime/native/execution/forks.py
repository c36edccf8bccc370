"""What objects do in the child of a fork, which has none of the parent's other threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod

_methods: dict[WeakMethod[Callable[[], None]], None] = {}  # in the order of the calls


def in_children(method: Callable[[], None]) -> None:
    """Call this method of an object in each forked child, before anything else runs there. Does not keep the object."""
    _methods[WeakMethod(method, lambda of: _methods.pop(of, None))] = None


def _forked() -> None:
    for method in [found for of in [*_methods] if (found := of()) is not None]:
        method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
