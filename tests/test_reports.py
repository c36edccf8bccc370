"""What a session reports about itself (memory, explain, profile), and Programs as files."""

from __future__ import annotations

import gc
import json
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import wasmtime
from onnx import TensorProto, helper

from kit import small_models, zoo
from kit.probes import PROBES
from pyruntime import InferenceSession, InvalidInput, InvalidModel, SessionFailed, SessionOptions
from pyruntime.program.format import Program
from pyruntime.providers.wasm import wasmtime_host
from pyruntime.runtime.planner import Planner
from pyruntime.runtime.states import Place
from tests.test_session import FLOAT, chain, info, model

SHAPES = [1 + (7 * n) % 50 for n in range(50)]  # all different


def rows(count: int) -> dict[str, Any]:
    return {"x": np.ones((count, 4), np.float32)}


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fifty_shapes_do_not_grow_the_arena() -> None:
    session = InferenceSession(chain(20))
    session.run(None, rows(64))
    first = session.memory()
    for n in SHAPES:
        session.run(None, rows(n))
    assert session.memory() == first


def test_fifty_shapes_again_do_not_grow_python() -> None:
    session = InferenceSession(chain(20))
    executor = session._native.latest()

    def runs() -> None:
        for n in SHAPES:
            session.run(None, rows(n))

    runs()
    plans, layouts = executor.plan.transitions, executor.plan.layouts
    tracemalloc.start()
    try:
        runs()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        runs()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 14
    finally:
        tracemalloc.stop()
    assert (executor.plan.transitions, executor.plan.layouts) == (plans, layouts)


LOOPING = """<ir_version: 10, opset_import: ["" : 20]>
g (int64 most, bool flip, float[N] x) => (float[N] y, float[K, N] steps, float[M] z, float[P] picked) {
  go = Constant <value = bool {1}> ()
  y, steps = Loop (most, go, x) <body = b (int64 i, bool c, float[N] s) => (bool more, float[N] t, float[N] o) {
    more = Identity (c)  q = ReduceSum (s)  t = Add (s, q)  o = Softmax (t)
  }>
  z = If (flip) <then_branch = t () => (float[M] a) { a = Concat <axis = 0> (y, x) },
                 else_branch = e () => (float[M] b) { b = Softmax (y) }>
  zero = Constant <value = float {0.0}> ()  m = Greater (x, zero)  picked = Compress (x, m)
}"""


def last_place(plan: Planner) -> Place:
    """The place at the end of the only run since plans were dropped."""
    state = plan.root
    while state.next:
        state = [*state.next.values()][-1].state
    return state.place


def test_control_and_data_dependent_shapes_leak_nothing() -> None:
    session = InferenceSession(onnx.parser.parse_model(LOOPING).SerializeToString())

    def run(n: int) -> None:
        x = np.where(np.arange(n) % 3 < n % 3, 1, -1).astype(np.float32)
        session.run(None, {"most": np.array(n % 4), "flip": np.array(n % 2 == 0), "x": x})

    for n in (50, 51):
        run(n)
        run(n + 2)
    before = session.memory().arena
    for n in SHAPES:
        run(n)
    assert session.memory().arena == before
    executor = session._native.latest()
    for n in (4, 7):  # planned anew: what is alive in the end are the outputs
        executor.plan.tighten()
        run(n)
        assert len(last_place(executor.plan).spans) == len(executor.header["outputs"])


def test_rounds_of_a_loop_are_planned_once() -> None:
    """Carried buffers that swap places return to them after a few rounds, so few states are planned."""
    session = InferenceSession(onnx.parser.parse_model(LOOPING).SerializeToString())
    x = np.linspace(-1e-9, 1e-9, 6, dtype=np.float32)
    plans = []
    for most in (20, 400):
        y, steps, _, _ = session.run(None, {"most": np.array(most), "flip": np.array(True), "x": x})
        assert steps.shape == (most, 6) and y.shape == (6,)
        plans.append(session._native.latest().plan.transitions)
    assert plans[0] < 100 and plans[1] - plans[0] < 20


