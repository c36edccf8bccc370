"""Advice on a run: what is measured, and what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, InvalidInput
from pyruntime.native.tools import advising
from pyruntime.session.advice import Machine, NodeUse, advice

MACHINE = Machine(operations=100e9, bandwidth=10e9)
MS = 1e-3


def use(seconds: float, operations: float = 0, size: float = 0, **more: Any) -> NodeUse:
    given = {"node": 'MatMul "m"', "place": "wasm", "calls": 1, "is_scalar": False} | more
    return NodeUse(seconds=seconds, operations=operations, bytes=int(size), **given)


def row(**more: Any) -> dict[str, Any]:
    return {"node": 'Abs "a"', "place": "wasm", "why": "", "crossing": 0} | more


@pytest.mark.parametrize(
    ("uses", "rows", "run", "said"),
    [
        ([use(10 * MS, 0.9e9)], [], 10 * MS, ["the run reaches 90 %"]),
        ([use(1 * MS, 1e9)], [], 1 * MS, ["it is faster than these limits"]),
        ([use(10 * MS, 0.2e9)], [], 10 * MS, ["reaches 20 %", '"m" is far', "20 % of the limit. Its tiles"]),
        ([use(10 * MS, 0, 10e6)], [], 10 * MS, ["reaches 10 %", "It moves data more often than once"]),
        ([use(10 * MS, 0, 1e6, is_scalar=True)], [], 10 * MS, ["reaches 1 %", "loops of scalars"]),
        ([use(10 * MS, 0, 1e6, calls=99)], [], 10 * MS, ["reaches 1 %", "It consists of 99 calls"]),
        ([use(10 * MS, 0, 80e6)], [], 10 * MS, ["reaches 80 %", "80 MB near the memory's limit", "4 bits"]),
        ([use(0.1 * MS, 9e6)], [], 0.5 * MS, ["reaches 90 %", "0.40 ms of 0.50 ms are not in kernels", "Batcher"]),
        ([use(10 * MS, place="webgpu")], [], 10 * MS, ["Limits of this machine", "takes longest on the GPU: 10.00 ms"]),
        (
            [use(10 * MS, 0.9e9)], [row(why="float64", crossing=3e6), row(node="b", why="float64", crossing=None)],
            10 * MS,
            ["reaches 90 %", '2 nodes are not on the session\'s first provider, Abs "a" first: float64', "3.00 MB"],
        ),
        ([use(10 * MS, 0.9e9)], [row(place="host")], 10 * MS, ["reaches 90 %", '1 nodes run in Python, Abs "a"']),
    ],
)  # fmt: skip
def test_sentences(uses: list[NodeUse], rows: list[Any], run: float, said: list[str]) -> None:
    found = advice(uses, MACHINE, {"nodes": rows}, run)
    text = "\n".join(found)
    assert all(part in text for part in said), text
    assert len(found) <= len(said)


def test_operations_and_bytes_of_a_run_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large product in a loop counts once a round; a look-up reads rows and not its whole table."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g
      (float[N, 256] x, int64[K] i) => (float[N, 256] y, float[K, 64] r)
      <float[256, 256] w, float[1000, 64] t, int64 three = {3}, bool yes = {1}> {
        r = Gather (t, i)
        y = Loop (three, yes, x) <body = b (int64 n, bool go, float[N, 256] h) => (bool on, float[N, 256] next)
          { on = Identity (go)  next = MatMul (h, w) }> }"""
    model = onnx.parser.parse_model(text)
    weights = {"w": np.ones((256, 256), np.float32), "t": np.ones((1000, 64), np.float32)}
    for old in [t for t in model.graph.initializer if t.name in weights]:
        model.graph.initializer.remove(old)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in weights.items())
    taken: list[NodeUse] = []
    monkeypatch.setattr(advising, "machine", lambda: MACHINE)
    monkeypatch.setattr(advising, "advice", lambda uses, *_: taken.extend(uses) or ["text"])
    session = InferenceSession(model.SerializeToString())
    feeds = {"x": np.ones((8, 256), np.float32), "i": np.zeros(5, np.int64)}
    assert session.advise(feeds) == ["text"]
    by_operator = {use.node.rpartition("> ")[2].split()[0]: use for use in taken}
    assert by_operator["MatMul"].operations == 3 * 2 * 8 * 256 * 256 and by_operator["MatMul"].calls == 3
    assert by_operator["Gather"].bytes == 2 * 5 * 64 * 4


def test_the_machine_is_measured() -> None:
    found = advising.machine()
    assert 1e9 < found.operations < 1e13 and 0.2e9 < found.bandwidth < 1e13


def test_an_exported_program_has_no_model_to_advise_on() -> None:
    session = InferenceSession("demo/digits/digits.onnx")
    with pytest.raises(InvalidInput, match="no model to advise on"):
        InferenceSession(session.export(weights=True)).advise({})
