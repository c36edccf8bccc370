"""Symbols: the unknown integers of a program. One is known by where it comes from, never by how it is spelt."""

from __future__ import annotations

from typing import NamedTuple

DIM = "dim"  # a dim of inputs that the model names: one name, one symbol
AXIS = "axis"  # a dim of one input that has no name
ROOM = "room"  # places along an axis of an input that there is memory for
VALUE = "value"  # found while the program runs: read from a tensor, or the size of a result


class Symbol(NamedTuple):
    """name: of the dim (DIM) or of the input (AXIS); place: the axis, after the item's number in a sequence (AXIS,
    ROOM), or a number of its own (VALUE); lower: the least value, None for any integer."""

    origin: str
    name: str = ""
    place: tuple[int, ...] = ()
    lower: int | None = 0

    @property
    def is_extent(self) -> bool:
        """Whether it is a dim of an input, which is known, and bounded, before anything runs."""
        return self.origin != VALUE

    def __str__(self) -> str:
        """As messages show it: not unique."""
        if self.origin == DIM:
            return self.name
        if self.origin == VALUE:
            return f"u{self.place[0]}"
        return f"{input_path(self.name, *self.place[:-1])}.{self.place[-1]}"


def input_path(name: str, *items: int) -> str:
    """An input, or an item of a sequence, as messages show it: x, x[2]."""
    return name + "".join(f"[{n}]" for n in items)
