"""Code that routines share: defaults of `Routine`'s methods, fused epilogues, scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pyruntime.codegen.addressing import split
from pyruntime.codegen.block_epilogue import Groups, lower_epilogue, mergeable
from pyruntime.codegen.half_floats import HALVES
from pyruntime.codegen.loop_ir import Param
from pyruntime.codegen.provider import Invocation, Routine
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I8, I16, I32, U8, U16, DType
from pyruntime.ir.expr import Expr, cast, index, rewrite, substitute
from pyruntime.ir.kernel import Call, Kernel, Leaf, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim, Shape

from ..printer.assembler import Function
from ..printer.loops import print_epilogue
from ..schedules.arguments import ArgumentBlock
from ..schedules.arithmetic import Arithmetic
from ..schedules.register_tile import Epilogue

AnyKernel = TypeVar("AnyKernel", bound=Kernel)


class WasmRoutine(Routine):
    """A routine for float32 and contiguous operands that fuses and packs nothing. Subclasses write `emit` and override
    what they can do better."""

    def claims(self, call: Call) -> bool:
        return all(t.dtype is F32 for t in (*call.inputs, *call.outputs))

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        """Write the function and return its calls. `writer.function(key, …)` writes it once for a key that has
        everything on which its code depends. A call has tensors and parameters in the order of the argument block, and
        the number of work units."""
        raise NotImplementedError


@dataclass(slots=True)
class FusedEpilogue:
    """The epilogue of a call: the operations of the tiles, the bias that they read, and the buffers and parameters of
    the code for finished blocks, which follow the routine's own in the argument block. `result`: scratch that the
    routine writes if elements of the output are narrower; the code for finished blocks converts it to the output."""

    writer: Any
    call: Call
    epilogue: Epilogue
    bias: Tensor | None = None
    tensors: list[Tensor] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    result: Tensor | None = None

    @property
    def out(self) -> Tensor:
        """What the routine writes."""
        return self.result or self.call.out

    def invocation(
        self, kernel: Callable[..., Function], key: tuple[Any, ...], buffers: Sequence[Tensor], params: Sequence[Param],
        units: AnyDim, scratch: Sequence[Tensor] = (), label: str = "",
    ) -> Invocation:  # fmt: skip
        """Return the call of kernel(module, name, epilogue=), which is written once for the key. buffers, params: by
        the schedule's `Buffers` and `Params`; scratch: buffers among these that live for this call only; label: the
        beginning of the function's name, by default that of the key"""

        def written(name: str) -> Function:
            return kernel(self.writer.module, name, epilogue=self.epilogue)

        f = self.writer.function((*key, self.epilogue), written, label or key[0])
        own = [*scratch, *([] if self.result is None else [self.result])]
        return Invocation(f.name, [*buffers, *self.tensors], [*params, *self.params], units, self.call.node, own)


def fused_epilogue(
    writer: Any, call: Call, groups: Groups, arguments: ArgumentBlock, made: DType = F32, registers: bool = True
) -> FusedEpilogue:
    """made: the type of the elements that the routine computes; registers: whether its tiles can add a bias and
    clip."""
    if call.epilogue is None:
        return FusedEpilogue(writer, call, Epilogue())
    simple = _in_registers(call.out, call.epilogue, groups) if made is F32 and registers else None
    return FusedEpilogue(writer, call, *simple) if simple else _by_blocks(writer, call, groups, arguments, made)


def _by_blocks(writer: Any, call: Call, groups: Groups, arguments: ArgumentBlock, made: DType) -> FusedEpilogue:
    """Return the code for finished blocks. The first buffers of its loop form are the output and, if its type differs,
    the result."""
    assert call.epilogue is not None
    lowered = lower_epilogue(call.out, call.epilogue, groups, made)
    narrow = call.out.dtype.size < made.size
    result, buffers = arguments.word(arguments.result), len(arguments.buffers)
    own, first = [result], []
    if narrow:
        own, first = [buffers, result], [call.out]
    elif call.out.dtype is not made:
        own = [result, result]
    tensors = [*first, *lowered.tensors[len(own) :]]
    params = buffers + len(tensors) + len(arguments.params)
    places = [*own, *range(buffers + len(first), buffers + len(tensors))]
    places += range(params, params + len(lowered.params))
    code = lowered.code
    key = (code.key(), tuple(places))
    f = writer.function(key, lambda name: print_epilogue(writer.module, name, code, places, writer.relaxed), "epilogue")
    wide = scratch(sh.size(call.out.shape) * made.size) if narrow else None
    return FusedEpilogue(writer, call, Epilogue(block=f, extra=len(tensors)), None, tensors, lowered.params, wide)


