"""Durations of tests: conftest.py records them in build/durations.json, this module reads them.

`python -m kit.durations` prints the sums of the last runs and the dearest test functions. `--write` updates
tests/slow.txt, the list of functions that `make quick` leaves out. Processor time is what counts: it hardly depends on
what else the machine does. It includes processes that a test starts, the browser's too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "build" / "durations.json"
SLOW = ROOT / "tests" / "slow.txt"
IN_CHECK = "tests/test_house.py"  # `make check` runs all of it, and `make quick` runs `make check`
SLOW_FROM = 0.5  # seconds of processor time of a function's first case, from which it is slow
DEAREST = 20
TICKS = os.sysconf("SC_CLK_TCK")


class Duration(TypedDict):
    """Of all cases of a test function in the run that recorded it last. processor, elapsed: seconds; first: seconds of
    processor time of the first case, with the fixtures that it sets up."""

    cases: int
    processor: float
    elapsed: float
    first: float


def processor_time() -> float:
    """Seconds that this process and its descendants have used. Where /proc is missing, living descendants are left
    out."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (
        sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_ticks, _descendants(os.getpid()))) / TICKS
    )


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    border = [process]
    while border:
        tasks = f"/proc/{border.pop()}/task"
        children: list[int] = []
        # A thread or a process may end at any time.
        with suppress(OSError):
            for task in os.listdir(tasks):
                with suppress(OSError):
                    children += map(int, Path(tasks, task, "children").read_text().split())
        found += children
        border += children
    return found


def _ticks(process: int) -> int:
    """Processor time of a process and of those children of it that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended, and its parent's usage includes it
    return sum(map(int, fields[11:15]))


def read(path: Path = RECORD) -> dict[str, Duration]:
    """Test function (file::name) -> its duration."""
    return json.loads(path.read_text()) if path.exists() else {}


def merge(new: Mapping[str, Duration], path: Path = RECORD) -> None:
    """Adds durations to those of earlier runs. A run of some cases of a function does not replace a run of more."""
    durations = read(path)
    for name, duration in new.items():
        if name not in durations or duration["cases"] >= durations[name]["cases"]:
            durations[name] = duration
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(durations, indent=0, sort_keys=True) + "\n")


def dearest(durations: Mapping[str, Duration], count: int = DEAREST) -> Iterable[str]:
    """A line for each of the dearest functions, after one with the sums of all."""
    total = sum(duration["processor"] for duration in durations.values())
    cases = sum(duration["cases"] for duration in durations.values())
    yield f"{cases} cases took {total / 60:.1f} minutes of processor time; the dearest functions, in seconds:"
    ranked = sorted(durations.items(), key=lambda item: item[1]["processor"], reverse=True)
    for name, duration in ranked[:count]:
        yield f"{duration['processor']:8.1f}  {duration['cases']:5} cases  {name}"


def slow() -> set[str]:
    """The functions that `make quick` leaves out."""
    lines = SLOW.read_text().splitlines()
    return {line.split()[1] for line in lines if line and not line.startswith("#")}


def write_slow(durations: Mapping[str, Duration]) -> None:
    """Updates tests/slow.txt: functions without a recorded duration stay if they still exist."""
    kept = [line for line in SLOW.read_text().splitlines() if line and not line.startswith("#")]
    seconds = {name: value for value, name in map(str.split, kept) if _exists(name)}
    for name, duration in durations.items():
        if name.startswith("tests/") and not name.startswith(IN_CHECK) and _exists(name):
            seconds.pop(name, None)
            if duration["first"] > SLOW_FROM:
                seconds[name] = f"{duration['first']:.1f}"
    about = f"# Test functions whose first case takes over {SLOW_FROM:g} s of processor time"
    SLOW.write_text(
        f"{about}: python -m kit.durations --write\n" + "".join(f"{seconds[name]} {name}\n" for name in sorted(seconds))
    )


def _exists(name: str) -> bool:
    path, _, function = name.partition("::")
    file = ROOT / path
    return file.exists() and f"def {function.rpartition('::')[2]}(" in file.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kit.durations", description=__doc__)
    parser.add_argument("--write", action="store_true", help="update tests/slow.txt")
    parser.add_argument("--count", type=int, default=DEAREST, help="how many functions to print")
    arguments = parser.parse_args()
    durations = read()
    for folder in ("tests/", "e2e/"):
        part = {name: duration for name, duration in durations.items() if name.startswith(folder)}
        print(folder, *dearest(part, arguments.count), sep="\n")
    if arguments.write:
        write_slow(durations)


if __name__ == "__main__":
    main()
