"""Instruction sets of machine code."""

from __future__ import annotations

from typing import NamedTuple

from .x86 import YMM, ZMM, Vector


class Kind(NamedTuple):
    """An instruction set. name: that of the option; lanes: floats of a vector; rows: of a full tile of products"""

    name: str
    lanes: int
    rows: int
    vectors: tuple[Vector, ...]


AVX2 = Kind("avx2", 8, 6, YMM)
AVX512 = Kind("avx512", 16, 12, ZMM)
KINDS = {kind.name: kind for kind in (AVX512, AVX2)}