COUNTING = """<ir_version: 10, opset_import: ["" : 20]>
g (int64 most, float[N] x) => (float[N] y, float[T] z) {
  go = Constant <value = bool {1}> ()  one = Constant <value = int64[1] {1}> ()
  y, z = Loop (most, go, x, x) <body = b (int64 i, bool c, float[N] s, float[R] r) => (bool more, float[N] t, float[Q] u) {
    more = Identity (c)  n = Add (one, i)  parts = Expand (s, n)  first = ReduceMax <keepdims = 1> (parts)
    t = Add (s, first)  u = Concat <axis = 0> (r, first)
  }>
}"""  # noqa: E501


def test_rounds_that_differ_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The carried tensor grows by one each round."""
    monkeypatch.setattr("pyruntime.runtime.planner.LAYOUTS", 40)
    session = InferenceSession(onnx.parser.parse_model(COUNTING).SerializeToString())
    y, z = session.run(None, {"most": np.array(100), "x": np.zeros(1, np.float32)})
    assert y.tolist() == [0] and z.tolist() == [0] * 101
    assert session._native.latest().plan.layouts <= 40


def test_ever_new_shapes_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyruntime.runtime.planner.LAYOUTS", 40)
    session = InferenceSession(chain(3))
    for n in range(1, 200):
        np.testing.assert_allclose(session.run(None, rows(n))[0].sum(1), 1, rtol=1e-6)
        assert session._native.latest().plan.layouts <= 40


def test_the_report_adds_up() -> None:
    session = InferenceSession(zoo.materialize("mobilenet_v2"))
    session.run(None, zoo.inputs("mobilenet_v2"))
    report = session.memory()
    assert report.weights > 12_000_000 and report.arena >= report.weights + report.peak
    assert report.requested > 3 * report.peak and report.reuse == report.requested / report.peak
    assert 0 <= report.fragmentation < 0.5
    assert report.providers["wasm"].weights == report.weights


def test_a_model_that_is_compiled_when_it_runs_says_so() -> None:
    late = model([helper.make_node("Identity", ["x"], ["y"])], [info("x", None)], [info("y", None)])
    with pytest.raises(SessionFailed, match="run it once"):
        InferenceSession(late).memory()


# ── explain ───────────────────────────────────────────────────────────────────────────────────────────────────────


def explained(nodes: list[Any], **weights: Any) -> dict[str, Any]:
    graph_inputs, graph_outputs = [info("x", ["N", 4])], [info("y", None)]
    made = [helper.make_node("Constant", [], [name], name=name, value=value) for name, value in weights.items()]
    session = InferenceSession(model([*made, *nodes], graph_inputs, graph_outputs))
    session.run(None, rows(3))
    found = session.explain()
    assert json.loads(json.dumps(found)) == found
    return {n["node"].partition(" (")[0]: n for n in found["nodes"]}


def test_what_became_of_nodes() -> None:
    ones = helper.make_tensor("w", FLOAT, [4, 4], [1.0] * 16)
    found = explained(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="mm"),
            helper.make_node("Relu", ["a"], ["b"], name="act"),
            helper.make_node("Shape", ["b"], ["s"], name="shape"),
            helper.make_node("Transpose", ["b"], ["c"], name="t", perm=[1, 0]),
            helper.make_node("Softmax", ["c"], ["d"], name="soft"),
            helper.make_node("Reshape", ["d", "s"], ["y"], name="back"),
            helper.make_node("Neg", ["x"], ["nobody"], name="lost"),
        ],
        w=ones,
    )
    mm = found['MatMul "mm"']
    assert (mm["place"], mm["calls"], mm["fused"]) == ("wasm", 1, ['Relu "act" (opset 20)'])
    assert mm["kernels"] and mm["work"] > 0 and mm["crossing"] == 0
    assert found['Relu "act"']["place"] == "fused" and found['Relu "act"']["into"] == mm["node"]
    places = {name: n["place"] for name, n in found.items()}
    assert places['Constant "w"'] == "constant" and places['Shape "shape"'] == "plan"
    assert places['Reshape "back"'] == "view" and places['Neg "lost"'] == "unused"
    assert places['Transpose "t"'] in ("view", "fused") and places['Softmax "soft"'] == "wasm"


def test_constants_are_made_in_init() -> None:
    ones = helper.make_tensor("w", FLOAT, [4], [1.0] * 4)
    found = explained(
        [
            helper.make_node("Softmax", ["w"], ["v"], name="once"),
            helper.make_node("Add", ["x", "v"], ["y"], name="add"),
        ],
        w=ones,
    )
    assert found['Softmax "once"']["place"] == "init" and found['Softmax "once"']["calls"] == 0
    assert found['Add "add"']["place"] == "wasm"


def test_explain_counts_every_node_once() -> None:
    session = InferenceSession(zoo.materialize("bert_tiny"))
    found = session.explain()
    assert sum(o["nodes"] for o in found["operators"]) == len(found["nodes"]) >= len(session._native.graph.nodes)
    assert all(n["place"] for n in found["nodes"])
    known = {n["node"] for n in found["nodes"]}
    assert all(n["into"] in known or not n["into"] for n in found["nodes"])
    assert sum(found["placement"].values()) == found["kernels"]


def test_nodes_of_the_same_name_have_rows_of_their_own() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[2] x, bool c) => (float[2] y, float[2] z) {
        [n] a = Tanh (x)  y = Softmax (a)  [n] b = Tanh (y)  [n] d = Softmax (b)
        [i] z = If (c) <then_branch = t () => (float[2] r) { [n] r = Tanh (d) },
                        else_branch = e () => (float[2] r) { [n] r = Tanh (x) }> }"""
    session = InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    assert [n["node"].partition(" (")[0] for n in session.explain()["nodes"]] == [
        'Tanh "n"', 'Softmax "y"', 'Tanh "n #2"', 'Softmax "n"', 'If "i"', 'Tanh "n #3"', 'Tanh "n #4"'
    ]  # fmt: skip


