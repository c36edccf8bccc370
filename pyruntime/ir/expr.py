"""Scalar expressions: typed trees (subtrees may be shared) that define one element of a tensor.

An expression's dtype is exact: an int8 sum wraps as int8. Half floats (float16, bfloat16) and float8 compute in
float32 and round when stored or cast. `index` and dims are int32.

Operators follow ONNX and C: integer `div` truncates, `rem` takes the dividend's sign, `mod` the divisor's; `min` and
`max` propagate NaN; `round` is to even; comparisons give bool; shifts of unsigned types are logical.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any

from pyruntime.ir.dtype import BOOL, F32, I32, I64, DType, bounds
from pyruntime.ir.shape import AnyDim, Dim, truncdiv

UNARY = frozenset(
    "neg abs sqrt floor ceil trunc round exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf "
    "not bitnot isnan popcount".split()
)
BINARY = frozenset("add sub mul div rem mod pow min max and or xor shl shr".split())
COMPARE = frozenset("eq ne lt le gt ge".split())
GRADUAL = "gradual"  # the value of an exp whose results may be subnormal; others end in zero


class MixedTypes(TypeError):
    """Operands that must have the same type have different types."""


class Expr:
    """op: the operation; args: its operands; value: the content of a leaf; dtype: type of the result (None only in
    templates).

    Leaves: const (a number), dim (a Dim, int32), index (axis number of the enclosing map or reduce), var (a variable
    of a loop kernel), arg (the n-th placeholder of a template), at (value = the tensor, args = its coordinates).
    Lowered leaves: param (word of the argument block, int32), load (value = buffer number, args = (element offset,)).
    `checked` has args (index, extent, site); `site` (value = a node's label) becomes the node's number in the program.
    """

    __slots__ = ("_key", "_nodes", "_tensors", "args", "dtype", "op", "value")

    def __init__(self, op: str, args: tuple[Expr, ...], dtype: DType | None, value: Any = None) -> None:
        self.op = op
        self.args = args
        self.dtype: Any = dtype
        self.value = value
        self._key: Any = None
        self._tensors: tuple[Any, ...] | None = None
        self._nodes: Sequence[Expr] | None = None

    def key(self) -> Any:
        """A hashable value, equal for structurally equal expressions."""
        if self._key is None:
            self._key = (self.op, self.dtype, self.content(), *[a.key() for a in self.args])
        return self._key

    def content(self) -> Any:
        """The value, in a form in which 0.0 and -0.0 differ."""
        return str(self.value) if self.op == "const" and self.value == 0 else self.value

    def tensors(self) -> tuple[Any, ...]:
        """The tensors that the expression loads from, in order of first use."""
        if self._tensors is None:
            found: tuple[Any, ...] = ()
            for a in self.args:
                if (a.args or a.op == "at") and (inner := a.tensors()) is not found:
                    found = (*found, *inner) if found else inner
            if self.op == "at":
                found = (*found, self.value)
            self._tensors = tuple(dict.fromkeys(found)) if len(found) > 1 else found
        return self._tensors

    def __repr__(self) -> str:
        if self.op in ("const", "dim"):
            return str(self.value)
        if self.op in ("index", "var", "arg", "param"):
            return f"{self.op[0]}{self.value}"
        head = f"{self.op}:{self.dtype}" if self.op in ("cast", "bitcast") else self.op
        head += "" if self.value is None else f"[{self.value}]"
        return f"{head}({', '.join(map(repr, self.args))})"

    __hash__ = object.__hash__  # identity: `==` builds an expression

    # fmt: off
    def __add__(self, o: Any) -> Expr: return binary("add", self, o)
    def __radd__(self, o: Any) -> Expr: return binary("add", o, self)
    def __sub__(self, o: Any) -> Expr: return binary("sub", self, o)
    def __rsub__(self, o: Any) -> Expr: return binary("sub", o, self)
    def __mul__(self, o: Any) -> Expr: return binary("mul", self, o)
    def __rmul__(self, o: Any) -> Expr: return binary("mul", o, self)
    def __truediv__(self, o: Any) -> Expr: return binary("div", self, o)
    def __rtruediv__(self, o: Any) -> Expr: return binary("div", o, self)
    def __mod__(self, o: Any) -> Expr: return binary("mod", self, o)
    def __pow__(self, o: Any) -> Expr: return binary("pow", self, o)
    def __and__(self, o: Any) -> Expr: return binary("and", self, o)
    def __or__(self, o: Any) -> Expr: return binary("or", self, o)
    def __xor__(self, o: Any) -> Expr: return binary("xor", self, o)
    def __lshift__(self, o: Any) -> Expr: return binary("shl", self, o)
    def __rshift__(self, o: Any) -> Expr: return binary("shr", self, o)
    def __neg__(self) -> Expr: return unary("neg", self)
    def __invert__(self) -> Expr: return unary("not" if self.dtype is BOOL else "bitnot", self)
    def __abs__(self) -> Expr: return unary("abs", self)
    def __eq__(self, o: object) -> Expr: return binary("eq", self, o)  # type: ignore[override]
    def __ne__(self, o: object) -> Expr: return binary("ne", self, o)  # type: ignore[override]
    def __lt__(self, o: Any) -> Expr: return binary("lt", self, o)
    def __le__(self, o: Any) -> Expr: return binary("le", self, o)
    def __gt__(self, o: Any) -> Expr: return binary("gt", self, o)
    def __ge__(self, o: Any) -> Expr: return binary("ge", self, o)
    # fmt: on
    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth value while compiling; use select(), & and |")


Scalar = Any  # Expr | int | float | bool | Dim


# ── leaves ────────────────────────────────────────────────────────────────────────────────────────────────────────


def const(value: Any, dtype: DType = F32) -> Expr:
    if dtype.kind == "s":  # a number can only be a neutral filler
        return Expr("const", (), dtype, value if isinstance(value, str) else "")
    if dtype.is_float:
        return Expr("const", (), dtype, float(value))
    value = int(value)
    low, high = bounds(dtype)
    if not low <= value <= high and dtype is not BOOL:  # wraps, as a C cast does
        value = (value - low) % (high - low + 1) + low
    return Expr("const", (), dtype, int(bool(value)) if dtype is BOOL else value)


def dim(value: AnyDim) -> Expr:
    """A dim as an int32 scalar."""
    return Expr("dim", (), I32, value) if isinstance(value, Dim) else const(value, I32)


def index(axis: int) -> Expr:
    return Expr("index", (), I32, axis)


def arg(n: int) -> Expr:
    return Expr("arg", (), None, n)


X, Y, Z, W = arg(0), arg(1), arg(2), arg(3)


def as_expr(x: Scalar, dtype: DType | None) -> Expr:
    """A number or dim as a leaf of the other operand's type (dtype None, in templates: the type is set later)."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, Dim):
        return dim(x) if dtype in (None, I32) else cast(dim(x), dtype)
    if dtype is None:
        return Expr("const", (), None, x)
    return const(x, dtype)


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def unary(op: str, x: Scalar) -> Expr:
    x = as_expr(x, F32 if isinstance(x, float) else None)
    return Expr(op, (x,), BOOL if op in ("isnan", "not") else x.dtype)


def binary(op: str, a: Scalar, b: Scalar) -> Expr:
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype)
    if not isinstance(b, Expr):
        b = as_expr(b, a.dtype)
    if a.dtype is not b.dtype and a.dtype is not None and b.dtype is not None and op not in ("shl", "shr", "pow"):
        raise MixedTypes(f"{op}: operands have types {a.dtype} and {b.dtype}")
    if a.dtype is I32 and a.op in ("const", "dim", "add") or b.op == "const":
        folded = _fold(op, a, b)
        if folded is not None:
            return folded
    return Expr(op, (a, b), BOOL if op in COMPARE and a.dtype is not None else a.dtype)


