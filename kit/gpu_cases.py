"""The cases that measure a GPU, natively (`python -m bench gpu`) and in the page "Your GPU" (demo/gpu): one table.

`python -m kit.gpu_cases OUT.json` writes them for the page. A case is a model without weights and descriptions of its
weights and feeds (kit/gpu_values.py). `flops` counts two operations for each multiply-add of products; `bytes` counts
inputs, weights and outputs once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from kit import zoo
from kit.gpu_probes import PROBES
from kit.gpu_values import Values, array, drawn, size

FILE = "weights.bin"  # the external data of all models
ALIGN = 64  # bytes between weights in it
MODELS = {"MobileNetV2": "mobilenet_v2", "ViT tiny": "vit_tiny", "Llama mini, 4 bits": "llama_mini.nb4"}
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}

Case = dict[str, Any]
Named = dict[str, Values]


def case(
    name: str, nodes: Sequence[onnx.NodeProto], feeds: Named, weights: Named, out: tuple[int, ...], flops: int = 0
) -> Case:
    """Build a case from feeds to "y", which has the shape `out` and the type of the first feed."""
    type_ = next(iter(feeds.values()))["type"]
    infos = [helper.make_tensor_value_info(n, TYPES[v["type"]], v["dims"]) for n, v in feeds.items()]
    empty = [TensorProto(name=n, dims=v["dims"], data_type=TYPES[v["type"]]) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name="y")], empty)
    sets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    moved = sum(map(size, [*feeds.values(), *weights.values()])) + math.prod(out) * np.dtype(type_).itemsize
    return {"name": name, "type": type_, "flops": flops, "bytes": moved, **packed(model, weights), "feeds": feeds}


def packed(model: onnx.ModelProto, weights: Named) -> dict[str, Any]:
    """The model with its weights in FILE, one after the other."""
    at = 0
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            length = size(weights[tensor.name])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", FILE), ("offset", at), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
            weights[tensor.name]["offset"] = at
            at += -(-length // ALIGN) * ALIGN
    return {"model": base64.b64encode(model.SerializeToString()).decode(), "weights": list(weights.values())}


def row_vectors(type_: str, rows: int, width: int) -> Values:
    """Describe rows whose products with numbers near 1 have sums near 1."""
    return drawn(type_, (rows, width), 1, 2.0 ** -round(math.log2(width) / 2))


def product(name: str, m: int, k: int, n: int, type_: str = "float32") -> Case:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = {"w": drawn(type_, (k, n), 2, 1.0)}
    return case(name, [node], {"x": row_vectors(type_, m, k)}, weights, (m, n), 2 * m * k * n)


def four_bits(name: str, m: int, k: int, n: int) -> Case:
    """A product with weights of 4 bits and a scale for 32 of them."""
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=4, block_size=32
    )
    weights = {"w": drawn("uint8", (n, k // 32, 16), 3, 255, 0), "s": drawn("float32", (n * k // 32,), 4, 0.2, 0.1)}
    return case(name, [node], {"x": row_vectors("float32", m, k)}, weights, (m, n), 2 * m * k * n)


def attention(name: str, queries: int, keys: int, heads: tuple[int, int], width: int, type_: str = "float32") -> Case:
    """Attention of query heads that share the heads of keys and values. heads: of queries, of keys"""
    q, kv = (1, heads[0], queries, width), (1, heads[1], keys, width)
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    feeds = {"q": drawn(type_, q, 5, 1.0), "k": drawn(type_, kv, 6, 1.0), "v": drawn(type_, kv, 7, 1.0)}
    return case(name, [node], feeds, {}, q, 4 * heads[0] * queries * keys * width)


def conv(name: str, channels: int, filters: int, size: int, window: int, group: int = 1, stride: int = 1) -> Case:
    """A convolution with bias and Relu."""
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["c"], pads=[window // 2] * 4, group=group, strides=[stride] * 2
    )  # fmt: skip
    out = (1, filters, -(-size // stride), -(-size // stride))
    inner = channels // group * window**2
    weights = {
        "w": drawn("float32", (filters, channels // group, window, window), 8, inner**-0.5),
        "b": drawn("float32", (filters,), 9, 1.0),
    }
    nodes = [node, helper.make_node("Relu", ["c"], ["y"])]
    feeds = {"x": drawn("float32", (1, channels, size, size), 10, 1.0)}
    return case(name, nodes, feeds, weights, out, 2 * inner * math.prod(out))


def rows(name: str, op: str, *shape: int, **constants: Values) -> Case:
    """An operator along the last axis that keeps the shape."""
    node = helper.make_node(op, ["x", *constants], ["y"])
    return case(name, [node], {"x": drawn("float32", shape, 11, 1.0)}, constants, shape)


def reduction(name: str, op: str, *shape: int) -> Case:
    """A reduction along the last axis."""
    constant = helper.make_node("Constant", [], ["axes"], value_ints=[-1])
    node = helper.make_node(op, ["x", "axes"], ["y"])
    return case(name, [constant, node], {"x": drawn("float32", shape, 11, 1.0)}, {}, (*shape[:-1], 1))


def added(name: str, count: int) -> Case:
    feeds = {"x": drawn("float32", (count,), 12, 1.0), "z": drawn("float32", (count,), 13, 1.0)}
    return case(name, [helper.make_node("Add", ["x", "z"], ["y"])], feeds, {}, (count,))


def chain(name: str, *shape: int) -> Case:
    """tanh(x · x + a) · b with a and b along the last axis: one kernel after fusion."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["p"]), helper.make_node("Add", ["p", "a"], ["q"]),
             helper.make_node("Tanh", ["q"], ["r"]), helper.make_node("Mul", ["r", "b"], ["y"])]  # fmt: skip
    weights = {"a": drawn("float32", shape[-1:], 14, 1.0), "b": drawn("float32", shape[-1:], 15, 1.0)}
    return case(name, nodes, {"x": drawn("float32", shape, 16, 1.0)}, weights, shape)


