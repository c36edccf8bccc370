"""tests/vectors: results that Python and JavaScript must both compute. Of pyruntime/runtime, they test the
translation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kit.docs import ROOT
from pyruntime.errors import ExecutionError, PyRuntimeError, ShapeError, UnsupportedOp
from pyruntime.native.memory.arrays import unpack
from pyruntime.program.dims import compile_dim, compile_dims, symbols
from pyruntime.providers.webgpu.wgpu_device import narrow, widen
from pyruntime.runtime import trial
from pyruntime.runtime.arena import Arena
from pyruntime.runtime.explain import explain
from pyruntime.runtime.growth import byte_ranges, next_capacity
from pyruntime.runtime.guards import Guards
from pyruntime.runtime.order_trial import OrderTrial
from pyruntime.runtime.recovery import Move
from pyruntime.runtime.stacking import stacked_dims
from pyruntime.runtime.step_layout import LiveRange, lay_out

FOLDER = Path(__file__).parent / "vectors"
Case = dict[str, Any]


def dims(case: Case) -> None:
    assert compile_dim(case["dim"])(case["symbols"]) == case["value"]
    assert compile_dims([case["dim"], 1])(case["symbols"]) == (case["value"], 1)
    assert symbols(case["dim"]) == case["symbols"].keys()


def guards(case: Case) -> None:
    found = Guards({"guards": case["guards"], "dims": case.get("dims", []), "symbols": case.get("shown", {})})
    kind = UnsupportedOp if case.get("unsupported") else ShapeError
    assert refusal(kind, lambda: found.bound(case["symbols"], set(case["fresh"]))) == case["refused"]


def refusal(kind: type[PyRuntimeError], work: Callable[[], object]) -> str | None:
    try:
        work()
    except kind as error:
        return str(error)
    return None


def constants(case: Case) -> None:
    packed = np.array(case["packed"], np.uint8)
    got = unpack(packed, case["bits"], case["signed"], len(case["elements"]))
    assert got.view(np.uint8).tolist() == case["elements"]


def int64(case: Case) -> None:
    x = np.array([int(v) for v in case["elements"]], case["dtype"])
    if "refused" in case:
        assert refusal(ExecutionError, lambda: narrow(x)) == case["refused"]
        return
    stored = narrow(x)
    assert stored.view(np.uint32).tolist() == case["stored"]
    assert widen(memoryview(stored), x.dtype, x.size).tolist() == x.tolist()


def layout(case: Case) -> None:
    arena = Arena(0)
    ranges = [LiveRange(*given) for given in case["ranges"]]
    arena.free, arena.end, arena.top = [(a, n) for a, n in case["free"]], case["end"], case["end"]
    lay_out(arena, ranges, case["calls"])
    assert [r.address for r in ranges] == case["addresses"]
    assert arena.top == case["reach"]


def sizes(case: Case) -> None:
    assert Arena(0).round(case["size"]) == case["rounded"]


def explained(case: Case) -> None:
    moved = [Move(**move) for move in case.get("moved", [])]
    assert explain({"explain": case["table"]}, case["symbols"], moved) == case["told"]


def stack(case: Case) -> None:
    given = [tuple(shape) for shape in case["shapes"]], case["rank"], 'Loop "l" (opset 20)'
    if "refused" in case:
        assert refusal(ExecutionError, lambda: stacked_dims(*given)) == case["refused"]
    else:
        assert stacked_dims(*given) == case["stacked"]


def numbers(text: str) -> list[int]:
    """The digits of a text; "1*9" stands for nine of them."""
    words = [word.partition("*") for word in text.split()]
    return [int(digit) for digits, _, count in words for digit in digits * int(count or 1)]


def growth(case: Case) -> None:
    given = case["shape"], case["axis"], case["capacity"], case["item"]
    if "refused" in case:
        assert refusal(ShapeError, lambda: byte_ranges(*given)) == case["refused"]
        return
    found = byte_ranges(*given)
    assert [found.count, found.length, found.stride, found.row] == case["ranges"]
    assert next_capacity(case["least"], found) == case["next"]


def fastest(case: Case) -> None:
    assert trial.fastest(case["costs"], case["gain"]) == case["winner"]


def trials(case: Case) -> None:
    found = trial.Trial(case["candidates"], case["rounds"], case["gain"], case["retry_after"])
    for phase in case["phases"]:
        for expected in numbers(phase["runs"]):
            assert found.current == expected
            found.took(phase["times"][found.current])
        assert found.best == phase["best"]


def order_trials(case: Case) -> None:
    found = OrderTrial()
    for phase in case["phases"]:
        for n, expected in enumerate(numbers(phase["orders"])):
            assert found.order == expected
            read = phase["reads"][n % len(phase["reads"])]
            found.took(read, phase["times"][found.order], phase.get("shared", False))
        assert found.best == phase["best"]


CHECKS = {
    "dims": dims, "guards": guards, "unpack": constants, "int64": int64, "layout": layout, "sizes": sizes,
    "explain": explained, "stack": stack, "growth": growth, "fastest": fastest, "trial": trials,
    "order_trial": order_trials,
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_in_python(name: str) -> None:
    for case in json.loads((FOLDER / f"{name}.json").read_text())["cases"]:
        try:
            CHECKS[name](case)
        except Exception as error:
            raise AssertionError(f"{case}: {error}") from error


def test_in_javascript() -> None:
    """By Node's own test runner, as `node --test tests/web` does."""
    command = ["node", "--no-warnings", "--experimental-default-type=module", "--test", "tests/web/vectors.test.mjs"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert f"# pass {len(CHECKS)}" in run.stdout


def test_every_file_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == CHECKS.keys()
