"""`python -m fuzz.translation`: compares random functions in Python and in the JavaScript of scripts/javascript.

Each function is translated twice: as for a page, and so that it throws where JavaScript is known to differ (an index
past the end, a division by zero, an integer beyond 2 ** 53: docs/design/runtime.md). Where Python raises, the second
must throw; where the second gives a value, both must give Python's."""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.functions import Function
from scripts.javascript.translation import translate

ROOT = Path(__file__).parents[1]
BATCH = 200


@dataclass
class Example:
    """A function. text: of its module; arguments: of its calls"""

    name: str
    text: str
    arguments: list[list[Any]]


@dataclass
class Tally:
    """functions: that were translated; refused: that are outside of the subset; calls: that gave equal results; raised:
    calls that failed in both languages; outside: calls of which the checked JavaScript alone says that it differs;
    failures: by name, the function and its results"""

    functions: int = 0
    refused: int = 0
    calls: int = 0
    raised: int = 0
    outside: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"translation: {self.functions} functions: {len(self.failures)} wrong; {self.calls} calls equal, "
            f"{self.raised} fail in both, {self.outside} where JavaScript differs as documented; {self.refused} refused"
        )


def plain(value: Any) -> Any:
    """A value as JSON, with sets and dicts as run_functions.mjs takes and gives them."""
    if isinstance(value, set):
        return {"set": sorted(value)}
    if isinstance(value, dict):
        return {"map": [[k, plain(v)] for k, v in value.items()]}
    return [plain(x) for x in value] if isinstance(value, list | tuple) else value


def in_python(function: Function | Example, arguments: list[Any]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(function.text, names)
    try:
        return {"value": plain(names[function.name](*copy.deepcopy(arguments)))}
    except (ArithmeticError, LookupError, TypeError, ValueError) as e:
        return {"error": f"{type(e).__name__}: {e}"}


def run(functions: Sequence[Function | Example], tally: Tally) -> None:
    """Compares the functions, in one process of node."""
    with tempfile.TemporaryDirectory() as folder:
        files, refused = translated(functions, Path(folder))
        tally.refused += refused
        (Path(folder) / "web").mkdir()
        (Path(folder) / "web/common").symlink_to(ROOT / "web/common")
        (Path(folder) / "web/runtime").mkdir()
        for name, text in files.items():
            (Path(folder) / "web/runtime" / name).write_text(text)
        known = [f for f in functions if f"{f.name}.js" in files]
        calls = [(f, arguments) for f in known for arguments in f.arguments]
        tally.functions += len(known)
        command = ["node", "--preserve-symlinks", "--experimental-default-type=module", ROOT / "fuzz/run_functions.mjs"]
        sent = json.dumps([{"name": f.name, "arguments": plain(arguments)} for f, arguments in calls])
        found = subprocess.run(
            [*command, f"{folder}/web/runtime"], input=sent, capture_output=True, text=True, check=True, timeout=120
        )
        for (f, arguments), (page, checked) in zip(calls, json.loads(found.stdout), strict=True):
            if (wrong := _compare(f, arguments, page, checked, tally)) and f.name not in tally.failures:
                tally.failures[f.name] = f"{wrong}\n{files[f'{f.name}.js']}"


def translated(functions: Sequence[Function | Example], folder: Path) -> tuple[dict[str, str], int]:
    """Files by name, and how many functions were refused."""
    paths = {f.name: folder / f"{f.name}.py" for f in functions}
    for f in functions:
        paths[f.name].write_text(f.text)
    refused = 0
    while True:
        files, errors = translate(paths, checked=paths)
        if not any(": error: " in e for e in errors):
            return files, refused + len(errors)
        wrong = {m[1] for e in errors if (m := re.search(r"(\w+)\.py:\d+: error", e))}  # of types
        paths = {name: path for name, path in paths.items() if name not in wrong}
        refused += len(wrong)


def _compare(f: Function | Example, arguments: list[Any], page: Any, checked: Any, tally: Tally) -> str:
    """What is wrong, or ""."""
    want = in_python(f, arguments)
    text = json.dumps(want)
    if "error" in want and "error" in checked:
        tally.raised += 1
    elif checked.get("error", "").startswith("Differs"):
        tally.outside += 1
    elif json.dumps(checked) == text == json.dumps(page):
        tally.calls += 1
    else:
        return f"{f.text}\n{f.name}(*{arguments!r})\nPython {want}\npage {page}\nchecked {checked}\n"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.translation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally, end, index = Tally(), time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        run(draw(options.seed, index, BATCH), tally)
        index += BATCH
        print(tally, flush=True)
    print("\n".join([*tally.failures.values()][:10]))
    return 1 if tally.failures else 0


def draw(seed: int, first: int, count: int) -> list[Function]:
    return [Function(f"f{n}", random.Random(f"translation/{seed}/{n}")) for n in range(first, first + count)]


if __name__ == "__main__":
    sys.exit(main())