def recurrent(name: str, op: str, gates: int, steps: int, batch: int, width: int) -> Case:
    node = helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=width)
    shape = (1, gates * width, width)
    weights = {"w": drawn("float32", shape, 17, 0.1), "r": drawn("float32", shape, 18, 0.1)}
    feeds = {"x": drawn("float32", (steps, batch, width), 19, 1.0)}
    return case(name, [node], feeds, weights, (steps, 1, batch, width), 4 * steps * batch * gates * width**2)


def products() -> Iterator[Case]:
    for n in (512, 1024, 2048, 4096):
        yield product(f"GEMM {n}", n, n, n)
    yield product("GEMM 509 (prime)", 509, 509, 509)
    yield product("GEMM 197 x 768 x 3072", 197, 768, 3072)
    for n in (1024, 2048, 4096):
        yield product(f"GEMM {n}, half", n, n, n, "float16")
    yield four_bits("GEMM 128 x 4096 x 4096, 4 bits", 128, 4096, 4096)
    yield product("GEMV 4096 x 4096", 1, 4096, 4096)
    yield product("GEMV 4096 x 4096, half", 1, 4096, 4096, "float16")
    yield four_bits("GEMV 4096 x 4096, 4 bits", 1, 4096, 4096)
    yield four_bits("GEMV 4096 x 14336, 4 bits", 1, 4096, 14336)


def attentions() -> Iterator[Case]:
    for type_, suffix in (("float32", ""), ("float16", ", half")):
        yield attention(f"attention 512 of 512{suffix}", 512, 512, (12, 12), 64, type_)
        yield attention(f"attention 2048 of 2048{suffix}", 2048, 2048, (12, 12), 64, type_)
        yield attention(f"attention 1 of 4096{suffix}", 1, 4096, (32, 8), 128, type_)


