"""Dims: Python ints, or `Dim`, an integer expression over symbols in canonical (polynomial) form.

Arithmetic of Dims gives an int wherever the result is constant, so code written with plain arithmetic works for both.
`==` is structural: equal polynomials are equal for all values. An ordering that depends on the values raises
`Undecided`; use `compare`, `select`, `minimum` and `maximum` where it may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import inf, prod
from typing import Any

from pyruntime.errors import NeedsValue, PyRuntimeError
from pyruntime.ir.symbol import DIM, Symbol

Atom = tuple[Any, ...]  # a Symbol, or (op, operand, operand, …) with op in _EVAL
Monomial = tuple[Any, ...]  # atoms in canonical order; () is the constant term
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

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __repr__(self) -> str:
        return " + ".join(_show(m, c) for m, c in self.terms) or "0"

    def __add__(self, other: Any) -> Any:
        return _from(_merge(self.terms, _terms(other), 1))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return _from(_merge(self.terms, _terms(other), -1))

    def __rsub__(self, other: Any) -> Any:
        return _from(_merge(_terms(other), self.terms, -1))

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


def _from(terms: Terms) -> AnyDim:
    if not terms:
        return 0
    if len(terms) == 1 and terms[0][0] == ():
        return terms[0][1]
    return Dim(terms)


@lru_cache(maxsize=4096)
def _multiply(a: AnyDim, b: AnyDim) -> AnyDim:
    out: dict[Monomial, int] = {}
    for ma, ca in _terms(a):
        for mb, cb in _terms(b):
            m = tuple(sorted(ma + mb, key=repr))
            out[m] = out.get(m, 0) + ca * cb
    return _from(tuple((m, out[m]) for m in sorted(out, key=_order) if out[m]))


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
    return _atom("floordiv", a, b)


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


def _atom(op: str, *args: AnyDim) -> Dim:
    made = Dim((((((op, *args),)), 1),))
    if _parts(made) > MOST_PARTS and all(s.is_extent for s in symbols(made)):
        raise Undecided("a dim is too long an expression of other dims", made)
    return made


MOST_PARTS = 256
"""Largest number of operations in a dim; published models have up to 19. If each dim contains the previous one twice,
the tree doubles each time: nine Splits in a row took 12 s. A model with larger dims is compiled for the dims of its
feeds."""


@lru_cache(maxsize=4096)
def _parts(x: AnyDim) -> int:
    """Number of operations in `x`, counting each occurrence."""
    if isinstance(x, int):
        return 0
    return sum(1 if isinstance(atom, Symbol) else 1 + sum(map(_parts, atom[1:])) for m, _ in x.terms for atom in m)


def maximum(a: AnyDim, b: AnyDim) -> AnyDim:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if compare("le", a, b) == 1:
        return b
    return a if compare("le", b, a) == 1 else _atom("max", a, b)


def minimum(a: AnyDim, b: AnyDim) -> AnyDim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if compare("le", a, b) == 1:
        return a
    return b if compare("le", b, a) == 1 else _atom("min", a, b)


def clamp(x: AnyDim, low: AnyDim, high: AnyDim) -> AnyDim:
    return minimum(maximum(x, low), high)


def select(condition: AnyDim, a: AnyDim, b: AnyDim) -> AnyDim:
    """a if the condition is non-zero, else b."""
    if a == b:
        return a
    if isinstance(condition, int):
        return a if condition else b
    return _atom("select", condition, a, b)


def compare(op: str, a: AnyDim, b: AnyDim) -> AnyDim:
    """`a op b` (lt, le, eq, ne, gt, ge) as 0 or 1, or as a Dim if it depends on symbols."""
    if op in ("gt", "ge"):
        return compare("lt" if op == "gt" else "le", b, a)
    if op == "ne":
        return 1 - compare("eq", a, b)
    low, high = interval(b - a)
    if op == "lt":
        known = 1 if low > 0 else 0 if high <= 0 else None
    elif op == "le":
        known = 1 if low >= 0 else 0 if high < 0 else None
    else:
        known = 1 if a == b else 0 if low > 0 or high < 0 else None
    return _atom(op, a, b) if known is None else known


def at_least(x: AnyDim, low: AnyDim) -> AnyDim:
    """low <= x as 0 or 1, evaluated at run time even if the bound of x's symbol implies it: it checks that bound."""
    return _atom("le", low, x) if isinstance(x, Dim) else int(low <= x)


