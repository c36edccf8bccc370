"""Turns a model into the graph of a training session: loss, gradients and updates are further nodes.

Such a graph compiles and runs like any other. Its weights that are trained are states, which runs change in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar

from pyruntime.errors import InvalidInput
from pyruntime.ir.dtype import BF16, BY_NAME, F16, F32, DType
from pyruntime.ir.reference import round_float
from pyruntime.ir.shape import Shape
from pyruntime.onnx.edit import NodeWriters
from pyruntime.onnx.graph import Graph, Node, TensorType, Value, Weight, tensor_type, uses
from pyruntime.onnx.sources import MemorySource
from pyruntime.onnx.weight_values import elements
from pyruntime.onnx.write import Piece
from pyruntime.runtime.step_numbers import COUNT, OWN
from pyruntime.runtime.trained_weights import OPTIMIZER, chosen
from pyruntime.runtime.training_steps import APPLIED, APPLY, LOSS, NUMBERS, RESULT
from pyruntime.training.adapters.lora import Lora, Merge, with_lora
from pyruntime.training.adapters.side_nodes import side_nodes
from pyruntime.training.graph import losses, step_operators  # noqa: F401  their operators
from pyruntime.training.graph.export_advice import warn_of_changes, warn_of_padding, warn_of_probabilities
from pyruntime.training.graph.function_rule import shapes_of
from pyruntime.training.graph.graph_names import COPY, DOMAIN
from pyruntime.training.graph.inference_mode import in_inference, inference_writers
from pyruntime.training.graph.learned_scales import REASON, learned_scales, scales_of, with_learned_scales
from pyruntime.training.graph.loss_feeds import feeds_of
from pyruntime.training.graph.loss_graph import LossGraph
from pyruntime.training.graph.loss_models import WITH_MODEL
from pyruntime.training.graph.recipe import DYNAMIC, VECTORS, Recipe
from pyruntime.training.graph.separated_weights import Separated, in_turn, separated
from pyruntime.training.graph.torch_notes import with_detached
from pyruntime.training.graph.trained_weights import trained_weights
from pyruntime.training.graph.training_mode import TrainingMode, renamed_node, training_mode

_OPSET = 20


@dataclass(frozen=True, slots=True)
class Training:
    """graph: of the training session; weights: names of those that are trained, in the model's order; halves: of these,
    the names that the model has in 16 bits, with their types; statistics: names of running statistics that steps
    change; targets: names of the feeds for losses; outputs: names of the model's outputs; step_outputs: of these, names
    in the graph of what a step returns; lora: the adapters that are trained; base: the graph without them; reasons: why
    weights are trained, by name; separated: what the file has otherwise; artifacts: what the page must know of
    onnxruntime-training's"""

    graph: Graph
    weights: tuple[str, ...]
    halves: Mapping[str, str]
    statistics: tuple[str, ...]
    targets: tuple[str, ...]
    outputs: tuple[str, ...]
    recipe: Recipe
    step_outputs: Mapping[str, str]
    lora: Lora | None
    base: Graph
    reasons: Mapping[str, str] = field(default_factory=dict)
    separated: Separated | None = None
    artifacts: Mapping[str, Any] | None = None
    kind: ClassVar[str] = "training"  # of what it tells the page

    @property
    def merges(self) -> dict[str, list[Merge]]:
        """The products of adapters that an exported model has in its weights, by name of the weight."""
        return {} if self.lora is None else self.lora.merges(self.base)

    @property
    def written(self) -> tuple[NodeWriters, list[Piece], Sequence[str]]:
        """What an exported model has in place of nodes, and its further weights: the products of adapters that are no
        merges, the nodes that are in training mode, and the initializers that are separate; and those that are gone.
        Errors: InvalidInput"""
        beside, pieces = side_nodes([] if self.lora is None else self.lora.beside(self.base))
        apart = self.separated
        changed = {**inference_writers(self.base), **beside}
        if apart is None:
            return changed, pieces, ()
        return in_turn(apart.writers, changed), [*pieces, *apart.pieces([*self.exported])], apart.gone

    @property
    def exported(self) -> dict[str, tuple[DType, tuple[int, ...]]]:
        """The weights that an exported model has new values of, with the types that the model has."""
        own = [n for n in (*self.weights, *self.statistics) if n in self.base.weights]
        found = {n: self.graph.weights[n] for n in (*own, *self.merges)}
        return {n: (BY_NAME[self.halves.get(n, w.dtype.name)], w.shape) for n, w in found.items()}

    @property
    def moments(self) -> dict[str, Shape]:
        """Shapes of the optimiser's states that do not have their weight's, by name."""
        weights = [self.graph.weights[n] for n in (self.weights if self.recipe.update else ())]
        found = [(w, shapes_of(self.recipe.update[len(w.shape)], w.shape)[1]) for w in weights]
        return {f"{OPTIMIZER}{m}/{w.name}": s for w, of in found for m, s in of.items() if m and s != w.shape}

    def in_file(self) -> dict[str, Any]:
        """Nothing: sessions open no Program that trains."""
        return {}

    def report(self) -> dict[str, Any]:
        """For the page: what is trained, and what the host of a step must know."""
        recipe, weights = self.recipe, self.graph.weights
        types = {v.name: v.type.dtype for v in self.graph.inputs if isinstance(v.type, TensorType)}
        named = [(n, weights[n]) for n in (*self.weights, *self.statistics)]
        return {
            "weights": [{"name": n, "shape": list(w.shape), "dtype": w.dtype.name} for n, w in named],
            "count": len(self.weights),
            "reasons": {**self.reasons},
            "targets": {n: str(types[n]) for n in self.targets},
            "outputs": list(self.outputs),
            "accumulates": recipe.accumulates,
            "optimizer": recipe.optimizer,
            "settings": {**recipe.step_settings},
            "schedule": recipe.schedule,
            "timing": {**recipe.schedule_settings},
            "seed": recipe.seed,
            "lora": None if self.lora is None else {"names": self.lora.names, "config": self.lora.config()},
            "lossScale": recipe.loss_scale,
            "copies": recipe.copies,
            "moments": {name: [*shape] for name, shape in self.moments.items()},
            "stepOutputs": {**self.step_outputs},
            **({} if self.artifacts is None else {"artifacts": self.artifacts}),
        }


