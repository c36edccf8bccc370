"""The translation of Python to JavaScript (scripts/javascript): both languages give the same results."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

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
    *[["pairs", a, b] for a in ([], [1, 2]) for b in ([], [3], [3, 4])],
    *[["inherited", size] for size in (1, 3)],
    *[["packed", text, number, size] for text in ("a", "aé😀", "12345678")
      for number, size in ((0, 1), (2**40 + 1, 6))],
    *[["words", text, parts, share] for text in ("", "aB=c=9", "999", "ÄaSS=") for parts in ([], [3, 4])
      for share in (0.125, 2.5, 3.5, 1e22, 0.05, -0.0, 1 / 3, 0.15)],
    *[["numbers", text] for text in ("12", " -3 ", "x", "", "1.5", "inf", "7", "1e3", ".5", "0x10")],
    *[["described", text, names] for text in ("", "{", '{"a": [1, null, true]}', "3") for names in ([], ["x", "é"])],
]  # fmt: skip


def in_python(case: list[Any]) -> Any:
    args = [a["map"] if isinstance(a, dict) and "map" in a else a for a in case[1:]]
    try:
        return getattr(subset, case[0])(*args)
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
    ("def f(x: list[int]) -> bool:\n    return (1, 2) in [(1, 2)]", 2, "`in` a list of list"),
    ("def f(x: dict[tuple[int, int], int]) -> int:\n    return len(x)", 1, "keys of map are compared by identity"),
    ("def f(x: list[list[int]]) -> bool:\n    return any(x)", 2, "any() of containers"),
    ("def f(x: list[int]) -> list[int]:\n    return sorted(x, reverse=True)", 2, "sorted(reverse=…)"),
    ("def f(x: dict[str, int | None]) -> int | None:\n    return x.get('a', 1)", 2, "get() of values that may be None"),
    ("def f(x: float) -> str:\n    return str(x)", 2, "str() of anything but an integer"),
    ("def f(x: float) -> str:\n    return f'{x}'", 2, "an f-string of anything but an integer"),
    ("def f(x: str) -> list[str]:\n    return x.split()", 2, "the method split of string"),
    (
        "def f(x: int) -> int:\n    while x > 3:\n        x -= 1\n    else:\n        x = 0\n    return x",
        2,
        "while … else",
    ),
    ("def f(x: int) -> None:\n    for n in range(x):\n        n = 2", 2, "the loop assigns its variable n"),
    ("def f(x: int) -> int:\n    return x + 9007199254740993", 2, "an integer beyond 2 ** 53"),
    ("class A:\n    def __init__(self) -> None:\n        self.a = self.b = [1]", 3, "an assignment to several places"),
    (
        "def f(x: int) -> int:\n    try:\n        return x\n    except KeyError:\n        return 0",
        2,
        "except of anything but ValueError",
    ),
    ("class A:\n    pass\nclass C:\n    pass\nclass B(A, C):\n    pass", 5, "B inherits"),
    (
        "class A:\n    pass\nclass B(A):\n    def __init__(self) -> None:\n        x = 1\n        super().__init__()",
        4,
        "does not begin with super().__init__()",
    ),
    ("def f(x: list[int], a: int) -> list[int]:\n    return sorted(x, key=lambda n: n * a)", 2, "uses a variable a"),
    ("def f(x: list[int]) -> list[tuple[int, int, int]]:\n    return list(zip(x, x, x))", 2, "zip() of 3"),
    ("def f(x: list[int] = []) -> list[int]:\n    return x", 1, "is made once in Python"),
    ("def f(*x: int) -> int:\n    return x[0]", 1, "the parameter *x"),
    ("def f(x: str) -> bytes:\n    return x.encode('latin-1')", 2, "the method encode of string"),
    ("def f(x: dict[bytes, int]) -> int:\n    return len(x)", 1, "compared by identity"),
    ("def f(x: bytes) -> bool:\n    return x == b'a'", 2, "== of bytes"),
    ("import json\ndef f(x: dict[str, int]) -> str:\n    return json.dumps(x)", 3, "json.dumps() of anything but"),
    ("def f(x: list[int]) -> bool:\n    return x == {}  # type: ignore", 2, "== of list and map"),
    ("def f(x: int, y: int) -> int:\n    return x or y", 2, "the value of `or` is no bool"),
    ("def f(x: int | None) -> int:\n    return 1 if x else 0", 2, "a condition that is None or number"),
    ("def f(x: list[float]) -> str:\n    return f'{x}'", 2, "an f-string of anything but an integer or text"),
    ("def f(x: int) -> int:\n    return round(x)", 2, "round() is not in the subset"),
    ("def f(x: str) -> str:\n    return x.title()", 2, "the method title of string"),
    ("import os\ndef f() -> str:\n    return os.sep", 3, "sep does not exist in JavaScript"),
]


def test_refused(tmp_path: Path) -> None:
    paths = {f"module_{n}": tmp_path / f"module_{n}.py" for n in range(len(REFUSED))}
    for path, (text, *_) in zip(paths.values(), REFUSED, strict=True):
        path.write_text(text)
    files, errors = translate(paths)
    assert files == {}
    for path, (_, line, why), error in zip(paths.values(), REFUSED, errors, strict=True):
        assert error.startswith(f"{path}:{line}: ") and why in error, error
