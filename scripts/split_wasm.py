"""Splits a WebAssembly module in two: the functions that a profile names, and the rest, which is fetched when one of
its functions is first called.

Both halves keep the index spaces of the original, so no instruction is read or changed. A function whose body lies in
the other half is a stub that calls through a table which the halves share:

    function       primary                                  secondary
    7, used        its body                                 call_indirect slot of 7
    8, not used    call_indirect 0, call_indirect slot of 8 its body

Slot 0 first holds a function that loads the secondary (which fills the slots of its functions), then an empty function.
Binary format: https://webassembly.github.io/spec/core/binary/modules.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyruntime.providers.wasm.printer.opcodes import leb_s, leb_u
from scripts.warm_wasm import HOTTEST, LATER, SMALLEST, around, warm_up
from scripts.wasm_data import Segments, parted, tables

TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, ELEMENT, CODE, TAG = 1, 2, 3, 4, 5, 6, 7, 9, 10, 13
DATA_COUNT, DATA = 12, 11
ORDER = (TYPE, IMPORT, FUNCTION, TABLE, MEMORY, TAG, GLOBAL, EXPORT, ELEMENT, DATA_COUNT, CODE, DATA)
KINDS = A_FUNCTION, A_TABLE, A_MEMORY, A_GLOBAL, A_TAG = range(5)
FUNCREF = 0x70
PREFIX = "split "  # prefix of the primary's exports that are for the secondary
WARM_UP = f"{PREFIX}warm up"  # the export that calls the primary's hot functions
WARM_LATER = f"{PREFIX}later"  # the same for functions that are less hot
NOTHING = b"\x60\x00\x00"  # the type of functions without parameters and results


class Reader:
    """A place in binary data."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def since(self, start: int) -> bytes:
        return self.data[start : self.at]

    def limits(self) -> None:
        if self.take(1)[0] & 1:
            self.number()
        self.number()

    def signed(self) -> int:
        start, value = self.at, self.number()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def constant(self) -> None:
        """A constant expression of one instruction: a number, a null or a global."""
        opcode = self.take(1)
        if opcode not in (b"\x41", b"\x23", b"\xd0"):
            raise ValueError(f"a constant expression begins with {opcode.hex()}")
        self.number()
        self.take(1)


