"""Kernels that touch strings run in Python: strings have no place in linear memory.

Any Map, Reduce, Alias, Loops or Call that reads or makes a string tensor becomes a Host step that runs the same kernel
by the reference evaluator.
"""

from __future__ import annotations

from pyruntime.ir.dtype import STRING
from pyruntime.ir.kernel import Alias, Block, Call, Host, Kernel, Loops, Map, Reduce
from pyruntime.ir.rewriting import rewrite_kernels


def lower_strings(block: Block) -> None:
    """Replace such kernels in the block and its inner blocks; a step's attrs hold the kernel itself ("kernel")."""
    rewrite_kernels(block, lambda kernel: on_host(kernel) if _touches(kernel) else None)


def on_host(kernel: Kernel) -> Host:
    """A step that runs a kernel by the reference evaluator."""
    return Host("reference", kernel.inputs, {"kernel": kernel})


def _touches(kernel: Kernel) -> bool:
    if not isinstance(kernel, (Map, Reduce, Alias, Loops, Call)):
        return False
    return any(t.dtype is STRING for t in (*kernel.inputs, *kernel.outputs))


__all__ = ["lower_strings", "on_host"]
