"""All constructs that scripts/javascript translates. tests/test_javascript.py runs each function in both languages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyruntime.errors import ShapeError
from pyruntime.program.dims import Env, compile_dim, symbols
from pyruntime.program.types import Call, Dim, Step

LARGE = 1 << 40
MOST = 2**53
NAMES: dict[str, int] = {"a": 1, "b": 2}


class Counter(Protocol):
    """What counts."""

    @property
    def count(self) -> int: ...

    def add(self, number: int) -> None: ...


@dataclass(eq=False, slots=True)
class Span:
    """A range of bytes."""

    address: int
    size: int = 64
    owners: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.address + self.size

    def moved(self, by: int = 1) -> Span:
        return Span(self.address + by, self.size, owners=self.owners)


class Sum:
    """A counter."""

    def __init__(self, start: int = 0) -> None:
        self.count = start
        self.last: int | None = None
        self._steps: dict[int, list[int]] = {}

    def add(self, number: int) -> None:
        self.count += number
        self.last = number
        self._steps.setdefault(number, []).append(self.count)

    def steps(self) -> list[list[int]]:
        return [[n, *counts] for n, counts in self._steps.items()]

    @staticmethod
    def of(numbers: list[int]) -> Sum:
        made = Sum()
        for n in numbers:
            made.add(n)
        return made


def count_twice(counter: Counter, number: int) -> int:
    counter.add(number)
    counter.add(number)
    return counter.count


def arithmetic(a: int, b: int) -> list[int]:
    rounded = -(-a // b) * b
    return [
        a // b,
        a % b,
        -a % b,
        a - (b - a),
        (a + b) * 2,
        rounded,
        abs(a - b),
        min(a, b),
        max(a, b, 3),
        LARGE // b,
        MOST,
    ]


def rates(a: float, b: int) -> list[float]:
    best = math.inf
    for n in range(1, b):
        best = min(best, a / n)
    return [best, a * 2.5, math.floor(a), math.ceil(a), int(a)]


def truths(n: int, text: str, items: list[int], known: dict[str, int], span: bool) -> list[bool]:
    thing = Span(1) if span else None
    found = [not n, bool(text), not items, bool(known), not thing, thing is None]
    if n and text and (items or known) and not (n == 3 or thing):
        found.append(True)
    return [*found, 0 < n < 3, n not in items, "a" in known and known["a"] == 1, text in ("x", "y")]


def comprehensions(items: list[int]) -> list[Any]:
    pairs: list[tuple[int, int]] = [(n, x) for n, x in enumerate(items) if x > 1]
    squares = {n: x * x for n, x in pairs}
    unique = {x % 2 for x in items}
    flat = [a * b for a in items for b in range(a) if b]
    total = sum(x for x in items if x > 1)
    return [
        [n + x for n, x in pairs], sorted(squares.values()), sorted(unique), flat, total, any(x == 2 for x in items),
        all(x > 0 for x in items if x != 9), max((x for x in items), default=-1), len(squares), [x for x, _ in pairs],
        list(reversed(items)), [a + b for a, b in zip(items, items[1:], strict=False)], math.prod(items),
    ]  # fmt: skip


def orders(sizes: list[int]) -> list[list[int]]:
    spans = [Span(n, size) for n, size in enumerate(sizes)]
    largest = sorted(spans, key=lambda s: (-s.size, s.address))
    ends = sorted([(s.end, s.address) for s in spans])
    best = largest[-1]
    return [[s.address for s in largest], [a for _, a in ends], sorted(sizes), [best.address, best.moved().end]]


def containers(items: list[int]) -> list[Any]:
    known: dict[int, list[int]] = {}
    for x in items:
        known.setdefault(x % 3, []).append(x)
    copy = {**known, 7: [7]}
    copy |= {8: []}
    first = copy.pop(7)
    del copy[8]
    seen = set(items)
    seen.add(100)
    seen.discard(items[0])
    more = seen | {5} - {6}
    last = items.copy()
    last.insert(1, 50)
    last.extend([60, 61])
    removed = last.pop()
    return [
        [[k, *v] for k, v in copy.items()], first, sorted(seen), sorted(more), seen <= more, {1, 2}.isdisjoint(seen),
        last, removed,
        last[-1], last[1:3], last[2:], copy.get(99), len(copy.get(0, [])), [0] * 3,
    ]  # fmt: skip


def scopes(n: int) -> list[int]:
    found = []
    if n > 2:
        value = n * 2
    else:
        value = n
    for i in range(n):
        value += i
        twice = value
        twice *= 2
        found.append(twice)
    x, y = value, n
    x, y = y, x
    while x < 10:
        x += 1
        if x == 5:
            continue
        if x > 8:
            break
    for n in found:
        y += n
    return [*found, x, y, value]


def closures(limit: int) -> list[int]:
    calls: list[int] = []

    def visit(n: int) -> int:
        calls.append(n)
        return 1 if n == 0 else n * visit(n - 1)

    double: Callable[[int], int] = lambda n: n * 2  # noqa: E731
    return [visit(limit), double(limit), *calls]


def bounds(items: list[int]) -> list[Any]:
    grown = list(items)
    for n in range(len(grown)):
        grown.append(grown[n] + n)
    pair: Any = grown[:2]
    return [grown, pair == list(items), pair == [items[0], 2 * items[0]], float(len(items)) / 2, 1.5]


def texts(name: str, n: int, parts: list[str]) -> list[str]:
    quoted = f'{name}: {n} "bytes" of {", ".join(parts)}, {n + 1}'
    return [
        quoted,
        name + "!",
        f"É{name}".lower(),
        str(n),
        f"{name}",
        *(p for p in parts if p.startswith("a") or not p.endswith("z")),
        *(f"{p.find('a')} {p.find('')} {p.replace('a', '$&')}" for p in [*parts, "abab", ""]),
        *name.split("-"),
    ]


def kinds(x: Any) -> list[bool]:
    """Of a JSON value."""
    return [isinstance(x, bool), isinstance(x, int) or isinstance(x, float), isinstance(x, str), isinstance(x, dict)]


def counters(numbers: list[int]) -> list[Any]:
    made = Sum.of(numbers)
    last = -1 if made.last is None else made.last
    return [count_twice(made, 3), last, made.steps()]


def json(call: Call, steps: list[Step], names: Mapping[str, str]) -> Mapping[str, Any]:
    codes = [c["kernel"] for s in steps if "calls" in s for c in s["calls"]]
    forks = [s.get("fork", 0) for s in steps if s["op"] == "wasm"]
    return {
        "node": call["node"],
        "codes": codes,
        "forks": forks,
        "name": names.get("s0", ""),
        "none": names.get("s9", "many" if len(names) > 99 else "few"),
        **names,
        "has": "s1" in names,
    }


def dims(d: Dim, env: Env) -> list[Any]:
    needed = symbols(d)
    if not needed <= env.keys():
        raise ShapeError(f"{len(needed)} symbols", node="N", hint="bind them")
    return [compile_dim(d)(env), sorted(needed)]


def scaled(values: list[int], factor: int = 2, *, by: int = 1, offset: int = 0) -> list[int]:
    return [x * factor * by + offset for x in values]


def weighted(name: str, *, weight: int, is_new: bool) -> str:
    return f"{name}:{weight if is_new else -weight}"


@dataclass(eq=False, slots=True, kw_only=True)
class Settings:
    """Built by keyword alone."""

    rate: float
    default: int = 3
    names: list[str] = field(default_factory=list)

    def described(self, *, short: bool = False) -> str:
        return self.names[0] if short else f"{', '.join(self.names)} {self.default}"


def keywords(values: list[int], by: int) -> list[Any]:
    made = Settings(names=["a", "b"], rate=0.5)
    made.default += by
    ends: Callable[[int], int] = lambda n: n + by  # noqa: E731
    return [
        scaled(values), scaled(values, 3), scaled(values, by=by), scaled(values, offset=1, factor=by, by=4),
        scaled(factor=4, values=values), weighted("w", is_new=by > 1, weight=by), made.described(),
        made.described(short=True), made.rate, ends(1),
    ]  # fmt: skip


def assignments(items: list[int], by: int) -> list[Any]:
    """Places whose text contains `set(`."""

    def offset(n: int) -> int:
        return n + by - by

    known: dict[int, int] = {}
    items[offset(0)] = 10
    items[1] %= 2
    known[offset(5)] = known[7] = by
    return [items, [[k, v] for k, v in known.items()]]


@dataclass(eq=False, slots=True)
class Range:
    start: int
    n: int = 0


def starts(sizes: list[int]) -> list[Any]:
    """Keys whose properties have the name of the parameter."""
    ranges = [Range(size, n) for n, size in enumerate(sizes)]
    rising = sorted(ranges, key=lambda start: (start.start, -start.n))
    falling = sorted(ranges, key=lambda n: -n.n)
    return [[r.n for r in rising], [r.n for r in falling]]


class Waiter:
    """What is awaited in pages, and pending nowhere else."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def number(self, n: int) -> int:
        self.log.append(f"number {n}")
        if n < 0:
            raise ShapeError(f"negative {n}")
        return n

    async def attempt(self, n: int) -> int:
        try:
            return await self.number(n) + 1
        except Exception:
            self.log.append("caught")
            if n < -1:
                return await self.again(n)
        finally:
            self.log.append("finally")
        return 0

    async def again(self, n: int) -> int:
        found = 0
        try:
            found = await self.number(n)
        except Exception as error:
            self.log.append("again")
            if n < -2:
                raise
            if n == -2:
                raise ShapeError(f"{n} after an error") from None
            self.log.append("never" if error is None else "an error")
        return found


async def awaited(numbers: list[int]) -> list[Any]:
    waiter, found = Waiter(), 0

    async def add(n: int) -> None:
        waiter.log.append(f"add {await waiter.attempt(n)}")

    for n in numbers:
        await add(n)
        if n > 0 and await waiter.number(n) > 1:
            found += await waiter.number(2 * n)
    return [found, *waiter.log]
