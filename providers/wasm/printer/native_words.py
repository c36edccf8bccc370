"""Elementwise loops as functions in machine code, whose names say what they compute, so that a module needs nothing
else:

    lanes/load.float32.0/scalar.0/vmulps.0:0:1/store.float32.1:2        y[i] = x[i] * s

Each word after the first is an instruction for eight elements; its operands are numbers of earlier ones. Stores are the
last words; if there are several, they store 32-bit elements. The function's operands are the number of elements,
addresses, scalars (their bits) and `memories`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pyruntime.ir.dtype import F32, I8, I16, I32, U8, U16, U32, DType

LANES = "lanes"  # how the names begin
MOST_ADDRESSES, MOST_SCALARS, MOST_WORDS = 11, 16, 256
ANY_MEMORY = 4  # addresses that may be in any memory; the others are in the first
REGISTERS = 15  # for values other than constants and scalars
# Instructions by the number of their operands; those in WITH_NUMBER have a constant, too
ARITY = {
    "vcvtdq2ps": 1, "vcvttps2dq": 1, "vsqrtps": 1, "vroundps": 1, "vpslld": 1, "vpsrld": 1, "vpsrad": 1,
    "vaddps": 2, "vsubps": 2, "vmulps": 2, "vdivps": 2, "vminps": 2, "vmaxps": 2, "vcmpps": 2,
    "vpaddd": 2, "vpsubd": 2, "vpmulld": 2, "vpminsd": 2, "vpmaxsd": 2, "vpcmpeqd": 2, "vpcmpgtd": 2,
    "vpand": 2, "vpor": 2, "vpxor": 2,
    "vblendvps": 3,  # for false, for true, mask
}  # fmt: skip
SHIFTS = ("vpslld", "vpsrld", "vpsrad")
WITH_NUMBER = (*SHIFTS, "vroundps", "vcmpps")
TYPES = {t.name: t for t in (F32, I32, U32, I8, U8, I16, U16)}
_IN_MEMORY = ("const", "scalar")


class Import(NamedTuple):
    """operands: their names, all i32; addresses: those that are addresses, whose memories are the bytes of the last"""

    operands: tuple[str, ...]
    addresses: tuple[str, ...]


class Word(NamedTuple):
    """An instruction. kind: load, store, scalar, const, or of ARITY; dtype: of a load or store; number: of an address
    or scalar, or a constant"""

    kind: str
    dtype: DType | None
    number: int
    operands: tuple[int, ...]

    def __str__(self) -> str:
        parts = [self.kind, *([self.dtype.name] if self.dtype else []), str(self.number)]
        return ":".join([".".join(parts), *map(str, self.operands)])


@lru_cache(256)
def parse(name: str) -> tuple[Word, ...] | None:
    """The instructions of a function, or None if the name is not right. It may be from a hostile file."""
    texts = name.split("/")[1:]
    if not name.startswith(LANES + "/") or not 0 < len(texts) <= MOST_WORDS:
        return None
    try:
        words = tuple(map(_word, texts))
    except (ValueError, KeyError):
        return None
    return words if _is_right(words) else None


def _word(text: str) -> Word:
    head, *operands = text.split(":")
    kind, *rest = head.split(".")
    dtype = TYPES[rest.pop(0)] if kind in ("load", "store") else None
    (number,) = rest
    return Word(kind, dtype, int(number), tuple(map(int, operands)))


def _is_right(words: tuple[Word, ...]) -> bool:
    """Whether each word is known, its operands are earlier ones, and the last words store."""
    arity = ARITY | dict.fromkeys(("load", "scalar", "const"), 0)
    values = [w for w in words if w.kind != "store"]
    for n, w in enumerate(values):
        if arity.get(w.kind) != len(w.operands) or not all(0 <= x < n for x in w.operands):
            return False
        if not 0 <= w.number < (1 << 32 if w.kind == "const" else 32):
            return False
        if w.kind == "vblendvps" and words[w.operands[2]].kind in _IN_MEMORY:
            return False
    stores = words[len(values) :]
    if not stores or any(
        w.kind != "store" or len(w.operands) != 1 or w.operands[0] not in range(len(values)) for w in stores
    ):
        return False
    if len(stores) > 1 and any(w.dtype is None or w.dtype.size != 4 for w in stores):
        return False
    addresses, scalars = ([w.number for w in words if w.kind in kinds] for kinds in (("load", "store"), ("scalar",)))
    return (
        _most_registers(words) <= REGISTERS
        and sorted(addresses) == list(range(len(addresses)))[:MOST_ADDRESSES]
        and sorted(scalars) == list(range(len(scalars)))[:MOST_SCALARS]
    )


def _most_registers(words: tuple[Word, ...]) -> int:
    last = {x: n for n, w in enumerate(words) for x in w.operands}
    live, most = set[int](), 0
    for n, w in enumerate(words):
        live -= {x for x in w.operands if last[x] == n}
        if w.kind not in (*_IN_MEMORY, "store"):
            most = max(most, len(live) + 1)
            live |= {n} & last.keys()
    return most


def operands_of(name: str) -> Import | None:
    """The operands of the function of this name, or None if the name is not right."""
    words = parse(name)
    if words is None:
        return None
    addresses = tuple(f"at{n}" for n in range(sum(w.kind in ("load", "store") for w in words)))
    scalars = (f"scalar{n}" for n in range(sum(w.kind == "scalar" for w in words)))
    return Import(("count", *addresses, *scalars, "memories"), addresses[:ANY_MEMORY])
