"""Providers on arrays, from a package outside the engine (docs/extending.md#providers)."""

from __future__ import annotations

import gc
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, InvalidInput, RunOptions, SessionOptions, Terminated, register_provider
from pyruntime.errors import ExecutionError
from pyruntime.native.sessions import program_cache
from pyruntime.placement import provider_list
from pyruntime.runtime import provider_trial

OUTSIDE = Path(__file__).parent / "outside"
HEAD = '<ir_version: 10, opset_import: ["" : 20]> g '
TEXT = """(float[N,256] x, float[256,512] w, float[N,512] z) => (float[N,512] y, float[M] r)
    <int64[1] flat = {-1}, int64 zero = {0}>
    { h = MatMul (x, w) a = Tanh (h) c = Add (a, z) y = Exp (c) q = Sqrt (y) u = Reshape (q, flat) v = Neg (u)
      r = CumSum (v, zero) }"""


def model(text: str) -> bytes:
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


MODEL = model(TEXT)


@pytest.fixture(autouse=True)
def visitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Modules of the package, which is installed while a test runs."""
    monkeypatch.syspath_prepend(str(OUTSIDE))
    invalidate_caches()
    monkeypatch.setattr(provider_list, "_registered", {})
    yield lambda name: import_module(f"visitor.{name}")
    for name in [n for n in sys.modules if n.split(".")[0] == "visitor"]:
        del sys.modules[name]


def feeds(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    shapes = {"x": (n, 256), "w": (256, 512), "z": (n, 512)}
    return {name: rng.standard_normal(shape, dtype=np.float32) / 16 for name, shape in shapes.items()}


def check(s: InferenceSession, given: dict[str, Any], data: bytes = MODEL, tolerance: float = 2e-4) -> None:
    for found, expected in zip(s.run(None, given), InferenceSession(data).run(None, given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def places(s: InferenceSession) -> dict[str, str]:
    return {node["op"]: node["place"] for node in s.explain()["nodes"]}


FUSED = ("Tanh", "Add", "Exp")

# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_call_stays_whole_with_its_epilogue() -> None:
    s = InferenceSession(MODEL, providers=["products", "wasm"])
    for n in (64, 3, 64, 200):
        check(s, feeds(n))
    nodes = {n["op"]: n for n in s.explain()["nodes"]}
    assert (nodes["MatMul"]["place"], nodes["MatMul"]["fused"]) == ("products", [nodes[op]["node"] for op in FUSED])
    assert nodes["CumSum"]["place"] == "wasm" and nodes["CumSum"]["why"] == "only matrix products"
    assert s.get_providers() == ["products", "CPUExecutionProvider"]


@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "(float[N,64] x) => (float[N,96] y) <float[96,64] w = {WEIGHT}, float[96] b = {BIAS}> "
        "{ z = Gemm <transB = 1> (x, w, b) y = Exp (z) }",
        "(float[N,64] x) => (float[N,96] y) <float[64,96] w = {WEIGHT}> { y = MatMul (x, w) }",
        """(float[2,N,32] x) => (float[2,N,32] y) <int64[4] split = {0, 0, 4, 8}, int64[3] join = {0, 0, 32}>
        { h = Reshape (x, split) q = Transpose <perm = [0, 2, 1, 3]> (h) k = Transpose <perm = [0, 2, 3, 1]> (h)
          s = MatMul (q, k) p = Softmax (s) o = MatMul (p, q) t = Transpose <perm = [0, 2, 1, 3]> (o)
          y = Reshape (t, join) }""",
    ],
    ids=["gemm", "weight", "heads"],
)
def test_views_layouts_and_orders(text: str, packs: bool) -> None:
    """What passes do to a call is what its provider accepts; `verify` runs the same kernels on WebAssembly, where the
    layouts of the provider are not those of the routine."""
    rng = np.random.default_rng(5)
    numbers = {"{WEIGHT}": 64 * 96, "{BIAS}": 96}
    for name, count in numbers.items():
        text = text.replace(name, "{" + ", ".join(f"{x:.3f}" for x in rng.standard_normal(count) / 8) + "}")
    data = model(text)
    s = InferenceSession(data, providers=[("products", {"least": 0, "packs": packs}), "wasm"])
    for n in (1, 7, 40):
        given = {"x": rng.standard_normal((2, n, 32) if "float[2,N" in text else (n, 64), dtype=np.float32) / 4}
        check(s, given, data)
        assert s.verify(given).ok
    assert s.explain()["placement"]["products"] >= 1


def test_an_answer_is_kept(visitor: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes change a call, but its provider is asked about the original one alone."""
    asked = []
    kind = visitor("products").Products
    supports = kind.supports

    def counted(self: Any, kernel: Any) -> str:
        if getattr(kernel, "routine", "") == "matmul":
            asked.append((kernel, dict(kernel.strided), kernel.epilogue))
        return str(supports(self, kernel))

    monkeypatch.setattr(kind, "supports", counted)
    check(InferenceSession(MODEL, providers=["products", "wasm"]), feeds(8))
    assert [(strided, epilogue) for _, strided, epilogue in asked] == [({}, None)]


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lest": 1}, r'"products" has no option "lest" \(did you mean least\?\)'),
        ({"least": "many"}, '"least" of provider "products" cannot be \'many\' .*type float'),
        ({"packs": 2}, '"packs" of provider "products" cannot be \'2\' .*type bool'),
    ],
)
def test_refused_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        InferenceSession(MODEL, providers=[("products", options), "wasm"])


