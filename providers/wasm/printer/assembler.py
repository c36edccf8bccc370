"""A WebAssembly assembler: functions append their bytes to one buffer, a module joins them.

    module = Module(shared=False, max_pages=65536)
    f = module.function("scale", ["i32", "i32", "f32"])      # parameters are locals 0, 1, 2
    p, end, factor = f.params
    with f.until(p, end, 4):                                 # for (; p < end; p += 4)
        f.emit(p, p).mem("f32.load").emit(factor, "f32.mul").mem("f32.store")
    wasm = module.to_bytes()

`emit` takes locals (integers: `local.get`) and names of instructions without immediates; instructions with an
immediate have a method. Every method returns the function, so a line reads like the text format. Only names are
checked here: engines validate, and the tests do so for every instruction.

Emission is a dictionary look-up and an append per instruction, because in the browser this runs at half native speed.
Methods that take a `Value` (values.py) check its type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .opcodes import LANE, LANE_MEMORY, MEMORY, PLAIN, VALUE_TYPES, leb_s, leb_u
from .values import CONSTANT, I32, LOCALS, POINTERS, V128, Ptr, Value, unsigned

Fields = TypeVar("Fields", bound=tuple[Any, ...])
_VOID = b"\x40"
pack_f32 = struct.Struct("<f").pack
_pack_f64 = struct.Struct("<d").pack


class _Table(dict):  # type: ignore[type-arg]
    """Instruction names to bytes, and local indices to `local.get`."""

    def __missing__(self, key: int | str) -> bytes:
        if not isinstance(key, int):
            raise KeyError(f"no WebAssembly instruction {key!r} without immediates")
        return b"\x20" + leb_u(int(key))


_EMIT: dict[Any, bytes] = _Table(PLAIN)
_EMIT.update({LOCALS["i32"][n]: b"\x20" + leb_u(n) for n in range(256)})


@cache
def _are_pointers(kinds: type[tuple[Any, ...]]) -> tuple[bool, ...]:
    """Of the fields of a NamedTuple, whose types may be names (`from __future__ import annotations`)."""
    return tuple(getattr(kind, "__forward_arg__", kind) in (Ptr, "Ptr") for kind in kinds.__annotations__.values())


def typed(kinds: type[Fields], locals_: Sequence[Any]) -> Fields:
    """A NamedTuple of I32 and Ptr with these locals."""
    pairs = zip(_are_pointers(kinds), locals_, strict=True)
    return kinds(*[POINTERS[n] if is_pointer else n for is_pointer, n in pairs])


_u = unsigned


def _type(name: str) -> bytes:
    return bytes([VALUE_TYPES[name]])


class Function:
    """One function under construction.

    index: the operand of `call`; params: the parameters' locals; types: of all locals; code: the body so far, without
    its final `end`.
    A label is the nesting depth at which its block was opened; `br` turns it into a relative depth.
    """

    def __init__(self, module: Module, index: int, name: str, params: Sequence[str], results: Sequence[str]) -> None:
        self.module = module
        self.index = index
        self.name = name
        self.code = bytearray()
        self.depth = 0
        self.types = list(params)
        self.results = list(results)
        self.params: tuple[Any, ...] = tuple(
            [LOCALS[kind][n] if kind in LOCALS else n for n, kind in enumerate(params)]
        )
        self._free: dict[str, list[Any]] = {}

    # locals

    def local(self, kind: str) -> Any:
        """Return a local of this type: a released one, which has its last value, or a new one, which is zero."""
        free = self._free.get(kind)
        if free:
            return free.pop()
        number = len(self.types)
        self.types.append(kind)
        return LOCALS[kind][number] if kind in LOCALS else number

    def locals(self, kind: str, count: int) -> list[Any]:
        return [self.local(kind) for _ in range(count)]

    def integers(self, count: int) -> list[I32]:
        return self.locals("i32", count)

    def vectors(self, count: int) -> list[V128]:
        return self.locals("v128", count)

    def pointers(self, count: int) -> list[Ptr]:
        return [POINTERS[local] for local in self.locals("i32", count)]

    def fields(self, kinds: type[Fields]) -> Fields:
        """Locals for a NamedTuple of I32 and Ptr."""
        return typed(kinds, self.locals("i32", len(kinds._fields)))  # type: ignore[attr-defined]

    def release(self, *locals_: Any) -> None:
        for i in locals_:
            self._free.setdefault(self.types[i], []).append(LOCALS["i32"][i] if isinstance(i, Ptr) else i)

    @contextmanager
    def scratch(self, kinds: str, count: int = 1) -> Iterator[list[Any]]:
        """A context that yields `count` locals of each of these types, of which "ptr" is one, and releases them at its
        end."""
        taken: list[Any] = []
        for kind in kinds.split():
            taken += self.pointers(count) if kind == "ptr" else self.locals(kind, count)
        yield taken
        self.release(*taken)

    # instructions

    def emit(self, *items: Value | int | str) -> Function:
        """Append `local.get` for each integer, and the instruction for each name without immediates ("f32x4.add")."""
        code = self.code
        for item in items:
            code += _EMIT[item]
        return self

    def push(self, *values: Value) -> Function:
        """Evaluate values and leave them on the stack."""
        for value in values:
            self.code += value.code
        return self

    def raw(self, body: bytes) -> Function:
        """Append bytes, such as a repeated fragment. Their branches must not leave them."""
        self.code += body
        return self

    def set(self, local: Any, value: Value | int | None = None) -> Function:
        """Assign the value, or without one what is on top of the stack."""
        if value is None:
            self.code += b"\x21" + _u(local)
        else:
            self.code += value.code if value.__class__ in local.takes else local.value(value)  # type: ignore[union-attr]
            self.code += local.assign
        return self

    def tee(self, local: Any) -> Function:
        self.code += b"\x22" + _u(local)
        return self

    def i32(self, value: int) -> Function:
        """Push a constant; 2**31..2**32-1 become negative."""
        self.code += b"\x41" + leb_s(value - (1 << 32) if value >= 1 << 31 else value)
        return self

    def i64(self, value: int) -> Function:
        self.code += b"\x42" + leb_s(value - (1 << 64) if value >= 1 << 63 else value)
        return self

    def f32(self, value: float) -> Function:
        self.code += b"\x43" + pack_f32(value)
        return self

    def f64(self, value: float) -> Function:
        self.code += b"\x44" + _pack_f64(value)
        return self

    def v128(self, value: bytes) -> Function:
        """Push a constant of 16 bytes, little-endian lanes."""
        if len(value) != 16:
            raise ValueError(f"a v128 constant has 16 bytes, not {len(value)}")
        self.code += b"\xfd\x0c" + value
        return self

    def f32x4(self, value: float) -> Function:
        """Push four equal lanes."""
        return self.v128(pack_f32(value) * 4)

    def i32x4(self, value: int) -> Function:
        return self.v128(struct.pack("<I", value & 0xFFFFFFFF) * 4)

    def mem(self, name: str, offset: int = 0) -> Function:
        """Append a load, store or atomic at address + offset bytes with its natural alignment (which only atomics
        require)."""
        self.code += MEMORY[name]
        self.code += _u(offset)
        return self

    def lane(self, name: str, index: int) -> Function:
        """`extract_lane` or `replace_lane`."""
        self.code += LANE[name]
        self.code.append(index)
        return self

    def mem_lane(self, name: str, index: int, offset: int = 0) -> Function:
        """`v128.loadN_lane` (address, vector -> vector) or `v128.storeN_lane` (address, vector ->)."""
        self.code += LANE_MEMORY[name] + _u(offset)
        self.code.append(index)
        return self

    def shuffle(self, lanes: Iterable[int]) -> Function:
        """`i8x16.shuffle`: 16 byte lanes, 0..15 of the first operand and 16..31 of the second."""
        self.code += b"\xfd\x0d" + bytes(lanes)
        return self

    def shuffle32(self, a: int, b: int, c: int, d: int) -> Function:
        """A shuffle of 32-bit lanes 0..7."""
        return self.shuffle(4 * lane + byte for lane in (a, b, c, d) for byte in range(4))

    def add(self, local: Any, amount: I32 | int) -> Function:
        """local += amount, of type i32."""
        get = _EMIT[local]
        self.code += get + (amount.code if isinstance(amount, I32) else CONSTANT[amount]) + b"\x6a\x21" + get[1:]
        return self

    def store(self, address: Ptr, value: Value, at: int = 0, name: str = "v128.store") -> Function:
        """Store a value at an address + `at` bytes."""
        if not isinstance(address, Ptr) or value.kind != name.partition(".")[0]:
            raise TypeError(f"{name} takes an address and a value of its type")
        self.code += address.code + value.code + MEMORY[name] + _u(at)
        return self

    def store_lane(self, name: str, address: Ptr, value: V128, lane: int, at: int = 0) -> Function:
        self.code += address.code + value.code
        return self.mem_lane(name, lane, at)

    def drop(self, value: Value) -> Function:
        """Evaluate the value, for a load that only fills a cache."""
        self.code += value.code + b"\x1a"
        return self

    def call(self, function: Function | Callable[[Module], Function], *arguments: Value) -> Function:
        """Call a function, or a helper of the module, with what is on the stack and these arguments."""
        target = function if isinstance(function, Function) else function(self.module)
        if arguments and [x.kind for x in arguments] != (kinds := target.types[: len(target.params)]):
            raise TypeError(f"{target.name} takes {kinds}")
        self.code += b"".join([x.code for x in arguments]) + b"\x10" + _u(target.index)
        return self

    def call_indirect(self, *params: str) -> Function:
        """Call the function whose index is on top of the stack, with these parameters and no result."""
        self.code += b"\x11" + _u(self.module.type_index(params)) + b"\0"
        self.module.indirect = True
        return self

    # structure

    def _open(self, opcode: bytes, result: str | None) -> int:
        self.code += opcode + (_type(result) if result else _VOID)
        self.depth += 1
        return self.depth

    def _close(self) -> None:
        self.depth -= 1
        self.code += b"\x0b"

    @contextmanager
    def block(self, result: str | None = None) -> Iterator[int]:
        """Open a block; a branch to its label leaves it."""
        yield self._open(b"\x02", result)
        self._close()

    @contextmanager
    def loop(self, result: str | None = None) -> Iterator[int]:
        """Open a loop; a branch to its label starts the next iteration, and the end of the body leaves it."""
        yield self._open(b"\x03", result)
        self._close()

    @contextmanager
    def if_(self, condition: I32 | None = None, *, result: str | None = None) -> Iterator[int]:
        """Without a condition, pops it; `otherwise()` inside starts the else branch."""
        if condition is not None:
            self.code += condition.code
        yield self._open(b"\x04", result)
        self._close()

    def otherwise(self) -> Function:
        self.code += b"\x05"
        return self

    def br(self, label: int) -> Function:
        self.code += b"\x0c" + _u(self.depth - label)
        return self

    def br_if(self, label: int, condition: I32 | None = None) -> Function:
        """Without a condition, pops it."""
        if condition is not None:
            self.code += condition.code
        self.code += b"\x0d" + _u(self.depth - label)
        return self

    @contextmanager
    def until(self, counter: Any, end: Any, step: int = 1) -> Iterator[int]:
        """`for (; counter < end; counter += step)` on i32 locals, signed, with the test at the bottom. The label
        yielded leaves the loop."""
        with self.block() as out:
            self.emit(counter, end, "i32.ge_s").br_if(out)
            with self.loop() as again:
                yield out
                self.emit(counter).i32(step).emit("i32.add").tee(counter).emit(end, "i32.lt_s").br_if(again)

    @contextmanager
    def countdown(self, counter: Any, step: int) -> Iterator[int]:
        """`for (; counter >= step; counter -= step)` on an i32 local, signed. The label yielded leaves the loop."""
        with self.block() as out, self.loop() as again:
            self.emit(counter).i32(step).emit("i32.lt_s").br_if(out)
            yield out
            self.add(counter, -step).br(again)

    def body(self) -> bytes:
        """Size, local declarations, code and `end`, for the code section."""
        groups: list[list[int]] = []
        for kind in self.types[len(self.params) :]:
            code = VALUE_TYPES[kind]
            if groups and groups[-1][1] == code:
                groups[-1][0] += 1
            else:
                groups.append([1, code])
        head = _u(len(groups)) + b"".join(_u(n) + bytes([code]) for n, code in groups)
        return leb_u(len(head) + len(self.code) + 1) + head + self.code + b"\x0b"

    def type_index(self) -> int:
        return self.module.type_index(self.types[: len(self.params)], self.results)


Arguments = ParamSpec("Arguments")
Write = Callable[Concatenate["Module", Arguments], Function]


def once(write: Write[Arguments]) -> Write[Arguments]:
    """Memoises a function that writes a helper: a module has one helper for equal arguments, which are hashable."""

    @wraps(write)
    def memoised(module: Module, /, *args: Arguments.args, **named: Arguments.kwargs) -> Function:
        key = (write, args, *named.items())
        made = module.memo.get(key)
        if made is None:
            made = module.memo[key] = write(module, *args, **named)
        return made

    return memoised


def helper(
    name: str, *params: str, results: Sequence[str] = (), export: bool = False
) -> Callable[[Callable[..., object]], Callable[..., Function]]:
    """Makes a helper function of modules, one for each and for each value of its options. Its code gets the function,
    the locals of its parameters, whose types are its annotations (V128, Ptr, others: i32) unless `params` has them, and
    the options, which are keyword-only; the name may contain these in braces."""

    def made_by(write: Callable[..., object]) -> Callable[..., Function]:
        kinds = [write.__annotations__[n] for n in write.__code__.co_varnames[1 : write.__code__.co_argcount]]
        types = params or ["v128" if kind == "V128" else "i32" for kind in kinds]

        @once
        def made(module: Module, /, **options: Any) -> Function:
            f = module.function(name.format(**options), types, results, export=export)
            pairs = zip(f.params, kinds, strict=True)
            write(f, *[POINTERS[local] if kind == "Ptr" else local for local, kind in pairs], **options)
            return f

        return made

    return made_by


def _signature(params: Sequence[str], results: Sequence[str]) -> bytes:
    kinds = [bytes(VALUE_TYPES[t] for t in types) for types in (params, results)]
    return b"\x60" + b"".join(_u(len(types)) + types for types in kinds)


def _section(number: int, content: bytes) -> bytes:
    return bytes([number]) + leb_u(len(content)) + content


def _name(text: str) -> bytes:
    data = text.encode()
    return leb_u(len(data)) + data


class Module:
    """Functions over an imported memory, `env.memory`, and further ones, `env.memory1` and so on.

    imports: functions of the host, by name (see `imported`)

    shared: the memory is shared between threads (needs `max_pages`, and an importer whose memory has at most that)
    max_pages: limit in pages of 64 KiB, of each memory
    memories: their number
    cranelift: for a compiler that computes a value where it is used first
    (docs/design/cpu-kernels.md#code-for-cranelift)
    memo: helper functions that routines share (see `once`)
    """

    def __init__(self, shared: bool = False, max_pages: int = 65536, cranelift: bool = False) -> None:
        self.shared = shared
        self.cranelift = cranelift
        self.functions: list[Function] = []
        self.imports: dict[str, Function] = {}
        self.exported: dict[str, Function] = {}
        self.memo: dict[object, Function] = {}
        self.indirect = False  # whether there are indirect calls
        self.memories = 1
        self._types: dict[bytes, int] = {}
        self._memory = bytes([3 if shared else 1]) + b"\1" + leb_u(max_pages)

    def imported(self, name: str, params: Sequence[str], results: Sequence[str] = ()) -> Function:
        """Return a function that the host provides, `env.NAME`. Imports come before all other functions."""
        made = self.imports[name] = self.function(name, params, results, export=False)
        assert len(self.functions) == len(self.imports)
        return made

    def function(
        self, name: str, params: Sequence[str] = (), results: Sequence[str] = (), *, export: bool = True
    ) -> Function:
        """Return a new function, exported under its name by default. Others may call it before its body is written."""
        made = Function(self, len(self.functions), name, params, results)
        self.functions.append(made)
        if export:
            self.exported[name] = made
        return made

    def internal(self, name: str, params: Sequence[str]) -> tuple[Function, dict[str, Any]]:
        """A new function that is not exported, and its parameters, all i32, by name."""
        f = self.function(name, ["i32"] * len(params), export=False)
        return f, dict(zip(params, f.params, strict=True))

    def inner(self, name: str, params: type[Fields]) -> tuple[Function, Fields]:
        """A new function that is not exported, and its parameters. params: a NamedTuple of I32 and Ptr"""
        f = self.function(name, ["i32"] * len(params._fields), export=False)  # type: ignore[attr-defined]
        return f, typed(params, f.params)

    def type_index(self, params: Sequence[str], results: Sequence[str] = ()) -> int:
        return self._types.setdefault(_signature(params, results), len(self._types))

    def _imports(self) -> bytes:
        names = ["memory", *[f"memory{n}" for n in range(1, self.memories)]]
        each = [_name("env") + _name(name) + b"\2" + self._memory for name in names]
        each += [_name("env") + _name(f.name) + b"\0" + _u(f.type_index()) for f in self.imports.values()]
        return leb_u(len(each)) + b"".join(each)

    def to_bytes(self, names: bool = False) -> bytes:
        """The binary module; `names` adds function names for debuggers and profilers."""
        count, own = leb_u(len(self.functions)), self.functions[len(self.imports) :]
        imports, indices = self._imports(), [f.type_index() for f in own]
        exports = [_name(name) + b"\0" + leb_u(f.index) for name, f in self.exported.items()]
        parts = [
            b"\0asm\1\0\0\0",
            _section(1, leb_u(len(self._types)) + b"".join(self._types)),
            _section(2, imports),
            _section(3, leb_u(len(own)) + b"".join(map(_u, indices))),
            _section(4, b"\1\x70\0" + count) if self.indirect else b"",
            _section(7, leb_u(len(exports)) + b"".join(exports)),
            _section(9, b"\1\0\x41\0\x0b" + count + b"".join(map(leb_u, range(len(self.functions)))))
            if self.indirect
            else b"",
            _section(10, leb_u(len(own)) + b"".join([f.body() for f in own])),
        ]
        if names:
            table = count + b"".join(leb_u(f.index) + _name(f.name) for f in self.functions)
            parts.append(_section(0, _name("name") + b"\1" + leb_u(len(table)) + table))
        return b"".join(parts)
