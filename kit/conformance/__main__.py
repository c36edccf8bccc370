"""python -m kit.conformance: runs the suite, reports, and compares with the list of failing cases (failing.txt)."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from kit.conformance import failing, report
from kit.conformance.cases import load
from kit.conformance.pool import Pool, Result
from kit.conformance.runners import RUNNERS


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kit.conformance", description=__doc__)
    parser.add_argument("--provider", choices=["wasm", "webgpu"], default="wasm")
    parser.add_argument("--where", choices=list(RUNNERS), default="native", help="reference, onnxruntime: peers")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument("--filter", default="", metavar="RE", help="only cases whose name matches")
    parser.add_argument(
        "--limit", type=float, help="seconds a case may take; default 20, of webgpu (often emulated) 200"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every result there")
    parser.add_argument("--quiet", action="store_true", help="no list of failures")
    parser.add_argument("--update", action="store_true", help="make failing.txt true of this run; then give reasons")
    return parser.parse_args()


def progress(total: int):
    """Shows a counter on a terminal, and nothing elsewhere."""
    done = 0

    def show(_: Result) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(f"\r{done}/{total}", end="\r" if done == total else "", file=sys.stderr, flush=True)

    return show


def main() -> int:
    args = parse()
    cases = load()
    names = [name for name in cases if re.search(args.filter, name)]
    limit = args.limit or (200.0 if args.provider == "webgpu" else 20.0)
    with Pool(args.where, args.provider, args.jobs, limit) as pool:
        results = pool.run(names, progress(len(names)))
    failures = report.failures(results, cases)
    if failures and not args.quiet:
        print(failures)
    print(report.table(results, cases))
    if args.json:
        report.write_json(args.json, results, cases)
    place = f"{args.provider}.{args.where}"
    if args.update and place in failing.PLACES:
        failing.PATH.write_text(failing.write(failing.update(failing.read(failing.PATH.read_text()), results, place)))
    surprises = failing.surprises(results, place)
    if surprises:
        print(f"not as {failing.PATH.name} says ({len(surprises)}):", *surprises, sep="\n  ")
    peer = args.where in ("reference", "onnxruntime")
    label = args.where if peer else f"{args.provider} ({args.where})"
    gpu = args.provider == "webgpu" and not peer
    wholly = f", wholly on the GPU {sum(result.wholly for result in results)}" if gpu else ""
    passed = sum(not result.error for result in results)
    print(f"conformance {label}: {passed} of {len(names)}{wholly}")
    return int(bool(surprises))


if __name__ == "__main__":
    sys.exit(main())
