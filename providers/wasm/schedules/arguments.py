"""Arguments of a routine as locals, and address arithmetic on them."""

from __future__ import annotations

from ..printer.assembler import Function

KERNEL = ("i32", "i32", "i32", "i32")


def load_words(f: Function, names: tuple[str, ...], first: int = 0) -> dict[str, int]:
    """A local for each word of the argument block (local 0)."""
    words = {}
    for i, name in enumerate(names, first):
        words[name] = f.local("i32")
        f.emit(0).mem("i32.load", 4 * i).set(words[name])
    return words


def ceil_div(f: Function, x: int, y: int) -> Function:
    """Push ceil(x / y)."""
    return f.emit(x, y, "i32.add").i32(1).emit("i32.sub", y, "i32.div_u")


def minimum(f: Function, to: int, x: int, y: int) -> None:
    f.emit(x, y, x, y, "i32.lt_u", "select").set(to)


def element(f: Function, base: int, *terms: tuple[int, int], size: int = 4) -> Function:
    """Push base + size * sum(x * y)."""
    f.emit(base)
    for x, y in terms:
        f.emit(x, y, "i32.mul").i32(size).emit("i32.mul", "i32.add")
    return f
