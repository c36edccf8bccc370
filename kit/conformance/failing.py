"""The cases of the suite that fail, each with its reason: failing.txt, one a line, sorted.

    case: reason                            it fails on each provider, natively and in Chromium
    case @ wasm.native webgpu.native: …     it fails there, and passes in the other places

A run is as expected when what is listed for its place fails, and all else passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kit.conformance.cases import load
from kit.conformance.pool import Result

PATH = Path(__file__).with_name("failing.txt")
PLACES = ("wasm.native", "wasm.chromium", "webgpu.native", "webgpu.chromium")
UNKNOWN = "?"  # begins the reasons that `update` writes: what was seen, to be replaced by why


@dataclass(frozen=True)
class Failure:
    reason: str
    places: tuple[str, ...] = PLACES


def read(text: str) -> dict[str, Failure]:
    """The list by case. Errors: ValueError for a line that is not of this form, or a place that is none."""
    found = {}
    for line in text.splitlines():
        head, colon, reason = line.partition(": ")
        name, _, places = head.partition(" @ ")
        chosen = tuple(places.split()) or PLACES
        if not colon or not reason or name in found or not set(chosen) <= set(PLACES):
            raise ValueError(f"failing.txt: {line}")
        found[name] = Failure(reason, chosen)
    return found


def write(failures: dict[str, Failure]) -> str:
    """The text that `read` reads."""
    lines = []
    for name, failure in sorted(failures.items()):
        places = "" if set(failure.places) == set(PLACES) else f" @ {' '.join(sorted(failure.places))}"
        lines.append(f"{name}{places}: {failure.reason}\n")
    return "".join(lines)


def failing(place: str) -> dict[str, str]:
    """Case -> reason, of those that fail in a place; none for the peers, which are not held to anything."""
    return {name: found.reason for name, found in read(PATH.read_text()).items() if place in found.places}


def passing(place: str) -> list[str]:
    """Names of the cases that pass in a place, sorted."""
    return sorted(load().keys() - failing(place))


def surprises(results: Iterable[Result], place: str) -> list[str]:
    """What is not as listed: a sentence each."""
    if place not in PLACES:
        return []
    listed = failing(place)
    out = []
    for result in results:
        if result.error and result.name not in listed:
            out.append(f"{result.name} fails: {' '.join(result.error.split())}")
        elif not result.error and result.name in listed:
            out.append(f"{result.name} passes now: take it from {PATH.name} (--update)")
    return out


def update(failures: dict[str, Failure], results: Iterable[Result], place: str) -> dict[str, Failure]:
    """The list as it is true of these results; reasons that are there stay."""
    out = dict(failures)
    for result in results:
        before = out.pop(result.name, None)
        places = set(before.places if before else ()) - {place} | ({place} if result.error else set())
        if places:
            reason = before.reason if before else f"{UNKNOWN} {' '.join(result.error.split())}"
            out[result.name] = Failure(reason, tuple(sorted(places)))
    return out