def _decide(op: str, a: AnyDim, b: AnyDim) -> bool:
    known = compare(op, a, b)
    if isinstance(known, Dim):
        raise Undecided(f"whether {a} {op} {b} depends on the values of dims", a, b)
    return bool(known)


# ── intervals ─────────────────────────────────────────────────────────────────────────────────────────────────────


def interval(x: AnyDim) -> tuple[float, float]:
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


def _monomial_interval(m: Monomial) -> tuple[float, float]:
    low: float = 1
    high: float = 1
    for atom in m:
        lo, hi = _atom_interval(atom)
        if low == high == 1:
            low, high = lo, hi
        elif lo < 0 or low < 0:
            return -inf, inf
        else:
            low, high = low * lo, inf if inf in (high, hi) else high * hi
    return low, high


def _atom_interval(atom: Atom) -> tuple[float, float]:
    if isinstance(atom, Symbol):
        return -inf if atom.lower is None else atom.lower, inf
    op = atom[0]
    if op in ("lt", "le", "eq"):
        return 0, 1
    (a, b), (c, d) = (interval(x) for x in atom[-2:])
    if op == "select":
        return min(a, c), max(b, d)
    if op == "max":
        return max(a, c), max(b, d)
    if op == "min":
        return min(a, c), min(b, d)
    if op == "floordiv" and c > 0 and a > -inf:
        return (0 if a >= 0 else a), (inf if b == inf else max(b, 0) // c)
    return -inf, inf


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

_EVAL: dict[str, Callable[..., int]] = {
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
    total = 0
    for m, c in x.terms:
        for atom in m:
            if isinstance(atom, Symbol):
                c *= env[atom]
            else:
                c *= _EVAL[atom[0]](*(evaluate(a, env) for a in atom[1:]))
        total += c
    return total


def estimate(x: AnyDim, hint: int = 64) -> int:
    """The value of a dim with `hint` for every symbol: an estimate that decides which dims are large."""
    return x if isinstance(x, int) else evaluate(x, dict.fromkeys(symbols(x), hint))


def symbols(x: AnyDim) -> set[Symbol]:
    """The symbols in a dim."""
    if isinstance(x, int):
        return set()
    out: set[Symbol] = set()
    for m, _ in x.terms:
        for atom in m:
            if isinstance(atom, Symbol):
                out.add(atom)
            else:
                out.update(*(symbols(a) for a in atom[1:]))
    return out


def to_json(x: AnyDim, name: Callable[[Symbol], str]) -> Any:
    """int | "symbol" | [op, operand, …] with op in + * floordiv max min lt le eq select. `name` names the symbols."""
    if isinstance(x, int):
        return x
    parts = []
    for m, c in x.terms:
        factors: list[Any] = [
            name(atom) if isinstance(atom, Symbol) else [atom[0], *[to_json(a, name) for a in atom[1:]]] for atom in m
        ]
        if c != 1 or not factors:
            factors.insert(0, c)
        parts.append(factors[0] if len(factors) == 1 else ["*", *factors])
    return parts[0] if len(parts) == 1 else ["+", *parts]


def _show(m: Monomial, c: int) -> str:
    names = [str(a) if isinstance(a, Symbol) else f"{a[0]}({', '.join(map(str, a[1:]))})" for a in m]
    return "*".join(([str(c)] if c != 1 or not names else []) + names)
