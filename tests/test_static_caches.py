"""Caches of a fixed size that other operators than TensorScatter write, as exporters do: in place where nothing else
reads the past, and always as onnxruntime has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from kit.small_models import model
from pyruntime import InferenceSession, OrtValue, SessionOptions
from pyruntime.errors import ExecutionError
from tests.test_offsets import agree, node, wire

FLOAT, HALF, INT, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
B, H, S, D = 1, 2, 40, 8  # batch, heads, places, size
HEADS = (B, H, S, D)
KINDS = {FLOAT: "fp32", HALF: "fp16", TensorProto.INT8: "int8"}


class Graph:
    """Nodes as they come, and small constants."""

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


Write = Callable[[Graph, str, str, str], str]  # past, new rows, output -> its name; places of the rows: "at"


def by_all_coordinates(g: Graph, past: str, new: str, to: str) -> str:
    """torch.onnx's index_put of today: a coordinate for each axis of each element."""
    shape, axes = g("Shape", new), []
    for n in range(4):
        along = "at" if n == 2 else g("Range", 0, g("Gather", shape, n), 1)
        spread = g("Reshape", along, [-1 if m == n else 1 for m in range(4)])
        axes.append(g("Unsqueeze", g.all_of(g("Expand", spread, shape)), [1]))
    return g("ScatterND", past, g("Concat", *axes, axis=1), g.all_of(new), to=to)


def by_rows(g: Graph, past: str, new: str, to: str) -> str:
    """TorchScript's index_put of past[:, :, at]: coordinates of batch, head and place."""
    rows = g("Slice", g("Shape", new), [0], [3], [0])
    axes = []
    for n in range(3):
        along = "at" if n == 2 else g("Range", 0, HEADS[n], 1)
        spread = g("Reshape", along, [-1 if m == n else 1 for m in range(3)])
        axes.append(g("Unsqueeze", g("Expand", spread, rows), [-1]))
    return g("ScatterND", past, g("Concat", *axes, axis=-1), new, to=to)


def by_transposes(g: Graph, past: str, new: str, to: str) -> str:
    """slice_scatter and index_copy with the places first."""
    perm = [2, 1, 0, 3]
    turned = g("Transpose", past, perm=perm)
    done = g("ScatterND", turned, g("Unsqueeze", "at", [-1]), g("Transpose", new, perm=perm))
    return g("Transpose", done, to=to, perm=perm)


def by_reshapes(g: Graph, past: str, new: str, to: str) -> str:
    """Batch and heads are one axis while rows are written."""
    flat = g("Reshape", past, [B * H, S, D])
    rows = g("Expand", g("Reshape", "at", [1, -1, 1]), g("Shape", g("Reshape", new, [B * H, -1, D])))
    return g("Reshape", g("ScatterElements", flat, rows, g("Reshape", new, [B * H, -1, D]), axis=1), HEADS, to=to)


def by_elements(g: Graph, past: str, new: str, to: str) -> str:
    """TorchScript's index_copy."""
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    return g("ScatterElements", past, index, new, to=to, axis=2)


def mask(g: Graph, shape: list[int]) -> tuple[str, str]:
    """Which places are written, and by which of the new rows."""
    first = g("ReduceMin", "at", keepdims=0)
    row = g("Sub", g("Range", 0, S, 1), first)
    rows = g("Size", "at")
    written = g("And", g("GreaterOrEqual", row, 0), g("Less", row, rows))
    return g("Reshape", written, shape), g("Where", written, row, 0)


def by_mask(g: Graph, past: str, new: str, to: str) -> str:
    """slice_scatter as PyTorch takes it apart."""
    written, row = mask(g, [S, 1])
    return g("Where", written, g("Gather", new, row, axis=2), past, to=to)


def by_mask_of_kept(g: Graph, past: str, new: str, to: str) -> str:
    written, row = mask(g, [1, 1, S, 1])
    kept = g("Expand", g("Not", written), HEADS)
    return g("Where", kept, past, g("Gather", new, row, axis=2), to=to)


def by_two(g: Graph, past: str, new: str, to: str) -> str:
    """Twice, where only the second is an output."""
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    first = g("ScatterElements", past, index, g("Neg", new), axis=2)
    return by_rows(g, first, new, to)


def by_mask_of_elements(g: Graph, past: str, new: str, to: str) -> str:
    """Not rows but elements are chosen."""
    written, row = mask(g, [1, 1, S, 1])
    each = g("And", written, g("Greater", g("Range", 0, D, 1), -1))
    return g("Where", each, g("Gather", new, row, axis=2), past, to=to)


def by_numbers(g: Graph, past: str, new: str, to: str) -> str:
    """past · (1 - mask) + new · mask: 0 times what is not finite is not 0."""
    written, row = mask(g, [1, 1, S, 1])
    kept = g("CastLike", g("Not", written), past)
    fresh = g("Mul", g("CastLike", written, past), g("Gather", new, row, axis=2))
    return g("Add", g("Mul", past, kept), fresh, to=to)