def in_javascript(session: InferenceSession) -> Any:
    """What web/ explains of a session's Program and last run."""
    executor = session._native.latest()
    script = """import { explain } from './web/runtime/explain.js'; import { readFileSync } from 'node:fs';
        const { header, env } = JSON.parse(readFileSync(0, 'utf8'));
        console.log(JSON.stringify(explain(header, new Map(Object.entries(env)))));"""
    told = json.dumps({"header": executor.header, "env": executor.env})
    run = ["node", "--input-type=module", "-e", script]
    found = subprocess.run(run, input=told, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.parametrize("name", ["minilm", "mobilenet_v2", "yolo_nms"])
def test_javascript_explains_the_same(name: str) -> None:
    session = InferenceSession(zoo.materialize(name))
    session.run(None, zoo.inputs(name))
    report = session.explain()
    assert report.pop("providers") == {"named": ["wasm"], "used": ["wasm"], "why": ""}
    assert isinstance(report.pop("native_code"), str) and report.pop("memories") == {}
    assert in_javascript(session) == report


def test_work_is_known_after_a_run() -> None:
    session = InferenceSession(chain(2))
    assert session.explain()["nodes"][-1]["work"] is None  # both softmaxes are one kernel, the last one's
    session.run(None, rows(5))
    assert session.explain()["nodes"][-1]["work"] > 0


def test_a_profile_names_nodes_and_kernels() -> None:
    session = InferenceSession(chain(3))
    found = session.profile(rows(8))
    assert {t.node.partition(" ")[0] for t in found} == {"Softmax"} and all(t.seconds >= 0 for t in found)
    kernels = {k for n in session.explain()["nodes"] for k in n["kernels"]}
    assert {t.kernel for t in found} == kernels


def mixed() -> InferenceSession:
    """A session on the GPU of a model whose middle is of a type that the GPU does not have."""
    pytest.importorskip("wgpu")
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"], name="first"),
        helper.make_node("Cast", ["a"], ["b"], name="to", to=TensorProto.DOUBLE),
        helper.make_node("Softmax", ["b"], ["c"], name="wide"),
        helper.make_node("Cast", ["c"], ["d"], name="from", to=FLOAT),
        helper.make_node("Softmax", ["d"], ["y"], name="last"),
    ]
    session = InferenceSession(model(nodes, [info("x", ["N", 4])], [info("y", ["N", 4])]), providers=["webgpu"])
    session.run(None, rows(8))
    return session