def test_options_reach_the_provider_and_a_failure_changes_nothing() -> None:
    s = InferenceSession(MODEL, providers=["products"], provider_options=[{"least": "1e12"}])
    check(s, feeds(8))
    why = {n["op"]: n["why"] for n in s.explain()["nodes"]}
    assert places(s)["MatMul"] == "wasm" and why["MatMul"] == "a product of less than 1000000000000 operations"
    with pytest.raises(InvalidInput):
        s.set_providers([("products", {"least": "few"})])
    assert s.get_providers() == ["products", "CPUExecutionProvider"]
    s.set_providers([("products", {"least": 5})])
    check(s, feeds(8))
    assert places(s)["MatMul"] == "products"


@pytest.mark.parametrize(("gain", "winner"), [(1e9, "products"), (0.0, "")])
def test_auto_times_a_provider(
    gain: float, winner: str, visitor: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that takes part and is fastest gets the session, and later sessions at once; one that fails does not."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(program_cache.OFF_FOR_ALL, raising=False)
    monkeypatch.setattr(provider_trial, "GAIN", gain)
    monkeypatch.setattr(provider_trial, "LONGER", 1e9)
    products, faulty = visitor("products").provider, visitor("faulty").provider
    monkeypatch.setattr(type(products), "options", {"least": 0.0, "packs": False})
    register_provider(visitor("segments").provider)  # it takes no part
    for p in (products, faulty):
        monkeypatch.setattr(type(p), "in_auto", True)
        register_provider(p)
    s = InferenceSession(MODEL, providers=["auto"])
    assert places(s)["MatMul"] == "wasm" and s.explain()["providers"]["named"] == ["auto"]
    trial = s._native._trial
    assert trial is not None
    while trial._trial.state != provider_trial.SETTLED or trial._thread is not None:
        check(s, feeds(64))
    used = [winner] * bool(winner) + ["wasm"]
    report = s.explain()["providers"]
    assert report["used"] == used and places(s)["MatMul"] == used[0]
    times = r"auto: a run takes \S+ ms on WebAssembly, \S+ ms on products"
    assert re.fullmatch(rf'{times}; faulty failed: MatMul "h" .*no device for job', report["why"])
    check(s, feeds(3))
    later = InferenceSession(MODEL, providers=["auto"])
    assert later.explain()["providers"] == {**report, "why": f"{report['why']}, in an earlier session"}
    assert places(later)["MatMul"] == used[0]


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def segments_of(s: InferenceSession) -> Any:
    return s._native.compiler.added["segments"]._inner


def test_consecutive_kernels_are_one_part() -> None:
    """Tensors between them have no memory; a reshape between them belongs to the part."""
    s = InferenceSession(MODEL, providers=["products", "segments", "wasm"], sess_options=split_kernels())
    check(s, feeds(64))
    check(s, feeds(5))
    parts = [entry for entry in segments_of(s).log if isinstance(entry, list)]
    assert [[label.split()[0] for label in part] for part in parts] == [["Tanh", "Add", "Exp", "Sqrt", "Neg"]]
    assert places(s)["Tanh"] == "segments" and places(s)["Neg"] == "fused"
    alone = InferenceSession(MODEL, split_kernels(), providers=["products", "wasm"])
    check(alone, feeds(64))
    assert s.memory().providers["wasm"].requested < alone.memory().providers["wasm"].requested


def split_kernels() -> SessionOptions:
    """Without the fusion that makes one kernel of consecutive maps, or of the steps of a loop."""
    return SessionOptions(disabled_passes=["map_fusion", "epilogues", "init_fusion", "whole_loops"])


@pytest.mark.parametrize(
    ("text", "shapes", "parts"),
    [
        (  # a branch and a loop have parts of their own; the kernels before them and after them are others
            """(bool c, float[N] x) => (float[N] y) { a = Tanh (x) b = If (c) <
            then_branch = t () => (float[N] p) { e = Exp (a) p = Neg (e) },
            else_branch = f () => (float[N] q) { q = Abs (a) }> y = Neg (b) }""",
            [5, 5, 0, 9], 4,
        ),
        (
            """(int64 n, float[N] x) => (float[N] y, float[T,N] s) <bool yes = {1}> { y, s = Loop (n, yes, x) <
            body = b (int64 i, bool go, float[N] v) => (bool more, float[N] w, float[N] o)
            { more = Identity (go) h = Tanh (v) w = Add (h, x) o = Neg (w) }> }""",
            [5, 1], 1,
        ),
    ],
    ids=["branch", "loop"],
)  # fmt: skip
def test_parts_in_inner_blocks(text: str, shapes: list[int], parts: int) -> None:
    data = model(text)
    options = split_kernels()
    options.keep_subnormals = True  # else the value that the loop carries ends in zero by bits, which NumPy here lacks
    s = InferenceSession(data, options, providers=["segments", "wasm"])
    for n, size in enumerate(shapes):
        x = np.linspace(-1, 1, size, dtype=np.float32)
        control = {"c": np.array(n % 2 == 0)} if "bool c" in text else {"n": np.array(n + 2, np.int64)}
        check(s, {**control, "x": x}, data)
    assert len([entry for entry in segments_of(s).log if isinstance(entry, list)]) == parts


def test_a_loop_keeps_the_calls_of_a_provider() -> None:
    """A loop whose body calls a provider is no procedure; whole nodes in it stay, too."""
    data = model("""(int64 n, float[2,8] x, float[8,8] w) => (float[2,8] y)
        <bool yes = {1}, float[8] one = {1, 1, 1, 1, 1, 1, 1, 1}> { y = Loop (n, yes, x) <
        body = b (int64 i, bool go, float[2,8] v) => (bool more, float[2,8] o)
        { more = Identity (go) p = MatMul (v, w) l = LayerNormalization (p, one) o = Tanh (l) }> }""")
    rng = np.random.default_rng(2)
    given = {"n": np.array(3, np.int64), "x": rng.standard_normal((2, 8), np.float32), "w": np.eye(8, dtype=np.float32)}
    for name in ("products", "norms"):
        s = InferenceSession(data, providers=[(name, {"least": 0} if name == "products" else {}), "wasm"])
        check(s, given, data, 1e-5)
        (loop,) = [n["loop"] for n in s.explain()["nodes"] if n["op"] == "Loop"]
        assert loop == f'runs step by step: its body has a call that the provider "{name}" runs'
        assert s.explain()["placement"][name] == 1


def test_the_life_of_a_provider() -> None:
    s = InferenceSession(MODEL, providers=["segments", "wasm"])
    provider = segments_of(s)
    provider.log.clear()
    s.run(None, feeds(4))
    assert provider.log == ["start", "end"]
    options = RunOptions()
    options.terminate = True
    with pytest.raises(Terminated):
        s.run(None, feeds(4), options)
    assert provider.log == ["start", "end", "start", "Terminated"]
    s.set_providers(["wasm"])
    assert provider.log[-1] == "close"
    other = InferenceSession(MODEL, providers=["segments"])
    log = segments_of(other).log
    other.release()
    assert log.count("close") == 1
    dropped = InferenceSession(MODEL, providers=["segments"])
    log = segments_of(dropped).log
    del dropped
    gc.collect()
    assert log.count("close") == 1


def test_arrays_are_views_also_after_memory_has_grown() -> None:
    """A small run, a large one that makes memory grow, and the small one again, whose jobs are bound again."""
    s = InferenceSession(MODEL, providers=["products", "wasm"])
    for n in (2, 3000, 2, 3000):
        check(s, feeds(n))


def test_files_have_no_provider_on_arrays(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidInput, match="runs in Python \\(products\\), which a file cannot hold"):
        InferenceSession(MODEL, providers=["products", "wasm"]).export()
    program = InferenceSession(MODEL).export()
    InferenceSession(program, providers=["products", "wasm"])
    assert 'a Program from a file has no kernels for the provider "products"' in caplog.text


def test_dims_that_follow_from_others_have_names() -> None:
    """A dim of more than 128 operations has a name in the Program, which a provider does not see."""
    names = [f"N{n}" for n in range(140)]
    inputs = ", ".join(f"float[{n}] x{n}" for n in names)
    text = f"({inputs}) => (float[T] y) {{ c = Concat <axis = 0> ({', '.join(f'x{n}' for n in names)}) y = Exp (c) }}"
    data = model(text)
    s = InferenceSession(data, split_kernels(), providers=["segments", "wasm"])
    given = {f"x{n}": np.arange(i % 3 + 1, dtype=np.float32) / 4 for i, n in enumerate(names)}
    check(s, given, data)
    assert s.explain()["placement"]["segments"] >= 1


def test_profile_and_verify_name_the_provider() -> None:
    s = InferenceSession(MODEL, providers=["segments", "wasm"])
    assert any(t.kernel == "segments" for t in s.profile(feeds(6)))
    assert s.verify(feeds(6)).ok


# ── faults ────────────────────────────────────────────────────────────────────────────────────────────────────────────

CONSTANT = model(
    "(float[N,8] x) => (float[8,N] y) <float[8,8] w = {"
    + ", ".join(str(n % 7 / 8) for n in range(64))
    + "}> { t = Transpose (x) h = MatMul (w, t) y = Exp (h) }"
)


@pytest.mark.parametrize("answers", [False, True], ids=["raises", "answers"])
@pytest.mark.parametrize("where", ["supports", "reads", "fuses", "compile", "bind", "job", "run_start", "run_end"])
def test_a_node_leaves_a_provider_that_fails(where: str, answers: bool) -> None:
    if where in ("job", "run_start", "run_end") and answers:
        return  # their results have no meaning
    x = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)}
    with pytest.warns(RuntimeWarning) as told:
        s = InferenceSession(CONSTANT, providers=[("faulty", {"where": where, "answers": answers}), "wasm"])
        check(s, x, CONSTANT)
    texts = [str(w.message) for w in told]
    assert len(texts) == 1 and 'provider "faulty" failed: ' in texts[0] and "WebAssembly" in texts[0]
    assert ("5" if answers else f"RuntimeError: no device for {where}") in texts[0]
    assert "MatMul" in texts[0] or where in ("run_start", "run_end")
    assert places(s)["MatMul"] == "wasm" and s.metrics()["recovered"] == 1 and s.state == "ready"
    (moved,) = s.explain()["moved"]
    assert moved["to"] == "wasm" and 'provider "faulty" failed' in moved["reason"]
    assert "faulty" in next(n["why"] for n in s.explain()["nodes"] if n["op"] == "MatMul")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(s, x, CONSTANT)


