"""One-node models for the tables of the operator tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from kit.interpret import run
from tests.ops import compare

rng = np.random.default_rng(7)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.normal(size=shape).astype(dtype)


def f32(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def ints(*values: int, dtype: Any = np.int64) -> np.ndarray:
    return np.array(values, dtype)


def only(**attrs: Any) -> dict[str, Any]:
    """Return the attributes that are not None."""
    return {k: v for k, v in attrs.items() if v is not None}


def node_model(
    op: str, args: list[Any], opset: int, outputs: int = 1, domain: str = "", constants: tuple[int, ...] = (),
    **attrs: Any,
) -> tuple[onnx.ModelProto, dict[str, Any]]:  # fmt: skip
    """Return the model and its feeds. None is an absent input; `constants` lists the inputs that are initializers."""
    names = ["" if a is None else f"x{n}" for n, a in enumerate(args)]
    out = [f"y{n}" for n in range(outputs)]
    values = {name: np.asarray(a) for name, a in zip(names, args, strict=True) if name}
    fixed = {f"x{n}" for n in constants}
    feeds = {k: v for k, v in values.items() if k not in fixed}
    weights = [onnx.numpy_helper.from_array(values[k], k) for k in sorted(fixed)]
    made = helper.make_node(op, names, out, domain=domain, **attrs)
    domains = {domain: 1} if domain else {}
    return compare.model([made], feeds, out, opset, initializer=weights, domains=domains), feeds


def check_node(op: str, args: list[Any], opset: int, peer: Any = compare.by_onnxruntime, tolerance: float = 1e-5,
               symbolic: tuple[bool, ...] = (False, True), **rest: Any) -> None:  # fmt: skip
    m, feeds = node_model(op, args, opset, **rest)
    compare.check(m, feeds, peer, tolerance, symbolic)


def run_node(op: str, args: list[Any], opset: int, symbolic: bool = False, **rest: Any) -> list[Any]:
    m, feeds = node_model(op, args, opset, **rest)
    return run(m.SerializeToString(), feeds, symbolic)
