"""What the gradients of recurrences share: a procedure that goes over the steps from the last to the first.

States that the forward pass does not store are computed again. A first way over the steps stores them before each
`CHUNK`th one. Then follow the chunks, the last one first: each computes the states before its own steps, which are in
memory at once, and goes back over these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import DType
from pyruntime.ir.expr import Expr, Scalar, maximum, minimum
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim

CHUNK = 64  # steps

Shapes = Mapping[str, Sequence[AnyDim]]


def procedure(
    t: Tracer, name: str, args: Iterable[Tensor | None], dtype: DType, outputs: Shapes, scratch: Shapes,
    body: Callable[[Builder, Mapping[str, Tensor]], None],
) -> dict[str, Tensor]:  # fmt: skip
    """Record a procedure whose outputs and scratch tensors have names, and return the outputs."""
    shapes = {**outputs, **scratch}
    types = [(shape, dtype) for shape in shapes.values()]
    made = t.loops(
        name, list(dict.fromkeys(x for x in args if x is not None)), types[: len(outputs)],
        lambda k, *tensors: body(k, dict(zip(shapes, tensors, strict=True))), types[len(outputs) :],
    )  # fmt: skip
    return dict(zip(outputs, made, strict=True))


class ReverseRecurrence(ABC):
    """The steps of one work unit. replays: whether states are computed again"""

    k: Builder
    replays: bool

    def over_steps(self, steps: Expr) -> None:
        k = self.k
        if not self.replays:
            with k.loop(steps) as n:
                self.backward(k.let(steps - 1 - n), n)
            return
        last = k.let(maximum((steps + (CHUNK - 1)) / CHUNK - 1, 0))
        with k.loop(last) as chunk:
            self.copy_states(chunk, is_back=False)
            with k.loop(CHUNK) as n:
                self.forward(k.let(chunk * CHUNK + n), None)
        self.copy_states(last, is_back=False)
        with k.loop(last + 1) as n:
            chunk = k.let(last - n)
            first = k.let(chunk * CHUNK)
            count = k.let(minimum(steps - first, CHUNK))
            self.copy_states(chunk, is_back=True)
            with k.loop(count) as place:
                self.forward(k.let(first + place), place)
            with k.loop(count) as done:
                place = k.let(count - 1 - done)
                self.backward(k.let(first + place), place)

    @abstractmethod
    def forward(self, step: Expr, place: Expr | None) -> None:
        """Compute the states after a step from those before it, and store the latter in this place of the chunk."""

    @abstractmethod
    def backward(self, step: Expr, place: Expr) -> None:
        """From the cotangents of the states after a step those before it. place: of the states before it"""

    @abstractmethod
    def copy_states(self, chunk: Expr, is_back: bool) -> None:
        """Copy the states to what is stored of a chunk, or back."""

    def add(self, target: Tensor, at: Sequence[Scalar], value: Expr) -> None:
        self.k.store(target, at, target.at(*at) + value)
