"""Hand-scheduled routines by name: each takes (builder, call) and gives the invocations, or None to fall back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyruntime.kernel import Call
from pyruntime.provider import Invocation

ROUTINES: dict[str, Callable[[Any, Call], list[Invocation] | None]] = {}
