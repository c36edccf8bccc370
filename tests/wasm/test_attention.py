"""Attention by blocks of rows, against NumPy in float64. Blocks are small, so that their edges are near."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pyruntime import InferenceSession, SessionOptions
from pyruntime.providers.wasm.routines import attention

RNG = np.random.default_rng(3)
ROWS = 12  # of a block, at least

# how Q (b, m, h, d), K (b, n, h, d) and V lie, and that they are split into heads as exporters write it
HEADS = [("Transpose", "q", "qh", (0, 2, 1, 3)), ("Transpose", "k", "kh", (0, 2, 3, 1)),
         ("Transpose", "v", "vh", (0, 2, 1, 3))]  # fmt: skip


@pytest.fixture(params=[(True, 1), (False, 1), (True, 2)], ids=["relaxed", "plain", "threads"])
def options(request: Any) -> SessionOptions:
    relaxed, threads = request.param
    return SessionOptions(relaxed_simd=relaxed, intra_op_num_threads=threads)


@pytest.fixture
def small(monkeypatch: Any) -> None:
    monkeypatch.setattr(attention, "BLOCK", 48)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def build(feeds: dict[str, np.ndarray], symbolic: bool = False, tail: Any = ()) -> bytes:
    """y = softmax(q k' / 2 + mask) v with heads split and joined; then the nodes of `tail`."""
    nodes = [helper.make_node(op, [x], [y], perm=perm) for op, x, y, perm in HEADS]
    nodes += [helper.make_node("MatMul", ["qh", "kh"], ["s"]), helper.make_node("Mul", ["s", "half"], ["scaled"])]
    scores = "scaled"
    if "mask" in feeds:
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["masked"]))
        scores = "masked"
    nodes.append(helper.make_node("Softmax", [scores], ["p"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["p", "vh"], ["o"]))
    nodes.append(helper.make_node("Transpose", ["o"], ["y"], perm=(0, 2, 1, 3)))
    inputs = [
        helper.make_tensor_value_info(k, 1, [f"{k}{i}" for i in range(x.ndim)] if symbolic else x.shape)
        for k, x in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", *[n.output[0] for n in tail])]
    half = onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")
    graph = helper.make_graph([*nodes, *tail], "g", inputs, outputs, [half])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def expected(feeds: dict[str, np.ndarray]) -> np.ndarray:
    q, k, v = (feeds[x].astype(np.float64).transpose(0, 2, 1, 3) for x in "qkv")
    with np.errstate(all="ignore"):
        s = q @ k.swapaxes(2, 3) / 2 + feeds.get("mask", np.zeros(1))
        e = np.exp(s - s.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def kernels(session: InferenceSession) -> list[str]:
    blocks = session._native.latest().header["blocks"]
    return [c["kernel"] for b in blocks for s in b["steps"] for c in s.get("calls", ())]


def check(feeds: dict[str, np.ndarray], options: SessionOptions | None = None, fused: bool = True) -> None:
    session = InferenceSession(build(feeds), options)
    (got,) = session.run(None, feeds)
    np.testing.assert_allclose(got, expected(feeds), rtol=2e-5, atol=2e-5)
    assert any(k.startswith("attention") for k in kernels(session)) == fused


def given(m: int, n: int, d: int, batch: int = 1, heads: int = 2) -> dict[str, np.ndarray]:
    return {"q": floats(batch, m, heads, d), "k": floats(batch, n, heads, d), "v": floats(batch, n, heads, d)}


@pytest.mark.parametrize("m", [7, 8, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS, 2 * ROWS + 1])
def test_edges(small: None, options: SessionOptions, m: int) -> None:
    for n, d in itertools.product((7, 8, 9, 17, 257), (1, 4, 7, 8, 9)):
        check(given(m, n, d), options)


@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_batches(small: None, options: SessionOptions, batch: int, heads: int) -> None:
    check(given(13, 9, 8, batch, heads), options)


@pytest.mark.parametrize("shared", ["k", "v", "kv"])
def test_heads_share_keys_or_values(small: None, shared: str) -> None:
    for batch, heads in ((1, 3), (2, 3)):
        feeds = given(13, 9, 8, batch, heads)
        for x in shared:
            feeds[x] = floats(batch, 9, 1, 8)
        session = InferenceSession(build(feeds))
        np.testing.assert_allclose(session.run(None, feeds)[0], expected(feeds), rtol=2e-5, atol=2e-5)


MASKS = [(9,), (13, 9), (1, 1, 1, 9), (2, 1, 1, 9), (1, 3, 1, 9), (1, 1, 13, 9), (2, 1, 13, 9), (2, 3, 13, 9),
         (1, 1, 13, 1)]  # fmt: skip


@pytest.mark.parametrize("shape", MASKS)
def test_masks(small: None, options: SessionOptions, shape: tuple[int, ...]) -> None:
    feeds = given(13, 9, 8, 2, 3) | {"mask": floats(*shape)}
    check(feeds, options)
    feeds["mask"] = np.where(RNG.random(shape) < 0.3, -np.inf, feeds["mask"]).astype(np.float32)
    check(feeds, options)


def test_causal_and_rows_without_keys(small: None, options: SessionOptions) -> None:
    mask = np.where(np.tri(13, 13, dtype=bool), 0, -np.inf).astype(np.float32)
    feeds = given(13, 13, 8) | {"mask": mask}
    check(feeds, options)
    mask[5] = -np.inf
    want = expected(feeds)
    assert np.isnan(want[:, 5]).all()
    check(feeds, options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinities(small: None, value: float) -> None:
    for x in "qkv":
        feeds = given(13, 9, 8)
        feeds[x][0, 6, 1, 3] = value
        check(feeds)


def test_scores_that_others_read(small: None) -> None:
    feeds = given(13, 9, 8)
    for name in ("scaled", "p", "o"):
        tail = [helper.make_node("Neg", [name], ["z"])]
        session = InferenceSession(build(feeds, tail=tail))
        got, _ = session.run(None, feeds)
        np.testing.assert_allclose(got, expected(feeds), rtol=2e-5, atol=2e-5)
        assert any(k.startswith("attention") for k in kernels(session)) == (name == "o")


def test_sizes_that_the_run_decides(small: None) -> None:
    session = InferenceSession(build(given(13, 9, 8), symbolic=True))
    for m, n, batch in ((13, 9, 1), (1, 40, 2), (0, 9, 1), (13, 9, 0)):
        feeds = given(m, n, 8, batch)
        np.testing.assert_allclose(session.run(None, feeds)[0], expected(feeds), rtol=2e-5, atol=2e-5)


def test_large_scores_are_never_whole_in_memory(options: SessionOptions) -> None:
    feeds = given(300, 300, 16)
    check(feeds, options)
    session = InferenceSession(build(feeds), options)
    session.run(None, feeds)
    threads = max(options.intra_op_num_threads, 1)
    assert session.memory().peak < 2 * 300 * 300 * 4 + (threads - 1) * 4 * attention.BLOCK * 2
    check(given(256, 256, 16), options, fused=False)  # one block holds them


@pytest.mark.parametrize("read", ["", "s", "p"])
def test_scores_of_sizes_that_the_run_decides_are_overwritten(options: SessionOptions, read: str) -> None:
    """By the softmax of them, unless others read them."""
    feeds = given(301, 302, 16)
    want = expected(feeds)
    tail = [helper.make_node("Neg", [read], ["z"])] if read else []
    session = InferenceSession(build(feeds, symbolic=True, tail=tail), options)
    for _ in range(2):
        got, *_ = session.run(["y"], feeds)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    got, *others = session.run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    if read == "p":
        np.testing.assert_allclose(others[0].sum(-1), -1, rtol=1e-5)
    whole = 2 * 301 * 302 * 4
    assert (session.memory().peak > 1.9 * whole) == (read == "s")


def test_explain_says_where_they_run(small: None) -> None:
    feeds = given(13, 9, 8)
    session = InferenceSession(build(feeds))
    session.run(None, feeds)
    entries = {e["op"]: e for e in session.explain()["nodes"] if e["op"] in ("Softmax", "Mul")}
    for e in entries.values():
        assert e["place"] == "fused" and e["into"].startswith("MatMul")
        (into,) = [n for n in session.explain()["nodes"] if n["node"] == e["into"]]
        assert any(k.startswith("attention") for k in into["kernels"])
