"""Adapters that a training session trains: which they are, how they begin, and what becomes of them in an export."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import F32, DType
from pyruntime.onnx.graph import Graph, Weight
from pyruntime.onnx.sources import MemorySource
from pyruntime.onnx.weight_values import numbers_of
from pyruntime.runtime.adapter_places import PREFIX
from pyruntime.training.adapters.sides import Side, with_sides
from pyruntime.training.adapters.sites import OUTPUT, Site, chosen, for_dora, readers, sites

A, B, M = ".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"
DEFAULTS: dict[str, Any] = {"rank": 8, "alpha": None, "targets": "*", "dora": False}


@dataclass(frozen=True, slots=True)
class Trained:
    """An adapter of one module. a: name of A; b: of B; magnitudes: of DoRA's lengths, or ""; sites: that read it"""

    module: str
    a: str
    b: str
    magnitudes: str
    sites: tuple[Site, ...]

    @property
    def names(self) -> list[str]:
        return [name for name in (self.a, self.b, self.magnitudes) if name]


@dataclass(frozen=True, slots=True)
class Merge:
    """The product of A and B, times `scale`, to add to a weight. is_transposed: the weight is (fan_out, fan_in), or
    filters; magnitudes: name of the lengths that the sum then gets for each output, or "" """

    a: str
    b: str
    scale: float
    is_transposed: bool
    magnitudes: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """A side path to write into the exported file: after the node with this output, in this type of numbers. shapes: of
    A and B"""

    output: str
    a: str
    b: str
    scale: float
    dtype: DType
    shapes: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Lora:
    """The adapters of a training session. rank, alpha: the products count alpha/rank"""

    rank: int
    alpha: float
    each: tuple[Trained, ...]

    @property
    def names(self) -> list[str]:
        return [name for one in self.each for name in one.names]

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def config(self) -> str:
        """PEFT's adapter_config.json."""
        return json.dumps({
            "peft_type": "LORA", "task_type": None, "r": self.rank, "lora_alpha": self.alpha, "lora_dropout": 0.0,
            "bias": "none", "fan_in_fan_out": False, "base_model_name_or_path": None, "inference_mode": True,
            "target_modules": [one.module for one in self.each],
            **({"use_dora": True} if any(one.magnitudes for one in self.each) else {}),
        })  # fmt: skip

    def merges(self, graph: Graph) -> dict[str, list[Merge]]:
        """What to add to the weights of the model's file, by name of the weight."""
        found: dict[str, list[Merge]] = {}
        for one in self.each:
            if _can_merge(one, graph):
                site = one.sites[0]
                merge = Merge(one.a, one.b, self.scale / site.factor, site.is_transposed, one.magnitudes)
                found.setdefault(site.weight, []).append(merge)
        return found

    def beside(self, graph: Graph) -> list[Beside]:
        """The side paths that an exported file has, because their weights cannot change: codes, and weights that other
        nodes read. Errors: InvalidInput for a product in a branch or loop"""
        rest = [one for one in self.each if not _can_merge(one, graph)]
        for one in rest:
            if wrong := next((s for s in one.sites if len(s.path) > 1 or s.way != OUTPUT), None):
                hint = "save the adapter alone, without a merged model"
                raise InvalidInput(f"the adapter of {wrong.node.label} cannot be written into the model", hint=hint)
        return [
            Beside(s.node.outputs[0], one.a, one.b, self.scale, s.dtype, s.shapes(self.rank))
            for one in rest
            for s in one.sites
        ]


def _can_merge(one: Trained, graph: Graph) -> bool:
    """Whether only products of this module read the weight."""
    site = one.sites[0]
    if not all(s.is_plain and s.weight == site.weight and s.is_transposed == site.is_transposed for s in one.sites):
        return False
    if site.factor == 0.0 or any(s.factor != site.factor for s in one.sites):
        return False
    inputs = [s.node.inputs[1] for s in one.sites]  # the weight itself, or what a Transpose or Cast makes of it
    others = {name for name in inputs if name != site.weight}
    if any(readers(graph, name) > inputs.count(name) for name in others):
        return False
    return readers(graph, site.weight) <= inputs.count(site.weight) + len(others)


