"""Small decoders with the inputs, names and cache layouts of different exporters, with random weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, KV, HEAD, WORDS = 2, 4, 2, 8, 60
WIDTH = HEADS * HEAD
PLACES = 64  # positions with an embedding
MINUS = -1e4  # a score that hides a key, also of half floats


class Form(NamedTuple):
    """How a decoder is exported.

    ids: its input of tokens
    positions: the name of an input, or "" if the decoder counts them itself, by its caches
    mask: the name of an input, or ""
    past, present: names of caches, with {n} for the layer and {part} for "key" or "value"; without {part} a cache has
        both, in front of the other axes; without {n} it has all layers, in front of these
    axes: the order of batch, heads, positions and elements in a cache
    kv: heads of keys
    half: whether caches and logits are float16
    flat: whether positions have one axis
    batch: the dim's name, or its size
    named: whether the other free dims have names
    crosses: whether it attends to an encoder's states, too, whose keys and values only a first run computes
    """

    ids: str = "input_ids"
    positions: str = "position_ids"
    mask: str = "attention_mask"
    past: str = "past_key_values.{n}.{part}"
    present: str = "present.{n}.{part}"
    axes: str = "bhsd"
    kv: int = KV
    half: bool = False
    flat: bool = False
    batch: int | str | None = "batch"
    named: bool = True
    crosses: bool = False

    def cache(self, batch: Any, positions: Any) -> list[Any]:
        """The dims of a cache."""
        dims = {"b": batch, "h": self.kv, "s": positions, "d": HEAD}
        return [*self.fronts(), *(dims[axis] for axis in self.axes)]

    def fronts(self) -> list[int]:
        """The axes of layers and of keys and values."""
        return [LAYERS] * ("{n}" not in self.past) + [2] * ("{part}" not in self.past)


UNNAMED: dict[str, Any] = {"named": False, "batch": None}
FORMS = {
    "as Optimum exports": Form(),
    "no positions": Form(positions=""),
    "no mask": Form(mask=""),
    "tokens alone": Form(positions="", mask=""),
    "a head of keys for each": Form(kv=HEADS),
    "half floats": Form(half=True),
    "a cache for each layer": Form(past="past_{n}", present="present_{n}"),
    "a cache for each layer, no names": Form(past="past_{n}", present="present_{n}", **UNNAMED),
    "a cache for each layer, one text": Form(past="past_{n}", present="present_{n}", batch=1),
    "one cache": Form(past="past", present="present"),
    "one cache, no names": Form(past="past", present="present", **UNNAMED),
    "positions before heads": Form(axes="bshd"),
    "positions last": Form(axes="bhds"),
    "positions first": Form(axes="sbhd"),
    "positions first, one text": Form(axes="sbhd", batch=1),
    "other names of caches": Form(past="{part}_states.{n}", present="{part}_states.{n}.later"),
    "other names": Form(ids="x", mask="mask", positions="positions", past="{part}_in.{n}", present="{part}_out.{n}"),
    "one axis of positions": Form(ids="decoder_input_ids", positions="cache_position", flat=True),
    "with an encoder": Form(
        past="past_key_values.{n}.decoder.{part}", present="present.{n}.decoder.{part}", crosses=True
    ),
}  # fmt: skip
STATES = np.random.default_rng(3).standard_normal((1, 5, WIDTH)).astype(np.float32)  # of the encoder


def decoder(form: Form) -> onnx.ModelProto:
    return _Decoder(form).model()


class _Decoder:
    def __init__(self, form: Form) -> None:
        self.form = form
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(0)

    def model(self) -> onnx.ModelProto:
        form = self.form
        ids = self.input(form.ids, TensorProto.INT64, [form.batch, "new"])
        pasts = self.pasts()
        rows, new = self.size(ids, 0), self.size(ids, 1)
        old = self.size(pasts[0][0], 2)
        total = self.node("Add", old, new)
        index = self.node("Range", self.scalar(old), self.scalar(total), self.const(1))
        hidden = self.hidden(index, total)
        positions = index
        if form.positions:
            positions = self.input(form.positions, TensorProto.INT64, ["new"] if form.flat else [form.batch, "new"])
        x = self.node("Add", self.gather(WORDS, ids), self.gather(PLACES, positions))
        presents = []
        for past in pasts:
            y, present = self.attention(self.norm(x), past, rows, hidden)
            x = self.node("Add", x, y)
            if form.crosses:
                x = self.node("Add", x, self.crossing(self.norm(x), len(presents), rows))
            y = self.node("Relu", self.linear(self.norm(x), 2 * WIDTH))
            x = self.node("Add", x, self.linear(y, WIDTH, 2 * WIDTH))
            presents.append(present)
        self.output("logits", self.linear(self.norm(x), WORDS), [form.batch, "new", WORDS])
        self.presents(presents)
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    # ── caches ──

    def names(self, pattern: str) -> list[str]:
        layers = range(LAYERS if "{n}" in pattern else 1)
        parts = ["key", "value"] if "{part}" in pattern else [""]
        return [pattern.format(n=n, part=part) for n in layers for part in parts]

    def pasts(self) -> list[list[str]]:
        """Keys and values of each layer, as float32 (batch, heads, positions, elements)."""
        form = self.form
        of = TensorProto.FLOAT16 if form.half else TensorProto.FLOAT
        given = [self.input(name, of, form.cache(form.batch, "past")) for name in self.names(form.past)]
        for count in form.fronts():
            given = [self.node("Gather", x, self.const(n), axis=0) for x in given for n in range(count)]
        perm = [form.axes.index(axis) for axis in "bhsd"]
        flat = [self.node("Transpose", self.node("Cast", x, to=TensorProto.FLOAT), perm=perm) for x in given]
        return [flat[n : n + 2] for n in range(0, len(flat), 2)]

    def presents(self, layers: list[list[str]]) -> None:
        perm, form = ["bhsd".index(axis) for axis in self.form.axes], self.form
        of = TensorProto.FLOAT16 if form.half else TensorProto.FLOAT
        made = [[self.node("Cast", self.node("Transpose", x, perm=perm), to=of) for x in pair] for pair in layers]
        if "{part}" in form.present:
            flat = [x for pair in made for x in pair]
        else:
            flat = [self.stack(pair) for pair in made]
            flat = flat if "{n}" in form.present else [self.stack(flat)]
        for name, x in zip(self.names(form.present), flat, strict=True):
            self.output(name, x, form.cache(form.batch, "total"))

    def stack(self, parts: list[str]) -> str:
        return self.node("Concat", *(self.node("Unsqueeze", x, self.const([0])) for x in parts), axis=0)

    # ── layers ──

    def hidden(self, index: str, total: str) -> str:
        """What is added to scores: (rows, 1, new, total)."""
        keys = self.node("Range", self.const(0), self.scalar(total), self.const(1))
        later = self.node(
            "Less", self.node("Unsqueeze", index, self.const([1])), self.node("Unsqueeze", keys, self.const([0]))
        )
        if self.form.mask:
            mask = self.input(self.form.mask, TensorProto.INT64, [self.form.batch, "total"])
            padded = self.node("Equal", self.node("Unsqueeze", mask, self.const([1, 2])), self.const(0))
            later = self.node("Or", padded, self.node("Unsqueeze", later, self.const([0, 1])))
        return self.node("Where", later, self.const(MINUS, np.float32), self.const(0, np.float32))

    def attention(self, x: str, past: list[str], rows: str, hidden: str) -> tuple[str, list[str]]:
        kv = self.form.kv
        fresh = [self.heads(self.linear(x, kv * HEAD), rows, kv) for _ in past]
        present = [self.node("Concat", a, b, axis=2) for a, b in zip(past, fresh, strict=True)]
        return self.attend(x, present, rows, hidden), present

    def attend(self, x: str, present: list[str], rows: str, hidden: str) -> str:
        repeated = self.const([n * self.form.kv // HEADS for n in range(HEADS)])
        q = self.heads(self.linear(x, WIDTH), rows, HEADS)
        k, v = (self.node("Gather", y, repeated, axis=1) for y in present)
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.node("Add", self.node("Mul", scores, self.const(HEAD**-0.5, np.float32)), hidden)
        y = self.node("Transpose", self.node("MatMul", self.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        shape = self.node("Concat", rows, self.const([-1, WIDTH]), axis=0)
        return self.linear(self.node("Reshape", y, shape), WIDTH)

    def crossing(self, x: str, layer: int, rows: str) -> str:
        """As in decoders that Optimum merges: a run with a past does not return the encoder's keys and values."""
        batch, kv = self.form.batch, self.form.kv
        if layer == 0:
            self.input("encoder_hidden_states", TensorProto.FLOAT, [batch, "states", WIDTH])
            self.input("use_cache_branch", TensorProto.BOOL, [1])
        found = []
        for part in ("key", "value"):
            name = f"past_key_values.{layer}.encoder.{part}"
            past = self.input(name, TensorProto.FLOAT, [batch, kv, "old states", HEAD])
            fresh = self.heads(self.linear("encoder_hidden_states", kv * HEAD), rows, kv)
            none = self.const(np.zeros((0, kv, 1, HEAD)), np.float32)
            found.append(self.choice(past, fresh))
            self.output(f"present.{layer}.encoder.{part}", self.choice(none, fresh), ["n", kv, "m", HEAD])
        return self.attend(x, found, rows, self.const(0, np.float32))

    def choice(self, past: str, fresh: str) -> str:
        """past if there is one, fresh otherwise"""
        branches = {}
        for name, x in (("then_branch", past), ("else_branch", fresh)):
            y = helper.make_tensor_value_info(f"{name}{len(self.nodes)}", TensorProto.FLOAT, None)
            branches[name] = helper.make_graph([helper.make_node("Identity", [x], [y.name])], name, [], [y])
        return self.node("If", "use_cache_branch", **branches)

    def heads(self, x: str, rows: str, count: int) -> str:
        shape = self.node("Concat", rows, self.const([-1, count, HEAD]), axis=0)
        return self.node("Transpose", self.node("Reshape", x, shape), perm=[0, 2, 1, 3])

    def norm(self, x: str) -> str:
        return self.node("LayerNormalization", x, self.const(np.ones(WIDTH), np.float32), axis=-1)

    def linear(self, x: str, width: int, of: int = WIDTH) -> str:
        return self.node("MatMul", x, self.weight(of, width))

    def gather(self, count: int, ids: str) -> str:
        return self.node("Gather", self.weight(count, WIDTH), ids)

    # ── nodes ──

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def const(self, value: Any, dtype: Any = np.int64) -> str:
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape: int) -> str:
        return self.const(self.random.standard_normal(shape) * 2 / shape[0] ** 0.5, np.float32)

    def size(self, x: str, axis: int) -> str:
        return self.node("Gather", self.node("Shape", x), self.const([axis]))

    def scalar(self, x: str) -> str:
        return self.node("Squeeze", x, self.const([0]))

    def input(self, name: str, of: int, shape: list[Any]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, of, self.dims(shape)))
        return name

    def output(self, name: str, x: str, shape: list[Any]) -> None:
        half = self.form.half
        of = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        self.nodes.append(helper.make_node("Cast", [x], [name], to=of))
        self.outputs.append(helper.make_tensor_value_info(name, of, self.dims(shape)))

    def dims(self, shape: list[Any]) -> list[Any]:
        return shape if self.form.named else [d if isinstance(d, int) else None for d in shape]
