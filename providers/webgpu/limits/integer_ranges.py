"""Interval analysis of integer expressions: whether 64-bit arithmetic stays within 32 bits on the GPU.

On the GPU, tensors of 64-bit integers hold 32-bit values. Values that are copied there are checked; values that are
computed there are bounded by this analysis, from shapes, constants and the bounds of operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pyruntime.codegen.provider import EXTENT
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import BOOL, F32, I8, I16, I32, I64, U8, U16, U32, U64, DType
from pyruntime.ir.expr import COMPARE, Expr, walk
from pyruntime.ir.kernel import Call, Kernel, Leaf, Map, Reduce, Tensor, root
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.symbol import Symbol

from ..printer.storage import gpu_bounds

SMALL = 4096  # elements: the analysis reads constants up to this size
DIM = (1 << 31) - 1  # the largest dim: kernels get dims as 32-bit parameters
DEEP = 200  # length of the longest chain of kernels that is analysed
_FORMATS: dict[DType, Any] = {F32: "f", I8: "b", U8: "B", I16: "h", U16: "H", I32: "i", U32: "I", I64: "q", U64: "Q"}


class Range(NamedTuple):
    low: float
    high: float


ANY = Range(-math.inf, math.inf)
TRUTH = Range(0, 1)
_ranges: WeakKeyDictionary[sh.Operation, Range] = WeakKeyDictionary()


def of_type(dtype: DType) -> Range:
    """The values of this type on the GPU."""
    if dtype is BOOL:
        return TRUTH
    return Range(*map(float, gpu_bounds(dtype))) if dtype.is_int else ANY


def of_dim(d: AnyDim) -> Range:
    if isinstance(d, int):
        return Range(d, d)
    for operation in sh.operations(d, _ranges):
        _ranges[operation] = _operation(operation.op, [_polynomial(a) for a in operation.args])
    return _polynomial(d)


def _polynomial(d: AnyDim) -> Range:
    """The range of a dim whose operations have one."""
    if isinstance(d, int):
        return Range(d, d)
    total = Range(0, 0)
    for monomial, c in d.terms:
        part = Range(c, c)
        for factor in monomial:
            part = _product(part, _symbol(factor) if isinstance(factor, Symbol) else _ranges[factor])
        total = _plus(total, part)
    return Range(max(total.low, -DIM), min(total.high, DIM))


def _symbol(symbol: Symbol) -> Range:
    return Range(-DIM if symbol.lower is None else symbol.lower, EXTENT - 1 if symbol.is_extent else DIM)


def _operation(op: str, operands: list[Range]) -> Range:
    x, y = operands[-2:]
    if op in ("lt", "le", "eq"):
        return TRUTH
    if op == "select":
        return Range(min(x.low, y.low), max(x.high, y.high))
    if op in ("min", "max"):
        return Range(*map(min if op == "min" else max, x, y))
    if op in "+*":
        return _plus(x, y) if op == "+" else _product(x, y)
    most = max(abs(x.low), abs(x.high))
    return Range(0 if x.low >= 0 and y.low >= 0 else -most - 1, most)


def _plus(x: Range, y: Range) -> Range:
    return Range(x.low + y.low, x.high + y.high)


def within(inner: Range, outer: Range) -> bool:
    return outer.low <= inner.low and inner.high <= outer.high


class Ranges:
    """Bounds of tensors, memoised."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Tensor, Range]] = {}
        self.depth = 0

    def tensor(self, t: Tensor) -> Range:
        t, most = root(t), of_type(t.dtype)
        if t.uid not in self.known:
            if self.depth > DEEP:
                return most
            self.depth += 1
            found = self._made(t.kernel, t) if t.dtype.is_int or t.dtype.is_float else most
            self.depth -= 1
            self.known[t.uid] = t, Range(max(found.low, most.low), min(found.high, most.high))
        return self.known[t.uid][1]

    def _made(self, kernel: Kernel, t: Tensor) -> Range:
        if isinstance(kernel, Leaf):
            return constant(kernel, t)
        if not t.dtype.is_int:
            return of_type(t.dtype)
        if isinstance(kernel, Call):
            kernel = kernel.definition()
        if isinstance(kernel, (Map, Reduce)):
            return ExpressionRanges(self, kernel).result()
        return of_type(t.dtype)


def constant(kernel: Leaf, t: Tensor) -> Range:
    """Bounds of a constant: if it is small, those of its elements, which may exceed the range of the GPU's integers."""
    count = sh.size(t.shape)
    if kernel.kind not in ("weight", "constant") or not isinstance(count, int) or not 0 < count <= SMALL:
        return of_type(t.dtype)
    values = kernel.value if kernel.kind == "constant" else _elements(kernel.value.read(), t.dtype)
    if not values or not all(map(math.isfinite, values)):
        return of_type(t.dtype)
    return Range(min(values), max(values))


def _elements(data: bytes, dtype: DType) -> list[Any]:
    """Elements of a weight; none for types without a `struct` format."""
    return memoryview(data).cast(_FORMATS[dtype]).tolist() if dtype in _FORMATS else []


