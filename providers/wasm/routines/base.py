"""What routines share: the default answers of a `Routine`, tails as code, scratch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyruntime.codegen.addressing import split
from pyruntime.codegen.block_epilogue import Groups, lower_tail, mergeable
from pyruntime.codegen.loop_ir import Param
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I8, I16, I32, U8, U16, DType
from pyruntime.ir.expr import Expr, cast, index
from pyruntime.ir.kernel import Call, Kernel, Leaf, Map, Tensor, View
from pyruntime.ir.shape import AnyDim, Shape

from ..printer.loops import print_tail
from ..schedules.register_tile import INT16, Arithmetic, Epilogue


class Schedule:
    """A routine that reads contiguous operands, fuses nothing and packs nothing."""

    def prepare(self, call: Call) -> list[Kernel]:
        return []

    def claims(self, call: Call) -> bool:
        return all(t.dtype is F32 for t in (*call.inputs, *call.outputs))

    def reads(self, call: Call, operand: int, view: View) -> bool:
        return False

    def fuses(self, call: Call, out: Tensor, order: tuple[int, ...], epilogue: Expr) -> bool:
        return False

    def packs(self, call: Call, operand: int) -> Kernel | None:
        return None

    def emit(self, builder: Any, call: Call) -> list[Invocation]:
        raise NotImplementedError


@dataclass(slots=True)
class Tail:
    """A call's epilogue as a routine takes it: what its tiles do, the bias they read, and the buffers and parameters of
    the code for finished blocks, which follow the routine's own. `result` is what the routine writes where the output's
    elements are narrower: as much memory as it needs, of which the tail makes the output block by block."""

    epilogue: Epilogue
    bias: Tensor | None = None
    tensors: list[Tensor] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    result: Tensor | None = None

    def scratch(self) -> list[Tensor]:
        return [] if self.result is None else [self.result]


def tail(
    builder: Any, call: Call, groups: Groups, c: int, buffers: int, params: int, dtype: DType = F32, tiles: bool = True
) -> Tail:
    """`c` is the buffer number of the result; the routine has that many buffers and parameters of its own and makes
    elements of type `dtype`; `tiles`: it can add a bias and clip in registers."""
    if call.epilogue is None:
        return Tail(Epilogue())
    simple = _simple(call.out, call.epilogue, groups) if dtype is F32 and tiles else None
    if simple is not None:
        return simple
    lowered = lower_tail(call.out, call.epilogue, groups, dtype)
    assert lowered is not None
    narrow = call.out.dtype.size < dtype.size
    own = [c] if call.out.dtype is dtype else [buffers if narrow else c, c]
    more = lowered.tensors[len(own) :]
    result = None
    if narrow:
        more, result = [call.out, *more], scratch(sh.size(call.out.shape) * dtype.size)
    first = buffers + len(more) + params
    words = [*own, *range(buffers + narrow, buffers + len(more)), *range(first, first + len(lowered.params))]
    code = lowered.code
    f = builder.function((code.key(), tuple(words)), lambda name: print_tail(builder.module, name, code, words), "tail")
    return Tail(Epilogue(block=f), None, more, lowered.params, result)


def made_type(call: Call) -> DType:
    """The type of a product's sums."""
    return I32 if call.attrs.get("pairs") else F32


def arithmetic(builder: Any, call: Call) -> Arithmetic:
    return INT16 if call.attrs.get("pairs") else builder.relaxed


def fits(out: Tensor, made: DType) -> bool:
    """Whether a tail can write this type in place of sums of type `made`."""
    return out.dtype is made or out.dtype in (F32, I32, U8, I8, U16, I16)


def _simple(out: Tensor, e: Expr, groups: Groups) -> Tail | None:
    """bias and clip bounds, where that is all the epilogue is: tiles do these in registers."""
    bounds: dict[str, float] = {}
    while e.op in ("max", "min") and e.op not in bounds and e.args[1].op == "const":
        bounds[e.op] = e.args[1].value
        if e.op == "max" and "min" in bounds and bounds["max"] > bounds["min"]:
            return None
        e = e.args[0]
    low, high = bounds.get("max"), bounds.get("min")
    if e.op == "arg":
        return Tail(Epilogue(low=low, high=high))
    if e.op != "add":
        return None
    a, b = e.args if e.args[0].op == "arg" else e.args[::-1]
    if a.op != "arg" or b.op != "at" or b.dtype is not F32 or not mergeable(out, b, groups):
        return None
    base, coefficients, opaque = split(b.value, b.args)
    steps = {k[1]: v for k, v in coefficients.items() if v != 0 and out.shape[k[1]] != 1}
    if base != 0 or opaque or len(steps) != 1:
        return None
    (axis, step), row, col = *steps.items(), groups[2], groups[3]
    kind = "row" if axis in row else "col" if axis in col else ""
    return Tail(Epilogue(kind, low, high), b.value) if kind and step == 1 else None


def converted(call: Call, operand: int, dtype: DType) -> Map:
    """The operand in another type, put in its place."""
    t = call.args[operand]
    assert t is not None
    made = made_map(t.shape, cast(t.at(*[index(n) for n in range(t.rank)]), dtype), call.node)
    call.args = (*call.args[:operand], made.out, *call.args[operand + 1 :])
    return made


def made_map(shape: Shape, e: Expr, node: str) -> Map:
    kernel = Map(e)
    kernel.node = node
    kernel.outputs = (Tensor(shape, e.dtype, kernel),)
    return kernel


def scratch(size: AnyDim) -> Tensor:
    """Memory of one call, in bytes."""
    kernel = Leaf("scratch")
    kernel.outputs = (Tensor((sh.ceildiv(size, 4),), F32, kernel),)
    return kernel.out
