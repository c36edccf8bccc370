"""A simple evaluator of the kernel vocabulary: the reference for tests, and compile-time shape arithmetic.

Arrays are (shape, flat list of Python numbers). Integers may be Dims, so that shape arithmetic works on symbols; a
result that depends on their values raises `Undecided`. This module never gets a fast path: it must stay obviously
right."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from pyruntime.errors import out_of_range
from pyruntime.ir import dtype as dt
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import DType, bounds
from pyruntime.ir.expr import Expr, const, rewrite
from pyruntime.ir.kernel import (
    Accum,
    Alias,
    Block,
    Call,
    For,
    Kernel,
    Leaf,
    Let,
    Loops,
    Map,
    Reduce,
    Set,
    Stmt,
    Store,
    When,
    While,
)
from pyruntime.ir.shape import Dim, Undecided
from pyruntime.ir.symbol import Symbol

Array = tuple[tuple[int, ...], list[Any]]
Env = dict[Any, Any]  # ("index" | "var", number) -> value


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def store_value(x: Any, dtype: DType) -> Any:
    """x as an element of `dtype`: integers wrap, floats round, bool is x != 0; strings stay."""
    if dtype.kind == "s":
        return x
    if dtype.is_int:
        if isinstance(x, Dim):
            return x
        low, high = bounds(dtype)
        return (int(x) - low) % (high - low + 1) + low
    if dtype.kind == "b":
        return sh.compare("ne", x, 0) if isinstance(x, Dim) else bool(x)
    if dtype.bits < 16:  # float8, float6, float4: a bit pattern
        return x
    return round_float(float(x), dtype)


def round_float(x: float, dtype: DType) -> float:
    if dtype is dt.F64 or x != x or math.isinf(x):
        return x
    if dtype is dt.F32:
        return _through(x, "<f")
    if dtype is dt.F16:
        return _through(x, "<e")
    if dtype is dt.BF16:
        bits = struct.unpack("<I", struct.pack("<f", _through(x, "<f")))[0]
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    raise TypeError(f"{dtype} has no arithmetic: it is stored as a bit pattern")


def _through(x: float, code: str) -> float:
    try:
        return struct.unpack(code, struct.pack(code, x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def _cast(x: Any, source: DType, to: DType) -> Any:
    if isinstance(x, Dim):
        if to.is_float:
            raise Undecided(f"{x} as {to}")
        return store_value(x, to)
    if source.is_float and to.is_int:
        low, high = bounds(to)
        if x != x:
            return 0
        return int(min(max(x, low), high)) if not math.isinf(x) else (high if x > 0 else low)
    return store_value(x, to)


_FORMATS = {dt.F32: "<f", dt.I32: "<i", dt.U32: "<I", dt.F64: "<d", dt.I64: "<q", dt.U64: "<Q", dt.F16: "<e",
            dt.I16: "<h", dt.U16: "<H", dt.I8: "<b", dt.U8: "<B"}  # fmt: skip


def _bitcast(x: Any, source: DType, to: DType) -> Any:
    def code(d: DType) -> str:
        return _FORMATS[d] if d in _FORMATS else {1: "<B", 2: "<H"}[d.size]

    raw = struct.pack(code(source), x) if source is not dt.BF16 else struct.pack("<f", x)[2:]
    if to is dt.BF16:
        return struct.unpack("<f", b"\0\0" + raw)[0]
    return struct.unpack(code(to), raw)[0]


def _partial(fn: Callable[..., float]) -> Callable[..., float]:
    """Return the function with IEEE 754's inf or NaN where Python's function raises."""

    def safe(*args: float) -> float:
        try:
            return fn(*args)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return safe


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x) if x > 0 else math.nan


def _round(x: float) -> float:
    return x if math.isinf(x) or x != x else math.copysign(float(round(x)), x)


def _whole(fn: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: x if math.isinf(x) or x != x else math.copysign(float(fn(x)), x if x else x)


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _sinh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) > 710 else math.sinh(x)


UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda x: -x,
    "abs": lambda x: sh.absolute(x) if isinstance(x, Dim) else abs(x),
    "sqrt": _partial(math.sqrt), "exp": _partial(math.exp), "log": _log,
    "floor": _whole(math.floor), "ceil": _whole(math.ceil), "trunc": _whole(math.trunc), "round": _round,
    "sin": _partial(math.sin), "cos": _partial(math.cos), "tan": _partial(math.tan),
    "asin": _partial(math.asin), "acos": _partial(math.acos), "atan": math.atan,
    "sinh": _sinh, "cosh": _partial(math.cosh), "tanh": math.tanh,
    "asinh": math.asinh, "acosh": _partial(math.acosh), "atanh": _partial(_atanh), "erf": math.erf,
    "not": lambda x: 1 - x if isinstance(x, Dim) else not x,
    "bitnot": lambda x: ~x, "isnan": lambda x: x != x,
}  # fmt: skip


def _div(a: Any, b: Any, dtype: DType) -> Any:
    if not dtype.is_float:
        return sh.truncdiv(a, b)
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _rem(a: Any, b: Any, dtype: DType) -> Any:
    if dtype.is_float:
        return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)
    return a - sh.truncdiv(a, b) * b if b else 0


def _mod(a: Any, b: Any, dtype: DType) -> Any:
    if dtype.is_float:
        return math.nan if b == 0 or math.isinf(a) else a - math.floor(a / b) * b
    return a % b if b else 0


def _pow(a: Any, b: Any, dtype: DType) -> Any:
    if dtype.is_int:
        return a**b if b >= 0 else int(float(a) ** b) if a else 0
    if a == 0 and b < 0:
        odd = b == math.trunc(b) and b % 2 == 1
        return math.copysign(math.inf, a) if odd else math.inf
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return math.nan


def _extreme(pick: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    def choose(a: Any, b: Any, _: DType) -> Any:
        if isinstance(a, Dim) or isinstance(b, Dim):
            return symbolic(a, b)
        return a if a != a else b if b != b else pick(a, b)

    return choose


def _left(a: int, b: int, dtype: DType) -> int:
    return a << b if 0 <= b < dtype.bits else 0


def _right(a: int, b: int, dtype: DType) -> int:
    return a >> b if 0 <= b < dtype.bits else (-1 if a < 0 else 0)


BINARY: dict[str, Callable[[Any, Any, DType], Any]] = {
    "add": lambda a, b, _: a + b, "sub": lambda a, b, _: a - b, "mul": lambda a, b, _: a * b,
    "div": _div, "rem": _rem, "mod": _mod, "pow": _pow,
    "min": _extreme(min, sh.minimum), "max": _extreme(max, sh.maximum),
    "and": lambda a, b, d: (a and b) if d.kind == "b" else a & b,
    "or": lambda a, b, d: (a or b) if d.kind == "b" else a | b,
    "xor": lambda a, b, d: bool(a) != bool(b) if d.kind == "b" else a ^ b,
    "shl": _left, "shr": _right,
}  # fmt: skip


def _compare(op: str, a: Any, b: Any) -> Any:
    if isinstance(a, Dim) or isinstance(b, Dim):
        return sh.compare(op, a, b)
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op]


# ── expressions ───────────────────────────────────────────────────────────────────────────────────────────────────


def value(e: Expr, env: Env, arrays: Mapping[int, Array]) -> Any:
    """The value of an expression. `arrays` maps tensor uids to arrays."""
    op = e.op
    if op == "dim" and "symbols" in env:
        return sh.evaluate(e.value, env["symbols"])
    if op in ("const", "dim"):
        return bool(e.value) if e.dtype.kind == "b" else _rounded(e.value, e.dtype)
    if op == "site":
        return e.value
    if op in ("index", "var"):
        return env[op, e.value]
    if op == "at":
        return load(arrays[e.value.uid], [value(a, env, arrays) for a in e.args])
    if op in ("guard", "select"):
        condition = value(e.args[0], env, arrays)
        if isinstance(condition, Dim):
            if e.dtype.is_float:  # a Dim cannot represent a float
                raise sh.Undecided(f"a float depends on {condition}", condition)
            return sh.select(condition, value(e.args[1], env, arrays), value(e.args[2], env, arrays))
        return value(e.args[1 if condition else 2], env, arrays)
    args = [value(a, env, arrays) for a in e.args]
    source = e.args[0].dtype
    if op == "cast":
        return _cast(args[0], source, e.dtype)
    if op == "bitcast":
        return _bitcast(args[0], source, e.dtype)
    if op == "popcount":
        return (args[0] & ((1 << source.bits) - 1)).bit_count()
    if op == "checked":
        return _checked(*args, from_end=e.value)
    if op in UNARY:
        return _rounded(UNARY[op](args[0]), e.dtype)
    if op in BINARY:
        return _rounded(BINARY[op](args[0], args[1], source), e.dtype)
    return _compare(op, args[0], args[1])


def _checked(i: Any, extent: Any, node: str, *, from_end: bool) -> Any:
    """Errors: ExecutionError for an index out of range; Undecided if that depends on symbols."""
    low = -extent if from_end else 0
    for inside in (sh.compare("le", low, i), sh.compare("lt", i, extent)):
        if isinstance(inside, Dim):
            raise Undecided(f"index {i} of {extent} elements")
        if not inside:
            raise out_of_range(node, i, extent)
    negative = sh.compare("lt", i, 0)
    if isinstance(negative, Dim):
        raise Undecided(f"index {i} of {extent} elements")
    return i + extent if negative else i


def _rounded(x: Any, dtype: DType) -> Any:
    """The result of one operation: floats of 32 bits or less round to float32, integers wrap."""
    if dtype.is_float and dtype is not dt.F64 and isinstance(x, float):
        return _through(x, "<f")
    return _narrow(x, dtype)


def _narrow(x: Any, dtype: DType) -> Any:
    return store_value(x, dtype) if dtype.is_int else x


def load(array: Array, coords: Sequence[Any]) -> Any:
    return array[1][offset(array[0], coords)]


def offset(shape: Sequence[int], coords: Sequence[Any]) -> int:
    at = 0
    for extent, c in zip(shape, coords, strict=True):
        if isinstance(c, Dim):
            raise Undecided(f"coordinate {c}")
        if not 0 <= c < extent:
            raise IndexError(f"coordinates {list(coords)} outside {list(shape)}")
        at = at * extent + c
    return at


# ── kernels ───────────────────────────────────────────────────────────────────────────────────────────────────────

NEUTRAL: dict[str, Callable[[DType], Any]] = {
    "sum": lambda d: 0.0 if d.is_float else "" if d.kind == "s" else 0,
    "prod": lambda d: 1.0 if d.is_float else 1,
    "max": lambda d: -math.inf if d.is_float else bounds(d)[0],
    "min": lambda d: math.inf if d.is_float else bounds(d)[1],
    "any": lambda d: False,
    "all": lambda d: True,
}
# The binary operation of each reduction
COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def combine(op: str, a: Any, b: Any, dtype: DType) -> Any:
    return _narrow(BINARY[COMBINE[op]](a, b, dtype), dtype)


def evaluate(
    kernel: Kernel,
    arrays: dict[int, Array],
    shapes: Sequence[tuple[int, ...]],
    symbols: Mapping[Symbol, int] | None = None,
) -> list[Array]:
    """The outputs of one kernel. `shapes`: its outputs' shapes, all ints. Without `symbols`, Dims stay symbolic
    values."""
    env: Env = {} if symbols is None else {"symbols": symbols}
    if isinstance(kernel, Alias):
        return [(shapes[0], arrays[kernel.base.uid][1])]
    if isinstance(kernel, Map):
        return [(shapes[0], [_element(kernel.expr, at, arrays, kernel.out.dtype, env) for at in _grid(shapes[0])])]
    if isinstance(kernel, Reduce):
        return [(shapes[0], [_reduced(kernel, at, arrays, env) for at in _grid(shapes[0])])]
    if isinstance(kernel, Call) and isinstance(kernel.meaning, Block):
        return _block(kernel.meaning, dict(arrays), symbols)
    if isinstance(kernel, Call):
        return evaluate(kernel.definition(), arrays, shapes, symbols)
    if isinstance(kernel, Loops):
        return _run_loops(kernel, arrays, shapes, env)
    raise TypeError(f"{type(kernel).__name__} has no definition for the reference evaluator")


def _block(block: Block, arrays: dict[int, Array], symbols: Mapping[Symbol, int] | None) -> list[Array]:
    """The outputs of a block. arrays: by uid; gets those of the block. Its constants are in its kernels' leaves."""
    for k in block.kernels:
        for t in k.inputs:
            if isinstance(t.kernel, Leaf) and t.uid not in arrays:
                arrays[t.uid] = t.shape, t.kernel.value
        shapes = [tuple([sh.evaluate(d, symbols or {}) for d in t.shape]) for t in k.outputs]
        arrays.update(zip([t.uid for t in k.outputs], evaluate(k, arrays, shapes, symbols), strict=True))
    return [arrays[t.uid] for t in block.outputs]


