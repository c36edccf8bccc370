"""Attention as exporters write it, and its result in float64: heads that share keys, masks,
sliding windows, soft caps, rows without keys, sizes at the edges of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from kit.zoo import Feeds

# (keys of the past, new rows): no past, blocks of 64, 256 and 512 keys, tiles of 4 and 8 rows
SIZES = ((0, 1), (0, 3), (63, 1), (64, 1), (251, 5), (511, 1), (509, 4), (1030, 9))
STEPS = frozenset("scale cap mask softmax replace scores".split())  # names of nodes that become part of the last one
WINDOW = 40
CAP = 5.0


class Case(NamedTuple):
    """size, width: elements of a key, of a value; masked, capped, cleared: whether scores get a mask and a soft cap,
    and NaNs of rows without keys become 0; past: there may be more keys than rows"""

    name: str
    heads: int = 4
    shared: int = 1  # heads that share keys
    size: int = 16
    width: int = 16
    masked: str = ""
    capped: bool = False
    cleared: bool = False
    past: bool = True

    def __str__(self) -> str:
        return self.name

    def model(self, half: bool) -> bytes:
        of = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        number = np.float16 if half else np.float32
        caches, nodes = self.heads // self.shared, []
        weights = {"factor": np.array(self.size**-0.5, number), "cap_at": np.array(CAP, number),
                   "lowest": np.array(-np.inf, number), "zero": np.array(0, number), "two": np.array([2]),
                   "repeats": np.array([1, 1, self.shared, 1, 1])}  # fmt: skip

        def node(op: str, inputs: str, output: str, name: str = "", **attributes: Any) -> None:
            nodes.append(helper.make_node(op, inputs.split(), [output], name=name or output, **attributes))

        for x, size in (("k", self.size), ("v", self.width)):
            weights[f"{x}_shape"] = np.array([0, self.heads, -1, size])
            node("Unsqueeze", f"{x} two", f"{x}_5")
            node("Expand", f"{x}_5 repeats", f"{x}_heads")
            node("Reshape", f"{x}_heads {x}_shape", f"{x}_4")
        node("Mul", "q factor", "scaled")
        node("Transpose", "k_4", "k_t", "keys", perm=[0, 1, 3, 2])
        node("MatMul", "scaled k_t", "s", "scores")
        last = "s"
        if self.capped:
            node("Div", f"{last} cap_at", "small", "cap")
            node("Tanh", "small", "bent", "cap")
            node("Mul", "bent cap_at", "capped", "cap")
            last = "capped"
        if self.masked == "bool":
            node("Where", f"mask {last} lowest", "masked", "mask")
        elif self.masked:
            node("Add", f"{last} mask", "masked", "mask")
        node("Softmax", "masked" if self.masked else last, "p", "softmax", axis=-1)
        if self.cleared:
            node("IsNaN", "p", "nan", "replace")
            node("Where", "nan zero p", "p_cleared", "replace")
        node("MatMul", f"{'p_cleared' if self.cleared else 'p'} v_4", "y", "result")
        keys = "t" if self.past else "s"
        shapes: dict[str, list[Any]] = {"q": ["b", self.heads, "s", self.size], "k": ["b", caches, keys, self.size],
                  "v": ["b", caches, keys, self.width]}  # fmt: skip
        inputs = [helper.make_tensor_value_info(name, of, shape) for name, shape in shapes.items()]
        if self.masked:
            kind = TensorProto.BOOL if self.masked == "bool" else of
            inputs.append(helper.make_tensor_value_info("mask", kind, ["b", 1, "s", keys]))
        outputs = [helper.make_tensor_value_info("y", of, ["b", self.heads, "s", self.width])]
        inits = [numpy_helper.from_array(x, name) for name, x in weights.items()]
        graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()

    def feeds(self, half: bool, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Feeds]:
        random, number = np.random.default_rng(len(self.name)), np.float16 if half else np.float32
        caches = self.heads // self.shared
        for past, rows in sizes:
            past *= self.past
            shapes = {"q": (2, self.heads, rows, self.size), "k": (2, caches, past + rows, self.size),
                      "v": (2, caches, past + rows, self.width)}  # fmt: skip
            out = {name: random.standard_normal(shape).astype(number) for name, shape in shapes.items()}
            at, key = np.arange(past, past + rows)[:, None], np.arange(past + rows)
            seen = (key <= at) & (key > at - WINDOW)
            seen = np.tile(seen, (2, 1, 1, 1))
            if self.cleared:
                seen[0, :, -1] = False  # a row without keys
            if self.masked == "bool":
                out["mask"] = seen
            elif self.masked:
                out["mask"] = np.where(seen, random.standard_normal(seen.shape), -np.inf).astype(number)
            yield out

    def check(self, feeds: Feeds, got: np.ndarray) -> None:
        """Compare with the result in float64."""
        x = {name: a.astype(np.float64) for name, a in feeds.items()}
        k, v = (np.repeat(x[name], self.shared, 1) for name in "kv")
        scores = x["q"] @ k.transpose(0, 1, 3, 2) * self.size**-0.5
        scores = np.tanh(scores / CAP) * CAP if self.capped else scores
        if self.masked:
            scores = np.where(feeds["mask"], scores, -np.inf) if self.masked == "bool" else scores + x["mask"]
        with np.errstate(invalid="ignore"):
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            weights = powers / powers.sum(-1, keepdims=True)
        want = (np.nan_to_num(weights, nan=0.0) if self.cleared else weights) @ v
        bound = 4e-3 if got.dtype == np.float16 else 5e-6
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=bound, atol=bound, err_msg=self.name)


CASES = (
    Case("plain"),
    Case("a mask that is added", masked="float"),
    Case("heads share keys, a window", heads=6, shared=3, masked="bool"),
    Case("all heads share keys, 8 rows", heads=8, shared=8, size=32, width=32),
    Case("a soft cap, values of another width", shared=2, size=20, width=36, capped=True, masked="bool"),
    Case("rows without keys", shared=2, masked="bool", cleared=True),
    Case("odd sizes", heads=3, size=7, width=5),
    Case("wide values", heads=2, shared=2, size=8, width=272),
    Case("an encoder", past=False),
)
