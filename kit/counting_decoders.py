"""Tiny decoders whose next token is a sum over what their caches hold, modulo the number of words: any mistake with a
cache gives another token. Each has the same rule in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS = 97
WINDOW = 3
HEAD = 8  # elements of a cache whose head size has a name
FLOAT = TensorProto.FLOAT


class Case(NamedTuple):
    """rule: the token after a text; options: sizes of free dims, for a session that needs them"""

    model: onnx.ModelProto
    rule: Callable[[Sequence[int]], int]

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        found = list(prompt)
        for _ in range(count):
            found.append(self.rule(found) % WORDS)
        return found[len(prompt) :]


class _Graph:
    """Nodes, and the inputs and outputs of caches."""

    def __init__(self, new: Any = "new", batch: Any = "batch") -> None:
        self.new, self.batch = new, batch
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [batch, new])]
        self.outputs: list[onnx.ValueInfoProto] = []
        self.ids = self.node("Cast", "input_ids", to=FLOAT)

    def node(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """The output of a node; operands that are no names become constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [f"t{len(self.nodes)}"], **attributes))
        return f"t{len(self.nodes) - 1}"

    def constant(self, value: Any) -> str:
        array = np.array(value, np.float32 if isinstance(value, float) or np.ndim(value) == 3 else np.int64)
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def cache(self, past: str, x: str, dtype: int = FLOAT, head: Any = 1) -> str:
        """Append x (batch, new) to a cache (batch, 1, positions, head), as float32."""
        self.inputs.append(helper.make_tensor_value_info(past, dtype, [self.batch, 1, "past", head]))
        old = self.node("Cast", past, to=FLOAT)
        fresh = self.node("Unsqueeze", x, [1, 3])
        if head != 1:
            fresh = self.node("Expand", fresh, [1, 1, 1, HEAD])
        return self.node("Concat", old, fresh, axis=2)

    def present(self, name: str, x: str, dims: list[Any], dtype: int = FLOAT) -> None:
        self.nodes.append(helper.make_node("Cast", [x], [name], to=dtype))
        self.outputs.append(helper.make_tensor_value_info(name, dtype, dims))

    def sums(self, cache: str) -> str:
        """The sums up to each new position of a cache (batch, 1, positions, head): (batch, new)."""
        return self.last(self.node("CumSum", self.node("ReduceMean", cache, [1, 3], keepdims=0), 1))

    def last(self, x: str) -> str:
        """The new positions of x (batch, positions)."""
        count = self.node("Neg", self.node("Shape", "input_ids", start=1))
        return self.node("Slice", x, count, [2**31], [1])

    def model(self, score: str) -> onnx.ModelProto:
        """Logits whose largest is at the score (batch, new), modulo the words."""
        token = self.node("Mod", self.node("Cast", score, to=TensorProto.INT64), WORDS)
        self.nodes.append(helper.make_node("OneHot", [token, self.constant(WORDS), self.values()], ["logits"]))
        logits = helper.make_tensor_value_info("logits", FLOAT, [self.batch, self.new, WORDS])
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, [logits, *self.outputs], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def values(self) -> str:
        self.weights.append(numpy_helper.from_array(np.array([0, 1], np.float32), "off_on"))
        return "off_on"


def of_sums(dtype: int = FLOAT, head: Any = 1, new: Any = "new", batch: Any = "batch") -> Case:
    """The sum of all tokens, in a cache of this element type."""
    g = _Graph(new, batch)
    whole = g.cache("past_key_values.0.key", g.ids, dtype, head)
    g.present("present.0.key", whole, [batch, 1, "total", head], dtype)
    return Case(g.model(g.sums(whole)), sum)


def of_convolution(names: tuple[str, str] = ("past_conv.0", "present_conv.0")) -> Case:
    """A convolution over the last three tokens, whose state of two tokens has a fixed size, beside a cache of keys."""
    g = _Graph()
    g.inputs.append(helper.make_tensor_value_info(names[0], FLOAT, ["batch", 1, WINDOW - 1]))
    g.present("present.0.key", g.cache("past_key_values.0.key", g.ids), ["batch", 1, "total", 1])
    whole = g.node("Concat", names[0], g.node("Unsqueeze", g.ids, [1]), axis=2)
    g.present(names[1], g.node("Slice", whole, [1 - WINDOW], [2**31], [2]), ["batch", 1, WINDOW - 1])
    found = g.node("Conv", whole, [[[1.0, 3.0, 5.0]]])
    return Case(
        g.model(g.node("Squeeze", found, [1])), lambda t: int(np.dot([5, 3, 1][: len(t)], t[: -WINDOW - 1 : -1]))
    )


def of_recurrence() -> Case:
    """Two states of a recurrence that reads one token at a time, h = 3 h + token and c = c + h."""
    g = _Graph(1, 1)
    for name in ("h0", "c0"):
        g.inputs.append(helper.make_tensor_value_info(name, FLOAT, [1, 1]))
    h = g.node("Mod", g.node("Add", g.node("Mul", "h0", 3.0), g.ids), float(WORDS), fmod=1)
    c = g.node("Mod", g.node("Add", "c0", h), float(WORDS), fmod=1)
    g.present("hn", h, [1, 1])
    g.present("cn", c, [1, 1])

    def rule(tokens: Sequence[int]) -> int:
        h = c = 0
        for token in tokens:
            h = (3 * h + token) % WORDS
            c = (c + h) % WORDS
        return c + h

    return Case(g.model(g.node("Add", h, c)), rule)