def after_reading(g: Graph, past: str, new: str, to: str) -> str:
    """The past's largest element is part of what is new."""
    most = g("ReduceMax", past, keepdims=0)
    return by_rows(g, past, g("Mul", new, g("Min", most, g("CastLike", 1, most))), to)


def before_reading(g: Graph, past: str, new: str, to: str) -> str:
    """The past is read behind what is made of it."""
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    g("ScatterElements", past, index, new, to=to, axis=2)
    g("Neg", past, to=f"{to}_negated")
    return to


def by_window(g: Graph, past: str, new: str, to: str) -> str:
    """The last S rows of the past and what is new."""
    return g("Slice", g("Concat", past, new, axis=2), [-S], [np.iinfo(np.int64).max], [2], to=to)


def added(g: Graph, past: str, new: str, to: str) -> str:
    index = g("Expand", g("Reshape", "at", [1, 1, -1, 1]), g("Shape", new))
    return g("ScatterElements", past, index, new, to=to, axis=2, reduction="add")


IN_PLACE = [
    by_all_coordinates, by_rows, by_transposes, by_reshapes, by_elements, by_mask, by_mask_of_kept, by_two, added,
]  # fmt: skip
COPIED = [by_mask_of_elements, by_numbers, after_reading, before_reading, by_window]


def decoder(write: Write, kind: int = FLOAT) -> onnx.ModelProto:
    """Attention over all places up to each token's own; keys are written as values are. Of int8 caches keys and values
    are quantised."""
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
    g("MatMul", g("Softmax", scores, axis=-1), values, to="y")
    of = HALF if kind == HALF else FLOAT
    inputs = [("q", of, [B, H, "s", D]), *[(f"new_{part}", of, [B, H, "s", D]) for part in "kv"], ("at", INT, ["s"])]
    inputs += [(f"past_{part}", kind, HEADS) for part in "kv"]
    outputs = [("y", of, None), *[(f"present_{part}", kind, HEADS) for part in "kv"]]
    outputs += [(n.output[0], kind, None) for n in g.nodes if n.output[0].endswith("_negated")]
    made = model(g.nodes, inputs, outputs, g.constants)
    made.opset_import[0].version = 18
    return made


def steps(kind: int) -> list[dict[str, np.ndarray]]:
    """A prompt of five tokens, then tokens one by one, then places over again."""
    random, dtype = np.random.default_rng(0), np.float16 if kind == HALF else np.float32
    found = []
    for at in (np.arange(5), *[np.array([n]) for n in range(5, 27)], np.arange(2, 6)):
        given = {n: random.standard_normal((B, H, len(at), D)).astype(dtype) for n in ("q", "new_k", "new_v")}
        found.append({**given, "at": at})
    return found


