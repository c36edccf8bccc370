"""The small models on which providers are checked (provider_check.py, web/provider_check.js).

python -m pyruntime.provider_models FILE.json writes them for JavaScript.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir.dtype import BOOL, F16, F32, I8, I32, I64, U8, DType
from pyruntime.onnx.write import (
    GRAPH,
    INPUT,
    IR_VERSION,
    NODE,
    OPSETS,
    OUTPUT,
    Value,
    integer,
    message,
    node,
    opset,
    tensor_head,
    text,
    value_info,
)

SIZES = (1, 2, 7, 64, 0)
TYPES = {"": F32, "f16": F16, "i8": I8, "u8": U8, "i32": I32, "i64": I64, "bool": BOOL}
NUMPY = {F32: "f4", F16: "f2", I8: "i1", U8: "u1", I32: "i4", I64: "i8", BOOL: "?"}
Arrays = dict[str, Any]
Row = str | tuple[str, dict[str, Value]]  # "RESULT … = OPERATOR INPUT …", with attributes


@dataclass(frozen=True)
class Model:
    """inputs, outputs: "TYPE: DIM …" by name, for float32 "DIM …"; the dims N and M differ between runs; rows: nodes;
    sizes: of N; M is one more"""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    rows: Sequence[Row]
    sizes: Sequence[int] = SIZES


def _graph(
    inputs: Mapping[str, str], outputs: Mapping[str, str], rows: Sequence[Row], weights: Mapping[str, Any] | None = None
) -> bytes:  # fmt: skip
    """A GraphProto. weights: arrays of float32"""
    calls = map(_row, rows)
    nodes = [message(NODE, node(operator, read, made, attributes=more)) for operator, read, made, more in calls]
    data = [tensor_head(name, F32, x.shape) + x.tobytes() for name, x in (weights or {}).items()]
    values = [message(INPUT, _info(*entry)) for entry in inputs.items()]
    values += [message(OUTPUT, _info(*entry)) for entry in outputs.items()]
    return b"".join([*nodes, text(2, "graph"), *data, *values])


def _row(row: Row) -> tuple[str, list[str], list[str], dict[str, Value]]:
    line, attributes = (row, {}) if isinstance(row, str) else row
    made, _, call = line.partition(" = ")
    operator, *read = call.split()
    return operator, read, made.split(), attributes


def _type_and_dims(of: str) -> tuple[DType, list[int | str]]:
    kind, _, dims = of.rpartition(":")
    return TYPES[kind], [int(d) if d.isdigit() else d for d in dims.split()]


def _info(name: str, of: str) -> bytes:
    return value_info(name, *_type_and_dims(of))


HEADS: list[Row] = [("a = Transpose x", {"perm": [0, 2, 1, 3]}), ("b = Transpose x", {"perm": [0, 2, 3, 1]})]
EXP, NEG = (_graph({}, {"r": "N 8"}, rows) for rows in (["r = Exp p"], ["q = Tanh p", "r = Neg q"]))
STEP = _graph(
    {"i": "i64:", "go": "bool:", "v": "N 8"},
    {"more": "bool:", "o": "N 8", "s": "N 8"},
    ["more = Identity go", "p = MatMul v w", "o = Tanh p", "s = Neg o"],
)
MODELS = {
    "elementwise": Model({"x": "N 48", "b": "48"}, {"y": "N 48"}, ["a = Add x b", "t = Tanh a", "y = Mul t x"]),
    "product": Model({"x": "N 64", "w": "64 96"}, {"y": "N 96"}, ["y = MatMul x w"]),
    "epilogue": Model(
        {"x": "N 64", "w": "96 64", "b": "96"}, {"y": "N 96"}, [("h = Gemm x w b", {"transB": 1}), "y = Exp h"]
    ),
    "stacked products": Model({"x": "2 N 16", "w": "2 16 8"}, {"y": "2 N 8"}, ["y = MatMul x w"]),
    "slices": Model(
        {"x": "N 64", "w": "32 24"}, {"y": "N 24", "z": "N 32"},
        [("a b = Split x", {"axis": 1}), "y = MatMul a w", "z = Abs b"],
    ),
    "heads": Model(
        {"x": "2 N 4 8"}, {"y": "2 N 4 8"},
        [*HEADS, "c = MatMul a b", "p = Softmax c", "o = MatMul p a", ("y = Transpose o", {"perm": [0, 2, 1, 3]})],
    ),
    "convolution": Model(
        {"x": "1 8 N 9", "w": "16 8 3 3", "b": "16"}, {"y": "1 16 N 9"},
        [("h = Conv x w b", {"pads": [1] * 4}), "y = Relu h"], SIZES[:4],
    ),
    "depthwise": Model(
        {"x": "1 8 N 9", "w": "8 1 3 3"}, {"y": "1 8 N 9"}, [("y = Conv x w", {"pads": [1] * 4, "group": 8})], SIZES[:4]
    ),
    "norm": Model({"x": "N 48", "s": "48", "b": "48"}, {"y": "N 48"}, ["y = LayerNormalization x s b"]),
    "norm of two axes": Model(
        {"x": "N 4 6", "s": "4 6"}, {"y": "N 4 6", "m": "N 1 1"}, [("y m = LayerNormalization x s", {"axis": 1})]
    ),
    "norm of half floats": Model(
        {"x": "f16:N 48", "s": "f16:48"}, {"y": "f16:N 48"}, ["h = LayerNormalization x s", "y = Softmax h"]
    ),
    "rows": Model({"x": "N 48"}, {"y": "N 1"}, [("m = ReduceMax x", {"axes": [1]}), "y = Neg m"]),
    "columns": Model(
        {"x": "5 N 6"}, {"y": "5 6"}, [("m = ReduceSumSquare x", {"axes": [1], "keepdims": 0}), "y = Sqrt m"]
    ),
    "softmax": Model({"x": "N M"}, {"y": "N M", "z": "N M"}, ["y = Softmax x", ("z = Softmax x", {"axis": 0})]),
    "two free dims": Model({"x": "N 8", "w": "8 M"}, {"y": "M N"}, ["h = MatMul x w", "t = Transpose h", "y = Abs t"]),
    "broadcast": Model(
        {"x": "N 1 8", "b": "5 1", "c": ""}, {"y": "N 5 8"}, ["a = Add x b", "d = Mul a c", "y = Max d x"]
    ),
    "half floats": Model(
        {"x": "f16:N 48", "w": "f16:48 32", "b": "f16:32"}, {"y": "f16:N 32"},
        ["h = MatMul x w", "a = Add h b", "y = Tanh a"],
    ),
    "integers": Model(
        {"x": "i64:N 6", "b": "i64:6"}, {"y": "i64:N 6", "z": "i64:N 1"},
        ["a = Mul x b", "y = Sub a x", ("z = ReduceMax y", {"axes": [1]})],
    ),
    "codes": Model({"x": "u8:N 32", "w": "i8:32 16"}, {"y": "i32:N 16"}, ["y = MatMulInteger x w"]),
    "conditions": Model(
        {"x": "N 8", "z": "N 8"}, {"y": "N 8", "b": "bool:N 8"}, ["b = Less x z", "n = Neg z", "y = Where b x n"]
    ),
    "several readers": Model(
        {"x": "N 16"}, {"y": "N 16", "z": "N 16"}, ["a = Tanh x", "y = Exp a", "c = Softmax a", "z = Add c a"]
    ),
    "branch": Model(
        {"c": "bool:", "x": "N 8", "w": "8 8"}, {"y": "N 8"},
        ["p = MatMul x w", ("h = If c", {"then_branch": EXP, "else_branch": NEG}), "y = Abs h"],
    ),
    "loop": Model(
        {"n": "i64:", "go": "bool:", "x": "N 8", "w": "8 8"}, {"y": "N 8", "z": "T N 8"},
        [("y z = Loop n go x", {"body": STEP})],
    ),
}  # fmt: skip


def has_weights(name: str) -> bool:
    """Whether inputs of the model can be constants."""
    return any(":" not in of and of and not _is_free(of) for of in MODELS[name].inputs.values())


def _is_free(of: str) -> bool:
    return any(isinstance(d, str) for d in _type_and_dims(of)[1])


def small_model(name: str, is_constant: bool) -> tuple[bytes, list[Arrays]]:
    """A model of the table, and its feeds in all sizes. is_constant: whether float32 inputs without free dims are
    constants"""
    model, rng = MODELS[name], np.random.default_rng(0)
    kept = {key: _random(rng, of, {}) for key, of in model.inputs.items() if not _is_free(of)}
    weights = {key: x for key, x in kept.items() if is_constant and x.dtype == np.float32}
    inputs = {key: of for key, of in model.inputs.items() if key not in weights}
    graph = _graph(inputs, model.outputs, model.rows, weights)
    data = integer(IR_VERSION, 8) + message(GRAPH, graph) + message(OPSETS, opset("", 17))
    return data, [_feeds(rng, inputs, kept, n, size) for n, size in enumerate(model.sizes)]


def _feeds(rng: np.random.Generator, inputs: Mapping[str, str], kept: Arrays, number: int, size: int) -> Arrays:
    """Those of one run. Conditions change from run to run, and loops have two steps or three."""
    flags = {"c": np.array(number % 2 == 0), "go": np.array(True), "n": np.array(2 + number % 2)}
    made = {key: _random(rng, of, {"N": size, "M": size + 1}) for key, of in inputs.items() if key not in kept}
    made |= {key: kept[key] for key in inputs if key in kept}
    return made | {key: flags[key] for key, of in inputs.items() if of.endswith(":")}


def _random(rng: np.random.Generator, of: str, sizes: Mapping[str, int]) -> Any:
    dtype, dims = _type_and_dims(of)
    shape = [d if isinstance(d, int) else sizes[d] for d in dims]
    if dtype.is_float:
        return rng.standard_normal(shape).astype(NUMPY[dtype])
    return rng.integers(0, 2 if dtype is BOOL else 9, shape).astype(NUMPY[dtype])


def for_javascript() -> str:
    """JSON by name: the model in base64, type and dims of its inputs, sizes of N. Those with constants have further
    entries."""
    found = {}
    for name, model in MODELS.items():
        for is_constant in (False, True)[: 1 + (name in ("product", "norm"))]:
            data, (feeds, *_) = small_model(name, is_constant)
            inputs = {key: _type_and_dims(of) for key, of in model.inputs.items() if key in feeds}
            described = {key: [dtype.name, dims] for key, (dtype, dims) in inputs.items()}
            entry = {"model": base64.b64encode(data).decode(), "inputs": described, "sizes": model.sizes}
            found[f"{name}, constant weights" if is_constant else name] = entry
    return json.dumps(found)


if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        file.write(for_javascript())