def is_integer(call: Call) -> bool:
    """Whether a product is of integer codes. The call then has an Arithmetic as its plan."""
    return isinstance(call.plan, Arithmetic)


def sum_type(call: Call) -> DType:
    """Return the type of a product's sums."""
    return I32 if is_integer(call) else F32


def arithmetic(writer: Any, call: Call) -> Arithmetic:
    return call.plan if is_integer(call) else Arithmetic.of_floats(writer.relaxed)


def fits(out: Tensor, made: DType) -> bool:
    """Whether an epilogue can write elements of this type over sums of type `made`."""
    return out.dtype is made or out.dtype in (F32, I32, U8, I8, U16, I16)


def _in_registers(out: Tensor, e: Expr, groups: Groups) -> tuple[Epilogue, Tensor | None] | None:
    """The clip bounds and the bias if the epilogue has nothing else: tiles apply these in registers."""
    bounds: dict[str, float] = {}
    while e.op in ("max", "min") and e.op not in bounds and e.args[1].op == "const":
        bounds[e.op] = e.args[1].value
        if e.op == "max" and "min" in bounds and bounds["max"] > bounds["min"]:
            return None
        e = e.args[0]
    low, high = bounds.get("max"), bounds.get("min")
    if e.op == "arg":
        return Epilogue(low=low, high=high), None
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
    return (Epilogue(kind, low, high), b.value) if kind and step == 1 else None


def widened(call: Call, operands: tuple[int, ...] = (0, 1)) -> tuple[list[Kernel], Call]:
    """Maps that convert half floats among the operands to float32, and the call with these operands. The operand of a
    transpose is converted, in memory order, and then read through strides."""
    made: list[Kernel] = []
    args, wider = list(call.args), dict[int, Tensor]()
    for operand in operands:
        t = args[operand]
        if t is None or t.dtype not in HALVES:
            continue
        source = t.kernel.expr.value if _is_transpose(t.kernel) else t  # type: ignore[attr-defined]
        wide = made_map(source.shape, cast(source.at(*[index(n) for n in range(source.rank)]), F32), call.node)
        made.append(wide)
        if source is not t:
            made.append(made_map(t.shape, wide.out.at(*t.kernel.expr.args), call.node))  # type: ignore[attr-defined]
        args[operand] = wider[t.uid] = made[-1].out
    if not made:
        return made, call

    def visit(e: Expr) -> Expr | None:
        return wider[e.value.uid].at(*e.args) if e.op == "at" and e.value.uid in wider else None

    call = changed(call, args=tuple(args))
    if isinstance(call.meaning, (Map, Reduce)):
        call.meaning = changed(call.meaning, expr=rewrite(call.meaning.expr, visit))
    return made, call


def changed(kernel: AnyKernel, **fields: Any) -> AnyKernel:
    """Return the kernel with other fields; it computes the same output."""
    other = replace(kernel, **fields)
    other.outputs, other.node = kernel.outputs, kernel.node
    return other


def _is_transpose(kernel: Kernel) -> bool:
    """Whether a map only permutes axes; axes of one element may be added or dropped."""
    if not isinstance(kernel, Map) or kernel.expr.op != "at":
        return False
    from_, to = kernel.expr.value.shape, kernel.out.shape
    axes = [c.value for c, d in zip(kernel.expr.args, from_, strict=True) if c.op == "index" and d != 1]
    moved = sorted(axes) == [n for n, d in enumerate(to) if d != 1]
    return moved and len(axes) == sum(d != 1 for d in from_)


def element(t: Tensor) -> Expr:
    """Return the expression of an element at index(0), index(1), …: that of the map that makes the tensor, if a map
    does."""
    return t.kernel.expr if isinstance(t.kernel, Map) else t.at(*[index(n) for n in range(t.rank)])


def without_views(e: Expr) -> Expr:
    """The expression, with those of the maps that it only loads from in their place."""
    while e.op == "at" and isinstance(e.value.kernel, Map):
        e = substitute(e.value.kernel.expr, e.args)
    return e


def made_map(shape: Shape, e: Expr, node: str) -> Map:
    return Map(e).making(shape, e.dtype, node)


def scratch(size: AnyDim) -> Tensor:
    """Return scratch memory of `size` bytes for one call."""
    return Leaf("scratch").making((sh.ceildiv(size, 4),), F32).out