def _grid(shape: Sequence[int]) -> Any:
    return product(*map(range, shape))


def _element(e: Expr, at: Sequence[int], arrays: Mapping[int, Array], dtype: DType, env: Env) -> Any:
    return store_value(value(e, {**env, **{("index", n): i for n, i in enumerate(at)}}, arrays), dtype)


def _reduced(kernel: Reduce, at: tuple[int, ...], arrays: Mapping[int, Array], env: Env) -> Any:
    dtype = kernel.expr.dtype
    op = kernel.op
    best: Any = None
    acc = 0 if op.startswith("arg") else NEUTRAL[op](dtype)
    for n, r in enumerate(_grid([sh.evaluate(e, env.get("symbols", {})) for e in kernel.extents])):
        x = value(kernel.expr, {**env, **{("index", k): i for k, i in enumerate((*at, *r))}}, arrays)
        if not op.startswith("arg"):
            acc = combine(op, acc, x, dtype)
        elif best is None or _beats(op, x, best):
            best, acc = x, n
    if kernel.epilogue is not None:
        done = const(acc, kernel.expr.dtype)
        held = rewrite(kernel.epilogue, lambda e: done if e.op == "arg" else None)
        acc = value(held, {**env, **{("index", k): i for k, i in enumerate(at)}}, arrays)
    return store_value(acc, kernel.out.dtype)


