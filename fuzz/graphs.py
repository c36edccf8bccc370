"""Small graphs around a node: nodes before its inputs and after its outputs, so that graph passes have work to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from fuzz.draw import Draw
from fuzz.node import tensor

UNARY = "Relu Abs Neg Sigmoid Tanh Exp Sqrt Floor Identity Softplus Erf HardSwish Sign Ceil Round Elu LeakyRelu".split()
BINARY = "Add Sub Mul Div Max Min".split()


class Around:
    """Adds nodes to a model of one node; a counter makes their names unique."""

    def __init__(self, draw: Draw, model: onnx.ModelProto, feeds: dict[str, Any]) -> None:
        self.draw, self.model, self.graph, self.feeds = draw, model, model.graph, feeds
        self.opset = model.opset_import[0].version
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def constant(self, x: Any) -> str:
        name = self.name()
        self.graph.initializer.append(tensor(np.asarray(x), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, list(inputs), [self.name()], **attributes)

    # ── before ──

    def before(self) -> None:
        """Puts nodes before some inputs; feeds and declared shapes change so that the node gets the same values."""
        core = self.graph.node[0]
        for value in list(self.graph.input):
            x = self.feeds.get(value.name)
            if not isinstance(x, np.ndarray) or x.dtype.kind not in "fiub" or not self.draw.chance(0.6):
                continue
            nodes, fed = self._nodes_before(value.name, x)
            for n, name in enumerate(core.input):
                if name == value.name:
                    core.input[n] = nodes[-1].output[0]
            for node in reversed(nodes):
                self.graph.node.insert(0, node)
            self._feed(value, x, fed)

    def _feed(self, value: Any, before: np.ndarray, after: np.ndarray) -> None:
        self.feeds[value.name] = after
        kind = value.type.tensor_type
        if after.shape != before.shape and kind.HasField("shape"):
            dims = list(after.shape) if self.draw.chance(0.6) else [None] * after.ndim
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind.elem_type, dims))

    def _nodes_before(self, name: str, x: np.ndarray) -> tuple[list[onnx.NodeProto], np.ndarray]:
        """Nodes that make x's shape of what is fed instead."""
        how = self.draw.below(6)
        if how == 0 and x.ndim > 1:
            perm = self.draw.rng.permutation(x.ndim)
            node = self.node("Transpose", name, perm=perm.tolist())
            return [node], np.ascontiguousarray(np.transpose(x, np.argsort(perm)))
        if how == 1:
            return [self.node("Reshape", name, self.constant(np.array(x.shape, np.int64)))], x.reshape(-1)
        if how == 2 and x.ndim and self.opset >= 10:
            axis, pad = self.draw.below(x.ndim), self.draw.between(1, 3)
            fed = np.pad(x, [(pad, pad) if n == axis else (0, 0) for n in range(x.ndim)])
            ints = [self.constant(np.array([v], np.int64)) for v in (pad, pad + x.shape[axis], axis)]
            return [self.node("Slice", name, *ints)], fed
        if how == 3 and x.dtype == np.float32:
            return [self.node("Cast", name, to=onnx.TensorProto.FLOAT)], x.astype(np.float32)
        if how == 4 and x.ndim and x.shape[0] > 1:
            half = x.shape[0] // 2
            node = self.node("Concat", name, self.constant(x[half:]), axis=0)
            return [node], x[:half]
        return self.elementwise(name, x.dtype, 1 + self.draw.below(2)), x

    # ── after ──

    def after(self) -> None:
        """Puts nodes behind some outputs; the inner value may remain an output."""
        try:
            known = onnx.shape_inference.infer_shapes(self.model)
            types = {v.name: v.type.tensor_type for v in known.graph.output}
        except onnx.shape_inference.InferenceError:
            types = {}
        for value in list(self.graph.output):
            kind = types.get(value.name)
            if kind is None or kind.elem_type not in (1, 6, 7, 10, 11):
                continue
            rank = len(kind.shape.dim) if kind.HasField("shape") else None
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
            name = value.name
            for _ in range(1 + self.draw.below(3)):
                nodes, rank = self._nodes_behind(name, dtype, rank)
                self.graph.node.extend(nodes)
                name = nodes[-1].output[0]
            if self.draw.chance(0.7):
                self.graph.output.remove(value)
            self.graph.output.append(onnx.ValueInfoProto(name=name))

    def _nodes_behind(self, name: str, dtype: np.dtype, rank: int | None) -> tuple[list[onnx.NodeProto], int | None]:
        """Nodes on a tensor, and the rank of their result."""
        how = self.draw.below(9)
        if how == 0 and rank is not None and rank > 1:
            return [self.node("Transpose", name, perm=self.draw.rng.permutation(rank).tolist())], rank
        if how == 1 and self.opset >= 14:
            return [self.node("Reshape", name, self.constant(np.array([-1], np.int64)))], 1
        if how == 2 and rank and self.opset >= 13:
            axis = self.draw.between(-rank, rank - 1)
            kept = self.draw.below(2)
            op = self.draw.pick(["ReduceSum", "ReduceMax", "ReduceMean"])
            tied = op == "ReduceSum" or self.opset >= 18
            given = {"axes": [axis]} if not tied else {}
            axes = [self.constant(np.array([axis], np.int64))] if tied else []
            return [self.node(op, name, *axes, keepdims=kept, **given)], rank if kept else rank - 1
        if how == 3 and rank:
            return [self.node("Concat", name, name, axis=self.draw.between(-rank, rank - 1))], rank
        if how == 4 and rank and self.opset >= 10:
            axis, step = self.draw.below(rank), self.draw.pick([1, 1, 2, -1])
            start, end = (0, 2**31) if step > 0 else (-1, -(2**31))
            ints = [self.constant(np.array([v], np.int64)) for v in (start + (step > 0), end, axis, step)]
            return [self.node("Slice", name, *ints)], rank
        if how == 5 and rank and dtype.kind == "f" and self.opset >= 13:
            return [self.node("Softmax", name, axis=self.draw.between(-rank, rank - 1))], rank
        if how == 6 and dtype.kind == "f":  # x · sigmoid(x)
            gate = self.node("Sigmoid", name)
            return [gate, self.node("Mul", name, gate.output[0])], rank
        return self.elementwise(name, dtype, 1 + self.draw.below(2)), rank

    def elementwise(self, name: str, dtype: np.dtype, count: int) -> list[onnx.NodeProto]:
        made = []
        for _ in range(count):
            if dtype.kind == "b":
                node = self.node("Not", name)
            elif dtype.kind != "f":
                node = self.node("Identity", name)
            elif self.draw.chance(0.5):
                node = self.node(self.draw.pick(UNARY if self.opset >= 14 else UNARY[:9]), name)
            else:
                other = self.constant(np.array(self.draw.pick([0.5, 2.0, -1.0, 3.0]), dtype))
                pair = [name, other] if self.draw.chance(0.7) else [other, name]
                node = self.node(self.draw.pick(BINARY), *pair)
            made.append(node)
            name = node.output[0]
        return made
