"""Dims, inputs and nodes of a model may have the engine's own internal names: names have no special meaning."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from kit.docs import ROOT
from pyruntime import InferenceSession, SessionOptions, ShapeError
from pyruntime.codegen.provider import EXTENT
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.symbol import AXIS, DIM, Symbol
from pyruntime.providers.webgpu.limits.integer_ranges import of_dim

# Symbols of every origin: dims of inputs, elements that are read, sizes that If, Loop and NonZero give.
TEXT = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[D] x, float[E, 3] y, int64 n) => (
        int64[1, h] found, float[i] neg, int64[j] count, float[k] twice, float[l] grown, float[m] rows, float[o, p] flat
    ) {
        zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()
        axis = Constant <value = int64[1] {1}> ()
        shape = Constant <value = int64[2] {3, -1}> ()
        yes = Constant <value = bool {1}> ()
        found = NonZero (x)
        neg = Neg (x)
        count = Range (zero, n, one)
        many = Greater (n, one)
        twice = If (many) <
            then_branch = a () => (float[q] t) { t = Concat <axis = 0> (x, x) },
            else_branch = b () => (float[r] e) { e = Identity (x) }
        >
        grown = Loop (n, yes, x) <body = c (int64 at, bool on, float[s] held) => (bool going, float[t] more) {
            going = Identity (on)
            more = Concat <axis = 0> (held, x)
        }>
        rows = ReduceSum <keepdims = 0> (y, axis)
        flat = Reshape (y, shape)
    }"""

LONG = "n" * 10_000
DIMS = [
    ("u0", "u1"), ("u1", "u2"), ("u2", "u3"), ("u5", "u4"), ("y.0", ""), ("", "x.0"), ("", ""), ("x.1", "y.1"),
    ("s0", "s1"), ("s1", "s0"), ("s3", "s2"), ("loop", "if"), ("dim", "axis"), ("value", "Symbol"), ("?", "*"),
    ("batch+1", "a*b"), ("2", "-1"), ('["+", "s0", 1]', "s['s0']"), ("__proto__", "constructor"), ('"\'\\\n', "名"),
    (LONG, LONG + "m"),
]  # fmt: skip
RUNS = [(4, 2, 3), (1, 5, 0), (2, 1, 1)]  # D, E and n


def model(x: str, y: str) -> onnx.ModelProto:
    """Build the model with these names for D and E; "" leaves a dim unnamed."""
    made = onnx.parser.parse_model(TEXT)
    for value, name in zip(made.graph.input, (x, y), strict=False):
        dim = value.type.tensor_type.shape.dim[0]
        dim.dim_param = name
        if not name:
            dim.Clear()
    return made


def feeds(d: int, e: int, n: int) -> dict[str, np.ndarray]:
    x = np.arange(d, dtype=np.float32) % 3 - 1
    return {"x": x, "y": np.arange(3 * e, dtype=np.float32).reshape(e, 3), "n": np.array(n, np.int64)}


@pytest.fixture(scope="module")
def expected() -> list[list[np.ndarray]]:
    peer = ReferenceEvaluator(model("D", "E"))
    return [peer.run(None, feeds(*sizes)) for sizes in RUNS]


@pytest.mark.parametrize("names", DIMS, ids=[f"{x[:9]} {y[:9]}" for x, y in DIMS])
def test_dims_of_any_name(names: tuple[str, str], expected: list[list[np.ndarray]]) -> None:
    session = InferenceSession(model(*names).SerializeToString())
    shown = [[None if name in ("", "?") else name] for name in names]  # exporters write ? for a dim without a name
    assert [i.shape[:1] for i in session.get_inputs()] == [*shown, []]
    for sizes, want in zip(RUNS, expected, strict=True):
        for ours, theirs in zip(session.run(None, feeds(*sizes)), want, strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)


# ── in JavaScript ────────────────────────────────────────────────────────────────────────────────────────────────────

