"""NonMaxSuppression with many boxes, against onnxruntime; ImageDecoder without Pillow."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from onnx import helper

from kit.interpret import run
from pyruntime.errors import ExecutionError
from tests.ops.compare import check, model

RNG = np.random.default_rng(5)
CORNERS = RNG.random((2, 20, 4), np.float32)
SCORES = RNG.random((2, 3, 20), np.float32).round(1)  # with ties


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("most", [0, 2, 50])
@pytest.mark.parametrize("given", ["", "iou", "iou score"])
@pytest.mark.parametrize("known", [True, False])
def test_non_max_suppression(center: int, most: int, given: str, known: bool) -> None:
    feeds: dict[str, Any] = {"boxes": CORNERS, "scores": SCORES}
    options: dict[str, Any] = {
        "most": np.array([most]),
        "iou": np.array([0.3], np.float32),
        "score": np.array([0.4], np.float32),
    }
    options = {k: v for k, v in options.items() if k == "most" or k in given.split()}
    nodes = [helper.make_node("NonMaxSuppression", [*feeds, *options], ["y"], center_point_box=center)]
    if known:
        for name, x in options.items():
            key = "value_ints" if x.dtype == np.int64 else "value_floats"
            nodes.insert(0, helper.make_node("Constant", [], [name], **{key: x.tolist()}))
    else:
        feeds |= options
    check(model(nodes, feeds, ["y"], opset=13), feeds)


def test_nothing_to_choose_from() -> None:
    feeds = {"boxes": np.zeros((1, 0, 4), np.float32), "scores": np.zeros((1, 2, 0), np.float32)}
    most = helper.make_node("Constant", [], ["most"], value_ints=[5])
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most"], ["y"])
    assert run(model([most, node], feeds, ["y"]).SerializeToString(), feeds)[0].shape == (0, 3)


@pytest.mark.skipif(importlib.util.find_spec("PIL") is not None, reason="Pillow is installed")
def test_pictures_need_pillow() -> None:
    feeds = {"x": np.zeros(10, np.uint8)}
    m = model([helper.make_node("ImageDecoder", ["x"], ["y"])], feeds, ["y"])
    with pytest.raises(ExecutionError, match="Pillow"):
        run(m.SerializeToString(), feeds)
