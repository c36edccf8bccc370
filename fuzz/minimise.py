"""Reduces a failing case while it fails the same way: fewer runs, nodes and attributes, plainer values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from fuzz.case import Case, Verdict
from fuzz.node import inner_names

TRIES = 120

Judge = Callable[[Case], Verdict]


def minimise(case: Case, verdict: Verdict, judge: Judge, tries: int = TRIES) -> tuple[Case, Verdict]:
    """The smallest case found with the same outcome and kind."""
    changed = True
    while changed and tries > 0:
        changed = False
        for smaller in _smaller(case):
            tries -= 1
            if tries < 0:
                break
            found = judge(smaller)
            if (found.outcome, found.kind) == (verdict.outcome, verdict.kind):
                case, verdict, changed = smaller, found, True
                break
    return case, verdict


def _smaller(case: Case) -> Iterator[Case]:
    """Candidates, the smallest first."""
    for n in range(len(case.runs) if len(case.runs) > 1 else 0):
        yield replace(case, runs=(case.runs[n],))
    try:
        model = onnx.load_from_string(case.model)
    except DecodeError:
        return
    for made in _graphs(model):
        data = made.SerializeToString()
        if data != case.model:
            names = {i.name for i in made.graph.input}
            runs = tuple({k: v for k, v in r.items() if k in names} if isinstance(r, dict) else r for r in case.runs)
            yield replace(case, model=data, runs=runs)
    yield from _shorter(case, model)
    yield from _values(case)


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Models with one inner value as the only output, without one output, without one node, without one attribute."""
    for node in model.graph.node if len(model.graph.node) > 1 else ():
        for name in node.output:
            if name:
                yield pruned(model, [name])
    for value in model.graph.output if len(model.graph.output) > 1 else ():
        yield pruned(model, [value.name])
    for n, node in enumerate(model.graph.node):
        if len(model.graph.node) > 1 and node.input and node.input[0]:
            yield pruned(_without(model, n), [o.name for o in model.graph.output])
    for n, node in enumerate(model.graph.node):
        for k in range(len(node.attribute)):
            made = _copy(model)
            del made.graph.node[n].attribute[k]
            yield made


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def _without(model: onnx.ModelProto, n: int) -> onnx.ModelProto:
    """The model without node n: its consumers read its first input instead."""
    made = _copy(model)
    gone = made.graph.node[n]
    source, name = gone.input[0], gone.output[0] if gone.output else ""
    del made.graph.node[n]
    for node in made.graph.node:
        for k, used in enumerate(node.input):
            if used == name:
                node.input[k] = source
    for value in made.graph.output:
        if value.name == name:
            value.name = source
    return made


def pruned(model: onnx.ModelProto, outputs: list[str]) -> onnx.ModelProto:
    """The part of the model that computes these outputs."""
    made = _copy(model)
    known = {v.name: v for v in [*made.graph.output, *made.graph.value_info]}
    needed, chosen = set(outputs), []
    for node in reversed(made.graph.node):
        if needed & set(node.output):
            chosen.append(node)
            needed |= {*node.input, *inner_names(node)}
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(chosen)]
    values = [known.get(name, onnx.ValueInfoProto(name=name)) for name in outputs]
    values = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in values]
    inputs = [i for i in made.graph.input if i.name in needed]
    weights = [t for t in made.graph.initializer if t.name in needed]
    for group, items in (("node", nodes), ("output", values), ("input", inputs), ("initializer", weights)):
        items = [type(i).FromString(i.SerializeToString()) for i in items]
        made.graph.ClearField(group)
        getattr(made.graph, group).extend(items)
    made.graph.ClearField("value_info")
    return made


def _shorter(case: Case, model: onnx.ModelProto) -> Iterator[Case]:
    """Cases with all dims of one size reduced, in feeds, weights and declared shapes."""
    arrays = [x for r in case.runs if isinstance(r, dict) for x in r.values() if isinstance(x, np.ndarray)]
    sizes = {d for x in arrays for d in x.shape if d > 1}
    for old in sorted(sizes, reverse=True):
        for new in sorted({1, 2, old // 2} - {old}):
            made = _copy(model)
            for weight in made.graph.initializer:
                weight.CopyFrom(numpy_helper.from_array(_cut(numpy_helper.to_array(weight), old, new), weight.name))
            for value in made.graph.input:
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_value == old:
                        dim.dim_value = new
            runs = tuple({k: _cut(v, old, new) for k, v in r.items()} if isinstance(r, dict) else r for r in case.runs)
            yield replace(case, model=made.SerializeToString(), runs=runs)


def _cut(x: Any, old: int, new: int) -> Any:
    return x[tuple(slice(new if d == old else d) for d in x.shape)] if isinstance(x, np.ndarray) else x


def _values(case: Case) -> Iterator[Case]:
    """Cases with plainer values in one feed."""
    for n, feeds in enumerate(case.runs):
        for name, x in feeds.items() if isinstance(feeds, dict) else ():
            if isinstance(x, np.ndarray) and x.dtype.kind in "fiu" and x.size:
                for plain in (np.zeros_like(x), np.ones_like(x), _rounded(x)):
                    if not np.array_equal(plain, x, equal_nan=x.dtype.kind == "f"):
                        changed: Any = {**feeds, name: plain}
                        yield replace(case, runs=(*case.runs[:n], changed, *case.runs[n + 1 :]))


def _rounded(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.where(np.abs(x) < 1e6, np.round(x), x).astype(x.dtype) if x.dtype.kind == "f" else x