def _vector(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return leb_u(len(found)) + b"".join(found)


def _sized(data: bytes) -> bytes:
    return leb_u(len(data)) + data


def _entry(module: str | None, name: str, kind: int, rest: bytes) -> bytes:
    """An import (of a module) or an export (of none)."""
    words = [name] if module is None else [module, name]
    return b"".join(_sized(word.encode()) for word in words) + bytes([kind]) + rest


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Module:
    sections: dict[int, bytes]

    @classmethod
    def read(cls, data: bytes) -> Module:
        if data[:8] != b"\0asm\1\0\0\0":
            raise ValueError("not a WebAssembly module of version 1")
        reader, sections = Reader(data, 8), {}
        while reader.at < len(data):
            (number,) = reader.take(1)
            sections.setdefault(number, reader.take(reader.number()))
        unknown = set(sections) - set(ORDER) - {0}
        if unknown:
            raise ValueError(f"sections that this script cannot split: {unknown}")
        return cls(sections)

    def items(self, number: int, skip: Callable[[Reader], object]) -> list[bytes]:
        """The entries of a section; `skip` moves a reader over one."""
        reader = Reader(self.sections.get(number, b"\0"))
        found = []
        for _ in range(reader.number()):
            start = reader.at
            skip(reader)
            found.append(reader.since(start))
        return found


def _skip_type(r: Reader) -> None:
    if r.take(1) != NOTHING[:1]:
        raise ValueError("a type that is not a function type")
    for _ in range(2):
        r.take(r.number())


def _skip_table(r: Reader) -> None:
    r.take(1)
    r.limits()


def _skip_global(r: Reader) -> None:
    r.take(2)
    r.constant()


def _skip_import(r: Reader) -> None:
    for _ in range(2):
        r.take(r.number())
    kind = r.take(1)[0]
    if kind == A_FUNCTION:
        r.number()
    elif kind == A_MEMORY:
        r.limits()
    elif kind == A_TABLE:
        _skip_table(r)
    elif kind == A_TAG:
        _skip_tag(r)
    else:
        r.take(2)


def _skip_tag(r: Reader) -> None:
    r.take(1)
    r.number()


def _skip_export(r: Reader) -> None:
    r.take(r.number() + 1)
    r.number()


def _skip_data(r: Reader) -> None:
    if r.number():
        raise ValueError("a data segment that is not active")
    r.constant()
    r.take(r.number())


def _segment(entry: bytes) -> tuple[int, bytes]:
    """Return its address and bytes."""
    r = Reader(entry, 1)
    if r.take(1) != b"\x41":
        raise ValueError("a data segment whose address is not a constant")
    start = r.signed()
    r.take(1)
    return start, r.take(r.number())


def _data(segments: Segments) -> bytes:
    return _vector(b"\0\x41" + leb_s(start) + b"\x0b" + _sized(data) for start, data in segments)


def _kind(entry: bytes, names: int) -> int:
    r = Reader(entry)
    for _ in range(names):
        r.take(r.number())
    return r.take(1)[0]


def _export_name(entry: bytes) -> str:
    r = Reader(entry)
    return r.take(r.number()).decode()


# ── splitting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Splitter:
    """A parsed module. Functions are numbered among those with a body."""

    def __init__(self, data: bytes) -> None:
        self.module = module = Module.read(data)
        self.digest = hashlib.sha256(data).digest()
        self.types = module.items(TYPE, _skip_type)
        self.imports = module.items(IMPORT, _skip_import)
        self.functions = [Reader(item).number() for item in module.items(FUNCTION, Reader.number)]
        self.tables = module.items(TABLE, _skip_table)
        self.memories = module.items(MEMORY, Reader.limits)
        self.tags = module.items(TAG, _skip_tag)
        self.globals = module.items(GLOBAL, _skip_global)
        self.exports = module.items(EXPORT, _skip_export)
        self.data = [_segment(item) for item in module.items(DATA, _skip_data)]
        self.bodies = module.items(CODE, lambda r: r.take(r.number()))
        self.first = {kind: sum(_kind(entry, 2) == kind for entry in self.imports) for kind in KINDS}

    def split(
        self, used: Collection[int], exports: Callable[[str], bool], moved: Sequence[range] = (),
        hot: Mapping[str, Sequence[int]] | None = None,
    ) -> tuple[bytes, bytes]:  # fmt: skip
        """Return the primary, which has the exports that `exports` accepts and those of `hot`, which warm up functions
        in this order, and the secondary, with the data at the addresses `moved`."""
        used = set(used) & set(self._all())  # a profile of another version may have more functions
        slots = {f: 1 + n for n, f in enumerate([*sorted(used), *(f for f in self._all() if f not in used)])}
        table = bytes([FUNCREF, 1]) + leb_u(len(slots) + 1) * 2
        # also of the profile, which determines the slots of functions, and of the moved data
        how = f"{ranges(used)} {moved}"
        self.stamp = hashlib.sha256(self.digest + how.encode()).hexdigest()[:16]
        here, there = parted(self.data, moved)
        warm = {name: [f for f in functions if f in used] for name, functions in (hot or {}).items()}
        primary = self._primary(used, slots, table, exports, here, warm)
        return primary, self._secondary(used, slots, table, there)

    def _all(self) -> range:
        return range(len(self.functions))

    def _stub(self, f: int, slot: int, loads: bool) -> bytes:
        kind = self.functions[f]
        table = leb_u(self.first[A_TABLE] + len(self.tables))
        code = b"\x41\0\x11" + leb_u(self.types.index(NOTHING)) + table if loads else b""
        r = Reader(self.types[kind], 1)
        code += b"".join(b"\x20" + leb_u(n) for n in range(r.number()))
        return _sized(b"\0" + code + b"\x41" + leb_s(slot) + b"\x11" + leb_u(kind) + table + b"\x0b")

    def _code(self, own: Collection[int], slots: dict[int, int], loads: bool) -> list[bytes]:
        return [self.bodies[f] if f in own else self._stub(f, slots[f], loads) for f in self._all()]

    def _signature(self, f: int) -> tuple[bytes, bytes]:
        """Return the types of its parameters and results."""
        r = Reader(self.types[self.functions[f]], 1)
        return r.take(r.number()), r.take(r.number())

    def _filled(self, own: Collection[int], slots: dict[int, int]) -> bytes:
        """Return the segment that puts a half's functions into the shared table."""
        mine = sorted(own, key=slots.__getitem__)
        start = b"\x41" + leb_s(slots[mine[0]]) + b"\x0b"
        table = leb_u(self.first[A_TABLE] + len(self.tables))
        return b"\2" + table + start + b"\0" + _vector(leb_u(self.first[A_FUNCTION] + f) for f in mine)

    def _shared(self, table: bytes) -> list[tuple[str, int, int, bytes]]:
        """Return the definitions of the primary that the secondary imports: name, kind, index in the primary, type."""
        mutable = [entry[:2] for entry in self.globals if entry[1]]
        if any(entry[1] for entry in self.globals[len(mutable) :]):
            raise ValueError("mutable globals follow immutable ones")
        own = {A_TABLE: [*self.tables, table], A_MEMORY: self.memories, A_TAG: self.tags, A_GLOBAL: mutable}
        return [
            (f"{PREFIX}{self.stamp} {kind}.{n}", kind, self.first[kind] + n, entry)
            for kind, entries in own.items() for n, entry in enumerate(entries)
        ]  # fmt: skip

    def _primary(
        self, used: set[int], slots: dict[int, int], table: bytes, exports: Callable[[str], bool], data: Segments,
        hot: Mapping[str, Sequence[int]],
    ) -> bytes:  # fmt: skip
        shared = [_entry(None, name, kind, leb_u(index)) for name, kind, index, _ in self._shared(table)]
        elements = Reader(self.module.sections.get(ELEMENT, b"\0"))
        count = leb_u(elements.number() + 1)
        flag, first = self.first[A_GLOBAL] + len(self.globals), self.first[A_FUNCTION]
        code = self._code(used, slots, loads=True)
        own = [*(e for e in self.exports if exports(_export_name(e))), *shared]
        for name, functions in hot.items():
            own.append(_entry(None, name, A_FUNCTION, leb_u(first + len(code))))
            called = [(first + f, *self._signature(f), len(self.bodies[f])) for f in functions]
            code.append(_sized(warm_up(called, flag)))
        for f in chain(*hot.values()):
            code[f] = _within(self.bodies[f], *around(self._signature(f)[1], flag))
        kinds = [*self.functions, *[self.types.index(NOTHING)] * len(hot)]
        return self._module({
            FUNCTION: _vector(map(leb_u, kinds)),
            TABLE: _vector([*self.tables, table]),
            GLOBAL: _vector([*self.globals, b"\x7f\1\x41\0\x0b"]),
            EXPORT: _vector(own),
            ELEMENT: count + elements.data[elements.at :] + self._filled(used, slots),
            CODE: _vector(code),
            DATA_COUNT: b"", DATA: _data(data),
        })  # fmt: skip

    def _secondary(self, used: set[int], slots: dict[int, int], table: bytes, data: Segments) -> bytes:
        shared = [_entry("split", name, kind, entry) for name, kind, _, entry in self._shared(table)]
        rest = set(self._all()) - used
        return self._module({
            IMPORT: _vector([*self.imports, *shared]),
            TABLE: b"", MEMORY: b"", TAG: b"", EXPORT: b"", DATA_COUNT: b"", DATA: _data(data),
            GLOBAL: _vector(entry for entry in self.globals if not entry[1]),
            ELEMENT: _vector([self._filled(rest, slots)]),
            CODE: _vector(self._code(rest, slots, loads=False)),
        })  # fmt: skip

    def _module(self, changed: dict[int, bytes]) -> bytes:
        sections = {number: changed.get(number, self.module.sections.get(number, b"")) for number in ORDER}
        # the first custom section marks a dynamically linked module, and must precede all others
        first = {0: self.module.sections[0]} if 0 in self.module.sections and changed.get(IMPORT) is None else {}
        return b"\0asm\1\0\0\0" + b"".join(bytes([n]) + _sized(data) for n, data in (first | sections).items() if data)

    def instrumented(self) -> bytes:
        """The module with a global for each function, exported as `called N`, which counts its calls."""
        start = self.first[A_GLOBAL] + len(self.globals)
        counts = [b"\x7f\1\x41\0\x0b"] * len(self.functions)
        names = [_entry(None, f"called {f}", A_GLOBAL, leb_u(start + f)) for f in self._all()]
        return self._module({
            GLOBAL: _vector([*self.globals, *counts]),
            EXPORT: _vector([*self.exports, *names]),
            CODE: _vector(_within(body, _increment(start + f)) for f, body in enumerate(self.bodies)),
        })  # fmt: skip

    def hottest(self, calls: Mapping[int, int]) -> list[int]:
        """Return the functions with the most calls times size, the hottest first."""
        weights = {f: n * len(self.bodies[f]) for f, n in calls.items() if len(self.bodies[f]) >= SMALLEST}
        return sorted(weights, key=lambda f: (-weights[f], f))[: HOTTEST + LATER]


def _increment(place: int) -> bytes:
    """Code that adds 1 to a global."""
    return b"\x23" + leb_u(place) + b"\x41\1\x6a\x24" + leb_u(place)


def _within(body: bytes, before: bytes, after: bytes = b"") -> bytes:
    """Return a function's body with code before its first instruction and after its last."""
    r = Reader(body)
    r.number()
    start = r.at
    for _ in range(r.number()):
        r.number()
        r.take(1)
    return _sized(r.since(start) + before + body[r.at :] + after)


def halves(buffer: Any, used: str, hot: str, later: str, exports: Callable[[str], bool]) -> tuple[bytes, bytes]:
    """Called by the build in Pyodide: `buffer` is JavaScript's, `used` and `hot` are a profile, `later` lists data for
    the second half."""
    data = buffer.to_bytes()
    moved = tables(later, data, numbers(used))
    hottest = [int(f) for f in hot.split()]
    warm = {WARM_UP: hottest[:HOTTEST], WARM_LATER: hottest[HOTTEST:]}
    return Splitter(data).split(numbers(used), exports, moved, warm)


# ── profiles: numbers of functions as text, "7 9-12" ──────────────────────────────────────────────────────────────────


def ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def numbers(text: str) -> set[int]:
    found: set[int] = set()
    for run in text.split():
        first, _, last = run.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
