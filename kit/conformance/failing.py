"""The list of failing cases with their reasons: failing.txt, one case a line, sorted.

    case: reason                            fails on each provider, natively and in Chromium
    case @ wasm.native webgpu.native: …     fails in these places, and passes in the others

A run is as expected if exactly the cases that are listed for its place fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kit.conformance.cases import load
from kit.conformance.pool import Result

PATH = Path(__file__).with_name("failing.txt")
PLACES = ("wasm.native", "wasm.chromium", "webgpu.native", "webgpu.chromium")
UNKNOWN = "?"  # begins a reason that `update` writes, the message, until a person replaces it by the cause


@dataclass(frozen=True)
class Failure:
    reason: str
    places: tuple[str, ...] = PLACES


def read(text: str) -> dict[str, Failure]:
    """Parses the list. Errors: ValueError for a line of another form, or an unknown place."""
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
    """The text that `read` parses."""
    lines = []
    for name, failure in sorted(failures.items()):
        places = "" if set(failure.places) == set(PLACES) else f" @ {' '.join(sorted(failure.places))}"
        lines.append(f"{name}{places}: {failure.reason}\n")
    return "".join(lines)


def failing(place: str) -> dict[str, str]:
    """Case -> reason, of the cases that are listed for a place; empty for peers, which may fail anything."""
    return {name: found.reason for name, found in read(PATH.read_text()).items() if place in found.places}


def passing(place: str) -> list[str]:
    """The sorted names of the cases that must pass in a place."""
    return sorted(load().keys() - failing(place))


def surprises(results: Iterable[Result], place: str) -> list[str]:
    """A sentence for each case that contradicts the list."""
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
    """The list changed to agree with these results; existing reasons stay."""
    out = dict(failures)
    for result in results:
        before = out.pop(result.name, None)
        places = set(before.places if before else ()) - {place} | ({place} if result.error else set())
        if places:
            reason = before.reason if before else f"{UNKNOWN} {' '.join(result.error.split())}"
            out[result.name] = Failure(reason, tuple(sorted(places)))
    return out
