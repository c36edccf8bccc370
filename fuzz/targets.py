"""The targets: each generates one kind of case."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from fuzz import feeds, gradients, hostile, layers, loops, models, programs, rare_nodes, seeds
from fuzz.case import Case
from fuzz.draw import Draw
from fuzz.graphs import Around
from fuzz.mutate_node import CHANGES, change_dims, change_one_dim, change_one_rank, change_values, mutate
from fuzz.node import Node, describe, model_of
from fuzz.schema_violations import change_to_any_number, change_to_any_type, leave_out

Maker = Callable[[Draw], Case | None]
Seed = Callable[[Draw], Node]


def seed_node(draw: Draw) -> Node:
    if draw.chance(0.12):
        return seeds.from_microsoft(draw.below(len(seeds.MICROSOFT)), draw.rng)
    return seeds.from_official(draw.pick(seeds.official()))


def operators(draw: Draw, seed: Seed = seed_node) -> Case:
    """One node: a changed official case."""
    node = seed(draw)
    mutate(draw, node)
    model, given = model_of(draw, node)
    return Case("operators", model, (given,), note=describe(node))


def misfits(draw: Draw, seed: Seed = seed_node) -> Case:
    """One node with one operand of another shape."""
    node = seed(draw)
    sound = model_of(draw, node, "static", fixed=0.0)
    draw.pick([change_one_dim, change_one_dim, change_one_rank])(draw, node)
    model, given = model_of(draw, node, draw.pick(["static", "rankless"]), fixed=0.0)
    return Case("misfits", model, (given,), note=describe(node), sound=sound)


def forbidden(draw: Draw) -> Case:
    """One node that may violate its schema: an input of any type, or a missing one, or an attribute with a meaningless
    number. It must run, or be refused by an error of the package."""
    node = draw.pick([seed_node, rare_nodes.random_node])(draw)
    draw.pick([leave_out, change_to_any_type, change_to_any_type, change_to_any_number])(draw, node)
    model, given = model_of(draw, node)
    return Case("forbidden", model, (given,), judged=False, note=describe(node))


def graphs(draw: Draw, seed: Seed = seed_node) -> Case:
    """A slightly changed node among others."""
    node = seed(draw)
    for _ in range(draw.below(3)):
        draw.pick([change_dims, change_values, CHANGES[3][1]])(draw, node)
    data, given = model_of(draw, node)
    around = Around(draw, onnx.load_from_string(data), given)
    if node.domain != "ai.onnx.ml":
        around.before()
    around.after()
    return Case("graphs", around.model.SerializeToString(), (around.feeds,), note=describe(node))


def sequences(draw: Draw, seed: Seed = seed_node) -> Case:
    """One session with unknown dims, run at several shapes."""
    node = seed(draw)
    data, given = model_of(draw, node, draw.pick(["unknown", "rankless", "symbolic"]), fixed=0.2)
    runs = [given]
    for _ in range(draw.between(2, 4)):
        change_dims(draw, node)
        runs.append({name: node.inputs[int(name[1:])] for name in given})
    return Case("sequences", data, (*runs, given), note=describe(node))


def values(draw: Draw) -> Case:
    """One session run with many values of the same shapes: runs without a new compilation cost little."""
    node = draw.pick([seed_node, rare_nodes.random_node])(draw)
    for _ in range(draw.below(3)):
        draw.pick(CHANGES)[1](draw, node)
    data, given = model_of(draw, node, fixed=0.15)
    first, runs = node.inputs, [given]
    for _ in range(7):
        node.inputs = [*first]
        change_values(draw, node)
        runs.append({name: node.inputs[int(name[1:])] for name in given})
    return Case("values", data, tuple(runs), note=describe(node))


def rare(draw: Draw) -> Case:
    """The same, for operators that the official suite lacks."""
    return draw.pick([operators, operators, misfits, graphs, sequences])(draw, rare_nodes.random_node)


def transposed(draw: Draw) -> Case | None:
    """A random graph in double, whose gradients are compared with differences."""
    for _ in range(10):  # many nodes have no floats
        node = draw.pick([seed_node, seed_node, rare_nodes.random_node])(draw)
        if (made := gradients.case(draw, node)) is not None:
            return made
    return None


TARGETS: dict[str, Maker] = {
    "operators": operators,
    "misfits": misfits,
    "forbidden": forbidden,
    "graphs": graphs,
    "sequences": sequences,
    "values": values,
    "rare": rare,
    "models": models.case,
    "loops": loops.case,
    "layers": layers.case,
    "feeds": feeds.case,
    "hostile": hostile.case,
    "programs": programs.case,
    "gradients": transposed,
    "loop_gradients": loops.gradients,
}
# Run only by name: most findings of eight extreme feeds a model are a peer's bugs, which a person must judge.
BY_NAME = {"values"}


def make(target: str, seed: int, index: int) -> Case | None:
    """The case, the same on every machine; None if the random choices make no model."""
    try:
        return TARGETS[target](Draw(f"{target}/{seed}/{index}"))
    except (TypeError, ValueError, OverflowError, AttributeError, NotImplementedError):
        return None  # onnx's helpers cannot write it