_DIM_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": truncdiv,
}


def _fold(op: str, a: Expr, b: Expr) -> Expr | None:
    """The result if it is known: arithmetic on int32 constants and dims, and x+0, x*1, x*0 for integers."""
    if a.dtype is not I32 or b.dtype is not I32:
        return None
    known_a, known_b = a.op in ("const", "dim"), b.op in ("const", "dim")
    if known_a and known_b and op in _DIM_OPS:
        return dim(_DIM_OPS[op](a.value, b.value))
    if b.op == "const":
        if b.value == 0 and op in ("add", "sub") or b.value == 1 and op in ("mul", "div"):
            return a
        if b.value == 0 and op == "mul":
            return b
    if a.op == "const":
        if a.value == 0 and op == "add" or a.value == 1 and op == "mul":
            return b
        if a.value == 0 and op == "mul":
            return a
    return None


def select(condition: Expr, a: Scalar, b: Scalar) -> Expr:
    """a if the condition holds, else b. Both are computed."""
    return _choose("select", condition, a, b)


def guard(condition: Expr, a: Scalar, b: Scalar) -> Expr:
    """Like select, but the side not chosen is not computed: its loads may be out of bounds."""
    return _choose("guard", condition, a, b)


def _choose(op: str, condition: Expr, a: Scalar, b: Scalar) -> Expr:
    if not isinstance(a, Expr):
        a = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    if not isinstance(b, Expr):
        b = as_expr(b, a.dtype)
    if a.dtype is not b.dtype and a.dtype is not None and b.dtype is not None:
        raise MixedTypes(f"{op}: sides have types {a.dtype} and {b.dtype}")
    if condition.op == "const":
        return a if condition.value else b
    return Expr(op, (condition, a, b), a.dtype or b.dtype)