SCRIPT = """
import { Executor } from './web/run/executor.js';
import { parse } from './web/worker/programs/program_file.js';
import { readFileSync } from 'node:fs';
const ARRAYS = { float32: Float32Array, int64: BigInt64Array };
const found = [];
for (const { program, runs } of JSON.parse(readFileSync(0, 'utf8'))) {
  const { header, blob } = parse(new Uint8Array(Buffer.from(program, 'base64')));
  const executor = await Executor.create({ header, blob, python: null }, () => null, null, { shared: false });
  const names = Object.fromEntries(header.outputs.map(({ name }) => [name, null]));
  found.push(runs.map((feeds) => {
    const wire = Object.entries(feeds).map(([name, [type, dims, data]]) => {
      return [name, { type, dims, data: ARRAYS[type].from(data, type === 'int64' ? BigInt : Number) }];
    });
    try {
      const outputs = Object.entries(executor.run(Object.fromEntries(wire), names));
      return outputs.map(([name, { dims, data }]) => [name, dims, Array.from(data, Number)]);
    } catch (error) {
      return [error.type, error.message, error.hint];
    }
  }));
}
console.log(JSON.stringify(found));
"""


def in_node(programs: list[tuple[InferenceSession, list[dict[str, np.ndarray]]]]) -> list[list[Any]]:
    """What web/'s executor gives for each run of each Program: outputs as (name, dims, numbers), or an error."""
    given = [
        {
            "program": base64.b64encode(session.export(weights=True)).decode(),
            "runs": [{k: [v.dtype.name, v.shape, v.ravel().tolist()] for k, v in run.items()} for run in runs],
        }
        for session, runs in programs
    ]
    command = ["node", "--no-warnings", "--input-type=module", "-e", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(given), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


def test_dims_of_any_name_in_javascript(expected: list[list[np.ndarray]]) -> None:
    runs = [feeds(*sizes) for sizes in RUNS]
    found = in_node([(InferenceSession(model(*names).SerializeToString()), runs) for names in DIMS])
    outputs = [o.name for o in model("D", "E").graph.output]
    want = [[[n, list(a.shape), a.ravel().tolist()] for n, a in zip(outputs, e, strict=True)] for e in expected]
    for names, got in zip(DIMS, found, strict=True):
        assert got == want, names


# ── what is said of dims ─────────────────────────────────────────────────────────────────────────────────────────────


def graph(nodes: list[Any], inputs: dict[str, Any], outputs: list[str]) -> bytes:
    """A model of float inputs; a shape in a list is that of a sequence's items."""
    values = [
        helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, shape[0])
        if isinstance(shape, list)
        else helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in inputs.items()
    ]
    made = helper.make_graph(nodes, "g", values, [onnx.ValueInfoProto(name=name) for name in outputs])
    return bytes(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    )


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


SUM = helper.make_node("Add", ["a", "b"], ["c"], name="sum")


@pytest.mark.parametrize("names", [("batch", "rows"), ("s1", "s0"), ("u2", "u1"), ("b.0", "a.0")])
def test_messages_tell_the_models_names(names: tuple[str, str]) -> None:
    session = InferenceSession(graph([SUM], {"a": (names[0],), "b": (names[1],)}, ["c"]))
    wrong = {"a": ones(3), "b": ones(4)}
    hint = ", ".join(sorted(f"{name} = {n}" for name, n in zip(names, (3, 4), strict=True)))
    with pytest.raises(ShapeError, match=f"dims {names[1]} and .*{names[0]}.* do not broadcast") as error:
        session.run(None, wrong)
    assert error.value.hint == hint
    kind, message, told = in_node([(session, [wrong])])[0][0]
    assert (kind, message, told) == ("ShapeError", f"{error.value}", hint)


def test_one_name_is_one_dim() -> None:
    """A Program rejects dims of one name that differ; a session may compile another Program."""
    session = InferenceSession(graph([SUM], {"a": ("s1",), "b": ("s1",)}, ["c"]))
    wrong = {"a": ones(3), "b": ones(1)}
    kind, message, _ = in_node([(session, [wrong])])[0][0]
    assert kind == "InvalidInput" and 'as "s1" is elsewhere' in message


