"""Caches of a fixed size written by operators other than TensorScatter, as exporters emit them: they are updated in
place if nothing else reads the past, and always equal onnxruntime's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from kit.small_models import model
from kit.static_caches import COPIED, FLOAT, HALF, HEADS, IN_PLACE, KINDS, Write, added, decoder, steps
from pyruntime import InferenceSession, OrtValue, SessionOptions
from pyruntime.errors import ExecutionError
from tests.test_offsets import agree, node, wire

BOOL, INT = TensorProto.BOOL, TensorProto.INT64


def peer(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def by_arrays(session: Any, kind: int) -> list[list[np.ndarray]]:
    """Run all steps and return their outputs; each present is fed as the next past."""
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
        found.append([outputs["logits"], *pasts.values()])
    return [[x.numpy() for x in outputs] for outputs in ([*[f[:1] for f in found[:-1]], found[-1]] if same else found)]


def near(got: list[list[np.ndarray]], want: list[list[np.ndarray]], kind: int) -> None:
    limit = 1e-2 if kind == HALF else 1e-5
    for mine, theirs in zip(got, want, strict=True):
        for x, y in zip(mine, theirs, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=limit, atol=limit)


def rooms(session: InferenceSession) -> list[str]:
    return [i["name"] for i in session._native.latest().header["inputs"] if "room" in i]


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
    header = InferenceSession(decoder(write, kind).SerializeToString())._native.latest().header
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
    program.write_bytes(InferenceSession(data).export(weights=True))
    first, *rest = steps(FLOAT)
    first |= {f"past_{part}": np.zeros(HEADS, np.float32) for part in "kv"}
    given.write_text(json.dumps([{n: wire(x) for n, x in feeds.items()} for feeds in (first, *rest)]))
    for got, want in zip(node("feed_back.mjs", program, given), by_arrays(peer(data), FLOAT), strict=True):
        agree(got, want)


# ── what is written where ─────────────────────────────────────────────────────────────────────────────────────────


def both(data: bytes, given: dict[str, np.ndarray], inplace: list[str] | None, threads: int = 1) -> None:
    """Check that two runs give the peer's results and leave the feeds unchanged."""
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
    """The error is the usual one, and neither feeds nor earlier outputs are overwritten."""
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
