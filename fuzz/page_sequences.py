"""`python -m fuzz.page_sequences`: random sequences of calls in Chromium, against a plain evaluator without memory.

Each seed is a search by fast-check in a page, isolated and not in turn. A failure is shrunk and printed as a list for
e2e/test_page_sequences.py."""

from __future__ import annotations

import argparse
import sys
import time

from kit import chromium
from kit.page_sequences import Sequences, bundle

LENGTH = 60  # most commands of a sequence; two thirds find no session of their kind, and do nothing
RUNS = 12  # sequences in one page


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.page_sequences", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--names", default="", help="beginnings of commands' names: session,training,text,gpu,page")
    parser.add_argument("--path", default="", help="of a failure: repeats it")
    parser.add_argument("--no-build", action="store_true")
    options = parser.parse_args()
    if not options.no_build:
        chromium.build()
    bundle()
    start, seed, runs, commands, failures = time.monotonic(), options.seed, 0, 0, 0
    names = [name for name in options.names.split(",") if name]
    with chromium.launch() as browser, chromium.serve() as isolated, chromium.serve(isolated=False) as plain:
        while time.monotonic() < start + options.seconds:
            context = browser.new_context()
            sequences = Sequences(context.new_page(), (plain if seed % 2 else isolated).url)
            runs_now = 1 if options.path else RUNS
            found = sequences.search(seed=seed, runs=runs_now, length=LENGTH, names=names, path=options.path)
            context.close()
            runs, commands = runs + found["runs"], commands + found["commands"]
            if found["failure"] or sequences.problems:
                failures += 1
                print(f"seed {seed}: {sequences.problems}")
                if failure := found["failure"]:
                    print(f"  [{failure['commands']}]\n  path {failure['path']}\n  {failure['error']}", flush=True)
            if options.path:
                break
            seed += 1
    minutes = (time.monotonic() - start) / 60
    print(f"page sequences: {runs} sequences, {commands} commands, {minutes:.1f} minutes: {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