def test_faults_without_a_second_try() -> None:
    s = InferenceSession(MODEL, providers=["faulty", "wasm"])
    s.disable_fallback()
    with pytest.raises(ExecutionError, match='MatMul "h".*provider "faulty" failed: RuntimeError: no device for job'):
        s.run(None, feeds(3))
    options = SessionOptions(fallback=False)
    with pytest.raises(ExecutionError, match='MatMul "h".*no device for compile'):
        InferenceSession(MODEL, options, providers=[("faulty", {"where": "compile"}), "wasm"])
    with pytest.raises(ExecutionError, match='provider "faulty" failed: RuntimeError: no device for open'):
        InferenceSession(MODEL, options, providers=[("faulty", {"where": "open"}), "wasm"])


@pytest.mark.parametrize("answers", [False, True])
def test_a_provider_that_cannot_be_opened_or_closed(answers: bool) -> None:
    with pytest.warns(RuntimeWarning, match='provider "faulty" failed: .*; the session runs without it'):
        s = InferenceSession(MODEL, providers=[("faulty", {"where": "open", "answers": answers}), "wasm"])
    check(s, feeds(3))
    assert s.get_providers() == ["CPUExecutionProvider"]
    s = InferenceSession(MODEL, providers=[("faulty", {"where": "close"}), "wasm"])
    with pytest.warns(RuntimeWarning, match='provider "faulty" failed: RuntimeError: no device for close'):
        s.release()


