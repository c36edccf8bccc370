"""Requirements of operators on their operands: checked during tracing, or at run time if they depend on symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.errors import ShapeError, UnsupportedOp
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, checked
from pyruntime.ir.kernel import Tensor, tensors_in
from pyruntime.ir.shape import AnyDim, Dim

# (dim that must not be 0, message, node), and "" if a Program for the sizes of a run may accept them
Guard = tuple[AnyDim, str, str] | tuple[AnyDim, str, str, str]

EMPTY_AXIS = "an index into an empty axis"


class Requirements:
    """The part of the Tracer that checks operands. Every method may raise a ShapeError with the node."""

    def __init__(self) -> None:
        # The executor checks them when symbols have values.
        self.guards: list[Guard] = []
        self.node = ""
        self.depth = 0  # number of blocks around the current one

    def require_broadcasts(self, d: AnyDim, full: AnyDim) -> None:
        """Require that broadcasting turns d into `full`."""
        if d != full:
            fits = sh.maximum(sh.compare("eq", d, 1), sh.compare("eq", d, full))
            self.require(fits, f"dims {d} and {full} do not broadcast")

    def require(self, condition: AnyDim, message: str, *, of_program: bool = False) -> None:
        """Refuse shapes for which `condition` is 0: now if it is known, else at run time. of_program: only a Program
        for all sizes refuses them, so that the session compiles one for such sizes"""
        if isinstance(condition, Dim):
            guard = (condition, message, self.node)
            self.guards.append((*guard, "") if of_program else guard)
        elif not condition:
            raise ShapeError(message, node=self.node)

    def divided(self, d: AnyDim, by: AnyDim, what: str) -> AnyDim:
        """d / by, which must be an integer. what: for the message, such as "channels into groups"."""
        out = sh.floordiv(d, by)
        self.require_equal(out * by, d, f"{by} do not divide {d} {what}")
        return out

    def require_equal(self, a: AnyDim, b: AnyDim, message: str) -> None:
        if a != b:
            self.require(sh.compare("eq", a, b), f"{message}: {a} and {b}")

    def require_shape(self, name: str, x: Tensor | None, shape: Sequence[AnyDim]) -> None:
        """Require a shape of an operand, unless it is absent."""
        if x is None:
            return
        wanted = f"({', '.join(map(str, shape))})"
        self.require(int(x.rank == len(shape)), f"{name} has rank {x.rank}, its shape must be {wanted}")
        for d, want in zip(x.shape, shape, strict=True):
            self.require_equal(d, want, f"{name} must have the shape {wanted}")

    def require_broadcast_shape(self, name: str, x: Tensor, shape: Sequence[AnyDim]) -> None:
        """Require a shape of an operand that may have 1 in place of each dim, also if that is known only in a run; read
        the operand by `Tracer.aligned`."""
        wanted = f"({', '.join(map(str, shape))})"
        self.require(int(x.rank == len(shape)), f"{name} has rank {x.rank}, its shape must be {wanted}")
        for d, want in zip(x.shape, shape, strict=True):
            if d != want:
                fits = sh.maximum(sh.compare("eq", d, 1), sh.compare("eq", d, want))
                self.require(fits, f"{name} must have the shape {wanted} or 1 in place of a dim: {d} and {want}")

    def checked_index(self, i: Expr, extent: AnyDim, from_end: bool = False) -> Expr:
        """An index from data (of any integer type) as an int32 in [0, extent). from_end: -1 means the last element.

        Every load or store at such an index must use this. An index out of range ends the run with an ExecutionError.
        An index in a side of a `guard` that is not evaluated is not checked; in a `select` both sides are."""
        some = sh.compare("lt", 0, extent)
        for t in tensors_in(i):
            some = sh.maximum(some, sh.compare("eq", sh.size(t.shape), 0))
        if some == 0 and self.depth:  # of a block, which perhaps does not run
            self.guards.append((0, EMPTY_AXIS, self.node))
        else:
            self.require(some, EMPTY_AXIS)
        return checked(i, extent, self.node, from_end=from_end)

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise ShapeError(f"axis {axis} is out of range for rank {rank}", node=self.node)
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """The axes as non-negative numbers, sorted. None may repeat."""
        return sorted(self.ordered_axes(axes, rank))

    def ordered_axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """The axes as non-negative numbers. None may repeat."""
        out = [self.axis(int(a), rank) for a in axes]
        if len(set(out)) != len(out):
            raise ShapeError(f"axes {list(axes)} repeat", node=self.node)
        return out

    def entries(self, name: str, values: Sequence[Any], count: int) -> Sequence[Any]:
        """The values. Their number must be `count`."""
        if len(values) != count:
            raise ShapeError(f"{name} has {len(values)} entries, not {count}", node=self.node)
        return values

    def unsupported(self, message: str, hint: str = "") -> UnsupportedOp:
        return UnsupportedOp(message, node=self.node, hint=hint)

    def shape_error(self, message: str) -> ShapeError:
        return ShapeError(message, node=self.node)
