"""What all functions in machine code share: calls from WebAssembly, and checks of operands.

WebAssembly calls a function as an import of `env` (printer/native_imports.py), through wasmtime's convention for
unchecked functions: the addresses of an environment (ENVIRONMENT) and of the operands, which are 16 bytes each; the
result replaces the first.

The result is 1, or 0 if the function has done nothing and WebAssembly has to do the work itself, because

- an operand, by its address and size, is not wholly inside of its linear memory. WebAssembly's own code then traps, or
  wraps around as addresses in WebAssembly do. So this code reaches nothing but the session's memories, whatever a
  Program passes;
- the work is more than any that schedules ask for: nothing stops this code but its end;
- the host is about to make the memory inaccessible to stop the run, which would end the process if it happened here.
  `busy` says that a thread is inside. It is set by an instruction that is a barrier, before `stop` is read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..printer.native_imports import import_of
from .kinds import Kind
from .x86 import R8, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, XMM, Assembler, Memory

MEMORIES = 256
# Of a thread: busy, stop, then address and size of each linear memory, 0 for those that do not exist
ENVIRONMENT = struct.Struct("<QQ" + MEMORIES * "QQ")
BUSY, STOP, TABLE = 0, 8, 16

SAVED = (RBX, RBP, R12, R13, R14, R15)  # by both conventions
WINDOWS_SAVED, _WINDOWS_VECTORS = (RSI, RDI), range(6, 16)  # by that of Windows, too


def slots(names: Sequence[str], half: int = 0) -> dict[str, Memory]:
    """Where operands are, from the address in rdx. half 1: the eight bytes behind each, which functions may use"""
    return {name: Memory(RDX, 16 * n + 8 * half) for n, name in enumerate(names)}


class Function:
    """Writes a function, whose `name` is that of the import. windows: for the calling convention of Windows, not System
    V's"""

    name: str

    def __init__(self, kind: Kind, windows: bool) -> None:
        self.kind, self.windows = kind, windows
        self.code = Assembler()
        self.declined = self.code.label()
        found = import_of(self.name)
        assert found is not None
        self.addresses, self.slot = found.addresses, slots(found.operands)

    def check(self) -> None:
        """Jump to `declined` unless the operands are right. The address of the environment is in rdi."""
        raise NotImplementedError

    def body(self) -> None:
        """Do the work. All registers but rdx, the address of the operands, and rsp are free."""
        raise NotImplementedError

    def data(self) -> None:
        """Write functions and constants behind the code."""

    def write(self) -> bytes:
        """The machine code."""
        code = self.code
        done = code.label()
        self._enter()
        code.constant("mov", RAX, 1, wide=False)
        code.op("xchg", RAX, Memory(RDI, BUSY), wide=False)
        code.constant("cmp", Memory(RDI, STOP), 0, wide=False)
        code.jump(self.declined, "ne")
        self.check()
        code.push(RDI)
        self.body()
        code.pop(RDI)
        code.constant("mov", RAX, 1, wide=False)
        code.jump(done)
        code.place(self.declined)
        code.constant("mov", RAX, 0, wide=False)
        code.place(done)
        code.op("store", RAX, Memory(RDX), wide=False)
        code.constant("mov", Memory(RDI, BUSY), 0, wide=False)
        self._leave()
        self.data()
        return code.to_bytes()

    # ── calling convention ───────────────────────────────────────────────────────────────────────────────────────

    def _enter(self) -> None:
        """Save registers; the environment's address is in rdi afterwards, that of the operands in rdx."""
        code = self.code
        for register in SAVED:
            code.push(register)
        if self.windows:
            for register in WINDOWS_SAVED:
                code.push(register)
            code.constant("sub", RSP, 16 * len(_WINDOWS_VECTORS))
            for n, number in enumerate(_WINDOWS_VECTORS):
                code.vector("store", XMM[number], Memory(RSP, 16 * n))
            code.op("mov", RDI, RCX)
            code.op("mov", RDX, R8)

    def _leave(self) -> None:
        """Restore registers and return a null pointer: no trap."""
        code = self.code
        code.vzeroupper()
        if self.windows:
            for n, number in enumerate(_WINDOWS_VECTORS):
                code.vector("vmovups", XMM[number], Memory(RSP, 16 * n))
            code.constant("add", RSP, 16 * len(_WINDOWS_VECTORS))
            for register in reversed(WINDOWS_SAVED):
                code.pop(register)
        for register in reversed(SAVED):
            code.pop(register)
        code.constant("mov", RAX, 0, wide=False)
        code.ret()

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────

    def between(self, name: str, least: int, most: int) -> None:
        """Decline unless an operand is from `least` to `most`; rax = the operand."""
        code = self.code
        code.op("mov", RAX, self.slot[name], wide=False)
        code.op("lea", RCX, Memory(RAX, -least))
        code.constant("cmp", RCX, most - least)
        code.jump(self.declined, "a")

    def address(self, name: str) -> None:
        """Check an operand, of which rcx + rax is the size, and make its address the host's. Those that are not in
        `addresses` are in the first memory."""
        code = self.code
        code.op("add", RCX, RAX)
        code.op("mov", RAX, self.slot[name], wide=False)
        code.op("add", RCX, RAX)  # the end of the operand
        code.constant("mov", RSI, 0, wide=False)
        if name in self.addresses:
            code.op("mov", RSI, self.slot["memories"], wide=False)
            code.shift("shr", RSI, 8 * self.addresses.index(name), wide=False)
            code.constant("and", RSI, MEMORIES - 1, wide=False)
            code.shift("shl", RSI, 4)
        code.op("cmp", RCX, Memory(RDI, TABLE + 8, RSI))
        code.jump(self.declined, "a")
        code.op("add", RAX, Memory(RDI, TABLE, RSI))
        code.op("store", RAX, self.slot[name])