def training_graph(model: Graph, recipe: Recipe) -> Training:
    """Errors: InvalidInput for options that do not fit the model."""
    if recipe.loss_scale is None:
        recipe = replace(recipe, loss_scale=DYNAMIC if _has_halves(model) else 1.0)
    apart = separated(model) if recipe.lora is None else Separated(model)
    model = apart.graph
    warn_of_changes(model)
    warn_of_probabilities(model, recipe.losses)
    reasons = _weights_to_train(model, recipe)
    if recipe.zeros != "keep":
        warn_of_padding(model, reasons)
    learned = [] if recipe.scales == "fixed" else learned_scales(model, recipe)
    reasons |= dict.fromkeys(learned, REASON)
    recipe = replace(recipe, positive=tuple(n for n in scales_of(model) if n in reasons))
    weights = [*reasons]
    base, halves = _with_masters(model, weights)
    graph, lora = (base, None) if recipe.lora is None else with_lora(base, recipe.lora, recipe.seed)
    graph = with_learned_scales(graph, learned)
    weights += [] if lora is None else lora.names
    _check_groups(recipe, weights)
    _check_ranks(graph, recipe, weights)
    mode = training_mode(graph) if recipe.mode == "train" else TrainingMode()
    graph = with_detached(in_inference(graph))
    loss = _Losses(graph, recipe)
    graph = loss.added_to(graph, mode)
    graph = _with_step(graph, recipe, weights, mode, COPY + LOSS if mode.renamed else LOSS)
    return Training(
        graph=graph, weights=tuple(weights), halves=halves, statistics=tuple(mode.statistics),
        targets=tuple(loss.feeds), outputs=tuple(v.name for v in base.outputs), recipe=recipe,
        step_outputs=_step_outputs(base, recipe, mode), lora=lora, base=base, reasons=reasons,
        separated=apart,
    )  # fmt: skip


