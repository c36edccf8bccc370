"""Functions of `Host` kernels: Python at run time, for what has no place in linear memory (strings).

Each takes ([(shape, flat list) or None, …], attrs) and gives [(shape, flat list), …]. A string is a Python str.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyruntime.ir.reference import Array

Function = Callable[[list[Array | None], dict[str, Any]], list[Array]]
FUNCTIONS: dict[str, Function] = {}


def host_function(name: str) -> Callable[[Function], Function]:
    """Register a function under the name that `Tracer.host` uses."""

    def register(fn: Function) -> Function:
        FUNCTIONS[name] = fn
        return fn

    return register