def peer(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def by_arrays(session: Any, kind: int) -> list[list[np.ndarray]]:
    """Outputs of each step; each present is the next past."""
    pasts = {f"past_{part}": np.zeros(HEADS, helper.tensor_dtype_to_np_dtype(kind)) for part in "kv"}
    found = []
    for given in steps(kind):
        outputs = session.run(None, {**given, **pasts})
        found.append([x.copy() for x in outputs])
        pasts = dict(zip(pasts, outputs[1:3], strict=True))
    return found


def by_binding(session: InferenceSession, kind: int, same: bool) -> list[list[np.ndarray]]:
    """same: a present is bound to its past's memory; else each run is fed what the last one made, and all are kept."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    pasts = {part: OrtValue.ortvalue_from_numpy(np.zeros(HEADS, dtype)) for part in "kv"}
    names = [o.name for o in session.get_outputs()]
    found = []
    for given in steps(kind):
        binding = session.io_binding()
        for name, x in given.items():
            binding.bind_cpu_input(name, x)
        for part, past in pasts.items():
            binding.bind_ortvalue_input(f"past_{part}", past)
        for name in names:
            if same and name in ("present_k", "present_v"):
                binding.bind_ortvalue_output(name, pasts[name[-1]])
            else:
                binding.bind_output(name, "cpu")
        session.run_with_iobinding(binding)
        outputs = dict(zip(names, binding.get_outputs(), strict=True))
        pasts = {part: outputs[f"present_{part}"] for part in "kv"}
        found.append([outputs["y"], *pasts.values()])
    return [[x.numpy() for x in outputs] for outputs in ([*[f[:1] for f in found[:-1]], found[-1]] if same else found)]


def near(got: list[list[np.ndarray]], want: list[list[np.ndarray]], kind: int) -> None:
    limit = 1e-2 if kind == HALF else 1e-5
    for mine, theirs in zip(got, want, strict=True):
        for x, y in zip(mine, theirs, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=limit, atol=limit)


def rooms(session: InferenceSession) -> list[str]:
    return [i["name"] for i in session._latest().header["inputs"] if "room" in i]


CASES = [(w, kind) for w in IN_PLACE + COPIED for kind in KINDS]
CASES.remove((added, HALF))  # onnxruntime adds no half floats


@pytest.mark.parametrize(("write", "kind"), CASES, ids=lambda x: KINDS.get(x))
def test_steps_against_onnxruntime(write: Write, kind: int) -> None:
    data = decoder(write, kind).SerializeToString()
    session, other = InferenceSession(data), peer(data)
    assert rooms(session) == (["past_k", "past_v"] if write in IN_PLACE else [])
    want = [x[:3] for x in by_arrays(other, kind)]
    near([x[:3] for x in by_arrays(session, kind)], want, kind)
    near(by_binding(session, kind, same=False), want, kind)
    near(by_binding(session, kind, same=True), [*[x[:1] for x in want[:-1]], want[-1]], kind)


@pytest.mark.parametrize("kind", KINDS, ids=KINDS.get)
@pytest.mark.parametrize("write", IN_PLACE)
def test_a_cache_is_written_once_and_read_once(write: Write, kind: int) -> None:
    """Past and present are one buffer, which nothing sees but the operators that write new rows and the one that reads
    all: no cache is copied, nor are half floats widened."""
    header = InferenceSession(decoder(write, kind).SerializeToString())._latest().header
    pasts = {i["name"]: i["buffer"] for i in header["inputs"] if "room" in i}
    presents = {o["name"].replace("present", "past"): o["value"]["buffer"] for o in header["outputs"][1:]}
    assert pasts == presents
    calls = [c for block in header["blocks"] for step in block["steps"] for c in step.get("calls", [])]
    for buffer in pasts.values():
        *writing, reading = [c["node"].split()[0] for c in calls if buffer in c["buffers"]]
        assert reading == ("DequantizeLinear" if kind == TensorProto.INT8 else "MatMul")
        assert 0 < len(writing) < 3 and all(op == "Where" or op.startswith("Scatter") for op in writing)


@pytest.mark.parametrize("write", IN_PLACE)
def test_presents_that_a_page_feeds_back(write: Write, tmp_path: Path) -> None:
    """By the executor of pages, in Node.js."""
    program, given = tmp_path / "model.pyrt", tmp_path / "feeds.json"
    data = decoder(write).SerializeToString()
    options = SessionOptions(relaxed_simd=False)  # Node.js 20 has it behind a flag
    program.write_bytes(InferenceSession(data, options).export(weights=True))
    first, *rest = steps(FLOAT)
    first |= {f"past_{part}": np.zeros(HEADS, np.float32) for part in "kv"}
    given.write_text(json.dumps([{n: wire(x) for n, x in feeds.items()} for feeds in (first, *rest)]))
    for got, want in zip(node("feed_back.mjs", program, given), by_arrays(peer(data), FLOAT), strict=True):
        agree(got, want)


# ── what is written where ─────────────────────────────────────────────────────────────────────────────────────────


def both(data: bytes, given: dict[str, np.ndarray], inplace: list[str] | None, threads: int = 1) -> None:
    """The same results, twice, and feeds as they were."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(data, options)
    assert inplace is None or rooms(session) == inplace
    before = {n: x.copy() for n, x in given.items()}
    for _ in range(2):
        for got, want in zip(session.run(None, given), peer(data).run(None, given), strict=True):
            np.testing.assert_array_equal(got, want)
    for name, x in given.items():
        np.testing.assert_array_equal(x, before[name])


ROWS = [("past", FLOAT, ["b", "p", 4]), ("at", INT, ["b", "s", 2]), ("new", FLOAT, ["b", "s", 4])]
PRESENT = ("present", FLOAT, ["b", "p", 4])
SCATTER = helper.make_node("ScatterND", ["past", "at", "new"], ["present"])


def scattered() -> bytes:
    return model([SCATTER], ROWS, [PRESENT]).SerializeToString()


def rows(b: int, p: int, at: list[list[int]]) -> dict[str, np.ndarray]:
    """Each item of a batch has places of its own."""
    places = np.array(at, np.int64).reshape(b, len(at[0]) if at else 1)
    items = np.broadcast_to(np.arange(b)[:, None], places.shape)
    random = np.random.default_rng(0)
    past, new = (random.standard_normal((b, n, 4)).astype(np.float32) for n in (p, places.shape[1]))
    return {"past": past, "at": np.stack([items, places], -1), "new": new}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "at", [[[0, 5], [3, 4], [6, 1]], [[-1, 0], [-7, 1], [2, 3]], [[2, 2], [0, 0], [-1, 6]], [[]] * 3], ids=str
)
def test_places_of_each_item(at: list[list[int]], threads: int) -> None:
    """Also from the end, one several times, and none."""
    both(scattered(), rows(3, 7, at), ["past"], threads)


