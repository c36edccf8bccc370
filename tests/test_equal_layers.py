"""Equal layers of a model: the compiler optimises a few and copies their kernels. Programs are those of all layers
optimised, byte for byte, and results are onnxruntime's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.transformer import transformer
from kit import adapter_networks
from kit.decoders import TINY, Decoder
from pyruntime import InferenceSession, browser
from pyruntime.compiler import compile as compiler

WIDTH = 8


class Stack:
    """x (b, t, 8) -> y, through `count` layers of eight nodes. Subclasses change some of them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs = [self.value("x", ["b", "t", WIDTH])]
        self.outputs = [self.value("y", None)]
        self.results: list[str] = []

    @staticmethod
    def value(name: str, dims: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def put(self, name: str, value: Any) -> str:
        self.weights[name] = np.asarray(value)
        return name

    def weight(self, n: int, part: str) -> str:
        return self.put(f"{part}{n}", self.random.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4)

    def split(self, n: int) -> list[int]:
        return [0, -1, 2, WIDTH // 2]

    def exponent(self, n: int) -> float:
        return 2.0

    def layer(self, n: int, x: str) -> str:
        y = self.node("MatMul", x, self.weight(n, "first"))
        y = self.node("Reshape", y, self.put(f"split{n}", np.int64(self.split(n))))
        y = self.node("Softmax", y, axis=-1)
        y = self.node("Reshape", y, self.put(f"join{n}", np.int64([0, -1, WIDTH])))
        y = self.node("Pow", y, self.put(f"exponent{n}", np.float32(self.exponent(n))))
        y = self.node("MatMul", y, self.weight(n, "second"))
        return self.node("Relu", self.node("Add", x, y))

    def end(self, x: str) -> str:
        return self.node("Neg", x)

    def model(self) -> bytes:
        x = self.node("Abs", "x")
        for n in range(self.count):
            x = self.layer(n, x)
            self.results.append(x)
        last = self.end(x)
        self.nodes.append(helper.make_node("Identity", [last], ["y"]))
        weights = [numpy_helper.from_array(w, name) for name, w in self.weights.items()]
        graph = helper.make_graph(self.nodes, "stack", self.inputs, self.outputs, weights)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


class OneSplit(Stack):
    """Values of weights decide what a node does, and one layer has others."""

    def split(self, n: int) -> list[int]:
        return [0, -1, 4, 2] if n == 5 else super().split(n)


class OneExponent(Stack):
    def exponent(self, n: int) -> float:
        return 3.0 if n == 5 else 2.0


class AllStates(Stack):
    """The results of all layers are outputs."""

    def layer(self, n: int, x: str) -> str:
        y = super().layer(n, x)
        self.outputs.append(self.value(y, None))
        return y


class OneState(Stack):
    def layer(self, n: int, x: str) -> str:
        y = super().layer(n, x)
        self.outputs += [self.value(y, None)] if n == 5 else []
        return y


class Tied(Stack):
    """Two layers have one weight."""

    def weight(self, n: int, part: str) -> str:
        return super().weight(2, part) if n == 6 else super().weight(n, part)


class Joined(Stack):
    """The end reads all layers."""

    def end(self, x: str) -> str:
        return self.node("Concat", *self.results, axis=-1)


class Skipping(Stack):
    """A layer reads the one before the last one."""

    def layer(self, n: int, x: str) -> str:
        return super().layer(n, self.node("Add", x, self.results[n - 2] if n > 1 else "x"))


class Masked(Stack):
    """All layers read what the first one computes, and one weight."""

    def layer(self, n: int, x: str) -> str:
        if n == 0:
            self.mask = self.node("Sigmoid", "x")
            self.put("all", np.float32(np.arange(WIDTH)))
        return super().layer(n, self.node("Mul", self.node("Add", x, "all"), self.mask))


class Fused(Stack):
    """Layers that are fused into one kernel."""

    def layer(self, n: int, x: str) -> str:
        return self.node("Asinh", x)


class Beside(Stack):
    """A chain that is fused into one kernel, beside layers that are not."""

    chain = "x"

    def layer(self, n: int, x: str) -> str:
        self.chain = self.node("Asinh", self.chain)
        return super().layer(n, x)

    def end(self, x: str) -> str:
        return self.node("Sub", x, self.chain)


class Woven(Beside):
    """A chain of the same kind that also reads the layers."""

    def layer(self, n: int, x: str) -> str:
        y = super().layer(n, x)
        self.chain = self.node("Mul", self.chain, y)
        return y


class Cached(Stack):
    """Each layer has a cache of a length of its own."""

    def layer(self, n: int, x: str) -> str:
        self.inputs.append(self.value(f"past{n}", ["b", f"length{n}", WIDTH]))
        self.outputs.append(self.value(f"present{n}", None))
        self.nodes.append(helper.make_node("Concat", [f"past{n}", x], [f"present{n}"], axis=1))
        return super().layer(n, self.node("Add", x, self.node("ReduceMean", f"present{n}", axes=[1], keepdims=1)))


class Growing(Stack):
    """Each layer adds to a number that the compiler knows, with which the end makes a shape."""

    def layer(self, n: int, x: str) -> str:
        self.rows = (
            self.node("Add", self.rows, self.put("one", np.int64([1]))) if n else self.put("rows", np.int64([2]))
        )
        return super().layer(n, x)

    def end(self, x: str) -> str:
        self.put("width", np.int64([1, WIDTH]))
        return self.node(
            "Expand", self.node("ReduceSum", x, keepdims=1), self.node("Concat", self.rows, "width", axis=0)
        )


class Lengthening(Stack):
    """Each layer adds a row."""

    def layer(self, n: int, x: str) -> str:
        return super().layer(
            n, self.node("Concat", x, self.node("ReduceSum", x, self.put("row", np.int64([1]))), axis=1)
        )


class Alternating(Stack):
    """Even layers differ from odd ones."""

    def layer(self, n: int, x: str) -> str:
        return super().layer(n, self.node("Tanh", x) if n % 2 else x)


STACKS = [
    (Stack, 9, True), (OneSplit, 9, False), (OneExponent, 9, False), (AllStates, 9, True), (OneState, 9, False),
    (Tied, 9, False), (Joined, 9, False), (Skipping, 9, False), (Masked, 10, True), (Cached, 9, True),
    (Fused, 30, False), (Fused, 40, False), (Beside, 9, False), (Woven, 9, False),
    (Growing, 9, False), (Lengthening, 9, False), (Alternating, 14, True), (Stack, 1, False), (Stack, 7, False),
    (Stack, 8, True), (Stack, 40, True),
]  # fmt: skip


def decoder(kind: str) -> Callable[[], bytes]:
    return lambda: Decoder(TINY._replace(layers=8), kind, False).model().SerializeToString()


def exported() -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter_networks, "LAYERS", 9)
        return adapter_networks.Decoder("float16").build()


NETWORKS: dict[str, Callable[[], bytes]] = {
    **{kind: decoder(kind) for kind in ("fp32", "fp16", "int4", "int8a")},
    "transformer": lambda: transformer(600), "exported": exported,
}  # fmt: skip


def compiled(model: bytes, copies: bool) -> tuple[Any, bytes, str, bool]:
    """The Program of a page, what the session tells about the model, and whether kernels were copied."""
    with pytest.MonkeyPatch.context() as patch:
        if not copies:
            patch.setattr(compiler, "equal_layers", lambda *_: None)
        made = browser.Model(lambda offset, size, *_: model[offset : offset + size], len(model), {})
        main = made.main
        assert main is not None
        return json.loads(main.json), main.blob, made.info, "copies" in json.loads(main.timings)


def check_programs(model: bytes, copies: bool) -> None:
    found, whole = compiled(model, True), compiled(model, False)
    assert found[3] == copies
    assert not whole[3]
    assert found[0] == whole[0]
    assert found[1:3] == whole[1:3]


@pytest.mark.parametrize("name", NETWORKS)
def test_programs_of_networks(name: str) -> None:
    check_programs(NETWORKS[name](), True)


@pytest.mark.parametrize(("kind", "count", "copies"), STACKS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_layers(kind: type[Stack], count: int, copies: bool) -> None:
    stack = kind(count)
    model = stack.model()
    check_programs(model, copies)
    feeds = {"x": np.random.default_rng(1).normal(size=(2, 3, WIDTH)).astype(np.float32)}
    feeds |= {v.name: np.full((2, n, WIDTH), n, np.float32) for n, v in enumerate(stack.inputs[1:])}
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for got, want in zip(InferenceSession(model).run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
