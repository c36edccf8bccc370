"""Dims: Python ints, or `Dim`, an integer expression over symbols in canonical (polynomial) form.

Expressions are graphs: equal `Operation`s are one object, which keeps what is known about it. So the size of a dim and
the time of all functions here are linear in the number of distinct operations, also where each uses the previous one
several times, as the padding of one layer after the other does.

Arithmetic of Dims gives an int wherever the result is constant, so code written with plain arithmetic works for both.
`==` is structural: equal polynomials are equal for all values. An ordering that depends on the values raises
`Undecided`; use `compare`, `select`, `minimum` and `maximum` where it may.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha1
from itertools import count
from math import inf, prod
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from pyruntime.errors import NeedsValue, PyRuntimeError
from pyruntime.ir import intervals
from pyruntime.ir.intervals import Interval
from pyruntime.ir.symbol import DIM, Symbol

Monomial = tuple[Any, ...]  # Symbols and Operations in canonical order; () is the constant term
Terms = tuple[tuple[Monomial, int], ...]


class Undecided(PyRuntimeError):
    """A comparison of dims depends on the values of `symbols`."""

    def __init__(self, message: str, *dims: AnyDim) -> None:
        super().__init__(message)
        self.symbols = frozenset().union(*[symbols(d) for d in dims])


@contextmanager
def decided_by_feeds() -> Iterator[None]:
    """Inside the block, `Undecided` becomes `NeedsValue` if dims of feeds would decide it."""
    try:
        yield
    except Undecided as e:
        if e.symbols and all(s.is_extent for s in e.symbols):
            raise NeedsValue("", symbols=e.symbols) from None
        raise


class Dim:
    """A polynomial: `terms` is a tuple of (monomial, coefficient), sorted, without zero coefficients."""

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._text = ""

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __repr__(self) -> str:
        """The dim, shortened if it is long. It orders terms, too, so that a hash distinguishes shortened ones."""
        if not self._text:
            text = " + ".join(_show(m, c) for m, c in self.terms) or "0"
            if len(text) > LONGEST_TEXT:
                text = f"{text[: LONGEST_TEXT // 2]}…#{sha1(text.encode()).hexdigest()[:10]}"
            self._text = text
        return self._text

    def __add__(self, other: Any) -> Any:
        return _sum(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _sum(self, other, -1)

    def __rsub__(self, other: Any) -> Any:
        return _sum(other, self, -1)

    def __neg__(self) -> Any:
        return self * -1

    def __mul__(self, other: Any) -> Any:
        return _multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return floordiv(other, self)

    def __mod__(self, other: Any) -> Any:
        return self - floordiv(self, other) * other

    def __rmod__(self, other: Any) -> Any:
        return other - floordiv(other, self) * self

    def __lt__(self, other: Any) -> bool:
        return _decide("lt", self, other)

    def __le__(self, other: Any) -> bool:
        return _decide("le", self, other)

    def __gt__(self, other: Any) -> bool:
        return _decide("lt", other, self)

    def __ge__(self, other: Any) -> bool:
        return _decide("le", other, self)

    def __bool__(self) -> bool:
        return not _decide("eq", self, 0)

    def __index__(self) -> int:
        raise Undecided(f"dim {self} is not a known integer", self)


AnyDim = int | Dim

LONGEST_TEXT = 320  # characters of a dim in messages
MOST_TERMS = 64  # of a polynomial: a sum or product with more is an operation on its operands
MOST_FACTORS = 32  # of a term. A dim that each layer squares has exponentially many, and int64 arithmetic wraps then.
LARGEST = 2**53  # coefficient: larger ones are not exact in JavaScript


class Operation:
    """An operation on dims; op: in `OPERATIONS`. Equal ones are one object as long as one of them lives.

    number: larger than those of operations in its operands; symbols: those in its operands
    interval: bounds that hold for all values of the symbols; text: as messages show it
    degree: the largest number of factors of a term
    """

    __slots__ = ("__weakref__", "_key", "args", "degree", "interval", "number", "op", "symbols", "text")

    def __init__(self, op: str, args: tuple[AnyDim, ...]) -> None:
        self.op = op
        self.args = args
        self.number = next(_numbers)
        self.symbols = frozenset().union(*map(symbols, args))
        self.interval = intervals.of_operation(op, [interval(a) for a in args])
        degrees = [_degree(_terms(a)) for a in args]
        self.degree = sum(degrees) if op == "*" else max(degrees)
        self.text = f"{op}({', '.join(map(repr, args))})"
        self._key = f"({op!r}, {', '.join(map(repr, args))})"

    def __repr__(self) -> str:
        """The key that orders factors and terms."""
        return self._key


_numbers = count()
_operations: WeakValueDictionary[tuple[Any, ...], Operation] = WeakValueDictionary()


def dim_of(symbol: Symbol) -> Dim:
    return Dim((((symbol,), 1),))


def symbol(name: str) -> Dim:
    """The dim that has this name in the model."""
    return dim_of(Symbol(DIM, name))


# ── arithmetic ────────────────────────────────────────────────────────────────────────────────────────────────────


def _terms(x: AnyDim) -> Terms:
    if isinstance(x, Dim):
        return x.terms
    return (((), int(x)),) if x else ()


@lru_cache(maxsize=4096)
def _order(m: Monomial) -> str:
    return repr(m)


def _merge(a: Terms, b: Terms, sign: int) -> Terms:
    out = dict(a)
    for m, c in b:
        out[m] = out.get(m, 0) + sign * c
    return tuple((m, out[m]) for m in sorted(out, key=_order) if out[m])


def _sum(a: AnyDim, b: AnyDim, sign: int) -> AnyDim:
    terms = _merge(_terms(a), _terms(b), sign)
    return _from(terms) if len(terms) <= MOST_TERMS else _operation("+", a, b if sign > 0 else b * -1)


def _from(terms: Terms) -> AnyDim:
    if not terms:
        return 0
    if len(terms) == 1 and terms[0][0] == ():
        return terms[0][1]
    if any(abs(c) > LARGEST for _, c in terms):
        raise Undecided(f"a dim has a factor of more than {LARGEST}", Dim(terms))
    return Dim(terms)


@lru_cache(maxsize=4096)
def _multiply(a: AnyDim, b: AnyDim) -> AnyDim:
    first, second = _terms(a), _terms(b)
    if _degree(first) + _degree(second) > MOST_FACTORS:
        raise Undecided(f"a product of more than {MOST_FACTORS} dims", a, b)
    if len(first) > 1 < len(second) and len(first) * len(second) > MOST_TERMS:
        return _operation("*", *sorted([a, b], key=repr))
    out: dict[Monomial, int] = {}
    for ma, ca in first:
        for mb, cb in second:
            m = tuple(sorted(ma + mb, key=repr))
            out[m] = out.get(m, 0) + ca * cb
    return _from(tuple((m, out[m]) for m in sorted(out, key=_order) if out[m]))


def _degree(terms: Terms) -> int:
    """The largest number of factors of a term."""
    return max([sum([f.degree if isinstance(f, Operation) else 1 for f in m]) for m, _ in terms], default=0)


def _divide_exactly(a: Terms, m: Monomial, c: int) -> AnyDim | None:
    """a / (c·m) if every term of `a` is divisible, else None."""
    out = []
    for monomial, coefficient in a:
        rest = list(monomial)
        for atom in m:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % c:
            return None
        out.append((tuple(rest), coefficient // c))
    return _from(tuple(sorted(out, key=lambda t: _order(t[0]))))


def floordiv(a: AnyDim, b: AnyDim) -> AnyDim:
    """floor(a / b). Division by zero gives 0: it occurs only for empty tensors."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else 0
    if a == b:
        return 1
    divisor = _terms(b)
    if len(divisor) == 1:
        exact = _divide_exactly(_terms(a), *divisor[0])
        if exact is not None:
            return exact
    if isinstance(b, int) and b > 0:  # split off the terms that b divides
        whole = tuple((m, c // b) for m, c in _terms(a) if c % b == 0)
        if whole:
            rest = _from(tuple((m, c) for m, c in _terms(a) if c % b))
            return _from(whole) + floordiv(rest, b)
    return _operation("floordiv", a, b)


def ceildiv(a: AnyDim, b: AnyDim) -> AnyDim:
    return -((-a) // b) if isinstance(a, int) and isinstance(b, int) else floordiv(a + b - 1, b)


def truncdiv(a: AnyDim, b: AnyDim) -> AnyDim:
    """Integer division as in C and ONNX, which rounds towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        q = abs(a) // abs(b) if b else 0
        return q if (a < 0) == (b < 0) else -q
    lows = interval(a)[0], interval(b)[0]
    if all(low >= 0 for low in lows):
        return floordiv(a, b)
    same = compare("le", 0, a * b)
    return select(same, floordiv(absolute(a), absolute(b)), -floordiv(absolute(a), absolute(b)))


def absolute(a: AnyDim) -> AnyDim:
    return maximum(a, -a)


def _operation(op: str, *args: AnyDim) -> Dim:
    key = (op, *args)
    found = _operations.get(key)
    if found is None:
        found = _operations[key] = Operation(op, args)
    return Dim((((found,), 1),))


def maximum(a: AnyDim, b: AnyDim) -> AnyDim:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if _known("le", a, b) == 1:
        return b
    return a if _known("le", b, a) == 1 else _operation("max", a, b)


def minimum(a: AnyDim, b: AnyDim) -> AnyDim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if _known("le", a, b) == 1:
        return a
    return b if _known("le", b, a) == 1 else _operation("min", a, b)


def clamp(x: AnyDim, low: AnyDim, high: AnyDim) -> AnyDim:
    return minimum(maximum(x, low), high)


def select(condition: AnyDim, a: AnyDim, b: AnyDim) -> AnyDim:
    """a if the condition is non-zero, else b."""
    if isinstance(condition, int):
        return a if condition else b
    a, b = _chosen(a, condition, 1), _chosen(b, condition, 2)
    return a if a == b else _operation("select", condition, a, b)


def _chosen(x: AnyDim, condition: Dim, argument: int) -> AnyDim:
    """x where the condition is known: if it is a selection by this condition, that argument of it."""
    found = single_operation(x)
    return found.args[argument] if found and found.op == "select" and found.args[0] == condition else x


def compare(op: str, a: AnyDim, b: AnyDim) -> AnyDim:
    """`a op b` (lt, le, eq, ne, gt, ge) as 0 or 1, or as a Dim if it depends on symbols."""
    if op in ("gt", "ge"):
        return compare("lt" if op == "gt" else "le", b, a)
    if op == "ne":
        return 1 - compare("eq", a, b)
    known = _known(op, a, b)
    return _operation(op, a, b) if known is None else known


def _known(op: str, a: AnyDim, b: AnyDim) -> int | None:
    """`a op b` (lt, le, eq) as 0 or 1 if it holds for all values of the symbols, or for none."""
    low, high = interval(b - a)
    if op == "lt":
        return 1 if low > 0 else 0 if high <= 0 else None
    if op == "le":
        return 1 if low >= 0 else 0 if high < 0 else None
    return 1 if a == b else 0 if low > 0 or high < 0 else None


def at_least(x: AnyDim, low: AnyDim) -> AnyDim:
    """low <= x as 0 or 1, evaluated at run time even if the bound of x's symbol implies it: it checks that bound."""
    return _operation("le", low, x) if isinstance(x, Dim) else int(low <= x)


def _decide(op: str, a: AnyDim, b: AnyDim) -> bool:
    known = _known(op, a, b)
    if known is None:
        raise Undecided(f"whether {a} {op} {b} depends on the values of dims", a, b)
    return bool(known)


# ── intervals ─────────────────────────────────────────────────────────────────────────────────────────────────────


def interval(x: AnyDim) -> Interval:
    """Bounds (infinity: unbounded) that hold for all values of the symbols."""
    if isinstance(x, int):
        return x, x
    low: float = 0
    high: float = 0
    for m, c in x.terms:
        ends = [c * end for end in _monomial_interval(m)]
        low += min(ends)
        high += max(ends)
    return low, high


def _monomial_interval(m: Monomial) -> Interval:
    found: Interval = (1, 1)
    for factor in m:
        found = intervals.product(found, _factor_interval(factor))
    return found


def _factor_interval(factor: Symbol | Operation) -> Interval:
    if isinstance(factor, Operation):
        return factor.interval
    return -inf if factor.lower is None else factor.lower, inf


# ── shapes ────────────────────────────────────────────────────────────────────────────────────────────────────────

Shape = tuple[Any, ...]  # of AnyDim


def size(shape: Iterable[AnyDim]) -> Any:
    """Number of elements."""
    return prod(shape)  # prod works with Dims: it multiplies


def strides(shape: Sequence[AnyDim]) -> tuple[Any, ...]:
    """Row-major strides in elements."""
    out: list[Any] = []
    step: Any = 1
    for dim in reversed(shape):
        out.append(step)
        step = step * dim
    return tuple(reversed(out))


def is_static(shape: Iterable[AnyDim]) -> bool:
    return all(isinstance(d, int) for d in shape)


# ── evaluation and serialised form ────────────────────────────────────────────────────────────────────────────────

OPERATIONS: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "max": max,
    "min": min,
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "eq": lambda a, b: int(a == b),
    "select": lambda c, a, b: a if c else b,
}


def evaluate(x: AnyDim, env: Mapping[Symbol, int]) -> int:
    """The value of a dim for these values of its symbols."""
    if isinstance(x, int):
        return x
    values: dict[Operation, int] = {}
    return _evaluate(x, env, values)


def _evaluate(x: AnyDim, env: Mapping[Symbol, int], values: MutableMapping[Operation, int]) -> int:
    """The value of a dim. values: of operations whose value is known; the others are added."""
    for operation in operations(x, values):
        values[operation] = OPERATIONS[operation.op](*[_value(a, env, values) for a in operation.args])
    return _value(x, env, values)


def _value(x: AnyDim, env: Mapping[Symbol, int], values: Mapping[Operation, int]) -> int:
    if isinstance(x, int):
        return x
    total = 0
    for m, c in x.terms:
        for factor in m:
            c *= values[factor] if isinstance(factor, Operation) else env[factor]
        total += c
    return total


def estimate(x: AnyDim) -> int:
    """The value of a dim with 64 for every symbol: an estimate that decides which dims are large."""
    return x if isinstance(x, int) else _evaluate(x, dict.fromkeys(symbols(x), 64), _estimates)


_estimates: WeakKeyDictionary[Operation, int] = WeakKeyDictionary()


def symbols(x: AnyDim) -> frozenset[Symbol]:
    """The symbols in a dim."""
    if isinstance(x, int):
        return frozenset()
    own = frozenset([f for m, _ in x.terms for f in m if not isinstance(f, Operation)])
    return own.union(*[f.symbols for m, _ in x.terms for f in m if isinstance(f, Operation)])


def required_size(condition: AnyDim) -> tuple[Symbol, int] | None:
    """The symbol and its only value with which the condition holds, if it equates the symbol with an integer."""
    match _terms(condition):
        case (((Operation(op="eq", args=(a, b)),), 1),):
            match _terms(b - a):
                case (((), constant), ((Symbol() as symbol,), factor)) if constant % factor == 0:
                    return symbol, -constant // factor
    return None


def operations(x: AnyDim, known: Container[Operation] = ()) -> list[Operation]:
    """The operations in a dim, operands first, without those in `known` and the operations in their operands."""
    found: set[Operation] = set()
    todo = [x]
    while todo:
        d = todo.pop()
        if isinstance(d, Dim):
            new = {f for m, _ in d.terms for f in m if isinstance(f, Operation) and f not in found and f not in known}
            found |= new
            todo += [a for operation in new for a in operation.args]
    return sorted(found, key=lambda operation: operation.number)


def single_operation(x: AnyDim) -> Operation | None:
    """The operation of a dim that is nothing else."""
    if isinstance(x, Dim) and len(x.terms) == 1 and x.terms[0][1] == 1 and len(x.terms[0][0]) == 1:
        factor = x.terms[0][0][0]
        return factor if isinstance(factor, Operation) else None
    return None


def _show(m: Monomial, c: int) -> str:
    names = [f.text if isinstance(f, Operation) else str(f) for f in m]
    return "*".join(([str(c)] if c != 1 or not names else []) + names)