def test_batches_of_other_sizes() -> None:
    session, other = (make(scattered()) for make in (InferenceSession, peer))
    for b, p in ((1, 4), (3, 9), (2, 4), (1, 30), (0, 3)):
        given = rows(b, p, [[n] for n in range(b)])
        np.testing.assert_array_equal(session.run(None, given)[0], other.run(None, given)[0])


def test_a_place_that_is_not_there() -> None:
    """The error is what it was, and neither what was fed nor what a run left before is written to."""
    session, given = InferenceSession(scattered()), rows(1, 4, [[2]])
    past = given["past"].copy()
    values = {n: OrtValue.ortvalue_from_numpy(x) for n, x in given.items()}
    (present,) = session.run_with_ort_values(["present"], values)
    values |= {"past": present, "at": OrtValue.ortvalue_from_numpy(np.array([[[0, 4]]]))}
    for run in (lambda: session.run(None, {**given, "at": np.array([[[0, 4]]])}),
                lambda: session.run_with_ort_values(["present"], values)):  # fmt: skip
        with pytest.raises(ExecutionError, match="ScatterND"):
            run()
    np.testing.assert_array_equal(given["past"], past)
    past[0, 2] = given["new"][0, 0]
    np.testing.assert_array_equal(present.numpy(), past)


def branch(op: str) -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node(op, ["past"], [op])], op, [], [helper.make_tensor_value_info(op, FLOAT, None)]
    )


BRANCH = helper.make_node("If", ["c"], ["other"], then_branch=branch("Neg"), else_branch=branch("Abs"))
MASKED = helper.make_node("Where", ["mask", "more", "past"], ["present"])
READERS: dict[str, tuple[list[onnx.NodeProto], list[str]]] = {
    "the past leaves, too": ([helper.make_node("Identity", ["past"], ["other"])], []),
    "two presents": ([helper.make_node("ScatterND", ["past", "at", "new"], ["other"])], []),
    "a view of the past leaves": ([helper.make_node("Transpose", ["past"], ["other"])], []),
    "read in a branch": ([BRANCH], []),
    "the present twice": ([helper.make_node("Identity", ["present"], ["other"])], []),
    "the present, reshaped": ([helper.make_node("Flatten", ["present"], ["other"])], []),
    "the present, turned": ([helper.make_node("Transpose", ["present"], ["other"])], ["past"]),
    "read behind it": ([helper.make_node("Neg", ["present"], ["other"])], ["past"]),
}  # fmt: skip


@pytest.mark.parametrize("write", [SCATTER, MASKED], ids=["ScatterND", "Where"])
@pytest.mark.parametrize("case", READERS)
def test_who_else_reads(case: str, write: onnx.NodeProto) -> None:
    nodes, inplace = READERS[case]
    inputs = [*ROWS, ("more", FLOAT, ["b", 1, 4]), ("mask", BOOL, ["p", 1]), ("c", BOOL, [])]
    made = model([write, *nodes], inputs, [PRESENT, ("other", FLOAT, None)])
    given = rows(2, 5, [[1], [4]])
    given |= {"more": given["new"], "mask": np.arange(5)[:, None] % 2 == 0, "c": np.array(True)}
    both(made.SerializeToString(), given, None if case.startswith("the present") else inplace)


def test_a_past_in_a_sequence() -> None:
    for write in (SCATTER, MASKED):
        inputs = [*ROWS, ("more", FLOAT, ["b", 1, 4]), ("mask", BOOL, ["p", 1])]
        made = model([write, helper.make_node("SequenceConstruct", ["past", "new"], ["all"])], inputs, [PRESENT])
        made.graph.output.append(helper.make_tensor_sequence_value_info("all", FLOAT, None))
        session, given = InferenceSession(made.SerializeToString()), rows(2, 5, [[1], [4]])
        given |= {"more": given["new"], "mask": np.arange(5)[:, None] % 2 == 0}
        assert rooms(session) == []
        np.testing.assert_array_equal(session.run(None, given)[1][0], given["past"])


def test_places_that_the_past_chooses() -> None:
    nodes = [
        helper.make_node("Slice", ["past", "zero", "one", "two"], ["column"]),
        helper.make_node("Greater", ["column", "limit"], ["mask"]), MASKED,
    ]  # fmt: skip
    numbers = {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "limit": np.array(0, np.float32)}
    inputs = [("past", FLOAT, ["b", "p", 4]), ("more", FLOAT, ["b", 1, 4])]
    given = rows(2, 6, [[1], [4]])
    both(
        model(nodes, inputs, [PRESENT], numbers).SerializeToString(), {"past": given["past"], "more": given["new"]}, []
    )
