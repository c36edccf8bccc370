"""Argument blocks: a kernel's arguments as int32 words with names, and address arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ..printer.assembler import Function
from ..printer.values import I32, POINTERS, Ptr

Fields = TypeVar("Fields")
Word = TypeVar("Word")  # of a block: what a routine fills in, or the local that has it
KERNEL = ("i32",) * 4  # parameters of a kernel: args, begin, end, tid


@dataclass(frozen=True, slots=True)
class ArgumentBlock:
    """The words of an argument block, in this order: the kernel's buffers, `extra` buffers of its epilogue, the
    kernel's parameters, parameters of its epilogue.

    Each schedule module declares `Buffers` and `Params`, NamedTuples that routines fill in by name; ARGUMENTS has the
    names of their fields. result: the buffer that the kernel writes
    """

    buffers: tuple[str, ...]
    params: tuple[str, ...]
    result: str = ""

    def word(self, name: str, extra: int = 0) -> int:
        """Return the position of a buffer or parameter."""
        if name in self.buffers:
            return self.buffers.index(name)
        return len(self.buffers) + extra + self.params.index(name)

    def load(self, f: Function, extra: int = 0, buffers: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Return a local for each parameter and for each of these buffers, by name."""
        words = {}
        for name in (*(self.buffers if buffers is None else buffers), *self.params):
            words[name] = f.local("i32")
            f.emit(0).mem("i32.load", 4 * self.word(name, extra)).set(words[name])
        return words

    def integers(self, f: Function, extra: int = 0) -> list[I32]:
        """Locals with the parameters."""
        return [self._loaded(f, name, extra) for name in self.params]

    def pointers(self, f: Function, *buffers: str) -> list[Ptr]:
        """Locals with the addresses of these buffers, or of all."""
        return [POINTERS[self._loaded(f, name, 0)] for name in buffers or self.buffers]

    def _loaded(self, f: Function, name: str, extra: int) -> Any:
        local = f.local("i32")
        f.set(local, POINTERS[0].i32(4 * self.word(name, extra)))
        return local


class ConvBuffers(NamedTuple, Generic[Word]):
    """Buffers of convolutions."""

    x: Word
    w: Word
    y: Word
    bias: Word  # read by epilogues that add a bias; in conv.py the value of the padding, if the kernel is `filled`
    scratch: Word


class Window(NamedTuple, Generic[Word]):
    """The first parameters of a convolution and of the gradient of its filters. Fewer than three spatial dims are 3-D
    with extents of 1."""

    batch: Word
    groups: Word
    mg: Word  # filters of a group
    cg: Word  # channels of a group
    id: Word  # extents of the input: depth, height, width
    ih: Word
    iw: Word
    od: Word  # of the output
    oh: Word
    ow: Word
    kd: Word  # of the kernel
    kh: Word
    kw: Word
    sd: Word  # strides
    sh: Word
    sw: Word
    dd: Word  # dilations
    dh: Word
    dw: Word
    pd: Word  # pads at the beginning
    ph: Word
    pw: Word

    def axes(self, prefix: str) -> list[Word]:
        """The words of a letter for the three axes."""
        return [getattr(self, prefix + axis) for axis in "dhw"]


def windowed(words: Sequence[Word], more: Callable[..., Fields]) -> tuple[Window[Word], Fields]:
    """Split the parameters of a schedule that begin with those of a window. more: the NamedTuple of its others"""
    count = len(Window._fields)
    return Window(*words[:count]), more(*words[count:])


def ceil_div(f: Function, x: Any, y: Any) -> Function:
    """Push ceil(x / y)."""
    return f.emit(x, y, "i32.add").i32(1).emit("i32.sub", y, "i32.div_u")


def minimum(f: Function, to: Any, x: Any, y: Any) -> None:
    """to = min(x, y), unsigned."""
    f.emit(x, y, x, y, "i32.lt_u", "select").set(to)


def element(f: Function, base: Any, *terms: tuple[Any, Any], size: int = 4) -> Function:
    """Push base + size * sum(x * y)."""
    f.emit(base)
    for x, y in terms:
        f.emit(x, y, "i32.mul").i32(size).emit("i32.mul", "i32.add")
    return f