def test_two_providers_are_told_apart() -> None:
    session = mixed()
    told = session.explain()
    found = {n["node"].partition(" (")[0]: n for n in told["nodes"]}
    assert found['Softmax "first"']["place"] == found['Softmax "last"']["place"] == "webgpu"
    wide = found['Softmax "wide"']
    assert wide["place"] == "wasm" and "float64" in wide["why"] and not found['Softmax "last"']["why"]
    assert found['Softmax "first"']["crossing"] == 8 * 4 * 4  # the input
    assert sum(n["crossing"] for n in told["nodes"]) >= 3 * 8 * 4 * 4
    assert set(told["placement"]) == {"wasm", "webgpu"}
    report = session.memory()
    assert report.providers["webgpu"].peak > 0 and report.peak == sum(s.peak for s in report.providers.values())
    assert {t.node for t in session.profile(rows(8))} >= {'Softmax "last" (opset 20)', 'Softmax "wide" (opset 20)'}


def test_a_program_of_two_providers_runs_from_a_file() -> None:
    session = mixed()
    again = InferenceSession(session.export(weights=True), providers=["webgpu"])
    x = {"x": np.random.default_rng(0).standard_normal((5, 4), np.float32)}
    np.testing.assert_array_equal(again.run(None, x)[0], session.run(None, x)[0])


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["digits.onnx", "llama_mini.nb4"])
@pytest.mark.parametrize("weights", [False, True])
def test_a_program_runs_from_a_file(name: str, weights: bool, tmp_path: Path) -> None:
    if name == "digits.onnx":
        source = Path(__file__).parents[1] / "demo" / "digits" / name
        feeds: Any = {"image": np.ones((2, 1, 28, 28), np.float32)}
    else:
        source, feeds = zoo.materialize(name), zoo.inputs(name)
    path = tmp_path / "model.onnx"
    path.write_bytes(source.read_bytes())
    session = InferenceSession(path, SessionOptions(native_code=False))  # a Program has none
    expected = session.run(None, feeds)
    (tmp_path / "model.pyrt").write_bytes(session.export(weights))
    if weights:
        path.unlink()
    again = InferenceSession(tmp_path / "model.pyrt")
    assert again.get_inputs() == session.get_inputs() and again.get_outputs() == session.get_outputs()
    for a, b in zip(again.run(None, feeds), expected, strict=True):
        # Sums in another order (docs/design/cpu-kernels.md#code-for-cranelift). With `accuracy_level` 4 rows become
        # int16, and another order may round to the next number (docs/design/low-bit-weights.md).
        step = 2**-15 if name == "llama_mini.nb4" else 0
        np.testing.assert_allclose(a, b, rtol=0, atol=(3e-6 + 2 * step) * np.abs(b).max())
    with pytest.raises(InvalidInput, match="is missing"):
        again.run(None, {})


@pytest.mark.parametrize("name", ["digits.onnx", "llama_mini.nb4", "mobilenet_v2.qdq"])
def test_programs_have_relaxed_instructions_on_request_alone(name: str, tmp_path: Path) -> None:
    """So that Node.js 20 opens those that do not ask, also from a session whose own kernels are relaxed."""
    model = Path("demo/digits/digits.onnx") if name == "digits.onnx" else zoo.materialize(name)
    session = InferenceSession(model, SessionOptions(relaxed_simd=True))
    for relaxed in (False, True):
        program = Program.from_bytes(session.export(weights=True, relaxed=relaxed))
        code = program.part(program.header["modules"]["wasm"])
        wasmtime.Module.validate(wasmtime_host._engine(True), code)
        if relaxed:
            with pytest.raises(wasmtime.WasmtimeError, match="relaxed SIMD"):
                wasmtime.Module.validate(wasmtime_host._engine(False), code)
        else:
            wasmtime.Module.validate(wasmtime_host._engine(False), code)


