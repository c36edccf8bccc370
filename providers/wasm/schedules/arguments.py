"""Argument blocks: a kernel's arguments as int32 words with names, and address arithmetic on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pyruntime.ir.kernel import Tensor

from ..printer.assembler import Function
from ..printer.values import I32, POINTERS, Ptr

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


class ConvBuffers(NamedTuple):
    """Buffers of convolutions."""

    x: Tensor
    w: Tensor
    y: Tensor
    bias: Tensor  # read by epilogues that add a bias; in conv.py the value of the padding, if the kernel is `filled`
    scratch: Tensor


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