def test_all_nodes_leave_after_three_faults() -> None:
    text = ", ".join(f"h{n} = MatMul (x, w{n})" for n in range(5)).replace(", h", " h")
    weights = ", ".join(f"float[8,8] w{n}" for n in range(5))
    data = model(f"(float[N,8] x, {weights}) => ({', '.join(f'float[N,8] h{n}' for n in range(5))}) {{ {text} }}")
    given = {name: np.full((8, 8), 0.5, np.float32) for name in ["x", *[f"w{n}" for n in range(5)]]}
    with pytest.warns(RuntimeWarning) as told:
        s = InferenceSession(data, providers=["faulty", "wasm"])
        check(s, given, data)
    assert [len(str(w.message).split("session continues")) for w in told] == [1, 1, 2]
    assert {n["place"] for n in s.explain()["nodes"]} == {"wasm"}


@pytest.mark.parametrize("after", [0, 3])
def test_runs_that_fail_side_by_side(after: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        s = InferenceSession(MODEL, providers=[("faulty", {"after": after}), "wasm"])
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.append(s.run(None, feeds(16)))) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    expected = InferenceSession(MODEL).run(None, feeds(16))
    assert len(found) == 4
    for results in found:
        np.testing.assert_allclose(results[0], expected[0], rtol=2e-4)
    assert len(s.explain()["moved"]) == 1


