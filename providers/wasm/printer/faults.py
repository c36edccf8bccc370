"""Faults: what a kernel leaves in memory when data give it an index out of range.

The record lies in the reserved bytes at address 0: NODE is 0 until a kernel writes the number of a node there, then
EXTENT the number of elements of the axis, INDEX the index as it was given (int64). The first fault of a step stays.
"""

from __future__ import annotations

from .assembler import Function, Module

NODE, EXTENT, INDEX = 512, 516, 520
BYTES = 16


def fault(module: Module) -> Function:
    """(node, extent, index): writes the record, unless there is one."""

    def make() -> Function:
        f = module.function("fault", ["i32", "i32", "i64"], export=False)
        node, extent, index = f.params
        f.i32(NODE)
        if module.shared:  # threads may fail at once
            f.i32(0).emit(node).mem("i32.atomic.rmw.cmpxchg")
        else:
            f.mem("i32.load")
        f.emit("i32.eqz")
        with f.if_():
            f.i32(NODE).emit(extent).mem("i32.store", EXTENT - NODE)
            f.i32(NODE).emit(index).mem("i64.store", INDEX - NODE)
            f.i32(NODE).emit(node).mem("i32.store")
        return f

    return module.once("fault", make)


__all__ = ["BYTES", "NODE", "EXTENT", "INDEX", "fault"]
