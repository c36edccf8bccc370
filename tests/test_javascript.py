"""The translation of Python to JavaScript (scripts/javascript): both languages give the same results."""

from __future__ import annotations

import json
import subprocess
from inspect import iscoroutine
from pathlib import Path
from typing import Any

import pytest

from fuzz.translation import Example, Tally, draw, run
from pyruntime.api.text_batch import finished
from pyruntime.errors import PyRuntimeError
from scripts.javascript.translation import translate
from tests.javascript import subset

ROOT = Path(__file__).parents[1]
NODE = ["node", "--preserve-symlinks", "--experimental-default-type=module"]
CALL = {"node": "Add", "kernel": "k", "buffers": [], "params": [], "work": 1, "alloc": [], "free": [], "inplace": []}
STEPS = [{"op": "wasm", "fn": "run_1", "calls": [CALL, CALL], "fork": 3}, {"op": "read", "symbols": [], "free": []}]
KNOWN = {"map": {"a": 1}}  # a dict, where the others are JSON objects
CASES: list[list[Any]] = [
    *[["arithmetic", a, b] for a in (0, 1, 7, 64, 2**33 + 1) for b in (1, 2, 7)],
    *[["rates", a, b] for a in (0.5, -1.25, 9.0) for b in (1, 4)],
    *[["truths", n, text, items, {"map": known}, span] for n in (0, 1, 3) for text in ("", "x") for items in ([], [1])
      for known in ({}, {"a": 1}, {"b": 2}) for span in (False, True)],
    *[["comprehensions", items] for items in ([], [1], [2, 3, 3, 1], [9, 0, 4])],
    *[["orders", items] for items in ([3], [64, 1, 64, 9], [10, 9, 100])],
    *[["containers", items] for items in ([1], [5, 4, 3, 2], [2, 2])],
    *[["bounds", items] for items in ([1], [5, 4], [3, 3, 3])],
    *[["scopes", n] for n in range(7)],
    *[["closures", n] for n in (0, 4)],
    *[["texts", name, n, parts] for name in ("a-b", "") for n in (-1, 12) for parts in ([], ["az", "bz", "b`${c}"])],
    *[["counters", numbers] for numbers in ([], [1, 2, 2])],
    *[["kinds", x] for x in (1.5, 3, "3", [], {})],
    *[["json", CALL, STEPS[:n], names] for n in range(3) for names in ({}, {"s0": "batch", "s1": "length"})],
    *[["dims", d, {"map": env}] for d in (3, "s0", ["floordiv", "s0", 0], ["+", "s0", ["*", 2, "s1"]])
      for env in ({"s0": 5}, {"s0": 5, "s1": 2})],
    *[["keywords", values, by] for values in ([], [1, 2]) for by in (0, 3)],
    *[["assignments", items, by] for items in ([1, 2], [5, 4, 3]) for by in (0, 1)],
    *[["starts", sizes] for sizes in ([3, 1, 2], [1, 1])],
    *[["awaited", numbers] for numbers in ([], [2, 1, 0], [3, -1, 2], [1, -2], [1, -3])],
]  # fmt: skip


def in_python(case: list[Any]) -> Any:
    args = [a["map"] if isinstance(a, dict) and "map" in a else a for a in case[1:]]
    try:
        found = getattr(subset, case[0])(*args)
        return finished(found) if iscoroutine(found) else found
    except PyRuntimeError as e:
        return f"{type(e).__name__}: {e}"


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The translated module, beside links to those that it imports."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "common").symlink_to(ROOT / "web/common")
    files, errors = translate({"tests.javascript.subset": ROOT / "tests/javascript/subset.py"})
    assert errors == []
    (folder / "runtime").mkdir()
    for name, text in files.items():
        (folder / "runtime" / name).write_text(text)
    return folder / "runtime/subset.js"


def test_results(translated: Path) -> None:
    command = [*NODE, ROOT / "tests/javascript/run_subset.mjs", translated]
    found = subprocess.run(command, input=json.dumps(CASES), capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    expected = json.loads(json.dumps([in_python(c) for c in CASES]).replace("Infinity", '"inf"'))
    for case, result, want in zip(CASES, json.loads(found.stdout), expected, strict=True):
        assert result == want, case


def test_stacks_name_the_python(translated: Path) -> None:
    script = f"import('{translated.as_uri()}').then((m) => m.dims('s0', new Map()))"
    command = [*NODE, "--enable-source-maps", "-e", script]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (ROOT / "tests/javascript/subset.py").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "raise ShapeError" in text)
    assert f"subset.py:{line}" in found.stderr


