"""Limits of time and code size of a compilation, checked between nodes, passes and kernels."""

from __future__ import annotations

import math
import time

from pyruntime.errors import LimitExceeded


class Budget:
    """Limits of one compilation, which starts when this object is made. seconds: time; code: bytes of generated
    code."""

    def __init__(self, seconds: float = math.inf, code: float = math.inf) -> None:
        self.seconds = seconds
        self.code = code
        self._end = time.monotonic() + seconds

    def check(self, doing: str, node: str = "", code: int = 0) -> None:
        """Errors: LimitExceeded if a limit is passed. doing, node: the current activity, for the message; code: bytes
        of code so far."""
        if time.monotonic() > self._end:
            text, hint = f"takes longer than {self.seconds:g} s", "raise the compile time limit, or use a smaller model"
        elif code > self.code:
            text, hint = f"gives over {self.code} bytes of code", "raise the code size limit, or use a smaller model"
        else:
            return
        raise LimitExceeded(f"compiling {text}: it was {doing}", node=node, hint=hint)
