"""Runs host steps: converts arrays to (shape, list), calls a function of `pyruntime.host`, and converts its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyruntime.host.text  # noqa: F401  for Programs from files, which import no operators
from pyruntime.codegen.array_provider import Job
from pyruntime.errors import InvalidModel, our_fault
from pyruntime.frontend.trace_graph import TensorSpec
from pyruntime.host import FUNCTIONS, call, values_of_symbols
from pyruntime.ir.dtype import BY_NAME
from pyruntime.ir.kernel import Host
from pyruntime.ir.symbol import Symbol
from pyruntime.native.memory.arrays import from_python, to_python
from pyruntime.placement.own_memory import OwnMemory, described, part_of_step


class HostCalls:
    """Host steps of a compiled Program. They name their kernels by number; symbols: by the Program's names."""

    def __init__(self, kernels: Sequence[Host], symbols: Mapping[str, Symbol]) -> None:
        self.kernels = kernels
        self.symbols = symbols

    @property
    def providers(self) -> list[Any]:
        """The providers on arrays that have parts in the Program."""
        parts = [part for k in self.kernels if (part := part_of_step(k))]
        return list({p.provider.name: p.provider for p in parts}.values())

    @property
    def memories(self) -> Mapping[str, Mapping[str, int]]:
        return described(self.kernels)

    def bind(
        self, number: int, inputs: list[Any], outputs: list[Any], env: Mapping[str, int], own_memory: OwnMemory
    ) -> Job:
        """The job of a step on arrays. Errors: ExecutionError if the provider fails"""
        part: Any = part_of_step(self.kernels[number])
        return own_memory.bind(part, inputs, outputs, values_of_symbols(self.symbols, env))

    def __call__(self, number: int, fn: str, arrays: list[Any], env: dict[str, int]) -> list[Any]:
        kernel = self.kernels[number]
        args = [None if a is None else to_python(a, t) for a, t in zip(arrays, kernel.args, strict=True)]
        results = call(kernel, args, self.symbols, env)
        return [from_python(r, t.dtype) for r, t in zip(results, kernel.outputs, strict=True)]


class StoredCalls:
    """Host steps of a Program from a file."""

    providers: Sequence[Any] = ()
    memories: Mapping[str, Mapping[str, int]] = {}

    def __init__(self, steps: Sequence[Mapping[str, Any]]) -> None:
        self.steps = steps

    def __call__(self, number: int, fn: str, arrays: list[Any], env: dict[str, int]) -> list[Any]:
        step = self.steps[number]
        types = [None if d is None else TensorSpec(BY_NAME[d], ()) for d in step["inputs"]]
        args = [None if a is None else to_python(a, t) for a, t in zip(arrays, types, strict=True)]
        if fn not in FUNCTIONS:
            raise InvalidModel(f'the program asks for the host function "{fn}", which is not known')
        with our_fault("running it", fn):
            results = FUNCTIONS[fn](args, step["attrs"])
            return [from_python(r, BY_NAME[d]) for r, d in zip(results, step["outputs"], strict=True)]