REFUSED = [
    ("class A:\n    pass\nclass B(A):\n    pass", 3, "B inherits"),
    (
        "def f(x: int) -> int:\n    try:\n        return x\n    except ValueError:\n        return 0",
        4,
        "a handler of anything but Exception",
    ),
    (
        "async def g() -> int:\n    return 1\nasync def f() -> list[int]:\n    return [await g() for _ in range(2)]",
        4,
        "await in a comprehension",
    ),
    ("def f(x: set[int]) -> list[int]:\n    return [n for n in x]", 2, "the order of a set"),
    ("def f(x: set[int]) -> int:\n    for n in x:\n        return n\n    return 0", 2, "the order of a set"),
    ("def f(x: set[str]) -> str:\n    return ', '.join(x)", 2, "the order of a set"),
    ("def f(x: list[int]) -> int:\n    for n in x:\n        pass\n    return n", 4, "n is read after the loop"),
    ("def f(x: list[int], n: int) -> int:\n    for n in x:\n        pass\n    return n", 4, "n is read after the loop"),
    (
        "def g() -> int:\n    return 1\ndef f(x: int) -> bool:\n    return 0 < g() < x",
        4,
        "a chain of comparisons with a call",
    ),
    (
        "def f(x: tuple[int, int], y: list[int]) -> bool:\n    return x == y  # type: ignore",
        2,
        "== of a list and a tuple",
    ),
    ("def f(x: tuple[int, int], y: tuple[int, int]) -> bool:\n    return x < y", 2, "the order of list"),
    ("def f(x: list[list[int]]) -> list[list[int]]:\n    return sorted(x)", 2, "sorted() of list"),
    ("def f(x: list[str]) -> str:\n    return min(x)", 2, "min() of anything but numbers"),
    ("def f(x: list[int]) -> int:\n    return min(x, key=lambda n: -n)", 2, "min() of anything but numbers"),
    ("def f(x: float, y: float) -> float:\n    return x % y", 2, "Mod of numbers with fractions"),
    ("def f(x: float) -> float:\n    return x // 2", 2, "FloorDiv of numbers with fractions"),
    ("def f(x: int, y: int) -> int:\n    return x & y", 2, "BitAnd of numbers"),
    ("def f(x: int) -> int:\n    return ~x", 2, "Invert of number"),
    ("def f(x: int, y: bool) -> bool:\n    return x == y", 2, "== of boolean and number"),
    ("def f(x: int, y: int) -> bool:\n    return x is y", 2, "`is` of numbers or texts"),
    ("def f(x: int) -> int:\n    return len({(x, 1), (x, 2)})", 2, "keys of list are compared by identity"),
    ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int", 3, "A compares by value"),
    (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: int\n"
        "def f(x: A, y: list[A]) -> bool:\n    return x in y",
        6,
        "`in` for an object",
    ),
    (
        "def g() -> int:\n    return 0\ndef f(x: list[int]) -> None:\n    x[g()] += 1",
        4,
        "a call in the place of an assignment",
    ),
    ("def f(x: str) -> str:\n    return x.replace('', '-')", 2, "the method replace of string without a text"),
    ("def f(x: int | None) -> str:\n    return f'{x}'", 2, "an f-string of anything but an integer"),
    ("def f(x: float) -> str:\n    return f'{x:.2f}'", 2, "an f-string of anything but an integer"),
    ("def f(x: bytes) -> int:\n    return x[0]", 2, "a subscript of object"),
]


def test_refused(tmp_path: Path) -> None:
    paths = {f"module_{n}": tmp_path / f"module_{n}.py" for n in range(len(REFUSED))}
    for path, (text, *_) in zip(paths.values(), REFUSED, strict=True):
        path.write_text(text)
    files, errors = translate(paths)
    assert files == {}
    for path, (_, line, why), error in zip(paths.values(), REFUSED, errors, strict=True):
        assert error.startswith(f"{path}:{line}: ") and why in error, error


