"""For all tests: a heap that is not searched again and again, cached bytecode, durations, shards.

Every run records the durations of its test functions in build/durations.json and prints the dearest.
"""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Generator

import pluggy
import pytest

from kit import durations, tiers

pytest_plugins = ["pyruntime.testing"]  # the fixture `browser` of e2e/

LISTED_FROM = 100  # cases of a run, from which the dearest are printed

# Tests start hundreds of Python processes: without cached bytecode each would compile the engine anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"  # that of trio warns when Hypothesis is imported, and warnings are errors
gc.disable()  # until all tests are collected: the collector would visit syntax trees and tables over and over

recorded: dict[str, durations.Duration] = {}
firsts: set[str] = set()  # node ids of the first case of each function
begun = 0.0  # processor time at the start of the phase of a test that runs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--later", choices=("yes", "no"), default="yes", help="no: without what only make test-all runs")
    parser.addoption("--shard", default="1/1", help="N/M: only every M-th file, by a hash of its path")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the files of this shard and the tests of this tier; note the first case of each function."""
    number, count = map(int, config.getoption("--shard").split("/"))
    if not 1 <= number <= count:
        raise pytest.UsageError("--shard N/M: N from 1 to M")
    if config.getoption("--later") == "no" and (missing := tiers.unmatched([item.nodeid for item in items])):
        raise pytest.UsageError(f"kit/tiers.py: no such test: {', '.join(missing)}")
    kept, others = [], []
    seen: set[str] = set()
    for item in items:
        path, function = item.nodeid.split("::")[0], function_of(item.nodeid)
        later = config.getoption("--later") == "no" and tiers.is_later(item.nodeid)
        of_this_shard = zlib.crc32(path.encode()) % count == number - 1
        (kept if of_this_shard and not later else others).append(item)
        if function not in seen:
            seen.add(function)
            firsts.add(item.nodeid)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """The heap of modules and tests leaves the garbage collector, which then visits only what tests make."""
    gc.freeze()
    gc.enable()


def function_of(node_id: str) -> str:
    return node_id.split("[")[0]


def pytest_runtest_logstart() -> None:
    global begun
    begun = durations.processor_time()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Processor time since the last report: setup, call or teardown. It travels to xdist's controller."""
    global begun
    now = durations.processor_time()
    result = yield
    report = result.get_result()
    report.processor, begun = max(now - begun, 0.0), now  # less than 0 where an orphan has ended
    report.is_first = item.nodeid in firsts


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    empty = durations.Duration(cases=0, processor=0.0, elapsed=0.0, first=0.0)
    duration = recorded.setdefault(function_of(report.nodeid), empty)
    duration["cases"] += report.when == "call"
    processor = getattr(report, "processor", 0.0)  # a process that died reports none
    duration["processor"] += processor
    duration["elapsed"] += report.duration
    duration["first"] += processor * getattr(report, "is_first", False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = {name: duration for name, duration in recorded.items() if duration["cases"]}
    durations.merge(ran)
    if sum(duration["cases"] for duration in ran.values()) >= LISTED_FROM:
        terminalreporter.section("durations")
        terminalreporter.write("".join(f"{line}\n" for line in durations.dearest(ran)))