def pick(i: Expr, values: Sequence[AnyDim], first: int = 0) -> Expr:
    """values[i - first], as int32."""
    if len(values) == 1:
        return dim(values[0])
    middle = len(values) // 2
    left, right = pick(i, values[:middle], first), pick(i, values[middle:], first + middle)
    return select(i < first + middle, left, right)


def checked(i: Expr, extent: Scalar, node: str, *, from_end: bool = False) -> Expr:
    """An index from data into an axis of `extent` elements, as int32, with a check at run time.

    An index in [0, extent) stays as it is; from_end: -n means extent - n. Any other index becomes 0, so that no load is
    out of bounds, and the run ends with an ExecutionError of this node (ADR 43). On an empty axis
    every index is out of range, 0 too: a store needs a guard there."""
    if i.dtype not in (I32, I64):
        i = cast(i, I64 if i.dtype.size >= 4 else I32)
    extent = extent if isinstance(extent, Expr) else dim(extent)
    return Expr("checked", (i, extent, Expr("site", (), I32, node)), I32, from_end)


def cast(x: Expr, dtype: DType) -> Expr:
    """Conversion as ONNX Cast defines it; float to integer truncates and saturates; integers wrap."""
    if x.dtype is dtype:
        return x
    if x.op == "const" and x.dtype is not None and (dtype.kind == x.dtype.kind or dtype is F32):
        return const(x.value, dtype)
    for d in (x.dtype, dtype):
        if d is not None and d.is_float and d.size == 1:
            raise MixedTypes(f"cast: {d} has no arithmetic, its codes are decoded and encoded")
    return Expr("cast", (x,), dtype)


def bitcast(x: Expr, dtype: DType) -> Expr:
    return x if x.dtype is dtype else Expr("bitcast", (x,), dtype)


