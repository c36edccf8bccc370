"""Damaged Program files: flipped bits, truncation, and changed header entries with a new checksum.

python -m kit.corrupted --count 1500: opens and runs them natively and counts failures that are not typed errors.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kit import zoo
from kit.probes import PROBES
from pyruntime import InferenceSession, InvalidInput, PyRuntimeError, SessionOptions
from pyruntime.program.format import Program

Case = tuple[str, bytes, dict[str, Any]]  # the damage in words, the file, feeds
SECONDS, BYTES = 10, 1 << 30
ODD = [
    *[
        0,
        1,
        -1,
        2,
        3,
        64,
        1000,
        2**31 - 1,
        2**31,
        2**32,
        2**53 - 1,
        10**30,
        1.5,
        None,
        True,
        "",
        "x",
        "wasm",
        [],
        {},
        [[]],
    ],
    *[["+", "s0", 1], ["floordiv", 1, 0], ["select", 0, 0], ["+", ["+", ["+", "s0", 1], 1], 1]],
]


def sources() -> list[tuple[str, bytes, dict[str, Any]]]:
    """Name, file and feeds of small Programs that have every kind of step."""
    out = []
    for name, probe in PROBES.items():
        session = InferenceSession(probe.model)
        try:
            out.append((name, session.export(weights=True), probe.runs[0][0]))
        except InvalidInput:
            continue  # several Programs, or steps that a file cannot store
    for name in ("superres", "lstm_tagger"):
        out.append((name, InferenceSession(zoo.materialize(name)).export(weights=True), zoo.inputs(name)))
    return out


def corrupted(program: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Damages a file at random. Returns the damage in words, and the file."""
    kind = draw.choice(["bits", "cut", "header", "header", "header", "header"])
    if kind == "cut":
        size = draw.randrange(len(program))
        return f"cut to {size}", program[:size]
    if kind == "bits":
        data = bytearray(program)
        places = [draw.randrange(len(data)) for _ in range(draw.choice([1, 1, 8]))]
        for n in places:
            data[n] ^= 1 << draw.randrange(8)
        return f"bits of bytes {places}", bytes(data)
    good = Program.from_bytes(program)
    header = copy.deepcopy(good.header)
    told = "; ".join(_change(header, draw) for _ in range(draw.choice([1, 1, 1, 2, 4])))
    return told, Program(header, good.blob).to_bytes()


def _change(header: dict[str, Any], draw: random.Random) -> str:
    """Changes one entry, of any depth with equal probability. Returns the change in words."""
    path: list[str | int] = []
    outer: Any = {"header": header}
    key: Any = "header"
    while isinstance(outer[key], dict | list) and outer[key] and (not path or draw.random() > 0.15):
        outer = outer[key]
        keys = list(outer) if isinstance(outer, dict) else range(len(outer))
        key = draw.choice([k for k in keys if k not in ("explain", "name")] or [0])
        path.append(key)
    old = outer[key]
    kind = draw.choice(["odd", "near", "remove", "double", "swap"])
    if kind == "remove":
        del outer[key]
    elif kind == "double" and isinstance(outer, list):
        outer.insert(key, copy.deepcopy(old))
    elif kind == "swap" and len(outer) > 1:
        other = draw.choice(list(outer) if isinstance(outer, dict) else range(len(outer)))
        outer[key], outer[other] = outer[other], outer[key]
    elif kind == "near" and isinstance(old, int):
        outer[key] = old + draw.choice([-1, 1, 4, -4, old])
    else:
        outer[key] = draw.choice(ODD)
    return f"{kind} {'.'.join(map(str, path))}: {json.dumps(old)[:40]}"


def cases(found: list[tuple[str, bytes, dict[str, Any]]], seed: int, first: int, count: int) -> Iterator[Case]:
    """Cases by number, each with its own random seed, so that one can be repeated."""
    for n in range(first, count):
        draw = random.Random(f"{seed} {n}")
        name, program, feeds = draw.choice(found)
        told, data = corrupted(program, draw)
        yield f"{n} {name}: {told}", data, feeds


def outcome(data: bytes, feeds: dict[str, Any]) -> str:
    """The outcome of opening and running a file: "ran", the name of a typed error, or "untyped: …"."""
    try:
        session = InferenceSession(data, SessionOptions(memory_limit=BYTES // 4))
        session.run(None, feeds)
        return "ran"
    except PyRuntimeError as error:
        return type(error).__name__
    except Exception as error:
        return f"untyped: {type(error).__name__}: {error}"


def watched(found: list[Any], seed: int, count: int) -> Iterator[tuple[str, str]]:
    """The damage and its outcome, from a subprocess that is ended if it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "sources")
        place.write_bytes(pickle.dumps(found))
        first = 0
        while first < count:
            command = [sys.executable, "-m", "kit.corrupted", "--worker", str(place)]
            command += ["--seed", str(seed), "--first", str(first), "--count", str(count)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                told = f"{first}"
                for line in child.stdout:
                    kind, _, rest = line.rstrip("\n").partition("\t")
                    if kind == "begins":
                        told = rest
                        continue
                    yield told, rest
                    first += 1
            if first < count:
                yield told, f"ended the process by {child.returncode}"
                first += 1


def work(place: Path, seed: int, first: int, count: int) -> None:
    """The subprocess of `watched`. The system ends it after SECONDS of processor time for one case."""
    for told, data, feeds in cases(pickle.loads(place.read_bytes()), seed, first, count):
        print("begins", told.replace("\n", " "), sep="\t", flush=True)
        used = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS, resource.RLIM_INFINITY))
        end = outcome(data, feeds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        print("ends", end.replace("\n", " ") + (f", {peak} bytes" if peak > BYTES else ""), sep="\t", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kit.corrupted", description=__doc__)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.seed, args.first, args.count)
        return 0
    counts: dict[str, int] = {}
    bad = 0
    for told, end in watched(sources(), args.seed, args.count):
        name = end.partition(":")[0]
        counts[name] = counts.get(name, 0) + 1
        if not end.isidentifier():
            bad += 1
            print(told, "->", end)
    print(f"corrupted programs: {args.count} cases: {bad} untyped, too slow or too large", counts)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
