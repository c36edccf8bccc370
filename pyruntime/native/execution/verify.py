"""Runs a model on the GPU and on WebAssembly, and finds the first kernel whose results differ.
Twin of web/session/verify.js."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.runtime.ranges import first_beyond

_Found = tuple[int, float, float, float]  # as the last entries of Difference


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
    """non_finite: the first result on the GPU that is infinite or NaN where WebAssembly's is finite"""

    ok: bool
    tolerance: float
    compared: int
    first: Difference | None
    non_finite: Difference | None = None


@dataclass(frozen=True, slots=True)
class Overflow:
    """output: the name of the value; magnitude: the largest in float32"""

    node: str
    output: str
    magnitude: float


@dataclass(frozen=True, slots=True)
class RangeVerdict:
    """checked: the number of half-float values; first: the first node whose values half floats cannot hold"""

    ok: bool
    checked: int
    first: Overflow | None


def check_ranges(executor: Any, entries: Sequence[Any], feeds: Mapping[str, Any]) -> RangeVerdict:
    """executor, entries: see pyruntime/compiler/half_ranges.py"""
    names = [o["name"] for o in executor.header["outputs"]]
    results = executor.run(feeds)
    measured = [float(np.asarray(results[name])) for name in names]
    n = first_beyond(entries, measured)
    if n < 0:
        return RangeVerdict(True, len(entries), None)
    magnitude = math.inf if measured[2 * n + 1] > 0 else measured[2 * n]
    return RangeVerdict(False, len(entries), Overflow(entries[n]["node"], entries[n]["output"], magnitude))


def compare(gpu: Any, cpu: Any, feeds: Mapping[str, Any], tolerance: float) -> Verdict:
    """gpu, cpu: executors of the same kernels, whose outputs are the results of all kernels.

    Results are compared in the order of the kernels, so the first one that differs is at fault.
    """
    types = {o["name"]: o["value"]["dtype"] for o in gpu.header["outputs"]}
    actual, expected = gpu.run(feeds), cpu.run(feeds)

    def first(find: Callable[[Any, Any], _Found | None]) -> Difference | None:
        for name, dtype in types.items():
            found = find(_numbers(actual[name], dtype), _numbers(expected[name], dtype))
            if found is not None:
                node = name.partition(" ")[2]  # after the numbers of the kernel and of its result
                return Difference(node, _kernels(gpu.header, node), *found)
        return None

    difference = first(lambda a, b: _difference(a, b, tolerance))
    return Verdict(difference is None, tolerance, len(types), difference, difference and first(_non_finite))


def _numbers(x: Any, dtype: str) -> np.ndarray:
    """A result as a vector. bfloat16, which NumPy lacks, in float32: its tolerance is that of a float"""
    flat = np.asarray(x).ravel()
    return (flat.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else flat


def _non_finite(left: np.ndarray, right: np.ndarray) -> _Found | None:
    if left.size != right.size or right.dtype.kind != "f":
        return None
    at = np.flatnonzero(~np.isfinite(left) & np.isfinite(right))
    return (int(at[0]), float(right[at[0]]), float(left[at[0]]), math.inf) if at.size else None


def _difference(left: np.ndarray, right: np.ndarray, tolerance: float) -> _Found | None:
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