def of_window() -> Case:
    """The last token and the sum of the last three; the present keeps the last two positions alone."""
    g = _Graph()
    whole = g.cache("past_key_values.0.key", g.ids)
    g.present("present.0.key", g.node("Slice", whole, [1 - WINDOW], [2**31], [2]), ["batch", 1, "kept", 1])
    padded = g.node("Pad", g.node("Squeeze", whole, [3]), [0, 0, WINDOW - 1, 0, 0, 0])
    found = g.node("Squeeze", g.node("Conv", padded, [[[1.0] * WINDOW]]), [1])
    return Case(g.model(g.node("Add", g.ids, g.last(found))), lambda t: t[-1] + sum(t[-WINDOW:]))


def of_two_caches(pasts: Sequence[str], presents: Sequence[str], *, swapped: bool = False) -> Case:
    """Three times the sum of the tokens and seven times that of their doubles. swapped: outputs in another order"""
    g = _Graph()
    terms, made = [], []
    for name, size, factor in zip(pasts, (1.0, 2.0), (3.0, 7.0), strict=True):
        whole = g.cache(name, g.node("Mul", g.ids, size))
        terms.append(g.node("Mul", g.sums(whole), factor))
        made.append(whole)
    for name, whole in sorted(zip(presents, made, strict=True), reverse=swapped, key=lambda x: presents.index(x[0])):
        g.present(name, whole, ["batch", 1, "total", 1])
    return Case(g.model(g.node("Add", *terms)), lambda t: 17 * sum(t))


STATIC = 32  # positions of a cache of a fixed length


def with_layer(kind: str, factor: float = 1.0) -> Case:
    """The sum of what a product named "layer" makes of the tokens, in growing or static caches or in a state, for any
    number of texts and new tokens. factor: what adapters make of the weight, which is 1"""
    g = _Graph()
    g.weights.append(numpy_helper.from_array(np.ones((1, 1), np.float32), "layer.weight"))
    x = g.node("Squeeze", g.node("MatMul", g.node("Unsqueeze", g.ids, [2]), "layer.weight"), [2])
    if kind == "growing caches":
        whole = g.cache("past_key_values.0.key", x)
        g.present("present.0.key", whole, ["batch", 1, "total", 1])
        score = g.sums(whole)
    elif kind == "static caches":
        score = _in_static_cache(g, x)
    else:
        g.inputs.append(helper.make_tensor_value_info("past_state.0", FLOAT, ["batch", 1]))
        sums = g.node("Add", "past_state.0", g.node("CumSum", x, 1))
        g.present("present_state.0", g.node("Slice", sums, [-1], [2**31], [1]), ["batch", 1])
        score = sums
    return Case(g.model(score), lambda tokens: int(factor * sum(tokens)))


def _in_static_cache(g: _Graph, x: str) -> str:
    """Write x (batch, new) at the positions `cache_position` (new,); return the sums up to these."""
    g.inputs.append(helper.make_tensor_value_info("cache_position", TensorProto.INT64, ["new"]))
    g.inputs.append(helper.make_tensor_value_info("past_key_values.0.key", FLOAT, ["batch", 1, STATIC, 1]))
    fresh = g.node("Unsqueeze", x, [1, 3])
    index = g.node("Expand", g.node("Reshape", "cache_position", [1, 1, -1, 1]), g.node("Shape", fresh))
    whole = g.node("ScatterElements", "past_key_values.0.key", index, fresh, axis=2)
    g.present("present.0.key", whole, ["batch", 1, STATIC, 1])
    return g.node("Gather", g.node("CumSum", g.node("Squeeze", whole, [1, 3]), 1), "cache_position", axis=1)


def cases() -> dict[str, Case]:
    keys, values = ("key_cache", "value_cache"), ("new_key_cache", "new_value_cache")
    return {
        "a state beside keys": of_convolution(),
        "a state with a name of its own": of_convolution(("conv_state_in", "conv_state_out")),
        "states alone": of_recurrence(),
        "a window": of_window(),
        "outputs in another order": of_two_caches(keys, values, swapped=True),
        "outputs in the same order": of_two_caches(keys, values),
        "no names": of_two_caches(("a", "b"), ("c", "d")),
        "numbers": of_two_caches(("cache.1", "cache.2"), ("cacheOut1", "cacheOut2"), swapped=True),
        "int8": of_sums(TensorProto.INT8),
        "uint8": of_sums(TensorProto.UINT8),
        "bfloat16": of_sums(TensorProto.BFLOAT16),
        "float16": of_sums(TensorProto.FLOAT16),
        "float64": of_sums(TensorProto.DOUBLE),
        "a head size with a name": of_sums(head="kv_cache_dim"),
        "one token at a time": of_sums(new=1, batch=1),
        "one token of each text at a time": of_sums(new=1),
    }
