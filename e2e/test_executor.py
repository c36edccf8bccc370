"""web/run/executor.js alone, on Programs written by hand: no Python in the page, no compiler in the way."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from e2e.conftest import Tab
from pyruntime.emit.explain_table import table
from pyruntime.native.sessions.validation import validate_header
from pyruntime.providers.wasm.printer.assembler import Function, Module

F32 = "float32"


def binary(module: Module, name: str, instruction: str) -> Function:
    """kernel(args, begin, end, tid): words 0-2 are the addresses of a, b and out; out[i] = a[i] op b[i]."""
    f = module.function(name, ["i32", "i32", "i32", "i32"])
    args, begin, end, _ = f.params
    at = f.local("i32")
    with f.until(begin, end):
        f.emit(begin).i32(4).emit("i32.mul").set(at)
        f.emit(args).mem("i32.load", 8).emit(at, "i32.add")
        for offset in (0, 4):
            f.emit(args).mem("i32.load", offset).emit(at, "i32.add").mem("f32.load")
        f.emit(instruction).mem("f32.store")
    return f


def yes(module: Module) -> Function:
    """kernel(args, …): the byte at word 2 becomes 1."""
    f = module.function("yes", ["i32", "i32", "i32", "i32"])
    f.emit(f.params[0]).mem("i32.load", 8).i32(1).mem("i32.store8")
    return f


def entry(module: Module, name: str, kernels: list[Function]) -> None:
    """run(table, tid, threads) on one thread: blocks of three addresses and the work follow one another."""
    f = module.function(name, ["i32", "i32", "i32"], export=True)
    table = f.params[0]
    for kernel in kernels:
        f.emit(table).i32(0).emit(table).mem("i32.load", 12).i32(0).call(kernel)
        f.add(table, 16)


def tensor(buffer: int, *dims: object, dtype: str = F32) -> dict[str, Any]:
    return {"buffer": buffer, "dtype": dtype, "dims": list(dims)}


def call(kernel: str, buffers: list[int], work: object, **more: object) -> dict[str, Any]:
    rest = {"alloc": [], "free": [], "inplace": []}
    return {"node": f'{kernel} "n"', "kernel": kernel, "buffers": buffers, "params": [], "work": work, **rest, **more}


def block(steps: Sequence[Any] = (), inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()) -> dict[str, Any]:
    return {"inputs": list(inputs), "unused": [], "steps": list(steps), "outputs": list(outputs)}


def header(**fields: object) -> dict[str, Any]:
    return {"name": "hand", "constants": [], "guards": [], "checked": [], "symbols": {}, **fields}


def run(tab: Callable[..., Tab], kind: str, program: dict[str, Any], module: Module, runs: list, **more: object) -> Any:
    made = tab(kind)
    made.open("/executor.html")
    blob = module.to_bytes()
    program["modules"] = {"wasm": [0, len(blob)]}
    program["explain"] = table(program, [], {}, {}, {"wasm": "wasm"})
    validate_header(program, len(blob))
    argument = {"header": program, "blob": list(blob), "file": [], "runs": runs, **more}
    return made.run("return runProgram(arg)", argument)


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_segment(tab: Callable[..., Tab], kind: str) -> None:
    """y = (x + c) * x over any length, c a constant of the file; the second run of a shape plans nothing."""
    module = Module(shared=kind == "isolated")
    kernels = [binary(module, "add", "f32.add"), binary(module, "mul", "f32.mul")]
    entry(module, "run_1_0", kernels)
    size = ["*", 4, "N"]
    calls = [
        call("add", [0, 1, 2], "N", alloc=[2]),
        call("mul", [2, 0, 3], "N", alloc=[3], free=[0, 2], inplace=[[3, 2]]),
    ]
    program = header(
        inputs=[{"name": "x", **tensor(0, "N")}],
        outputs=[{"name": "y", "value": tensor(3, "N")}],
        buffers=[{"size": size}, {"size": 16}, {"size": size}, {"size": size}],
        constants=[{"buffer": 1, "dtype": F32, "source": "", "offset": 4, "size": 16, "unpack": 0, "signed": False}],
        guards=[[["le", "N", 4], "at most four", ""]],
        blocks=[
            block(),
            block([{"op": "wasm", "fn": "run_1_0", "calls": calls}]),
        ],
    )
    runs = [{"x": [[n], list(range(n))]} for n in (4, 2, 4, 0, 4, 5)]
    file = list(struct.pack("<5f", 0, 10, 20, 30, 40))
    found = run(tab, kind, program, module, runs, file=file)
    assert found["results"][0] == {"y": [[4], [0, 21, 64, 129]]}
    assert found["results"][1] == {"y": [[2], [0, 21]]}
    assert found["results"][2] == found["results"][4] == found["results"][0]
    assert found["results"][3] == {"y": [[0], []]}
    assert found["results"][5] == {"type": "ShapeError", "message": "at most four", "node": "", "hint": "N = 5"}
    assert found["planned"] == 6  # two for each of three shapes
    memory = found["memory"]
    assert memory["requested"] > memory["peak"] and memory["reuse"] == memory["requested"] / memory["peak"]
    assert 0 <= memory["fragmentation"] <= 0.1
    assert found["explained"]["placement"] == {"wasm": 2}


def test_loop(tab: Callable[..., Tab]) -> None:
    """s = s + x, n times, the sums stacked; any number of iterations goes round in the same memory."""
    module = Module(shared=True)
    add = binary(module, "add", "f32.add")
    entry(module, "run_2_0", [add, add, yes(module)])
    calls = [
        call("add", [6, 1, 8], 2, alloc=[8]),
        call("add", [6, 1, 9], 2, alloc=[9], free=[6]),
        call("yes", [1, 1, 7], 1, alloc=[7]),
    ]
    loop = {
        "op": "loop",
        "node": 'Loop "l"',
        "trip": tensor(0, dtype="int64"),
        "condition": None,
        "carried": [tensor(1, 2)],
        "body": 2,
        "outputs": [tensor(2, 2), tensor(3, "k", 2)],
        "enters": [],
        "binds": [[1, 0, "k"]],
        "free": [0, 1],
    }
    program = header(
        inputs=[{"name": "n", **tensor(0, dtype="int64")}, {"name": "x", **tensor(1, 2)}],
        outputs=[{"name": "s", "value": tensor(2, 2)}, {"name": "all", "value": tensor(3, "k", 2)}],
        buffers=[{"size": size} for size in (8, 8, 8, ["*", 8, "k"], 8, 1, 8, 1, 8, 8)],
        blocks=[
            block(),
            block([loop]),
            block(
                [{"op": "wasm", "fn": "run_2_0", "calls": calls}],
                [tensor(4, dtype="int64"), tensor(5, dtype="bool"), tensor(6, 2)],
                [tensor(7, dtype="bool"), tensor(8, 2), tensor(9, 2)],
            ),
        ],
    )
    runs = [{"n": [[], [n]], "x": [[2], [1, 2]]} for n in (0, 3, 200)]
    found = run(tab, "isolated", program, module, runs, types={"n": "int64"})
    assert found["results"][0] == {"s": [[2], [1, 2]], "all": [[0, 2], []]}
    assert found["results"][1] == {"s": [[2], [4, 8]], "all": [[3, 2], [2, 4, 3, 6, 4, 8]]}
    assert found["results"][2]["s"] == [[2], [201, 402]]
    assert found["planned"] < 30


def test_if_and_read(tab: Callable[..., Tab]) -> None:
    """y = x + x if c else x * x; then its first k elements, k read at run time."""
    module = Module(shared=True)
    add, multiply = binary(module, "add", "f32.add"), binary(module, "mul", "f32.mul")
    entry(module, "run_2_0", [add])
    entry(module, "run_3_0", [multiply])
    entry(module, "run_1_2", [add])
    branch = {"op": "if", "node": 'If "i"', "condition": tensor(1, dtype="bool"), "then": 2, "orelse": 3}
    branch |= {"outputs": [4], "binds": [], "free": [1]}
    read = {"op": "read", "node": 'TopK "t"', "value": tensor(2, dtype="int64"), "symbols": ["k"], "free": [2]}
    last = {"op": "wasm", "fn": "run_1_2", "calls": [call("add", [4, 0, 3], "k", alloc=[3], free=[4, 0])]}
    program = header(
        inputs=[
            {"name": "x", **tensor(0, 3)},
            {"name": "c", **tensor(1, dtype="bool")},
            {"name": "k", **tensor(2, dtype="int64")},
        ],
        outputs=[{"name": "y", "value": tensor(3, "k")}],
        buffers=[{"size": size} for size in (12, 1, 8, ["*", 4, "k"], 12, 12, 12)],
        guards=[[["lt", "k", 4], "k is too large", 'TopK "t"']],
        blocks=[
            block(),
            block([branch, read, last]),
            block(
                [{"op": "wasm", "fn": "run_2_0", "calls": [call("add", [0, 0, 5], 3, alloc=[5])]}],
                outputs=[tensor(5, 3)],
            ),
            block(
                [{"op": "wasm", "fn": "run_3_0", "calls": [call("mul", [0, 0, 6], 3, alloc=[6])]}],
                outputs=[tensor(6, 3)],
            ),
        ],
    )
    runs = [{"x": [[3], [3, 4, 5]], "c": [[], [c]], "k": [[], [k]]} for c, k in ((1, 3), (0, 2), (1, 9), (1, 1))]
    found = run(tab, "isolated", program, module, runs, types={"c": "bool", "k": "int64"})
    assert found["results"][0] == {"y": [[3], [9, 12, 15]]}
    assert found["results"][1] == {"y": [[2], [12, 20]]}
    assert found["results"][2]["node"] == 'TopK "t"' and "k is too large" in found["results"][2]["message"]
    assert found["results"][3] == {"y": [[1], [9]]}


@pytest.mark.parametrize("broken", ["wasm", "webgpu"])
def test_what_loads_in_part_gives_its_memory_back(tab: Callable[..., Tab], broken: str) -> None:
    made = tab("plain")
    made.open("/executor.html")
    module = Module(shared=False)
    entry(module, "run_1_0", [yes(module)])
    blob = module.to_bytes()
    if broken == "wasm":
        blob = blob[:8] + bytes([99])
    assert made.run("return loadBroken(arg)", {"blob": list(blob), "gpu": broken == "webgpu"}) == [True, 1]
