"""Prints kernels and the loop form as text."""

from __future__ import annotations

from collections.abc import Sequence

from pyruntime.codegen.loop_ir import LoopCode
from pyruntime.ir.kernel import (
    Accum,
    Block,
    Call,
    For,
    Host,
    Kernel,
    Let,
    Loops,
    Map,
    Read,
    Reduce,
    Set,
    Stmt,
    Store,
    When,
    While,
)
from pyruntime.ir.statements import children


def kernel_lines(kernel: Kernel) -> list[str]:
    """The computation of a kernel as text. %7 is a tensor; i0 … are indices of the output, then of the reduction;
    arg(0) in an epilogue is the value to which it is applied."""
    made = ", ".join(map(repr, kernel.outputs))
    if isinstance(kernel, Map):
        return [f"{made} = map {kernel.expr}"]
    if isinstance(kernel, Reduce):
        epilogue = [] if kernel.epilogue is None else [f"  epilogue {kernel.epilogue}"]
        return [f"{made} = {kernel.op} over [{', '.join(map(str, kernel.extents))}] of {kernel.expr}", *epilogue]
    if isinstance(kernel, Loops):
        scratch = [f"  scratch {', '.join(map(repr, kernel.scratch))}"] if kernel.scratch else []
        return [f"{made} = loops {kernel.name}", *scratch, *statement_lines(kernel.body)]
    if isinstance(kernel, Call):
        return [
            f"{made} = call {kernel.routine}({_several(kernel.args)}) {kernel.attrs or ''}".rstrip(),
            *_added(kernel),
        ]
    if isinstance(kernel, Host):
        return [f"{made} = host {kernel.fn}({_several(kernel.args)})"]
    if isinstance(kernel, Read):
        return [f"{', '.join(map(str, kernel.symbols))} = read {kernel.source!r}"]
    return [f"{made} = {type(kernel).__name__.lower()}({_several(kernel.inputs)})"]


def _several(tensors: Sequence[object]) -> str:
    return ", ".join(map(repr, tensors))


def _added(call: Call) -> list[str]:
    """The properties that passes added to a call, and its definition."""
    lines = [
        f"  operand {n} is {v.tensor!r} from {v.offset} by strides [{', '.join(map(str, v.strides))}]"
        for n, v in call.strided.items()
    ]
    if call.order is not None:
        lines.append(f"  order {call.order}")
    if call.plan is not None:
        lines.append(f"  plan {call.plan}")
    if call.epilogue is not None:
        lines.append(f"  epilogue {call.epilogue}")
    if isinstance(call.meaning, Block):
        return [*lines, f"  means {len(call.meaning.kernels)} kernels"]
    return [*lines, *["  means " + line.partition(" = ")[2] for line in kernel_lines(call.definition())[:1]]]


def loop_lines(code: LoopCode) -> list[str]:
    """The loop form. v0 … are variables, p0 … integer parameters, [0] … buffers with element offsets."""
    buffers = ", ".join(
        f"[{n}] {dtype}{' written' if written else ''}" for n, (dtype, written) in enumerate(code.buffers)
    )
    return [f"buffers {buffers}", *statement_lines(code.body)]


def statement_lines(body: Sequence[Stmt], depth: int = 1) -> list[str]:
    lines: list[str] = []
    for s in body:
        lines += [f"{'  ' * depth}{_head(s)}"]
        for n, inner in enumerate(children(s)):
            lines += [f"{'  ' * depth}else"] if n and inner else []
            lines += statement_lines(inner, depth + 1)
    return lines


def _head(s: Stmt) -> str:
    """A statement without its inner statements."""
    match s:
        case Let():
            return f"v{s.var} := {s.value}"
        case Set():
            return f"v{s.var} = {s.value}"
        case Accum():
            return f"v{s.var} = {s.op}(v{s.var}, {s.value})"
        case Store():
            return f"[{s.target}] at {', '.join(map(repr, s.coords))} = {s.value}"
        case For():
            return f"{s.kind} for v{s.var} in {s.extent}"
        case While():
            return f"while {s.condition}"
        case When():
            return f"when {s.condition}"
