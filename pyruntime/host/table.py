"""Functions of `Host` kernels: Python code that a run calls, for strings, which linear memory cannot hold.

Each takes ([(shape, flat list) or None, …], attrs) and returns [(shape, flat list), …]. A string is a Python str."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.errors import ExecutionError, our_fault
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Host
from pyruntime.ir.reference import Array
from pyruntime.ir.symbol import Symbol

Function = Callable[[list[Array | None], dict[str, Any]], list[Array]]
FUNCTIONS: dict[str, Function] = {}
ARRAYS = "arrays"  # stands for parts of providers on arrays, which executors run themselves


def host_function(name: str) -> Callable[[Function], Function]:
    """Register a function under the name that `Tracer.host` uses."""

    def register(fn: Function) -> Function:
        FUNCTIONS[name] = fn
        return fn

    return register


def values_of_symbols(symbols: Mapping[str, Symbol], env: Mapping[str, int]) -> dict[Symbol, int]:
    """The values of those symbols that have one. symbols, env: by name; env also has dims that follow from them"""
    return {symbol: env[name] for name, symbol in symbols.items() if name in env}


def call(
    step: Host, args: list[Array | None], symbols: Mapping[str, Symbol], env: Mapping[str, int]
) -> list[Array]:  # fmt: skip
    """The results of a step. A function that runs a kernel (attrs["kernel"]) also gets in attrs the "shapes" of the
    outputs and the values of "symbols". symbols: by the Program's names; env: values of those that have one, and of
    dims that follow from them. Errors: ExecutionError for results of other shapes; InternalError for any other
    failure."""
    if "kernel" not in step.attrs:
        with our_fault("running it", step.node):
            return FUNCTIONS[step.fn](args, step.attrs)
    values = values_of_symbols(symbols, env)
    shapes = [tuple(sh.evaluate(d, values) for d in t.shape) for t in step.outputs]
    with our_fault("running it", step.node):
        results = FUNCTIONS[step.fn](args, {**step.attrs, "shapes": shapes, "symbols": values})
    if (actual := [tuple(shape) for shape, _ in results]) != shapes:
        raise ExecutionError(f'"{step.fn}" gave shapes {actual}, not {shapes}', node=step.node)
    return results
