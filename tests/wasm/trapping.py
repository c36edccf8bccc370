"""A kernel that traps on one thread: runs natively and, as text, in the engine's interpreter in a browser."""

from __future__ import annotations

from typing import Any

from providers.wasm import builder

TRIGGER = 13.0
_print_kernel = builder.print_kernel


def install(thread: int) -> None:
    """From now on kernels write out of bounds on this thread when the first element of their first input is TRIGGER."""

    def trapping(module: Any, name: str, code: Any, *more: Any) -> Any:
        inner = _print_kernel(module, name + "_inner", code, *more)
        f = module.function(name, ["i32"] * 4)
        if len(code.buffers) > 1:
            f.emit(0).mem("i32.load", 4).mem("f32.load").f32(TRIGGER).emit("f32.eq")
            f.emit(3).i32(thread).emit("i32.eq", "i32.and")
            with f.if_():
                f.i32(-4).i32(0).mem("i32.store")
        return f.emit(0, 1, 2, 3).call(inner)

    builder.print_kernel = trapping


def uninstall() -> None:
    builder.print_kernel = _print_kernel
