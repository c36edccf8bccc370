"""Limits of a session: compile time, code size and memory; `trim`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, LimitExceeded, OutOfMemory, SessionOptions

MIB = 1 << 20
SQUARES = "g (float[n, n] x) => (float[n, n] y) { a = MatMul (x, x)  b = Sin (a)  y = MatMul (b, x) }"
ROWS = "g (float[n, n] x) => (float[n, n] y) { a = Softmax (x)  b = CumSum (a, axis)  y = Softmax <axis = 0> (b) }"


def parsed(text: str) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "axis"))
    return model.SerializeToString()


def by_rank() -> bytes:
    """A model that is compiled for each rank of its input."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)]).SerializeToString()


class Clock:
    """Advances by one second with each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_the_error_of_the_time_limit_names_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyruntime.frontend.budget.time.monotonic", Clock())
    told: list[str] = []
    for n in range(100):
        try:
            InferenceSession(parsed(SQUARES), SessionOptions(compile_time_limit=n + 0.5))
            break
        except LimitExceeded as e:
            assert e.hint.startswith("raise the compile time limit")
            told.append(f"{e.node} {e.message}".replace(f"{n + 0.5} s", "N s"))
    assert told[0] == 'MatMul "a" (opset 20) compiling takes longer than N s: it was tracing the node'
    assert ' compiling takes longer than N s: it was at the pass "map_fusion"' in told
    assert re.fullmatch(r"MatMul .* compiling takes longer than N s: it was writing its code", told[-1])


def test_the_error_of_the_code_limit_names_the_node() -> None:
    with pytest.raises(LimitExceeded, match=r"MatMul .* compiling gives over 100 bytes of code") as caught:
        InferenceSession(parsed(SQUARES), SessionOptions(code_size_limit=100))
    assert caught.value.node and "raise the code size limit" in caught.value.hint


def test_the_defaults_are_generous() -> None:
    """Compilation with the largest limits is the same."""
    options = SessionOptions()
    assert options.compile_time_limit >= 300 and options.code_size_limit >= 64 * MIB
    InferenceSession(parsed(SQUARES), options)


def resident() -> int:
    """Resident bytes of this process."""
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_trim_frees_memory(threads: int) -> None:
    session = InferenceSession(parsed(ROWS), SessionOptions(intra_op_num_threads=threads))
    small = np.full((8, 8), 1 / 8, np.float32)
    first = session.run(None, {"x": small})[0]
    before = session.memory().arena
    session.run(None, {"x": np.zeros((3000, 3000), np.float32)})
    grown, taken = session.memory().arena, resident()
    assert grown > 50 * MIB
    session.trim()
    assert session.memory().arena <= before
    assert resident() < taken - 40 * MIB
    np.testing.assert_array_equal(session.run(None, {"x": small})[0], first)
    session.trim()  # nothing to do


def test_trim_of_an_exported_program() -> None:
    session = InferenceSession(InferenceSession(parsed(ROWS)).export(weights=True))
    session.run(None, {"x": np.zeros((1500, 1500), np.float32)})
    grown = session.memory().arena
    session.trim()
    assert session.memory().arena < grown
    assert session.run(None, {"x": np.eye(3, dtype=np.float32)})[0].shape == (3, 3)


def test_a_full_memory_first_frees_programs_for_other_feeds() -> None:
    """With the Programs for other ranks, the session would exceed its limit."""
    session = InferenceSession(by_rank(), SessionOptions(memory_limit=30 * MIB))
    for rank in (1, 2, 3, 2, 1):
        x = np.zeros((2 * MIB, *[1] * (rank - 1)), np.float32)  # 8 MiB, as the output
        assert session.run(None, {"x": x})[0].shape == x.shape
        assert sum(len(e.host.memory) for e in session._native.executors.values()) <= 30 * MIB
    with pytest.raises(OutOfMemory, match=rf"memory_limit is {30 * MIB} \(raise memory_limit"):
        session.run(None, {"x": np.zeros(8 * MIB, np.float32)})
    assert session.run(None, {"x": np.zeros(4, np.float32)})[0].shape == (4,)
