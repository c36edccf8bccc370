"""Reads the artifacts of onnxruntime-training: of the training model the part up to the loss, of the optimiser's model
its settings. The gradients in the training model are not run: a step derives its own (docs/design/training.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from glob import escape
from typing import Any

from pyruntime.errors import InvalidInput, InvalidModel, UnsupportedOp
from pyruntime.onnx import load
from pyruntime.onnx.graph import Graph, Node, Source, Value, Weight, tensor_type, uses
from pyruntime.onnx.ort_checkpoint import Checkpoint, read_checkpoint
from pyruntime.onnx.weight_values import elements
from pyruntime.onnx.write import Piece
from pyruntime.training.files.artifact_export import inference_plan
from pyruntime.training.graph.recipe import recipe_of
from pyruntime.training.graph.training_graph import Training, training_graph

RATE = 1e-3  # of learning, as in onnxruntime until it is set
_ACCUMULATORS = ("InPlaceAccumulatorV2", "InPlaceAccumulator")
_OPSET = 17
# ours by theirs: moments in a checkpoint
MOMENTS: dict[str, dict[str, str]] = {"adamw": {"momentum0": "m", "momentum1": "v"}, "sgd": {}}


@dataclass(frozen=True, slots=True)
class Artifacts:
    """graph: the model and its loss; options: of a training session for it; inputs: names of feeds, in order; outputs:
    the loss and others, in order; parameters: names of all, in the order of the training model; corrects: whether the
    optimiser corrects its moments in the first steps"""

    graph: Graph
    options: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    corrects: bool


def artifact_training(
    train: Graph, files: Mapping[str, str], options: Mapping[str, Any], open_file: Callable[[str], Source]
) -> tuple[Training, Callable[[], list[Piece]]]:
    """The graph of a session in a page, and the plan of its inference model. files: names of checkpoint, optimizer and
    evaluation; options: further ones"""
    checkpoint = read_checkpoint(open_file(files["checkpoint"]))
    if checkpoint.is_nominal:
        raise InvalidInput("the checkpoint has no values", hint="in pages, give the complete one")
    found = artifacts(train, checkpoint, load(open_file(files["optimizer"])) if "optimizer" in files else None)
    recipe = recipe_of({**found.options, "step_outputs": found.outputs[1:], **options})
    made = training_graph(found.graph, recipe)
    known = {**checkpoint.trained, **checkpoint.frozen}
    parameters = [known[name] for name in found.parameters]
    moments = [
        [f"optimizer/{ours}/{name}", w.offset, w.size]
        for name, each in checkpoint.moments.items()
        for theirs, ours in MOMENTS[recipe.optimizer].items()
        if (w := each.get(theirs))
    ]
    report = {
        "inputs": found.inputs, "outputs": found.outputs, "corrects": found.corrects, "rate": checkpoint.rate or RATE,
        "parameters": [{"name": w.name, "shape": w.shape, "place": [w.offset, w.size]} for w in parameters],
        "step": checkpoint.step, "moments": moments,
    }  # fmt: skip

    def export() -> list[Piece]:
        if "evaluation" not in files or not found.outputs[1:]:
            hint = "give evalModel, and name additional outputs when the artifacts are made"
            raise InvalidInput("an inference model is made of the outputs of the evaluation model", hint=hint)
        evaluation = open_file(files["evaluation"])
        return inference_plan(evaluation, found.outputs[1:], {n: known[n] for n in found.parameters}, made.weights)

    return replace(made, artifacts=report), export


def artifacts(train: Graph, checkpoint: Checkpoint, optimizer: Graph | None) -> Artifacts:
    """Errors: InvalidModel, InvalidInput, UnsupportedOp if they do not belong together, or have parts that are not
    known"""
    sums = [n for n in train.nodes if n.op in _ACCUMULATORS]
    gradients = {o for n in sums for o in n.outputs}
    outputs = [v for v in train.outputs if v.name not in gradients]
    if not sums or not outputs:
        raise InvalidModel("the training model has no gradients", hint="give training_model.onnx as trainModel")
    internal = {name for n in sums for name in n.inputs}
    known = {**checkpoint.trained, **checkpoint.frozen}
    weights = {v.name: _parameter(v, known[v.name]) for v in train.inputs if v.name in known}
    inputs = [v for v in train.inputs if v.name not in known and v.name not in internal]
    nodes = _forward(train, {v.name for v in outputs})
    read = {name for n in nodes for name in uses(n)} | {v.name for v in outputs}
    weights |= {name: w for name, w in train.weights.items() if name in read}
    made = replace(train, inputs=tuple(inputs), outputs=tuple(outputs), nodes=tuple(nodes), weights=weights)
    trained = [v.name for v in train.inputs if v.name in checkpoint.trained]
    if len(trained) != len(sums):
        raise InvalidInput(
            f"the checkpoint has {len(trained)} parameters to train, the training model {len(sums)}",
            hint="they belong to different models",
        )
    settings, corrects = _optimizer(optimizer)
    options = {"loss": outputs[0].name, "trainable": [escape(n) for n in trained], "accumulate": True, **settings}
    feeds, results, parameters = (
        tuple(v.name for v in values) for values in (inputs, outputs, [v for v in train.inputs if v.name in known])
    )
    return Artifacts(made, options, feeds, results, parameters, corrects)


def _parameter(value: Value, weight: Weight) -> Weight:
    declared = tensor_type(value.type)
    shape = None if declared is None else declared.shape
    if shape is not None and tuple(shape) != weight.shape:
        raise InvalidInput(
            f'parameter "{value.name}" has shape {list(shape)}, in the checkpoint {list(weight.shape)}',
            hint="load the parameters first, if the checkpoint is a nominal one" if weight.source is None else "",
        )
    return weight


def _forward(train: Graph, wanted: set[str]) -> list[Node]:
    """The nodes that compute these values, with operators as they are without training."""
    needed, found = set(wanted), []
    for node in reversed(train.nodes):
        if not needed.isdisjoint(node.outputs):
            made = _PLAIN.get(node.op, _same)(node, train)
            needed |= {name for n in made for name in uses(n)}
            found.append(made)
    return [n for made in reversed(found) for n in made]


# ── operators of training models ────────────────────────────────────────────────────────────────────────────────────


def _same(node: Node, graph: Graph) -> list[Node]:
    return [node]


def _batch_norm(node: Node, graph: Graph) -> list[Node]:
    """Without its further outputs. One that keeps its statistics reads them through Identity, so that a step does not
    count them as the model's running statistics."""
    attrs = {k: v for k, v in node.attrs.items() if k in ("epsilon", "momentum")}
    plain = replace(node, op="BatchNormalization", domain="", opset=15, outputs=node.outputs[:1], attrs=attrs)
    if node.op == "BatchNormInternal" or node.attrs.get("training_mode"):
        return [plain]
    fixed = f"{node.outputs[0]}/mean"
    mean = Node("Identity", "", _OPSET, fixed, node.inputs[3:4], (fixed,))
    return [mean, replace(plain, inputs=(*node.inputs[:3], fixed, *node.inputs[4:]))]


