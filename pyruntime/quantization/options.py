"""Options of `quantize`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyruntime.errors import InvalidInput

BITS = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class Options:
    """Those of `quantize` (quantize.py describes them); has_samples: whether the host has any"""

    bits: int = 4
    max_error: float | None = None
    keep: Sequence[str] = ()
    smallest: int = 16384
    block_size: int = 32
    accuracy_level: int = 0
    has_samples: bool = False

    def check(self) -> None:
        """Errors: InvalidInput"""
        for name in ("bits", "smallest", "block_size", "accuracy_level"):
            if not isinstance(value := getattr(self, name), int) or value < 0:
                raise InvalidInput(f"{name} is {value!r}", hint="it must be an integer from 0 on")
        if self.bits not in BITS:
            raise InvalidInput(f"bits is {self.bits}", hint=f"it can be {', '.join(map(str, BITS))}")
        if self.block_size < 16 or self.block_size & (self.block_size - 1):
            raise InvalidInput(f"block_size is {self.block_size}", hint="it must be a power of 2 from 16 on")
        if isinstance(self.keep, str) or not all(isinstance(pattern, str) for pattern in self.keep):
            raise InvalidInput(f"keep is {self.keep!r}", hint='it must be a list of patterns, such as ["lm_head"]')
        if self.max_error is None:
            return
        if not isinstance(self.max_error, (int, float)) or not self.max_error >= 0:
            raise InvalidInput(f"max_error is {self.max_error!r}", hint="it must be a number from 0 on")
        if not self.has_samples:
            raise InvalidInput("max_error needs samples", hint="give inputs on which the error is measured")
