"""Attention over caches of a fixed size, and the ways in which exporters write their new rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from kit.small_models import model

FLOAT, HALF, INT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
B, H, S, D = 1, 2, 40, 8  # batch, heads, rows, head size
HEADS = (B, H, S, D)
KINDS = {FLOAT: "fp32", HALF: "fp16", TensorProto.INT8: "int8"}


class Graph:
    """A list of nodes, and small constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, op: str, *inputs: Any, to: str = "", **attributes: Any) -> str:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        out = to or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [out], **attributes))
        return out

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(value, None if isinstance(value, np.ndarray) else np.int64)
        return name

    def all_of(self, x: str) -> str:
        """One axis of all elements."""
        return self("Reshape", x, [-1])


Write = Callable[[Graph, str, str, str], str]  # past, new rows, output -> its name; "at": the positions of the rows


def by_all_coordinates(g: Graph, past: str, new: str, to: str) -> str:
    """index_put of the dynamo exporter: a coordinate for each axis of each element."""
    shape, axes = g("Shape", new), []
    for n in range(4):
        along = "at" if n == 2 else g("Range", 0, g("Gather", shape, n), 1)
        spread = g("Reshape", along, [-1 if m == n else 1 for m in range(4)])
        axes.append(g("Unsqueeze", g.all_of(g("Expand", spread, shape)), [1]))
    return g("ScatterND", past, g("Concat", *axes, axis=1), g.all_of(new), to=to)


def by_rows(g: Graph, past: str, new: str, to: str) -> str:
    """TorchScript's index_put of past[:, :, at]: coordinates of batch, head and row."""
    rows = g("Slice", g("Shape", new), [0], [3], [0])
    axes = []
    for n in range(3):
        along = "at" if n == 2 else g("Range", 0, HEADS[n], 1)
        spread = g("Reshape", along, [-1 if m == n else 1 for m in range(3)])
        axes.append(g("Unsqueeze", g("Expand", spread, rows), [-1]))
    return g("ScatterND", past, g("Concat", *axes, axis=-1), new, to=to)


def by_transposes(g: Graph, past: str, new: str, to: str) -> str:
    """slice_scatter and index_copy with the axis of rows first."""
    perm = [2, 1, 0, 3]
    turned = g("Transpose", past, perm=perm)
    done = g("ScatterND", turned, g("Unsqueeze", "at", [-1]), g("Transpose", new, perm=perm))
    return g("Transpose", done, to=to, perm=perm)


def by_reshapes(g: Graph, past: str, new: str, to: str) -> str:
    """Batch and heads are merged into one axis while rows are written."""
    flat = g("Reshape", past, [B * H, S, D])
    rows = g("Expand", g("Reshape", "at", [1, -1, 1]), g("Shape", g("Reshape", new, [B * H, -1, D])))
    return g("Reshape", g("ScatterElements", flat, rows, g("Reshape", new, [B * H, -1, D]), axis=1), HEADS, to=to)


def by_elements(g: Graph, past: str, new: str, to: str) -> str:
    """TorchScript's index_copy."""
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    return g("ScatterElements", past, index, new, to=to, axis=2)


def mask(g: Graph, shape: list[int]) -> tuple[str, str]:
    """A mask of the rows that are written, and the index of the new row for each."""
    first = g("ReduceMin", "at", keepdims=0)
    row = g("Sub", g("Range", 0, S, 1), first)
    rows = g("Size", "at")
    written = g("And", g("GreaterOrEqual", row, 0), g("Less", row, rows))
    return g("Reshape", written, shape), g("Where", written, row, 0)


def by_mask(g: Graph, past: str, new: str, to: str) -> str:
    """slice_scatter as PyTorch decomposes it."""
    written, row = mask(g, [S, 1])
    return g("Where", written, g("Gather", new, row, axis=2), past, to=to)


def by_mask_of_kept(g: Graph, past: str, new: str, to: str) -> str:
    written, row = mask(g, [1, 1, S, 1])
    kept = g("Expand", g("Not", written), HEADS)
    return g("Where", kept, past, g("Gather", new, row, axis=2), to=to)


def by_two(g: Graph, past: str, new: str, to: str) -> str:
    """Written twice; only the second result is an output."""
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    first = g("ScatterElements", past, index, g("Neg", new), axis=2)
    return by_rows(g, first, new, to)


def by_mask_of_elements(g: Graph, past: str, new: str, to: str) -> str:
    """The mask selects elements instead of rows."""
    written, row = mask(g, [1, 1, S, 1])
    each = g("And", written, g("Greater", g("Range", 0, D, 1), -1))
    return g("Where", each, g("Gather", new, row, axis=2), past, to=to)


