"""Writes the table in the Program's header from which `explain` reports how each node was compiled; its numbers are
dims.

pyruntime/runtime/explain.py evaluates it; docs/explain.md describes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.ir.dtype import BY_NAME
from pyruntime.onnx.graph import operator_of

Json = dict[str, Any]
# A row of the table omits entries with these values.
EMPTY: Json = {
    "place": "", "kernels": [], "calls": 0, "fused": [], "into": "", "work": 0, "crossing": 0, "why": "",
    "loop": "",
}  # fmt: skip


def table(
    header: Mapping[str, Any], nodes: Sequence[Any], why: Mapping[str, str], loops: Mapping[str, str],
    places: Mapping[str, str], owners: Sequence[str] = (),
) -> Json:  # fmt: skip
    """The table. A row omits entries that equal those of EMPTY.

    nodes: the graph's nodes, as `NodeReport.after` returns them
    why, loops: by label, why a node is not on the session's first provider, and how a loop runs
    places: the names of providers that write code, by kind of step
    owners: by number of a host step, the provider in Python that it belongs to, or ""
    """
    steps = [(number, s) for number, b in enumerate(header["blocks"]) for s in b["steps"]]
    rows = {label: _row(label, why.get(label, ""), loops.get(label, "")) for label in _labels(nodes, steps)}
    for item in nodes:
        if not isinstance(item, str):
            row = rows[item[0]]
            row["place"], row["into"] = item[1], item[2] if len(item) > 2 else ""
            if row["into"] in rows:
                rows[row["into"]]["fused"].append(item[0])
    calls = _steps(steps, rows, {**places, "host": "host"}, owners)
    return {
        "operators": _operators(rows),
        "placement": dict(Counter(place for place, _ in calls)),
        "kernels": len(calls),
        "functions": len({kernel for _, kernel in calls if kernel}),
        "steps": len(steps),
        "code": sum(size for _, size in header["modules"].values()),
        "nodes": [_short(row) for row in rows.values()],
    }


def _labels(nodes: Sequence[Any], steps: Sequence[tuple[int, Json]]) -> list[str]:
    """Labels of the graph's nodes in order, then of nodes in inner graphs and functions that have steps."""
    graph = [n if isinstance(n, str) else n[0] for n in nodes]
    return list(dict.fromkeys([*graph, *[c["node"] for _, s in steps for c in _calls(s) if c["node"]]]))


def _calls(step: Json) -> list[Json]:
    """The calls of a step. A control or host step counts as one call; a copy belongs to no node."""
    if step["op"] == "copy":
        return []
    return step["calls"] if "calls" in step else [{"node": step["node"], "kernel": "", "work": 0}]


def _row(label: str, why: str, loop: str) -> Json:
    """A row as docs/explain.md describes it, with lists of summands in place of its numbers."""
    told = {"node": label, "op": operator_of(label)}
    return {**told, **EMPTY, "kernels": [], "fused": [], "work": [], "crossing": [], "why": why, "loop": loop}


def _short(row: Json) -> Json:
    row = {**row, "work": _sum(row["work"]), "crossing": _sum(row["crossing"])}
    return {key: value for key, value in row.items() if key not in EMPTY or value != EMPTY[key]}


def _sum(dims: Sequence[Any]) -> Any:
    known = sum(d for d in dims if isinstance(d, int))
    others = [d for d in dims if not isinstance(d, int)]
    parts = [*others, known] if known else others
    return known if not others else parts[0] if len(parts) == 1 else ["+", *parts]


def _place(step: Json, places: Mapping[str, str], owners: Sequence[str]) -> str:
    owner = owners[step["id"]] if step["op"] == "host" and owners else ""
    return owner or places.get(step["op"], "control")


def _steps(
    steps: Sequence[tuple[int, Json]], rows: dict[str, Json], places: Mapping[str, str], owners: Sequence[str]
) -> list[tuple[str, str]]:
    """Add the calls to the rows. Returns (place, kernel) of each call."""
    out: list[tuple[str, str]] = []
    crossed: dict[int, Any] = {}  # by buffer: bytes that a copy step moved, until a node reads the buffer
    for number, step in steps:
        if step["op"] == "copy":
            crossed |= {b["buffer"]: _bytes(b) for _, b in step["pairs"]}
        place = _place(step, places, owners)
        for call in _calls(step):
            if call["node"] in rows:
                _count(rows[call["node"]], place if number else "init", step, call, crossed)
            out.append((place, call["kernel"]))
    return out


def _count(row: Json, place: str, step: Json, call: Json, crossed: dict[int, Any]) -> None:
    """Add a call to its node's row. Calls of init, which run once, do not count as calls and work of a run."""
    if call["kernel"] and call["kernel"] not in row["kernels"]:
        row["kernels"].append(call["kernel"])
    row["place"] = place
    if "repeat" in step:
        row["loop"] = row["loop"].replace("step by step", "step by step, inside WebAssembly", 1)
    if place == "init":
        return
    row["calls"] += 1
    row["work"].append(call["work"])
    if crossed:
        arrived = [b for b in dict.fromkeys(call.get("buffers", _buffers(step))) if b in crossed]
        row["crossing"] += [crossed.pop(b) for b in arrived]


def _buffers(value: Any) -> list[int]:
    """Numbers of the buffers that a step without calls mentions."""
    if isinstance(value, dict):
        return [value["buffer"]] if "buffer" in value else [b for v in value.values() for b in _buffers(v)]
    return [b for v in value for b in _buffers(v)] if isinstance(value, (list, tuple)) else []


def _bytes(value: Json) -> Any:
    size = BY_NAME[value["dtype"]].size
    dims = [d for d in value["dims"] if d != 1]
    return ["*", size, *dims] if dims else size


def _operators(rows: Mapping[str, Json]) -> list[Json]:
    """The operators by number of nodes, each with the place where most of its nodes run."""
    places: dict[str, Counter[str]] = {}
    for row in rows.values():
        into = rows.get(row["into"])
        places.setdefault(row["op"], Counter())[into["place"] if into else row["place"]] += 1
    found = [{"op": op, "nodes": c.total(), "place": c.most_common(1)[0][0]} for op, c in places.items()]
    return sorted(found, key=lambda row: -row["nodes"])