def others() -> Iterator[Case]:
    yield reduction("sum of 8M", "ReduceSum", 1 << 23)
    yield reduction("means of 8192 rows of 1024", "ReduceMean", 8192, 1024)
    yield rows("softmax of 8192 rows of 1024", "Softmax", 8192, 1024)
    yield rows("softmax of 64 rows of 65536", "Softmax", 64, 65536)
    scales = {"a": drawn("float32", (1024,), 20, 1.5, 0.5), "b": drawn("float32", (1024,), 21, 1.0)}
    yield rows("layer norm of 4096 rows of 1024", "LayerNormalization", 4096, 1024, **scales)
    yield conv("conv 3x3, 3 to 64 of 224x224 by 2", 3, 64, 224, 3, stride=2)
    yield conv("conv 3x3, 64 of 56x56", 64, 64, 56, 3)
    yield conv("conv 3x3, 256 of 14x14", 256, 256, 14, 3)
    yield conv("conv 3x3, 512 of 7x7", 512, 512, 7, 3)
    yield conv("conv 1x1, 64 to 256 of 56x56", 64, 256, 56, 1)
    yield conv("conv 1x1, 1024 to 256 of 14x14", 1024, 256, 14, 1)
    yield conv("conv 3x3, 96 depthwise of 112x112", 96, 96, 112, 3, 96)
    yield recurrent("LSTM, 7 steps of 128", "LSTM", 4, 7, 1, 128)
    yield recurrent("GRU, 7 steps of 8 x 128", "GRU", 3, 7, 8, 128)
    yield added("add 8M", 1 << 23)
    yield chain("tanh(x·x + a)·b of 8M", 64, 512, 256)


def network(name: str, stored: str) -> Case:
    """A network of the zoo, with weights of about its distributions."""
    spec = json.loads((zoo.HERE / f"{stored}.json").read_text())
    weights = {key: _like(w, n) for n, (key, w) in enumerate(spec["weights"].items())}
    feeds = {feed["name"]: _like(feed, 1000 + n) for n, feed in enumerate(spec["inputs"])}
    model = onnx.load(zoo.HERE / f"{stored}.onnx")
    return {"name": name, **packed(model, weights), "feeds": feeds}


def _like(spec: dict[str, Any], seed: int) -> Values:
    """Describe numbers of the mean and deviation of `spec`, or with its values."""
    if "value" in spec:
        return {"type": spec["np"], "dims": spec["dims"], "values": spec["value"]}
    if spec.get("kind") == "int":
        return drawn(spec["np"], spec["dims"], seed, int(spec["max"]), int(spec["min"]))
    reach, least = 3**0.5 * spec["std"], spec.get("min", -math.inf)
    low = max(spec["mean"] - reach, 1e-6) if least >= 0 else spec["mean"] - reach  # variances and scales
    return drawn(spec["np"], spec["dims"], seed, spec["mean"] + reach, low)


def everything() -> dict[str, Any]:
    """The table. "work" is a hash of it: reports of other work cannot be compared."""
    table = {
        "probes": PROBES,
        "cases": [*products(), *attentions(), *others()],
        "models": [network(name, stored) for name, stored in MODELS.items()],
    }
    return {"work": hashlib.sha256(json.dumps(table).encode()).hexdigest()[:16], **table}


def opened(case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model of a case with its weights, and its feeds."""
    model = onnx.load_from_string(base64.b64decode(case["model"]))
    by_offset = {str(values["offset"]): values for values in case["weights"]}
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            told = {entry.key: entry.value for entry in tensor.external_data}
            tensor.raw_data = array(by_offset[told["offset"]]).tobytes()
            tensor.ClearField("external_data")
            tensor.data_location = TensorProto.DEFAULT
    return model.SerializeToString(), {name: array(values) for name, values in case["feeds"].items()}


if __name__ == "__main__":
    with zoo.replacing(Path(sys.argv[1])) as part:
        part.write_text(json.dumps(everything()))
