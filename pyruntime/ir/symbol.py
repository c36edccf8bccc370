"""Symbols: the unknown integers of a Program. Their origin identifies them, not their name."""

from __future__ import annotations

from typing import NamedTuple

DIM = "dim"  # a named dim of inputs: one symbol for each name
AXIS = "axis"  # an unnamed dim of one input
ROOM = "room"  # capacity of an input's buffer along an axis
VALUE = "value"  # known only during a run: read from a tensor, or the extent of a result


class Symbol(NamedTuple):
    """name: the name of the dim (DIM) or of the input (AXIS, ROOM)
    place: the axis, preceded by the item's number if the input is a sequence (AXIS, ROOM); unique numbers (VALUE)
    lower: the least value, None for any integer
    """

    origin: str
    name: str = ""
    place: tuple[int, ...] = ()
    lower: int | None = 0

    @property
    def is_extent(self) -> bool:
        """Whether it is a dim or a capacity of an input, known and bounded before a run."""
        return self.origin != VALUE

    def __str__(self) -> str:
        """The symbol as messages show it; not unique."""
        if self.origin == DIM:
            return self.name
        if self.origin == VALUE:
            return f"u{self.place[0]}"
        return f"{input_path(self.name, *self.place[:-1])}.{self.place[-1]}"


def input_path(name: str, *items: int) -> str:
    """An input or an item of a sequence as messages show it: x, x[2]."""
    return name + "".join(f"[{n}]" for n in items)