# fmt: off
def exp(x: Scalar) -> Expr: return unary("exp", x)
def log(x: Scalar) -> Expr: return unary("log", x)
def sqrt(x: Scalar) -> Expr: return unary("sqrt", x)
def sin(x: Scalar) -> Expr: return unary("sin", x)
def cos(x: Scalar) -> Expr: return unary("cos", x)
def tanh(x: Scalar) -> Expr: return unary("tanh", x)
def erf(x: Scalar) -> Expr: return unary("erf", x)
def floor(x: Scalar) -> Expr: return unary("floor", x)
def ceil(x: Scalar) -> Expr: return unary("ceil", x)
def trunc(x: Scalar) -> Expr: return unary("trunc", x)
def round_even(x: Scalar) -> Expr: return unary("round", x)
def isnan(x: Scalar) -> Expr: return unary("isnan", x)
def minimum(a: Scalar, b: Scalar) -> Expr: return binary("min", a, b)
def maximum(a: Scalar, b: Scalar) -> Expr: return binary("max", a, b)
def power(a: Scalar, b: Scalar) -> Expr: return binary("pow", a, b)
def rem(a: Scalar, b: Scalar) -> Expr: return binary("rem", a, b)
# fmt: on


def sigmoid(x: Expr) -> Expr:
    return 1.0 / (exp(-x) + 1.0)


def clip(x: Scalar, low: Scalar, high: Scalar) -> Expr:
    return minimum(maximum(x, low), high)


def isinf(x: Expr) -> Expr:
    return binary("eq", unary("abs", x), math.inf)


# ── rewriting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def rewrite(x: Expr, visit: Callable[[Expr], Expr | None], memo: dict[int, Expr] | None = None) -> Expr:
    """Rebuild an expression bottom-up. `visit` gets each node with its new operands, and returns its replacement, or
    None to keep it. Shared subtrees stay shared. Nodes are folded again, but `visit` does not get a leaf that
    folding returns: if 0 + i folds to i, and i is itself a replacement, `visit` would replace it again."""
    done = {} if memo is None else memo

    def go(x: Expr) -> Expr:
        out, args, changed = x, [], False
        for a in x.args:
            new = done.get(id(a))
            if new is None:
                if a.args:
                    new = go(a)
                else:  # copied from `go`, without the call, because most operands are leaves
                    new = visit(a)
                    new = done[id(a)] = a if new is None else new
            args.append(new)
            changed = changed or new is not a
        if changed:
            out = rebuild(x, args)
        replaced = None if x.args and not out.args else visit(out)
        result = done[id(x)] = out if replaced is None else replaced
        return result

    found = done.get(id(x))
    return go(x) if found is None else found


def rewrite_loads(x: Expr, visit: Callable[[Expr], Expr | None]) -> Expr:
    """The same for a `visit` that keeps all nodes except `at`: it gets no others, and the nodes above them."""
    done: dict[int, Expr] = {}

    def go(x: Expr) -> Expr:
        args = [done[id(a)] if id(a) in done else go(a) if a.tensors() else a for a in x.args]
        out = x if all(map(is_, args, x.args)) else rebuild(x, args)
        found = None if out.op != "at" or x.args and not out.args else visit(out)
        result = done[id(x)] = out if found is None else found
        return result

    return go(x) if x.tensors() else x


def substitute(e: Expr, coords: Sequence[Expr] | Mapping[int, Expr]) -> Expr:
    """The expression with index(n) replaced by coords[n]."""
    return rewrite(e, lambda x: coords[x.value] if x.op == "index" else None)


def transform(x: Expr, make: Callable[[Expr, tuple[Expr, ...]], Expr], memo: dict[int, Expr]) -> Expr:
    """Rebuild an expression bottom-up: `make` gets each node and its new operands. memo: results by id of the node"""
    if id(x) not in memo:
        memo[id(x)] = make(x, tuple([transform(a, make, memo) for a in x.args]))
    return memo[id(x)]


