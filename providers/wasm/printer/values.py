"""Typed values of a function: its locals, and expressions of them.

    f.set(p, start + (count << 2))                 # start: a Ptr, so is the sum
    f.set(total, f32x4.add(total, p.load(16)))     # only addresses load and store

An expression has the code that pushes it. Only methods of `Function` append code, and operands precede their
instruction, so code has the order in which it is written. An operand of another type is a TypeError where the
expression is written, and an error for mypy.

A local is also its number, so that schedules may mix these methods with `Function.emit`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, overload

from .opcodes import LANE, LANE_MEMORY, MEMORY, OPERANDS, PLAIN, leb_s, leb_u

LEB = [leb_u(i) for i in range(4096)]


def unsigned(n: int) -> bytes:
    return LEB[n] if n < 4096 else leb_u(int(n))  # operators of a local are instructions


class _Constants(dict[int, bytes]):
    """Numbers to `i32.const`; 2**31..2**32-1 become negative."""

    def __missing__(self, value: int) -> bytes:
        code = self[value] = b"\x41" + leb_s(value - (1 << 32) if value >= 1 << 31 else value)
        return code


CONSTANT = _Constants()


class Value:
    """code: pushes the value; kind: its type in WebAssembly"""

    __slots__ = ()
    kind: ClassVar[str]
    code: bytes

    if TYPE_CHECKING:

        def tee(self, value: Self | int) -> Self:
            """For a local: assign the value, which is also the expression's."""


def wrong(what: str, value: object) -> NoReturn:
    raise TypeError(f"{what} does not take {getattr(value, 'kind', type(value).__name__)}")


def _code(value: Value, kind: type[Value]) -> bytes:
    """The code of a value, which has to have this type."""
    return value.code if isinstance(value, kind) else wrong("an instruction", value)


def _binary(name: str) -> Callable[[I32, I32 | int], I32]:
    instruction = PLAIN["i32." + name]

    def method(self: I32, other: I32 | int) -> I32:
        if other.__class__ is int:
            return _I32(self.code + CONSTANT[other] + instruction)
        if isinstance(other, I32):
            return _I32(self.code + other.code + instruction)
        return wrong("i32." + name, other)

    return method


class I32(Value):
    """An integer of 32 bits. `//` and `%` are unsigned; comparisons say whether they are."""

    __slots__ = ()
    kind = "i32"

    @overload
    def __add__(self, other: Ptr) -> Ptr: ...
    @overload
    def __add__(self, other: I32 | int) -> I32: ...
    def __add__(self, other: I32 | int) -> I32:
        if other.__class__ is int:
            return _I32(self.code + CONSTANT[other] + b"\x6a")
        if isinstance(other, Ptr):
            return _Ptr(self.code + other.code + b"\x6a")
        if isinstance(other, I32):
            return _I32(self.code + other.code + b"\x6a")
        return wrong("i32.add", other)

    __sub__ = _binary("sub")
    __mul__ = _binary("mul")
    __floordiv__ = _binary("div_u")
    __mod__ = _binary("rem_u")
    __lshift__ = _binary("shl")
    __rshift__ = _binary("shr_u")
    __and__ = _binary("and")
    __or__ = _binary("or")
    div_s = _binary("div_s")
    eq = _binary("eq")
    ne = _binary("ne")
    lt_s = _binary("lt_s")
    lt_u = _binary("lt_u")
    gt_s = _binary("gt_s")
    gt_u = _binary("gt_u")
    le_s = _binary("le_s")
    le_u = _binary("le_u")
    ge_s = _binary("ge_s")
    ge_u = _binary("ge_u")

    def __rsub__(self, other: int) -> I32:
        return _I32(CONSTANT[other] + self.code + PLAIN["i32.sub"])

    def eqz(self) -> I32:
        return _I32(self.code + b"\x45")


class Ptr(I32):
    """An address. Offsets are in bytes."""

    __slots__ = ()

    def __add__(self, other: I32 | int) -> Ptr:
        if other.__class__ is int:
            return _Ptr(self.code + CONSTANT[other] + b"\x6a")
        if isinstance(other, I32):
            return _Ptr(self.code + other.code + b"\x6a")
        return wrong("i32.add", other)

    def load(self, at: int = 0, name: str = "v128.load") -> V128:
        return _V128(self.code + MEMORY[name] + unsigned(at))

    def load_lane(self, name: str, value: V128, lane: int) -> V128:
        """The value with a lane from memory."""
        return _V128(self.code + _code(value, V128) + LANE_MEMORY[name] + bytes([0, lane]))

    def splat(self, at: int = 0) -> V128:
        """Four copies of a word."""
        return _V128(self.code + MEMORY["v128.load32_splat"] + unsigned(at))

    def i32(self, at: int = 0, name: str = "i32.load") -> I32:
        return _I32(self.code + MEMORY[name] + unsigned(at))

    def pointer(self, at: int = 0) -> Ptr:
        """An address that memory contains."""
        return _Ptr(self.code + MEMORY["i32.load"] + unsigned(at))


class V128(Value):
    __slots__ = ()
    kind = "v128"

    def __and__(self, other: V128) -> V128:
        return bits.and_(self, other)

    def __or__(self, other: V128) -> V128:
        return bits.or_(self, other)

    def any(self) -> I32:
        """Whether a bit is set."""
        return _I32(self.code + PLAIN["v128.any_true"])


class _I32(I32):
    __slots__ = ("code",)

    def __init__(self, code: bytes) -> None:
        self.code = code


class _Ptr(Ptr):
    __slots__ = ("code",)

    def __init__(self, code: bytes) -> None:
        self.code = code


class _V128(V128):
    __slots__ = ("code",)

    def __init__(self, code: bytes) -> None:
        self.code = code


