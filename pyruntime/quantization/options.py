"""Options of `quantize` and `quantize_static`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyruntime.errors import InvalidInput
from pyruntime.quantization.calibration import METHODS

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
        _check_patterns(self.keep)
        if self.max_error is None:
            return
        if not isinstance(self.max_error, (int, float)) or not self.max_error >= 0:
            raise InvalidInput(f"max_error is {self.max_error!r}", hint="it must be a number from 0 on")
        if not self.has_samples:
            raise InvalidInput("max_error needs samples", hint="give inputs on which the error is measured")


@dataclass(frozen=True, slots=True)
class StaticOptions:
    """Those of `quantize_static`"""

    calibration: str = "range"
    percentile: float = 99.99
    keep: Sequence[str] = ()
    trainable: bool = False
    has_samples: bool = False

    def check(self) -> None:
        """Errors: InvalidInput"""
        if self.calibration not in METHODS:
            text = f"calibration {self.calibration!r} is not known"
            raise InvalidInput(text, hint=f"it can be {', '.join(METHODS)}")
        if not isinstance(self.percentile, (int, float)) or not 50 < self.percentile <= 100:
            raise InvalidInput(f"percentile is {self.percentile!r}", hint="a number above 50, up to 100")
        if not isinstance(self.trainable, bool):
            raise InvalidInput(f"trainable is {self.trainable!r}", hint="true or false")
        _check_patterns(self.keep)
        if not self.has_samples:
            raise InvalidInput("static quantisation needs samples", hint="inputs by name, of your own data")


def _check_patterns(keep: Sequence[str]) -> None:
    """Errors: InvalidInput"""
    if isinstance(keep, str) or not all(isinstance(pattern, str) for pattern in keep):
        raise InvalidInput(f"keep is {keep!r}", hint='it must be a list of patterns, such as ["lm_head"]')