class ExpressionRanges:
    """Bounds of the expressions of one kernel. dims: bounds of an extent."""

    def __init__(self, ranges: Ranges, kernel: Any, dims: Callable[[AnyDim], Range] = of_dim) -> None:
        self.ranges = ranges
        self.kernel = kernel
        self.dims = dims
        shape = kernel.out.shape if isinstance(kernel, (Map, Reduce)) else ()
        self.extents = (*shape, *(kernel.extents if isinstance(kernel, Reduce) else ()))
        self.variables: dict[int, Range] = {}
        self.memo: dict[int, tuple[Expr, Range]] = {}
        self.reduced: Range | None = None

    def result(self) -> Range:
        """Bounds of the output of a Map or Reduce."""
        kernel = self.kernel
        if isinstance(kernel, Map):
            return self.of(kernel.expr)
        total = self.total()
        if kernel.epilogue is None:
            return total
        self.reduced = total
        return self.of(kernel.epilogue)

    def total(self) -> Range:
        """Bounds of a reduction's result before its epilogue."""
        kernel = self.kernel
        count = self.dims(sh.size(kernel.extents)).high
        if kernel.op.startswith("arg"):
            return Range(0, max(count - 1, 0))
        x = self.of(kernel.expr)
        if kernel.op in ("max", "min"):
            return x
        if kernel.op == "sum":
            return Range(min(0, _times(x.low, count)), max(0, _times(x.high, count)))
        if kernel.op in ("any", "all") or within(x, TRUTH):
            return TRUTH
        return ANY

    def of(self, e: Expr) -> Range:
        for x in walk(e):
            if id(x) not in self.memo:
                self.memo[id(x)] = x, self._node(x)
        return self.memo[id(e)][1]

    def _node(self, e: Expr) -> Range:
        if e.op == "const":
            return Range(e.value, e.value) if math.isfinite(e.value) else ANY
        if e.op == "dim":  # wraps
            found = self.dims(e.value)
            return found if within(found, of_type(e.dtype)) else of_type(e.dtype)
        if e.op == "index":
            return Range(0, max(self.dims(self.extents[e.value]).high - 1, 0))
        if e.op == "at":
            return self.ranges.tensor(e.value)
        if e.op == "var":
            return self.variables.get(e.value, of_type(e.dtype))
        if e.op == "arg" and self.reduced is not None:
            return self.reduced
        if e.op in COMPARE or e.dtype is BOOL:
            return TRUTH
        args = [self.memo[id(a)][1] for a in e.args]
        found = _apply(e, args)
        if e.dtype.is_int and e.dtype.size < 8 and not within(found, of_type(e.dtype)):
            return of_type(e.dtype)  # wraps
        return found


def _apply(e: Expr, args: list[Range]) -> Range:
    op = e.op
    if op in ("select", "guard"):
        return Range(min(args[1].low, args[2].low), max(args[1].high, args[2].high))
    if op == "cast":
        return _cast(e, args[0])
    if op == "checked":
        return Range(0, max(args[1].high - 1, 0))
    if op in _FORMULAS:
        return _FORMULAS[op](*args)
    if op in _INTEGER and e.dtype.is_int:
        return _INTEGER[op](*args)
    return of_type(e.dtype) if e.dtype.is_int else ANY


def _cast(e: Expr, x: Range) -> Range:
    if e.dtype.is_int and e.args[0].dtype.is_float:
        return Range(_truncated(min(x.low, 0)), _truncated(max(x.high, 0)))  # NaN becomes 0
    if e.dtype.is_float:  # rounding changes a bfloat16 by up to 1/256
        return Range(x.low - abs(x.low) / 128, x.high + abs(x.high) / 128)
    return x


def _truncated(x: float) -> float:
    return x if math.isinf(x) else math.trunc(x)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _product(x: Range, y: Range) -> Range:
    ends = [_times(a, b) for a in x for b in y]
    return Range(min(ends), max(ends))


def _quotient(x: Range, y: Range) -> Range:
    """Bounds of an integer quotient: its magnitude is at most the dividend's, and the sign changes only for negative
    divisors."""
    if y.low > 0:
        return Range(min(x.low, 0), max(x.high, 0))
    most = max(abs(x.low), abs(x.high))
    return Range(0 if x.low >= 0 and y.low >= 0 else -most, most if x.high > 0 or y.low < 0 else 0)


def _remainder(x: Range, y: Range) -> Range:
    most = max(abs(y.low), abs(y.high), 1) - 1
    least = 0 if x.low >= 0 and y.low >= 0 else -most
    return Range(least, most)


_FORMULAS: dict[str, Any] = {
    "add": lambda x, y: Range(x.low + y.low, x.high + y.high),
    "sub": lambda x, y: Range(x.low - y.high, x.high - y.low),
    "mul": _product,
    "neg": lambda x: Range(-x.high, -x.low),
    "abs": lambda x: Range(0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high)), max(abs(x.low), abs(x.high))),
    "min": lambda x, y: Range(min(x.low, y.low), min(x.high, y.high)),
    "max": lambda x, y: Range(max(x.low, y.low), max(x.high, y.high)),
    "floor": lambda x: Range(_truncated(x.low) - 1, x.high),
    "ceil": lambda x: Range(x.low, _truncated(x.high) + 1),
    "trunc": lambda x: Range(min(_truncated(x.low), x.low), max(_truncated(x.high), x.high)),
    "round": lambda x: Range(_truncated(x.low) - 1, _truncated(x.high) + 1),
    "tanh": lambda x: Range(-1, 1),
    "sin": lambda x: Range(-1, 1),
    "cos": lambda x: Range(-1, 1),
}
_INTEGER = {"div": _quotient, "rem": _remainder, "mod": _remainder}