# ── locals ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Local(int):
    """A local's number. takes: classes of the values that it may have; assign: its `local.set`"""

    takes: ClassVar[frozenset[type]]
    expression: ClassVar[type]

    def __init__(self, number: int) -> None:
        index = unsigned(number)
        self.code = b"\x20" + index
        self.assign = b"\x21" + index
        self._tee = b"\x22" + index

    def value(self, value: Any) -> Any:
        """The code that pushes a value for this local."""
        code: bytes = getattr(value, "code", b"")
        if value.__class__ in self.takes:
            return code
        if value.__class__ is int and isinstance(self, I32):
            return CONSTANT[value]
        return wrong(type(self).__name__, value)

    def tee(self, value: Any) -> Any:
        return self.expression(self.value(value) + self._tee)


class _I32Local(I32, Local):  # type: ignore[misc]
    expression = _I32


class _PtrLocal(Ptr, Local):  # type: ignore[misc]
    expression = _Ptr


class _V128Local(V128, Local):  # type: ignore[misc]
    expression = _V128


_I32Local.takes = frozenset((_I32, _Ptr, _I32Local, _PtrLocal))
_PtrLocal.takes = frozenset((_Ptr, _PtrLocal))
_V128Local.takes = frozenset((_V128, _V128Local))


class _Locals(dict[int, Any]):
    """Locals of a type, by number."""

    def __init__(self, made: type[Local]) -> None:
        self.made = made

    def __missing__(self, number: int) -> Any:
        local = self[number] = self.made(number)
        return local


POINTERS = _Locals(_PtrLocal)
LOCALS: dict[str, Any] = {"i32": _Locals(_I32Local), "v128": _Locals(_V128Local)}


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


_VECTORS = _V128Local.takes


def _on_vectors(name: str, count: int) -> Callable[..., V128]:
    """The instruction of `count` vectors, as a function."""
    instruction = PLAIN[name]

    def one(x: V128) -> V128:
        return _V128(x.code + instruction) if x.__class__ in _VECTORS else wrong(name, x)

    def two(x: V128, y: V128) -> V128:
        if x.__class__ in _VECTORS and y.__class__ in _VECTORS:
            return _V128(x.code + y.code + instruction)
        return wrong(name, y if x.__class__ in _VECTORS else x)

    def three(x: V128, y: V128, z: V128) -> V128:
        if x.__class__ in _VECTORS and y.__class__ in _VECTORS and z.__class__ in _VECTORS:
            return _V128(x.code + y.code + z.code + instruction)
        return wrong(name, (x, y, z))

    return (one, two, three)[count - 1]


class Lanes:
    """Instructions on lanes of one shape: `f32x4.add(x, y)`."""

    def __init__(self, shape: str, form: str, count: int) -> None:
        self._shape, self._pack, self._count = shape, struct.Struct(form).pack, count

    def of(self, value: float) -> V128:
        """A constant of equal lanes."""
        return _V128(b"\xfd\x0c" + self._pack(value) * self._count)

    def __getattr__(self, name: str) -> Callable[..., V128]:
        full = f"{self._shape}.{name.rstrip('_')}"
        if full not in PLAIN:
            raise AttributeError(f"no WebAssembly instruction {full!r} without immediates")
        made = self.__dict__[name] = _on_vectors(full, OPERANDS[full])
        return made


class IntegerLanes(Lanes):
    def splat(self, value: I32) -> V128:
        return _V128(_code(value, I32) + PLAIN[self._shape + ".splat"])

    def shl(self, value: V128, count: int) -> V128:
        return _V128(_code(value, V128) + CONSTANT[count] + PLAIN[self._shape + ".shl"])

    def extract(self, value: V128, lane: int) -> I32:
        return _I32(_code(value, V128) + LANE[self._shape + ".extract_lane"] + bytes([lane]))

    def replace(self, value: V128, lane: int, by: I32) -> V128:
        return _V128(_code(value, V128) + _code(by, I32) + LANE[self._shape + ".replace_lane"] + bytes([lane]))


f32x4 = Lanes("f32x4", "<f", 4)
i32x4 = IntegerLanes("i32x4", "<i", 4)
f64x2 = Lanes("f64x2", "<d", 2)
bits = Lanes("v128", "<i", 4)


ZERO = f32x4.of(0)


def shuffle32(x: V128, y: V128, a: int, b: int, c: int, d: int) -> V128:
    """A shuffle of 32-bit lanes: 0..3 of x and 4..7 of y."""
    return _V128(x.code + y.code + b"\xfd\x0d" + bytes(4 * lane + byte for lane in (a, b, c, d) for byte in range(4)))


def constant(value: int) -> I32:
    return _I32(CONSTANT[value])


def pointer(address: int) -> Ptr:
    """A constant address."""
    return _Ptr(CONSTANT[address])


@overload
def select(x: Ptr, y: Ptr, condition: I32) -> Ptr: ...
@overload
def select(x: I32 | int, y: I32 | int, condition: I32) -> I32: ...
def select(x: I32 | int, y: I32 | int, condition: I32) -> I32:
    """x if the condition is not 0, else y; both are evaluated."""
    first, second = (CONSTANT[v] if v.__class__ is int else v.code for v in (x, y))  # type: ignore[union-attr]
    return (_Ptr if isinstance(x, Ptr) else _I32)(first + second + condition.code + b"\x1b")


def minimum(x: I32, y: I32 | int) -> I32:
    """The smaller one, unsigned; both are evaluated twice."""
    return select(x, y, x.lt_u(y))


def ceil_div(x: I32, y: I32) -> I32:
    """x / y, rounded up; y is evaluated twice."""
    return (x + y - 1) // y
