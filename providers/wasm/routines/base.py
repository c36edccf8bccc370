"""What routines share: the default answers of a `Routine`, epilogues as code, scratch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyruntime.codegen.addressing import split
from pyruntime.codegen.block_epilogue import Groups, lower_epilogue, mergeable
from pyruntime.codegen.half_floats import HALVES
from pyruntime.codegen.loop_ir import Param
from pyruntime.codegen.provider import Invocation
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32, I8, I16, I32, U8, U16, DType
from pyruntime.ir.expr import Expr, cast, index
from pyruntime.ir.kernel import Call, Kernel, Leaf, Map, Tensor, View
from pyruntime.ir.shape import AnyDim, Shape

from ..printer.loops import print_epilogue
from ..schedules.arithmetic import Arithmetic
from ..schedules.register_tile import Epilogue


class WasmRoutine:
    """What this provider's routines begin from: float32, contiguous operands, nothing fused, nothing packed.
    Subclasses write `emit` and override what they can do better."""

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

    def emit(self, writer: Any, call: Call) -> list[Invocation]:
        """The function, made once by `writer.function(key, …)` where the key says all that its code depends on, and
        its calls: tensors and parameters in the order of the argument block's words, and the number of work units."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class OwnWords:
    """Of the argument block: the number of the result's buffer, how many buffers and parameters the routine has."""

    result: int
    buffers: int
    params: int


def own_words(schedule: Any, result: int, more: int = 0) -> OwnWords:
    """Of a routine that a module with BUFFERS and PARAMS writes; more: buffers after those."""
    return OwnWords(result, len(schedule.BUFFERS) + more, len(schedule.PARAMS))


@dataclass(slots=True)
class CallEpilogue:
    """A call's epilogue as a routine takes it: what its tiles do, the bias they read, and the buffers and parameters of
    the code for finished blocks, which follow the routine's own. `result` is what the routine writes where the output's
    elements are narrower: as much memory as it needs, of which that code makes the output block by block."""

    epilogue: Epilogue
    bias: Tensor | None = None
    tensors: list[Tensor] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    result: Tensor | None = None

    def scratch(self) -> list[Tensor]:
        return [] if self.result is None else [self.result]


def call_epilogue(
    writer: Any, call: Call, groups: Groups, words: OwnWords, made: DType = F32, registers: bool = True
) -> CallEpilogue:
    """made: the type of the routine's elements; registers: its tiles can add a bias and clip."""
    if call.epilogue is None:
        return CallEpilogue(Epilogue())
    simple = _in_registers(call.out, call.epilogue, groups) if made is F32 and registers else None
    return simple or _by_blocks(writer, call, groups, words, made)


def _by_blocks(writer: Any, call: Call, groups: Groups, words: OwnWords, made: DType) -> CallEpilogue:
    """Code for finished blocks: the first buffers of its loop form are the output and, of another type, the result."""
    assert call.epilogue is not None
    lowered = lower_epilogue(call.out, call.epilogue, groups, made)
    narrow = call.out.dtype.size < made.size
    own, first = [words.result], []
    if narrow:
        own, first = [words.buffers, words.result], [call.out]
    elif call.out.dtype is not made:
        own = [words.result, words.result]
    tensors = [*first, *lowered.tensors[len(own) :]]
    params = words.buffers + len(tensors) + words.params
    places = [*own, *range(words.buffers + len(first), words.buffers + len(tensors))]
    places += range(params, params + len(lowered.params))
    code = lowered.code
    key = (code.key(), tuple(places))
    f = writer.function(key, lambda name: print_epilogue(writer.module, name, code, places, writer.relaxed), "epilogue")
    result = scratch(sh.size(call.out.shape) * made.size) if narrow else None
    return CallEpilogue(Epilogue(block=f), None, tensors, lowered.params, result)


def made_type(call: Call) -> DType:
    """The type of a product's sums."""
    return I32 if "sums" in call.attrs else F32


def arithmetic(writer: Any, call: Call) -> Arithmetic:
    """That of the attribute "sums", which products of codes have, else of floats."""
    return Arithmetic[call.attrs["sums"]] if "sums" in call.attrs else Arithmetic.of_floats(writer.relaxed)


def fits(out: Tensor, made: DType) -> bool:
    """Whether an epilogue can write this type in place of sums of type `made`."""
    return out.dtype is made or out.dtype in (F32, I32, U8, I8, U16, I16)


def _in_registers(out: Tensor, e: Expr, groups: Groups) -> CallEpilogue | None:
    """bias and clip bounds, where that is all the epilogue is: tiles do these in registers."""
    bounds: dict[str, float] = {}
    while e.op in ("max", "min") and e.op not in bounds and e.args[1].op == "const":
        bounds[e.op] = e.args[1].value
        if e.op == "max" and "min" in bounds and bounds["max"] > bounds["min"]:
            return None
        e = e.args[0]
    low, high = bounds.get("max"), bounds.get("min")
    if e.op == "arg":
        return CallEpilogue(Epilogue(low=low, high=high))
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
    return CallEpilogue(Epilogue(kind, low, high), b.value) if kind and step == 1 else None


def widened(call: Call, operands: tuple[int, ...] = (0, 1)) -> list[Kernel]:
    """Maps that make half floats among the operands float32, in whose places they are put. Of a transpose what is
    transposed is converted, in the order of its memory, and then read through strides."""
    made: list[Kernel] = []
    for operand in operands:
        t = call.args[operand]
        if t is None or t.dtype not in HALVES:
            continue
        source = t.kernel.expr.value if _is_transpose(t.kernel) else t  # type: ignore[attr-defined]
        wide = made_map(source.shape, cast(source.at(*[index(n) for n in range(source.rank)]), F32), call.node)
        made.append(wide)
        if source is not t:
            made.append(made_map(t.shape, wide.out.at(*t.kernel.expr.args), call.node))  # type: ignore[attr-defined]
        call.args = (*call.args[:operand], made[-1].out, *call.args[operand + 1 :])
    return made


def _is_transpose(kernel: Kernel) -> bool:
    """Whether axes change places; those of one element may come and go."""
    if not isinstance(kernel, Map) or kernel.expr.op != "at":
        return False
    from_, to = kernel.expr.value.shape, kernel.out.shape
    axes = [c.value for c, d in zip(kernel.expr.args, from_, strict=True) if c.op == "index" and d != 1]
    moved = sorted(axes) == [n for n, d in enumerate(to) if d != 1]
    return moved and len(axes) == sum(d != 1 for d in from_)


def element(t: Tensor) -> Expr:
    """At its own indices; what a map computes, where one makes it."""
    return t.kernel.expr if isinstance(t.kernel, Map) else t.at(*[index(n) for n in range(t.rank)])


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