def lora_of(value: Any) -> dict[str, Any] | None:
    """The checked option `lora`. Errors: InvalidInput"""
    if value is None or value is False:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(f"lora cannot be {value!r}", hint='{"rank": 8, "targets": ["*.q_proj", "*.v_proj"]}')
    for name in value:
        if name not in DEFAULTS:
            raise InvalidInput(f'there is no setting of lora "{name}"', hint=f"known: {', '.join(DEFAULTS)}")
    found = {**DEFAULTS, **value}
    rank, targets = found["rank"], found["targets"]
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise InvalidInput(f"lora.rank cannot be {rank!r}", hint="an integer from 1 on")
    alpha = rank if found["alpha"] is None else found["alpha"]
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise InvalidInput(f"lora.alpha cannot be {alpha!r}", hint="a number; the products count alpha / rank")
    targets = [targets] if isinstance(targets, str) else targets
    if not isinstance(targets, (list, tuple)) or not targets or not all(isinstance(p, str) for p in targets):
        raise InvalidInput(f"lora.targets cannot be {targets!r}", hint='names or patterns such as "*.q_proj"')
    if not isinstance(found["dora"], bool):
        raise InvalidInput(f"lora.dora cannot be {found['dora']!r}", hint="true or false")
    return {"rank": rank, "alpha": alpha, "targets": list(targets), "dora": found["dora"]}


def with_lora(graph: Graph, settings: Mapping[str, Any], seed: int) -> tuple[Graph, Lora]:
    """The graph with adapters beside the products that the patterns choose. They begin as zero: A with random numbers,
    B with zeros, DoRA's lengths as those of the weight. Errors: InvalidInput for a pattern that chooses nothing, or a
    weight that DoRA cannot scale"""
    rank, each = settings["rank"], _modules(graph, settings["targets"], settings["dora"])
    lora = Lora(rank, settings["alpha"], each)
    weights = dict(graph.weights)
    for one in each:
        site = one.sites[0]
        shape_a, shape_b = site.shapes(rank)
        weights[one.a] = _weight(one.a, shape_a, _random(f"{seed} {one.module}", rank, site.fan_in))
        weights[one.b] = _weight(one.b, shape_b, bytes(4 * rank * site.fan_out))
        if one.magnitudes:
            shape = (1, *shape_b[:1], *shape_b[2:]) if site.window else shape_b[:1]
            weights[one.magnitudes] = _weight(one.magnitudes, shape, _lengths(graph.weights[site.weight], site))
    sides = {
        s.path: (s, [Side(one.a, one.b, lora.scale, 0, s.fan_out, magnitudes=one.magnitudes)])
        for one in each
        for s in one.sites
    }
    return replace(with_sides(graph, sides), weights=weights), lora


def _modules(graph: Graph, patterns: Sequence[str], is_dora: bool) -> tuple[Trained, ...]:
    found = sites(graph)
    by_pattern = chosen(found, patterns)
    for pattern, some in by_pattern.items():
        if not some:
            known = ", ".join(dict.fromkeys(s.module for s in found[:8])) or "none"
            more = ", …" if len(found) > 8 else ""
            raise InvalidInput(f'no product has a name like "{pattern}"', hint=f"names are {known}{more}")
    paths = {s.path for some in by_pattern.values() for s in some}
    modules: dict[tuple[str, int, int], list[Site]] = {}
    for s in found:
        if s.path in paths:
            modules.setdefault((s.module, s.fan_in, s.fan_out), []).append(for_dora(s) if is_dora else s)
    made, taken = [], set(graph.weights)
    for (module, _, _), same in modules.items():
        own = f"{PREFIX}{module}"
        n = 2
        while own + A in taken:
            own, n = f"{PREFIX}{module}_{n}", n + 1
        taken.add(own + A)
        made.append(Trained(own.removeprefix(PREFIX), own + A, own + B, own + M if is_dora else "", tuple(same)))
    return tuple(made)


def _weight(name: str, shape: tuple[int, ...], data: bytes) -> Weight:
    return Weight(name, F32, shape, MemorySource(data), 0, len(data))


def _lengths(w: Weight, site: Site) -> bytes:
    """Of the vectors of a weight, one for each output."""
    numbers, rows, columns = numbers_of(w), site.fan_out, site.fan_in
    vectors = (
        numbers[n * columns : (n + 1) * columns] if site.is_transposed else numbers[n::rows] for n in range(rows)
    )
    return array("f", [math.hypot(*vector) for vector in vectors]).tobytes()


def _random(seed: str, rank: int, fan_in: int) -> bytes:
    """Uniform numbers within ±1/√fan_in, as PEFT's."""
    bound, draw = 1 / math.sqrt(max(fan_in, 1)), Random(seed).random
    return array("f", [(2 * draw() - 1) * bound for _ in range(rank * fan_in)]).tobytes()