def test_free_dimensions_are_the_models() -> None:
    """Only names in the model can be overridden, not the engine's internal names of unnamed axes."""
    made = graph([SUM], {"a": (None,), "b": ("a.0",)}, ["c"])
    session = InferenceSession(made, SessionOptions(free_dimension_overrides={"a.0": 1}))
    assert [i.shape for i in session.get_inputs()] == [[None], [1]]
    assert session.run(None, {"a": ones(3), "b": ones(1)})[0].shape == (3,)


@pytest.mark.parametrize("name", ["a.0", "u1", "axis"])
def test_a_dim_that_is_compiled_for_is_no_other(name: str) -> None:
    """The dim of b is an axis to sum over, so the session compiles for it; a's may change from run to run."""
    nodes = [
        helper.make_node("Shape", ["b"], ["axis"]),
        helper.make_node("ReduceSum", ["a", "axis"], ["c"], keepdims=0),
    ]
    session = InferenceSession(graph(nodes, {"a": (None, 2), "b": (name,)}, ["c"]))
    for rows, axis in ((3, 1), (5, 1), (3, 0), (4, 0)):
        want = ones(rows, 2).sum(axis)
        np.testing.assert_array_equal(session.run(None, {"a": ones(rows, 2), "b": ones(axis)})[0], want)
    assert len(session._native.executors) == 2


def test_items_of_a_sequence_are_no_inputs_of_that_name() -> None:
    nodes = [
        helper.make_node("ConcatFromSequence", ["x"], ["joined"], axis=0),
        helper.make_node("Neg", ["x[0]"], ["first"]),
        helper.make_node("Neg", ["x[1]"], ["second"]),
    ]
    inputs = {"x": [("x[0].0",)], "x[0]": (None,), "x[1]": ("x[1].0",)}
    session = InferenceSession(graph(nodes, inputs, ["joined", "first", "second"]))
    for sizes in ((1, 2, 3, 4), (4, 1, 2, 2)):
        items = [np.full(n, k, np.float32) for k, n in enumerate(sizes)]
        joined, first, second = session.run(None, {"x": items[:2], "x[0]": items[2], "x[1]": items[3]})
        np.testing.assert_array_equal(joined, np.concatenate(items[:2]))
        np.testing.assert_array_equal(first, -items[2])
        np.testing.assert_array_equal(second, -items[3])


# ── symbols ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_symbols_of_one_spelling_differ() -> None:
    fresh = Tracer(lambda w: []).symbol()
    axis, item = Symbol(AXIS, "x", (0,)), Symbol(AXIS, "x", (2, 0))
    for symbol in (fresh, axis, item, Symbol(AXIS, "x[2]", (0,))):
        twin = Symbol(DIM, str(symbol))
        assert str(symbol) == str(twin) and symbol != twin
        dims = [sh.dim_of(symbol), sh.dim_of(twin)]
        assert dims[0] != dims[1] and dims[0] + dims[1] == dims[1] + dims[0]
        assert sh.evaluate(dims[0] * 10 + dims[1], {symbol: 2, twin: 3}) == 23
    assert sh.dim_of(item) != sh.dim_of(Symbol(AXIS, "x[2]", (0,)))


def test_only_dims_of_inputs_are_bounded_on_the_gpu() -> None:
    """Integers computed during a run have no bounds, even if their names look like names of dims."""
    fresh = Tracer(lambda w: []).symbol(lower=None)
    assert of_dim(sh.dim_of(fresh)) == (-(2**31 - 1), 2**31 - 1)
    for symbol in (Symbol(DIM, "u1"), Symbol(DIM, "N"), Symbol(AXIS, "x", (0,))):
        assert of_dim(sh.dim_of(symbol)) == (0, EXTENT - 1)
