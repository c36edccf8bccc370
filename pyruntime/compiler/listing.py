"""Prints a compiled model: its kernels after the passes, their loops, and their code."""

from __future__ import annotations

from collections.abc import Iterator

from pyruntime.codegen.text import kernel_lines, loop_lines
from pyruntime.compiler.compile import Compiled
from pyruntime.ir.blocks import all_kernels
from pyruntime.ir.kernel import Alias, Call, Kernel, Leaf, Loops, Map, Reduce
from pyruntime.onnx.graph import operator_of
from pyruntime.placement.target import Target


def listing(compiled: Compiled, target: Target, node: str = "", code: bool = False) -> str:
    """The kernels of all nodes, or of those whose name, operator or label is `node`. Kernels that run once come first.
    code: also print functions and shaders, each at its first call."""
    functions = _functions(compiled)
    lines: list[str] = []
    for when, block in (("once", compiled.init), ("in each run", compiled.main)):
        for kernel in all_kernels(block):
            if not isinstance(kernel, (Alias, Leaf)) and _matches(kernel.node, node):
                lines += [*_kernel(kernel, when, target), *(_code(kernel, target, functions) if code else ())]
    return "\n".join(lines)


def _matches(label: str, node: str) -> bool:
    return not node or node in (label, operator_of(label), *label.split('"')[-2:-1])


def _kernel(kernel: Kernel, when: str, target: Target) -> Iterator[str]:
    if not isinstance(kernel, (Map, Reduce, Loops, Call)):
        yield f"{kernel.node}, {when}, by the executor"
        yield from _indented(kernel_lines(kernel))
        return
    provider = target.provider(kernel).name
    yield f"{kernel.node}, {when}, on {provider}"
    yield from _indented(kernel_lines(kernel))
    loops = target.writers[provider].loop_form(kernel)
    if loops is not None:
        yield from _indented(loop_lines(loops))


Functions = dict[tuple[str, str], list[str]]  # names by (kind of step, label of the node)


def _functions(compiled: Compiled) -> Functions:
    """Names of the functions that the Program's calls run."""
    found: Functions = {}
    for step in (s for block in compiled.program.header["blocks"] for s in block["steps"]):
        for call in step.get("calls", ()):
            found.setdefault((step["op"], call["node"]), []).append(call["kernel"])
    return found


def _code(kernel: Kernel, target: Target, functions: Functions) -> Iterator[str]:
    provider = target.provider(kernel)
    for name in dict.fromkeys(functions.pop((provider.op, kernel.node), ())):
        yield f"  code {name}"
        yield from _indented(_indented(target.writers[provider.name].text(name).rstrip().split("\n")))


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
