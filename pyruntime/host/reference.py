"""The slow evaluator as a host function. It moves, compares and casts strings, which linear memory cannot hold."""

from __future__ import annotations

from typing import Any

from pyruntime.host.table import host_function
from pyruntime.ir import reference
from pyruntime.ir.reference import Array


@host_function("reference")
def run(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """attrs: "kernel" (a Map, Reduce, Alias, Loops or Call); the executor adds "shapes" (of the outputs, as ints) and
    "symbols" (their values)."""
    kernel = attrs["kernel"]
    arrays = {x.uid: a for x, a in zip(kernel.inputs, args, strict=True) if a is not None}
    return reference.evaluate(kernel, arrays, attrs["shapes"], attrs["symbols"])
