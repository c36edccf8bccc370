"""Faults: when data contain an index out of range, kernels write a record at FAULT. A step keeps its first record."""

from __future__ import annotations

from pyruntime.codegen.linear_memory import FAULT

from .assembler import Function, Module, once

EXTENT, INDEX = 4, 8  # offsets in the record; the number of the node is at 0


@once
def fault(module: Module) -> Function:
    """fault(node, extent, index) writes the record, unless another kernel has written one."""
    f = module.function("fault", ["i32", "i32", "i64"], export=False)
    node, extent, index = f.params
    f.i32(FAULT)
    if module.shared:  # several threads may fail at the same time
        f.i32(0).emit(node).mem("i32.atomic.rmw.cmpxchg")
    else:
        f.mem("i32.load")
    f.emit("i32.eqz")
    with f.if_():
        f.i32(FAULT).emit(extent).mem("i32.store", EXTENT)
        f.i32(FAULT).emit(index).mem("i64.store", INDEX)
        f.i32(FAULT).emit(node).mem("i32.store")
    return f
