"""Code that measures what one thread of this machine reaches: the 128-bit peak by loops of independent multiply-adds in
registers only, and the memory's bandwidth by a loop of loads."""

from __future__ import annotations

from pyruntime.providers.wasm.printer.assembler import Module

ACCUMULATORS = (8, 12, 14)  # x64 has 16 vector registers, two for operands; the best number differs by machine
UNROLL = 4


def module(relaxed: bool = True) -> tuple[bytes, dict[str, int]]:
    """A module over an unshared memory of `loop(turns)` functions, and the floating-point operations of a turn."""
    made = Module(shared=False)
    loops = {}
    for fused in (False, True) if relaxed else (False,):
        for count in ACCUMULATORS:
            name = f"{'madd' if fused else 'mul+add'} x{count}"
            _loop(made, name, count, fused)
            loops[name] = count * UNROLL * 4 * 2
    return made.to_bytes(), loops


def reader() -> bytes:
    """A module over an unshared memory of `read(bytes)`, which loads as many bytes from address 0 on; their number is a
    multiple of 64 x UNROLL."""
    made = Module(shared=False)
    f = made.function("read", ["i32"])
    (end,) = f.params
    at = f.local("i32")
    sums = f.locals("v128", UNROLL)
    with f.until(at, end, 16 * UNROLL):
        for n, to in enumerate(sums):
            f.emit(at).mem("v128.load", 16 * n)
            f.emit(to, "i32x4.add").set(to)
    f.i32(0)
    f.emit(sums[0])
    for to in sums[1:]:
        f.emit(to, "i32x4.add")
    f.mem("v128.store")
    return made.to_bytes()


def _loop(made: Module, name: str, count: int, fused: bool) -> None:
    f = made.function(name, ["i32"])
    (turns,) = f.params
    i = f.local("i32")
    sums = f.locals("v128", count)
    a, b = f.locals("v128", 2)
    f.emit(turns, "f32.convert_i32_s", "f32x4.splat").tee(a).set(b)
    for n, at in enumerate(sums):
        f.f32x4(float(n)).set(at)
    with f.until(i, turns):
        for _ in range(UNROLL):
            for at in sums:
                if fused:
                    f.emit(a, b, at, "f32x4.relaxed_madd").set(at)
                else:
                    f.emit(a, b, "f32x4.mul", at, "f32x4.add").set(at)
    f.i32(0)  # the sums are stored, so that no compiler may drop them
    f.emit(sums[0])
    for at in sums[1:]:
        f.emit(at, "f32x4.add")
    f.mem("v128.store")