def by_numbers(g: Graph, past: str, new: str, to: str) -> str:
    """past · (1 - mask) + new · mask, which differs from a selection: 0 times infinity is NaN."""
    written, row = mask(g, [1, 1, S, 1])
    kept = g("CastLike", g("Not", written), past)
    fresh = g("Mul", g("CastLike", written, past), g("Gather", new, row, axis=2))
    return g("Add", g("Mul", past, kept), fresh, to=to)


def after_reading(g: Graph, past: str, new: str, to: str) -> str:
    """The new rows depend on the past's largest element."""
    most = g("ReduceMax", past, keepdims=0)
    return by_rows(g, past, g("Mul", new, g("Min", most, g("CastLike", 1, most))), to)


def before_reading(g: Graph, past: str, new: str, to: str) -> str:
    """A node reads the past after its update."""
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    g("ScatterElements", past, index, new, to=to, axis=2)
    g("Neg", past, to=f"{to}_negated")
    return to


def by_window(g: Graph, past: str, new: str, to: str) -> str:
    """The last S rows of the past and the new rows."""
    return g("Slice", g("Concat", past, new, axis=2), [-S], [np.iinfo(np.int64).max], [2], to=to)


def added(g: Graph, past: str, new: str, to: str) -> str:
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    return g("ScatterElements", past, index, new, to=to, axis=2, reduction="add")


IN_PLACE = [
    by_all_coordinates, by_rows, by_transposes, by_reshapes, by_elements, by_mask, by_mask_of_kept, by_two, added,
]  # fmt: skip
COPIED = [by_mask_of_elements, by_numbers, after_reading, before_reading, by_window]


def decoder(write: Write, kind: int = FLOAT) -> onnx.ModelProto:
    """Causal attention over a cache; keys are written like values. Keys and values of int8 caches are quantised."""
    g = Graph()
    dtype = helper.tensor_dtype_to_np_dtype(HALF if kind == HALF else FLOAT)
    presents = []
    for part in ("k", "v"):
        new, past = f"new_{part}", f"past_{part}"
        if kind == TensorProto.INT8:
            new = g("QuantizeLinear", new, np.array(0.05, dtype), np.array(0, np.int8))
        present = write(g, past, new, f"present_{part}")
        if kind == TensorProto.INT8:
            present = g("DequantizeLinear", present, np.array(0.05, dtype), np.array(0, np.int8))
        presents.append(present)
    keys, values = presents
    scores = g("MatMul", "q", g("Transpose", keys, perm=[0, 1, 3, 2]))
    seen = g("LessOrEqual", g("Range", 0, S, 1), g("Unsqueeze", "at", [-1]))
    scores = g("Where", seen, scores, np.array(np.finfo(dtype).min, dtype))
    g("MatMul", g("Softmax", scores, axis=-1), values, to="logits")
    of = HALF if kind == HALF else FLOAT
    inputs = [("q", of, [B, H, "s", D]), *[(f"new_{part}", of, [B, H, "s", D]) for part in "kv"], ("at", INT, ["s"])]
    inputs += [(f"past_{part}", kind, HEADS) for part in "kv"]
    outputs = [("logits", of, None), *[(f"present_{part}", kind, HEADS) for part in "kv"]]
    outputs += [(n.output[0], kind, None) for n in g.nodes if n.output[0].endswith("_negated")]
    made = model(g.nodes, inputs, outputs, g.constants)
    made.opset_import[0].version = 18
    return made


def steps(kind: int) -> list[dict[str, np.ndarray]]:
    """A prompt of five tokens, then single tokens, then rows that overwrite earlier ones."""
    random, dtype = np.random.default_rng(0), np.float16 if kind == HALF else np.float32
    found = []
    for at in (np.arange(5), *[np.array([n]) for n in range(5, 27)], np.arange(2, 6)):
        given = {n: random.standard_normal((B, H, len(at), D)).astype(dtype) for n in ("q", "new_k", "new_v")}
        found.append({**given, "at": at})
    return found


def concat(dtype: int = FLOAT, axis: int = 2, dims: tuple[int | None, ...] = (None, 2, None, 6)) -> bytes:
    """A cache that grows along an axis, and a result that is computed from all of it. None: a symbolic dim"""
    shape = [("b", "h", "d", "e")[n] if d is None else d for n, d in enumerate(dims)]
    past, new = ([*shape[:axis], s, *shape[axis + 1 :]] for s in ("p", "s"))
    g = Graph()
    g("Concat", "past", "new", to="present", axis=axis)
    g("Add", "present", "present", to="twice")
    outputs = [("present", dtype, None), ("twice", dtype, None)]
    made: bytes = model(g.nodes, [("past", dtype, past), ("new", dtype, new)], outputs).SerializeToString()
    return made
