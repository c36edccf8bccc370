"""Outputs that append rows to a feed, in its buffer: results are those of onnxruntime."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kit.decoders import TINY, Decoder, feeds
from kit.small_models import model
from pyruntime import InferenceSession, OrtValue, SessionOptions

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
PAST, NEW, PRESENT = ("past", FLOAT, ["b", 2, "p", 4]), ("new", FLOAT, ["b", 2, "s", 4]), ("present", FLOAT, None)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def rooms(session: InferenceSession) -> list[str]:
    """The inputs in buffers with spare places."""
    return [i["name"] for i in session._native.latest().header["inputs"] if "room" in i]


def attention() -> onnx.ModelProto:
    """Attention of a decoder as exporters write it: softmax(q kᵀ) v, with past keys and values before new ones."""
    nodes = [
        node("Concat", "past new", "present", axis=2), node("Concat", "past_v new", "present_v", axis=-2),
        node("Transpose", "present", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "scores"),
        node("Softmax", "scores", "weights", axis=-1), node("MatMul", "weights present_v", "y"),
    ]  # fmt: skip
    inputs = [PAST, NEW, ("past_v", *PAST[1:]), ("q", *NEW[1:])]
    return model(nodes, inputs, [("y", FLOAT, None), PRESENT, ("present_v", FLOAT, None)])


def past_is_read_elsewhere() -> onnx.ModelProto:
    nodes = [node("Concat", "past new", "present", axis=2), node("ReduceSum", "past", "total", keepdims=0),
             node("Exp", "past", "e"), node("Mul", "present total", "scaled")]  # fmt: skip
    return model(nodes, [PAST, NEW], [PRESENT, ("e", FLOAT, None), ("scaled", FLOAT, None)])


def twice_the_same() -> onnx.ModelProto:
    """One past, two presents: the second is a copy."""
    nodes = [node("Concat", "past new", "present", axis=2), node("Concat", "past other", "again", axis=2)]
    inputs = [PAST, NEW, ("other", FLOAT, ["b", 2, "s", 4])]
    return model(nodes, inputs, [PRESENT, ("again", FLOAT, None)])


def past_leaves_too() -> onnx.ModelProto:
    nodes = [node("Concat", "past new", "present", axis=2), node("Identity", "past", "same")]
    return model(nodes, [PAST, NEW], [PRESENT, ("same", FLOAT, None)])


def new_is_computed() -> onnx.ModelProto:
    first = node("Relu", "new", "r")
    nodes = [first, node("Concat", "past r", "present", axis=2), node("Neg", "present", "y")]
    return model(nodes, [PAST, NEW], [PRESENT, ("y", FLOAT, None)])


def past_comes_second() -> onnx.ModelProto:
    return model([node("Concat", "new past", "present", axis=2)], [PAST, NEW], [PRESENT])


def along_the_first_axis() -> onnx.ModelProto:
    inputs = [("past", INT, ["p", 3]), ("new", INT, ["s", 3])]
    nodes = [node("Concat", "past new", "present", axis=0), node("Abs", "present", "y")]
    return model(nodes, inputs, [("present", INT, None), ("y", INT, None)])


def along_the_last_axis() -> onnx.ModelProto:
    inputs = [("past", TensorProto.FLOAT16, [2, 3, "p"]), ("new", TensorProto.FLOAT16, [2, 3, "s"])]
    nodes = [node("Concat", "past new", "present", axis=-1)]
    return model(nodes, inputs, [("present", TensorProto.FLOAT16, None)])


def stacked(early: bool = False) -> onnx.ModelProto:
    """Keys and values in one tensor. early: values are computed from the new keys."""
    at = [helper.make_node("Constant", [], [f"at{n}"], value_int=n) for n in (0, 1)]
    read = [node("ReduceSum", "k", "sum", keepdims=0), node("Mul", "new sum", "turned")]
    nodes = [
        *at, helper.make_node("Constant", [], ["axes"], value_ints=[0]),
        node("Gather", "past at0", "past_k", axis=0), node("Concat", "past_k new", "k", axis=-2),
        *(read if early else []), node("Neg", "turned" if early else "new", "new_v"),
        node("Gather", "past at1", "past_v", axis=0), node("Concat", "past_v new_v", "v", axis=-2),
        node("Unsqueeze", "k axes", "k5"), node("Unsqueeze", "v axes", "v5"),
        node("Concat", "k5 v5", "present", axis=0), node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "new kt", "scores"), node("Softmax", "scores", "weights"), node("MatMul", "weights v", "y"),
    ]  # fmt: skip
    inputs = [("past", FLOAT, [2, "b", 2, "p", 4]), NEW]
    return model(nodes, inputs, [("y", FLOAT, None), PRESENT])


def keys_before_values() -> onnx.ModelProto:
    return stacked(early=True)


def attention_of_microsoft() -> onnx.ModelProto:
    names = ["x", "weights", "bias", "", "past"]
    made = helper.make_node("Attention", names, ["y", "present"], domain="com.microsoft", num_heads=2, unidirectional=1)
    inputs = [("past", FLOAT, [2, "b", 2, "p", 4]), ("x", FLOAT, ["b", "s", 8]), ("weights", FLOAT, [8, 24]),
              ("bias", FLOAT, [24])]  # fmt: skip
    built = model([made], inputs, [("y", FLOAT, None), PRESENT])
    built.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return built


def turned_in_part() -> onnx.ModelProto:
    """As long as the feed. Some of its features are computed from the others, and overwritten."""
    made = helper.make_node("RotaryEmbedding", ["x", "cos", "sin"], ["y"], rotary_embedding_dim=4)
    inputs = [("x", FLOAT, ["b", 2, "p", 8]), *[(name, FLOAT, ["b", "p", 2]) for name in ("cos", "sin")]]
    built = model([made], inputs, [("y", FLOAT, None)])
    built.opset_import[0].version = 23
    return built


CASES: list[tuple[Any, list[str] | None]] = [
    (attention, ["past", "past_v"]), (past_is_read_elsewhere, ["past"]), (twice_the_same, ["past"]),
    (past_leaves_too, None), (new_is_computed, ["past"]), (past_comes_second, ["new"]),
    (along_the_first_axis, ["past"]),
    (along_the_last_axis, ["past"]), (stacked, ["past"]), (keys_before_values, []), (attention_of_microsoft, ["past"]),
    (turned_in_part, []),
]  # fmt: skip
SIZES = [(1, 3, 1), (1, 4, 1), (2, 0, 3), (1, 7, 0), (3, 1, 2), (1, 63, 1), (1, 64, 1), (1, 65, 1), (0, 2, 2)]


@pytest.mark.parametrize(("build", "expected"), CASES, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("threads", [1, 2])
def test_against_onnxruntime(build: Any, expected: list[str] | None, threads: int) -> None:
    data = build().SerializeToString()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    own = SessionOptions()
    own.intra_op_num_threads = threads
    ours = InferenceSession(data, own)
    if expected is not None:
        assert rooms(ours) == expected
    random = np.random.default_rng(0)
    for b, p, s in SIZES:
        names = {"b": b, "p": p, "s": s}
        given = {}
        for v in theirs.get_inputs():
            dtype = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(float16)": np.float16}[v.type]
            given[v.name] = (10 * random.standard_normal([names.get(d, d) for d in v.shape])).astype(dtype)
        for got, want in zip(ours.run(None, given), theirs.run(None, given), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["fp32", "fp16"])
def test_group_query_attention(kind: str) -> None:
    """Items of a batch whose pasts have different lengths, and a cache with more places than keys."""
    data = Decoder(TINY, kind, empty=False).model().SerializeToString()
    ours, theirs = InferenceSession(data), onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert len(rooms(ours)) == 2 * TINY.layers
    random = np.random.default_rng(0)
    near = 2e-2 if kind == "fp16" else 1e-4
    for last, past, total in [([4], 4, 5), ([4, 2], 4, 5), ([6, 6], 20, 7), ([6, 3], 20, 7), ([0], 0, 1)]:
        given = feeds(TINY, kind, 1, past)
        for name, x in given.items():
            if name.startswith("past"):
                given[name] = random.standard_normal((len(last), *x.shape[1:])).astype(x.dtype)
        given |= {"ids": np.full((len(last), 1), 7), "last": np.array(last, np.int32)}
        given["total"] = np.array(total, np.int32)
        (logits, *caches), (wanted, *others) = (session.run(None, given) for session in (ours, theirs))
        np.testing.assert_allclose(logits, wanted, rtol=near, atol=near)
        for got, want in zip(caches, others, strict=True):
            assert got.shape == want.shape
            for n, end in enumerate(last):  # nothing reads places after an item's keys
                np.testing.assert_allclose(got[n, :, : end + 1], want[n, :, : end + 1], rtol=near, atol=near)


def test_kernels_read_half_float_caches_directly() -> None:
    """The kernels are those of float32, and two that convert new keys and values: none copies or widens a cache."""
    kernels = {}
    for kind in ("fp32", "fp16"):
        session = InferenceSession(Decoder(TINY, kind, empty=False).model().SerializeToString())
        found = session.profile(feeds(TINY, kind, 1, 40))
        names = [t.kernel.rpartition("_")[0] for t in found if "GroupQueryAttention" in t.node]
        kernels[kind] = Counter(name.replace("16", "") for name in names)
        assert {name for name in names if "matmul" in name} == {
            f"matmul_{way}{'16' if kind == 'fp16' else ''}" for way in ("rows", "cols")
        }
    assert kernels["fp16"] - kernels["fp32"] == Counter(map=2 * TINY.layers)


def test_a_past_with_other_readers_is_not_overwritten() -> None:
    """The second item has fewer keys than places, so its new key is among those of its past."""
    made = Decoder(TINY, "fp32", empty=False).model()
    made.graph.node.append(node("Neg", "past.0.key", "negated"))
    made.graph.output.append(helper.make_tensor_value_info("negated", FLOAT, None))
    session = InferenceSession(made.SerializeToString())
    random = np.random.default_rng(0)
    given = feeds(TINY, "fp32", 1, 4)
    for name, x in given.items():
        if name.startswith("past"):
            given[name] = random.standard_normal((2, *x.shape[1:])).astype(x.dtype)
    given |= {"ids": np.full((2, 1), 7), "last": np.array([4, 1], np.int32), "total": np.array(5, np.int32)}
    assert np.array_equal(session.run(["negated"], given)[0], -given["past.0.key"])
    assert np.array_equal(session.run(None, given)[-1], -given["past.0.key"])


def test_a_cache_of_a_fixed_size() -> None:
    """One token at a time, written to its place."""
    made = Decoder(TINY, "fp32", empty=False).model()
    sizes = {"batch": 1, "tokens": 1, "past": 24}
    for v in made.graph.input:
        for d in v.type.tensor_type.shape.dim:
            if d.dim_param:
                d.dim_value = sizes[d.dim_param]
    data = made.SerializeToString()
    ours, theirs = InferenceSession(data), onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert len(rooms(ours)) == 2 * TINY.layers
    names = [o.name for o in ours.get_outputs()]
    given = feeds(TINY, "fp32", 1, 24)
    for n in range(5):
        given |= {"ids": np.array([[3 * n]]), "last": np.array([n], np.int32), "total": np.array(n + 1, np.int32)}
        outputs, wanted = (dict(zip(names, session.run(None, given), strict=True)) for session in (ours, theirs))
        np.testing.assert_allclose(outputs["logits"], wanted["logits"], rtol=1e-4, atol=1e-4)
        given |= {name.replace("present", "past"): x for name, x in outputs.items() if name != "logits"}


WRITTEN = [
    ({}, [2, 3, 9, 4], [0, 5], TensorProto.FLOAT), ({"axis": 1}, ["b", "p", 4], [3, 0], TensorProto.FLOAT16),
    ({"mode": "circular"}, ["b", 2, "p", 4], [7, 8], TensorProto.FLOAT), ({}, ["b", 2, 9, 4], None, TensorProto.INT8),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "shape", "starts", "kind"), WRITTEN, ids=str)
@pytest.mark.parametrize("held", [False, True])
def test_overwritten_rows(attributes: Any, shape: Any, starts: Any, kind: int, held: bool) -> None:
    """The cache that was fed does not change, even if it is an OrtValue from the last run."""
    names = ["past", "new", *(["at"] if starts else [])]
    axis = attributes.get("axis", len(shape) - 2)
    fresh = [*shape[:axis], "s", *shape[axis + 1 :]]
    inputs = [("past", kind, shape), ("new", kind, fresh), *([("at", INT, [shape[0]])] if starts else [])]
    nodes = [helper.make_node("TensorScatter", names, ["present"], **attributes), node("Abs", "present", "y")]
    opsets = [helper.make_opsetid("", 24)]
    outputs = [helper.make_tensor_value_info(n, kind, shape) for n in ("present", "y")]
    values = [helper.make_tensor_value_info(*x) for x in inputs]
    made = helper.make_model(helper.make_graph(nodes, "g", values, outputs), opset_imports=opsets, ir_version=11)
    session, peer = InferenceSession(made.SerializeToString()), ReferenceEvaluator(made)
    assert rooms(session) == ["past"]
    random, dims = np.random.default_rng(0), {"b": 2, "p": 9, "s": 2}
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    past = (10 * random.standard_normal([dims.get(d, d) for d in shape])).astype(dtype)
    fed: list[Any] = [OrtValue.ortvalue_from_numpy(past) if held else past]
    wanted = [past]
    for step in range(3):
        new = (10 * random.standard_normal([dims.get(d, d) for d in fresh])).astype(dtype)
        given = {"new": new, **({"at": np.array(starts) - step * (min(starts) > 0)} if starts else {})}
        want = peer.run(None, {"past": wanted[-1], **given})
        if held:
            given = {n: OrtValue.ortvalue_from_numpy(x) for n, x in given.items()}
            present, y = session.run_with_ort_values(["present", "y"], {"past": fed[-1], **given})
            y = y.numpy()
        else:
            present, y = session.run(None, {"past": fed[-1], **given})
        np.testing.assert_array_equal(y, want[1])
        fed.append(present)
        wanted.append(want[0])
    for got, want in zip(fed, wanted, strict=True):
        np.testing.assert_array_equal(got.numpy() if held else got, want)
