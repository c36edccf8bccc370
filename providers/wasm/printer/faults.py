"""Faults: when data contain an index out of range, kernels write a record at FAULT. A step keeps its first record."""

from __future__ import annotations

from pyruntime.codegen.linear_memory import FAULT

from .assembler import Function, helper

EXTENT, INDEX = 4, 8  # offsets in the record; the number of the node is at 0


@helper("fault", "i32", "i32", "i64")
def fault(f: Function, node: int, extent: int, index: int) -> None:
    """Write the record, unless another kernel has written one."""
    f.i32(FAULT)
    if f.module.shared:  # threads may fail at once
        f.i32(0).emit(node).mem("i32.atomic.rmw.cmpxchg")
    else:
        f.mem("i32.load")
    f.emit("i32.eqz")
    with f.if_():
        f.i32(FAULT).emit(extent).mem("i32.store", EXTENT)
        f.i32(FAULT).emit(index).mem("i64.store", INDEX)
        f.i32(FAULT).emit(node).mem("i32.store")
