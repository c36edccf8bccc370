"""What a provider is: something that says which kernels it can run, and writes code for them or runs them in Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from pyruntime.codegen.loop_ir import LoopCode, Param
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, Host, Kernel, Tensor, View
from pyruntime.ir.shape import AnyDim


@dataclass(slots=True)
class Invocation:
    """One call of one function: tensors for its buffers, dims for its parameters, number of work units.

    scratch: those of `tensors` that live for this call only
    inplace: (output, input) pairs that may share memory, since each element is read before it is written
    split: not 0 where it pays to share the call among threads
    """

    function: str
    tensors: list[Tensor]
    params: list[Param]
    work: AnyDim
    node: str = ""
    scratch: list[Tensor] = field(default_factory=list)
    inplace: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    split: AnyDim = 0


EXTENT = 1 << 30  # dims of feeds are smaller where integers are of 32 bits, so that these hold the sum of two


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a provider's kernels read and write.

    name: as Programs call it; title: as messages do
    widest: bytes of the widest element, wider integers are kept in so many
    extent: dims of feeds are smaller; 0 if they may be any
    copy_cost, byte_cost: operations that are worth a copy into it or out of it, and each byte of one
    """

    name: str
    title: str
    widest: int = 16
    extent: int = 0
    copy_cost: int = 0
    byte_cost: int = 0


# "Home" of tensors: where feeds arrive, outputs leave, conditions are read and Python works.
LINEAR = Memory("wasm", "linear memory")


class Routine(Protocol):
    """What a provider's hand-scheduled routine can do. Calls of routines that a provider does not claim run as their
    meaning."""

    def prepare(self, call: Call) -> list[Kernel]:
        """Kernels to put before the call, which bring operands into types that the routine takes; they are its operands
        then."""
        ...

    def claims(self, call: Call) -> bool:
        """Whether it runs this call as it stands."""
        ...

    def reads(self, call: Call, operand: int, view: View) -> bool:
        """Whether it could read an operand through this view."""
        ...

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        """Whether it could apply this epilogue and write to `out`, of which axis n is the call's axis order[n]."""
        ...

    def packs(self, call: Call, operand: int) -> Kernel | None:
        """A call (not yet part of a block) that brings a constant operand into the layout the routine wants."""
        ...


class RowLimits(NamedTuple):
    """Of kernels that do whole rows: tensors, and elements of a row, at most."""

    tensors: int
    elements: int


class CodeWriter(Protocol):
    """Collects the code of one program. rows: which chains of reductions and maps over rows should be one kernel."""

    @property
    def routines(self) -> Mapping[str, Routine]: ...

    @property
    def rows(self) -> RowLimits: ...

    @property
    def size(self) -> int:
        """Bytes of code so far, about."""
        ...

    def segment(
        self, name: str, kernels: Sequence[Kernel], private: Collection[int], written: Callable[[str], None]
    ) -> list[Invocation]:
        """Write code that runs these kernels in order; `name` is how the executor will call it. private: uids of
        tensors that one of the kernels makes, another reads, and nobody else; they need not be in memory. written: told
        the node of each kernel once it has its code, and may end it all by an error."""
        ...

    def finish(self) -> bytes:
        """The code of all segments."""
        ...

    def loop_form(self, kernel: Kernel) -> LoopCode | None:
        """The loops that are printed for a kernel; None if its code is written by hand."""
        ...

    def text(self, function: str) -> str:
        """The code of a function that an `Invocation` names, for people to read."""
        ...


class Provider(Protocol):
    """name: as sessions ask for it."""

    name: ClassVar[str]

    def supports(self, kernel: Kernel) -> str:
        """Empty if the provider takes the kernel, else the reason why not."""
        ...


class CodeProvider(Provider, Protocol):
    """Writes code that an executor runs as steps of kind `op`, in a memory."""

    op: ClassVar[str]
    memory: ClassVar[Memory]

    def code_writer(self, **target: Any) -> CodeWriter: ...


@runtime_checkable
class HostProvider(Provider, Protocol):
    """Runs kernels in Python, on the desktop and in the worker of a page."""

    def step(self, kernel: Kernel) -> Host:
        """A call of a host function (`pyruntime.host`) that computes the kernel's outputs from its inputs."""
        ...


def memory_of(provider: Provider) -> Memory:
    return getattr(provider, "memory", LINEAR)
