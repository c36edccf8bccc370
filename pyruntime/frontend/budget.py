"""What a compilation may take, looked at between nodes, between passes and between kernels."""

from __future__ import annotations

import time

from pyruntime.errors import LimitExceeded

# Generous: the models of the zoo take seconds, and 30 to 70 KB.
SECONDS = 600.0
CODE = 256 << 20  # bytes


class Budget:
    """Of one compilation, which begins now. seconds, code: at most so many, of time and of bytes of generated code."""

    def __init__(self, seconds: float = SECONDS, code: int = CODE) -> None:
        self.seconds = seconds
        self.code = code
        self._end = time.monotonic() + seconds

    def check(self, doing: str, node: str = "", code: int = 0) -> None:
        """code: bytes so far. Errors: LimitExceeded, with what it was `doing`, for which node."""
        if time.monotonic() > self._end:
            text, hint = f"takes longer than {self.seconds:g} s", "raise the compile time limit, or use a smaller model"
        elif code > self.code:
            text, hint = f"gives over {self.code} bytes of code", "raise the code size limit, or use a smaller model"
        else:
            return
        raise LimitExceeded(f"compiling {text}: it was {doing}", node=node, hint=hint)


__all__ = ["CODE", "SECONDS", "Budget"]
