"""No attribute, and no number from data, makes work grow beyond the number of elements of the tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from pyruntime import InferenceSession, OutOfMemory, ShapeError, UnsupportedOp
from pyruntime.emit.block_steps import LONGEST
from tests.ops.compare import by_onnx, by_onnxruntime, by_session, model, same
from tests.ops.node import f32, floats, ints, node_model

MOST = 2**31 - 1
IMAGE = floats(1, 2, 6, 7)


def in_regions(*corners: list[float], **attrs: Any) -> Any:
    return node_model("RoiAlign", [IMAGE, np.array(corners, np.float32), ints(*[0] * len(corners))], 22, **attrs)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 3])
def test_regions_beyond_the_image(mode: str, ratio: int) -> None:
    corners = [-40, -30, 50, 45], [2, 3, 60, 50], [-70, 1, -20, 3], [1, 2, 1, 2], [-1.5, -1.5, 7.5, 9]
    m, feeds = in_regions(*corners, output_height=2, output_width=3, mode=mode, sampling_ratio=ratio)
    same(by_session(m, feeds), by_onnx(m, feeds), 1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_without_end(mode: str) -> None:
    [y] = by_session(*in_regions([-1e9, -1e9, 1e9, 1e9], [0, 0, 3e38, 3e38], [0, 0, np.inf, np.inf], mode=mode))
    assert y.shape == (3, 2, 1, 1) and np.isfinite(y).all() and np.abs(y).max() <= np.abs(IMAGE).max()


@pytest.mark.parametrize(("size", "error"), [(10**9, OutOfMemory), (1 << 40, ShapeError)])
def test_draws_without_end(size: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="bytes of memory are needed|cannot have the shape"):
        by_session(*node_model("Multinomial", [floats(1, 3)], 22, sample_size=size))


@pytest.mark.parametrize("size", [MOST, 2**62])
def test_repeats_longer_than_any_sequence(size: int) -> None:
    args = [ints(1, 1, 1, 1).reshape(1, 4), floats(1, 3)]
    m, feeds = node_model("NGramRepeatBlock", args, 17, domain="com.microsoft", ngram_size=size)
    same(by_session(m, feeds), [args[1]])


def test_samples_without_end() -> None:
    with pytest.raises(UnsupportedOp, match='RoiAlign "y0".*2147483647 means 4611686014132420609 samples'):
        by_session(*in_regions([0, 0, 3, 3], sampling_ratio=MOST))


@pytest.mark.parametrize("size", [5, 6, 7, MOST])
def test_normalisation_over_more_channels_than_there_are(size: int) -> None:
    x = floats(2, 3, 2, 2)
    some, any_ = (node_model("LRN", [x], 13, size=n, alpha=0.2 * n) for n in (5, size))
    same(by_session(*any_), by_onnxruntime(*some))


def test_a_filter_stretched_for_nothing() -> None:
    args = [floats(1, 1, 8, 9), None, f32([1, 1, 1e-9, 1])]
    m, feeds = node_model("Resize", args, 19, constants=(2,), mode="linear", antialias=1)
    assert by_session(m, feeds)[0].shape == (1, 1, 0, 9)


def test_items_further_apart_than_there_are() -> None:
    attrs = {"min_gram_length": 1, "max_gram_length": 2, "mode": "TF", "ngram_counts": [0, 2],
             "ngram_indexes": [0, 1, 2, 3], "pool_int64s": [1, 2, 1, 2, 2, 3]}  # fmt: skip
    some, any_ = (node_model("TfIdfVectorizer", [ints(1, 2, 3, 2)], 9, **attrs, max_skip_count=n) for n in (4, MOST))
    same(by_session(*any_), by_onnxruntime(*some))


@pytest.mark.parametrize(("equation", "size"), [("a,b,c,d,e->", 3000), ("ab,bc,cd,da->", 200), ("ab,c->a", 3000)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16])
def test_sums_of_products_of_many(equation: str, size: int, dtype: Any) -> None:
    """Loops over all letters at once would take hours."""
    terms = equation.split("->")[0].split(",")
    whole = dtype is np.int32
    xs = [(floats(*[size] * len(term)) * (3 if whole else 1 / size)).astype(dtype) for term in terms]
    got = by_session(*node_model("Einsum", xs, 12, equation=equation))
    want = np.einsum(equation, *[x.astype(np.int64 if whole else np.float64) for x in xs], optimize=True)
    np.testing.assert_allclose(got[0], want.astype(dtype), rtol=1e-2 if dtype is np.float16 else 1e-4, atol=1e-6)


@pytest.mark.parametrize("attrs", [
    {"block": (4, 3)}, {"block": (2, 6)}, {"block": (7, 6)}, {"block": (6, 2), "strides": [2, 3]},
    {"block": (4, 3), "dilations": [2, 2]}, {"block": (6, 8), "pads": [1, 2, 0, 1], "strides": [2, 1]},
    {"block": (3, 5), "pads": [3, 0, 2, 1], "dilations": [3, 1], "strides": [3, 2]},
])  # fmt: skip
def test_blocks_larger_than_the_places_where_they_lie(attrs: dict[str, Any]) -> None:
    """Along each axis, sums run over the smaller number."""
    block, rest = attrs["block"], {k: v for k, v in attrs.items() if k != "block"}
    pads, strides, dilations = rest.get("pads", [0] * 4), rest.get("strides", [1, 1]), rest.get("dilations", [1, 1])
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, block, strict=True)]
    counts = [(n + pads[a] + pads[a + 2] - reach[a]) // strides[a] + 1 for a, n in enumerate((7, 8))]
    x = floats(2, 3 * block[0] * block[1], counts[0] * counts[1])
    m, feeds = node_model("Col2Im", [x, ints(7, 8), ints(*block)], 18, constants=(1, 2), **rest)
    same(by_session(m, feeds), by_onnx(m, feeds), 1e-5)


def test_a_block_as_large_as_its_image() -> None:
    m, feeds = node_model("Col2Im", [floats(1, 10**6, 1), ints(1000, 1000), ints(1000, 1000)], 18, constants=(1, 2))
    np.testing.assert_array_equal(by_session(m, feeds)[0].ravel(), feeds["x0"].ravel())


def test_parts_by_the_thousand() -> None:
    """Their kernels are in several steps, because planning a step takes time in the square of its kernels."""
    x = floats(2500, 1)
    parts = helper.make_node("SplitToSequence", ["x"], ["parts"])
    whole = helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=1)
    session = InferenceSession(model([parts, whole], {"x": x}, ["parts", "y"]).SerializeToString())
    assert session.explain()["steps"] >= 2500 / LONGEST
    got, y = session.run(None, {"x": x})
    np.testing.assert_array_equal(np.concatenate(got), x)
    np.testing.assert_array_equal(y, x.T)
