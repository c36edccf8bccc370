"""Runs kernels on strings in Python, because linear memory holds no strings.

A Map, Reduce, Alias, Loops or Call that reads or makes a string tensor becomes a Host kernel, in which the reference
evaluator runs the same kernel.
"""

from __future__ import annotations

from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Alias, Block, Call, Host, Kernel, Loops, Map, Reduce
from pyruntime.ir.rewriting import rewrite_kernels


def lower_strings(block: Block) -> None:
    """Replace kernels on strings in the block and its inner blocks. The Host kernel's attribute "kernel" holds the old
    kernel."""
    rewrite_kernels(block, lambda kernel: on_host(kernel) if _uses_strings(kernel) else None)


def on_host(kernel: Kernel) -> Host:
    """A Host kernel that runs a kernel by the reference evaluator."""
    return Host("reference", kernel.inputs, {"kernel": kernel})


def _uses_strings(kernel: Kernel) -> bool:
    if not isinstance(kernel, (Map, Reduce, Alias, Loops, Call)):
        return False
    return any(t.dtype is STRING for t in (*kernel.inputs, *kernel.outputs))
