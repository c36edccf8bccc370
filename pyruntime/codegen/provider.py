"""The interface of providers that write code. A provider states which kernels it can run. Those that others add run
kernels on arrays (array_provider.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pyruntime.codegen.loop_ir import LoopCode, Param
from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, Kernel, Tensor, View
from pyruntime.ir.shape import AnyDim


@dataclass(slots=True)
class Invocation:
    """One call of one function: tensors for its buffers, dims for its parameters, and the number of work units.

    scratch: tensors among these that live only during this call
    inplace: (output, input) pairs that may share memory, since each element is read before it is written
    split: non-zero if the call is worth several threads
    consecutive: the number of adjacent work units that one thread must run in order
    results: what the kernels of the call compute; the call writes those that are among its tensors
    """

    function: str
    tensors: list[Tensor]
    params: list[Param]
    work: AnyDim
    node: str = ""
    scratch: list[Tensor] = field(default_factory=list)
    inplace: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    split: AnyDim = 0
    consecutive: AnyDim = 1
    results: Sequence[Tensor] = ()


EXTENT = 1 << 30  # bound of feeds' dims on targets with 32-bit integers, so that the sum of two dims fits


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory in which a provider's kernels read and write.

    name, title: its name in Programs, and in messages
    widest: bytes of the widest element; wider integers are narrowed to this
    extent: dims of feeds must be smaller; 0: no bound
    copy_cost, byte_cost: the cost of a copy into or out of this memory, and of each byte copied, in operations
    """

    name: str
    title: str
    widest: int = 16
    extent: int = 0
    copy_cost: int = 0
    byte_cost: int = 0


# The memory of feeds, outputs, conditions and Python.
LINEAR = Memory("wasm", "linear memory")


class Routine(Protocol):
    """What a provider's hand-scheduled routine can do: nothing, unless it overrides a method. A call that the routine
    does not claim runs as its `meaning`."""

    def prepare(self, call: Call) -> list[Kernel]:
        """Kernels that replace the call: conversions of its operands to types that a routine takes, then the kernel
        that computes its output: a call of this or another routine, or a Map. None if the call stays as it is."""
        return []

    def claims(self, call: Call) -> bool:
        """Whether the routine runs this call unchanged."""
        return False

    def taker(self, call: Call) -> str:
        """The name of the provider on arrays that runs the call in place of the routine, or ""."""
        return ""

    def reads(self, call: Call, operand: int, view: View) -> bool:
        """Whether the routine can read an operand through this view."""
        return False

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        """Whether the routine can apply this epilogue and write to `out`, whose axis n is the call's axis order[n]."""
        return False

    def packs(self, call: Call, operand: int) -> Kernel | None:
        """A call (not yet part of a block) that brings a constant operand into the layout the routine wants."""
        return None

    def packs_in_runs(self, call: Call, operand: int) -> Kernel | None:
        """The same for an operand that runs change, if it pays even in each run."""
        return None


class RowLimits(NamedTuple):
    """Limits of kernels that process whole rows: number of tensors, and elements of a row."""

    tensors: int
    elements: int


class CodeWriter(Protocol):
    """Collects the code of one Program.

    rows: limits for fusing chains of reductions and maps over rows
    scratch: bytes that a call of a routine is assumed to need besides its operands and its result
    products: whether loops that sum products by matrices run in machine code, as fast as routines"""

    scratch: int
    products: bool

    @property
    def routines(self) -> Mapping[str, Routine]: ...

    @property
    def rows(self) -> RowLimits: ...

    @property
    def size(self) -> int:
        """Approximate bytes of code so far."""
        ...

    def segment(
        self, name: str, kernels: Sequence[Kernel], private: Collection[int], written: Callable[[str], None]
    ) -> list[Invocation]:
        """Write code that runs these kernels in order.

        name: the name by which the executor calls it
        private: uids of tensors that one of the kernels makes and only another one reads; they need no memory
        written: called with the node of each kernel after its code is written; may raise to stop
        """
        ...

    def finish(self) -> bytes:
        """The code of all segments."""
        ...

    def loop_form(self, kernel: Kernel) -> LoopCode | None:
        """The loop form that is printed for a kernel; None if its schedule is written by hand."""
        ...

    def text(self, function: str) -> str:
        """The code of a function that an `Invocation` names, as text."""
        ...


@runtime_checkable
class StepLoopWriter(Protocol):
    """A code writer whose functions can run steps of a loop without the executor."""

    def step_loop(self, name: str, run: str, stacks: int) -> None:
        """Write a function that runs steps of a loop's body (pyruntime/runtime/repeats.py). run: the name of the body's
        segment; stacks: the number of values that it stacks"""
        ...


class Provider(Protocol):
    """name: its name in a session's list of providers."""

    @property
    def name(self) -> str: ...

    def supports(self, kernel: Kernel) -> str:
        """ "" if the provider can run the kernel, else the reason why not."""
        ...


class CodeProvider(Provider, Protocol):
    """Writes code that an executor runs as steps of kind `op`, in a memory."""

    @property
    def op(self) -> str: ...
    @property
    def memory(self) -> Memory: ...

    def code_writer(self, **target: Any) -> CodeWriter: ...


@runtime_checkable
class ConditionalProvider(Protocol):
    """A provider that can run a kernel for some sizes only."""

    def conditions(self, kernel: Kernel) -> list[tuple[AnyDim, str]]:
        """Dims that must not be 0 in a run of the kernel, each with a message."""
        ...


def memory_of(provider: Provider) -> Memory:
    return getattr(provider, "memory", LINEAR)
