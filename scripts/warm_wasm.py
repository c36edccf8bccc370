"""Adds code that makes a browser optimise a module's hot functions before they are needed
(docs/design/startup.md#warming-up-the-interpreter).

V8 compiles a function with its simple compiler at the first call, and with its optimising compiler after enough
returns: each return counts the bytes of the function's code before it. So a hot function first checks whether the
module is warming up; if so it jumps to its end and returns zeros. A function calls all of them until V8 has counted
enough. Other browsers count differently: in them the calls cost a few milliseconds and may have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyruntime.providers.wasm.printer.opcodes import leb_s, leb_u

BUDGET = 13_000_000  # --wasm-tiering-budget of V8 15.6: bytes that returns count until V8 optimises a function
GROWTH = 2  # unoptimised code over a body's bytes; 1.7 to 4 in Pyodide. Later calls of a function add the rest
LEAST = 5  # calls; each counts for a quarter of the budget at most
HOTTEST = 20  # functions that are warmed up at the start; with 60 the first visits of small models took longer
LATER = 400  # functions that are warmed up when the worker is idle, for 1.2 MB of code: Chromium caches it from 1 MB on
SMALLEST = 200  # least bytes of a function: V8 soon optimises smaller ones, which would need the most calls
NOTHING = b"\x40"  # as the type of a block
ZEROS = {  # by the value's type
    0x7F: b"\x41\0", 0x7E: b"\x42\0", 0x7D: b"\x43" + bytes(4), 0x7C: b"\x44" + bytes(8), 0x6F: b"\xd0\x6f",
}  # fmt: skip


def zeros(types: bytes) -> bytes:
    return b"".join(ZEROS[t] for t in types)


def around(results: bytes, flag: int) -> tuple[bytes, bytes]:
    """Return code before and after a hot function's body that skips the body while the global `flag` is set.

    Branches that leave the body leave the inner block, at the same depth; the body's own `end` ends the inner block."""
    ask = b"\x02" + NOTHING + b"\x23" + leb_u(flag) + b"\x0d\0"  # block  global.get flag  br_if 0
    return ask + b"\x02" + (results or NOTHING), b"\x0f\x0b" + zeros(results) + b"\x0b"  # return end, zeros end


def calls(size: int) -> int:
    """Return the number of calls of a function, given the bytes of its body."""
    return max(LEAST, BUDGET // (GROWTH * size))


def warm_up(functions: Iterable[tuple[int, bytes, bytes, int]], flag: int) -> bytes:
    """Return the body of a function that calls all hot functions with zeros. functions: index, types of parameters and
    results, bytes."""
    code = b"\x41\1\x24" + leb_u(flag)
    for index, params, results, size in functions:
        call = zeros(params) + b"\x10" + leb_u(index) + b"\x1a" * len(results)
        code += b"\x41" + leb_s(calls(size)) + b"\x21\0"  # local 0 counts down
        code += b"\x03" + NOTHING + call + b"\x20\0\x41\1\x6b\x22\0\x0d\0\x0b"
    return b"\1\1\x7f" + code + b"\x41\0\x24" + leb_u(flag) + b"\x0b"
