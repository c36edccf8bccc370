"""Writes elementwise loops as functions in machine code (native_words.py). Each instruction rounds as the lanes of
vector.py, so results have the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyruntime.ir.dtype import BOOL, F32, I32, U32, DType
from pyruntime.ir.dtype import bounds as limits
from pyruntime.ir.expr import Expr, cast, walk
from pyruntime.ir.kernel import Let, Stmt, Store

from .assembler import Function
from .native_imports import bits_of, elementwise_function
from .native_words import LANES, TYPES, Word
from .vector import Lanes, Vector, inside, is_narrow, is_number

FEWEST = 16  # elements of a call
_EQ, _UNORDERED, _NE, _LT, _LE = 0, 3, 4, 17, 18  # of vcmpps
_ROUND = {"round": 8, "floor": 9, "ceil": 10, "trunc": 11}
_FLOAT = {"add": "vaddps", "sub": "vsubps", "mul": "vmulps", "div": "vdivps"}
_INTEGER = {"add": "vpaddd", "sub": "vpsubd", "mul": "vpmulld", "min": "vpminsd", "max": "vpmaxsd"}
_LOGIC = {"and": "vpand", "or": "vpor", "xor": "vpxor"}


class _Unfit(Exception):
    """The loop has something that no instruction computes."""


class _Writer:
    """Turns the values of stores into words. loads, scalars: their expressions, in order; variables: their values"""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.variables: dict[int, Expr] = {}
        self.words: list[Word] = []
        self.loads: list[Expr] = []
        self.scalars: list[Expr] = []
        self._numbers: dict[Any, int] = {}  # of words
        self._made: dict[int, tuple[Expr, int]] = {}

    def word(self, kind: str, *operands: int, number: int = 0, dtype: DType | None = None) -> int:
        w = Word(kind, dtype, number, operands)
        if w not in self._numbers:
            self._numbers[w] = len(self.words)
            self.words.append(w)
        return self._numbers[w]

    def const(self, bits: int) -> int:
        return self.word("const", number=bits & 0xFFFFFFFF)

    def value(self, e: Expr) -> int:
        found = self._made.get(id(e))
        if found is None:
            found = self._made[id(e)] = (e, self._value(e) if self.lanes.depends(e) else self._same(e))
        return found[1]

    def stored(self, e: Expr, dtype: DType) -> int:
        """The word of a value in the form in which it is stored."""
        at = self.value(e)
        if is_narrow(dtype) and dtype.kind == "i":
            at = self.word("vpand", at, self.const((1 << dtype.bits) - 1))
        return at

    def _same(self, e: Expr) -> int:
        """A value that is equal for all elements."""
        if e.dtype is BOOL and e.op != "guard":  # a lane of a condition is all ones
            return self.word("vpcmpgtd", self._leaf("scalar", self.scalars, cast(e, I32), None), self.const(0))
        if e.dtype.name not in TYPES or e.op == "guard":
            raise _Unfit
        if e.op == "const":
            return self.const(bits_of(e.value) if e.dtype is F32 else e.value)
        return self._leaf("scalar", self.scalars, e, None)

    def _leaf(self, kind: str, leaves: list[Expr], e: Expr, dtype: DType | None) -> int:
        keys = [x.key() for x in leaves]
        if e.key() not in keys:
            leaves.append(e)
            keys.append(e.key())
        return self.word(kind, number=keys.index(e.key()), dtype=dtype)

    def _value(self, e: Expr) -> int:
        op = e.op
        if op == "load" and self.lanes.step(e) == 1 and e.dtype.name in TYPES:
            return self._leaf("load", self.loads, e, e.dtype)
        if op == "var" and e.value in self.variables:
            return self.value(self.variables[e.value])
        if op in ("load", "guard", "var", "checked"):
            raise _Unfit
        source = e.args[0].dtype
        if op == "cast":
            return self._cast(self.value(e.args[0]), source, e)
        args = [self.value(a) for a in e.args]
        if op == "bitcast":
            return args[0]
        if op == "select":
            return self.word("vblendvps", args[2], args[1], args[0])
        if op in _LOGIC:
            return self.word(_LOGIC[op], *args)
        if op in ("not", "bitnot"):
            return self.normal(self._inverse(args[0]), e.dtype)
        return self._of_floats(e, args) if source is F32 else self._of_integers(e, source, args)

    def _inverse(self, at: int) -> int:
        return self.word("vpxor", at, self.const(-1))

    def _of_floats(self, e: Expr, args: list[int]) -> int:
        op = e.op
        if op in _FLOAT:
            return self.word(_FLOAT[op], *args)
        if op in ("min", "max") and is_number(e.args[1]):
            return self.word(f"v{op}ps", args[1], args[0])  # NaN stays
        if op in _ROUND:
            return self.word("vroundps", args[0], number=_ROUND[op])
        if op == "neg":
            return self.word("vpxor", args[0], self.const(1 << 31))
        if op == "abs":
            return self.word("vpand", args[0], self.const((1 << 31) - 1))
        if op == "sqrt":
            return self.word("vsqrtps", args[0])
        if op == "isnan":
            return self.word("vcmpps", args[0], args[0], number=_UNORDERED)
        compare = {"eq": _EQ, "ne": _NE, "lt": _LT, "le": _LE, "gt": _LT, "ge": _LE}
        if op not in compare:
            raise _Unfit
        return self.word("vcmpps", *(args[::-1] if op in ("gt", "ge") else args), number=compare[op])

    def _of_integers(self, e: Expr, source: DType, args: list[int]) -> int:
        op, signed = e.op, source is not U32 and source is not BOOL
        if op in ("shl", "shr"):
            count = e.args[1]
            if count.op != "const" or not 0 <= count.value < 32:
                raise _Unfit
            name = "vpslld" if op == "shl" else "vpsrad" if source.kind == "i" else "vpsrld"
            return self.normal(self.word(name, args[0], number=count.value), e.dtype)
        if op in ("add", "sub", "mul") or (op in ("min", "max") and signed):
            return self.normal(self.word(_INTEGER[op], *args), e.dtype)
        if op in ("eq", "ne") and source is not BOOL:
            same = self.word("vpcmpeqd", *args)
            return same if op == "eq" else self._inverse(same)
        if op in ("lt", "gt", "le", "ge") and signed:
            above = self.word("vpcmpgtd", *(args[::-1] if op in ("lt", "ge") else args))
            return above if op in ("lt", "gt") else self._inverse(above)
        raise _Unfit

    def _cast(self, at: int, source: DType, e: Expr) -> int:
        to = e.dtype
        if to is source:
            return at
        if source is BOOL and to is not BOOL:
            return self.word("vpand", at, self.const(bits_of(1.0) if to is F32 else 1))
        if source is F32 and is_narrow(to) and inside(e.args[0], to):
            return self.normal(self.word("vcvttps2dq", at), to)
        if source is F32 and (to is I32 or is_narrow(to)):
            at = self._saturating(at)
            if is_narrow(to):
                low, high = limits(to)
                at = self.word("vpmaxsd", self.word("vpminsd", at, self.const(high)), self.const(low))
            return at
        if to is F32 and source is not U32:
            return self.word("vcvtdq2ps", at)
        if to in (I32, U32) and source is not F32:
            return at
        if is_narrow(to) and source is not F32:
            return at if to.bits >= source.bits and to.kind == source.kind else self.normal(at, to)
        raise _Unfit

    def _saturating(self, at: int) -> int:
        """Floats as int32: NaN becomes 0; vcvttps2dq makes -2^31 of what is too large, whose inverse is 2^31 - 1."""
        at = self.word("vpand", at, self.word("vcmpps", at, at, number=_EQ))
        large = self.word("vcmpps", self.const(bits_of(2.0**31)), at, number=_LE)
        return self.word("vpxor", self.word("vcvttps2dq", at), large)

    def normal(self, at: int, dtype: DType) -> int:
        """The value of the low bits, if the type is narrow."""
        if not is_narrow(dtype):
            return at
        if dtype.kind == "u":
            return self.word("vpand", at, self.const((1 << dtype.bits) - 1))
        return self.word("vpsrad", self.word("vpslld", at, number=32 - dtype.bits), number=32 - dtype.bits)


def call_lanes(
    f: Function, body: Sequence[Stmt], vector: Vector, dtypes: Sequence[DType], counter: int, end: int
) -> bool:  # fmt: skip
    """Let the host's machine code compute the first elements of a loop that has only stores, and variables for their
    values. The counter, which is 0, becomes their number. Returns whether there is a function for it. dtypes: of
    buffers"""
    writer, stores = _Writer(vector.lanes), [s for s in body if isinstance(s, Store)]
    kinds = [dtypes[s.target] for s in stores]
    if not stores or any(t.name not in TYPES for t in kinds):
        return False
    try:
        values: list[int] = []
        done: set[int] = set()  # buffers in which the elements are new; all loads are before all stores
        for s in body:
            if not isinstance(s, (Let, Store)) or any(x.op == "load" and x.value in done for x in walk(s.value)):
                return False
            if isinstance(s, Store):
                values.append(writer.stored(s.value, dtypes[s.target]))
                done.add(s.target)
            elif s.mutable or s.var not in vector.lanes.varying:
                return False
            else:
                writer.variables[s.var] = s.value
                writer.value(s.value)
    except _Unfit:
        return False
    for n, (at, dtype) in enumerate(zip(values, kinds, strict=True)):
        writer.words.append(Word("store", dtype, len(writer.loads) + n, (at,)))
    function = elementwise_function(f.module, "/".join([LANES, *map(str, writer.words)]))
    if function is None:
        return False
    f.emit(end).i32(FEWEST).emit("i32.ge_s")
    with f.if_():
        f.emit(end)
        for load in writer.loads:
            vector.address(load.value, load.args[0], load.dtype)
        for s, dtype in zip(stores, kinds, strict=True):
            vector.address(s.target, s.coords[0], dtype)
        for e in writer.scalars:
            vector.scalar.root(e)
            if e.dtype is F32:
                f.emit("i32.reinterpret_f32")
        f.i32(0).call(function)
        with f.if_():
            f.emit(end).i32(-8).emit("i32.and").set(counter)
    return True
