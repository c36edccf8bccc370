"""What the compiler made of a model, read off the Program's header. web/run/explain.js is its mirror, docs/explain.md
describes the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any

from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import operator_of
from pyruntime.program.dims import compile_dim

PLACES = {"wasm": "wasm", "gpu": "webgpu", "host": "host"}  # of steps; the others are control
Json = dict[str, Any]


def explain(header: Mapping[str, Any], env: Mapping[str, int] | None = None) -> Json:
    """`env` gives the symbols their values, for the numbers of work and bytes; those it does not tell are None."""
    steps = [(number, s) for number, b in enumerate(header["blocks"]) for s in b["steps"]]
    entries = {label: _entry(label) for label in _labels(header)}
    for item in header.get("nodes", ()):
        if not isinstance(item, str):
            entry = entries[item[0]]
            entry["place"], entry["into"] = item[1], item[2] if len(item) > 2 else ""
            if entry["into"] in entries:
                entries[entry["into"]]["fused"].append(item[0])
    for label, why in header.get("why", {}).items():
        if label in entries:
            entries[label]["why"] = why
    calls = _steps(header, steps, entries, env or {})
    return {
        "operators": _operators(entries),
        "placement": dict(Counter(place for place, _ in calls)),
        "kernels": len(calls),
        "functions": len({kernel for _, kernel in calls if kernel}),
        "steps": len(steps),
        "code": sum(size for _, size in header["modules"].values()),
        "nodes": list(entries.values()),
    }


def _labels(header: Mapping[str, Any]) -> list[str]:
    """The nodes of the graph in order, then those of inner graphs and functions that have steps."""
    graph = [n if isinstance(n, str) else n[0] for n in header.get("nodes", ())]
    inner = [label for b in header["blocks"] for s in b["steps"] for label in _nodes(s) if label]
    return list(dict.fromkeys([*graph, *inner]))


def _nodes(step: Json) -> list[str]:
    return [c["node"] for c in step["calls"]] if "calls" in step else [step.get("node", "")]


def _entry(label: str) -> Json:
    """As docs/explain.md describes it."""
    return {
        "node": label, "op": operator_of(label), "place": "", "kernels": [], "calls": 0,
        "fused": [], "into": "", "work": 0, "crossing": 0, "why": "",
    }  # fmt: skip


def _steps(
    header: Mapping[str, Any], steps: list[tuple[int, Json]], entries: dict[str, Json], env: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Fill in what the calls tell; gives (place, kernel) of each."""
    out: list[tuple[str, str]] = []
    crossed: dict[int, Any] = {}  # buffer that a copy fills -> bytes, until a node reads it
    for number, step in steps:
        if step["op"] == "copy":
            crossed |= {b["buffer"]: _bytes(b, env) for _, b in step["pairs"]}
            continue
        place = PLACES.get(step["op"], "control")
        calls = step["calls"] if "calls" in step else [{"node": step.get("node", ""), "kernel": "", "work": 0}]
        for call in calls:
            if call["node"] in entries:
                _count(entries[call["node"]], place if number else "init", step, call, crossed, env)
            out.append((place, call["kernel"]))
    return out


def _count(entry: Json, place: str, step: Json, call: Json, crossed: dict[int, Any], env: Mapping[str, int]) -> None:
    """Add a call to what is told of its node. What runs once, in init, is no part of a run's calls and work."""
    if call["kernel"] and call["kernel"] not in entry["kernels"]:
        entry["kernels"].append(call["kernel"])
    entry["place"] = place
    if place == "init":
        return
    entry["calls"] += 1
    entry["work"] = _sum(entry["work"], evaluate(call["work"], env))
    for b in set(call.get("buffers", _buffers(step))) & crossed.keys():
        entry["crossing"] = _sum(entry["crossing"], crossed.pop(b))


def _buffers(value: Any) -> set[int]:
    """The buffers that a step without calls mentions."""
    if isinstance(value, dict):
        return {value["buffer"]} if "buffer" in value else {b for v in value.values() for b in _buffers(v)}
    return {b for v in value for b in _buffers(v)} if isinstance(value, list | tuple) else set()


def _bytes(value: Json, env: Mapping[str, int]) -> int | None:
    dims = [evaluate(d, env) for d in value["dims"]]
    known = [d for d in dims if d is not None]
    return prod(known) * BY_NAME[value["dtype"]].size if len(known) == len(dims) else None


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def evaluate(d: Any, env: Mapping[str, int]) -> int | None:
    """A dim of the header; None if it has a symbol without a value."""
    if isinstance(d, int):
        return d
    try:
        return compile_dim(d)(dict(env))
    except KeyError:
        return None


def _operators(entries: dict[str, Json]) -> list[Json]:
    """By count, each with the place where most of its nodes run."""
    places: dict[str, Counter[str]] = {}
    for entry in entries.values():
        into = entries.get(entry["into"])
        places.setdefault(entry["op"], Counter())[into["place"] if into else entry["place"]] += 1
    rows = [{"op": op, "nodes": c.total(), "place": c.most_common(1)[0][0]} for op, c in places.items()]
    return sorted(rows, key=lambda row: -row["nodes"])


__all__ = ["explain"]
