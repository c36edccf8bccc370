"""Writes the steps that the executor runs itself: reads of symbols from data, calls of Python, branches and loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyruntime.codegen.provider import LINEAR
from pyruntime.emit.buffers import Buffers
from pyruntime.emit.lifetimes import Step
from pyruntime.ir.kernel import Block, Host, If, Loop, Read

Control = Read | Host | If | Loop


class ControlSteps:
    """inner: writes a block and returns its number; repeat: entries of a loop's step for a body of this number;
    host_kernels: the kernels to which Host steps refer by number."""

    def __init__(
        self, buffers: Buffers, inner: Callable[[Block], int], repeat: Callable[[Loop, int], dict[str, Any]]
    ) -> None:  # fmt: skip
        self.buffers = buffers
        self.symbols = buffers.symbols
        self.inner = inner
        self.repeat = repeat
        self.host_kernels: list[Host] = []

    def step(self, kernel: Control) -> Step:
        json: dict[str, Any] = {"op": type(kernel).__name__.lower(), "node": kernel.node}
        match kernel:
            case Read():
                json |= self._read(kernel)
            case Host():
                json |= self._host(kernel)
            case If():
                json |= self._branch(kernel)
            case Loop():
                json |= self._loop(kernel)
        residency = self.buffers.residency
        inputs = [residency.at(t, where) for t in kernel.inputs for where in (LINEAR, *residency.device_memories)]
        return Step(json, [*inputs, *kernel.outputs], kernel.outputs)

    def _read(self, kernel: Read) -> dict[str, Any]:
        source = self.buffers.tensor_in_linear_memory(kernel.source)
        return {"value": source, "symbols": [self.symbols.name(s) for s in kernel.symbols]}

    def _host(self, kernel: Host) -> dict[str, Any]:
        tensor = self.buffers.tensor_in_linear_memory
        self.host_kernels.append(kernel)
        return {
            "fn": kernel.fn,
            "id": len(self.host_kernels) - 1,
            "inputs": [None if a is None else tensor(a) for a in kernel.args],
            "outputs": [tensor(t) for t in kernel.outputs],
            "binds": self.symbols.binds(kernel.binds),
        }

    def _branch(self, kernel: If) -> dict[str, Any]:
        return {
            "condition": self.buffers.tensor_in_linear_memory(kernel.condition),
            "then": self.inner(kernel.then),
            "orelse": self.inner(kernel.orelse),
            "outputs": [self.buffers.number(t) for t in kernel.outputs],
            "binds": self.symbols.binds(kernel.binds),
        }

    def _loop(self, kernel: Loop) -> dict[str, Any]:
        tensor = self.buffers.tensor_in_linear_memory
        body = self.inner(kernel.body)
        return {
            "trip": None if kernel.trip is None else tensor(kernel.trip),
            "condition": None if kernel.condition is None else tensor(kernel.condition),
            "carried": [tensor(t) for t in kernel.carried],
            "body": body,
            "outputs": [tensor(t) for t in kernel.outputs],
            "enters": self.symbols.binds(kernel.enters),
            "binds": self.symbols.binds(kernel.binds),
            **self.repeat(kernel, body),
        }
