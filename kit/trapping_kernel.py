"""Kernels that trap: run natively and, as text, in the engine's interpreter in a browser."""

from __future__ import annotations

from typing import Any

from pyruntime.codegen.linear_memory import POISON
from pyruntime.providers.wasm import code_writer

TRIGGER = 13.0
LOOKS = 1 << 30  # about a second: if the thread never comes, the test fails and does not hang
UPDATE = 8  # buffers of an update by Adam: a weight and two moments twice, a gradient, the step's numbers
RATE = 2  # place in the step's numbers
_print_kernel = code_writer.print_kernel


def install(thread: int) -> None:
    """Makes kernels write out of bounds on this thread if the first element of their first input is TRIGGER. The other
    threads wait for that in their first chunks, so that this thread finds a chunk to claim."""

    def trapping(module: Any, name: str, code: Any, *more: Any) -> Any:
        inner = _print_kernel(module, name + "_inner", code, *more)
        f = module.function(name, ["i32"] * 4)
        looks = f.local("i32")
        if len(code.buffers) > 1:
            f.emit(0).mem("i32.load", 4).mem("f32.load").f32(TRIGGER).emit("f32.eq")
            with f.if_():
                f.emit(3).i32(thread).emit("i32.eq")
                with f.if_():
                    f.i32(-4).i32(0).mem("i32.store")
                with f.loop() as again:
                    f.emit(looks).i32(1).emit("i32.add").tee(looks).i32(LOOKS).emit("i32.lt_u")
                    f.i32(POISON).mem("i32.atomic.load").emit("i32.eqz", "i32.and").br_if(again)
        return f.emit(0, 1, 2, 3).call(inner)

    code_writer.print_kernel = trapping


def install_in_updates() -> None:
    """Makes updates of Adam write out of bounds after their work if the learning rate is TRIGGER."""

    def trapping(module: Any, name: str, code: Any, *more: Any) -> Any:
        if len(code.buffers) != UPDATE:
            return _print_kernel(module, name, code, *more)
        inner = _print_kernel(module, name + "_inner", code, *more)
        f = module.function(name, ["i32"] * 4)
        f.emit(0, 1, 2, 3).call(inner)
        f.emit(0).mem("i32.load", 4 * (UPDATE - 1)).mem("f32.load", 4 * RATE).f32(TRIGGER).emit("f32.eq")
        with f.if_():
            f.i32(-4).i32(0).mem("i32.store")
        return f

    code_writer.print_kernel = trapping


def uninstall() -> None:
    code_writer.print_kernel = _print_kernel