def _dropout(node: Node, graph: Graph) -> list[Node]:
    if node.opset >= 12 and not _is_true(graph, node.inputs[2:3]):
        return [_made(node, "Identity", node.inputs[:1], node.outputs[0])]
    return [replace(node, inputs=node.inputs[:2], outputs=node.outputs[:1])]


def _bias_dropout(node: Node, graph: Graph) -> list[Node]:
    x, bias, residual, ratio, training = (*node.inputs, "", "", "")[:5]
    total, dropped = (f"{node.outputs[0]}/{part}" for part in ("sum", "dropped"))
    last = dropped if residual else node.outputs[0]
    kind, inputs = ("Dropout", (total, ratio)) if _is_true(graph, (training,)) else ("Identity", (total,))
    made = [_made(node, "Add", (x, bias), total), _made(node, kind, inputs, last)]
    return [*made, _made(node, "Add", (dropped, residual), node.outputs[0])] if residual else made


def _cross_entropy(node: Node, graph: Graph) -> list[Node]:
    attrs = {k: v for k, v in node.attrs.items() if k == "reduction"}
    if len(node.inputs) > 3 and node.inputs[3]:
        if node.inputs[3] not in graph.weights:
            raise UnsupportedOp("ignore_index must be a constant", node=node.label)
        attrs["ignore_index"] = elements(graph.weights[node.inputs[3]])[0]
    return [replace(node, op="SoftmaxCrossEntropyLoss", domain="", opset=13, inputs=node.inputs[:3], attrs=attrs)]


def _made(node: Node, op: str, inputs: tuple[str, ...], output: str) -> Node:
    return Node(op, "", _OPSET, f"{node.shown}/{op}", inputs, (output,))


def _is_true(graph: Graph, names: tuple[str, ...]) -> bool:
    return any(n in graph.weights and bool(elements(graph.weights[n])[0]) for n in names)


_PLAIN: Mapping[str, Callable[[Node, Graph], list[Node]]] = {
    "BatchNormInternal": _batch_norm,
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    "BitmaskDropout": lambda node, graph: _dropout(replace(node, op="Dropout", domain="", opset=13), graph),
    "BiasDropout": _bias_dropout,
    "BitmaskBiasDropout": _bias_dropout,
    "SoftmaxCrossEntropyLossInternal": _cross_entropy,
    "ConcatTraining": lambda node, _: [replace(node, op="Concat", domain="", opset=13, outputs=node.outputs[:1])],
}


# ── the optimiser ───────────────────────────────────────────────────────────────────────────────────────────────────


def _optimizer(model: Graph | None) -> tuple[dict[str, Any], bool]:
    """Its options, and whether it corrects its moments."""
    found: dict[str, Any] = {"optimizer": {"sgd": {"rate": RATE}}}
    corrects = True
    for node in model.nodes if model else ():
        a: dict[str, Any] = dict(node.attrs)
        if node.op == "AdamWOptimizer":
            values = {"beta1": a.get("alpha", 0.9), "beta2": a.get("beta", 0.999), "epsilon": a.get("epsilon", 1e-8)}
            values |= {"decay": a.get("weight_decay", 0.01), "transformers": a.get("adam_mode", 0) == 1}
            found["optimizer"] = {"adamw": {"rate": RATE, **values}}
            corrects = a.get("correct_bias", 1) == 1
        elif node.op == "InplaceClipGradNorm":
            found["clip"] = a.get("max_norm", 1.0)
        elif node.op != "SGDOptimizerV2" and not node.op.startswith("Sequence"):
            raise UnsupportedOp("this optimiser is not known", node=node.label, hint="AdamW and SGD are")
    return found, corrects