# Functions of one expression or a few statements, with the arguments of calls.
MEANINGS: list[tuple[str, list[list[Any]]]] = [
    ("def f(x: int, y: int) -> list[int]:\n    return [x // y, x % y, -x // y, -x % y]", [[7, 2], [7, -2], [2**52, 3]]),
    ("def f(x: float) -> list[bool]:\n    return [x % 1 != 0, x < 1.5]", [[0.5], [-0.25], [3.0]]),
    ("def f(x: float, y: float, z: float) -> float:\n    return x + (y + z)", [[0.1, 0.2, 0.3]]),
    ("def f(x: int, y: int, z: int) -> list[int]:\n    return [x - (y - z), x * (y // z), -(x - y)]", [[7, 5, 2]]),
    ("def f(x: list[int], y: int) -> list[int]:\n    return x[y:] + x[:y]", [[[1, 2, 3], n] for n in (-9, -1, 0, 9)]),
    ("def f(x: list[int]) -> int:\n    return x[-1]", [[[1, 2]], [[]]]),
    ("def f(x: int, y: int) -> float:\n    return x / y", [[1, 4], [1, 0]]),
    ("def f(x: dict[str, int]) -> list[str]:\n    del x['a']\n    return list(x)", [[{"a": 1}], [{}]]),
    ("def f(x: list[int], y: int) -> list[int]:\n    del x[y]\n    return [x.pop(y), *x]",
     [[[1, 2, 3], n] for n in (0, -2, -4, 3)]),
    ("def f(x: int) -> str:\n    if x > 1:\n        y = 'a'\n    else:\n        y = 'b'\n    y += 'c'\n    return y",
     [[1], [2]]),
    ("def f(x: str, y: str) -> list[str]:\n    return [x.replace('a', '$&'), x.replace('a', str(int(y)))]",
     [["aa", "$&"], ["aa", "7"], ["b", "x"]]),
    ("def f(x: list[int]) -> int:\n    return x.index(3)", [[[1, 3]], [[]]]),
    ("def f(x: str) -> int:\n    return int(x)", [[t] for t in ("12", " -3 ", "x", "", "1.5", "1_0", "_1")]),
    ("def f(x: int) -> list[int]:\n    return [0] * x", [[2], [0], [-1]]),
    ("def f(x: list[int], y: list[int]) -> list[int]:\n    return [a * b for a, b in zip(x, y, strict=True)]",
     [[[1], [2]], [[1], []]]),
    ("def f(x: list[int]) -> bool:\n    return not x and not len(x) and not [n for n in x if n]", [[[]], [[0]]]),
    ("def f(x: int, y: int) -> bool:\n    return 0 < x < y <= 9", [[1, 2], [0, 2], [3, 10]]),
    ("def f(x: list[list[int]], y: list[list[int]]) -> bool:\n    return x == y", [[[[1]], [[1]]], [[[1]], [[2]]]]),
    ("def f(x: tuple[int, int]) -> bool:\n    return x == (1, 2)", [[(1, 2)], [(2, 1)]]),
    ("def f(x: list[int]) -> list[int]:\n    return sorted(x, key=lambda n: n % 3)", [[[5, 3, 2, 9, 8, 0, 6, 1]]]),
    ("def f(x: list[str]) -> list[str]:\n    return sorted(x)", [[["b", "B", "a", "\u00e9", ""]]]),
    ("def f(x: str, y: list[str], z: dict[str, int]) -> list[bool]:\n    return [x in 'abc', x in y, x in z]",
     [["b", ["b"], {"b": 0}], ["", [], {}]]),
    ("def f(x: dict[str, int]) -> list[str]:\n    x['b'] = x.pop('a')\n    x['a'] = 2\n    return list(x)",
     [[{"a": 1, "c": 3}], [{"b": 1, "a": 0}]]),
    ("def f(x: int | None) -> bool:\n    return x is None or x is not None and x > 1", [[None], [1], [2]]),
    ("def f(x: str) -> list[str]:\n    return [c for c in x]", [["a\U0001f600b"]]),
    ("def f(x: list[int]) -> list[int]:\n    for n in x:\n        if n < 3:\n            x.append(n + 1)\n    return x",
     [[[0]], [[5]]]),
]  # fmt: skip
# Likewise; JavaScript does not do what Python does, and docs/design/runtime.md says so.
DIFFERENCES: list[tuple[str, list[list[Any]]]] = [
    ("def f(x: list[int], y: int) -> int:\n    return x[y]", [[[1, 2], -1]]),
    ("def f(x: int) -> int:\n    return x * x", [[2**40]]),
    ("def f(x: list[int]) -> int:\n    return sum(x)", [[[2**53 - 1, 2]]]),
    ("def f(x: list[int], y: int) -> list[int]:\n    x[y] = 5\n    return x", [[[1, 2], -1]]),
    ("def f(x: str, y: str) -> list[str]:\n    return x.split(y) if y else x.replace(y, '-').split(',')", [["ab", ""]]),
]  # fmt: skip


def compared(rows: list[tuple[str, list[list[Any]]]]) -> Tally:
    tally = Tally()
    run([Example(f"row{n}", text.replace("f(", f"row{n}(", 1), calls) for n, (text, calls) in enumerate(rows)], tally)
    assert not tally.failures and not tally.refused, "\n".join(tally.failures.values())
    return tally


def test_meanings() -> None:
    assert compared(MEANINGS).outside == 0


def test_differences() -> None:
    assert compared(DIFFERENCES).outside == sum(len(calls) for _, calls in DIFFERENCES)


def test_random_functions() -> None:
    """A fixed part of `python -m fuzz.translation`."""
    tally = Tally()
    run(draw(7, 0, 60), tally)
    assert not tally.failures, "\n".join(tally.failures.values())
    assert tally.functions > 45 and tally.calls > 120, tally
