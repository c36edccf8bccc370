"""What a provider is: something that says which kernels it can run and writes code for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyruntime.kernel import Kernel, Tensor
from pyruntime.shape import AnyDim


@dataclass(slots=True)
class Invocation:
    """One call of one function: tensors for its buffers, dims for its parameters, number of work units.

    scratch: those of `tensors` that live for this call only
    inplace: (output, input) pairs that may share memory, since each element is read before it is written
    """

    function: str
    tensors: list[Tensor]
    params: list[AnyDim]
    work: AnyDim
    node: str = ""
    scratch: list[Tensor] = field(default_factory=list)
    inplace: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class Builder(Protocol):
    """Collects the code of one program."""

    def segment(self, name: str, kernels: Sequence[Kernel]) -> list[Invocation]:
        """Write code that runs these kernels in order; `name` is how the executor will call it."""
        ...

    def finish(self) -> bytes:
        """The code of all segments."""
        ...


class Provider(Protocol):
    name: str

    def supports(self, kernel: Kernel) -> str:
        """"" if the provider can run the kernel, else the reason why not."""
        ...

    def builder(self, *, relaxed: bool, shared: bool) -> Builder: ...
