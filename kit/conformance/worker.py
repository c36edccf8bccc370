"""A process that runs cases, so that a hang or a crash ends nothing else.

usage: python -m kit.conformance.worker WHERE PROVIDER
Reads one case name a line, writes one JSON object a line: {"error": "" if it passed, "seconds": …, "wholly": …}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

from kit.conformance.cases import Case, load
from kit.conformance.compare import assert_equal
from kit.conformance.runner import Runner
from kit.conformance.runners import RUNNERS


def run_case(runner: Runner, case: Case) -> tuple[str, bool]:
    """The error message, empty if the case passed; and whether every kernel ran on the provider."""
    wholly = True
    try:
        for feeds, expected in case.data:
            assert_equal(expected, runner.run(case.model, feeds), case.rtol, case.atol)
            wholly = wholly and runner.wholly
    except Exception as error:
        return f"{type(error).__name__}: {error}", False
    return "", wholly


def main() -> None:
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of runtimes goes to stderr
    runner = RUNNERS[sys.argv[1]](sys.argv[2])
    cases = load()
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        start = time.perf_counter()
        error, wholly = run_case(runner, cases[line.strip()])
        seconds = round(time.perf_counter() - start, 4)
        print(json.dumps({"error": error, "seconds": seconds, "wholly": wholly}), file=answers)
    runner.close()


if __name__ == "__main__":
    main()