def test_two_providers_in_turn_take_what_one_loses() -> None:
    with pytest.warns(RuntimeWarning, match="from now on this node runs on products"):
        s = InferenceSession(MODEL, providers=["faulty", "products", "wasm"])
        check(s, feeds(9))
    assert places(s)["MatMul"] == "products"


# ── whole nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────

SCALE = ", ".join(str(n / 48) for n in range(48))
NORM = model(
    f"""(float[N,48] x, float[48] b) => (float[N,48] y, float[N,1] m)
    <float[48] s = {{{SCALE}}}, int64[2] once = {{1, 1}}>
    {{ h = Tanh (x) n, m = LayerNormalization <epsilon = 0.01> (h, s, b) t = Tile (n, once) y = Exp (t) }}"""
)


def norm_feeds(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {"x": rng.standard_normal((n, 48), dtype=np.float32), "b": rng.standard_normal(48, dtype=np.float32)}


def norms_of(s: InferenceSession) -> Any:
    return s._native.compiler.added["norms"]._inner


@pytest.mark.parametrize("parts", [False, True])
def test_a_whole_node(parts: bool) -> None:
    """The node is one call with its attributes; what surrounds it is fused without it; constants are marked; `verify`
    compares it with the kernels of the node."""
    s = InferenceSession(NORM, providers=[("norms", {"parts": parts}), "wasm"])
    for n in (4, 1, 9):
        check(s, norm_feeds(n), NORM, 1e-5)
    assert places(s)["LayerNormalization"] == "norms" and places(s)["Exp"] == "wasm"
    norms = norms_of(s)
    assert set(norms.nodes_asked) == {"Tanh", "LayerNormalization", "Exp"}  # Tile by 1 is its operand
    assert norms.uploads == 1  # the scale; the other two are no constants
    verdict = s.verify(norm_feeds(4))
    assert verdict.ok and verdict.compared > 2


def test_nodes_that_are_not_offered() -> None:
    """Results that compilation knows, nodes with inner graphs, and text stay with the engine."""
    data = model("""(float[N,4] x, bool c, string[N] s) => (float[M] y, float[N,4] z, string[K] t)
        <int64[1] zero = {0}> {
        shape = Shape (x) total = ReduceProd <keepdims = 0> (shape) one = Unsqueeze (total, zero) y = Reshape (x, one)
        z = If (c) <then_branch = a () => (float[N,4] p) { p = Exp (x) },
                    else_branch = b () => (float[N,4] q) { q = Neg (x) }>
        t = StringNormalizer <case_change_action = "LOWER"> (s) }""")
    s = InferenceSession(data, providers=[("norms", {"nodes": ""}), "wasm"])
    text = np.array(["A", "b", "C"], dtype=object)
    found = s.run(None, {"x": np.ones((3, 4), np.float32), "c": np.array(True), "s": text})
    assert found[0].shape == (12,) and list(found[2]) == ["a", "b", "c"]
    assert set(norms_of(s).nodes_asked) == {"Exp", "Neg"}


def test_runs_of_a_provider_that_is_not_concurrent() -> None:
    s = InferenceSession(NORM, providers=["norms", "wasm"])
    threads = [threading.Thread(target=lambda: [s.run(None, norm_feeds(5)) for _ in range(5)]) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert norms_of(s).most == 1 and norms_of(s).running == 0


def test_costs(visitor: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs more than its operations stays on WebAssembly: a whole node, a call, a part."""
    s = InferenceSession(NORM, providers=[("norms", {"cost": 1e9}), "wasm"])
    check(s, norm_feeds(3), NORM, 1e-5)
    assert places(s)["LayerNormalization"] == "wasm"
    kind = visitor("segments").Segments
    for price, place in ((1e12, "wasm"), (5.0, "segments")):
        monkeypatch.setattr(kind, "cost", lambda self, part, price=price: price)
        s = InferenceSession(MODEL, split_kernels(), providers=["segments", "wasm"])
        check(s, feeds(6))
        assert places(s)["Tanh"] == place
    nodes = {n["op"]: n["why"] for n in InferenceSession(MODEL, providers=["segments", "wasm"]).explain()["nodes"]}
    assert nodes["MatMul"] == "only elementwise float32 kernels"
    monkeypatch.setattr(kind, "cost", lambda self, part: "much")
    with pytest.warns(RuntimeWarning, match='provider "segments" failed: ValueError: could not convert string'):
        check(InferenceSession(MODEL, providers=["segments", "wasm"]), feeds(6))


def test_the_reference_evaluates_a_whole_node(visitor: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    slow = visitor("slow")
    monkeypatch.setattr(slow.SlowProvider, "supports_node", lambda self, node, inputs, attrs: "Norm" in node)
    s = InferenceSession(NORM, providers=["slow", "wasm"])
    check(s, norm_feeds(2), NORM, 1e-5)
    assert places(s)["LayerNormalization"] == "slow"
