"""A package outside pyruntime adds passes to it, and a provider. e2e/test_extending.py does so in a page."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from kit import zoo
from kit.gpu import GPU
from kit.models import MODELS
from kit.small_models import negations
from pyruntime import (
    ArrayProvider,
    InferenceSession,
    InvalidInput,
    InvalidModel,
    SessionFailed,
    SessionOptions,
    UnsupportedOp,
    get_available_providers,
    graph_pass,
    op,
    register_provider,
    remove_pass,
    rewrite_rule,
)
from pyruntime.api.providers import their_names
from pyruntime.cli import main as cli
from pyruntime.compiler import user_passes
from pyruntime.compiler.pipeline import PASSES, REQUIRED
from pyruntime.compiler.user_passes import Pipeline, known_passes
from pyruntime.frontend import registry
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import X as X_
from pyruntime.ir.expr import cast, index, tanh
from pyruntime.ir.kernel import Loops, Map, Tensor
from pyruntime.options import LEVELS
from pyruntime.placement import provider_list

ROOT = Path(__file__).parents[1]
OUTSIDE = ROOT / "tests" / "outside"
MODEL = negations().SerializeToString()
X = np.linspace(-3, 3, 101, dtype=np.float32)


@pytest.fixture(scope="module")
def visitor() -> Iterator[Callable[[str], Any]]:
    """Modules of the package, which is installed while this file's tests run."""
    sys.path.insert(0, str(OUTSIDE))
    importlib.invalidate_caches()
    yield lambda name: importlib.import_module(f"visitor.{name}")
    sys.path.remove(str(OUTSIDE))


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(user_passes, "_registered", [])
    monkeypatch.setattr(provider_list, "_registered", {})


@pytest.fixture
def passes(visitor: Callable[[str], Any], nothing_registered: None) -> None:
    importlib.reload(visitor("passes")) if "visitor.passes" in sys.modules else visitor("passes")


def session(model: bytes = MODEL, **options: Any) -> InferenceSession:
    return InferenceSession(model, SessionOptions(**options))


def told(s: InferenceSession) -> dict[str, str]:
    """What became of each node."""
    return {n["node"].partition(" (")[0]: n["place"] for n in s.explain()["nodes"]}


def oracle(x: np.ndarray) -> np.ndarray:
    return zoo.oracle(MODEL, {"x": x})[0]


def quick(x: np.ndarray) -> np.ndarray:
    return x + np.tanh(1.1283792 * x + 0.1009110 * x**3)


