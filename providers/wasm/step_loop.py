"""Runs steps of a loop's body; pyruntime/runtime/repeats.py describes the memory that this code reads and writes."""

from __future__ import annotations

from pyruntime.codegen.linear_memory import FAULT, LOOP_ADDRESSES, LOOP_HEAD

from .printer.assembler import Function, Module
from .printer.values import I32


def write(module: Module, name: str, run: Function, stacks: int) -> None:
    """Write name(address of the buffer) -> number of steps that ran, at least one. It ends with the batch, when the
    loop's condition does not hold, or after a fault. run: one step"""
    f = module.function(name, ["i32"], ["i32"])
    (memory,) = f.params
    phase, end, steps, done = f.integers(4)
    for n, word in enumerate((phase, end, steps)):
        f.emit(memory).mem("i32.load", 16 + 4 * n).set(word)
    with f.loop() as again:
        f.emit(phase).mem("i32.load").emit(memory).mem("i64.load").mem("i64.store")
        f.emit(phase).mem("i32.load", 4).i32(1).mem("i32.store8")
        f.emit(phase).mem("i32.load", 8).i32(0).i32(1).i32(0).call(run)
        for n in range(stacks):
            _stack(f, memory, LOOP_HEAD + 8 * n, phase, 4 * (LOOP_ADDRESSES + n))
        f.emit(memory, memory).mem("i64.load").i64(1).emit("i64.add").mem("i64.store")
        f.add(done, 1).emit(done, steps, "i32.lt_u")
        f.emit(phase).mem("i32.load", 12).mem("i32.load8_u").i32(0).emit("i32.ne", "i32.and")
        f.i32(FAULT).mem("i32.load").emit("i32.eqz", "i32.and")
        f.emit(memory).i32(LOOP_HEAD + 8 * stacks).emit("i32.add")
        f.emit(phase).i32(4 * (LOOP_ADDRESSES + stacks)).emit("i32.add").tee(phase)
        f.emit(phase, end, "i32.eq", "select").set(phase).br_if(again)
    f.emit(done)


def _stack(f: Function, memory: I32, stack: int, phase: I32, source: int) -> None:
    """Copy a value to the next row of its stack. stack, source: offsets of the stack, and of the value's address"""
    with f.scratch("i32", 3) as (at, to, end):  # not memory.copy: a run cannot be stopped inside of it
        f.emit(phase).mem("i32.load", source).set(at).emit(memory).mem("i32.load", stack).set(to)
        f.emit(to, memory).mem("i32.load", stack + 4).emit("i32.add").set(end)
        for load, store, size in (("v128.load", "v128.store", 16), ("i32.load8_u", "i32.store8", 1)):
            f.emit(end, to, "i32.sub").i32(size).emit("i32.ge_u")
            with f.if_(), f.loop() as again:
                f.emit(to, at).mem(load).mem(store).add(at, size).add(to, size)
                f.emit(end, to, "i32.sub").i32(size).emit("i32.ge_u").br_if(again)
        f.emit(memory, to).mem("i32.store", stack)