def _with_step(graph: Graph, recipe: Recipe, weights: Sequence[str], mode: TrainingMode, loss: str) -> Graph:
    """The graph with the operators that change weights. loss: the value whose gradients they take"""
    attrs = {"recipe": replace(recipe, losses=()).to_json(), "weights": json.dumps(weights)}
    inputs = [Value(NUMBERS, TensorType(F32, (COUNT + OWN * len(weights),)))]
    outputs, first, sums = [LOSS, RESULT], [], []
    if recipe.accumulates:
        sums = [f"{COPY}{name}/sum" for name in weights]
        first = [Node("Apply", DOMAIN, 1, "optimizer", (NUMBERS, APPLY, *weights), (APPLIED, *sums), attrs)]
        inputs.append(Value(APPLY, TensorType(F32, (APPLY,))))
        outputs.append(APPLIED)
    operands = (loss, NUMBERS, *weights, *sums, *mode.statistics, *mode.statistics.values())
    outputs += [mode.renamed[name] for name in recipe.step_outputs if name in mode.renamed]
    _check_names(graph, [v.name for v in inputs])
    states = {*weights, *mode.statistics}
    return replace(
        graph,
        nodes=(*first, *graph.nodes, Node("Step", DOMAIN, 1, "step", operands, (RESULT,), attrs)),
        inputs=(*[v for v in graph.inputs if v.name not in graph.weights], *inputs),
        outputs=(*graph.outputs, *[Value(name, None) for name in outputs]),
        weights={n: replace(w, is_state=True) if n in states else w for n, w in graph.weights.items()},
        opsets={**graph.opsets, DOMAIN: 1},
    )


def _step_outputs(model: Graph, recipe: Recipe, mode: TrainingMode) -> dict[str, str]:
    """Names in the graph of the outputs that a step returns, by name. Errors: InvalidInput"""
    known = [v.name for v in model.outputs]
    if unknown := [name for name in recipe.step_outputs if name not in known]:
        text = f'output "{unknown[0]}" of step_outputs does not exist'
        raise InvalidInput(text, hint=f"outputs are {', '.join(known)}")
    return {name: mode.renamed.get(name, name) for name in recipe.step_outputs}


# ── weights ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _weights_to_train(graph: Graph, recipe: Recipe) -> dict[str, str]:
    """Names and reasons. With adapters, only weights that the caller names."""
    return {} if recipe.lora is not None and recipe.trainable is None else trained_weights(graph, recipe)


def _check_groups(recipe: Recipe, weights: Sequence[str]) -> None:
    """Errors: InvalidInput for a pattern that chooses no weight"""
    named = () if recipe.no_decay == (VECTORS,) else recipe.no_decay
    chosen([*weights], [*[p for group in recipe.groups for p in group.match], *named])


def _check_ranks(graph: Graph, recipe: Recipe, weights: Sequence[str]) -> None:
    """Errors: InvalidInput for a weight with more axes than an optimiser that is a function is traced for"""
    for name in weights if recipe.update else ():
        if (rank := len(graph.weights[name].shape)) >= len(recipe.update):
            text = f'"{name}" has {rank} axes: too many for the optimizer "{recipe.optimizer}"'
            raise InvalidInput(text, hint=f"up to {len(recipe.update) - 1}; leave it out by `frozen`")


def _with_masters(graph: Graph, names: Sequence[str]) -> tuple[Graph, dict[str, str]]:
    """The graph in which weights of 16 bits that are trained are kept in float32, and cast where they are read."""
    weights, casts = dict(graph.weights), []
    renamed: dict[str, str] = {}
    halves: dict[str, str] = {}
    for name in names:
        w = weights[name]
        if w.dtype in (F16, BF16):
            weights[name] = _in_float32(w)
            renamed[name] = COPY + name
            halves[name] = w.dtype.name
            casts.append(Node("Cast", "", _OPSET, renamed[name], (name,), (renamed[name],), {"to": w.dtype.code}))
    if not casts:
        return graph, {}
    nodes = [replace(renamed_node(n, renamed), name=n.name) if set(uses(n)) & set(renamed) else n for n in graph.nodes]
    return replace(graph, weights=weights, nodes=(*casts, *nodes)), halves