def with_args(x: Expr, args: Sequence[Expr], dtype: DType | None) -> Expr:
    """Return the node with these operands and this type: itself if it has them already."""
    if dtype is x.dtype and all(map(is_, args, x.args)):
        return x
    return Expr(x.op, tuple(args), dtype, x.value)


def rebuild(x: Expr, args: Sequence[Expr]) -> Expr:
    """The node with other operands. Its type is inferred again, so that a template becomes typed."""
    op = x.op
    if op in BINARY or op in COMPARE:
        a, b = args
        if a.dtype is None:
            a = _retype(a, b.dtype)
        if b.dtype is None:
            b = _retype(b, a.dtype)
        return binary(op, a, b)
    if op in ("select", "guard"):
        c, a, b = args
        dtype = a.dtype or b.dtype
        return _choose(op, c, _retype(a, dtype), _retype(b, dtype))
    if op in UNARY and x.value is None:
        return unary(op, args[0])
    if op == "cast":
        return cast(args[0], x.dtype)
    return Expr(op, tuple(args), x.dtype, x.value)


def _retype(x: Expr, dtype: DType | None) -> Expr:
    """Give a template's untyped number a type."""
    if x.dtype is None and x.op == "const" and dtype is not None:
        return const(x.value, dtype)
    return x


def instantiate(template: Expr, args: Sequence[Expr]) -> Expr:
    """Replace a template's placeholders; types follow from the arguments."""
    done = rewrite(template, lambda e: args[e.value] if e.op == "arg" else None)
    return _retype(done, args[0].dtype if args else F32)


def walk(x: Expr, seen: set[int] | None = None) -> Sequence[Expr]:
    """All nodes, each once, operands first. `seen`: ids of nodes to skip; the ids of all returned nodes are added to
    it."""
    if seen is None:
        if x._nodes is None:  # cached, because passes walk the same expressions many times
            x._nodes = _nodes(x, set())
        return x._nodes
    return () if id(x) in seen else _nodes(x, seen)


def _nodes(x: Expr, seen: set[int]) -> list[Expr]:
    out: list[Expr] = []

    def go(e: Expr) -> None:
        seen.add(id(e))
        for a in e.args:
            if id(a) not in seen:
                if a.args:
                    go(a)
                else:
                    seen.add(id(a))
                    out.append(a)
        out.append(e)

    go(x)
    return out


def uses_index(e: Expr, axis: int) -> bool:
    return any(x.op == "index" and x.value == axis for x in walk(e))


def is_view(e: Expr) -> bool:
    """Whether a map with this expression only moves elements: it is a load at cheap coordinates, or a constant."""
    if e.op == "at":
        return all(
            y.dtype is I32 and y.op in ("index", "const", "dim", "add", "sub", "mul") for c in e.args for y in walk(c)
        )
    return e.op == "const"


# ── affine form ───────────────────────────────────────────────────────────────────────────────────────────────────


def affine(x: Expr) -> tuple[AnyDim, dict[Any, AnyDim]] | None:
    """x as base + Σ coefficient · variable, where base and coefficients are dims; None if x has another form.
    Variables are keyed ("index", axis) and ("var", id)."""
    op = x.op
    if op in ("const", "dim"):
        return x.value, {}
    if op in ("index", "var"):
        return 0, {(op, x.value): 1}
    if op in ("add", "sub", "mul") and x.dtype is I32:
        a, b = affine(x.args[0]), affine(x.args[1])
        if a is None or b is None:
            return None
        if op == "mul":
            if a[1] and b[1]:
                return None
            scale, (base, terms) = (b[0], a) if a[1] else (a[0], b)
            return base * scale, {k: v * scale for k, v in terms.items() if v * scale != 0}
        sign = 1 if op == "add" else -1
        terms = dict(a[1])
        for k, v in b[1].items():
            terms[k] = terms.get(k, 0) + sign * v
        return a[0] + sign * b[0], {k: v for k, v in terms.items() if v != 0}
    return None