def _beats(op: str, x: Any, best: Any) -> bool:
    if op.endswith("_last") and x == best:
        return True
    if x != x:
        return best == best or op.endswith("_last")
    return x > best if op.startswith("argmax") else x < best


def _run_loops(kernel: Loops, arrays: dict[int, Array], shapes: Sequence[tuple[int, ...]], env: Env) -> list[Array]:
    mine = dict(arrays)
    made = list(zip(kernel.outputs, shapes, strict=True))
    made += [(t, tuple(sh.evaluate(d, env.get("symbols", {})) for d in t.shape)) for t in kernel.scratch]
    for t, shape in made:
        mine[t.uid] = (tuple(shape), [NEUTRAL["sum"](t.dtype)] * math.prod(shape))
    for out, shape, base in zip(kernel.outputs, shapes, kernel.bases, strict=False):
        mine[out.uid] = (tuple(shape), list(arrays[base.uid][1]))
    _run(kernel.body, dict(env), mine)
    return [mine[t.uid] for t in kernel.outputs]


def _run(body: list[Stmt], env: Env, arrays: dict[int, Array]) -> None:
    for s in body:
        if isinstance(s, (Let, Set)):
            env["var", s.var] = value(s.value, env, arrays)
        elif isinstance(s, Store):
            shape, data = arrays[s.target.uid]
            data[offset(shape, [value(c, env, arrays) for c in s.coords])] = store_value(
                value(s.value, env, arrays), s.target.dtype
            )
        elif isinstance(s, Accum):
            env["var", s.var] = combine(s.op, env["var", s.var], value(s.value, env, arrays), s.value.dtype)
        elif isinstance(s, For):
            for i in range(value(s.extent, env, arrays)):
                env["var", s.var] = i
                _run(s.body, env, arrays)
        elif isinstance(s, While):
            while value(s.condition, env, arrays):
                _run(s.body, env, arrays)
        elif isinstance(s, When):
            _run(s.then if value(s.condition, env, arrays) else s.orelse, env, arrays)