@pytest.mark.parametrize(
    ("options", "gone", "expected"),
    [
        ({}, True, quick),
        ({"graph_optimization_level": "basic"}, True, oracle),  # the rule is of the level after that
        ({"disabled_passes": ["visitor.quick_erf"]}, True, oracle),
        ({"disabled_passes": ["visitor.double_negation"]}, False, quick),
        ({"graph_optimization_level": "disabled"}, False, oracle),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_passes_of_an_outside_package(passes: None, options: Any, gone: bool, expected: Any) -> None:
    s = session(**options)
    y = s.run(None, {"x": X})[0]
    np.testing.assert_allclose(y, expected(X), rtol=1e-5, atol=1e-6)
    assert [told(s)[f'Neg "{name}"'] == "unused" for name in "ab"] == [gone] * 2
    assert np.abs(oracle(X) - quick(X)).max() > 1e-4  # the two can be told apart


def test_sessions_keep_the_passes_that_were_there(passes: None) -> None:
    s = session()
    remove_pass("visitor.quick_erf")
    np.testing.assert_allclose(s.run(None, {"x": X[:7]})[0], quick(X[:7]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(session().run(None, {"x": X})[0], oracle(X), rtol=1e-5, atol=1e-6)


# ── places ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_in_its_order() -> None:
    """Rules run where they were put: among the built-in passes, and among those at the same place as registered."""
    seen: list[str] = []

    def noting(name: str) -> Callable[[Any], Any]:
        def note(given: Any) -> Any:
            seen.append(name)
            return given if name.startswith("g") else None

        return note

    rewrite_rule("k1", after="legalise")(noting("k1"))
    rewrite_rule("k2", after="legalise")(noting("k2"))
    rewrite_rule("k0", before="legalise")(noting("k0"))
    rewrite_rule("k3", after="k2")(noting("k3"))
    rewrite_rule("k9", after="epilogues")(noting("k9"))
    graph_pass("g1")(noting("g1"))
    graph_pass("g2")(noting("g2"))
    graph_pass("g0", before="g1")(noting("g0"))
    names = known_passes()
    assert names[:4] == ["g0", "g1", "g2", "lowering"]
    assert names[names.index("legalise") - 1 :][:5] == ["k0", "legalise", "k1", "k2", "k3"]
    session()
    assert list(dict.fromkeys(seen)) == ["g0", "g1", "g2", "k0", "k1", "k2", "k3", "k9"]


def test_the_table_in_the_docs() -> None:
    first = {p.name: p.level for p in reversed(PASSES)}
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (yes|no) \|", (ROOT / "docs/extending.md").read_text(), re.MULTILINE)
    assert rows == [(name, first[name], "no" if name in REQUIRED else "yes") for name in known_passes()]


def nothing(_: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("register", "match"),
    [
        (lambda: rewrite_rule("r", after="nowhere")(nothing), '"nowhere", which is not a pass.*lowering.*legalise'),
        (lambda: rewrite_rule("r", before="lowering")(nothing), 'works on kernels, so it must run after "lowering"'),
        (lambda: graph_pass("g", after="map_fusion")(nothing), 'works on a graph, so it must run before "lowering"'),
        (lambda: graph_pass("g", before="lowering", after="lowering")(nothing), "two positions"),
        (lambda: rewrite_rule("r", level="most")(nothing), "level 'most'.*disabled, basic"),
        (lambda: rewrite_rule("map_fusion")(nothing), 'a pass "map_fusion" exists already'),
        (lambda: [rewrite_rule("r")(nothing), graph_pass("r")(nothing)], 'a pass "r" exists already.*remove_pass'),
        (lambda: remove_pass("map_fusion"), 'no pass with the name "map_fusion" was registered'),
        (lambda: session(disabled_passes=["map_fusio"]), 'no pass "map_fusio" to disable.*map_fusion'),
        (lambda: session(disabled_passes="map_fusion"), "disabled_passes cannot be 'map_fusion'.*a list of names"),
        (lambda: session(disabled_passes=["legalise"]), '"legalise" is required and cannot be disabled'),
        (lambda: session(disabled_passes=["dead_code"]), '"dead_code" is required and cannot be disabled'),
    ],
)
def test_refused_places_and_names(register: Callable[[], Any], match: str) -> None:
    before = [n for n in known_passes() if n != "r"]
    with pytest.raises(InvalidInput, match=match):
        register()
    assert [n for n in known_passes() if n != "r"] == before


# ── what passes may not do ────────────────────────────────────────────────────────────────────────────────────────────


def graph_without_nodes(graph: Any) -> Any:
    return graph.with_nodes(graph.nodes[1:])


def other_outputs(graph: Any) -> Any:
    return replace(graph, outputs=graph.outputs * 2)


def reads_its_own(kernel: Any) -> Any:
    return Map(kernel.out.at(*[index(n) for n in range(kernel.out.rank)])) if isinstance(kernel, Map) else None


def too_many_axes(kernel: Any) -> Any:
    return Map(cast(index(1), F32)) if isinstance(kernel, Map) else None


def gives_an_expression(kernel: Any) -> Any:
    return kernel.inputs[0].at(index(0))


def fails(_: Any) -> Any:
    raise KeyError("oops")


@pytest.mark.parametrize(
    ("register", "fn", "error", "match"),
    [
        (graph_pass, graph_without_nodes, InvalidModel, 'Neg "b".*pass "bad": input "a" is not defined'),
        (graph_pass, other_outputs, InvalidModel, 'pass "bad": changed the inputs or outputs'),
        (graph_pass, nothing, InvalidModel, 'pass "bad": returned NoneType, not a Graph'),
        (graph_pass, fails, SessionFailed, "pass \"bad\" failed: KeyError: 'oops'"),
        (rewrite_rule, reads_its_own, InvalidModel, 'Neg "a".*pass "bad": a Map reads .* not made before it'),
        (rewrite_rule, too_many_axes, InvalidModel, r'Neg "a".*pass "bad": index\(1\) in a Map of 1 axes'),
        (rewrite_rule, fails, SessionFailed, 'Neg "a".*pass "bad": KeyError: \'oops\''),
        (rewrite_rule, gives_an_expression, InvalidModel, 'Neg "a".*pass "bad": returned at.*, not None, a kernel'),
        (rewrite_rule, lambda _: [], InvalidModel, r'Neg "a".*pass "bad": returned \[\], not None, a kernel'),
    ],
)
def test_what_passes_may_not_do(register: Any, fn: Any, error: type[Exception], match: str) -> None:
    register("bad")(fn)
    with pytest.raises(error, match=match):
        session()
    session(disabled_passes=["bad"])


def test_a_rule_may_give_several_kernels() -> None:
    """Erf in two kernels: tanh of a polynomial, which is a tensor of its own."""

    @rewrite_rule("in_two", after="unread_values", level="disabled")
    def in_two(kernel: Any) -> Any:
        if not kernel.node.startswith("Erf"):
            return None
        (x,) = kernel.inputs
        e = x.at(index(0))
        first = Map(1.1283792 * e + 0.1009110 * e * e * e)
        middle = Tensor(x.shape, x.dtype, first)
        first.outputs, first.node = (middle,), kernel.node
        return [first, Map(tanh(middle.at(index(0))))]

    s = session(graph_optimization_level="disabled")
    np.testing.assert_allclose(s.run(None, {"x": X})[0], quick(X), rtol=1e-5, atol=1e-6)
    (entry,) = [n for n in s.explain()["nodes"] if n["node"].startswith("Erf")]
    assert entry["calls"] == 2


def test_constants_made_before_a_run_are_rewritten_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[3] x) => (float[3] y) <float[3] k = {1, 2, 3}> {
        a = Neg (k)  b = Erf (a)  y = Add (b, x) }"""
    seen: list[str] = []
    rewrite_rule("look", after="constant_hoisting", level="disabled")(lambda kernel: seen.append(kernel.node))
    session(onnx.parser.parse_model(text).SerializeToString())
    assert any(node.startswith("Erf") for node in seen)


# ── providers ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MIXED = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[N, 512] x, float[512, 512] w, double[M] d) => (float[N, 512] y, double[M] e, double[M] f)
    <int64 zero = {0}> { a = Tanh (x)  y = MatMul (a, w)  e = Tanh (d)  f = CumSum (d, zero) }"""
TOO_SLOW, NO_DOUBLES = "a Loops is too slow for Python", "float64 cannot be stored on the GPU"


def mixed() -> tuple[bytes, dict[str, np.ndarray]]:
    """A large product, and a map and a procedure on float64."""
    rng = np.random.default_rng(3)
    feeds = {"x": rng.standard_normal((4, 512)), "w": rng.standard_normal((512, 512)) / 20}
    floats = {name: x.astype(np.float32) for name, x in feeds.items()}
    return onnx.parser.parse_model(MIXED).SerializeToString(), floats | {"d": rng.standard_normal(9)}


@pytest.mark.parametrize(
    ("providers", "places", "reasons"),
    [
        (["slow", "wasm"], "slow wasm slow wasm", ["", "a Call is too slow for Python", "", TOO_SLOW]),
        (["slow"], "slow wasm slow wasm", ["", "a Call is too slow for Python", "", TOO_SLOW]),
        (["wasm", "slow"], "wasm wasm wasm wasm", [""] * 4),
        (["webgpu", "slow", "wasm"], "webgpu webgpu slow wasm", ["", "", NO_DOUBLES, NO_DOUBLES]),
        (["webgpu", "slow"], "webgpu webgpu slow wasm", ["", "", NO_DOUBLES, NO_DOUBLES]),
        (["slow", "webgpu", "wasm"], "slow webgpu slow wasm", ["", "a Reduce is too slow for Python", "", TOO_SLOW]),
    ],
    ids=str,
)
def test_a_provider_of_an_outside_package(
    visitor: Callable[[str], Any], providers: list[str], places: str, reasons: list[str]
) -> None:
    """It is found by its entry point; explain tells what went where and why."""
    if "webgpu" in providers:
        pytest.importorskip("wgpu")
    model, feeds = mixed()
    s = InferenceSession(model, providers=[GPU if p == "webgpu" else p for p in providers])
    ran = visitor("slow").ran
    ran.clear()
    for found, expected in zip(s.run(None, feeds), zoo.oracle(model, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    nodes = s.explain()["nodes"]
    assert [n["place"] for n in nodes] == places.split()
    assert [n["why"] for n in nodes] == reasons
    assert ran == [n["node"] for n in nodes if n["place"] == "slow"]
    assert s.explain()["placement"].get("slow", 0) == len(ran)
    assert s.get_providers() == their_names(provider_list.effective(providers))


@pytest.mark.parametrize("name", ["bert_tiny", "yolo_nms", "lstm_tagger"])
def test_models_on_three_providers(visitor: Callable[[str], Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is small runs in Python, in inner blocks, too; the rest where it ran before."""
    pytest.importorskip("wgpu")
    slow = visitor("slow")

    def small(self: Any, kernel: Any) -> str:
        is_small = isinstance(kernel, (Map, Loops)) and sh.estimate(sh.size(kernel.outputs[0].shape)) <= 2000
        return "" if is_small else "not small"

    monkeypatch.setattr(slow.SlowProvider, "supports", small)
    slow.ran.clear()
    model = MODELS[name]
    s = InferenceSession(str(model.path()), providers=["slow", GPU, "wasm"])
    model.check(s.run(None, model.feeds()))
    assert slow.ran and {"slow"} < s.explain()["placement"].keys()


def test_verify_compares_providers(visitor: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, feeds = mixed()
    s = InferenceSession(model, providers=["slow"])
    assert s.verify(feeds).ok
    slow = visitor("slow").SlowProvider
    evaluate = slow.evaluate

    def wrong(*given: Any) -> Any:
        return [(shape, [2 * x for x in data]) for shape, data in evaluate(*given)]

    monkeypatch.setattr(slow, "evaluate", wrong)
    first = s.verify(feeds).first
    assert first is not None and first.node.startswith('Tanh "a"')


def test_a_file_cannot_have_a_provider_in_python(visitor: Callable[[str], Any]) -> None:
    s = InferenceSession(mixed()[0], providers=["slow"])
    with pytest.raises(InvalidInput, match='Tanh "a".*runs in Python \\(slow\\), which a file cannot hold'):
        s.export()


class Nameless(ArrayProvider):
    def supports(self, kernel: Any) -> str:
        return ""

    def compile(self, part: Any) -> Any: ...


class Wasm(Nameless):
    name = "wasm"


class Silent(ArrayProvider):
    name = "silent"


@pytest.mark.parametrize(
    ("provider", "match"),
    [
        (Nameless(), "is no provider"),
        (Silent(), "is no provider .*supports and compile"),
        (object(), "is no provider"),
        (Wasm, "is no provider .*an object of a subclass"),
        (Wasm(), '"wasm" exists already'),
    ],
)
def test_refused_providers(provider: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        register_provider(provider)


def test_providers_by_name(visitor: Callable[[str], Any]) -> None:
    assert "slow" in get_available_providers()
    with pytest.warns(UserWarning, match='"quick" is unknown and skipped .*slow'):
        assert InferenceSession(MODEL, providers=["quick"]).get_providers() == ["CPUExecutionProvider"]
    register_provider(visitor("slow").provider)  # once more is no harm


def test_the_command_line_takes_any_provider(
    visitor: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL)
    assert cli(["inspect", str(tmp_path / "m.onnx"), "--provider", "slow"]) == 0
    assert "on slow" in capsys.readouterr().out


def test_a_routine_that_no_provider_has_is_refused() -> None:
    @op("Misspelt", domain="tests.extending")
    def misspelt(t: Any, x: Tensor) -> Tensor:
        return t.call("matmull", (x,), t.map(-X_, x))

    text = """<ir_version: 10, opset_import: ["tests.extending" : 1]>
        g (float[N] x) => (float[N] y) { y = tests.extending.Misspelt (x) }"""
    with pytest.raises(UnsupportedOp, match=r'Misspelt "y".*no provider has a routine "matmull" \(.*matmul'):
        InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    del registry.table()["tests.extending", "Misspelt"]


# ── built-in passes ───────────────────────────────────────────────────────────────────────────────────────────────────

OPTIONAL = [name for name in known_passes() if name not in REQUIRED]


@pytest.mark.parametrize("name", ["digits", "bert_tiny", "lstm_tagger", "yolo_nms"])
@pytest.mark.parametrize("left_out", [*[[name] for name in OPTIONAL], OPTIONAL], ids="+".join)
def test_models_without_a_pass(name: str, left_out: list[str]) -> None:
    model = MODELS[name]
    s = InferenceSession(str(model.path()), SessionOptions(disabled_passes=left_out))
    model.check(s.run(None, model.feeds()))


def test_what_is_left_out_does_not_run() -> None:
    model = MODELS["bert_tiny"]
    whole, parts = (
        InferenceSession(str(model.path()), SessionOptions(disabled_passes=names)).explain()["kernels"]
        for names in ([], ["map_fusion", "epilogues", "row_fusion"])
    )
    assert whole < parts
    assert {p.level for p in PASSES} <= set(LEVELS) and Pipeline("disabled") is not None