@pytest.mark.parametrize("name", PROBES)
def test_probes_run_from_a_file(name: str) -> None:
    probe = PROBES[name]
    session = InferenceSession(probe.model)
    if () not in session._native.executors:
        session.run(None, probe.runs[0][0])
        with pytest.raises(InvalidInput, match="some feeds"):
            session.export(weights=True)
        return
    if name == "strings":
        with pytest.raises(InvalidInput, match="cannot hold"):
            session.export(weights=True)
        return
    again = InferenceSession(session.export(weights=True))
    for feeds, _ in probe.runs:
        for a, b in zip(again.run(None, feeds), session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, b)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(zoo.materialize("llama_mini.nb4").read_bytes())
    session = InferenceSession(path)
    program = tmp_path / "model.pyrt"
    program.write_bytes(data := session.export())
    with pytest.raises(InvalidModel, match="by its path"):
        InferenceSession(data)
    with pytest.raises(InvalidModel, match="cut off"):
        InferenceSession(data[:100])
    with pytest.raises(InvalidModel, match="damaged"):
        InferenceSession(data[:100] + b"\xff" + data[101:])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(InvalidModel, match=r'"model.onnx" is not the file'):
        InferenceSession(program)
    path.unlink()
    with pytest.raises(InvalidModel, match="cannot be read"):
        InferenceSession(program)
    digits = onnx.load(Path(__file__).parents[1] / "demo" / "digits" / "digits.onnx")
    onnx.save(digits, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    program.write_bytes(InferenceSession(path).export())
    (tmp_path / "w.bin").unlink()
    with pytest.raises(InvalidModel, match='"w.bin" cannot be opened'):
        InferenceSession(program)
    with pytest.raises(InvalidInput, match="has no file to read weights from"):
        InferenceSession(zoo.materialize("llama_mini.nb4").read_bytes()).export()


def test_external_data_that_changed_is_refused(tmp_path: Path) -> None:
    """A Program file holds no external data, so changed data are detected when it is opened."""
    onnx.save(small_models.products(2, 64), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin")
    session = InferenceSession(tmp_path / "m.onnx")
    program, data = tmp_path / "m.pyrt", tmp_path / "m.bin"
    program.write_bytes(session.export())
    feeds = {"x": np.ones((1, 64), np.float32)}
    np.testing.assert_array_equal(InferenceSession(program).run(None, feeds)[0], session.run(None, feeds)[0])
    before = data.read_bytes()
    for changed in (before[:-1], before[:-1] + b"?", before + b"?"):
        data.write_bytes(changed)
        with pytest.raises(InvalidModel, match=r'"m.bin" is not the file'):
            InferenceSession(program)


def test_options_are_checked() -> None:
    with pytest.raises(InvalidInput, match="turbo"):
        InferenceSession(chain(1), SessionOptions(graph_optimization_level="turbo"))


@pytest.mark.parametrize("name", ["a > b", 'c" (opset 20) > Abs "d', "(opset 20) > Neg", 'Relu "x', "", "\n"])
def test_nodes_of_any_name_are_their_operators(name: str) -> None:
    """Also in a function, where labels of nodes start with the calling node's label."""
    text = """<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
        g (float[N] x) => (float[N] y, float[N] z) { a = Softmax (x)  y = f.twice (a)  z = Softmax (a) }
        <domain: "f", opset_import: ["" : 20]> twice (x) => (y) { b = Softmax (x)  y = Softmax (b) }"""
    made = onnx.parser.parse_model(text)
    for node in (*made.graph.node, *made.functions[0].node):
        node.name = f"{name}{node.output[0]}"
    session = InferenceSession(made.SerializeToString())
    found = session.explain()
    assert {row["op"] for row in found["operators"]} == {"Softmax", "f.twice"}
    del found["providers"], found["native_code"], found["memories"]  # of the session, not of its Program
    assert in_javascript(session) == found
