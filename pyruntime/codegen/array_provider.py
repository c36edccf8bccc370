"""The base class of providers that run kernels on arrays, which anyone can add (docs/extending.md#providers)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyruntime.ir.expr import Expr
from pyruntime.ir.kernel import Call, Kernel, Tensor, View
from pyruntime.ir.symbol import Symbol

Job = Callable[[], object]
# (inputs, outputs, values of the symbols in dims) -> the job that each run calls
Bind = Callable[[Sequence[Any], Sequence[Any], Mapping[Symbol, int]], Job]


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """A tensor in a provider's own memory, in C order. handle: what `allocate` has returned"""

    handle: Any
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Kernels that a provider runs as one.

    kernels: in order, with the reshapes (`Alias`) between them; inputs: tensors that they read from outside; outputs:
    those of their results that others read; node: the label of the first node; constant: for each input, whether its
    elements never change
    """

    kernels: Sequence[Kernel]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    node: str
    constant: Sequence[bool]


class ArrayProvider:
    """A provider that runs kernels on arrays: NumPy's; in a page without NumPy, memoryviews.

    The registered object only opens others: `open` returns the provider of one session. That one is asked about kernels
    and compiles parts, once for each Program; in each run its `run_start`, jobs and `run_end` are called, in the end
    `close`.

    After an exception in one of these methods, the nodes at fault move to the next provider of the session, with a
    warning, and the run is repeated.

    name: by which sessions name it
    takes_parts: whether `compile` gets consecutive kernels as one part
    concurrent: whether runs of one session may call it at the same time; else they wait for each other
    in_auto: whether sessions with the provider "auto" time it, with the defaults of its options, and use it if it is
        fastest; natively only
    options: names of its options, and their defaults; a session with other names, or values of other types, is refused
    """

    name: ClassVar[str]
    takes_parts: ClassVar[bool] = False
    concurrent: ClassVar[bool] = True
    in_auto: ClassVar[bool] = False
    options: ClassVar[Mapping[str, Any]] = {}

    def open(self, options: Mapping[str, Any], threads: int) -> ArrayProvider:
        """The provider of one session. options: all of them, of the types of their defaults; threads: as many as it
        may use

        Errors: InvalidInput for values that it refuses. After any other error, such as that of a missing device, the
        session goes on without the provider, with a warning."""
        return self

    # ── questions during compilation ─────────────────────────────────────────────────────────────────────────────

    def supports(self, kernel: Kernel) -> str:
        """ "" if it runs the kernel, else the reason why not, which `explain` shows."""
        raise NotImplementedError

    def supports_node(self, node: str, inputs: Sequence[Tensor | None], attrs: Mapping[str, Any]) -> bool:
        """Whether it runs a whole ONNX node, of which it gets one `Call` with the routine "onnx:" + node.

        node: the operator's name, with its domain in front if that is not ai.onnx, such as "LayerNormalization" or
        "com.microsoft.FastGelu"; inputs: None where one is absent; attrs: those that the node states. Not asked about
        nodes with inner graphs, strings, integers of less than 8 bits, or results that compilation knows"""
        return False

    def cost(self, part: Part) -> float | None:
        """The time of a part that it supports, with all overhead, in operations that WebAssembly does in the same time.
        If that is more than the part's own operations, the kernels go to the next provider. None: unknown, they
        stay."""
        return None

    def reads(self, call: Call, operand: int, view: View) -> bool:
        """Whether it reads an operand of a call that it takes through this view (`Call.strided`), without a copy."""
        return False

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        """Whether it applies this epilogue (`Call.epilogue`) to a call that it takes, and writes the result to `out`,
        whose axis n is axis order[n] of the call's result (`Call.order`)."""
        return False

    def packs(self, call: Call, operand: int) -> Kernel | None:
        """A kernel that brings a constant operand of a call that it takes into another layout, once; None: it reads the
        operand as it is. Such operands are in `Call.packed`."""
        return None

    # ── code and runs ────────────────────────────────────────────────────────────────────────────────────────────

    def compile(self, part: Part) -> Bind:
        """Compile a part, once for each Program. Dims that differ between runs are symbols.

        The result binds arrays: it gets those of `part.inputs` and `part.outputs`, in C order, and the values of the
        symbols that are known by then, and returns the job that computes outputs from inputs. Later runs of the same
        sizes in the same memory only call the job. Natively the arrays are the tensors themselves, without copies. A
        job writes every element of its outputs, whose elements are undefined before, and never changes its inputs.
        Elements of bfloat16 and float8 are unsigned integers of their bits; integers of 2 and 4 bits have a byte
        each."""
        raise NotImplementedError

    # ── a memory of its own: all four methods, or none ───────────────────────────────────────────────────────────

    def allocate(self, size: int) -> Any:
        """Memory of this many bytes (> 0) on its device: any object, which names it in the methods below.

        A provider with this method binds `DeviceArray`s. Weights are uploaded once for each Program. Results that only
        parts of this provider read stay on the device. The memory is used again in later runs, for tensors of at most
        this size, and freed when the session ends, at the latest."""
        raise NotImplementedError

    def upload(self, handle: Any, array: Any) -> None:
        """Copy an array to the start of this memory."""
        raise NotImplementedError

    def download(self, handle: Any, array: Any) -> None:
        """Copy the start of this memory into an array."""
        raise NotImplementedError

    def free(self, handle: Any) -> None:
        """Free this memory; perhaps on another thread than that of `allocate`."""
        raise NotImplementedError

    def run_start(self) -> None:
        """A run of a Program with parts of this provider begins."""

    def run_end(self, error: BaseException | None) -> None:
        """The run has ended. error: that which ended it, or None"""

    def close(self) -> None:
        """The session is released, collected as garbage, or has other providers from now on."""
