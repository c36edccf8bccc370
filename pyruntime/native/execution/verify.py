"""Runs a model on the GPU and on WebAssembly, and finds the first kernel whose results differ.

web/session/verify.js is its twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Difference:
    """kernel: the node's kernels on the GPU; index: of the element that differs most; expected, actual: its values on
    WebAssembly and on the GPU; error: as a share of the tensor's largest value."""

    node: str
    kernel: str
    index: int
    expected: float
    actual: float
    error: float


@dataclass(frozen=True, slots=True)
class Verdict:
    ok: bool
    tolerance: float
    compared: int
    first: Difference | None


def compare(gpu: Any, cpu: Any, feeds: Mapping[str, Any], tolerance: float) -> Verdict:
    """gpu, cpu: executors of the same kernels, whose outputs are the results of all kernels.

    Results are compared in the order of the kernels, so the first one that differs is at fault.
    """
    names = [o["name"] for o in gpu.header["outputs"]]
    actual, expected = gpu.run(feeds), cpu.run(feeds)
    for name in names:
        found = _difference(name, actual[name], expected[name], tolerance)
        if found is not None:
            node = name.partition(" ")[2]  # after the numbers of the kernel and of its result
            return Verdict(False, tolerance, len(names), Difference(node, _kernels(gpu.header, node), *found))
    return Verdict(True, tolerance, len(names), None)


def _difference(name: str, actual: Any, expected: Any, tolerance: float) -> tuple[int, float, float, float] | None:
    left, right = np.asarray(actual).ravel(), np.asarray(expected).ravel()
    if left.size != right.size:
        return 0, float(right.size), float(left.size), float("inf")
    if not right.size:
        return None
    is_float = right.dtype.kind == "f"
    a, b = left.astype(np.float64), right.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max(initial=0.0)) or 1.0
    allowed = tolerance * scale if is_float else 1.0 if right.dtype.itemsize == 1 and right.dtype.kind != "b" else 0.0
    with np.errstate(invalid="ignore"):
        off = np.abs(a - b)
    off[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    off[np.isnan(off)] = np.inf
    worst = int(off.argmax())
    return None if off[worst] <= allowed else (worst, float(b[worst]), float(a[worst]), float(off[worst]) / scale)


def _kernels(header: Mapping[str, Any], node: str) -> str:
    steps = [s for block in header["blocks"] for s in block["steps"] if s["op"] == "gpu"]
    return ", ".join(dict.fromkeys(c["kernel"] for s in steps for c in s["calls"] if c["node"] == node))