def _has_halves(graph: Graph) -> bool:
    """Whether gradients would pass through float16, in which those below 6e-8 become 0: then the loss is scaled."""
    types = [tensor_type(v.type) for v in (*graph.inputs, *graph.outputs)]
    casts = any(n.op == "Cast" and n.attrs.get("to") == F16.code for n in graph.nodes)
    return casts or any(w.dtype is F16 for w in graph.weights.values()) or any(t and t.dtype is F16 for t in types)


def _in_float32(w: Weight) -> Weight:
    import struct

    values = elements(w)
    data = struct.pack(f"<{len(values)}f", *[round_float(v, F32) for v in values if isinstance(v, float)])
    return Weight(w.name, F32, w.shape, MemorySource(data), 0, len(data))


# ── losses ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Losses:
    """The losses of a recipe, as nodes beside a model. feeds: what they need, by name"""

    def __init__(self, model: Graph, recipe: Recipe) -> None:
        self._losses = recipe.losses
        self._graphs = {n: LossGraph(model, x, n) for n, x in enumerate(recipe.losses) if x.kind in WITH_MODEL}
        self.feeds: dict[str, Value] = {}
        outputs = {v.name: tensor_type(v.type) for v in model.outputs}
        inputs = {v.name: tensor_type(v.type) for v in model.inputs}
        for n, loss in enumerate(recipe.losses):
            types = {**inputs, **outputs} if loss.kind == "function" else outputs
            if n in self._graphs:
                self.feeds = {v.name: v for v in self._graphs[n].feeds} | self.feeds
            else:
                self._add(feeds_of(loss, types))

    def _add(self, feeds: Mapping[str, TensorType]) -> None:
        """Errors: InvalidInput for one that losses need with other axes"""
        for name, of in feeds.items():
            first = self.feeds.setdefault(name, Value(name, of)).type
            ranks = [len(x.shape or ()) for x in (first, of) if isinstance(x, TensorType)]
            if ranks[0] != ranks[-1]:
                text = f'losses need the target "{name}" with {ranks[0]} axes and with {ranks[-1]}'
                raise InvalidInput(text, hint="name one of them otherwise")

    def added_to(self, graph: Graph, mode: TrainingMode) -> Graph:
        """The graph that computes the loss of an evaluation, as LOSS, and that of a step if training differs."""
        _check_names(graph, self.feeds)
        nodes = [*mode.nodes, *self._nodes(LOSS, {})]
        nodes += self._nodes(COPY + LOSS, mode.renamed) if mode.renamed else []
        made = replace(graph, nodes=(*graph.nodes, *nodes), inputs=(*graph.inputs, *self.feeds.values()))
        return reduce(lambda whole, loss_graph: loss_graph.added_to(whole), self._graphs.values(), made)

    def _nodes(self, name: str, renamed: Mapping[str, str]) -> list[Node]:
        """Nodes for the loss of this name. renamed: of values in training"""
        nodes: list[Node] = []
        parts = tuple(f"{name}/{n}" for n in range(len(self._losses)))
        for n, (loss, part) in enumerate(zip(self._losses, parts, strict=True)):
            if n in self._graphs:
                nodes += self._graphs[n].nodes(part, renamed)
                continue
            operands = (*[renamed.get(name, name) for name in (loss.output, *loss.more)], *loss.feeds)
            attrs = {"kind": loss.kind, "settings": json.dumps(dict(loss.settings))}
            nodes.append(Node("Loss", DOMAIN, 1, f"{loss.kind} of {loss.output}", operands, (part,), attrs))
        scales = json.dumps([loss.scale for loss in self._losses])
        return [*nodes, Node("Total", DOMAIN, 1, name, parts, (name,), {"scales": scales})]


def _check_names(graph: Graph, names: Iterable[str]) -> None:
    taken = {v.name for v in graph.inputs} | graph.weights.keys() | {o for n in graph.nodes for o in n.outputs}
    for name in names:
        if name in taken:
            raise InvalidInput(f'the model has a value "{name}" already', hint="name the target otherwise")
