"""Kernels that touch strings run in Python: strings have no place in linear memory.

Any Map, Reduce, Alias, Loops or Call that reads or makes a string tensor becomes a Host step that runs the same kernel
by the reference evaluator.
"""

from __future__ import annotations

from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Alias, Block, Call, Host, If, Kernel, Loop, Loops, Map, Reduce


def lower_strings(block: Block, table: list[Kernel] | None = None) -> list[Kernel]:
    """Replace such kernels in the block and its sub-blocks. Gives the table of the kernels replaced: a step's attrs
    hold the kernel itself ("kernel") and its place in the table ("id"), by which a Program may refer to it."""
    table = [] if table is None else table
    for n, kernel in enumerate(block.kernels):
        if isinstance(kernel, If):
            lower_strings(kernel.then, table)
            lower_strings(kernel.orelse, table)
        elif isinstance(kernel, Loop):
            lower_strings(kernel.body, table)
        elif isinstance(kernel, Map | Reduce | Alias | Loops | Call) and _touches(kernel):
            block.kernels[n] = _on_host(kernel, len(table))
            table.append(kernel)
    return table


def _touches(kernel: Kernel) -> bool:
    return any(t.dtype is STRING for t in (*kernel.inputs, *kernel.outputs))


def _on_host(kernel: Kernel, number: int) -> Host:
    step = Host("reference", kernel.inputs, {"kernel": kernel, "id": number})
    step.node = kernel.node
    step.outputs = kernel.outputs
    for t in kernel.outputs:
        t.kernel = step
    return step


__all__ = ["lower_strings"]
