"""Any kernel by the reference evaluator: how what is not in linear memory (strings) is moved, compared, cast."""

from __future__ import annotations

from typing import Any

from pyruntime.host.table import host_function
from pyruntime.ir import reference
from pyruntime.ir.reference import Array


@host_function("reference")
def run(args: list[Array | None], attrs: dict[str, Any]) -> list[Array]:
    """attrs: "kernel" (a Map, Reduce, Alias, Loops or Call), and what the executor adds: "shapes" of the outputs as
    ints and "symbols", the values of the symbols."""
    kernel = attrs["kernel"]
    arrays = {x.uid: a for x, a in zip(kernel.inputs, args, strict=True) if a is not None}
    return reference.evaluate(kernel, arrays, attrs["shapes"], attrs["symbols"])
