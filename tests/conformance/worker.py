"""A process that runs cases, so that one that hangs or crashes takes nothing else with it.

usage: python -m tests.conformance.worker WHERE PROVIDER
Reads one case name a line, answers one JSON object a line: {"error": "" if it passed, "seconds": …}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

from tests.conformance.cases import Case, load
from tests.conformance.compare import assert_equal
from tests.conformance.runners import RUNNERS, Runner


def run_case(runner: Runner, case: Case) -> str:
    """The message of what went wrong, empty if nothing did."""
    try:
        for feeds, expected in case.data:
            assert_equal(expected, runner.run(case.model, feeds), case.rtol, case.atol)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a runtime prints goes to stderr
    runner = RUNNERS[sys.argv[1]](sys.argv[2])
    cases = load()
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        start = time.perf_counter()
        error = run_case(runner, cases[line.strip()])
        print(json.dumps({"error": error, "seconds": round(time.perf_counter() - start, 4)}), file=answers)
    runner.close()


if __name__ == "__main__":
    main()
