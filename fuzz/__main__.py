"""`python -m fuzz`: runs random cases for a number of seconds, then prints the findings."""

from __future__ import annotations

import argparse
import os
import sys

from fuzz.runner import run
from fuzz.targets import BY_NAME, TARGETS
from kit.chromium import build


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    defaults = ",".join(name for name in TARGETS if name not in BY_NAME)
    parser.add_argument("--targets", default=defaults, help=f"of {', '.join(TARGETS)}; all but {', '.join(BY_NAME)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--case", help="TARGET/INDEX: judge this case alone")
    parser.add_argument("--pages", action="store_true", help="run one case in four in Chromium, too")
    parser.add_argument("--keep", action="store_true", help="do not minimise failures")
    options = parser.parse_args()
    if options.pages:
        build()
    os.environ["PYRUNTIME_DISABLE_PROGRAM_CACHE"] = "1"  # every case is compiled
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
