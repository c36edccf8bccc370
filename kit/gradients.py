"""What checks of gradients share: nodes that compute in double, and losses for models with the gradients of their
inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, helper

TRAINING = "ai.onnx.preview.training"
# Inputs that are settings, although they are floats: sizes, regions, ratios.
CONSTANT = {
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "CropAndResize": (1,),
    "MaxRoiPool": (1,),
    "RoiAlign": (1,),
    "Dropout": (1,),
    "OneHot": (0, 1),
}
# Operators with an attribute that chooses float32 for arithmetic, unless it says double.
STASHING = ("LayerNormalization", "RMSNormalization", "GroupNormalization")
HUGE = 1e20  # outputs beyond it, such as masked scores, would hide the others in a sum


@contextmanager
def any_type() -> Iterator[None]:
    """Lets double into operators that are declared for other floats only."""
    with (
        mock.patch("pyruntime.frontend.signatures._check_type"),
        mock.patch("pyruntime.frontend.trace_graph.check_result"),
    ):
        yield


def in_double(node: onnx.NodeProto) -> onnx.NodeProto:
    out = onnx.NodeProto()
    out.CopyFrom(node)
    kept = []
    for a in node.attribute:
        if a.name in ("stash_type", "softmax_precision"):
            continue
        if a.name in ("dtype", "output_dtype", "to") and a.i in (TensorProto.FLOAT, TensorProto.FLOAT16):
            a = helper.make_attribute(a.name, TensorProto.DOUBLE)
        kept.append(a)
    if node.op_type in STASHING:
        kept.append(helper.make_attribute("stash_type", TensorProto.DOUBLE))
    del out.attribute[:]
    out.attribute.extend(kept)
    return out


def factors(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random numbers, 0 where an output is huge or not a number."""
    return np.where(np.abs(np.nan_to_num(y, nan=1e30)) < HUGE, rng.normal(size=y.shape), 0.0)


def loss_of(
    results: Mapping[str, Any], loss: str, rng: np.random.Generator
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Nodes that add the float results times random numbers, and these numbers; no nodes if no result is a float."""
    nodes, constants, terms = [], {}, []
    for name, y in results.items():
        if not isinstance(y, np.ndarray) or y.dtype.kind != "f":
            continue
        constants[f"{name}/factors"] = factors(y, rng)
        nodes.append(helper.make_node("Cast", [name], [f"{name}/wide"], to=TensorProto.DOUBLE))
        nodes.append(helper.make_node("Mul", [f"{name}/wide", f"{name}/factors"], [f"{name}/term"]))
        nodes.append(helper.make_node("ReduceSum", [f"{name}/term"], [f"{name}/sum"], keepdims=0))
        terms.append(f"{name}/sum")
    if terms:
        nodes.append(helper.make_node("Sum", terms, [loss]))
    return nodes, constants


def gradient_node(xs: Sequence[str], loss: str, name: str = "") -> onnx.NodeProto:
    """The gradients of a loss; that of x is named "x/gradient"."""
    return helper.make_node("Gradient", xs, [f"{x}/gradient" for x in xs], name, domain=TRAINING, xs=xs, y=loss)
